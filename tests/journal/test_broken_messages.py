"""Each promise about a message, broken in the smallest way, is told once and under its name."""

from collections.abc import Callable

import pytest

from oncewire.journal.row import Row
from oncewire.message.instant import DAY, SECOND
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind
from tests.journal.changes import change, delayed, drop, find, insert, judged, move, repeat
from tests.journal.scenarios import SCENARIOS

Change = Callable[[list[Row]], list[Row]]
CASES: list[tuple[str, str, Change, str, str]] = []


def broken(scenario: str, predicate: str, kind: str) -> Callable[[Change], Change]:
    def register(make: Change) -> Change:
        CASES.append((make.__name__.strip("_"), scenario, make, predicate, kind))
        return make

    return register


# --- S1 -----------------------------------------------------------------------------------


@broken("plain", "S1", "invented")
def handed_over_but_never_submitted(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.node == "globex" or row.kind == Kind.STARTED]


@broken("plain", "S1", "invented")
def handed_over_but_never_received(rows: list[Row]) -> list[Row]:
    rows = [row for row in rows if row.node == "globex"]
    return drop(rows, *find(rows, Kind.RECEIVED), *find(rows, Kind.ACK_SENT))


@broken("plain", "S1", "altered")
def handed_over_with_other_content_than_submitted(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.SUBMITTED)[0], digest="sha-of-the-original")


@broken("plain", "S1", "altered")
def handed_over_with_other_content_without_declared_parties(rows: list[Row]) -> list[Row]:
    rows = drop(rows, *find(rows, Kind.STARTED))
    return change(rows, find(rows, Kind.SUBMITTED)[0], digest="sha-of-the-original")


@broken("plain", "S1", "invented")
def confirmed_but_never_handed_over(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.HANDED_OVER))


# --- S2 -----------------------------------------------------------------------------------


@broken("plain", "S2", "twice")
def confirmed_twice(rows: list[Row]) -> list[Row]:
    return repeat(rows, find(rows, Kind.CONFIRMED)[0])


@broken("plain", "S2", "twice")
def handed_over_twice(rows: list[Row]) -> list[Row]:
    return repeat(rows, find(rows, Kind.HANDED_OVER)[0])


@broken("plain", "S2", "twice")
def handed_over_again_after_its_confirmation(rows: list[Row]) -> list[Row]:
    again = find(rows, Kind.HANDED_OVER)[0]
    said = notes.HandedOver(redelivered=True).write()
    return insert(rows, find(rows, Kind.CONFIRMED)[0], again._replace(boot="later", detail=said))


@broken("redelivered_after_a_crash", "S2", "twice")
def handed_over_again_without_the_mark(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.HANDED_OVER)[1], detail=None)


@broken("redelivered_after_a_crash", "S2", "twice")
def handed_over_again_with_a_false_mark(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.HANDED_OVER)[1], detail='{"redelivered":false}')


@broken("lease_expired", "S2", "twice")
def handed_over_again_in_the_same_boot(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.HANDED_OVER)[1], said=notes.HandedOver(redelivered=True))


@broken("suspended_and_late_ack", "S4", "unconfirmed")
def a_suspension_that_is_over_excuses_nothing(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.CONFIRMED, "m1"))


@broken("suspended_at_the_end", "S4", "unconfirmed")
def a_suspension_does_not_excuse_what_was_handed_over(rows: list[Row]) -> list[Row]:
    received = find(rows, Kind.ACK_SENT, "m1")[0]
    plain = find(SCENARIOS["plain"]().rows, Kind.HANDED_OVER)[0]
    return insert(rows, received, plain)


@broken("plain", "S2", "twice")
def a_forgotten_copy_is_delivered_again(rows: list[Row]) -> list[Row]:
    last = find(rows, Kind.CONFIRMED)[0]
    for kind in (Kind.CONFIRMED, Kind.HANDED_OVER, Kind.RECEIVED):
        rows = insert(rows, last, find(rows, kind)[0]._replace(boot="later"))
        last = find(rows, Kind.CONFIRMED)[0]
    return rows


@broken("plain", "S2", "twice")
def confirmed_on_two_nodes(rows: list[Row]) -> list[Row]:
    copies = [
        row._replace(node="globex2", boot="globex2-1") for row in rows if row.node == "globex"
    ]
    return rows + copies


