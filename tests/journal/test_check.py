"""The checker as a whole: reports, quarantine, keys, and the folds that Spark runs."""

import pickle
from collections import Counter

import pytest
from msgspec.structs import replace

from oncewire.journal.check import (
    channel_key,
    check_journal,
    document_key,
    fold_channels,
    fold_documents,
    fold_ledger,
    fold_messages,
    message_key,
)
from oncewire.journal.predicates.channel import ChannelFold
from oncewire.journal.predicates.context import CONTEXT_KINDS, Context
from oncewire.journal.predicates.message import DocumentFold, judge_message, judge_traces
from oncewire.journal.row import Row
from oncewire.journal.trace import gather
from oncewire.message.form import SyncReplyMode
from oncewire.message.instant import DAY, HOUR
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind
from oncewire.protocol.terms import SyncRetries
from tests.journal.changes import change, delayed, drop, find, insert, judged, numbered, repeat
from tests.journal.histories import CHANNEL, EPOCH_START, ORDERED, PLAIN, World
from tests.journal.scenarios import SCENARIOS


def test_a_report_counts_what_it_looked_at() -> None:
    report = judged(SCENARIOS["unknown_then_late_ack"]().rows, healed=True)
    assert report.clean
    assert (report.nodes, report.messages, report.rows) == (2, 1, 16)
    assert report.outcomes == {"delivered": 1}
    rows = SCENARIOS["window"]().rows
    broken = judged(drop(rows, *find(rows, Kind.CONFIRMED)), healed=True)
    assert broken.kinds == {"unconfirmed": 24}
    assert not broken.clean


def test_nothing_at_all_is_clean() -> None:
    assert judged([], healed=True).clean
    assert judge_traces([], Context()) == []


def test_what_is_missing_is_not_lost_while_the_run_goes_on() -> None:
    rows = SCENARIOS["plain"]().rows
    rows = drop(rows, *find(rows, Kind.HANDED_OVER), *find(rows, Kind.CONFIRMED))
    assert judged(rows, healed=False).clean
    submitted_at = find(rows, Kind.SUBMITTED)[0].at
    assert judged(rows, healed=False, healed_before=submitted_at).clean
    told = judged(rows, healed=False, healed_before=submitted_at + 1)
    assert told.kinds == {"lost": 1}


# --- what cannot be judged ----------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["plain", "window", "hub"])
def test_rows_without_their_terms_are_quarantined_and_not_a_crash(scenario: str) -> None:
    rows = SCENARIOS[scenario]().rows
    report = judged(drop(rows, *find(rows, Kind.TERMS)), healed=True)
    assert not report.violations
    assert report.quarantined
    assert all("terms" in found.sentence for found in report.quarantined)
    # One entry for each message and for each node's side of a channel, however many rows.
    assert len(report.quarantined) == len(set(report.quarantined))


def test_terms_that_cannot_be_read_are_quarantined() -> None:
    rows = SCENARIOS["plain"]().rows
    for terms in find(rows, Kind.TERMS):
        rows = change(rows, terms, detail='{"colour":"blue"}')
    assert any("colour" in found.sentence for found in judged(rows, healed=True).quarantined)


def test_a_terms_row_without_an_id_explains_nothing() -> None:
    rows = SCENARIOS["plain"]().rows
    for terms in find(rows, Kind.TERMS):
        rows = change(rows, terms, terms_id=None)
    assert judged(rows, healed=True).quarantined


def test_a_journal_of_another_version_is_told() -> None:
    rows = SCENARIOS["plain"]().rows
    started = find(rows, Kind.STARTED)[0]
    rows = change(rows, started, said=notes.Started("9.0", journal_version=9))
    assert "version 9" in judged(rows, healed=True).quarantined[0].sentence


def test_two_stores_with_one_name_are_told() -> None:
    rows = SCENARIOS["plain"]().rows
    other = [row._replace(at=row.at + 1) for row in rows if row.node == "globex"]
    report = check_journal([*rows, *other], healed=True)
    assert [found.node for found in report.quarantined] == ["globex"]
    assert "call themselves globex" in report.quarantined[0].sentence


