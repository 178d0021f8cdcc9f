"""Fine print of streams: hubs of older journals, circles of hubs, and epochs without an end."""

import pytest
from msgspec.structs import replace

from oncewire.journal.predicates import receiving_channel as receiving
from oncewire.journal.predicates.context import Violation
from oncewire.journal.row import Row
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.terms import HopMode, Terms
from tests.journal.changes import change, drop, find, judged
from tests.journal.histories import CHANNEL, ORDERED, PLAIN, World
from tests.journal.scenarios import SCENARIOS


def test_a_hub_that_names_only_the_onward_stream_is_not_judged_by_it() -> None:
    """Rows that do not say which number was used up say nothing of numbers."""
    rows = SCENARIOS["hub"]().rows
    rows = change(rows, find(rows, Kind.FORWARDED)[0], channel="hub>globex")
    assert judged(rows, healed=True).clean


def test_what_waits_at_a_hub_for_an_operator_waits_on_the_onward_stream() -> None:
    rows = SCENARIOS["hub_gives_up"]().rows
    kept = (Kind.RECEIVED, Kind.FORWARDED, Kind.ACK_SENT)
    rows = [
        row for row in rows if row.node == "hub" and (row.message_id is None or row.kind in kept)
    ]
    (forwarded,) = find(rows, Kind.FORWARDED)
    assert judged(rows, healed=True).kinds == {"lost": 1}
    rows = change(rows, forwarded, said=notes.Forwarded(onward="hub>globex"), channel=CHANNEL)
    suspended = rows[-1]._replace(
        seq=rows[-1].seq + 1, kind=Kind.SUSPENDED.value, message_id=None, channel="hub>globex"
    )
    assert judged([*rows, suspended], healed=True).clean
    elsewhere = suspended._replace(channel=CHANNEL)
    assert judged([*rows, elsewhere], healed=True).kinds == {"lost": 1}


def test_hubs_that_pass_on_in_a_circle_end_the_question() -> None:
    world = World(replace(PLAIN, hop_mode=HopMode.TRANSPARENT))
    world.submit("m1")
    world.send("m1", to="east")
    world.node("east").add(Kind.PASSED_ON, "m1", peer="urn:party:west", hop=2)
    world.node("west").add(Kind.PASSED_ON, "m1", peer="urn:party:east", hop=3)
    world.acknowledged("m1", by="east")
    assert "ack_without_store" not in judged(world.rows, healed=True).kinds


