"""Courses in Arrow: which messages of a batch went a way that was judged before.

Whole columns are compared, and no row becomes a Python value, unless a message is to be judged by
itself. What a course is, and what is said of it, `oncewire.journal.course` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from oncewire.journal.course import ORIGIN, Cast, Condition, Course, course_of
from oncewire.journal.outcome import MessageOutcome
from oncewire.journal.predicates.context import Context
from oncewire.message.instant import Instant
from oncewire.pipeline.judging import Judging
from oncewire.pipeline.look import Look, Numbering
from oncewire.pipeline.peers import Peers
from oncewire.pipeline.rows import rows_of_batch

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

ROWS_TOGETHER = 40_000
"""So many rows are looked at together: a column costs something however short it is."""

SEEN_BEFORE = 4
"""So often a way was seen before it is learned: to learn it costs as much as to judge a few."""

KEPT = 20_000
"""So many casts, ways and ways that were only seen a task knows; beyond, all begins anew."""

VALUES_KEPT = 200_000
"""So many different values, mostly texts of details."""

_NO_CONDITION = Condition("at", ORIGIN, ORIGIN, 0)


def whole_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, sorted by message, in batches that end where a message ends."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        begin = _last_begin(batch) if len(batch) else 0
        if rows + begin >= ROWS_TOGETHER and (begin or not _goes_on(held, batch)):
            yield pa.concat_batches([*held, batch.slice(0, begin)])
            held, rows = [], 0
        else:
            begin = 0
        held.append(batch.slice(begin))
        rows += len(held[-1])
    if rows:
        yield pa.concat_batches(held)


def _goes_on(held: list[pa.RecordBatch], batch: pa.RecordBatch) -> bool:
    """Whether a batch begins with the message that the rows before ended with."""
    before = next(each for each in reversed(held) if len(each))
    return bool(not len(batch) or before["message_id"][-1] == batch["message_id"][0])


def _last_begin(batch: pa.RecordBatch) -> int:
    """Where the last message of a batch begins."""
    import pyarrow.compute as pc

    ids = batch["message_id"]
    last = ids[len(ids) - 1]
    begin: int = pc.index(ids, last).as_py() if last.is_valid else 0
    return begin


class Known(NamedTuple):
    """A course, and who took part in it."""

    course: int
    outcome: MessageOutcome
    """Its values, or blinded: then they name a row."""
    from_peer: str | None
    to_peer: str | None
    horizon: Instant
    """Only messages whose timers began before are wholly judged."""


class Taken(NamedTuple):
    """The messages of a batch that went a known way, and are wholly judged."""

    batch: pa.RecordBatch
    begins: Numbers
    """Of each message its first row."""
    ways: Numbers
    closed: Flags
    """Of each message whether every timer has run out since the last thing that happened to it."""
    documents: pa.Array
    """Of each message the document that it is a part of."""


def divided(
    batches: Iterable[pa.RecordBatch], judging: Judging
) -> Iterator[tuple[Taken, list[Known], pa.RecordBatch]]:
    """The messages of sorted rows: those that went known ways, these ways, and the rows of those
    that are to be judged by themselves."""
    for batch in whole_messages(batches):
        courses = _LEARNED.of(judging)
        taken, rest = courses.divide(batch)
        yield taken, courses.known, rest


class _Learned:
    """The courses of the run that this process last worked for: Spark's workers do one task after
    another."""

    def __init__(self) -> None:
        self._judging: Judging | None = None
        self._courses: Courses | None = None

    def of(self, judging: Judging) -> Courses:
        """What is known by this context, unless it is too much."""
        before = self._judging
        same = before is judging or (
            before is not None and judging.run is not None and before.run == judging.run
        )
        if self._courses is None or not same or self._courses.is_full:
            self._judging, self._courses = judging, Courses(judging.context)
        return self._courses


_LEARNED = _Learned()


class Courses:
    """The courses that a task has come upon."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._numbering = Numbering()
        self._casts: dict[bytes, tuple[int, Cast]] = {}
        self._relations: dict[object, int] = {}
        self._courses: list[tuple[Course, str | None, str | None]] = []
        self._course_of: dict[tuple[int, bytes], int] = {}
        self._seen: dict[tuple[int, bytes], int] = {}
        self._way_of: dict[tuple[bytes, bytes], int] = {}
        self.known: list[Known] = []

    @property
    def is_full(self) -> bool:
        """Whether it knows more than it should keep."""
        kept = (len(self._casts), len(self._way_of), len(self._seen), len(self._course_of))
        return max(kept) > KEPT or self._numbering.size > VALUES_KEPT

    def divide(self, batch: pa.RecordBatch) -> tuple[Taken, pa.RecordBatch]:
        """The messages that went a known way, and the rows of those to be judged by themselves.

        The batch ends where a message ends.
        """
        import numpy as np
        import pyarrow as pa

        look = Look(batch, self._numbering, self._context.doubted)
        every = self._ways(look)
        messages = np.flatnonzero(every >= 0)
        ways = every[messages]
        courses = np.array([each.course for each in self.known], np.int64)[ways]
        until = np.array([each.horizon - 1 for each in self.known], np.int64)[ways]
        since = np.array([course.since for course, _, _ in self._courses], np.int64)[courses]
        judged = look.at[look.begins[messages] + since] <= until
        judged &= self._fulfilled(look, messages, courses)
        messages, ways = messages[judged], ways[judged]
        known = np.zeros(len(every), bool)
        known[messages] = True
        taken = Taken(
            batch,
            look.begins[messages],
            ways,
            look.latest[messages] <= until[judged],
            look.documents.take(pa.array(messages)),
        )
        return taken, batch.slice(0, 0) if known.all() else batch.filter(look.rows_of(~known))

    def _ways(self, look: Look) -> Numbers:
        """Of each message the number of its way; -1: it is to be judged by itself."""
        import numpy as np

        way_of, alone = self._way_of, look.judged_alone.tolist()
        found = []
        for number, (names, rows) in enumerate(look.keys()):
            way = -1 if alone[number] else way_of.get((names, rows))
            if way is None:
                way = self._look_up(look, number, names, rows)
            found.append(way)
        return np.array(found, np.int64)

    def _look_up(self, look: Look, number: int, names: bytes, rows: bytes) -> int:
        """The way of a message that is new with this cast."""
        if names not in self._casts:
            cast = Cast(self._context, look.roles(number))
            relation = self._relations.setdefault(cast.relation, len(self._relations))
            self._casts[names] = relation, cast
        relation, cast = self._casts[names]
        if cast.relation is None:
            return -1
        course = self._course_of.get((relation, rows))
        if course is None:
            seen = self._seen[relation, rows] = self._seen.get((relation, rows), 0) + 1
            if seen <= SEEN_BEFORE:
                return -1
            del self._seen[relation, rows]
            course = self._course_of[relation, rows] = self._learn(look, number, cast)
        way = -1 if course < 0 else self._follow(course, cast)
        self._way_of[names, rows] = way
        return way

    def _learn(self, look: Look, number: int, cast: Cast) -> int:
        pattern = look.pattern(number)
        rows = list(rows_of_batch(pattern))
        course = course_of(rows, look.time_to_live_of(number), cast)
        if course is None:
            return -1
        peers, message_id = Peers(), rows[0].message_id or ""
        peers.note(pattern)
        role = {name: role for role, name in cast.names.items() if role.startswith("peer")}
        receiver = cast.names.get(course.outcome.receiver or "")
        # Nobody's name is empty: a cast with such a name has no courses.
        of, to = peers.of(message_id, receiver), peers.to(message_id)
        self._courses.append((course, role.get(of or ""), role.get(to or "")))
        return len(self._courses) - 1

    def _follow(self, number: int, cast: Cast) -> int:
        """The number of a course with that cast."""
        course, of, to = self._courses[number]
        horizon, names = cast.horizon(course), cast.names
        if horizon is None:
            return -1
        said = course.outcome
        outcome = said._replace(
            sender=names.get(said.sender or ""),
            receiver=names.get(said.receiver or ""),
            channel=names.get(said.channel or ""),
        )
        from_peer, to_peer = names.get(of or ""), names.get(to or "")
        self.known.append(Known(number, outcome, from_peer, to_peer, horizon))
        return len(self.known) - 1

    def _fulfilled(self, look: Look, messages: Numbers, courses: Numbers) -> Flags:
        """Which messages fulfil every condition of their course."""
        import numpy as np

        fulfilled = np.ones(len(messages), bool)
        conditions = [course.conditions for course, _, _ in self._courses]
        for number in range(max(map(len, conditions), default=0)):
            table = np.array(
                [
                    (one.column == "mono", one.later, one.earlier, one.most)
                    for one in (
                        each[number] if number < len(each) else _NO_CONDITION for each in conditions
                    )
                ],
                np.int64,
            )
            asked = np.flatnonzero(table[courses, 1] != table[courses, 2])
            column, later, earlier, most = table[courses[asked]].T
            between = look.instants(column, later, messages[asked])
            between -= look.instants(column, earlier, messages[asked])
            fulfilled[asked] &= between <= most
        return fulfilled