@pytest.mark.parametrize("kind", [Kind.FAILED, Kind.NOTIFIED])
def test_a_detail_that_cannot_be_read_is_quarantined_with_its_message(kind: Kind) -> None:
    rows = SCENARIOS["unknown"]().rows
    report = judged(change(rows, find(rows, kind)[0], detail="{"), healed=True)
    assert [found.message_id for found in report.quarantined] == ["m1"]
    assert report.messages == 1


def test_an_unreadable_outcome_is_told_even_where_no_predicate_reads_it() -> None:
    world = World()
    world.node("globex").add(Kind.REFUSED, "m1", detail="{")
    report = judged(world.rows, healed=True)
    assert [found.message_id for found in report.quarantined] == ["m1"]
    assert report.outcomes == {}


def test_an_unreadable_pause_and_an_unreadable_part_are_quarantined() -> None:
    rows = SCENARIOS["transient"]().rows
    report = judged(change(rows, find(rows, Kind.TRANSIENT)[0], detail="{"), healed=True)
    assert {found.message_id for found in report.quarantined} == {"m0"}
    rows = SCENARIOS["split"]().rows
    part = find(rows, Kind.RECEIVED)[0]
    report = judged(change(rows, part, detail='{"split_id":5}'), healed=True)
    assert any(found.message_id == part.message_id for found in report.quarantined)


def test_a_node_that_sends_under_no_terms_at_all_is_quarantined() -> None:
    world = World()
    world.node("acme").add(Kind.FAILED, "m1", said=notes.Failed("unknown", "x"))
    report = judged(world.rows, healed=True)
    assert any("which terms" in found.sentence for found in report.quarantined)


def test_a_clock_that_jumps_is_judged_by_the_monotonic_one() -> None:
    # The UTC clock is set back an hour between two attempts of one boot; nothing is early.
    rows = SCENARIOS["lost_ack"]().rows
    second = find(rows, Kind.SENT)[1]
    report = judged(change(rows, second, at=second.at - HOUR), healed=True)
    assert not report.violations
    assert [found.kind for found in report.quarantined] == ["clock"]


# --- what is excused ----------------------------------------------------------------------


def test_a_copy_after_persist_duration_may_be_new_again() -> None:
    rows = SCENARIOS["plain"]().rows
    received = find(rows, Kind.RECEIVED)[0]
    later = received._replace(at=received.at + 2 * DAY, mono=received.mono + 2 * DAY)
    behind = find(rows, Kind.ACK_SENT)[0]
    rows = insert(delayed(rows, behind, 2 * DAY), received, later)
    assert judged(rows, healed=True).clean


def test_best_effort_copies_may_be_forgotten() -> None:
    rows = SCENARIOS["best_effort"]().rows
    handed = find(rows, Kind.HANDED_OVER)[0]
    received = handed._replace(kind=Kind.RECEIVED.value, detail=None, peer="urn:party:acme")
    rows = insert(rows, find(rows, Kind.TERMS, node="globex")[0], received)
    rows = repeat(rows, find(rows, Kind.RECEIVED)[0])
    assert judged(rows, healed=True).clean


def test_a_synchronous_exchange_without_retries_ends_after_one_attempt() -> None:
    world = World(
        replace(
            PLAIN,
            sync_mode=SyncReplyMode.RESPONSE_ONLY,
            sync_retries=SyncRetries.NONE,
        )
    )
    world.submit("m1")
    world.send("m1")
    world.note(Kind.EXHAUSTED, "m1", transport="http")
    world.fail("m1", "unknown", "no answer")
    assert judged(world.rows, healed=True).clean


def test_a_reliable_transport_fails_without_our_retries() -> None:
    world = World(replace(PLAIN, reliable=False))
    world.submit("m1")
    world.send("m1")
    world.fail("m1", "unknown", "transport: rejected by the broker")
    assert judged(world.rows, healed=True).clean


def test_a_resume_after_a_failure_opens_the_message_again() -> None:
    world = World()
    world.submit("m1")
    world.retry_until_exhausted("m1")
    world.fail("m1", "unknown", "no acknowledgement after 3 attempts")
    world.note(Kind.RESUMED, "m1")
    world.send("m1", 4)
    world.arrive("m1")
    world.acknowledged("m1")
    assert judged(world.rows, healed=True).clean