def test_epochs_that_wait_for_ever_do_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a broken journal every epoch has a message that nobody ever hands over."""
    world = World(ORDERED)
    for epoch in range(6):
        world.number(f"m{epoch}", 0, epoch=epoch + 1, status="Reset")
        world.receive(f"m{epoch}", epoch=epoch)
    rows = [row for row in world.rows if row.node == "globex"]
    assert judged(rows, healed=True).kinds == {"lost": 6}
    opened: list[int] = []
    monkeypatch.setattr(receiving, "EPOCHS_MAX", 2)
    close = receiving.ReceivingChannelFold._close_old

    def counted(channel: receiving.ReceivingChannelFold, context: receiving.Context) -> None:
        close(channel, context)
        opened.append(len(channel._epochs))

    monkeypatch.setattr(receiving.ReceivingChannelFold, "_close_old", counted)
    assert judged(rows, healed=True).kinds == {"lost": 6}
    assert max(opened) == 2


def test_a_skip_tells_of_a_message_that_was_waiting() -> None:
    """A request that nobody can answer any more is closed, and its number passed over."""
    rows = SCENARIOS["window"]().rows
    rows = [row for row in rows if row.node == "globex"]
    handed = find(rows, Kind.HANDED_OVER, "m5")[0]
    rows = drop(rows, *find(rows, Kind.CONFIRMED, "m5"), *find(rows, Kind.ACK_SENT, "m5"))
    rows = change(rows, handed, kind=Kind.SKIPPED.value, said=notes.Skipped("closed"))
    assert judged(rows, healed=True).clean


def test_a_hub_may_pass_over_what_it_closed_for_one_partner() -> None:
    """An operator gave up a message for which there was no way on; others went on meanwhile."""
    rows = SCENARIOS["hub_in_a_stream"]().rows
    rows = [row for row in rows if row.node == "hub"]
    (forwarded,) = find(rows, Kind.FORWARDED, "m2")
    onward = (Kind.FORWARDED, Kind.SENT, Kind.ACKNOWLEDGED)
    rows = [row for row in rows if row.message_id not in ("m2", "m6") or row.kind not in onward]
    assert judged(rows, healed=False).clean, "both wait, and hold up nobody else"
    last = rows[-1]
    skipped = forwarded._replace(
        seq=last.seq + 1, kind=Kind.SKIPPED.value, terms_id=None, detail=None
    )
    (later,) = find(SCENARIOS["hub_in_a_stream"]().rows, Kind.FORWARDED, "m6")
    rows = [*rows, skipped, later._replace(seq=last.seq + 2)]
    assert judged(rows, healed=False).clean
    assert judged(drop(rows, skipped), healed=False).kinds == {"gap": 1}


def test_what_waits_for_the_same_party_is_held_up_by_order() -> None:
    world = World(ORDERED)
    for number in range(3):
        world.number(f"m{number}", number, status="Reset")
        world.receive(f"m{number}", to_party="urn:party:globex")
    for number in (1, 0, 2):
        world.hand_over(f"m{number}")
        world.confirm(f"m{number}")
    rows = [row for row in world.rows if row.node == "globex"]
    assert judged(rows, healed=True).kinds == {"out_of_order": 1}


def test_what_a_hub_gives_up_before_it_could_send_it_is_judged() -> None:
    world = World(replace(PLAIN, hop_mode=HopMode.STORE_AND_FORWARD))
    world.receive("m1", at="hub")
    world.ack("m1", at="hub")
    world.note(Kind.ABANDONED, "m1", "hub", said=notes.Abandoned("operator"))
    world.fail("m1", "not_delivered", "abandoned", at="hub")
    assert judged(world.rows, healed=False).clean


NARROW = replace(ORDERED, window=2, numbers=SequenceRange(0, 3))
WIDE = replace(ORDERED, window=2, numbers=SequenceRange(0, 99))


def found_in(*steps: tuple[Kind, int, int, Terms, str]) -> list[Violation]:
    """What is wrong with one node's rows of a stream: kind, epoch, number, the terms of the row, or
    of the row before it if it names none, and the message."""
    found: list[Violation] = []
    fold = receiving.ReceivingChannelFold(found)
    context = receiving.Context()
    empty = dict.fromkeys(Row._fields)
    for seq, (kind, epoch, number, terms, message) in enumerate(steps, 1):
        said = {"seq": seq, "node": "b", "kind": kind.value, "channel": CHANNEL, "epoch": epoch}
        said |= {"sequence_number": number, "message_id": message or None}
        fold.take(Row(**{**empty, **said}), terms, context)  # type: ignore[arg-type]
    fold.finish(context)
    return found


@pytest.mark.parametrize("laps", [0, 1])
def test_a_range_that_is_replaced_moves_no_number_to_another_place(laps: int) -> None:
    """A number that is skipped lies where it lay under the range that was agreed on first."""
    before = [
        (kind, 1, number, NARROW, f"m{number} of lap {lap}")
        for lap in range(laps + 1)
        for number in (range(4) if lap < laps else (0, 1))
        for kind in (Kind.RECEIVED, Kind.HANDED_OVER)
    ]
    assert not found_in(
        *before,
        (Kind.RECEIVED, 1, 3, NARROW, "last"),
        (Kind.RECEIVED, 1, 4, WIDE, "first"),
        (Kind.SKIPPED, 1, 2, WIDE, ""),
        (Kind.HANDED_OVER, 1, 3, NARROW, "last"),
        (Kind.HANDED_OVER, 1, 4, WIDE, "first"),
    )


def test_a_skip_belongs_to_its_epoch_whatever_range_the_next_one_has() -> None:
    steps = [
        (Kind.RECEIVED, 1, 6, WIDE, "six"),
        (Kind.RECEIVED, 1, 8, WIDE, "eight"),
        (Kind.HANDED_OVER, 1, 6, WIDE, "six"),
        (Kind.RECEIVED, 2, 0, NARROW, "next"),
        (Kind.SKIPPED, 1, 7, NARROW, ""),
        (Kind.HANDED_OVER, 1, 8, WIDE, "eight"),
        (Kind.HANDED_OVER, 2, 0, NARROW, "next"),
    ]
    for number in range(6):
        known = [(kind, 1, number, WIDE, str(number)) for kind in (Kind.RECEIVED, Kind.HANDED_OVER)]
        steps[2 * number : 2 * number] = known
    assert not found_in(*steps)
    assert [found.kind for found in found_in(*(step for step in steps if step[4]))] == ["gap"]
