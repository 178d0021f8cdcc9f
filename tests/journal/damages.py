"""Named ways to damage a journal, and what the judge must say of each: no more and no less.

Most of them are done to the rows as they lie in a store or an export: what is removed leaves its
position empty. The last ones are those of a handler that never wrote a row, or wrote another one:
there the positions follow one another.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from oncewire.journal.row import Row
from oncewire.protocol.terms import terms_id_of
from tests.journal.changes import numbered
from tests.journal.worlds import rows_of

Rows = list[Row]
Told = list[tuple[str, str]]
"""(predicate, kind) of every finding."""

HOLE = ("journal", "hole")
UNREADABLE = ("journal", "unreadable")


@dataclass(frozen=True)
class Damage:
    """One world, one damage, and the findings expected."""

    name: str
    world: str
    do: Callable[[Rows], Rows]
    told: Told

    def rows(self) -> Rows:
        return self.do(rows_of(self.world))


DAMAGES: list[Damage] = []
"""Every way in every world that it can be done to."""


def damage(worlds: str, *told: tuple[str, str]) -> Callable[[Callable[[Rows], Rows]], Any]:
    """Register a damage for several worlds, which are named with commas."""

    def register(do: Callable[[Rows], Rows]) -> Callable[[Rows], Rows]:
        for world in worlds.split(","):
            name = f"{do.__name__} ({world.strip()})"
            DAMAGES.append(Damage(name, world.strip(), do, sorted(told)))
        return do

    return register


# --- finding and changing rows ----------------------------------------------------------------


def pick(rows: Rows, kind: str, share: float = 0.5, **columns: Any) -> Row:
    """A row of that kind, so far into the journal."""
    found = [
        row
        for row in rows
        if row.kind == kind and all(getattr(row, name) == value for name, value in columns.items())
    ]
    assert found, kind
    return found[int(share * (len(found) - 1))]


def settled(rows: Rows, share: float = 0.5) -> str:
    """A message that went the plain way: sent, received and acknowledged once."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        if row.message_id is not None:
            kinds = counts.setdefault(row.message_id, {})
            kinds[row.kind] = kinds.get(row.kind, 0) + 1
    plain = [
        message_id
        for message_id, kinds in counts.items()
        if kinds.get("submitted") == 1
        and kinds.get("handed_over") == 1
        and kinds.get("confirmed", 1) == 1
        and not {"duplicate", "failed", "suspended", "rejected", "resumed"} & set(kinds)
        and kinds.get("acknowledged", 0) == kinds.get("ack_sent", 0)
    ]
    assert plain
    return plain[int(share * (len(plain) - 1))]


def of(rows: Rows, message_id: str, kind: str, node: str | None = None) -> Row:
    return next(
        row
        for row in rows
        if row.message_id == message_id and row.kind == kind and node in (None, row.node)
    )


def last_node(rows: Rows) -> str:
    """The node that hands most over."""
    nodes = [row.node for row in rows if row.kind == "handed_over"]
    return max(sorted(set(nodes)), key=nodes.count)


def first_node(rows: Rows) -> str:
    """The node that submits most."""
    nodes = [row.node for row in rows if row.kind == "submitted"]
    return max(sorted(set(nodes)), key=nodes.count)


def without(rows: Rows, *gone: Row) -> Rows:
    lost = {(row.node, row.seq) for row in gone}
    return [row for row in rows if (row.node, row.seq) not in lost]


def changed(rows: Rows, old: Row, **columns: Any) -> Rows:
    return [row._replace(**columns) if row is old else row for row in rows]


def said(row: Row, **facts: Any) -> str:
    return json.dumps({**json.loads(row.detail or "{}"), **facts}, separators=(",", ":"))


def moved(rows: Rows, one: Row, before: Row) -> Rows:
    """The same rows with one of them at another place of its node."""
    rest = [row for row in rows if row is not one]
    place = rest.index(before)
    return numbered([*rest[:place], one._replace(at=before.at, mono=before.mono), *rest[place:]])


def added(rows: Rows, after: Row, new: Row) -> Rows:
    place = rows.index(after) + 1
    return numbered([*rows[:place], new._replace(node=after.node), *rows[place:]])


# --- rows that are gone -----------------------------------------------------------------------

EVERY = "window, laps, hub, plain, failing, best effort, crowd"
PROMISED = "window, laps, hub, plain, failing"
NUMBERED = "window, laps, hub"


