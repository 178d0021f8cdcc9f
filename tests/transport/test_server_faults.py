"""Servers that are full, slow, broken or not who they say: what is not sent is not called sent,
what is half there reaches nobody, and nothing is said to the wrong one."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult

from oncewire.errors import TransportProblem
from oncewire.transport.broker import transport as broker_connection
from oncewire.transport.broker import transport as broker_transport
from oncewire.transport.broker.transport import BrokerTransport
from oncewire.transport.contract import AttemptOutcome, OutcomeKind, Transport
from oncewire.transport.files.ftp import ftp_transport
from oncewire.transport.files.sftp import sftp_transport
from oncewire.transport.http.tls import Identity, PeerTls, client_context
from oncewire.transport.smtp.relay import MailTls, RelaySettings
from oncewire.transport.smtp.transport import SmtpTransport
from tests.transport.brokers import broker
from tests.transport.exchange import Certificates, Receiver, cargo
from tests.transport.file_servers import (
    PASSWORD,
    USER,
    Mood,
    ftp_server,
    ftp_settings,
    sftp_server,
    sftp_settings,
)
from tests.waiting import until

pytestmark = pytest.mark.long

WRONG = ("stranger", "name", "expired")
ADDRESS = "mailto:beta@beta.example"


def wrong_identity(world: Certificates, wrong: str) -> Identity:
    """A certificate that should convince nobody of 127.0.0.1."""
    if wrong == "stranger":
        return world.identity("localhost", authority=world.stranger)
    if wrong == "expired":
        return world.identity("localhost", expired=True)
    made = world.authority.issue_cert("somebody.example")
    certificate, key = world.folder / "other.crt", world.folder / "other.key"
    certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    key.write_bytes(made.private_key_pem.bytes())
    return Identity(certificate, key)


def believing(world: Certificates) -> ssl.SSLContext:
    return client_context(PeerTls(trusted=(world.pem,)))


# --- files ---------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def on_files(
    way: str, folder: Path, mood: Mood, receiver: Receiver
) -> AsyncIterator[tuple[Transport, str, Path]]:
    root = folder / "root"
    inbox = root / "beta"
    inbox.mkdir(parents=True)
    async with contextlib.AsyncExitStack() as stack:
        if way == "sftp":
            port, known = await stack.enter_async_context(sftp_server(root, folder, mood))
            address = f"sftp://127.0.0.1:{port}/beta"
            taking = sftp_transport(**sftp_settings(known, inbox=address))
        else:
            port = stack.enter_context(ftp_server(root, mood=mood))
            address = f"ftp://127.0.0.1:{port}/beta"
            taking = ftp_transport(**ftp_settings(inbox=address))
        await taking.start(receiver)
        try:
            yield taking, address, inbox
        finally:
            await taking.stop()


@pytest.mark.parametrize("way", ["ftp", "sftp"])
@pytest.mark.parametrize("fault", ["full", "breaks", "slow"])
@pytest.mark.requirement("TRN-4")
@pytest.mark.within(30)
async def test_a_file_that_cannot_be_written_is_not_sent_and_leaves_nothing(
    way: str, fault: str, tmp_path: Path
) -> None:
    mood = Mood()

    receiver = Receiver()
    async with on_files(way, tmp_path, mood, receiver) as (transport, address, inbox):
        setattr(mood, fault, 0.7 if fault == "slow" else True)
        outcome = await transport.send(cargo(b"x" * 300_000), address, timeout=0.5)
        assert outcome.kind is OutcomeKind.REFUSED
        assert outcome.reason
        mood.full, mood.breaks, mood.slow = False, False, 0.0
        outcome = await transport.send(cargo(b"<whole/>"), address, timeout=20)
        assert outcome.kind is OutcomeKind.SENT
        await until(lambda: bool(receiver.taken))
        assert [taken.body for taken in receiver.taken] == [b"<whole/>"]
        await until(lambda: all(".part" in name.name for name in inbox.iterdir()))
        if fault != "breaks":
            # Where the connection broke, the server may have it still, under a name that
            # nobody looks at.
            await until(lambda: not list(inbox.iterdir()))


@pytest.mark.parametrize("wrong", [*WRONG, "none"])
async def test_who_we_are_is_not_said_to_a_wrong_ftps_server(
    wrong: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = Certificates(tmp_path)
    identity = None if wrong == "none" else wrong_identity(world, wrong)
    (tmp_path / "root" / "beta").mkdir(parents=True)

    with (
        caplog.at_level(logging.DEBUG, "pyftpdlib"),
        ftp_server(tmp_path / "root", identity) as port,
    ):
        sending = ftp_transport(**ftp_settings(context=believing(world)))
        await sending.start(Receiver())
        address = f"ftps://127.0.0.1:{port}/beta"
        outcome = await sending.send(cargo(b"<a/>"), address, timeout=10)
        assert outcome.kind is OutcomeKind.REFUSED
        assert PASSWORD not in outcome.reason
        probed = await sending.probe(address, timeout=10)
        assert probed.kind is OutcomeKind.REFUSED
        await sending.stop()
    assert not any(f"USER {USER}" in record.getMessage() for record in caplog.records)
    assert not any((tmp_path / "root" / "beta").iterdir())


# --- mail ----------------------------------------------------------------------------------------


class MailServer:
    """A relay that takes what it is given, as its test says."""

    def __init__(self, answer: str = "250 OK", wait: float = 0.0) -> None:
        self.answer, self.wait = answer, wait
        self.mails: list[bytes] = []
        self.tried: list[str] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        await asyncio.sleep(self.wait)
        if self.answer.startswith("2"):
            self.mails.append(bytes(envelope.content))
        return self.answer

    def authenticate(
        self, _server: Any, _session: Any, _envelope: Any, _how: str, data: Any
    ) -> Any:
        self.tried.append(data.login.decode())
        good = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=good, handled=False)

    @contextlib.asynccontextmanager
    async def running(
        self, tls: ssl.SSLContext | None = None, *, implicit: bool = False, auth: bool = False
    ) -> AsyncIterator[int]:
        def made() -> SMTP:
            more: dict[str, Any] = {}
            if auth:
                more = {"authenticator": self.authenticate, "auth_required": True}
            starttls = None if implicit else tls
            loop = asyncio.get_running_loop()
            return SMTP(self, hostname="relay", tls_context=starttls, loop=loop, **more)

        loop = asyncio.get_running_loop()
        server = await loop.create_server(made, "127.0.0.1", 0, ssl=tls if implicit else None)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()


def serving_tls(identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    return context


def mailing(port: int, tls: MailTls = MailTls.NONE, **more: Any) -> SmtpTransport:
    return SmtpTransport(RelaySettings("alpha@alpha.example", "127.0.0.1", port, tls, **more))


@pytest.mark.parametrize("answer", ["452 4.3.1 no room", "552 5.3.4 too large", "421 going down"])
@pytest.mark.requirement("TRN-3")
async def test_what_a_full_mail_server_does_not_take_is_not_sent(answer: str) -> None:
    server = MailServer(answer)
    async with server.running() as port:
        outcome = await mailing(port).send(cargo(b"<a/>"), ADDRESS, timeout=10)
        assert outcome.kind is OutcomeKind.REFUSED
        assert answer[:3] in outcome.reason
        server.answer = "250 OK"
        outcome = await mailing(port).send(cargo(b"<a/>"), ADDRESS, timeout=10)
        assert outcome.kind is OutcomeKind.SENT
        assert len(server.mails) == 1


async def test_a_mail_server_that_answers_too_late_may_have_it() -> None:
    server = MailServer(wait=1.0)
    async with server.running() as port:
        outcome = await mailing(port).send(cargo(b"<a/>"), ADDRESS, timeout=0.4)
        assert outcome.kind is OutcomeKind.UNKNOWN


@pytest.mark.parametrize("wrong", [*WRONG, "none"])
@pytest.mark.parametrize("implicit", [False, True], ids=["starttls", "tls"])
async def test_nothing_is_said_to_a_wrong_mail_server(
    wrong: str, implicit: bool, tmp_path: Path
) -> None:
    world = Certificates(tmp_path)
    context = None if wrong == "none" else serving_tls(wrong_identity(world, wrong))

    server = MailServer()
    way = MailTls.TLS if implicit else MailTls.STARTTLS
    async with server.running(context, implicit=implicit and context is not None) as port:
        sending = mailing(port, way, context=believing(world), user=USER, password=PASSWORD)
        outcome = await sending.send(cargo(b"<a/>"), ADDRESS, timeout=5)
        assert outcome.kind is OutcomeKind.REFUSED
        assert (await sending.probe(ADDRESS, timeout=5)).kind is OutcomeKind.REFUSED
        assert not server.mails
        assert not server.tried


@pytest.mark.parametrize("password", [PASSWORD, "a wrong one"])
async def test_a_mail_server_is_told_who_we_are_over_tls(password: str, tmp_path: Path) -> None:
    world = Certificates(tmp_path)

    server = MailServer()
    context = serving_tls(world.identity("localhost"))
    async with server.running(context, auth=True) as port:
        sending = mailing(
            port, MailTls.STARTTLS, context=believing(world), user=USER, password=password
        )
        outcome = await sending.send(cargo(b"<a/>"), ADDRESS, timeout=10)
        assert server.tried
        assert password not in outcome.reason
        good = password == PASSWORD
        assert outcome.kind is (OutcomeKind.SENT if good else OutcomeKind.REFUSED)
        assert len(server.mails) == good
        nobody = await mailing(port, MailTls.STARTTLS, context=believing(world)).send(
            cargo(b"<a/>"), ADDRESS, timeout=10
        )
        assert nobody.kind is OutcomeKind.REFUSED


# --- a broker ------------------------------------------------------------------------------------

in_a_process = pytest.mark.process


@in_a_process
@pytest.mark.requirement("RM-7")
async def test_a_full_broker_takes_nothing_more(tmp_path: Path) -> None:
    with broker(tmp_path, limits=", max_file_store: 1MB") as server:
        away = BrokerTransport(server.settings("oncewire.beta"))
        await away.start(Receiver())
        await away.stop()
        sending = BrokerTransport(server.settings())
        await sending.start(Receiver())
        outcome = AttemptOutcome(OutcomeKind.UNKNOWN)
        while outcome.kind is OutcomeKind.UNKNOWN:
            # What lies there waits for its receiver, until there is no more room.
            parcel = cargo(b"x" * 400_000)
            outcome = await sending.send(parcel, "nats:oncewire.beta", timeout=0.5)
        assert outcome.kind is OutcomeKind.REFUSED
        assert outcome.reason.startswith("the broker refused it: ")
        await sending.stop()


@in_a_process
@pytest.mark.parametrize("wrong", [*WRONG, "none", ""])
async def test_a_broker_that_is_not_the_one_hears_nothing(wrong: str, tmp_path: Path) -> None:
    world = Certificates(tmp_path)
    more = f'authorization {{ user: "{USER}", password: "{PASSWORD}" }}\n'
    if wrong != "none":
        shown = wrong_identity(world, wrong) if wrong else world.identity("localhost")
        more += f'tls {{ cert_file: "{shown.certificate}", key_file: "{shown.key}" }}\n'
    with broker(tmp_path / "broker", more=more) as server:
        made = server.settings(
            "oncewire.beta", context=believing(world), user=USER, password=PASSWORD
        )
        transport = BrokerTransport(replace(made, url=f"tls://127.0.0.1:{server.port}"))
        if wrong:
            with pytest.raises(TransportProblem, match="cannot be used"):
                await transport.start(Receiver())
            return
        receiver = Receiver()
        await transport.start(receiver)
        outcome = await transport.send(cargo(b"<a/>"), "nats:oncewire.beta", timeout=20)
        assert outcome.kind is OutcomeKind.SENT
        await transport.stop()


@in_a_process
@pytest.mark.requirement("RM-7")
async def test_a_broker_that_is_away_at_the_start_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_connection, "WAITED_FOR", 0.1)

    with broker(tmp_path) as server:
        server.kill()
        receiver = Receiver()
        transport = BrokerTransport(server.settings("oncewire.beta"))
        await transport.start(receiver)
        outcome = await transport.send(cargo(b"<a/>"), "nats:oncewire.beta", timeout=0.3)
        assert outcome.kind is OutcomeKind.REFUSED
        assert "away" in outcome.reason
        await asyncio.to_thread(server.start)
        outcome = await transport.send(cargo(b"<b/>"), "nats:oncewire.beta", timeout=20)
        assert outcome.kind is OutcomeKind.SENT
        assert [taken.body for taken in receiver.taken] == [b"<b/>"]
        await transport.stop()


@in_a_process
@pytest.mark.requirement("RM-7")
async def test_a_parcel_that_went_with_its_stream_is_not_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_transport, "LOOK_EVERY", 0.1)

    import nats

    with broker(tmp_path) as server:
        away = BrokerTransport(server.settings("oncewire.beta"))
        await away.start(Receiver())
        await away.stop()
        sending = BrokerTransport(server.settings())
        await sending.start(Receiver())
        sent = asyncio.create_task(sending.send(cargo(b"<a/>"), "nats:oncewire.beta", timeout=20))
        operator = await nats.connect(f"nats://127.0.0.1:{server.port}")
        stream = operator.jetstream()
        while not (await stream.stream_info("ONCEWIRE-oncewire-beta")).state.messages:
            await asyncio.sleep(0.02)
        await stream.delete_stream("ONCEWIRE-oncewire-beta")
        outcome = await sent
        assert outcome.kind is OutcomeKind.UNKNOWN
        assert "lost the stream" in outcome.reason
        await operator.close()
        await sending.stop()
