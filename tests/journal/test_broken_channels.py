"""Each promise about a channel or a document, broken in the smallest way, is told once."""

from collections.abc import Callable

import pytest

from oncewire.journal.predicates.context import Violation
from oncewire.journal.row import Row
from oncewire.message.instant import SECOND
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind
from tests.journal.changes import change, drop, find, insert, judged, move, repeat
from tests.journal.histories import CHANNEL
from tests.journal.scenarios import SCENARIOS

Change = Callable[[list[Row]], list[Row]]
CASES: list[tuple[str, str, Change, str, str]] = []


def broken(scenario: str, predicate: str, kind: str) -> Callable[[Change], Change]:
    def register(make: Change) -> Change:
        CASES.append((make.__name__, scenario, make, predicate, kind))
        return make

    return register


# --- S6 and S7 ----------------------------------------------------------------------------


@broken("window", "S6", "out_of_order")
def two_hand_overs_change_places(rows: list[Row]) -> list[Row]:
    return move(rows, find(rows, Kind.HANDED_OVER, "m6")[0], find(rows, Kind.CONFIRMED, "m4")[0])


@broken("window", "S6", "out_of_order")
def a_hand_over_across_the_wrap_comes_late(rows: list[Row]) -> list[Row]:
    return move(rows, find(rows, Kind.HANDED_OVER, "m10")[0], find(rows, Kind.CONFIRMED, "m8")[0])


@broken("window", "S7", "gap")
def a_number_is_passed_over_without_a_word(rows: list[Row]) -> list[Row]:
    # The rest of the message is taken out too, so that only the channel can tell.
    return _only(rows, "globex", without="m7")


@broken("window", "S7", "gap")
def several_numbers_are_passed_over(rows: list[Row]) -> list[Row]:
    rows = _only(rows, "globex", without="m8")
    return [row for row in rows if row.message_id not in ("m9", "m10")]


@broken("refusal_settles_its_number", "S7", "gap")
def a_refused_number_has_no_skip(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.SKIPPED))


@broken("abandon_ends_the_epoch", "S7", "gap")
def a_number_given_up_has_no_skip(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.SKIPPED))


@broken("slow_application", "S7", "gap")
def a_number_given_up_three_epochs_ago_has_no_skip(rows: list[Row]) -> list[Row]:
    return drop(rows, find(rows, Kind.SKIPPED)[0])


@broken("slow_application_a_lap_behind", "S7", "gap")
def a_number_refused_in_the_next_lap_has_no_skip(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.SKIPPED))


@broken("slow_application_a_lap_behind", "S6", "out_of_order")
def two_hand_overs_of_the_old_lap_change_places(rows: list[Row]) -> list[Row]:
    return move(rows, find(rows, Kind.HANDED_OVER, "m2")[0], find(rows, Kind.CONFIRMED, "m0")[0])


@broken("hub_in_a_stream", "S7", "gap")
def a_hub_forwards_nothing_and_goes_on(rows: list[Row]) -> list[Row]:
    return _only(rows, "hub", without="m0")


@broken("hub_in_a_stream", "S7", "gap")
def a_hub_hands_over_and_leaves_one_out(rows: list[Row]) -> list[Row]:
    return _only(rows, "hub", without="m1")


@broken("hub_in_a_stream", "S7", "gap")
def a_hub_forwards_the_later_one_of_two_for_one_partner(rows: list[Row]) -> list[Row]:
    # It has m0 and forwards m3: only who is held up by whom tells that this is no waiting.
    gone = [row for row in find(rows, Kind.FORWARDED, "m0") if row.node == "hub"]
    rows = drop(_only(rows, "hub"), *gone)
    return drop(rows, *find(rows, Kind.SENT, "m0"), *find(rows, Kind.ACKNOWLEDGED, "m0"))


@broken("hub_in_a_stream", "S6", "out_of_order")
def a_hub_forwards_in_another_order(rows: list[Row]) -> list[Row]:
    return move(rows, find(rows, Kind.FORWARDED, "m0")[0], find(rows, Kind.FORWARDED, "m4")[0])


@broken("hub_in_a_stream", "S6", "out_of_order")
def a_hub_hands_over_in_another_order(rows: list[Row]) -> list[Row]:
    rows = _only(rows, "hub")
    return move(rows, find(rows, Kind.HANDED_OVER, "m5")[0], find(rows, Kind.ACKNOWLEDGED, "m7")[0])


