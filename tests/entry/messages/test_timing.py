"""How long a message took, where the time went, and which ones are slow."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from oncewire.entry.messages.listing import Asked, counted_page, list_messages
from oncewire.entry.messages.story import ENDS, LEFT_OUT, details_of, kept_of, story_of, time_of
from oncewire.entry.party.names import Names
from oncewire.journal.row import Row
from oncewire.message.instant import SECOND
from oncewire.protocol.documents import SplitDocument
from oncewire.protocol.notes import Incident, Kind, Resolved, Resumed, SendFailed, Transient
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sender import ANSWERS_AGAIN
from oncewire.protocol.states import IncomingState
from oncewire.store.sqlite.store import SqliteStore
from tests.store.samples import (
    CONFIRMED,
    DELIVERED,
    OUTSTANDING,
    TERMS_ID,
    add,
    prepare,
    received,
    sent,
)

NOW = 1000 * SECOND
NAMES = Names()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """Six quick messages, then one that waited for another and for its partner, and one that
    waits still."""
    made = SqliteStore(tmp_path / "store.db", node="node")
    prepare(made)
    for number in range(6):
        _keep(made, f"quick-{number}", number, ("sent", number), ("acknowledged", number + 0.02))
    _keep(made, "first", 100, ("sent", 100), ("acknowledged", 110), channel="c")
    _keep(
        made, "late", 101, ("numbered", 110), ("sent", 110), ("send_failed", 110.5), ("sent", 112),
        ("send_failed", 112.5), ("sent", 114), ("sent", 115), ("acknowledged", 115.1), channel="c",
    )  # fmt: skip
    _keep(made, "waits", 900, ("sent", 900), state=OUTSTANDING)
    yield made
    made.close()


def _keep(
    store: SqliteStore,
    message_id: str,
    at: float,
    *rows: tuple[str, float],
    state: object = DELIVERED,
    channel: str | None = None,
) -> None:
    tries = sum(kind == "sent" for kind, _ in rows)
    outgoing = sent(message_id, state=state, submitted_at=int(at * SECOND), channel=channel)
    outgoing = replace(outgoing, outgoing=replace(outgoing.outgoing, attempts=tries))
    with store.transition() as tx:
        add(tx, outgoing)
        tx.journal([_row(message_id, kind, when) for kind, when in [("submitted", at), *rows]])
    store.commit()


def _row(message_id: str, kind: str, at: float) -> Row:
    said = SendFailed("refused", "refused").write() if kind == Kind.SEND_FAILED else "{}"
    if kind == Kind.RESUMED:
        said = Resumed(by=message_id).write()
    return Row(0, int(at * SECOND), 0, "boot", "node", kind, message_id, attempt=1, detail=said)


def test_a_late_message_says_where_its_time_went(store: SqliteStore) -> None:
    with store.reader() as reader:
        late = story_of(reader, NAMES, "late", NOW, None).timing
        waits = story_of(reader, NAMES, "waits", NOW, None).timing
    assert late is not None
    assert waits is not None
    assert late.took == 14.1 * SECOND
    told = [(wait.start // SECOND, (wait.end or 0) // SECOND, wait.behind) for wait in late.waits]
    assert told == [(101, 110, "first"), (110, 114, ""), (114, 115, "")]
    assert "2 attempts failed, the last with: refused" in late.waits[1].why
    assert "seller could not be reached" in late.said
    assert (
        "than most to seller: of the newest that nothing hindered half took up to 20 ms"
        in late.said
    )
    assert waits.took is None
    assert waits.said.startswith("It waits, for 100 s so far: for 100 s no answer to")
    assert waits.waits[-1].end is None


def test_who_let_it_go_on_is_told_apart(store: SqliteStore) -> None:
    for by in (ANSWERS_AGAIN, "olga"):
        rows = [("sent", 20.0), ("send_failed", 21.0), ("resumed", 25.0), ("sent", 25.0)]
        _keep(store, by, 20, *rows, ("acknowledged", 25.1))
    with store.reader() as reader:
        said = [story_of(reader, NAMES, by, NOW, None).timing for by in (ANSWERS_AGAIN, "olga")]
    itself, olga = ([wait.why for wait in each.waits] if each else [] for each in said)
    assert any("could not be reached" in why for why in itself)
    assert not any("operator" in why for why in itself)
    assert any("operator" in why for why in olga)


def test_a_resume_does_not_hide_the_outage_before_it(store: SqliteStore) -> None:
    outage = [("sent", 20.0), ("send_failed", 21.0), ("sent", 30.0), ("send_failed", 31.0)]
    after = [("resumed", 60.0), ("sent", 60.0), ("acknowledged", 60.1)]
    _keep(store, "olga", 20, *outage, *after)
    _keep(store, "omar", 20, *outage, ("suspended", 31.0), *after)
    _keep(store, "otto", 20, ("sent", 20.0), ("sent", 30.0), ("suspended", 40.0), *after)
    with store.reader() as reader:
        told = {
            by: story_of(reader, NAMES, by, NOW, None).timing for by in ("olga", "omar", "otto")
        }
    olga, omar, otto = (told[by].waits for by in ("olga", "omar", "otto"))  # type: ignore[union-attr]
    (wait,) = olga
    assert (wait.start // SECOND, (wait.end or 0) // SECOND) == (20, 60)
    assert wait.why.startswith("seller could not be reached")
    assert "2 attempts failed, the last with: refused" in wait.why
    assert wait.why.endswith("then an operator had it sent")
    assert [each.why.partition(":")[0] for each in omar] == [
        "seller could not be reached",
        "it stood still after its attempts had failed, until an operator let it go on",
    ]
    assert otto[-1].why == (
        "it stood still after its attempts went unanswered, until an operator let it go on"
    )


def test_a_pause_of_its_channel_is_what_it_waited_for(store: SqliteStore) -> None:
    with store.transition() as tx:
        for number, channel, why in ((1, "p", "olga: stock-taking"), (2, "q", "otto: another one")):
            said = Incident(str(number), f"paused by {why}").write()
            row = _row("", "incident", 201)._replace(message_id=None, channel=channel, detail=said)
            tx.journal([row])
    store.commit()
    _keep(
        store, "paused", 200, ("numbered", 260), ("sent", 260), ("acknowledged", 261), channel="p"
    )
    with store.transition() as tx:
        over = _row("", "resolved", 260)._replace(message_id=None, channel="p")
        tx.journal([over._replace(detail=Resolved("1").write())])
    store.commit()
    with store.reader() as reader:
        timing = story_of(reader, NAMES, "paused", NOW, None).timing
    assert timing is not None
    assert timing.said.startswith("It took 61 s: for 59 s its channel was paused by olga (00:03:21")
    (wait,) = timing.waits
    assert wait.why == "its channel was paused by olga: stock-taking"


@pytest.mark.parametrize(("lifted", "lasted"), [(None, "59 s"), (430.0, "29 s")])
def test_a_pause_that_another_message_was_asked_for_is_named(
    store: SqliteStore, lifted: float | None, lasted: str
) -> None:
    """The receiver asks once, of the message that it turned away; all others wait without a row."""
    _keep(store, "turned away", 399, state=OUTSTANDING)
    _keep(store, "queued", 401)
    _keep(store, "elsewhere", 401, state=OUTSTANDING)
    with store.transition() as tx:
        for about, until, peer in (("turned away", 460, "seller"), ("elsewhere", 990, "i")):
            said = Transient(until * SECOND).write()
            tx.journal([_row(about, "transient", 400)._replace(detail=said, peer=peer)])
        if lifted:
            tx.journal([_row("", "resumed", lifted)._replace(message_id=None, peer="seller")])
        ends = [("sent", lifted or 460.0), ("acknowledged", (lifted or 460.0) + 0.1)]
        tx.journal([_row("queued", kind, at) for kind, at in ends])
    store.commit()
    with store.reader() as reader:
        timing = story_of(reader, NAMES, "queued", NOW, None).timing
    assert timing is not None
    (wait,) = timing.waits
    assert (wait.why, wait.behind) == ("seller asked for a pause", "turned away")
    assert f"{lasted} seller asked for a pause (00:06:4" in timing.said


def test_an_outage_that_held_its_channel_is_named(store: SqliteStore) -> None:
    """The message itself never failed: those before it did."""
    rows = [("sent", 300.0), ("send_failed", 301.0), ("sent", 310.0), ("send_failed", 311.0)]
    _keep(store, "tried", 300, channel="o")
    _keep(store, "held", 300, channel="o")
    with store.transition() as tx:
        tx.journal([_row("tried", kind, at)._replace(channel="o", peer="h") for kind, at in rows])
        ends = [("sent", 330.0), ("acknowledged", 330.2)]
        tx.journal([_row("tried", kind, at)._replace(channel="o", peer="h") for kind, at in ends])
        ends = [("numbered", 330.2), ("sent", 330.2), ("acknowledged", 330.4)]
        tx.journal([_row("held", kind, at)._replace(channel="o") for kind, at in ends])
    store.commit()
    with store.reader() as reader:
        timing = story_of(reader, NAMES, "held", NOW, None).timing
    assert timing is not None
    assert "for 29.2 s the next handler could not be reached (00:05:01" in timing.said
    assert "2 attempts in its channel failed, the last with: refused" in timing.waits[-1].why


def test_waits_of_one_cause_are_one_in_the_sentence(store: SqliteStore) -> None:
    rows = [("sent", 20.0), ("send_failed", 21.0), ("sent", 30.0), ("sent", 35.0)]
    _keep(store, "twice", 20, *rows, ("send_failed", 36.0), ("sent", 50.0), ("acknowledged", 51.0))
    with store.reader() as reader:
        timing = story_of(reader, NAMES, "twice", NOW, None).timing
    assert timing is not None
    assert timing.said.startswith(
        "It took 31 s: for 25 s seller could not be reached (00:00:20 to 00:00:50); for 5 s attempt"
    )


def test_what_a_hub_has_does_not_wait_for_its_turn(store: SqliteStore) -> None:
    """Its handler acknowledges it, and after some time the receiver itself does."""
    _keep(store, "hop", 20, ("sent", 20.0), ("acknowledged", 20.05), ("acknowledged", 25.0))
    with store.reader() as reader:
        timing = story_of(reader, NAMES, "hop", NOW, None).timing
    assert timing is not None
    (wait,) = timing.waits
    assert wait.why == "the next handler had it, and the answer of seller was awaited"


def test_a_hub_that_had_not_sent_it_on_is_named(store: SqliteStore) -> None:
    _keep(store, "hub", 20, ("sent", 20.0), ("acknowledged", 20.05), ("acknowledged", 27.0))
    with store.reader() as reader:
        kept = kept_of(reader, "hub")
        timing = time_of(reader, NAMES, kept, NOW, {}, onward=26 * SECOND)
    assert timing is not None
    assert timing.said.startswith(
        "It took 7 s: for 5.95 s the next handler had it and had not sent"
    )
    assert (
        timing.waits[-1].why
        == "the next handler had sent it on, and the answer of seller was awaited"
    )


def test_an_answer_that_was_lost_is_no_closed_door(store: SqliteStore) -> None:
    _keep(store, "unsure", 20, ("sent", 20.0), ("acknowledged", 30.0))
    with store.transition() as tx:
        lost = SendFailed("unknown", "the connection ended").write()
        tx.journal([_row("unsure", "send_failed", 21)._replace(detail=lost)])
    store.commit()
    with store.reader() as reader:
        kept = kept_of(reader, "unsure")
        ordered = replace(kept, rows=sorted(kept.rows, key=lambda row: row.at))
        timing = time_of(reader, NAMES, ordered, NOW, {})
    assert timing is not None
    assert "seller did not answer" in timing.said


def test_a_handler_that_was_down_is_named(store: SqliteStore) -> None:
    _keep(store, "crashed", 400, ("sent", 400.0), state=DELIVERED)
    with store.transition() as tx:
        tx.journal([_row("", "started", 450)._replace(message_id=None, detail=None)])
        tx.journal([_row("crashed", "sent", 450), _row("crashed", "acknowledged", 450.1)])
    store.commit()
    with store.reader() as reader:
        timing = story_of(reader, NAMES, "crashed", NOW, None).timing
    assert timing is not None
    assert "for 50 s this handler was not running" in timing.said


def test_what_an_outage_delayed_does_not_become_usual(store: SqliteStore) -> None:
    for number in range(100):
        at = 500 + number / 100
        rows = [("sent", at), ("send_failed", at + 0.1), ("sent", 530.0), ("acknowledged", 530.1)]
        _keep(store, f"delayed-{number}", at, *rows)
    for number in range(8):
        _keep(store, f"after-{number}", 540, ("sent", 540.0), ("acknowledged", 540.03))
    with store.reader() as reader:
        delayed = story_of(reader, NAMES, "delayed-7", NOW, None).timing
        slow = list_messages(reader, NAMES, Asked(slow=True), ("out",), NOW, 200)
    assert delayed is not None
    assert "of the newest that nothing hindered half took up to 30 ms" in delayed.said
    assert sum(each.message_id.startswith("delayed") for each in slow.messages) == 100


def test_a_document_in_parts_does_not_wait_for_a_turn(store: SqliteStore) -> None:
    _keep(store, "doc", 20, ("acknowledged", 50.0))
    with store.transition() as tx:
        tx.save_document(SplitDocument("", "doc", 3, TERMS_ID, 5))
    store.commit()
    with store.reader() as reader:
        timing = story_of(reader, NAMES, "doc", NOW, None).timing
    assert timing is not None
    (wait,) = timing.waits
    assert wait.why == "its parts were on their way, one message each"
    assert wait.behind == ""


def test_lists_tell_and_sort_by_how_long_it_took(store: SqliteStore) -> None:
    with store.reader() as reader:
        slow = list_messages(reader, NAMES, Asked(slow=True), ("out", "in"), NOW)
        first = list_messages(reader, NAMES, Asked(slowest=True), ("out",), NOW, 2)
        again = list_messages(reader, NAMES, Asked(again=True), ("out",), NOW)
        counted = counted_page(reader, NAMES, Asked(), ("out",), NOW, 1, counted=True)
        bare = counted_page(reader, NAMES, Asked(), ("out",), NOW, 1, counted=False)
    assert [each.message_id for each in slow.messages] == ["waits", "late", "first"]
    assert [each.message_id for each in first.messages] == ["waits", "late"]
    assert [each.took for each in first.messages] == [None, 14.1 * SECOND]
    assert [(each.message_id, each.tries) for each in again.messages] == [("late", 4)]
    assert (counted.tally, counted.whole) == ({"out.delivered": 8, "out.outstanding": 1}, True)
    assert bare.tally == {}


def test_of_many_copies_the_first_and_the_last_are_told(store: SqliteStore) -> None:
    with store.transition() as tx:
        tx.add_incoming(received("copied", state=CONFIRMED, confirmed_at=300))
        tx.journal([_row("copied", "received", 0)])
        tx.journal(_row("copied", "duplicate", at) for at in range(5_000))
    store.commit()
    with store.reader() as reader:
        story = story_of(reader, NAMES, "copied", NOW, None)
        details = details_of(reader, "copied", NOW, None)
        (listed,) = list_messages(reader, NAMES, Asked(), ("in",), NOW).messages
    assert len(story.steps) == 2 * ENDS + 1
    assert story.left_out == 5_001 - 2 * ENDS
    (gap,) = [step for step in story.steps if step.kind == LEFT_OUT]
    assert story.steps.index(gap) == ENDS
    assert "5000 copies were stopped" in story.why
    assert (details.facts["duplicates_stopped"], listed.copies) == (5_000, 5_000)


def test_two_messages_of_one_id_have_a_story_each(store: SqliteStore) -> None:
    with store.transition() as tx:
        tx.add_incoming(received("late", state=CONFIRMED, received_at=7, confirmed_at=9))
        tx.journal([_row("late", "received", 500), _row("late", "confirmed", 501)])
    store.commit()
    with store.reader() as reader:
        kinds = {
            way: {step.kind for step in story_of(reader, NAMES, "late", NOW, None, way).steps}
            for way in ("out", "in")
        }
        facts = {way: details_of(reader, "late", NOW, None, direction=way) for way in ("out", "in")}
    assert kinds["in"] == {"received", "confirmed"}
    assert "acknowledged" in kinds["out"]
    assert "received" not in kinds["out"]
    assert [facts[way].facts["state"] for way in ("out", "in")] == ["delivered", "confirmed"]
    assert "abandon" not in facts["in"].may


@pytest.mark.parametrize(("expected", "told"), [(3, True), (5, False)])
def test_a_held_message_says_which_number_it_waits_for(
    store: SqliteStore, expected: int, told: bool
) -> None:
    with store.transition() as tx:
        held = received("held-5", state=IncomingState.HELD, channel="r", epoch=1, number=5)
        tx.add_incoming(held)
        tx.save_receiving_channel(ReceivingChannel("r", epoch=1, expected=expected))
        tx.journal([_row("held-5", "received", 500)])
    store.commit()
    with store.reader() as reader:
        why = story_of(reader, NAMES, "held-5", NOW, None).why
    assert ("held until number 3 of channel r, which has not come" in why) is told


@pytest.mark.parametrize(
    ("peer", "to_party", "who"),
    [("hub", "seller", "the next handler"), ("7", "duns:7", "duns:7"), ("s", "s", "s")],
)
def test_who_asked_for_a_pause_or_was_silent_is_the_handler_it_goes_to(
    store: SqliteStore, peer: str, to_party: str, who: str
) -> None:
    """A row names the handler; a PartyId with a type, in a listing, is more than that name."""
    rows = [("sent", 400.0), ("transient", 400.0), ("sent", 430.0), ("send_failed", 430.0)]
    for message_id, at, known in (("asked", 400, OUTSTANDING), ("queued", 401, DELIVERED)):
        outgoing = sent(message_id, state=known, submitted_at=at * SECOND)
        facts = replace(outgoing.facts, to_party=to_party)
        with store.transition() as tx:
            add(tx, replace(outgoing, peer=peer, facts=facts))
            tx.journal([_row(message_id, "submitted", at)._replace(peer=peer)])
            if known is OUTSTANDING:
                told = [_row(message_id, kind, when)._replace(peer=peer) for kind, when in rows]
                told[1] = told[1]._replace(detail=Transient(430 * SECOND).write())
                tx.journal(told)
            else:
                tx.journal([_row(message_id, "sent", 430.0), _row(message_id, "acknowledged", 431)])
    store.commit()
    with store.reader() as reader:
        kept = [kept_of(reader, each) for each in ("asked", "queued")]
        timings = [time_of(reader, NAMES, each, NOW, {}) for each in kept]
    asked, queued = ([wait.why for wait in each.waits] if each else [] for each in timings)
    assert asked[0] == f"{who} asked for a pause"
    assert asked[1].startswith(f"{who} could not be reached: 1 attempt failed")
    assert queued[0] == f"{who} asked for a pause"
