"""A course says what its messages have in common, and answers nothing else."""

import pytest

from oncewire.journal.history_shape import (
    DEADLINE,
    EXACT,
    MESSAGE,
    ORIGIN,
    ROLES,
    SAME,
    TIME_TO_LIVE,
    Anonymous,
    Condition,
    Conditions,
    Measured,
    Participants,
    Position,
    Same,
    Unanswerable,
    shape_of,
)
from oncewire.journal.predicates.context import ALWAYS, Context
from oncewire.journal.row import COLUMNS, Row
from oncewire.protocol.notes import Started
from oncewire.protocol.terms import Terms, terms_id_of

HIDDEN = {"seq", "at", "mono", "boot", "message_id", "size"}

TERMS = Terms()
TERMS_ID = terms_id_of(TERMS.as_dict())


def test_every_column_is_of_the_course_or_left_out() -> None:
    assert sorted((*EXACT, *ROLES, *SAME, *HIDDEN)) == sorted(COLUMNS)


# --- anonymised values ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        bool,
        hash,
        lambda one: one == 1,
        lambda one: one != 1,
        lambda one: one is not None and one < 1,
        lambda one: one > 1,
        lambda one: one <= 1,
        lambda one: one >= 1,
        lambda one: one in {"a": 1},
        lambda one: one or 0,
        lambda one: max(one, 1),
    ],
)
def test_a_blinded_value_answers_nothing(ask) -> None:
    with pytest.raises(Unanswerable):
        ask(Anonymous("size", 3))


def test_the_same_value_is_known_by_its_rows_and_by_nothing_else() -> None:
    one, copy, other = Same("digest", 0, 0), Same("digest", 4, 0), Same("digest", 5, 1)
    assert one == copy
    assert one != other
    assert one in {copy, other}
    assert other not in {one, copy}
    assert one not in (None, other)
    for ask in (lambda: one == "text", lambda: one == Same("ref_to", 1, 0), lambda: bool(one)):
        with pytest.raises(Unanswerable):
            ask()


def test_positions_of_one_node_are_in_order_and_no_others() -> None:
    first, second, elsewhere = Position(0, "a"), Position(1, "a"), Position(2, "b")
    assert first < second
    assert max(first, second) is second
    for ask in (lambda: first < elsewhere, lambda: first < 7, lambda: first > 0):
        with pytest.raises(Unanswerable):
            ask()


@pytest.mark.parametrize(
    ("ask", "answer", "holds"),
    [
        (lambda one: one < 5, False, Condition("at", ORIGIN, 2, -5)),
        (lambda one: one < 6, True, Condition("at", 2, ORIGIN, 5)),
        (lambda one: one <= 5, True, Condition("at", 2, ORIGIN, 5)),
        (lambda one: one > 5, False, Condition("at", 2, ORIGIN, 5)),
        (lambda one: one > 4, True, Condition("at", ORIGIN, 2, -5)),
        (lambda one: one >= 5, True, Condition("at", ORIGIN, 2, -5)),
        (lambda one: not one >= 5, False, Condition("at", ORIGIN, 2, -5)),
        (lambda one: one > DEADLINE, False, Condition("at", 2, TIME_TO_LIVE, 0)),
        (lambda one: one < DEADLINE, True, Condition("at", 2, TIME_TO_LIVE, -1)),
    ],
)
def test_an_instant_that_is_compared_makes_a_condition(ask, answer, holds: Condition) -> None:
    asked = Conditions(9, [])
    assert ask(Measured("at", 2, ORIGIN, 5, asked)) is answer
    assert asked.found == [holds]


def test_the_time_between_two_rows_is_one_of_one_clock() -> None:
    asked = Conditions(None, [])
    early, late = Measured("at", 0, ORIGIN, 3, asked), Measured("at", 2, ORIGIN, 9, asked)
    assert (late - early) > 5
    assert asked.found == [Condition("at", 0, 2, -6)]
    with pytest.raises(Unanswerable):
        late - Measured("mono", 0, ORIGIN, 3, asked)
    with pytest.raises(Unanswerable):
        max(late, early)


# --- courses ----------------------------------------------------------------------------------