@broken("hub_in_a_stream", "S4", "lost")
def its_turn_came_and_the_hub_never_forwarded_it(rows: list[Row]) -> list[Row]:
    rows = [row for row in _only(rows, "hub") if row.message_id in (None, "m0")]
    return [row for row in rows if row.kind in (Kind.STARTED, Kind.TERMS, Kind.RECEIVED)]


@broken("hub_in_a_stream", "S4", "lost")
def the_application_of_a_hub_never_got_the_last_one(rows: list[Row]) -> list[Row]:
    rows = _only(rows, "hub")
    return drop(rows, *find(rows, Kind.HANDED_OVER, "m5"), *find(rows, Kind.CONFIRMED, "m5"))


@broken("window", "S4", "lost")
def its_turn_came_and_it_was_never_handed_over(rows: list[Row]) -> list[Row]:
    rows = _only(rows, "globex")
    return drop(rows, *find(rows, Kind.HANDED_OVER, "m23"), *find(rows, Kind.CONFIRMED, "m23"))


@broken("window", "S8", "repeated_number")
def one_number_handed_over_for_two_messages(rows: list[Row]) -> list[Row]:
    rows = _only(rows, "globex")
    return _also_received(rows, "intruder", find(rows, Kind.HANDED_OVER, "m6")[0])


# --- S8 -----------------------------------------------------------------------------------


@broken("window", "S8", "gap")
def a_number_is_left_out(rows: list[Row]) -> list[Row]:
    return [row for row in _only(rows, "acme") if row.message_id != "m20"]


@broken("window", "S8", "gap")
def the_first_number_is_not_the_first(rows: list[Row]) -> list[Row]:
    rows = _only(rows, "acme")
    rows = [row for row in rows if row.message_id in (None, "m0")]
    return [row._replace(sequence_number=1) if row.sequence_number == 0 else row for row in rows]


@broken("window", "S8", "gap")
def a_number_outside_the_range(rows: list[Row]) -> list[Row]:
    rows = _only(rows, "acme")
    rows = [row for row in rows if row.message_id in (None, "m0")]
    rows = drop(rows, *find(rows, Kind.SENT), *find(rows, Kind.ACKNOWLEDGED))
    rows = drop(rows, *find(rows, Kind.SUBMITTED))
    return [row._replace(sequence_number=10) if row.sequence_number == 0 else row for row in rows]


@broken("window", "S8", "gap")
def a_number_is_sent_before_it_is_given(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.NUMBERED, "m23"))


@broken("silent_reset", "S8", "gap")
def a_number_is_sent_that_was_never_given(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.NUMBERED))


@broken("window", "S8", "repeated_number")
def a_number_is_given_twice(rows: list[Row]) -> list[Row]:
    rows = _only(rows, "acme")
    rows = [row for row in rows if row.message_id in (None, "m0", "m1")]
    return [
        row._replace(sequence_number=0) if row.message_id == "m1" and row.epoch else row
        for row in rows
    ]


@broken("window", "S8", "repeated_number")
def a_resend_under_a_new_message_id(rows: list[Row]) -> list[Row]:
    rows = _only(rows, "acme")
    for kind in (Kind.ACKNOWLEDGED, Kind.SENT, Kind.SUBMITTED):
        row = find(rows, kind, "m2")[0]
        rows = insert(rows, row, row._replace(message_id="m2-again"))
    # The new id is acknowledged, and settles nothing that is not its own.
    return rows


@broken("window", "S8", "window_exceeded")
def one_number_beyond_the_window(rows: list[Row]) -> list[Row]:
    # m0 is settled only after m4 has entered: five numbers under way where W is 4.
    return move(
        _only(rows, "acme"),
        find(rows, Kind.ACKNOWLEDGED, "m0")[0],
        find(rows, Kind.SENT, "m4")[0],
    )


@broken("window", "S8", "window_exceeded")
def the_window_slides_past_an_unsettled_number(rows: list[Row]) -> list[Row]:
    # Only three are under way, but the window still begins at m8's number (SW-5).
    return move(
        _only(rows, "acme"),
        find(rows, Kind.ACKNOWLEDGED, "m8")[0],
        find(rows, Kind.SENT, "m12")[0],
    )


