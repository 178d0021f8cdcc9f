"""A server of mailboxes that lies: its reader keeps no more than a mail may have, waits no longer
than it should, and takes what the others sent."""

import asyncio
import contextlib
import re
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import pytest

from oncewire.transport.contract import OutcomeKind, Reply
from oncewire.transport.smtp import transport as smtp
from oncewire.transport.smtp.relay import MailTls, write_mail
from oncewire.transport.smtp.transport import MailboxSettings, SmtpTransport, probe_mailbox
from tests.transport.exchange import Receiver, listening, turns
from tests.waiting import until

pytestmark = pytest.mark.long


def mail(number: int) -> bytes:
    return write_mail(
        "text/xml",
        (),
        f"<mail number='{number}'/>".encode(),
        sender="a@a.test",
        recipient="b@b.test",
        message_id=f"{number}@a.test",
    )


@dataclass
class Liar:
    """A mailbox of three mails; the second is not what it says."""

    lie: str
    mails: dict[int, bytes] = field(default_factory=lambda: {n: mail(n) for n in (1, 2, 3)})
    told: int = 0
    validity: int = 1
    hung_up: int = 0
    # Bytes of the largest answer to what a mail holds.
    largest: int = 0

    def running(self) -> AbstractAsyncContextManager[int]:
        return listening(self._talk)

    async def _talk(self, lines: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        self._out = out
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await self._greet()
            while line := await lines.readline():
                tag, _, command = line.decode().strip().partition(" ")
                await self._answer(tag, command.upper())
        self.hung_up += 1
        out.close()

    async def _say(self, words: bytes) -> None:
        self.told += len(words)
        self._out.write(words)
        await self._out.drain()

    async def _for_ever(self, words: bytes, wait: float = 0.0) -> None:
        while True:
            await self._say(words)
            await asyncio.sleep(wait)

    async def _greet(self) -> None:
        if self.lie == "endless greeting":
            await self._for_ever(b"x" * 65536)
        await self._say(b"* OK [CAPABILITY IMAP4rev1 UIDPLUS] hello\r\n")

    async def _answer(self, tag: str, command: str) -> None:
        if command.startswith("CAPABILITY"):
            await self._say(b"* CAPABILITY IMAP4rev1 UIDPLUS\r\n")
        elif command.startswith("SELECT"):
            # Another mailbox every time, if it is to be believed.
            self.validity += self.lie == "validity"
            await self._say(f"* 3 EXISTS\r\n* OK [UIDVALIDITY {self.validity}] now\r\n".encode())
        elif command.startswith("UID SEARCH"):
            more = " 999999999999 4" if self.lie == "strangers" else ""
            await self._say(f"* SEARCH {' '.join(map(str, self.mails))}{more}\r\n".encode())
        elif "RFC822.SIZE" in command:
            await self._sizes(command)
        elif "BODY" in command:
            number = int(command.split()[2])
            start, count = map(int, re.findall(r"<(\d+)\.(\d+)>", command)[0])
            await (self._lie() if number == 2 else self._mail(number, start, count))
        elif "STORE" in command and "DELETED" in command:
            self.mails.pop(int(command.split()[2]), None)
        await self._say(f"{tag} OK done\r\n".encode())

    async def _sizes(self, command: str) -> None:
        for number in self.mails:
            if re.search(rf"\b{number}\b", command):
                size = "-5" if self.lie == "size" and number == 2 else "300"
                await self._say(f"* 1 FETCH (UID {number} RFC822.SIZE {size})\r\n".encode())
        if self.lie == "strangers":
            await self._say(b"* 9 FETCH (UID 77 RFC822.SIZE 1)\r\n* 8 FETCH (UID 4)\r\n")

    async def _mail(self, number: int, start: int = 0, count: int = 10_000) -> None:
        content = self.mails.get(number, b"")[start : start + count]
        self.largest = max(self.largest, len(content))
        head = f"* 1 FETCH (UID {number} BODY[]<{start}> {{{len(content)}}}\r\n".encode()
        await self._say(head + content + b")\r\n")

    async def _lie(self) -> None:
        if self.lie == "huge":
            await self._say(b"* 1 FETCH (UID 2 BODY[]<0> {99999999999}\r\n")
            await self._for_ever(b"x" * 65536)
        elif self.lie == "endless":
            await self._for_ever(b"* 1 FETCH (UID 2 FLAGS ())\r\n" * 1000)
        elif self.lie == "line":
            await self._for_ever(b"x" * 65536)
        elif self.lie == "trickle":
            await self._say(b"* 1 FETCH (UID 2 BODY[]<0> {300}\r\n")
            await self._for_ever(b"x", 0.05)
        elif self.lie == "slow line":
            await self._for_ever(b"x", 0.05)
        elif self.lie == "closes":
            await self._say(b"* 1 FETCH (UID 2 BODY[]<0> {300}\r\nhalf of it")
            self._out.close()
        elif self.lie == "number":
            await self._say(b"* 1 FETCH (UID 2 BODY[]<0> 99999999999)\r\n")
        elif self.lie == "nested":
            await self._say(b"* 1 FETCH (UID 2 BODY[]<0> " + b"(" * 50_000 + b"\r\n")
        elif self.lie == "garbage":
            await self._say(b"\xff\0(((\r\n* FETCH FETCH {3}\r\n)))\r\n")
        elif self.lie == "another":
            await self._say(b"* 1 FETCH (UID 3 BODY[]<0> {4}\r\n<no>)\r\n")
        else:
            await self._mail(2)

    def settings(self, port: int, patience: float = 0.5) -> MailboxSettings:
        return MailboxSettings(
            "127.0.0.1", "me", "a word", port, MailTls.NONE,
            every=0.01, max_size=10_000, patience=patience,
        )  # fmt: skip


LIES = [
    "huge", "endless", "line", "trickle", "slow line", "closes", "number", "nested", "garbage",
    "another", "size", "strangers", "validity",
]  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.requirement("TRN-3")
@pytest.mark.within(120)
async def test_the_mails_of_others_are_taken_whatever_the_server_says_of_one(
    lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smtp, "ANSWER_MAX", 500_000)
    whole = {f"<mail number='{number}'/>".encode() for number in (1, 3)}

    # A line that drips is left after as long as a line may take.
    liar, receiver = Liar(lie), Receiver()
    async with liar.running() as port:
        transport = SmtpTransport(mailbox=liar.settings(port))
        await transport.start(receiver)
        await until(lambda: {1, 3}.isdisjoint(liar.mails))
        if lie in {"huge", "endless", "line"}:
            # It was left before it had said much more than a mail may have.
            await until(lambda: liar.hung_up > 1)
            assert liar.told < 40_000_000
        await transport.stop()
    bodies = [taken.body for taken in receiver.taken]
    assert whole <= set(bodies)
    assert len(bodies) == len(set(bodies))


@pytest.mark.parametrize("lie", ["endless greeting", ""])
@pytest.mark.within(20)
async def test_a_mailbox_is_tried_out(lie: str) -> None:
    liar = Liar(lie)
    async with liar.running() as port:
        outcome = await probe_mailbox(liar.settings(port), timeout=5)
        wanted = OutcomeKind.REFUSED if lie else OutcomeKind.SENT
        assert outcome.kind is wanted, outcome.reason
        assert "a word" not in outcome.reason


async def test_a_large_mail_is_fetched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes to the handler as it comes, so no more than a part of it is in memory."""
    monkeypatch.setattr(smtp, "PART", 1000)

    liar, receiver = Liar(""), Receiver()
    body = bytes(range(256)) * 20
    liar.mails = {
        2: mail(1),
        5: write_mail(
            "text/xml", (), body, sender="a@a.test", recipient="b@b.test", message_id="5@a.test"
        ),
    }
    async with liar.running() as port:
        transport = SmtpTransport(mailbox=liar.settings(port, 20.0))
        await transport.start(receiver)
        await until(lambda: not liar.mails)
        await transport.stop()
    assert body in [taken.body for taken in receiver.taken]
    assert liar.largest <= 1000


async def test_a_mailbox_of_a_million_mails_is_looked_into_some_at_a_time() -> None:
    liar, receiver = Liar(""), Receiver()
    liar.mails = dict.fromkeys(range(100, 150_000), mail(1))
    async with liar.running() as port:
        box = await asyncio.to_thread(smtp.ImapBox, liar.settings(port, 60.0))
        async with turns() as watched:
            found = await asyncio.to_thread(box.wanted, frozenset({100, 101}))
        box.close()
    assert found[0] == 102
    assert len(found) == smtp.LISTED_MAX
    assert watched.longest < 0.1
    assert not receiver.taken


async def test_forged_mails_leave_the_processor_to_others() -> None:
    liar, receiver = Liar(""), Receiver(Reply(400, body=b"no", refused=True))
    liar.mails = {number: mail(number) for number in range(3, 200)}
    async with liar.running() as port:
        transport = SmtpTransport(mailbox=liar.settings(port, 20.0))
        began = time.monotonic()
        await transport.start(receiver)
        await until(lambda: len(receiver.taken) >= 12)
        assert time.monotonic() - began > 0.4
        await transport.stop()