def test_a_pause_ends_when_the_operator_resumes() -> None:
    world = World(ORDERED)
    world.submit("m0")
    world.submit("m1")
    world.number("m0", 0, status="Reset")
    world.number("m1", 1, status="Reset")
    world.send("m0")
    until = EPOCH_START + world.node("acme").skew + world.time + DAY
    world.note(Kind.TRANSIENT, "m0", said=notes.Transient(until))
    world.note(Kind.TRANSIENT, "m0", said=notes.Transient(until - HOUR))
    world.note(Kind.RESUMED, "m0")
    world.send("m0", 2)
    world.send("m1")
    for message_id in ("m0", "m1"):
        world.arrive(message_id)
        world.acknowledged(message_id)
    # A pause asked for by a message that is settled already stops nobody.
    world.note(Kind.TRANSIENT, "m0", said=notes.Transient(until))
    world.submit("m2")
    world.number("m2", 2, status="Reset")
    world.send("m2")
    world.arrive("m2")
    world.acknowledged("m2")
    assert judged(world.rows, healed=True).clean


@pytest.mark.parametrize(
    ("peer", "after", "clean"),
    [("globex", True, True), ("hub", True, False), ("globex", False, False)],
)
def test_a_pause_ends_when_the_operator_lifts_the_receivers(
    peer: str, after: bool, clean: bool
) -> None:
    world = World(ORDERED)
    world.submit("m0")
    world.number("m0", 0, status="Reset")
    world.send("m0")
    lift = {"peer": f"urn:party:{peer}", "terms_id": None, "channel": None}
    if not after:
        world.note(Kind.RESUMED, None, **lift)
    until = EPOCH_START + world.node("acme").skew + world.time + DAY
    world.note(Kind.TRANSIENT, "m0", said=notes.Transient(until))
    world.arrive("m0")
    world.acknowledged("m0")
    if after:
        # Nothing waits for it just then, so there is no word about any message.
        world.note(Kind.RESUMED, None, **lift)
    world.submit("m1")
    world.number("m1", 1, status="Reset")
    world.send("m1")
    world.arrive("m1")
    world.acknowledged("m1")
    assert judged(world.rows, healed=True).clean is clean


@pytest.mark.parametrize(("peer", "clean"), [("globex", True), ("hub", False)])
def test_the_message_that_was_asked_to_wait_goes_on_when_the_receivers_pause_is_lifted(
    peer: str, clean: bool
) -> None:
    world = World(ORDERED)
    world.submit("m0")
    world.number("m0", 0, status="Reset")
    world.send("m0")
    until = EPOCH_START + world.node("acme").skew + world.time + DAY
    world.note(Kind.TRANSIENT, "m0", said=notes.Transient(until))
    world.note(Kind.RESUMED, None, peer=f"urn:party:{peer}", terms_id=None, channel=None)
    world.time += HOUR
    world.send("m0", 2)
    world.arrive("m0")
    world.acknowledged("m0")
    assert judged(world.rows, healed=True).clean is clean


def test_a_send_of_an_ended_epoch_is_told_by_the_retry_law_alone() -> None:
    rows = SCENARIOS["failure_ends_the_epoch"]().rows
    late = find(rows, Kind.SENT, "m0")[2]
    after = find(rows, Kind.NUMBERED, "m1")[0]
    rows = insert(rows, after, late._replace(attempt=4, at=after.at + HOUR, mono=after.mono + HOUR))
    assert judged(rows, healed=True).kinds == {"too_many_retries": 1, "late_send": 1}


def test_one_party_may_answer_under_another_of_its_names() -> None:
    rows = SCENARIOS["plain"]().rows
    started = find(rows, Kind.STARTED, node="globex")[0]
    names = notes.Started("0.1.0", parties=("urn:party:globex", "urn:duns:globex"))
    rows = change(rows, started, said=names)
    rows = change(rows, find(rows, Kind.ACKNOWLEDGED)[0], peer="urn:duns:globex")
    assert judged(rows, healed=True).clean


def test_a_peer_nobody_knows_is_given_the_benefit_of_the_doubt() -> None:
    rows = SCENARIOS["plain"]().rows
    # Its receiver has declared its names, and this is none of them.
    stranger = change(rows, find(rows, Kind.ACKNOWLEDGED)[0], peer="urn:party:unheard-of")
    assert judged(stranger, healed=True).kinds == {"contradiction": 1}
    # The message went to a name nobody declares, so who may answer for it cannot be told.
    for kind in (Kind.SUBMITTED, Kind.SENT):
        rows = change(rows, find(rows, kind)[0], peer="urn:alias")
    assert judged(rows, healed=True).clean