@broken("window", "S8", "wrong_status")
def wrapping_around_carries_reset(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.NUMBERED, "m10")[0], said=notes.Numbered("Reset"))


@broken("window", "S8", "wrong_status")
def a_first_number_carries_continue(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.NUMBERED, "m0")[0], said=notes.Numbered("Continue"))


@broken("window", "S8", "wrong_status")
def the_rest_of_the_first_window_carries_continue(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.NUMBERED, "m3")[0], said=notes.Numbered("Continue"))


@broken("reset_on_the_first_message", "S8", "wrong_status")
def a_second_message_carries_reset(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.NUMBERED, "m1")[0], said=notes.Numbered("Reset"))


@broken("reset_after_a_used_window", "S8", "early_reset")
def a_reset_while_a_number_is_unsettled(rows: list[Row]) -> list[Row]:
    return move(rows, find(rows, Kind.ACKNOWLEDGED, "m4")[0], find(rows, Kind.NUMBERED, "n0")[0])


@broken("failure_ends_the_epoch", "S8", "early_reset")
def a_failed_number_is_not_settled_by_failing(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.EPOCH_ENDED))


# --- S11 on a channel ---------------------------------------------------------------------


@broken("transient", "S11", "early_retry")
def another_message_is_sent_inside_the_pause(rows: list[Row]) -> list[Row]:
    sent = find(rows, Kind.SENT, "m1")[0]
    return change(rows, sent, at=sent.at - 5 * SECOND)


@broken("paused_twice", "S11", "early_retry")
def another_message_is_sent_inside_the_longer_pause(rows: list[Row]) -> list[Row]:
    sent = find(rows, Kind.SENT, "m1")[0]
    return change(rows, sent, at=sent.at - 20 * SECOND)


# --- S13 ----------------------------------------------------------------------------------


@broken("split", "S13", "incomplete")
def a_document_without_one_of_its_parts(rows: list[Row]) -> list[Row]:
    return _without_part(rows, "part2")


@broken("split", "S13", "incomplete")
def a_document_of_fewer_parts_than_were_sent(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.JOINED)[0], said=notes.Joined(2))


@broken("split", "S13", "incomplete")
def a_document_handed_over_that_was_never_joined(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.JOINED))


@broken("split", "S13", "altered")
def a_document_that_differs_from_the_original(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.JOINED)[0], digest="sha-of-another")


@broken("split", "S13", "twice")
def a_document_joined_twice(rows: list[Row]) -> list[Row]:
    return repeat(rows, find(rows, Kind.JOINED)[0])


@broken("split", "S13", "twice")
def a_part_counted_twice(rows: list[Row]) -> list[Row]:
    received = find(rows, Kind.RECEIVED, "part1")[0]
    rows = [row for row in rows if row.node == "globex"]
    return insert(rows, received, received._replace(message_id="part1-again", channel=None))


@broken("split", "S13", "lost")
def a_document_joined_and_never_handed_over(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.HANDED_OVER, "doc"), *find(rows, Kind.CONFIRMED, "doc"))


@broken("split", "S13", "lost")
def a_document_whose_parts_all_came_and_were_never_joined(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.message_id != "doc"]


@broken("split", "S2", "twice")
def a_document_handed_over_twice(rows: list[Row]) -> list[Row]:
    return repeat(rows, find(rows, Kind.HANDED_OVER, "doc")[0])


@broken("documents", "S13", "invented")
def a_document_arrived_that_nobody_submitted(rows: list[Row]) -> list[Row]:
    return [row for row in rows if (row.kind, row.message_id) != (Kind.SUBMITTED, "doc")]


@broken("documents", "S13", "incomplete")
def a_document_joined_before_its_last_part_came(rows: list[Row]) -> list[Row]:
    return move(rows, find(rows, Kind.JOINED, "doc")[0], find(rows, Kind.ACK_SENT, "doc1")[0])


@broken("documents", "S13", "altered")
def a_lost_part_joined_as_empty(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.JOINED, "doc")[0], digest="sha-of-half", size=3_000)


@broken("documents", "S13", "incomplete")
def a_fragment_that_nobody_gave_to_its_document(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.node == "globex" and row.message_id != "scan2"]


