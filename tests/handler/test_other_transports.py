"""Real handlers over real servers: mail, SFTP and FTP, with nothing but the agreement changed."""

import asyncio
import contextlib
import functools
import random
import smtplib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from oncewire.agreement.agreement import TRANSPORTS, Agreements
from oncewire.agreement.toml import read_toml
from oncewire.handler.actions import Submission
from oncewire.handler.context import HandlerContext
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.world import RealWorld
from oncewire.journal.check import check_journal
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.protocol.notes import Kind
from oncewire.protocol.states import OutgoingState
from oncewire.store.sqlite.store import SqliteStore
from oncewire.transport.broker.transport import BrokerTransport
from oncewire.transport.contract import Transport
from oncewire.transport.files.ftp import ftp_transport
from oncewire.transport.files.sftp import sftp_transport
from oncewire.transport.http.tls import PeerTls, client_context
from oncewire.transport.smtp.listener import ListenerSettings
from oncewire.transport.smtp.relay import MailTls, RelaySettings, write_mail
from oncewire.transport.smtp.transport import SmtpTransport
from tests.handler.running import journal
from tests.ports import free_port
from tests.transport.brokers import broker
from tests.transport.exchange import Certificates
from tests.transport.file_servers import ftp_server, ftp_settings, sftp_server, sftp_settings
from tests.transport.mailboxes import mailboxes

QUICK = '[delivery]\ntimeout = "PT1S"\nretry_interval = "PT1S"\nretries = 20\n'
NAMES = ("alpha", "beta")


@dataclass
class World:
    """Two parties, the addresses of each, and what each travels by."""

    folder: Path
    addresses: dict[str, dict[str, str]]
    ways: dict[str, dict[str, Transport]]
    extra: str = QUICK
    profile: str = "ebms2"
    handlers: dict[str, Handler] = field(default_factory=dict)

    def agreement(self, own: str) -> str:
        partner = NAMES[1 - NAMES.index(own)]
        text = f'cpa_id = "alpha-beta"\nprofile = "{self.profile}"\n'
        for side, name in (("own", own), ("partner", partner)):
            text += f'[{side}]\nparty_id = "urn:test:{name}"\n'
            text += "".join(f'{way} = "{at}"\n' for way, at in self.addresses[name].items())
        return text + self.extra

    def handler(self, name: str) -> Handler:
        agreement = read_toml(self.agreement(name))
        store = SqliteStore(self.folder / f"{name}.db", node=name)
        node = HandlerContext(name, store, Agreements([agreement]), RealWorld())
        return Handler(node, self.ways[name])

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[Handler, Handler]]:
        async with contextlib.AsyncExitStack() as stack:
            for name in NAMES:
                self.handlers[name] = await stack.enter_async_context(self.handler(name))
            yield self.handlers["alpha"], self.handlers["beta"]


@contextlib.asynccontextmanager
async def by_mail(folder: Path, extra: str = QUICK) -> AsyncIterator[World]:
    ports = {name: free_port() for name in NAMES}
    ways: dict[str, dict[str, Transport]] = {}
    for name, other in zip(NAMES, reversed(NAMES), strict=True):
        relay = RelaySettings(f"{name}@{name}.test", "127.0.0.1", ports[other], MailTls.NONE)
        listener = ListenerSettings(f"{name}@{name}.test", port=ports[name])
        ways[name] = {"smtp": SmtpTransport(relay, listener)}
    addresses = {name: {"smtp": f"mailto:{name}@{name}.test"} for name in NAMES}
    yield World(folder, addresses, ways, extra)


@contextlib.asynccontextmanager
async def by_sftp(folder: Path, extra: str = QUICK) -> AsyncIterator[World]:
    root = folder / "root"
    for name in NAMES:
        (root / name).mkdir(parents=True)
    async with sftp_server(root, folder) as (port, known):
        at = {name: f"sftp://127.0.0.1:{port}/{name}" for name in NAMES}
        ways: dict[str, dict[str, Transport]] = {
            name: {"sftp": sftp_transport(**sftp_settings(known, inbox=at[name], reader=name))}
            for name in NAMES
        }
        yield World(folder, {name: {"sftp": at[name]} for name in NAMES}, ways, extra)


@contextlib.asynccontextmanager
async def by_mailbox(folder: Path, extra: str = QUICK) -> AsyncIterator[World]:
    """Each has its mail on a server that it looks into."""
    ways: dict[str, dict[str, Transport]] = {}
    async with contextlib.AsyncExitStack() as stack:
        servers = {name: stack.enter_context(mailboxes(user=name)) for name in NAMES}
        ports = {
            name: await stack.enter_async_context(server.mail_server())
            for name, server in servers.items()
        }
        for name, other in zip(NAMES, reversed(NAMES), strict=True):
            relay = RelaySettings(f"{name}@{name}.test", "127.0.0.1", ports[other], MailTls.NONE)
            ways[name] = {"smtp": SmtpTransport(relay, mailbox=servers[name].settings())}
        addresses = {name: {"smtp": f"mailto:{name}@{name}.test"} for name in NAMES}
        yield World(folder, addresses, ways, extra)