def test_a_receiver_alone_is_not_blamed_for_a_gap_before_a_held_message() -> None:
    rows = [row for row in SCENARIOS["suspended_at_the_end"]().rows if row.node == "globex"]
    assert judged(rows, healed=True).clean


def test_old_epochs_are_closed_and_what_they_left_is_told() -> None:
    world = World(ORDERED)
    for epoch in range(4):
        world.number(f"m{epoch}", 0, epoch=epoch + 1, status="Reset")
        if epoch:
            world.arrive(f"m{epoch}", epoch=epoch)
        else:
            world.receive("m0", epoch=0)
    rows = [row for row in world.rows if row.node == "globex"]
    report = judged(rows, healed=True)
    assert [(found.kind, found.message_id) for found in report.violations] == [("lost", "m0")]


def test_a_number_far_out_of_place_is_still_one_finding() -> None:
    # Passed over in two pieces around a skip; one of the pieces is filled later.
    world = World(replace(ORDERED, window=5))
    globex = world.node("globex")
    place = {"channel": CHANNEL, "epoch": 0, "terms_id": world.terms.terms_id}
    skip = {**place, "said": notes.Skipped("refused")}
    globex.add(Kind.SKIPPED, "x2", sequence_number=2, **skip)
    globex.add(Kind.SKIPPED, "x0", sequence_number=0, **skip)
    globex.add(Kind.HANDED_OVER, "m5", sequence_number=5, **place)
    globex.add(Kind.SKIPPED, "x7", sequence_number=7, **skip)
    globex.add(Kind.SKIPPED, "x4", sequence_number=4, **skip)
    report = judged(world.rows, healed=True)
    gaps = [found.sentence for found in report.violations if found.predicate == "S7"]
    assert gaps == [
        "Number 5 was handed over, but 1 neither was nor has a journaled skip.",
        "Number 5 was handed over, but 3 neither was nor has a journaled skip.",
    ]
    globex.add(Kind.HANDED_OVER, "m6", sequence_number=6, **place)
    globex.add(Kind.HANDED_OVER, "m8", sequence_number=8, **place)
    more = [
        found for found in judged(world.rows, healed=True).violations if found.predicate == "S7"
    ]
    assert len(more) == 2


def test_neighbouring_skips_leave_no_gap_between_them() -> None:
    world = World(ORDERED)
    globex = world.node("globex")
    place = {"channel": CHANNEL, "epoch": 0, "terms_id": world.terms.terms_id}
    for number in (1, 2):
        globex.add(Kind.SKIPPED, f"x{number}", sequence_number=number, **place)
    globex.add(Kind.HANDED_OVER, "m3", sequence_number=3, **place)
    report = judged(world.rows, healed=True)
    gaps = [found.sentence for found in report.violations if found.predicate == "S7"]
    assert gaps == ["Number 3 was handed over, but 0 neither was nor has a journaled skip."]
    # In the middle of what was passed over, so that two pieces are left.
    globex.add(Kind.HANDED_OVER, "m8", sequence_number=8, **place)
    globex.add(Kind.HANDED_OVER, "m6", sequence_number=6, **place)
    kinds = judged(world.rows, healed=True).kinds
    assert (kinds["gap"], kinds["out_of_order"]) == (3, 1)


def test_a_row_of_a_channel_without_a_number_is_passed_over() -> None:
    rows = SCENARIOS["plain"]().rows
    rows = [row._replace(channel=CHANNEL) if row.message_id else row for row in rows]
    assert judged(rows, healed=True).clean


def test_a_settled_number_may_be_named_again() -> None:
    # A resend after the acknowledgement is the retry law's matter, not the window's.
    rows = SCENARIOS["window"]().rows
    sent, ack = find(rows, Kind.SENT, "m0")[0], find(rows, Kind.ACKNOWLEDGED, "m0")[0]
    rows = insert(rows, ack, sent._replace(attempt=2, at=ack.at + HOUR, mono=ack.mono + HOUR))
    assert judged(rows, healed=True).kinds == {"late_send": 1}