# --- S3 -----------------------------------------------------------------------------------


@broken("plain", "S3", "ack_without_store")
def acknowledged_before_the_commit(rows: list[Row]) -> list[Row]:
    return move(rows, find(rows, Kind.RECEIVED)[0], find(rows, Kind.ACK_SENT)[0])


@broken("unknown", "S3", "ack_without_store")
def acknowledged_without_storing(rows: list[Row]) -> list[Row]:
    ack = find(SCENARIOS["plain"]().rows, Kind.ACK_SENT)[0]
    return [*rows, ack._replace(seq=90)]


@broken("plain", "S3", "ack_without_store")
def the_peer_that_acknowledged_does_not_have_it(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.node == "acme" or row.message_id is None]


@broken("plain", "S3", "ack_without_store")
def the_unnamed_peer_that_acknowledged_does_not_have_it(rows: list[Row]) -> list[Row]:
    rows = [row for row in rows if row.node == "acme" or row.message_id is None]
    return change(rows, find(rows, Kind.ACKNOWLEDGED)[0], peer=None)


@broken("hub", "S3", "ack_without_store")
def a_hub_acknowledges_before_it_takes_the_message(rows: list[Row]) -> list[Row]:
    rows = drop(rows, *find(rows, Kind.RECEIVED, node="hub"))
    return move(
        rows,
        find(rows, Kind.FORWARDED)[0],
        find(rows, Kind.ACK_SENT, node="hub")[0],
    )


@broken("lost_ack", "S3", "forgotten")
def a_copy_is_taken_for_new(rows: list[Row]) -> list[Row]:
    first = find(rows, Kind.RECEIVED)[0]
    duplicate = find(rows, Kind.DUPLICATE)[0]
    again = first._replace(seq=duplicate.seq, at=duplicate.at, mono=duplicate.mono)
    return [again if row is duplicate else row for row in rows]


@broken("lost_ack", "S3", "forgotten")
def a_copy_is_taken_for_new_after_a_restart(rows: list[Row]) -> list[Row]:
    first = find(rows, Kind.RECEIVED)[0]
    duplicate = find(rows, Kind.DUPLICATE)[0]
    again = first._replace(seq=duplicate.seq, at=duplicate.at, mono=1, boot="later")
    return [again if row is duplicate else row for row in rows]


@broken("hub_that_passes_on", "S3", "ack_without_store")
def acknowledged_through_a_hub_by_somebody_who_has_it_not(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.node != "globex" or row.message_id is None]


@broken("hub_that_passes_on", "S3", "ack_without_store")
def acknowledged_by_a_hub_that_has_it_not(rows: list[Row]) -> list[Row]:
    rows = [row for row in rows if row.node != "globex"]
    return drop(rows, *find(rows, Kind.PASSED_ON, "m1"))


# --- S4 and L1 ----------------------------------------------------------------------------


@broken("plain", "S4", "lost")
def stored_and_never_handed_over(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.HANDED_OVER), *find(rows, Kind.CONFIRMED))


@broken("plain", "S4", "lost")
def stored_and_never_handed_over_seen_by_the_receiver_alone(rows: list[Row]) -> list[Row]:
    rows = [row for row in rows if row.node == "globex"]
    return drop(rows, *find(rows, Kind.HANDED_OVER), *find(rows, Kind.CONFIRMED))


@broken("plain", "S4", "unconfirmed")
def handed_over_and_never_confirmed(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.CONFIRMED))


@broken("plain", "S4", "unconfirmed")
def handed_over_and_never_confirmed_seen_by_the_receiver_alone(rows: list[Row]) -> list[Row]:
    rows = [row for row in rows if row.node == "globex"]
    return drop(rows, *find(rows, Kind.CONFIRMED))


@broken("split", "S4", "unconfirmed")
def a_document_handed_over_and_never_confirmed(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.CONFIRMED))


@broken("expired_unsent", "S4", "lost")
def submitted_and_never_sent(rows: list[Row]) -> list[Row]:
    gone = (Kind.EXPIRED, Kind.FAILED, Kind.NOTIFIED)
    return [row for row in rows if row.kind not in gone]