@damage(PROMISED, HOLE)
def an_acknowledgement_is_gone(rows: Rows) -> Rows:
    return without(rows, of(rows, settled(rows), "acknowledged"))


@damage(EVERY, HOLE)
def a_hand_over_is_gone(rows: Rows) -> Rows:
    return without(rows, pick(rows, "handed_over"))


@damage(EVERY, HOLE)
def a_confirmation_is_gone(rows: Rows) -> Rows:
    return without(rows, pick(rows, "confirmed", 0.3))


@damage(PROMISED, HOLE)
def an_arrival_is_gone(rows: Rows) -> Rows:
    return without(rows, pick(rows, "received"))


@damage(PROMISED, HOLE)
def a_submission_is_gone(rows: Rows) -> Rows:
    return without(rows, pick(rows, "submitted"))


@damage(PROMISED, HOLE)
def an_attempt_is_gone(rows: Rows) -> Rows:
    return without(rows, pick(rows, "sent"))


@damage(NUMBERED, HOLE)
def a_number_is_gone(rows: Rows) -> Rows:
    return without(rows, pick(rows, "numbered"))


@damage(PROMISED, HOLE)
def fifty_one_rows_of_the_receiver_are_gone(rows: Rows) -> Rows:
    node = last_node(rows)
    return [row for row in rows if row.node != node or not 40 <= row.seq <= 90]


@damage(PROMISED, HOLE)
def fifty_one_rows_of_the_sender_are_gone(rows: Rows) -> Rows:
    node = first_node(rows)
    return [row for row in rows if row.node != node or not 40 <= row.seq <= 90]


@damage("window, laps, hub, plain", HOLE, HOLE)
def both_sides_lost_rows(rows: Rows) -> Rows:
    ends = (first_node(rows), last_node(rows))
    return [row for row in rows if row.node not in ends or not 60 <= row.seq <= 70]


@damage("window, laps, hub, plain, failing", ("journal", "trimmed"))
def the_head_of_the_sender_is_trimmed(rows: Rows) -> Rows:
    node = first_node(rows)
    return [row for row in rows if row.node != node or row.seq > 68]


@damage("window, laps, hub, plain, failing", ("journal", "trimmed"))
def the_head_of_the_receiver_is_trimmed(rows: Rows) -> Rows:
    node = last_node(rows)
    return [row for row in rows if row.node != node or row.seq > 68]


@damage("window, laps, hub, plain", ("journal", "trimmed"), ("journal", "trimmed"))
def both_heads_are_trimmed(rows: Rows) -> Rows:
    ends = (first_node(rows), last_node(rows))
    return [row for row in rows if row.node not in ends or row.seq > 68]