def test_what_arrived_without_being_sent_is_not_called_lost() -> None:
    rows = SCENARIOS["plain"]().rows
    rows = drop(rows, *find(rows, Kind.SENT), *find(rows, Kind.ACKNOWLEDGED))
    assert judged(rows, healed=True).kinds == {"unfinished": 1}


def test_rows_of_nodes_may_alternate_within_a_message() -> None:
    rows = SCENARIOS["plain"]().rows
    mixed = sorted((row for row in rows if row.message_id), key=lambda row: row.seq)
    assert [trace.node for trace in gather(mixed)] == ["acme", "globex"]
    assert judge_message(mixed, Context.gather(rows, healed=True)) == []


# --- keys and folds -----------------------------------------------------------------------


def test_keys() -> None:
    rows = SCENARIOS["split"]().rows
    part, joined = find(rows, Kind.SUBMITTED)[0], find(rows, Kind.JOINED)[0]
    assert (message_key(part), channel_key(part), document_key(part)) == ("part1", CHANNEL, "doc")
    assert (message_key(joined), channel_key(joined), document_key(joined)) == ("doc", None, "doc")
    assert document_key(find(rows, Kind.HANDED_OVER, "part2")[0]) == "doc"
    assert document_key(find(rows, Kind.SENT)[0]) is None
    assert document_key(part._replace(kind="sent")) is None
    assert document_key(part._replace(detail='{"split_id":5}')) == "part1"


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_folds_over_sorted_rows_find_what_verify_finds(name: str) -> None:
    rows = SCENARIOS[name]().rows
    spoilt = [row for row in rows if row.kind != Kind.CONFIRMED and row.sequence_number != 1]
    for some in (rows, spoilt):
        each = numbered(some)
        report = check_journal(each, healed=True)
        context = Context.gather([row for row in each if row.kind in CONTEXT_KINDS], healed=True)
        context = pickle.loads(pickle.dumps(context))
        found = [
            *fold_messages(_by(each, "message_id"), context),
            *fold_channels(_by(each, "channel"), context),
            *fold_documents(sorted(each, key=lambda row: document_key(row) or ""), context),
        ]
        assert sorted(found) == sorted([*report.violations, *report.quarantined])
        outcomes = [judged.outcome for judged in fold_ledger(_by(each, "message_id"), context)]
        assert len(outcomes) == report.messages + report.parts


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_what_both_sides_agree_on_is_judged_before_its_timers_end(name: str) -> None:
    rows = numbered(SCENARIOS[name]().rows)
    nodes = Counter(message_id for message_id, _ in {(row.message_id, row.node) for row in rows})
    context = Context.gather(rows, healed=False)
    told = Counter(
        (
            each.outcome is not None
            and each.outcome.decided
            and nodes[each.outcome.message_id] == 2,
            each.extent.value,
        )
        for each in fold_ledger(_by(rows, "message_id"), context)
    )
    assert not told[True, "not_yet"]
    assert not told[False, "judged"]
    said = check_journal(rows, healed=False).extents
    assert said.get("not_yet", 0) == told[False, "not_yet"]


def test_what_a_hub_waits_for_is_judged_when_its_timers_have_ended() -> None:
    every = SCENARIOS["hub"]().rows
    rows = numbered(row for row in every if (row.node, row.kind) != ("hub", "acknowledged"))
    extents = {}
    for healed in (False, True):
        context = Context.gather(rows, healed=healed)
        for each in fold_ledger(_by(rows, "message_id"), context):
            assert each.outcome is not None
            if each.outcome.decided:
                extents[healed] = each.extent.value, [found.predicate for found in each.violations]
    assert extents == {False: ("not_yet", []), True: ("judged", ["L1"])}


def _by(rows: list[Row], column: str) -> list[Row]:
    return sorted(rows, key=lambda row: (getattr(row, column) or "", row.node, row.seq))


def test_a_message_is_judged_by_its_rows_and_a_fold_without_rows_says_nothing() -> None:
    rows = SCENARIOS["plain"]().rows
    context = Context.gather(rows, healed=True)
    one = [row for row in rows if row.message_id == "m1" and row.kind != Kind.CONFIRMED]
    assert [found.kind for found in judge_message(one, context)] == ["unconfirmed"]
    channel = ChannelFold(context)
    assert channel.finish() == []
    assert DocumentFold(context, "doc").finish() == []
