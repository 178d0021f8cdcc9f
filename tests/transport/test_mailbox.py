"""Mail out of a mailbox, under the contract that every transport answers to, and what becomes of it
when its reader dies, cannot store it, or should never have got it."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from oncewire.transport.contract import Delivery, OutcomeKind, Reply, Transport
from oncewire.transport.http.tls import PeerTls, client_context
from oncewire.transport.smtp.relay import MailTls, RelaySettings, write_mail
from oncewire.transport.smtp.transport import ImapBox, MailboxSettings, SmtpTransport, probe_mailbox
from tests.transport.contract_checks import TransportContract
from tests.transport.exchange import Certificates, Receiver
from tests.transport.mailboxes import PASSWORD, Mailboxes, empty, mailboxes
from tests.waiting import until

OnDelivery = Callable[[Delivery], Awaitable[Reply]]
pytestmark = [pytest.mark.process, pytest.mark.long]


@pytest.fixture(scope="module")
def server() -> Iterator[Mailboxes]:
    with mailboxes() as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_in_it(server: Mailboxes) -> None:
    empty(server)


def mail(body: bytes, message_id: str = "1@a.test") -> bytes:
    return write_mail(
        "text/xml", (), body, sender="a@a.test", recipient="beta@b.test", message_id=message_id
    )


@contextlib.asynccontextmanager
async def looking(settings: MailboxSettings, receiver: OnDelivery) -> AsyncIterator[SmtpTransport]:
    transport = SmtpTransport(mailbox=settings)
    await transport.start(receiver)
    try:
        yield transport
    finally:
        await transport.stop()


class TestMailbox(TransportContract):
    many = 20
    megabytes = 2

    @pytest.fixture(autouse=True)
    def _server(self, server: Mailboxes) -> None:
        self.server = server

    @contextlib.asynccontextmanager
    async def pair(self, receiver: OnDelivery) -> AsyncIterator[tuple[Transport, Transport, str]]:
        async with (
            self.server.mail_server() as port,
            looking(self.server.settings(), receiver) as taking,
        ):
            relay = RelaySettings("alpha@alpha.example", "127.0.0.1", port, MailTls.NONE)
            sending = SmtpTransport(relay)
            await sending.start(Receiver())
            yield sending, taking, "mailto:beta@beta.example"

    def nowhere(self) -> str:
        return "mailto:nobody@beta.example"


@pytest.mark.requirement("TRN-3")
async def test_a_mail_is_removed_when_it_is_stored_and_not_before(server: Mailboxes) -> None:
    """Whoever dies with it finds it again."""

    dying = asyncio.Event()

    async def dies(_taken: object) -> Reply:
        dying.set()
        await asyncio.Event().wait()
        raise AssertionError

    await asyncio.to_thread(server.put, mail(b"<a/>"))
    async with looking(server.settings(), Receiver(dies)):
        await dying.wait()
    assert await asyncio.to_thread(server.flags) == [set()]
    receiver = Receiver()
    async with looking(server.settings(), receiver):
        while await asyncio.to_thread(server.flags):
            await asyncio.sleep(0.02)
    assert [taken.body for taken in receiver.taken] == [b"<a/>"]


async def test_what_is_no_message_is_flagged_and_left_to_people(server: Mailboxes) -> None:
    receiver = Receiver(lambda taken: Reply(400 if taken.body == b"junk" else 204, body=b"no"))
    big = mail(b"x" * 50_000, "2@a.test")
    await asyncio.to_thread(
        server.put, mail(b"junk"), big, b"no headers at all", mail(b"<good/>", "3@a.test")
    )
    async with looking(server.settings(max_size=10_000), receiver):
        await until(lambda: bool(receiver.taken) and receiver.taken[-1].body == b"<good/>")
        while len(await asyncio.to_thread(server.flags)) > 3:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)
    assert await asyncio.to_thread(server.flags) == [{b"\\Flagged"}] * 3
    assert [taken.body for taken in receiver.taken] == [b"junk", b"<good/>"]


async def test_mails_that_others_marked_are_theirs(server: Mailboxes) -> None:
    def marked() -> None:
        server.put(mail(b"<theirs/>"), mail(b"<ours/>", "2@a.test"))
        with server.opened() as client:
            client.delete_messages(client.search()[:1])

    await asyncio.to_thread(marked)
    receiver = Receiver()
    async with looking(server.settings(), receiver):
        await until(lambda: bool(receiver.taken))
        while len(await asyncio.to_thread(server.flags)) > 1:
            await asyncio.sleep(0.02)
    assert [taken.body for taken in receiver.taken] == [b"<ours/>"]
    assert await asyncio.to_thread(server.flags) == [{b"\\Deleted"}]


@pytest.mark.parametrize("wrong", ["stranger", "none", ""])
async def test_a_password_goes_over_tls_to_the_right_server_or_not_at_all(
    wrong: str, tmp_path: Path
) -> None:
    world = Certificates(tmp_path)
    other = world.stranger if wrong == "stranger" else None
    identity = None if wrong == "none" else world.identity("localhost", authority=other)
    context = client_context(PeerTls(trusted=(world.pem,)))
    receiver = Receiver()
    with mailboxes(identity) as server:
        settings = server.settings(tls=MailTls.STARTTLS, context=context)
        outcome = await probe_mailbox(settings, timeout=20)
        if wrong:
            assert outcome.kind is OutcomeKind.REFUSED
            assert re.search(r"(?i)tls|certificate", outcome.reason)
            assert PASSWORD not in outcome.reason
            return
        assert outcome.kind is OutcomeKind.SENT
        box = await asyncio.to_thread(ImapBox, settings)
        assert box.wanted() == []
        box.close()
    assert not receiver.taken
