"""Messages that are judged by their course are judged as by themselves, whatever their rows say."""

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from oncewire.journal.check import fold_ledger
from oncewire.journal.predicates.context import Context
from oncewire.journal.row import COLUMNS, Row
from oncewire.pipeline.judging import courses
from oncewire.pipeline.judging.courses import Courses, divided, whole_messages
from oncewire.pipeline.judging.extent import Judging
from oncewire.pipeline.judging.ledger import FOLDED, Page, judged_batches
from oncewire.pipeline.lake.columns import JOURNAL, arrow, nullable
from oncewire.pipeline.lake.tables import batch_of, rows_of_batch
from oncewire.protocol.terms import Terms
from tests.pipeline.books import small_year

_, NODES = small_year(400, 11)
EVERY = [row for rows in NODES.values() for row in rows]
SCHEMA = arrow(nullable(JOURNAL))
SECOND = 1_000_000


def by_message(rows: list[Row]) -> list[Row]:
    about = [row for row in rows if row.message_id is not None]
    return sorted(about, key=lambda row: (row.message_id, row.node, row.seq))


def batches(rows: list[Row], size: int = 1_000) -> list[pa.RecordBatch]:
    return [
        batch_of(list(zip(*rows[at : at + size], strict=True)), SCHEMA)
        for at in range(0, len(rows), size)
    ]


def judging(rows: list[Row], **changes: Any) -> Judging:
    """As a lake's judge sees an archive that still grows: each journal goes to its last row."""
    context = Context.gather(sorted(rows, key=lambda row: (row.node, row.seq)), healed=False)
    for node in NODES:
        context.homes.setdefault(node, set()).add(node)
        context.through[node] = max(row.at for row in rows if row.node == node)
    return Judging(replace(context, **changes), ended=False)


def ledger(made: Iterator[pa.RecordBatch]) -> dict[str, dict[str, Any]]:
    """By MessageId; instants are left numbers, as not all of them are in a calendar."""
    plain = pa.schema(
        [
            field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field
            for field in arrow(FOLDED)
            if field.name != "closed_on"
        ]
    )
    rows = [row for batch in made for row in batch.select(plain.names).cast(plain).to_pylist()]
    assert len({row["message_id"] for row in rows}) == len(rows)
    return {row["message_id"]: row for row in rows}


def by_themselves(rows: list[Row], judge: Judging) -> dict[str, dict[str, Any]]:
    page = Page(judge)
    for batch in batches(rows):
        page.note(batch)
    return ledger(iter([page.written(list(fold_ledger(rows, judge.context)))]))


def by_courses(rows: list[Row], judge: Judging) -> dict[str, dict[str, Any]]:
    return ledger(made for _, some in judged_batches(iter(batches(rows)), judge) for made in some)


def differences(rows: list[Row], judge: Judging) -> list[tuple[str, Any, Any]]:
    alone, folded = by_themselves(rows, judge), by_courses(rows, judge)
    assert alone.keys() == folded.keys()
    return [(key, alone[key], folded[key]) for key in alone if alone[key] != folded[key]]


# --- batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 100, 5_000])
@pytest.mark.parametrize("together", [1, 50, 3_000])
def test_no_message_is_divided_between_batches(
    monkeypatch: pytest.MonkeyPatch, size: int, together: int
) -> None:
    monkeypatch.setattr(courses, "ROWS_TOGETHER", together)
    rows = by_message(EVERY)[:1_500]
    made = list(whole_messages(iter([*batches(rows, size), *batches(rows[:1])[:0]])))
    assert [row for batch in made for row in rows_of_batch(batch)] == rows
    ids = [batch["message_id"].to_pylist() for batch in made]
    assert all(one[-1] != other[0] for one, other in pairwise(ids))
    assert len(made) > 1 or together > 1_000


