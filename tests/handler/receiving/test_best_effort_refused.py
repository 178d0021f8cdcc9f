"""An error about a message that was sent with best effort: it is kept, shown and told, and the
outcome stays `sent`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.entry.control.client import LocalHandler
from oncewire.entry.messages.outlook import held_up
from oncewire.handler.actions import Refused, Source
from oncewire.handler.runtime import offers
from oncewire.handler.runtime.handler import Handler
from oncewire.journal.check import check_journal
from oncewire.journal.history import explain
from oncewire.journal.outcome import fold_outcome
from oncewire.journal.row import Row
from oncewire.message.envelope import Severity
from oncewire.protocol import notes
from oncewire.protocol.states import Outcome, OutgoingState
from oncewire.wire.parcel import Parcel
from tests.handler.delivering.test_notices import Bureau, hasty, until
from tests.handler.network import Network, agreement_text
from tests.handler.running import free_port, journal, order, serving
from tests.handler.test_signed import signed_pair

__all__ = ["hasty"]

BEST_EFFORT = "[delivery]\nreliable = false\n"
SMALL = BEST_EFFORT + "[payload]\nmax_size = 3\n"
ORDER = "order-1@alpha"


def refusing() -> Network:
    """beta takes smaller documents than alpha believes."""
    pair = Network.pair("ebms2", BEST_EFFORT)
    pair.beta.context.agreements = Agreements(
        [read_toml(agreement_text("beta", "alpha", "ebms2", SMALL))]
    )
    return pair


def rows_of(pair: Network) -> list[Row]:
    return pair.rows(of=ORDER)


@pytest.mark.requirement("ERR-2", "OPS-4")
def test_a_refusal_is_a_row_and_the_outcome_stays_sent() -> None:
    pair = refusing()
    pair.send(1)
    (row,) = [one for one in rows_of(pair) if one.kind == "rejected"]
    said = notes.Rejected.read(row.detail)
    assert said.by == "urn:test:beta"
    assert row.ref_to
    with pair.alpha.context.store.reader() as reader:
        stored = reader.outgoing(ORDER)
        assert stored is not None
        shown = held_up(reader, stored)
    assert stored.outgoing.state is OutgoingState.SENT
    assert stored.outgoing.reason.startswith(f"refused by urn:test:beta: {said.code}")
    assert said.description
    assert said.description in stored.outgoing.reason
    assert shown == stored.outgoing.reason, "what `oncewire outbox` shows beside it"


def test_why_and_the_ledger_say_who_refused_it_and_why() -> None:
    pair = refusing()
    pair.send(1)
    rows = rows_of(pair)
    (row,) = [one for one in rows if one.kind == "rejected"]
    code = notes.Rejected.read(row.detail).code
    outcome = fold_outcome(rows)
    assert outcome is not None
    assert (outcome.outcome, outcome.reason) == (Outcome.SENT, "rejected")
    assert outcome.refused_by == "urn:test:beta"
    assert outcome.refusal is not None
    assert outcome.refusal.startswith(code)
    told = explain(rows)
    assert told.startswith("Sent once with best effort; urn:test:beta refused it: ")
    assert outcome.refusal in told


@pytest.mark.requirement("ERR-2")
def test_no_notice_is_owed_and_its_application_is_told_once() -> None:
    pair = refusing()
    pair.hears = False
    pair.send(1)
    (event,) = pair.seen(Refused)
    assert event.notice.message_id == ORDER
    assert (event.notice.outcome, event.notice.severity) == (Outcome.SENT, Severity.ERROR)
    assert event.notice.reason.startswith("refused by urn:test:beta: ")
    assert pair.alpha.notices(10) == []
    assert not pair.alpha.confirm_notice(event.notice.notice_id), "nobody waits for that"
    pair.crash("alpha")
    assert len(pair.seen(Refused)) == 1
    assert [found.kind for found in pair.verify().violations] == []


def test_a_second_error_changes_nothing() -> None:
    """A partner may repeat its error as often as it likes: it fills no journal."""
    pair = refusing()
    pair.send(1)
    before = rows_of(pair)
    parcel = Parcel('text/xml; charset="UTF-8"', pair.answers[-1], ())
    pair.alpha.receive(parcel, Source("http", can_answer=True))
    pair.settle("alpha")
    assert rows_of(pair) == before
    assert len(pair.seen(Refused)) == 1


@pytest.mark.requirement("ERR-2")
def test_an_error_that_proves_nothing_is_not_believed() -> None:
    """Whoever is nobody's partner may say what he likes about a signed message."""
    pair, stranger = signed_pair(more=BEST_EFFORT), refusing()
    stranger.send(1)
    pair.send(1)
    parcel = Parcel('text/xml; charset="UTF-8"', stranger.answers[-1], ())
    pair.alpha.receive(parcel, Source("http", can_answer=True))
    pair.settle("alpha")
    assert "rejected" not in [row.kind for row in rows_of(pair)]
    assert "ignored" in [row.kind for row in rows_of(pair)]


async def test_a_running_handler_tells_its_application_and_calls_nobody(
    tmp_path: Path, hasty: None
) -> None:
    """Over sockets: the application refuses the event, is told again, and no operator is called."""
    bureau = Bureau(refusals=3)
    async with exchanging(tmp_path, bureau) as alpha:
        sent = await alpha.send(order(1))
        await until(lambda: len(bureau.heard) == 4)
        assert {(one.message_id, one.outcome) for one in bureau.heard} == {
            (sent.message_id, Outcome.SENT)
        }
        assert len({one.notice_id for one in bureau.heard}) == 1
        assert await LocalHandler(alpha).notices() == []
        rows = journal(alpha)
        kinds = {row.kind for row in rows if row.message_id == sent.message_id}
        assert "rejected" in kinds
        assert not {"incident", "notified", "failed"} & kinds
        assert await alpha.wait(sent.message_id, 1) is OutgoingState.SENT
    assert check_journal(rows, healed=True).violations == ()


async def test_an_application_that_never_takes_the_news_is_left_alone_at_last(
    tmp_path: Path, hasty: None
) -> None:
    bureau = Bureau(refusals=1_000)
    async with exchanging(tmp_path, bureau) as alpha:
        await alpha.send(order(1))
        await until(lambda: len(bureau.heard) == offers.REFUSALS_MAX)
        await until(lambda: alpha._telling is not None and not alpha._telling._offered)
        assert len(bureau.heard) == offers.REFUSALS_MAX
        assert "incident" not in {row.kind for row in journal(alpha)}


@asynccontextmanager
async def exchanging(folder: Path, bureau: Bureau) -> AsyncIterator[Handler]:
    ports = {"alpha": free_port(), "beta": free_port()}
    async with (
        serving(folder, "beta", "alpha", ports, extra=SMALL),
        serving(folder, "alpha", "beta", ports, extra=BEST_EFFORT, application=bureau) as alpha,
    ):
        yield alpha