@contextlib.asynccontextmanager
async def by_ftp(
    folder: Path, extra: str = QUICK, *, protected: bool = False
) -> AsyncIterator[World]:
    root = folder / "root"
    for name in NAMES:
        (root / name).mkdir(parents=True)
    identity = context = None
    if protected:
        certificates = Certificates(folder)
        identity = certificates.identity("localhost")
        context = client_context(PeerTls(trusted=(certificates.pem,)))
    with ftp_server(root, identity) as port:
        at = {name: f"{'ftps' if protected else 'ftp'}://127.0.0.1:{port}/{name}" for name in NAMES}
        ways: dict[str, dict[str, Transport]] = {
            name: {
                "ftp": ftp_transport(**ftp_settings(inbox=at[name], reader=name, context=context))
            }
            for name in NAMES
        }
        yield World(folder, {name: {"ftp": at[name]} for name in NAMES}, ways, extra)


by_ftps = functools.partial(by_ftp, protected=True)


@contextlib.asynccontextmanager
async def by_broker(folder: Path, extra: str = QUICK) -> AsyncIterator[World]:
    with broker(folder / "broker") as server:
        ways: dict[str, dict[str, Transport]] = {
            name: {"broker": BrokerTransport(server.settings(f"oncewire.{name}"))} for name in NAMES
        }
        yield World(
            folder, {name: {"broker": f"nats:oncewire.{name}"} for name in NAMES}, ways, extra
        )


WAYS = {"smtp": by_mail, "sftp": by_sftp, "ftp": by_ftp, "broker": by_broker}


def document(number: int) -> Submission:
    data = f"order {number}, with an ü, a line\nand a \0 byte".encode()
    return Submission(
        "alpha-beta",
        Service("urn:test:orders"),
        "New",
        (Payload.of(f"order-{number}", "application/octet-stream", data),),
        conversation_id="talk",
    )


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize("way", [way for way in TRANSPORTS if way != "http"])
@pytest.mark.requirement("TRN-3", "TRN-4")
@pytest.mark.within(100)
async def test_documents_and_acknowledgements_travel(way: str, tmp_path: Path) -> None:
    """Each message and each acknowledgement is a parcel of its own, there and back."""

    async with WAYS[way](tmp_path) as world, world.running() as (alpha, beta):
        sent = [await alpha.send(document(number)) for number in range(10)]
        states = [await alpha.wait(each.message_id, 40) for each in sent]
        assert states == [OutgoingState.DELIVERED] * 10
        taken = await beta.take(100)
        assert {given.message_id for given in taken} == {each.message_id for each in sent}
        for given in taken:
            assert given.payloads[0].data.startswith(b"order ")  # type: ignore[union-attr]
            assert given.payloads[0].data.endswith(b"\0 byte")  # type: ignore[union-attr]
        for handler in (alpha, beta):
            assert not check_journal(journal(handler), healed=False).violations
        rows = journal(alpha)
        assert {row.transport for row in rows if row.kind == Kind.SENT} == {way}


@pytest.mark.parametrize("way", ["smtp"])
@pytest.mark.requirement("SYNC-10")
async def test_a_synchronous_wish_is_answered_later_with_a_warning(
    way: str, tmp_path: Path
) -> None:
    extra = QUICK + '[sync]\nmode = "mshSignalsOnly"\n'

    async with WAYS[way](tmp_path, extra) as world, world.running() as (alpha, beta):
        sent = await alpha.send(document(1))
        assert await alpha.wait(sent.message_id, 20) is OutgoingState.DELIVERED
        kinds = [row.kind for row in journal(alpha)]
        assert Kind.WARNED in kinds
        assert Kind.WARNING_SENT in [row.kind for row in journal(beta)]


@pytest.mark.long
@pytest.mark.requirement("TRN-3")
@pytest.mark.within(100)
async def test_strangers_at_the_mail_server_keep_no_partner_waiting(tmp_path: Path) -> None:
    """Silent connections from one address, mails of lines without end and forgeries from another;
    a document of some megabytes and small ones from a third."""
    silent_one, stranger = ("127.0.0.6", 0), ("127.0.0.5", 0)
    forged = write_mail(
        "text/xml", (), b"<no envelope/>", sender="a@a.test", recipient="b@b.test",
        message_id="forged@a.test",
    )  # fmt: skip

    def bother(port: int, text: bytes) -> None:
        with smtplib.SMTP("127.0.0.1", port, timeout=60, source_address=stranger) as server:
            server.ehlo("x")
            server.mail("a@a.test")
            server.rcpt("beta@beta.test")
            assert server.data(text)[0] == 554

    async with by_mail(tmp_path) as world, world.running() as (alpha, beta):
        way = world.ways["beta"]["smtp"]
        assert isinstance(way, SmtpTransport)
        silent = []
        for _ in range(250):
            silent.append(
                await asyncio.open_connection("127.0.0.1", way.port, local_addr=silent_one)
            )
            if not (await silent[-1][0].readline()).startswith(b"220"):
                break
        big = Payload.of("big", "application/octet-stream", random.Random(1).randbytes(3_000_000))
        orders = [document(number) for number in range(5)]
        orders.append(replace(document(5), payloads=(big,)))
        sent = [await alpha.send(order) for order in orders]
        for text in (b"X: y\r\n" * 200_000, b"X: y\r\n\r\n" + b"a\r\n" * 500_000, forged):
            await asyncio.to_thread(bother, way.port, text)
        for each in sent:
            assert await alpha.wait(each.message_id, 40) is OutgoingState.DELIVERED
        taken = {given.message_id: given for given in await beta.take(100)}
        assert set(taken) == {each.message_id for each in sent}
        for _, writer in silent:
            writer.close()
        for handler in (alpha, beta):
            assert not check_journal(journal(handler), healed=False).violations
