"""The edges of each promise: what just keeps it and what just breaks it."""

import pytest
from msgspec.structs import replace

from oncewire.journal.row import Row
from oncewire.message.form import AckRequest, SyncReplyMode
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind
from oncewire.protocol.terms import HopMode, OnExhausted, SyncRetries
from tests.journal.changes import change, drop, find, insert, judged, repeat
from tests.journal.histories import CHANNEL, EPOCH_START, ORDERED, PLAIN, World, digest
from tests.journal.scenarios import SCENARIOS


def _told(rows: list[Row], *, healed: bool = True) -> list[tuple[str, str]]:
    report = judged(rows, healed=healed)
    assert not report.quarantined
    return [(found.predicate, found.kind) for found in report.violations]


# --- S1 and S9 ----------------------------------------------------------------------------


def test_a_part_is_received_before_it_is_handed_to_its_document() -> None:
    rows = [row for row in SCENARIOS["split"]().rows if row.node == "globex"]
    rows = drop(rows, *find(rows, Kind.RECEIVED, "part2"), *find(rows, Kind.ACK_SENT, "part2"))
    assert ("S1", "invented") in _told(rows)


def test_content_is_that_of_the_arrival_where_the_hand_over_does_not_say() -> None:
    rows = SCENARIOS["plain"]().rows
    rows = change(rows, find(rows, Kind.HANDED_OVER)[0], digest=None)
    assert _told(rows) == []
    rows = change(rows, find(rows, Kind.RECEIVED)[0], digest="sha-of-something-else")
    assert _told(rows) == [("S1", "altered")]


def test_altered_content_is_told_once_however_often_it_was_handed_over() -> None:
    rows = SCENARIOS["redelivered_after_a_crash"]().rows
    rows = change(rows, find(rows, Kind.SUBMITTED)[0], digest="sha-of-the-original")
    assert _told(rows) == [("S1", "altered")]


def test_a_partner_whose_journal_is_not_here_may_use_an_id_of_ours() -> None:
    rows = [row for row in SCENARIOS["one_id_of_two_parties"]().rows if row.node != "initech"]
    assert _told(rows) == []
    theirs = next(row for row in find(rows, Kind.RECEIVED) if row.peer == "urn:party:initech")
    assert _told(change(rows, theirs, transport="smtp")) == []


@pytest.mark.parametrize(("over", "told"), [("ftp", []), ("smtp", [("books", "contradiction")])])
def test_a_folder_is_written_over_sftp_and_read_over_ftp(
    over: str, told: list[tuple[str, str]]
) -> None:
    world = World(replace(PLAIN, transports=("sftp",)))
    world.deliver("m1")
    rows = change(world.rows, find(world.rows, Kind.SENT)[0], transport="sftp")
    assert _told(change(rows, find(rows, Kind.RECEIVED)[0], transport=over)) == told


@pytest.mark.parametrize(
    ("answer", "told"), [("new_ack", []), ("stored_answer", [("steps", "contradiction")])]
)
def test_a_copy_of_what_retention_removed_is_answered_under_other_terms(
    answer: str, told: list[tuple[str, str]]
) -> None:
    world = World()
    world.deliver("m1")
    globex, other = world.node("globex"), replace(PLAIN, retries=PLAIN.retries + 1)
    world.agree(globex, other)
    peer, of = "urn:party:acme", {"terms_id": other.terms_id, "channel": "another", "hop": 3}
    first = find(world.rows, Kind.RECEIVED)[0]
    said = notes.Duplicate(answer)
    globex.add(Kind.DUPLICATE, "m1", peer=peer, digest=first.digest, said=said, **of)
    assert _told(world.rows) == told


def test_an_older_copy_of_a_journal_does_not_say_over_what_it_was_sent_later() -> None:
    world = World(replace(PLAIN, transports=("http", "smtp")))
    world.deliver("m1")
    rows = change(world.rows, find(world.rows, Kind.RECEIVED)[0], transport="smtp")
    assert _told(rows) == [("books", "contradiction")]
    report = judged(drop(rows, *find(rows, Kind.ACKNOWLEDGED)), healed=True)
    assert "contradiction" not in report.kinds


