"""The ladder of a message and the one sentence that explains it."""

import pytest

from oncewire.journal.history import Direction, explain, in_words, ladder, sentence
from oncewire.journal.outcome import fold_outcome
from oncewire.journal.row import Row
from oncewire.message.instant import HOUR, MILLISECOND, SECOND
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind
from oncewire.protocol.states import Outcome
from tests.journal.histories import World
from tests.journal.scenarios import SCENARIOS


def _rows(scenario: str, message_id: str = "m1", node: str | None = None) -> list[Row]:
    return [
        row
        for row in SCENARIOS[scenario]().rows
        if row.message_id == message_id and node in (None, row.node)
    ]


def test_the_ladder_follows_the_message_and_not_the_clocks() -> None:
    # The receiver's clock is hours ahead of the sender's; the rungs are in order all the same.
    steps = ladder(reversed(_rows("plain")))
    assert [(step.node, step.direction, step.text) for step in steps] == [
        ("acme", Direction.HERE, "submitted to urn:party:globex"),
        ("acme", Direction.OUT, "attempt 1 over http"),
        ("globex", Direction.IN, "received and stored"),
        ("globex", Direction.OUT, "acknowledgement sent"),
        ("acme", Direction.IN, "acknowledgement accepted from urn:party:globex (ack)"),
        ("globex", Direction.HERE, "handed over to the application"),
        ("globex", Direction.HERE, "confirmed by the application"),
    ]
    assert steps[0].peer == "urn:party:globex"
    assert steps[0].kind == "submitted"


def test_a_receiver_behind_in_time_still_comes_after_the_sender() -> None:
    rows = [
        row._replace(at=row.at - 100 * HOUR) if row.node == "globex" else row
        for row in _rows("hub")
    ]
    texts = [(step.node, step.kind) for step in ladder(rows)]
    assert texts.index(("globex", "received")) > texts.index(("acme", "sent"))


def test_rows_that_are_missing_do_not_stop_the_ladder() -> None:
    rows = [row for row in _rows("plain") if row.kind != Kind.SENT]
    assert len(ladder(rows)) == len(rows)


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_every_row_of_every_message_has_words(scenario: str) -> None:
    rows = SCENARIOS[scenario]().rows
    for message_id in {row.message_id for row in rows if row.message_id}:
        own = [row for row in rows if row.message_id == message_id]
        steps = ladder(own)
        assert sorted((step.node, step.seq) for step in steps) == sorted(
            (row.node, row.seq) for row in own
        )
        assert all(step.text and "None" not in step.text for step in steps)
        assert explain(own).endswith(".")


def test_special_rungs_say_what_is_special() -> None:
    assert any(
        step.text.endswith("after it had been given up")
        for step in ladder(_rows("unknown_then_late_ack"))
    )
    assert any(
        step.text == "handed over to the application again"
        for step in ladder(_rows("redelivered_after_a_crash"))
    )
    stopped = Row(1, 0, 0, "b", "acme", "stopped", "m1")
    assert ladder([stopped])[0].text == "stopped"


@pytest.mark.parametrize(
    ("scenario", "node", "expected"),
    [
        (
            "lost_ack",
            None,
            (
                "Delivered on attempt 2, acknowledged 10 s after submission; the application "
                "confirmed it; 1 copy was stopped (1 at globex)."
            ),
        ),
        (
            "unknown_then_late_ack",
            "acme",
            "Delivered after all: the acknowledgement came after the message was given up.",
        ),
        ("plain", "globex", "Delivered; the application confirmed it."),
        (
            "refused",
            None,
            "Not delivered: ValueNotRecognized; its From Party was told.",
        ),
        (
            "closed_unanswered",
            "globex",
            (
                "Not delivered: it arrived, but the application is never given it: "
                "communication protocol time-out."
            ),
        ),
        (
            "closed_unanswered",
            "acme",
            (
                "Unknown: sent 1 time, answered with DeliveryFailure (communication protocol "
                "time-out); its From Party was told; ask for its status or reconcile to settle it."
            ),
        ),
        (
            "unknown",
            None,
            (
                "Unknown: sent 3 times, never acknowledged (no acknowledgement after 3 attempts); "
                "its From Party was told; ask for its status or reconcile to settle it."
            ),
        ),
        ("best_effort", None, "Sent once with best effort: more cannot be known."),
        ("hub", "hub", "Delivered on attempt 1."),
    ],
)
def test_one_sentence_of_cause(scenario: str, node: str | None, expected: str) -> None:
    assert explain(_rows(scenario, node=node)) == expected


