"""Real handlers of which one has its mail in a mailbox that it looks into."""

import asyncio
from pathlib import Path

import pytest

from oncewire.journal.check import check_journal
from oncewire.protocol.notes import Kind
from oncewire.protocol.states import OutgoingState
from oncewire.transport.smtp import transport as smtp
from oncewire.transport.smtp.listener import ListenerSettings
from oncewire.transport.smtp.relay import MailTls, RelaySettings
from oncewire.transport.smtp.transport import ImapBox, SmtpTransport
from tests.handler.running import journal
from tests.handler.test_other_transports import World, document
from tests.ports import free_port
from tests.transport.mailboxes import mailboxes
from tests.transport.test_hostile_mailbox import Liar

PATIENT = '[delivery]\ntimeout = "PT1M"\nretry_interval = "PT1M"\nretries = 2\n'


@pytest.mark.long
@pytest.mark.process
@pytest.mark.requirement("TRN-3", "DUP-9")
@pytest.mark.within(100)
async def test_a_mail_that_could_not_be_removed_is_known_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is gone after each third commit, before the mail could be removed: to a handler
    that is as if it had died there."""
    remove, asked = ImapBox.remove, 0

    def sometimes(box: ImapBox, mail_id: int) -> None:
        nonlocal asked
        asked += 1
        if asked % 3 == 0:
            raise OSError("the server is gone")
        remove(box, mail_id)

    monkeypatch.setattr(ImapBox, "remove", sometimes)

    with mailboxes() as server:
        async with server.mail_server() as port:
            back = free_port()
            ways = {
                "alpha": SmtpTransport(
                    RelaySettings("alpha@alpha.test", "127.0.0.1", port, MailTls.NONE),
                    ListenerSettings("alpha@alpha.test", port=back),
                ),
                "beta": SmtpTransport(
                    RelaySettings("beta@beta.test", "127.0.0.1", back, MailTls.NONE),
                    mailbox=server.settings(),
                ),
            }
            at = {name: {"smtp": f"mailto:{name}@{name}.test"} for name in ways}
            world = World(
                tmp_path, at, {name: {"smtp": way} for name, way in ways.items()}, PATIENT
            )
            async with world.running() as (alpha, beta):
                sent = [await alpha.send(document(number)) for number in range(4)]
                for each in sent:
                    assert await alpha.wait(each.message_id, 60) is OutgoingState.DELIVERED
                while await asyncio.to_thread(server.flags):
                    await asyncio.sleep(0.05)
                taken = [given.message_id for given in await beta.take(100)]
                assert sorted(taken) == sorted(each.message_id for each in sent)
                kinds = [row.kind for row in journal(beta)]
                assert kinds.count(Kind.RECEIVED) == len(sent)
                assert Kind.DUPLICATE in kinds
                for handler in (alpha, beta):
                    assert not check_journal(journal(handler), healed=False).violations


@pytest.mark.long
@pytest.mark.parametrize("lie", ["endless", "nested", "trickle"])
@pytest.mark.requirement("TRN-3")
async def test_a_lying_server_of_mailboxes_keeps_nobody_from_being_served(
    lie: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler that looks into that mailbox takes and answers what comes in at its own door."""
    monkeypatch.setattr(smtp, "ANSWER_MAX", 500_000)

    liar = Liar(lie)
    async with liar.running() as port:
        doors = {name: free_port() for name in ("alpha", "beta")}
        ways = {}
        for name, other in (("alpha", "beta"), ("beta", "alpha")):
            ways[name] = SmtpTransport(
                RelaySettings(f"{name}@{name}.test", "127.0.0.1", doors[other], MailTls.NONE),
                ListenerSettings(f"{name}@{name}.test", port=doors[name]),
                mailbox=liar.settings(port) if name == "beta" else None,
            )
        at = {name: {"smtp": f"mailto:{name}@{name}.test"} for name in ways}
        world = World(tmp_path, at, {name: {"smtp": way} for name, way in ways.items()}, PATIENT)
        async with world.running() as (alpha, beta):
            while not any("cannot be read" in record.message for record in caplog.records):
                await asyncio.sleep(0.02)
            sent = [await alpha.send(document(number)) for number in range(3)]
            for each in sent:
                assert await alpha.wait(each.message_id, 30) is OutgoingState.DELIVERED
            taken = [given.message_id for given in await beta.take(10)]
            assert sorted(taken) == sorted(each.message_id for each in sent)
            for handler in (alpha, beta):
                assert not check_journal(journal(handler), healed=False).violations