@broken("unknown", "S4", "unnotified")
def failed_and_nobody_was_told(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.NOTIFIED))


@broken("notice_that_fails", "S4", "unnotified")
def a_notice_failed_and_there_is_no_incident(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.INCIDENT))


@broken("plain", "L1", "unfinished")
def sent_and_for_ever_without_an_outcome(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.ACKNOWLEDGED))


@broken("suspended_and_resumed", "L1", "unfinished")
def resumed_and_for_ever_without_an_outcome(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.ACKNOWLEDGED))


@broken("resumed_channel", "L1", "unfinished")
def behind_a_channel_that_goes_on_again_and_without_an_outcome(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.ACKNOWLEDGED, "m1"))


@broken("unknown", "S4", "lost")
def sent_and_then_forgotten(rows: list[Row]) -> list[Row]:
    gone = (Kind.EXHAUSTED, Kind.FAILED, Kind.NOTIFIED)
    return [row for row in rows if row.kind not in gone]


@broken("suspended_at_the_end", "S4", "lost")
def in_the_window_of_a_channel_nobody_suspended(rows: list[Row]) -> list[Row]:
    # m0 has no outcome; m1 is held behind it; m2 waits for a place.
    gone = [row for row in rows if row.message_id in ("m1", "m2") or row.kind == Kind.SUSPENDED]
    return drop(rows, *gone)


# --- S5 -----------------------------------------------------------------------------------


@broken("unknown", "S5", "wrong_outcome")
def called_not_delivered_though_it_may_have_arrived(rows: list[Row]) -> list[Row]:
    rows = change(rows, find(rows, Kind.FAILED)[0], said=notes.Failed("not_delivered", "exhausted"))
    return change(rows, find(rows, Kind.NOTIFIED)[0], said=notes.Notified("Error"))


@broken("connection_refused", "S5", "wrong_outcome")
def called_unknown_though_nothing_left(rows: list[Row]) -> list[Row]:
    rows = change(rows, find(rows, Kind.FAILED)[0], said=notes.Failed("unknown", "exhausted"))
    return change(rows, find(rows, Kind.NOTIFIED)[0], said=notes.Notified("Warning"))


@broken("connection_refused", "S5", "wrong_outcome")
def one_attempt_was_not_refused(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.SEND_FAILED)[1], said=notes.SendFailed("unknown", "reset"))


@broken("unknown", "S5", "wrong_outcome")
def failed_with_an_outcome_that_is_none(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.FAILED)[0], said=notes.Failed("lost", "exhausted"))


@broken("unknown", "taken back", "taken_back")
def failed_after_the_to_party_acknowledged(rows: list[Row]) -> list[Row]:
    return failed_after_it_was_acknowledged(rows, hop=False)


@broken("hub_gives_up", "taken back", "taken_back")
def a_hub_takes_back_what_the_to_party_acknowledged(rows: list[Row]) -> list[Row]:
    acks = find(rows, Kind.ACKNOWLEDGED)
    (by_hub,) = [row for row in acks if row.message_id == "m1" and row.node == "acme"]
    own = by_hub._replace(detail=None)
    return [*insert(rows, by_hub, own), find(SCENARIOS["hub"]().rows, Kind.RECEIVED)[-1]]


@broken("unknown", "S5", "wrong_outcome")
def failed_after_it_was_acknowledged(rows: list[Row], *, hop: bool = True) -> list[Row]:
    sent = find(rows, Kind.SENT)[2]
    ack = find(SCENARIOS["plain"]().rows, Kind.ACKNOWLEDGED)[0]
    ack = ack._replace(detail=notes.Acknowledged(hop=hop).write())
    receipt = find(SCENARIOS["plain"]().rows, Kind.RECEIVED)[0]
    return [*insert(rows, sent, ack._replace(at=sent.at, mono=sent.mono)), receipt._replace(seq=90)]


@broken("unknown_then_late_ack", "S5", "wrong_outcome")
def a_late_ack_is_not_called_late(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.ACKNOWLEDGED)[0], detail=None)