def test_a_response_that_was_refused_comes_again_on_the_way_of_its_request() -> None:
    world = World()
    world.submit("m1")
    world.send("m1")
    globex, facts = world.node("globex"), {"peer": "urn:party:acme", "digest": digest("m1")}
    refused = notes.Refused("TimeToLiveExpired")
    globex.add(Kind.REFUSED, "m1", ref_to="m0", said=refused, **facts)
    rejected = notes.Rejected("TimeToLiveExpired")
    world.note(Kind.REJECTED, "m1", ref_to="error-1", said=rejected)
    world.fail("m1", "not_delivered", "TimeToLiveExpired")
    again = notes.Duplicate("stored_answer")
    globex.add(Kind.DUPLICATE, "m1", transport="smtp", said=again, **facts)
    assert _told(world.rows) == []


def test_handlers_of_one_store_on_one_machine_may_tell_two_times() -> None:
    """The operator accepts the time of one; the clock of the other is in doubt still."""
    rows = SCENARIOS["plain"]().rows
    start, sent = find(rows, Kind.STARTED, node="acme")[0], find(rows, Kind.SENT)[0]
    rows = [
        row._replace(boot="machine.one") if row.node == "acme" and row is not sent else row
        for row in rows
    ]
    before = find(rows, Kind.SUBMITTED)[0]
    later = sent.at - 3_600_000_000
    rows = change(rows, sent, boot="machine.two", at=later)
    started = start._replace(boot="machine.two", at=later, mono=sent.mono)
    assert _told(insert(rows, before, started)) == []


def test_a_submission_written_twice_is_one_content() -> None:
    rows = SCENARIOS["plain"]().rows
    assert _told(repeat(rows, find(rows, Kind.SUBMITTED)[0])) == [("steps", "contradiction")]


# --- S2 -----------------------------------------------------------------------------------


@pytest.mark.requirement("DUP-1")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"duplicate_elimination": False}, []),
        ({"duplicate_elimination": True}, [("S2", "twice")]),
        ({"duplicate_elimination": False, "reliable": False}, [("S2", "twice")]),
        (
            {"duplicate_elimination": False, "reliable": False, "best_effort_filter": False},
            [],
        ),
    ],
)
def test_copies_that_nobody_asked_to_stop_are_messages_of_their_own(
    changes: dict[str, bool], expected: list[tuple[str, str]]
) -> None:
    world = World(replace(PLAIN, **changes))  # type: ignore[arg-type]
    world.submit("m1")
    world.send("m1")
    world.arrive("m1")
    world.arrive("m1")
    world.acknowledged("m1")
    assert _told(world.rows) == expected


def test_a_copy_that_nobody_asked_to_stop_is_handed_over_once_too() -> None:
    world = World(replace(PLAIN, duplicate_elimination=False))
    world.submit("m1")
    world.send("m1")
    world.arrive("m1")
    world.arrive("m1")
    world.hand_over("m1")
    world.acknowledged("m1")
    assert _told(world.rows) == [("S2", "twice")]
    world.confirm("m1")
    assert _told(world.rows) == [("S2", "twice")]


# --- S3 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("ack", [("S3", "ack_without_store")]),
        ("response", [("S3", "ack_without_store")]),
        ("status", []),
        ("transport", []),
    ],
)
def test_only_an_answer_of_the_receiver_promises_that_it_has_the_message(
    by: str, expected: list[tuple[str, str]]
) -> None:
    rows = SCENARIOS["plain"]().rows
    rows = [row for row in rows if row.node == "acme" or row.message_id is None]
    ack = find(rows, Kind.ACKNOWLEDGED)[0]
    assert _told(change(rows, ack, said=notes.Acknowledged(by=by))) == expected


def test_another_nodes_copy_does_not_make_a_hubs_acknowledgement_true() -> None:
    rows = SCENARIOS["hub"]().rows
    rows = [row for row in rows if row.node != "hub" or row.message_id is None]
    assert _told(rows) == [("S3", "ack_without_store")]


@pytest.mark.requirement("DUP-1", "STO-7")
@pytest.mark.parametrize("past", [0, 1])
def test_an_id_is_remembered_until_persist_duration_has_passed(past: int) -> None:
    rows = SCENARIOS["lost_ack"]().rows
    first, copy = find(rows, Kind.RECEIVED)[0], find(rows, Kind.DUPLICATE)[0]
    late = PLAIN.persist_duration + past
    again = first._replace(seq=copy.seq, at=first.at + late, mono=first.mono + late)
    told = _told([again if row is copy else row for row in rows], healed=False)
    assert (("S3", "forgotten") in told) is (past == 0)