def test_empty_batches_are_no_messages() -> None:
    nothing = pa.RecordBatch.from_pylist([], SCHEMA)
    assert list(whole_messages(iter([]))) == []
    assert list(whole_messages(iter([nothing, nothing]))) == []
    assert list(judged_batches(iter([nothing]), judging(EVERY))) == []


# --- the same judgement -----------------------------------------------------------------------


@pytest.mark.parametrize("healed", [True, False])
def test_a_year_is_judged_by_its_courses_as_message_by_message(healed: bool) -> None:
    rows = by_message(EVERY)
    judge = judging(EVERY, healed=healed)
    assert not differences(rows, judge)
    found = Courses(judge.context)
    rest = [found.divide(batch)[1] for batch in whole_messages(iter(batches(rows)))]
    # Courses that nothing follows would show nothing.
    assert sum(map(len, rest)) < 0.6 * len(rows)


def harm_value(chance: random.Random, rows: list[Row], at: int) -> None:
    """One value becomes another's, or none, or nearly what it was."""
    name = chance.choice([each for each in COLUMNS if each != "message_id"])
    value, other = getattr(rows[at], name), getattr(chance.choice(rows), name)
    choices = [other]
    if name not in ("seq", "at", "mono", "boot", "node", "kind"):
        choices.append(None)
    if isinstance(value, int):
        steps = (-1, 1, -SECOND, 60 * SECOND, -3_600 * SECOND, 10**13)
        choices += [value + chance.choice(steps), 0, 2**61, -(2**61)]
    rows[at] = rows[at]._replace(**{name: chance.choice(choices)})


FACTS = (
    '"split_id":"x"', '"split_id":5', '"time_to_live":1', '"time_to_live":1745000000000000',
    '"time_to_live":-1', '"notice":true', '"hop":true', '"late":true', '"signed":false',
    '"signature_required":true', '"redelivered":true', '"best_effort":true', '"split_number":1',
    '"to_party":7', '"service":"a\\"b"', '"outcome":"unknown"', '"by":"transport"',
)  # fmt: skip


def harm_detail(chance: random.Random, rows: list[Row], at: int) -> None:
    """A fact is added or cut off, or the text is no JSON any more."""
    text = rows[at].detail or "{}"
    fact = chance.choice(FACTS)
    changed = chance.choice(
        [
            "{" + fact + ("," if text != "{}" else "") + text[1:],
            text[:-1] + ("," if text != "{}" else "") + fact + "}",
            text[: chance.randrange(len(text))],
            text.replace('","', '""', 1),
            text.replace(":", ": ", 1),
            text.replace("split_id", "split_di"),
        ]
    )
    rows[at] = rows[at]._replace(detail=changed)


def harm_order(chance: random.Random, rows: list[Row], at: int) -> None:
    """Two rows of a message change places, one is lost, or one is there twice."""
    one, other = rows[at], rows[at - 1]
    kind = chance.randrange(3)
    if kind == 0 and (one.message_id, one.node) == (other.message_id, other.node):
        rows[at], rows[at - 1] = other._replace(seq=one.seq), one._replace(seq=other.seq)
    elif kind == 1:
        del rows[at]
    else:
        rows.insert(at, one._replace(seq=one.seq, at=one.at - chance.choice((0, 1, SECOND))))


def harm_time(chance: random.Random, rows: list[Row], at: int) -> None:
    """A row that a timer or a deadline decides on comes sooner or later, or after a restart."""
    while rows[at].kind not in ("sent", "acknowledged"):
        at = chance.randrange(1, len(rows))
    by = chance.choice((-1, 1)) * chance.choice((1, 60, 3_600, 86_400, 30 * 86_400)) * SECOND
    row = rows[at]._replace(at=rows[at].at + by, mono=rows[at].mono + by)
    rows[at] = row if chance.random() < 0.7 else row._replace(boot="another", mono=by)


HARMS: list[Callable[[random.Random, list[Row], int], None]] = [
    harm_value, harm_value, harm_detail, harm_order, harm_time,
]  # fmt: skip