@broken("hub", "S5", "wrong_outcome")
def a_hubs_word_counts_after_the_warning_that_it_could_not_deliver(rows: list[Row]) -> list[Row]:
    (sent,) = [row for row in find(rows, Kind.SENT) if row.node == "acme"]
    warned = sent._replace(kind=Kind.WARNED.value, detail=notes.Warned("DeliveryFailure").write())
    return insert(rows, sent, warned)


@broken("hub_gives_up", "S5", "wrong_outcome")
def a_hubs_word_counts_again_after_it_was_taken_back(rows: list[Row]) -> list[Row]:
    acks = find(rows, Kind.ACKNOWLEDGED)
    (by_hub,) = [row for row in acks if row.message_id == "m1" and row.node == "acme"]
    failed = [row for row in find(rows, Kind.FAILED) if row.node == "acme"][-1]
    late = notes.Acknowledged(late=True, hop=True).write()
    last = failed._replace(seq=failed.seq + 50, kind=by_hub.kind, ref_to=by_hub.ref_to, detail=late)
    return [*rows, last]


@broken("unknown", "S5", "wrong_outcome")
def told_with_the_wrong_severity(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.NOTIFIED)[0], said=notes.Notified("Error"))


@broken("plain", "S5", "wrong_outcome")
def told_of_a_failure_that_did_not_happen(rows: list[Row]) -> list[Row]:
    notice = find(SCENARIOS["unknown"]().rows, Kind.NOTIFIED)[0]
    return insert(rows, find(rows, Kind.ACKNOWLEDGED)[0], notice)


@broken("refused", "S5", "wrong_outcome")
def called_not_delivered_though_it_was_handed_over(rows: list[Row]) -> list[Row]:
    delivered = SCENARIOS["plain"]().nodes["globex"].rows
    rows = [row for row in rows if row.node != "globex"]
    return [*rows, *delivered]


# --- S9 -----------------------------------------------------------------------------------


@broken("lost_ack", "S9", "altered")
def other_content_is_taken_for_a_copy(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.DUPLICATE)[0], digest="sha-of-something-else")


@broken("plain", "S9", "altered")
def other_content_is_accepted_under_a_known_id(rows: list[Row]) -> list[Row]:
    return repeat(rows, find(rows, Kind.RECEIVED)[0], digest="sha-of-something-else")


@broken("plain", "S9", "altered")
def submitted_twice_with_different_content(rows: list[Row]) -> list[Row]:
    return repeat(rows, find(rows, Kind.SUBMITTED)[0], digest="sha-of-something-else")


# --- S10 ----------------------------------------------------------------------------------


@broken("plain", "S10", "unmatched_ack")
def acknowledged_before_it_was_sent(rows: list[Row]) -> list[Row]:
    return move(rows, find(rows, Kind.SENT)[0], find(rows, Kind.ACKNOWLEDGED)[0])


@broken("plain", "S10", "unmatched_ack")
def acknowledged_without_ever_being_sent(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.SENT))


@broken("plain", "S10", "unmatched_ack")
def one_acknowledgement_accepted_twice(rows: list[Row]) -> list[Row]:
    return repeat(rows, find(rows, Kind.ACKNOWLEDGED)[0])


@broken("plain", "S10", "unmatched_ack")
def acknowledged_by_a_stranger(rows: list[Row]) -> list[Row]:
    started = find(SCENARIOS["one_id_of_two_parties"]().rows, Kind.STARTED, node="initech")
    ack = find(rows, Kind.ACKNOWLEDGED)[0]
    return [*change(rows, ack, peer="urn:party:initech"), *started]


@broken("signed", "S10", "unsigned")
def an_unsigned_acknowledgement_where_a_signed_one_was_agreed(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.ACKNOWLEDGED)[0], detail=None)


# --- S11 ----------------------------------------------------------------------------------


@broken("lost_ack", "S11", "early_retry")
def the_first_resend_before_timeout(rows: list[Row]) -> list[Row]:
    second = find(rows, Kind.SENT)[1]
    return change(rows, second, mono=second.mono - SECOND)


@broken("unknown", "S11", "early_retry")
def a_later_resend_before_retry_interval(rows: list[Row]) -> list[Row]:
    third = find(rows, Kind.SENT)[2]
    return change(rows, third, mono=third.mono - SECOND)