def test_one_that_was_forgotten_more_than_once_is_told_of_once() -> None:
    rows = SCENARIOS["lost_ack"]().rows
    first, copy = find(rows, Kind.RECEIVED)[0], find(rows, Kind.DUPLICATE)[0]
    again = first._replace(seq=copy.seq, at=copy.at, mono=copy.mono)
    rows = [again if row is copy else row for row in rows]
    assert _told(repeat(rows, again)).count(("S3", "forgotten")) == 1


def test_an_acknowledgement_of_something_never_sent_promises_nothing_of_its_store() -> None:
    rows = SCENARIOS["plain"]().rows
    rows = [row for row in rows if row.node == "acme" or row.message_id is None]
    rows = drop(rows, *find(rows, Kind.SENT))
    told = _told(change(rows, find(rows, Kind.ACKNOWLEDGED)[0], peer=None))
    assert ("S3", "ack_without_store") not in told


# --- S5 -----------------------------------------------------------------------------------


def test_a_dishonest_outcome_is_told_before_anybody_is_notified_of_it() -> None:
    rows = SCENARIOS["unknown"]().rows
    rows = drop(rows, *find(rows, Kind.NOTIFIED))
    rows = change(rows, find(rows, Kind.FAILED)[0], said=notes.Failed("not_delivered", "x"))
    assert _told(rows, healed=False) == [("S5", "wrong_outcome")]


# --- S6, S7, S8 ---------------------------------------------------------------------------


def test_an_unordered_channel_hands_over_in_any_order() -> None:
    world = World(replace(ORDERED, ordered=False, on_exhausted=OnExhausted.FAIL_MESSAGE))
    for index in range(3):
        world.submit(f"m{index}")
        world.number(f"m{index}", index, status="Reset")
        world.send(f"m{index}")
    for index in (2, 0, 1):
        world.arrive(f"m{index}")
        world.acknowledged(f"m{index}")
    assert _told(world.rows) == []


def test_two_nodes_may_call_their_channels_alike() -> None:
    rows = [row for row in SCENARIOS["window"]().rows if row.node == "acme"]
    other = [
        row._replace(node="zeta", boot="z", message_id=row.message_id and f"z-{row.message_id}")
        for row in rows
    ]
    assert _told([*rows, *other]) == []


def _gap(numbers: list[int]) -> list[str]:
    """What is said of gaps when exactly these numbers are handed over, in this order."""
    world = World(ORDERED)
    for number in numbers:
        world.node("globex").add(
            Kind.HANDED_OVER,
            f"m{number}",
            channel=CHANNEL,
            epoch=0,
            sequence_number=number,
            terms_id=world.terms.terms_id,
        )
    report = judged(world.rows, healed=True)
    return [found.sentence for found in report.violations if found.predicate == "S7"]


def test_a_gap_says_what_is_missing() -> None:
    passed = "neither was nor has a journaled skip."
    assert _gap([0, 4]) == [f"Number 4 was handed over, but 1 and 2 after it {passed}"]
    # What goes on with 1 goes on as if the wrong number had been 0: one cause, one finding.
    assert _gap([4, 1]) == [f"Number 4 was handed over, but 0 {passed}"]
    assert _gap([4, 0]) == [f"Number 4 was handed over, but 1 and 2 after it {passed}"]
    assert _gap([4, 3]) == [f"Number 4 was handed over, but 0 and 2 after it {passed}"]
    # The number that passed the gap is not itself in it, even when it comes again.
    assert _gap([1, 1]) == [f"Number 1 was handed over, but 0 {passed}"]


def test_a_number_that_leaps_over_the_window_is_told_once() -> None:
    rows = [row for row in SCENARIOS["window"]().rows if row.node == "acme"]
    rows = [row for row in rows if row.message_id in (None, "m0", "m5")]
    ack = find(rows, Kind.ACKNOWLEDGED, "m0")[0]
    leaping = insert(drop(rows, ack), rows[-1], ack)
    assert _told(leaping) == [("S8", "gap"), ("S8", "wrong_status")]
    assert _told(rows) == [("S8", "gap"), ("S8", "wrong_status")]


def test_a_channel_whose_terms_are_missing_is_quarantined_once_for_each_node() -> None:
    rows = SCENARIOS["window"]().rows
    report = judged(drop(rows, *find(rows, Kind.TERMS)), healed=True)
    channels = [found.node for found in report.quarantined if found.message_id is None]
    assert channels == ["acme", "globex"]


