"""Messages that are judged by their course are judged as by themselves, whatever their rows say."""

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
from oncewire.pipeline import courses
from oncewire.pipeline.courses import Courses, whole_messages
from oncewire.pipeline.judging import Judging
from oncewire.pipeline.ledger import ledger_fold
from oncewire.pipeline.page import FOLDED, Page
from oncewire.pipeline.rows import batch_of, rows_of_batch
from oncewire.pipeline.schemas import JOURNAL, arrow, nullable
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


def differences(rows: list[Row], judge: Judging) -> list[tuple[str, Any, Any]]:
    alone, folded = by_themselves(rows, judge), ledger(ledger_fold(judge)(iter(batches(rows))))
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
    assert list(ledger_fold(judging(EVERY))(iter([nothing]))) == []


# --- the same judgement -----------------------------------------------------------------------


@pytest.mark.parametrize("healed", [True, False])
def test_a_year_is_judged_by_its_courses_as_message_by_message(healed: bool) -> None:
    rows = by_message(EVERY)
    judge = judging(EVERY, healed=healed)
    assert not differences(rows, judge)
    found = Courses(judge.context)
    rest = [found.divide(batch)[1] for batch in whole_messages(iter(batches(rows)))]
    # Courses that nothing follows would show nothing.
    assert sum(map(len, rest)) < 0.45 * len(rows)


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


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_thousands_of_harmed_years(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    for seed in range(1_000 * part, 1_000 * (part + 1)):
        monkeypatch.setattr(courses, "SEEN_BEFORE", seed % 3)
        found = differences(harmed(seed), judging(EVERY, healed=seed % 2 == 0))
        assert not found, f"seed {seed}: {found[0]}"