@broken("sender_crashes_between_attempts", "S11", "early_retry")
def a_resend_before_timeout_after_a_crash(rows: list[Row]) -> list[Row]:
    second = find(rows, Kind.SENT)[1]
    return change(rows, second, at=second.at - SECOND)


@broken("transient", "S11", "early_retry")
def a_resend_inside_the_pause(rows: list[Row]) -> list[Row]:
    second = find(rows, Kind.SENT, "m0")[1]
    return change(rows, second, at=second.at - 2 * SECOND)


@broken("paused_twice", "S11", "early_retry")
def a_resend_inside_a_later_pause(rows: list[Row]) -> list[Row]:
    third = find(rows, Kind.SENT, "m0")[2]
    return change(rows, third, at=third.at - 20 * SECOND)


@broken("suspended_and_resumed", "S11", "late_send")
def sent_again_after_the_acknowledgement_that_followed_a_resume(rows: list[Row]) -> list[Row]:
    ack, sent = find(rows, Kind.ACKNOWLEDGED)[0], find(rows, Kind.SENT)[-1]
    later = ack.mono + 60 * SECOND
    return insert(rows, ack, sent._replace(attempt=8, at=ack.at + 60 * SECOND, mono=later))


@broken("unknown", "S11", "too_many_retries")
def one_attempt_too_many(rows: list[Row]) -> list[Row]:
    third = find(rows, Kind.SENT)[2]
    later = third.mono + 60 * SECOND
    return repeat(rows, third, attempt=4, at=third.at + 60 * SECOND, mono=later)


@broken("suspended_and_resumed", "S11", "too_many_retries")
def more_attempts_without_a_resume(rows: list[Row]) -> list[Row]:
    return drop(rows, find(rows, Kind.RESUMED)[1])


@broken("best_effort", "S11", "too_many_retries")
def best_effort_sent_twice(rows: list[Row]) -> list[Row]:
    first = find(rows, Kind.SENT, "m1")[0]
    return repeat(rows, first, attempt=2, mono=first.mono + 60 * SECOND)


@broken("lost_ack", "S11", "late_send")
def sent_again_after_the_acknowledgement(rows: list[Row]) -> list[Row]:
    ack, sent = find(rows, Kind.ACKNOWLEDGED)[0], find(rows, Kind.SENT)[1]
    later = ack.mono + 60 * SECOND
    return insert(rows, ack, sent._replace(attempt=3, at=ack.at + 60 * SECOND, mono=later))


@broken("expired_under_way", "S11", "late_send")
def sent_after_its_time_to_live(rows: list[Row]) -> list[Row]:
    sent = find(rows, Kind.SENT)[0]
    return delayed(rows, sent, 70 * SECOND)


@broken("hub", "S11", "late_send")
def a_hub_sends_after_the_time_to_live(rows: list[Row]) -> list[Row]:
    sent = find(rows, Kind.SENT, node="hub")[0]
    return delayed(rows, sent, 2 * DAY)


@broken("lost_ack", "S11", "late_send")
def sent_again_after_persist_duration(rows: list[Row]) -> list[Row]:
    second = find(rows, Kind.SENT)[1]
    return delayed(rows, second, DAY)


@broken("unknown", "S11", "gave_up_early")
def exhausted_with_an_attempt_left(rows: list[Row]) -> list[Row]:
    return drop(rows, find(rows, Kind.SENT)[2])


@broken("unknown", "S11", "gave_up_early")
def failed_without_a_cause(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.EXHAUSTED))


@broken("second_transport", "S11", "gave_up_early")
def failed_without_trying_the_other_transport(rows: list[Row]) -> list[Row]:
    gone = [row for row in rows if row.message_id == "m2" and row.transport == "smtp"]
    return drop(rows, *gone)


@broken("total_retries", "S11", "gave_up_early")
def exhausted_with_an_attempt_left_in_all(rows: list[Row]) -> list[Row]:
    return drop(rows, find(rows, Kind.SENT)[2])


# --- S12 ----------------------------------------------------------------------------------


@broken("hub_gives_up", "S12", "unnotified")
def a_hub_fails_and_tells_nobody(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.NOTIFIED, node="hub"))