@damage("window, laps, plain", ("journal", "cut_off"))
def the_tail_of_the_receiver_was_never_stored(rows: Rows) -> Rows:
    node = last_node(rows)
    arrivals = [row.seq for row in rows if row.node == node and row.kind == "received"]
    cut = arrivals[len(arrivals) // 2]
    return [row for row in rows if row.node != node or row.seq < cut]


@damage(PROMISED, ("journal", "hole"))
def the_first_row_but_one_is_gone(rows: Rows) -> Rows:
    """Most often it explains the terms."""
    node = first_node(rows)
    return [row for row in rows if row.node != node or row.seq != 2]


# --- rows that break the contract -------------------------------------------------------------


@damage(EVERY, UNREADABLE)
def an_unknown_kind(rows: Rows) -> Rows:
    return changed(rows, pick(rows, "sent"), kind="teleported")


@damage(EVERY, UNREADABLE)
def broken_json_in_a_submission(rows: Rows) -> Rows:
    return changed(rows, pick(rows, "submitted"), detail='{"from_party":')


@damage(PROMISED, UNREADABLE)
def broken_json_in_an_arrival(rows: Rows) -> Rows:
    return changed(rows, pick(rows, "received"), detail="{{")


@damage(EVERY, UNREADABLE)
def broken_json_in_a_hand_over(rows: Rows) -> Rows:
    return changed(rows, pick(rows, "handed_over"), detail='["redelivered"]')


@damage(EVERY, UNREADABLE)
def a_confirmation_without_its_message(rows: Rows) -> Rows:
    return changed(rows, pick(rows, "confirmed"), message_id=None)


@damage(PROMISED, UNREADABLE)
def an_acknowledgement_that_says_nonsense(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "acknowledged")
    return changed(rows, row, detail='{"signed":"yes"}')


@damage(NUMBERED, UNREADABLE)
def a_number_without_its_channel(rows: Rows) -> Rows:
    return changed(rows, pick(rows, "numbered"), channel=None)


@damage(EVERY, UNREADABLE)
def an_attempt_without_a_way(rows: Rows) -> Rows:
    return changed(rows, pick(rows, "sent"), transport=None)


@damage(EVERY, UNREADABLE)
def a_start_that_cannot_be_read(rows: Rows) -> Rows:
    return changed(rows, pick(rows, "started", 0.0), detail="started")


@damage("window, plain", UNREADABLE)
def a_clock_beyond_every_calendar(rows: Rows) -> Rows:
    return changed(rows, pick(rows, "sent"), at=2**62)


@damage("window, laps, hub, plain", UNREADABLE, UNREADABLE)
def terms_that_cannot_be_read(rows: Rows) -> Rows:
    ends = (first_node(rows), last_node(rows))
    return [
        row._replace(detail='{"retries":') if row.kind == "terms" and row.node in ends else row
        for row in rows
    ]


# --- rows that say something else -------------------------------------------------------------

OTHER_TERMS = ("journal", "other_terms")


@damage(PROMISED, OTHER_TERMS)
def one_node_has_other_terms_under_the_id(rows: Rows) -> Rows:
    row = pick(rows, "terms", 1.0, node=last_node(rows))
    return changed(rows, row, detail=said(row, retries=99, persist_duration=1))


@damage("window, laps, plain, failing", OTHER_TERMS, OTHER_TERMS)
def both_nodes_have_other_terms_under_the_id(rows: Rows) -> Rows:
    return [
        row._replace(detail=said(row, retries=99)) if row.kind == "terms" else row for row in rows
    ]


@damage(PROMISED, ("S10", "unmatched_ack"))
def an_acknowledgement_nobody_gave(rows: Rows) -> Rows:
    return changed(rows, of(rows, settled(rows), "acknowledged"), ref_to="forged@nowhere")


@damage("window, plain", ("S10", "unmatched_ack"), ("S10", "unmatched_ack"))
def two_acknowledgements_change_their_ids(rows: Rows) -> Rows:
    one = of(rows, settled(rows, 0.3), "acknowledged")
    other = of(rows, settled(rows, 0.7), "acknowledged")
    return changed(changed(rows, one, ref_to=other.ref_to), other, ref_to=one.ref_to)


@damage("window, laps, hub, plain, failing, crowd", ("steps", "impossible_order"))
def handed_over_before_it_was_received(rows: Rows) -> Rows:
    """One that passes no other on its way."""
    node = last_node(rows)
    steps = [row for row in rows if row.node == node and row.kind in ("received", "handed_over")]
    received, handed = next(
        pair
        for pair in pairwise(steps)
        if pair[0].kind == "received" and pair[1].message_id == pair[0].message_id
    )
    return moved(rows, handed, received)


@damage("window, plain, failing", ("steps", "impossible_order"))
def confirmed_before_it_was_handed_over(rows: Rows) -> Rows:
    message = settled(rows)
    confirmed = of(rows, message, "confirmed")
    return moved(rows, confirmed, of(rows, message, "handed_over", confirmed.node))


@damage(NUMBERED, ("S8", "gap"))
def the_sender_notes_one_wrong_number(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "numbered", first_node(rows))
    return changed(rows, row, sequence_number=(row.sequence_number or 0) + 3)


@damage(NUMBERED, ("steps", "contradiction"))
def the_receiver_notes_one_wrong_number(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "received", last_node(rows))
    return changed(rows, row, sequence_number=(row.sequence_number or 0) + 3)


@damage(NUMBERED, ("S7", "gap"))
def the_receiver_has_no_numbers_at_all(rows: Rows) -> Rows:
    node = last_node(rows)
    return [row._replace(sequence_number=None) if row.node == node else row for row in rows]


@damage("window, plain, failing", ("S15", "altered"))
def the_content_of_a_hand_over_is_another(rows: Rows) -> Rows:
    return changed(rows, of(rows, settled(rows), "handed_over"), digest="0" * 64)


# --- what both books say ----------------------------------------------------------------------

BOOKS = ("books", "contradiction")
ALL_WAYS = "window, laps, hub, plain, failing, crowd"


@damage(ALL_WAYS, BOOKS)
def the_receiver_notes_another_service(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "received", last_node(rows))
    return changed(rows, row, detail=said(row, service="urn:forged"))


@damage(ALL_WAYS, BOOKS)
def the_sender_notes_another_action(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "submitted")
    return changed(rows, row, detail=said(row, action="Forged"))


@damage(ALL_WAYS, BOOKS)
def the_receiver_notes_another_agreement(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "received", last_node(rows))
    return changed(rows, row, detail=said(row, cpa_id="forged"))


@damage(ALL_WAYS, BOOKS)
def the_receiver_notes_another_conversation(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "received", last_node(rows))
    return changed(rows, row, detail=said(row, conversation_id="forged"))


@damage(ALL_WAYS, BOOKS)
def the_sender_notes_another_conversation(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "submitted")
    return changed(rows, row, detail=said(row, conversation_id="forged"))


@damage(ALL_WAYS, BOOKS)
def the_receiver_notes_another_from_party(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "received", last_node(rows))
    return changed(rows, row, detail=said(row, from_party="urn:forged"))


@damage(ALL_WAYS, BOOKS)
def the_sender_notes_another_to_party(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "submitted")
    return changed(rows, row, detail=said(row, to_party="urn:forged"))


@damage(ALL_WAYS, BOOKS)
def it_was_submitted_for_another_partner(rows: Rows) -> Rows:
    return changed(rows, of(rows, settled(rows), "submitted"), peer="urn:forged")


@damage(ALL_WAYS, ("steps", "contradiction"))
def the_first_attempt_has_a_later_number(rows: Rows) -> Rows:
    """No other attempt follows that could show it."""
    message = settled(rows)
    node = of(rows, message, "submitted").node
    sent = [row for row in rows if (row.message_id, row.node, row.kind) == (message, node, "sent")]
    return changed(rows, sent[0], attempt=(sent[-1].attempt or 0) + 7)


@damage(ALL_WAYS, ("steps", "contradiction"))
def an_attempt_is_counted_as_none(rows: Rows) -> Rows:
    message = settled(rows)
    row = of(rows, message, "sent", of(rows, message, "submitted").node)
    return changed(rows, row, attempt=0)


@damage(ALL_WAYS, UNREADABLE)
def a_negative_size(rows: Rows) -> Rows:
    return changed(rows, pick(rows, "received"), size=-1)


@damage(ALL_WAYS, UNREADABLE)
def a_negative_attempt(rows: Rows) -> Rows:
    return changed(rows, pick(rows, "sent"), attempt=-1)


@damage(ALL_WAYS, BOOKS)
def the_receiver_notes_another_size(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "received", last_node(rows))
    return changed(rows, row, size=(row.size or 0) + 1)


@damage(ALL_WAYS, BOOKS)
def the_receiver_notes_another_partner(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "received", last_node(rows))
    return changed(rows, row, peer="urn:forged")


@damage("window, laps, plain, failing", BOOKS)
def the_receiver_notes_itself_as_the_partner(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "received", last_node(rows))
    return changed(rows, row, peer=row.node)


@damage(PROMISED, BOOKS)
def the_acknowledgement_is_of_another_partner(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "acknowledged", first_node(rows))
    return changed(rows, row, peer="urn:forged")


@damage(PROMISED, BOOKS)
def the_acknowledgement_went_to_another_partner(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "ack_sent", last_node(rows))
    return changed(rows, row, peer="urn:forged")


@damage(ALL_WAYS, BOOKS)
def every_attempt_went_to_another_partner(rows: Rows) -> Rows:
    message = settled(rows)
    node = of(rows, message, "submitted").node
    return [
        row._replace(peer="urn:forged")
        if (row.message_id, row.node, row.kind) == (message, node, "sent")
        else row
        for row in rows
    ]


@damage(PROMISED, ("S3", "ack_without_store"))
def the_whole_way_of_the_sender_is_another(rows: Rows) -> Rows:
    """Each row names the same wrong partner, so only the other book shows it."""
    message, node = settled(rows), first_node(rows)
    return [
        row._replace(peer=node) if (row.message_id, row.node) == (message, node) else row
        for row in rows
    ]


@damage(ALL_WAYS, BOOKS)
def an_attempt_went_over_a_transport_that_was_not_agreed(rows: Rows) -> Rows:
    return changed(rows, of(rows, settled(rows), "sent"), transport="pigeon")


@damage("window, laps, plain, failing", OTHER_TERMS)
def one_node_names_other_terms_throughout(rows: Rows) -> Rows:
    """Their id is that of their values, so that only the other book shows it."""
    node = last_node(rows)
    ids: dict[str | None, str] = {}
    for row in rows:
        if row.kind == "terms" and row.node == node:
            values = {**json.loads(row.detail or ""), "window": 7, "retries": 4}
            ids[row.terms_id] = terms_id_of(values)
    return [
        row
        if row.node != node or row.terms_id not in ids
        else row._replace(
            terms_id=ids[row.terms_id],
            detail=said(row, window=7, retries=4) if row.kind == "terms" else row.detail,
        )
        for row in rows
    ]


@damage(NUMBERED, UNREADABLE)
def a_negative_epoch_of_an_arrival(rows: Rows) -> Rows:
    return changed(rows, pick(rows, "received"), epoch=-3)


@damage(NUMBERED, UNREADABLE)
def a_negative_epoch(rows: Rows) -> Rows:
    return changed(rows, pick(rows, "numbered"), epoch=-1)


@damage("window, laps, plain, failing", ("steps", "contradiction"))
def the_numbers_of_two_attempts_are_exchanged(rows: Rows) -> Rows:
    sends = [row for row in rows if row.kind == "sent"]
    one, other = next(
        pair
        for pair in pairwise(sorted(sends, key=lambda row: (row.node, str(row.message_id))))
        if pair[0].message_id == pair[1].message_id and pair[0].node == pair[1].node
    )
    return changed(changed(rows, one, attempt=other.attempt), other, attempt=one.attempt)


# --- clocks -----------------------------------------------------------------------------------

CLOCK = ("journal", "clock")
HOUR = 3_600_000_000


def turned(rows: Rows, column: str, by: int, times: int = 1) -> Rows:
    """The sender's clock jumps in the middle of its journal, and as often behind that."""
    mine = [row for row in rows if row.node == first_node(rows)]
    places = [mine[len(mine) * (times + each) // (2 * times)].seq for each in range(times)]
    return [
        row._replace(**{column: getattr(row, column) + by * sum(row.seq >= at for at in places)})
        if row.node == mine[0].node
        else row
        for row in rows
    ]


@damage("window, plain, failing", CLOCK)
def a_steady_clock_goes_back(rows: Rows) -> Rows:
    return turned(rows, "mono", -HOUR)


@damage("plain", CLOCK)
def a_steady_clock_goes_back_five_times(rows: Rows) -> Rows:
    return turned(rows, "mono", -20_000_000, 5)


@damage("laps, hub", CLOCK)
def the_zone_of_a_machine_is_another(rows: Rows) -> Rows:
    return turned(rows, "at", -HOUR)


# --- stores that were put back ----------------------------------------------------------------

RESTORED = ("journal", "restored")


def put_back(rows: Rows, node: str, share: float) -> Rows:
    """A node forgets thirty rows and goes on in another run, with the positions that follow."""
    mine = [row for row in rows if row.node == node]
    lost = mine[int(len(mine) * share) :][:30]
    start = next(row for row in mine if row.kind == "started")
    begins = next(row for row in mine if row.seq > lost[-1].seq)
    started = start._replace(seq=begins.seq, at=begins.at, mono=begins.mono)
    later = [
        row._replace(boot=f"{row.boot}-restored")
        if row.node == node and row.seq > lost[-1].seq
        else row
        for row in without(rows, *lost)
    ]
    place = next(at for at, row in enumerate(later) if (row.node, row.seq) == (node, begins.seq))
    started = started._replace(boot=later[place].boot)
    return numbered([*later[:place], started, *later[place:]])


@damage("laps, hub, plain, failing", RESTORED)
def a_receiver_was_restored_from_a_backup(rows: Rows) -> Rows:
    return put_back(rows, last_node(rows), 0.3)


@damage("window, laps, hub, plain", RESTORED)
def a_sender_was_restored_from_a_backup(rows: Rows) -> Rows:
    return put_back(rows, first_node(rows), 0.5)


# --- names ------------------------------------------------------------------------------------


@damage(EVERY, ("journal", "copied"))
def a_backup_under_another_name(rows: Rows) -> Rows:
    node = last_node(rows)
    copy = [row._replace(node="backup") for row in rows if row.node == node]
    return [*rows, *copy[: len(copy) * 3 // 4]]


@damage(EVERY, ("journal", "unstarted"))
def nobody_says_that_the_sender_was_started(rows: Rows) -> Rows:
    node = first_node(rows)
    boot = next(row.boot for row in rows if row.node == node and row.kind == "sent")
    return numbered([row for row in rows if not (row.boot == boot and row.kind == "started")])


# --- what a handler never wrote ----------------------------------------------------------------


@damage("window, laps, plain", ("L1", "unfinished"))
def an_acknowledgement_was_never_written(rows: Rows) -> Rows:
    """The last one of its channel: an earlier one would also show in the window."""
    last = [row.message_id for row in rows if row.kind == "numbered"][-1:]
    message = last[0] if last and last[0] is not None else settled(rows, 1.0)
    return numbered(without(rows, of(rows, message, "acknowledged")))


@damage("window, plain", ("S4", "unconfirmed"))
def a_confirmation_was_never_written(rows: Rows) -> Rows:
    return numbered(without(rows, of(rows, settled(rows), "confirmed")))


@damage("window, plain", ("S2", "twice"))
def a_confirmation_was_written_twice(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "confirmed")
    return added(rows, row, row)


@damage("document", ("S13", "incomplete"), ("S7", "gap"))
def a_part_was_never_received(rows: Rows) -> Rows:
    """And its number was passed over."""
    gone = [row for row in rows if row.message_id == "part2" and row.node == "globex"]
    return [row for row in numbered(without(rows, *gone)) if row.node == "globex"]


# --- one column of one row is forged ----------------------------------------------------------

STEPS = ("steps", "contradiction")
GAP = ("S8", "gap")
BEYOND = ("S8", "window_exceeded")
UNSTARTED = ("journal", "unstarted")
NODES: dict[str, Callable[[Rows], str]] = {
    "sender": first_node,
    "receiver": last_node,
    "hub": lambda rows: "hub1",
}
NOTHING = "0" * 64
"""The digest of no content."""

FORGED: list[tuple[str, str, str, str, str | int, tuple[str, str]]] = [
    ("hub, laps, window", "sender", "numbered", "epoch", +1, STEPS),
    ("hub, laps, window", "sender", "sent", "epoch", +1, GAP),
    ("hub, laps, window", "sender", "sent", "epoch", -1, GAP),
    ("hub, laps, window", "sender", "sent", "sequence_number", +3, GAP),
    ("hub, laps, window", "sender", "sent", "channel", "forged", GAP),
    ("hub, laps, window", "sender", "acknowledged", "sequence_number", +3, BEYOND),
    ("hub, laps, window", "sender", "acknowledged", "epoch", +1, BEYOND),
    (PROMISED, "sender", "sent", "boot", "forged", UNSTARTED),
    (PROMISED, "sender", "acknowledged", "boot", "forged", UNSTARTED),
    (PROMISED, "sender", "submitted", "digest", NOTHING, ("S1", "altered")),
    (PROMISED, "sender", "submitted", "terms_id", "forged", UNREADABLE),
    (PROMISED, "sender", "sent", "hop", -9, UNREADABLE),
    ("hub, laps, window", "receiver", "received", "epoch", +1, STEPS),
    ("hub, laps, window", "receiver", "received", "channel", "forged", STEPS),
    (PROMISED, "receiver", "received", "digest", NOTHING, ("S15", "altered")),
    (PROMISED, "receiver", "received", "boot", "forged", UNSTARTED),
    (PROMISED, "receiver", "received", "terms_id", "forged", UNREADABLE),
    (PROMISED, "receiver", "ack_sent", "ref_to", "forged@nowhere", ("S10", "unmatched_ack")),
    ("hub, laps, window, crowd", "receiver", "handed_over", "epoch", +1, STEPS),
    ("hub, laps, window, crowd", "receiver", "handed_over", "sequence_number", +3, STEPS),
    ("hub, plain, crowd, failing", "receiver", "handed_over", "size", +1, STEPS),
    ("laps, window, plain, failing", "receiver", "handed_over", "peer", "urn:forged", STEPS),
    ("hub, laps, window, crowd", "receiver", "confirmed", "epoch", +1, STEPS),
    ("hub, laps, window, crowd", "receiver", "confirmed", "sequence_number", +3, STEPS),
    ("hub, plain, crowd, failing", "receiver", "confirmed", "digest", NOTHING, STEPS),
    ("hub, plain, crowd, failing", "receiver", "confirmed", "size", +1, STEPS),
    ("laps, window, plain, failing", "receiver", "confirmed", "peer", "urn:forged", STEPS),
    ("hub", "hub", "received", "epoch", +1, STEPS),
    ("hub", "hub", "received", "sequence_number", +3, STEPS),
    ("hub, crowd", "hub", "received", "digest", NOTHING, STEPS),
    ("hub, crowd", "hub", "received", "size", +1, BOOKS),
    ("hub, crowd", "hub", "ack_sent", "peer", "urn:forged", BOOKS),
    ("hub", "hub", "forwarded", "epoch", +1, STEPS),
    ("hub", "hub", "forwarded", "sequence_number", +3, STEPS),
    ("hub, crowd", "hub", "forwarded", "digest", NOTHING, STEPS),
    ("hub, crowd", "hub", "forwarded", "size", +1, STEPS),
    ("hub, crowd", "hub", "forwarded", "peer", "urn:forged", BOOKS),
    ("hub", "hub", "numbered", "epoch", +1, STEPS),
]
"""Worlds, whose row of a settled message, its kind, the column, its value or how much is added to
it, and what is told."""


def _forge(who: str, kind: str, column: str, value: str | int) -> Callable[[Rows], Rows]:
    def do(rows: Rows) -> Rows:
        row = of(rows, settled(rows), kind, NODES[who](rows))
        old = getattr(row, column)
        assert old is not None
        return changed(rows, row, **{column: old + value if isinstance(value, int) else value})

    change = f"{value:+d}" if isinstance(value, int) else value[:8]
    do.__name__ = f"{kind} of the {who}: {column} {change}"
    return do


for _worlds, _who, _kind, _column, _value, _told in FORGED:
    damage(_worlds, _told)(_forge(_who, _kind, _column, _value))


@damage("laps, window", STEPS, STEPS)
def two_numbers_far_apart_were_given_in_another_epoch(rows: Rows) -> Rows:
    """Between them the sender went on in its own, so each of them is wrong by itself."""
    given = [row for row in rows if row.kind == "numbered" and row.sequence_number]
    for row in (given[1], given[-2]):
        rows = changed(rows, row, epoch=row.epoch + 1)
    return rows


@damage("laps, window", STEPS, ("S3", "forgotten"))
def what_was_stored_twice_is_handed_over_by_another_number(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "handed_over", last_node(rows))
    stored = of(rows, settled(rows), "received", row.node)
    rows = changed(rows, row, sequence_number=(row.sequence_number or 0) + 3)
    return added(rows, stored, stored)


# --- a row is there once too often, or was never written --------------------------------------

WRITTEN: list[tuple[str, str, str, int, tuple[str, str]]] = [
    (PROMISED, "sender", "submitted", 0, ("S1", "invented")),
    ("hub, plain, window", "sender", "sent", 0, ("S10", "unmatched_ack")),
    (PROMISED, "sender", "sent", 2, ("S11", "early_retry")),
    ("laps, plain, window", "sender", "acknowledged", 2, ("S10", "unmatched_ack")),
    (NUMBERED, "sender", "numbered", 2, ("S8", "repeated_number")),
    (PROMISED, "receiver", "received", 2, ("S3", "forgotten")),
    (PROMISED, "receiver", "handed_over", 2, ("S2", "twice")),
    ("plain, failing", "receiver", "handed_over", 0, ("S1", "invented")),
    ("hub, crowd", "hub", "received", 0, ("S3", "ack_without_store")),
    ("hub, crowd", "hub", "received", 2, ("S3", "forgotten")),
    ("hub", "hub", "forwarded", 0, ("S7", "gap")),
    ("hub, crowd", "hub", "sent", 0, ("S10", "unmatched_ack")),
]
"""Worlds, whose row of a settled message, its kind, how often it is there, and what is told."""


def _write(who: str, kind: str, times: int) -> Callable[[Rows], Rows]:
    def do(rows: Rows) -> Rows:
        row = of(rows, settled(rows), kind, NODES[who](rows))
        return added(rows, row, row) if times else numbered(without(rows, row))

    do.__name__ = f"{kind} of the {who}: written {('never', 'once', 'twice')[times]}"
    return do


for _worlds, _who, _kind, _times, _told in WRITTEN:
    damage(_worlds, _told)(_write(_who, _kind, _times))


# --- what a node keeps of a message from its first row on --------------------------------------

KEPT: list[tuple[str, str, str, str, str | int]] = [
    (PROMISED, "sender", "submitted", "hop", +3),
    (PROMISED, "sender", "sent", "hop", +3),
    (PROMISED, "sender", "acknowledged", "hop", +3),
    (PROMISED, "sender", "acknowledged", "attempt", +1),
    (NUMBERED, "sender", "submitted", "channel", "forged"),
    ("laps, window", "receiver", "received", "hop", +3),
    ("laps, window", "receiver", "ack_sent", "hop", +3),
    ("hub, crowd", "hub", "forwarded", "hop", +3),
]
"""As `FORGED`; each of them contradicts the other rows of its node."""

for _worlds, _who, _kind, _column, _value in KEPT:
    damage(_worlds, STEPS)(_forge(_who, _kind, _column, _value))


def _replace_terms(who: str, kind: str) -> Callable[[Rows], Rows]:
    """The node has had another agreement, too, and one row of a message names it."""

    def do(rows: Rows) -> Rows:
        row = of(rows, settled(rows), kind, NODES[who](rows))
        known = next(each for each in rows if each.kind == "terms" and each.node == row.node)
        other = terms_id_of({**json.loads(known.detail or ""), "retries": 4})
        rows = changed(rows, row, terms_id=other)
        return added(rows, known, known._replace(terms_id=other, detail=said(known, retries=4)))

    do.__name__ = f"{kind} of the {who}: under the terms of another agreement"
    return do


for _who, _kinds in (
    ("sender", ("submitted", "sent", "acknowledged")),
    ("receiver", ("received", "ack_sent", "handed_over", "confirmed")),
):
    for _kind in _kinds:
        damage(PROMISED, STEPS)(_replace_terms(_who, _kind))

for _worlds, _who, _kind in (
    ("window, laps, hub, plain, failing, best effort", "sender", "submitted"),
    (PROMISED, "receiver", "ack_sent"),
    ("hub, crowd", "hub", "forwarded"),
):
    damage(_worlds, STEPS)(_write(_who, _kind, 2))

damage(PROMISED, ("S1", "invented"))(_write("receiver", "received", 0))
damage("window, laps, plain, failing", BOOKS)(_forge("receiver", "received", "transport", "smtp"))


@damage("window, laps, plain, failing", BOOKS)
def a_copy_came_over_another_transport(rows: Rows) -> Rows:
    return changed(rows, pick(rows, "duplicate"), transport="smtp")


@damage("window, laps, plain, failing", STEPS)
def a_copy_came_from_another_partner(rows: Rows) -> Rows:
    return changed(rows, pick(rows, "duplicate"), peer="urn:forged")


@damage(PROMISED, STEPS)
def an_attempt_failed_that_had_not_begun(rows: Rows) -> Rows:
    row = pick(rows, "send_failed")
    return changed(rows, row, attempt=(row.attempt or 0) + 1)


@damage("failing, crowd", STEPS)
def it_failed_twice(rows: Rows) -> Rows:
    row = pick(rows, "failed")
    return added(rows, row, row)


@damage("failing, crowd", STEPS)
def its_retries_were_used_up_twice(rows: Rows) -> Rows:
    row = pick(rows, "exhausted")
    return added(rows, row, row)


@damage(PROMISED, ("S5", "wrong_outcome"))
def an_acknowledgement_is_late_and_nothing_had_failed(rows: Rows) -> Rows:
    row = of(rows, settled(rows), "acknowledged", first_node(rows))
    return changed(rows, row, detail=said(row, late=True))


for _who, _kind in (("sender", "sent"), ("sender", "submitted"), ("receiver", "handed_over")):
    for _column in ("at", "mono"):
        for _by in (HOUR, -HOUR):
            damage("window, hub, plain", CLOCK)(_forge(_who, _kind, _column, _by))


# --- parts of a document ----------------------------------------------------------------------

PARTS = ("S13", "contradiction")


def _say(kind: str, message_id: str, **facts: Any) -> Callable[[Rows], Rows]:
    def do(rows: Rows) -> Rows:
        row = of(rows, message_id, kind)
        return changed(rows, row, detail=said(row, **facts))

    do.__name__ = f"{kind} of {message_id}: {', '.join(facts)}"
    return do


for _kind in ("submitted", "received"):
    damage("document", PARTS)(_say(_kind, "part2", split_number=3))
    damage("document", PARTS)(_say(_kind, "part2", split_total=4))
damage("document", PARTS)(_say("submitted", "part2", document_digest=NOTHING))


@damage("document", STEPS)
def a_part_was_submitted_twice(rows: Rows) -> Rows:
    row = of(rows, "part2", "submitted")
    return added(rows, row, row)