# --- S11 ----------------------------------------------------------------------------------


def test_a_synchronous_exchange_may_resend_where_so_agreed() -> None:
    world = World(
        replace(
            PLAIN,
            sync_mode=SyncReplyMode.RESPONSE_ONLY,
            sync_retries=SyncRetries.SAME_MESSAGE,
        )
    )
    world.submit("m1")
    world.retry_until_exhausted("m1")
    world.fail("m1", "unknown", "no answer")
    assert _told(world.rows) == []


def test_exactly_timeout_retry_interval_time_to_live_and_persist_duration_are_in_time() -> None:
    terms = replace(PLAIN, persist_duration=PLAIN.timeout + PLAIN.retry_interval)
    world = World(terms)
    acme = world.node("acme")
    deadline = EPOCH_START + acme.skew + terms.persist_duration
    world.submit("m1", time_to_live=deadline)
    for attempt, wait in ((1, terms.timeout), (2, terms.retry_interval), (3, 0)):
        acme.add(Kind.SENT, "m1", attempt=attempt, transport="http", peer="urn:party:globex")
        world.wait(wait)
    world.arrive("m1")
    world.acknowledged("m1")
    assert _told(world.rows) == []


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [(AckRequest.UNSIGNED, []), (AckRequest.NONE, [("S11", "late_send")])],
)
def test_a_hubs_acknowledgement_ends_the_sending_only_where_no_other_is_awaited(
    wanted: AckRequest, expected: list[tuple[str, str]]
) -> None:
    world = World(replace(PLAIN, ack_requested=wanted))
    world.submit("m1")
    world.send("m1", to="hub")
    world.note(Kind.ACKNOWLEDGED, "m1", said=notes.Acknowledged(hop=True))
    world.wait(PLAIN.timeout)
    world.send("m1", 2, to="hub")
    world.acknowledged("m1")
    assert _told(world.rows, healed=False) == expected


def test_each_transport_is_exhausted_by_its_own_attempts() -> None:
    rows = SCENARIOS["second_transport"]().rows
    smtp = [row for row in find(rows, Kind.SENT, "m2") if row.transport == "smtp"]
    assert _told(drop(rows, *smtp[1:])) == [("S11", "gave_up_early")]


def test_what_was_exhausted_before_a_resume_does_not_excuse_giving_up_after_it() -> None:
    world = World()
    world.submit("m1")
    world.retry_until_exhausted("m1")
    world.fail("m1", "unknown", "no acknowledgement after 3 attempts")
    world.note(Kind.RESUMED, "m1")
    world.send("m1", 4)
    world.fail("m1", "unknown", "tired")
    assert _told(world.rows) == [("S11", "gave_up_early")]


# --- S12 ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "acknowledges", "expected"),
    [
        (HopMode.STORE_AND_FORWARD, True, [("S12", "lost")]),
        (HopMode.STORE_AND_FORWARD, False, [("S12", "lost")]),
        (HopMode.BY_REQUEST, True, [("S12", "lost")]),
        (HopMode.BY_REQUEST, False, []),
        (HopMode.TRANSPARENT, False, []),
    ],
)
def test_a_hub_is_responsible_by_its_mode_or_by_its_word(
    mode: HopMode, acknowledges: bool, expected: list[tuple[str, str]]
) -> None:
    world = World(replace(PLAIN, hop_mode=mode))
    world.node("hub").add(
        Kind.FORWARDED, "m1", terms_id=world.terms.terms_id, peer="urn:party:globex", hop=2
    )
    if acknowledges:
        world.ack("m1", at="hub")
    assert _told(world.rows) == expected


def test_a_hub_for_best_effort_messages_promises_nothing() -> None:
    world = World(replace(PLAIN, reliable=False))
    world.node("hub").add(Kind.FORWARDED, "m1", terms_id=world.terms.terms_id)
    assert _told(world.rows) == []


def test_a_hub_that_was_resumed_is_still_bound() -> None:
    rows = SCENARIOS["hub_gives_up"]().rows
    failed = find(rows, Kind.NOTIFIED, "m1", "hub")[0]
    rows = insert(rows, failed, failed._replace(kind=Kind.RESUMED.value, detail=None))
    assert ("S12", "lost") in _told(rows)