def harmed(seed: int, share: float = 0.4) -> list[Row]:
    """A year in which two of five messages are harmed somewhere."""
    chance = random.Random(seed)
    rows = by_message(EVERY)
    messages = len({row.message_id for row in rows})
    for _ in range(int(messages * share)):
        chance.choice(HARMS)(chance, rows, chance.randrange(1, len(rows)))
    # As Spark sorts them.
    return by_message(rows)


@pytest.mark.parametrize("seed", range(12))
def test_harmed_rows_are_judged_by_their_courses_as_message_by_message(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # Learned from the first that goes a way, courses may be those of harmed messages.
    monkeypatch.setattr(courses, "SEEN_BEFORE", seed % 3)
    rows = harmed(seed)
    chance = random.Random(seed)
    judge = judging(EVERY, healed=seed % 2 == 0, calm=seed % 5 == 4)
    judge.context.doubted.update(chance.sample([row.message_id or "" for row in rows], 3))
    found = differences(rows, judge)
    assert not found, f"seed {seed}: {found[0]}"


def test_what_waits_for_an_operator_is_judged_by_itself() -> None:
    channel = Counter(row.channel for row in EVERY if row.channel).most_common(1)[0][0]
    node = next(row.node for row in EVERY if row.channel == channel)
    judge = judging(EVERY, suspended={(node, channel)}, healed=True)
    assert not differences(by_message(EVERY), judge)
    found = Courses(judge.context)
    taken = [found.divide(batch)[0] for batch in whole_messages(iter(batches(by_message(EVERY))))]
    assert sum(len(each.begins) for each in taken) > 100
    assert channel not in {each.outcome.channel for each in found.known}


# --- what a course must not hide --------------------------------------------------------------

AGREED = Terms()
LOW = -(2**63)
BEGIN = 1_745_000_000_000_000
HOMES = {"A": {"a"}, "a": {"a"}, "B": {"b"}, "b": {"b"}}


def message(number: int, terms: Terms = AGREED, **details: str) -> list[Row]:
    """One that arrived and was confirmed."""
    ids = {"message_id": f"m{number:02}", "terms_id": terms.terms_id}
    content = {"digest": f"d{number}", "size": 5}
    ack = {"ref_to": f"k{number}"}
    sender = (
        ("submitted", content), ("sent", {"attempt": 1, "transport": "http"}), ("acknowledged", ack)
    )  # fmt: skip
    receiver = (
        ("received", content),
        ("ack_sent", ack),
        ("handed_over", content),
        ("confirmed", {}),
    )
    rows = []
    for node, peer, steps in (("a", "B", sender), ("b", "A", receiver)):
        for seq, (kind, values) in enumerate(steps, start=10 * number):
            at = BEGIN + seq * SECOND
            rows.append(Row(seq, at, at, node, node, kind, **ids, peer=peer, **values))
    return [row._replace(detail=details.get(row.kind)) for row in rows]


def resent(number: int, **second: Any) -> list[Row]:
    """The same, sent again a minute later."""
    rows = message(number)
    again = rows[1]._replace(
        seq=rows[1].seq + 5, attempt=2, at=rows[1].at + 61 * SECOND, mono=rows[1].mono + 61 * SECOND
    )
    later = rows[2]._replace(seq=again.seq + 1, at=again.at + 1, mono=again.mono + 1)
    return [*rows[:2], again._replace(**second), later, *rows[3:]]


def only(rows: list[Row], *kinds: str) -> list[Row]:
    return [row for row in rows if row.kind in kinds]


def part(number: int, kinds: tuple[str, ...]) -> list[Row]:
    """One whose SplitId is there twice, once escaped."""
    names = f'"split_id":"doc{number}","split\\u005fid":"B"'
    said = f'{{{names},"split_number":1,"split_total":2}}'
    given = f'{{"split_id":"doc{number}"}}'
    return only(message(number, submitted=said, received=said, handed_over=given), *kinds)


def resumed(number: int, behind: int) -> list[Row]:
    """One that an operator resumed, and that was sent again behind that."""
    first, again, *rest = resent(number)[1:]
    resume = first._replace(seq=again.seq - 1, kind="resumed", attempt=None)
    again = again._replace(seq=resume.seq + behind, at=first.at + 3, mono=first.mono + 3)
    return [resent(number)[0], first, resume, again, *rest]


def paused(number: int) -> list[Row]:
    """One whose receiver asked for a pause for ever, and that was sent beyond its TimeToLive."""
    submitted, first, again, *rest = resent(number)
    expires = first.at + 1_000 * SECOND
    late = again._replace(at=expires + 5 * SECOND)
    lines = [
        submitted._replace(detail=f'{{"time_to_live":{expires}}}'),
        first,
        first._replace(kind="transient", attempt=None, detail=f'{{"until":{2**61}}}'),
        late,
        first._replace(kind="resumed", attempt=None),
        again._replace(attempt=3, at=late.at - 9 * SECOND, mono=again.mono + 200 * SECOND),
    ]
    lines = [row._replace(seq=submitted.seq + at) for at, row in enumerate(lines)]
    return [
        *lines,
        rest[0]._replace(seq=submitted.seq + 7, mono=again.mono + 900 * SECOND),
        *rest[1:],
    ]


def unasked(number: int, ref_to: str) -> list[Row]:
    """One whose acknowledgement names nobody."""
    return [
        row._replace(peer=None, ref_to=ref_to) if row.kind == "acknowledged" else row
        for row in message(number)
    ]


SENDING, GIVEN = ("submitted", "sent", "acknowledged"), ("received", "handed_over")
BEST_EFFORT = Terms(reliable=False)

ODD: dict[str, list[list[Row]]] = {
    "an instant so low that its distance is negative": [
        *map(resent, range(8)), resent(9, mono=LOW),
    ],
    "a left out value that somebody looks for": [
        only(message(at, BEST_EFFORT, handed_over=f'{{"action":"{word}"}}'), *SENDING[:2], *GIVEN)
        for at, word in enumerate(("x", "y", "x", "x", "x", "x", "split_id", "x"))
    ],
    "a left out value before what cannot be read": [
        only(message(at, submitted=f'{{"action":"{word}","best_effort":1}}'), *SENDING)
        for at, word in enumerate(("x", "y", "x", "x", "x", "x", "notice", "x"))
    ],
    "a left out value of another type": [
        message(at, submitted='{"action":5,"time_to_live":1745999999000000,"service":"x"}')
        for at in range(8)
    ],
    "a SplitId that is there twice": [part(at, (*SENDING, *GIVEN, "ack_sent")) for at in range(8)],
    "a SplitId that is only there escaped": [
        only(message(at, handed_over='{"split\\u005fid":"(message)"}'), "handed_over")
        for at in range(8)
    ],
    "two rows with one position": [
        *(resumed(number, 1) for number in range(8)), resumed(9, 0),
    ],
    "a pause until what stands for a TimeToLive": [paused(number) for number in range(8)],
    "a service that both books do not agree on": [
        message(at, submitted='{"service":"x"}', received=f'{{"service":"{word}"}}')
        for at, word in enumerate("xxxxxxyx")
    ],
    "a service that one book spells with a space": [
        message(at, submitted='{"service": "x"}', received=f'{{"service":"{word}"}}')
        for at, word in enumerate("xxxxxxyx")
    ],
    "a size that both books do not agree on": [
        *map(message, range(8)),
        [row._replace(size=6) if row.kind == "received" else row for row in message(9)],
    ],
    "a row without an instant": [
        *map(message, range(8)),
        [row._replace(at=None) if row.kind == "confirmed" else row for row in message(9)],
    ],
    "somebody without a name": [unasked(number, "other") for number in range(8)],
    "a node without a name": [
        [row._replace(node="" if row.node == "a" else row.node) for row in message(number)]
        for number in range(8)
    ],
}  # fmt: skip


OTHER_HOMES = {
    "somebody without a name": {**HOMES, "": {"b"}},
    "a left out value before what cannot be read": {"A": {"a"}, "a": {"a"}},
}


@pytest.mark.parametrize("case", ODD)
def test_what_is_odd_about_a_message_is_seen_beside_ordinary_ones(case: str) -> None:
    rows = by_message([row for each in ODD[case] for row in each])
    terms = {each.terms_id: each for each in (AGREED, BEST_EFFORT)}
    homes = OTHER_HOMES.get(case, HOMES)
    judge = Judging(Context(healed=True, terms=terms, homes=homes), ended=False)
    both: list[Any] = []
    for way in (by_themselves, by_courses):
        try:
            both.append(way(rows, judge))
        except TypeError as error:
            both.append(str(error))
    assert both[0] == both[1]


@pytest.mark.parametrize(
    "persist", [300_000 * 365 * 86_400 * SECOND, float("inf"), 86_400_000_000.25]
)
def test_a_duration_that_no_clock_can_measure_stops_nobody(persist: Any) -> None:
    strange = Terms(persist_duration=persist)
    rows = by_message([row for number in range(8) for row in message(number, strange)])
    rows += by_message([row for number in range(10, 18) for row in resent(number)])
    terms = {each.terms_id: each for each in (AGREED, strange)}
    last = max(row.at for row in rows if row.terms_id == strange.terms_id)
    for until in (BEGIN + 10**14, last + 2 * 86_400_000_000 + 1):
        through = dict.fromkeys("ab", until)
        known = Context(healed=False, terms=terms, homes=dict(HOMES), through=through)
        assert not differences(rows, Judging(known, ended=False))
    assert not differences(rows, Judging(replace(known, healed=True), ended=True))


def test_a_task_forgets_when_it_knows_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courses, "ROWS_TOGETHER", 200)
    rows, judge = by_message(EVERY), judging(EVERY, healed=True)
    whole = by_themselves(rows, judge)
    for name in ("KEPT", "VALUES_KEPT"):
        with monkeypatch.context() as patched:
            patched.setattr(courses, name, 20)
            known = {id(ways) for _, ways, _ in list(divided(iter(batches(rows)), judge))}
            assert len(known) > 3
            assert by_courses(rows, judge) == whole