def context() -> Context:
    started = [
        Row(1, 1, 1, "b", node, "started", detail=Started("1", parties=(party,)).write())
        for node, party in (("a", "urn:a"), ("b", "urn:b"))
    ]
    found = Context.gather(started, healed=True)
    found.terms[TERMS_ID] = TERMS
    return found


def sent_once(detail: str | None = None, at: int = 0) -> list[Row]:
    def row(seq: int, node: str, kind: str, peer: str, **more: object) -> Row:
        return Row(
            seq, at + seq * 1_000, seq, f"boot-{node}", node, kind, MESSAGE, terms_id=TERMS_ID,
            peer=peer, **more,
        )  # fmt: skip

    return [
        row(2, "a", "submitted", "urn:b", digest="d", size=7, detail=detail),
        row(3, "a", "sent", "urn:b", attempt=1, transport="http"),
        row(4, "a", "acknowledged", "urn:b", ref_to="ack", attempt=1),
        row(2, "b", "received", "urn:a", digest="d", size=7),
        row(3, "b", "ack_sent", "urn:a", ref_to="ack"),
        row(4, "b", "handed_over", "urn:a", digest="d", size=7),
        row(5, "b", "confirmed", "urn:a"),
    ]


def cast_of(known: Context) -> Participants:
    return Participants(known, {"node": ["a", "b"], "peer": ["urn:b", "urn:a"], "channel": []})


def test_a_message_that_arrived_has_a_course_without_its_own_values() -> None:
    known = context()
    course = shape_of(sent_once(), None, cast_of(known))
    assert course is not None
    outcome = course.outcome
    assert (outcome.message_id, outcome.sender, outcome.receiver) == (MESSAGE, "node 1", "node 2")
    assert (outcome.outcome.value, outcome.reason, outcome.attempts) == ("delivered", "ack", 1)
    places = [outcome.submitted_at, outcome.acknowledged_at, outcome.confirmed_at, outcome.digest]
    assert [(value.column, value.row) for value in places] == [
        ("at", 0), ("at", 2), ("at", 6), ("digest", 0),
    ]  # fmt: skip
    assert (outcome.latency.row, outcome.latency.since) == (2, 0)
    assert course.since == 0
    assert course.conditions == ()
    assert cast_of(known).horizon(course) == ALWAYS


def test_a_message_that_breaks_a_promise_has_none() -> None:
    rows = sent_once()
    cast = cast_of(context())
    assert shape_of([*rows[:5], rows[5]._replace(digest="other"), rows[6]], None, cast) is None
    assert shape_of([*rows[:3], rows[3]._replace(seq=9), *rows[4:]], None, cast) is not None
    assert shape_of(rows[:5], None, cast) is None
    assert shape_of([rows[0]._replace(boot="before"), *rows[1:]], None, cast) is None


def test_a_time_to_live_is_a_condition() -> None:
    rows = sent_once(f'{{"time_to_live":{DEADLINE}}}')
    course = shape_of(rows, 3_000, cast_of(context()))
    assert course is not None
    assert course.conditions == (Condition("at", 1, TIME_TO_LIVE, 0),)
    assert shape_of(rows, 2_999, cast_of(context())) is None


def test_a_cast_is_special_while_a_channel_waits_for_its_operator() -> None:
    known = context()
    assert cast_of(known).relation == (("node 2",), ("node 1",))
    known.suspended.add(("b", "x"))
    assert cast_of(known).relation is not None
    assert Participants(known, {"node": ["a"], "peer": [], "channel": ["x"]}).relation is None


def test_what_is_known_of_single_messages_no_course_can_say() -> None:
    known = context()
    course = shape_of(sent_once(), None, cast_of(known))
    known.withheld["b", "m"] = sent_once()[3]
    known.lifted["a", "urn:b"] = [3]
    assert shape_of(sent_once(), None, cast_of(known))._replace(outcome=None) == course._replace(
        outcome=None
    )
    anonymised = cast_of(known).context
    for ask in (
        lambda: not anonymised.withheld,
        lambda: anonymised.withheld.values(),
        lambda: ("b", "m") in anonymised.withheld,
        lambda: anonymised.lifted.get(("a", "urn:b"), ()),
    ):
        with pytest.raises(Unanswerable):
            ask()