@broken("documents", "S13", "incomplete")
def a_document_joined_before_the_turn_of_a_part(rows: list[Row]) -> list[Row]:
    given = find(rows, Kind.HANDED_OVER, "doc2")[0]
    return move(rows, given, find(rows, Kind.JOINED, "doc")[0])


@broken("documents", "S13", "invented")
def a_part_of_another_document_in_it(rows: list[Row]) -> list[Row]:
    other = find(rows, Kind.HANDED_OVER, "doc2")[0]
    stray = notes.Received("urn:party:acme", "urn:party:globex").write()
    strange = find(rows, Kind.RECEIVED, "doc2")[0]._replace(message_id="stray", detail=stray)
    rows = insert(rows, other, strange._replace(peer=None))
    taken = other._replace(message_id="stray", digest=strange.digest)
    return insert(rows, find(rows, Kind.RECEIVED, "stray")[0], taken)


@broken("documents", "S13", "lost")
def a_document_called_delivered_of_which_a_part_failed(rows: list[Row]) -> list[Row]:
    """The part is nobody's to be told of, and the document has its outcome: a false one."""
    gone = [row for row in rows if row.node == "globex" and row.message_id in ("doc", "doc2")]
    acknowledged = find(rows, Kind.ACKNOWLEDGED, "doc2")[0]
    failed = acknowledged._replace(kind=Kind.FAILED.value, ref_to=None)
    failed = failed._replace(detail=notes.Failed("not_delivered", "error").write())
    rows = insert(drop(rows, *gone), acknowledged, failed)
    acknowledged = find(rows, Kind.ACKNOWLEDGED, "doc2")[0]
    refused = notes.Rejected("Inconsistent", "Error")
    return change(rows, acknowledged, kind=Kind.REJECTED.value, said=refused)


# --- all of them --------------------------------------------------------------------------


def _only(rows: list[Row], node: str, without: str | None = None) -> list[Row]:
    """One node's rows, without those of one message."""
    gone = (row for row in rows if without is not None and row.message_id == without)
    return drop([row for row in rows if row.node == node], *gone)


def _also_received(rows: list[Row], message_id: str, like: Row) -> list[Row]:
    """Another message, received and handed over under the same number."""
    received = find(rows, Kind.RECEIVED, like.message_id)[0]
    handed = like._replace(message_id=message_id, digest=received.digest)
    confirmed = find(rows, Kind.CONFIRMED, like.message_id)[0]
    rows = insert(rows, like, confirmed._replace(message_id=message_id))
    rows = insert(rows, find(rows, Kind.HANDED_OVER, like.message_id)[0], handed)
    return insert(
        rows,
        find(rows, Kind.RECEIVED, like.message_id)[0],
        received._replace(message_id=message_id),
    )


def _without_part(rows: list[Row], message_id: str) -> list[Row]:
    """The receiver alone, which never got the part and says that its number is skipped."""
    rows = [row for row in rows if row.node == "globex"]
    received = find(rows, Kind.RECEIVED, message_id)[0]
    skip = received._replace(kind=Kind.SKIPPED.value, message_id=None, detail=None, digest=None)
    return [
        skip if row is received else row
        for row in rows
        if row.message_id != message_id or row is received
    ]


@pytest.mark.parametrize(
    ("scenario", "make", "predicate", "kind"),
    [pytest.param(*case[1:], id=case[0]) for case in CASES],
)
def test_a_broken_promise_is_told_once(
    scenario: str, make: Change, predicate: str, kind: str
) -> None:
    report = judged(make(SCENARIOS[scenario]().rows), healed=True)
    told = [(found.predicate, found.kind) for found in report.violations]
    assert told == [(predicate, kind)], report.violations
    assert not report.quarantined


def test_every_predicate_about_channels_and_documents_is_broken_somewhere() -> None:
    assert {"S6", "S7", "S8", "S13"} <= {case[3] for case in CASES}


def test_a_finding_names_its_channel_and_its_message() -> None:
    rows = two_hand_overs_change_places(SCENARIOS["window"]().rows)
    assert judged(rows, healed=True).violations == (
        Violation(
            "S6",
            "out_of_order",
            "m5",
            CHANNEL,
            "globex",
            "Number 5 was handed over after number 6.",
        ),
    )