@broken("notice_sent_once", "S12", "unnotified")
def a_notice_gets_nowhere_and_is_not_repeated(rows: list[Row]) -> list[Row]:
    (sent,) = find(rows, Kind.SENT)
    refused = notes.SendFailed("refused", "connection refused")
    lost = sent._replace(kind=Kind.SEND_FAILED.value, detail=refused.write())
    return insert(rows, sent, lost)


@broken("notice_that_passes", "S12", "unnotified")
def a_notice_that_passes_gets_no_further(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.ACKNOWLEDGED, node="hub"))


@broken("notice_that_passes", "S4", "lost")
def a_notice_that_nobody_took_is_repeated_no_more(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.ACKNOWLEDGED, node="globex"))


@broken("hub_gives_up", "S12", "lost")
def a_hub_takes_responsibility_and_never_sends(rows: list[Row]) -> list[Row]:
    kept = (Kind.RECEIVED, Kind.FORWARDED, Kind.ACK_SENT)
    rows = [row for row in rows if row.message_id != "n1"]
    return [
        row
        for row in rows
        if not (row.node == "hub" and row.message_id == "m1" and row.kind not in kept)
        and row.kind not in (Kind.FAILED, Kind.NOTIFIED, Kind.REJECTED)
    ]


@broken("hub", "L1", "unfinished")
def a_hub_never_ends(rows: list[Row]) -> list[Row]:
    return drop(rows, *find(rows, Kind.ACKNOWLEDGED, node="hub"))


# --- S14 ----------------------------------------------------------------------------------


@broken("signed", "S14", "unsigned")
def handed_over_without_a_signature(rows: list[Row]) -> list[Row]:
    said = notes.Received(signature_required=True)
    return change(rows, find(rows, Kind.RECEIVED)[0], said=said)


@broken("signed", "S14", "unsigned")
def handed_over_with_a_part_outside_the_signature(rows: list[Row]) -> list[Row]:
    said = notes.Received(signature_required=True, signature="partial")
    return change(rows, find(rows, Kind.RECEIVED)[0], said=said)


# --- S15 ----------------------------------------------------------------------------------


@broken("plain", "S15", "altered")
def given_other_content_than_received(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.HANDED_OVER)[0], digest="sha-of-something-else")


@broken("plain", "S15", "altered")
def given_other_content_seen_from_the_receiver_alone(rows: list[Row]) -> list[Row]:
    rows = [row for row in rows if row.node == "globex"]
    return change(rows, find(rows, Kind.HANDED_OVER)[0], digest="sha-of-something-else")


@broken("redelivered_after_a_crash", "S15", "altered")
def given_other_content_the_second_time(rows: list[Row]) -> list[Row]:
    return change(rows, find(rows, Kind.HANDED_OVER)[1], digest="sha-of-something-else")


# --- told ---------------------------------------------------------------------------------


@broken("unknown", "told", "untold")
def told_once_more_than_it_failed(rows: list[Row]) -> list[Row]:
    told = find(rows, Kind.NOTIFIED)[0]
    return insert(rows, told, told)


@broken("notice_that_fails", "told", "needless_notice")
def a_notice_about_a_notice(rows: list[Row]) -> list[Row]:
    told = find(SCENARIOS["unknown"]().rows, Kind.NOTIFIED)[0]._replace(message_id="n1")
    return insert(rows, find(rows, Kind.FAILED)[0], told)


# --- all of them --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "make", "predicate", "kind"),
    [pytest.param(*case[1:], id=case[0]) for case in CASES],
)
def test_a_broken_promise_is_told_once(
    scenario: str, make: Change, predicate: str, kind: str
) -> None:
    report = judged(make(SCENARIOS[scenario]().rows), healed=True)
    assert [(found.predicate, found.kind) for found in report.violations] == [(predicate, kind)]
    # Some of them hide a node's first rows, so that nobody knows whom it acts for.
    assert {found.kind for found in report.quarantined} <= {"unstarted"}


def test_every_predicate_about_messages_is_broken_somewhere() -> None:
    expected = {"S1", "S2", "S3", "S4", "S5", "S9", "S10", "S11", "S12", "S14", "S15", "L1"}
    expected |= {"taken back", "told"}
    assert {case[3] for case in CASES} == expected