def test_what_one_task_learns_the_next_knows_as_long_as_it_holds() -> None:
    rows = by_message([row for number in range(5) for row in message(number)])
    terms = {AGREED.terms_id: AGREED}
    known = Context(healed=True, terms=terms, homes=dict(HOMES))
    first = Judging(known, ended=False, run="one")

    def taken(judge: Judging) -> int:
        return sum(len(each.begins) for each, _, _ in divided(iter(batches(rows)), judge))

    assert taken(first) == 1
    assert taken(pickle.loads(pickle.dumps(first))) == 5
    # The next batch of a stream knows more of the journals, and who took part is asked anew.
    later = Context(healed=True, terms=dict(terms), homes=dict(HOMES), through={"alpha": 5})
    assert taken(replace(first, context=later, run="next")) == 5
    special = replace(later, homes={**HOMES, "": {"alpha"}})
    assert taken(replace(first, context=special, run="special")) == 0
    # By other terms the same messages are judged anew, and where the run has no name.
    other = replace(known, terms={})
    assert taken(replace(first, context=other, run="two")) == 0
    assert taken(replace(first, run=None)) == 1
    assert taken(replace(first, context=other, run=None)) == 0


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_thousands_of_harmed_years(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    for seed in range(1_000 * part, 1_000 * (part + 1)):
        monkeypatch.setattr(courses, "SEEN_BEFORE", seed % 3)
        found = differences(harmed(seed), judging(EVERY, healed=seed % 2 == 0))
        assert not found, f"seed {seed}: {found[0]}"