def test_sentences_on_the_way() -> None:
    world = World()
    world.submit("m1")

    def told() -> str:
        return explain([row for row in world.rows if row.message_id == "m1"])

    assert told() == "Queued: it was not sent yet."
    world.send("m1")
    assert told() == "Under way: sent 1 time, its acknowledgement is awaited."
    world.receive("m1")
    assert told() == (
        "Delivered: the receiver has it, though no acknowledgement came back; "
        "the application does not have it yet."
    )
    world.hand_over("m1")
    world.duplicate("m1")
    world.duplicate("m1")
    assert told().endswith(
        "it was handed to the application, which has not confirmed it yet; 2 copies were stopped "
        "(2 at globex)."
    )
    suspended = [row for row in SCENARIOS["suspended_at_the_end"]().rows if row.message_id == "m0"]
    assert explain(suspended) == (
        "Suspended after 3 times without an answer: an operator must resume or abandon it."
    )
    assert explain([]) == "Nothing is known of this message."


def test_a_failed_attempt_is_the_cause_until_the_next_one_begins() -> None:
    world = World()
    world.submit("m1")

    def told(outlook: str = "") -> str:
        return explain([row for row in world.rows if row.message_id == "m1"], outlook=outlook)

    def failed(attempt: int) -> None:
        said = notes.SendFailed("refused", "cannot connect to globex").write()
        world.note(Kind.SEND_FAILED, "m1", attempt=attempt, transport="http", detail=said)

    assert told("its channel is suspended") == (
        "Queued: it was not sent yet; its channel is suspended."
    )
    world.send("m1")
    failed(1)
    assert told() == "Under way: attempt 1 failed: cannot connect to globex."
    assert told("the next try is at noon") == (
        "Under way: attempt 1 failed: cannot connect to globex; the next try is at noon."
    )
    world.send("m1", attempt=2)
    awaited = "Under way: sent 2 times, its acknowledgement is awaited."
    assert told() == awaited
    # The report on an earlier attempt is late: the present one is still awaited.
    failed(1)
    assert told() == awaited
    failed(2)
    assert told() == "Under way: attempt 2 failed: cannot connect to globex."


def test_durations_in_words() -> None:
    assert in_words(31 * MILLISECOND) == "31 ms"
    assert in_words(MILLISECOND // 4) == "0.25 ms"
    assert in_words(999_960) == "1 s"
    assert in_words(2_500 * MILLISECOND) == "2.5 s"
    assert in_words(90 * SECOND) == "90 s"
    assert in_words(HOUR) == "60 min"


@pytest.mark.requirement("ERR-10")
def test_a_warning_is_told_and_changes_no_outcome() -> None:
    rows = _rows("plain")
    before = explain(rows)
    last = max(row.seq for row in rows if row.node == "acme")
    said = notes.Warned("Inconsistent", "//Service", "the header says no")
    rows += [
        Row(
            last + 1 + more,
            rows[0].at,
            0,
            "boot",
            "acme",
            Kind.WARNED.value,
            "m1",
            "ack-1",
            peer="urn:party:globex",
            detail=said.write(),
        )
        for more in range(2)
    ]
    told = "Its receiver warned: Inconsistent at //Service (the header says no)."
    assert explain(rows) == f"{before} {told}"
    warned = [step for step in ladder(rows) if step.kind == "warned"]
    assert {(step.direction, step.text) for step in warned} == {
        (
            Direction.IN,
            "a warning came from urn:party:globex: Inconsistent at //Service (the header says no)",
        )
    }


def test_who_warns_says_so_in_his_own_ladder() -> None:
    said = notes.WarningSent("Unknown")
    row = Row(1, 0, 0, "boot", "b", Kind.WARNING_SENT.value, "m1", "ack-1", detail=said.write())
    (step,) = ladder([row])
    assert (step.direction, step.text) == (Direction.OUT, "its sender is warned: Unknown")


def test_what_was_ignored_is_told_with_its_reason() -> None:
    world = World()
    world.submit("m1")
    world.send("m1")

    def told() -> str:
        return explain([row for row in world.rows if row.message_id == "m1"])

    world.note(Kind.IGNORED, "m1", said=notes.Ignored("error", "Unknown", "nobody signed it"))
    assert told().endswith("Of those about it a signal was ignored: error, nobody signed it.")
    world.note(Kind.IGNORED, "m1", said=notes.Ignored("fault", "Client", count=2))
    assert told().endswith("Of those about it 2 signals were ignored: fault, Client.")
    steps = [step.text for step in ladder(row for row in world.rows if row.message_id == "m1")]
    assert steps[-1].endswith("(2 so far)")


def test_of_a_document_in_parts_nobody_says_that_it_was_sent_no_times() -> None:
    whole = fold_outcome([row for row in SCENARIOS["split"]().rows if row.message_id == "doc"])
    assert whole is not None
    unknown = whole._replace(outcome=Outcome.UNKNOWN, reason="no word of part 2")
    assert sentence(unknown) == (
        "Unknown: sent in parts, not all of them acknowledged (no word of part 2); "
        "ask for the status of its parts or reconcile to settle it."
    )
    failed = whole._replace(outcome=Outcome.NOT_DELIVERED, reason="part")
    assert sentence(failed) == "Not delivered: a part of it failed."
    assert sentence(failed, outlook="part 2 of 3: it was refused") == (
        "Not delivered: part 2 of 3: it was refused."
    )
