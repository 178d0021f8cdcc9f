"""Courses in Arrow: which messages of a batch went a way that was judged before.

Whole columns are compared, and no row becomes a Python value, unless a message is to be judged by
itself. What a course is, and what is said of it, `oncewire.journal.history_shape` decides.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from oncewire.journal.history_shape import (
    ASKED,
    DEADLINE,
    DOCUMENT,
    EXACT,
    FAR,
    LEFT_OUT,
    MESSAGE,
    ORIGIN,
    ROLES,
    SAME,
    TIME_TO_LIVE,
    UNREAD,
    Condition,
    HistoryShape,
    Participants,
    shape_of,
)
from oncewire.journal.outcome import MessageOutcome
from oncewire.journal.predicates.books import COMPARED
from oncewire.journal.predicates.context import Context
from oncewire.journal.trace import RECEIVED, SUBMITTED
from oncewire.message.envelope import TRIAL_MARK
from oncewire.message.instant import Instant
from oncewire.pipeline.judging.extent import Judging, Peers
from oncewire.pipeline.lake.tables import ALWAYS_THERE, rows_of_batch

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]


# Look: what the rows of messages look like, column by column, so that equal ones are found.


MOST = 7
"""Most nodes, peers or digests that one message may name: they are numbered in three bits."""

_PLAIN = r'[^"\\\x00-\x1f]*'
_UNREAD = f'"(?:{"|".join(UNREAD)})":"{_PLAIN}"'
_UNREAD_FACTS = f"{_UNREAD}(?:,{_UNREAD})*"
_NEAR_DEADLINE = str(DEADLINE)[:-2]
"""The beginning of a number that might be taken for the placeholder of a TimeToLive."""

_ESCAPED = "\\u"
"""The beginning of an escaped character in JSON: a comparison of texts would miss it."""

_SPLIT_ID = re.compile(f'"split_id":"({_PLAIN})"')
_TIME_TO_LIVE = re.compile(r'"time_to_live":([1-9][0-9]{0,17})(?=[,}])')


class Numbering:
    """Numbers for the values of columns, the same in every batch."""

    __slots__ = ("_numbers", "_values", "size")

    def __init__(self) -> None:
        self._numbers: dict[str, dict[str | int | None, int]] = {}
        self._values: dict[str, list[str | int | None]] = {}
        self.size = 0
        """How many values have a number."""

    def of(self, name: str, column: pa.Array) -> Numbers:
        """The number of each value of a column; an empty one has 0."""
        import numpy as np

        numbers = self._numbers.setdefault(name, {None: 0})
        values = self._values.setdefault(name, [None])
        encoded = column.dictionary_encode(null_encoding="encode")
        found = [
            numbers.setdefault(value, len(numbers)) for value in encoded.dictionary.to_pylist()
        ]
        if len(values) < len(numbers):
            self.size += len(numbers) - len(values)
            values += list(numbers)[len(values) :]
        each: Numbers = np.array(found, np.int64)[encoded.indices.to_numpy()]
        return each

    def name(self, column: str, number: int) -> str:
        """The value with that number."""
        return str(self._values[column][number])


class Look:
    """The rows of a batch that ends where a message ends."""

    def __init__(
        self, batch: pa.RecordBatch, numbering: Numbering, doubted: Collection[str]
    ) -> None:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        self._batch, self._numbering, ids = batch, numbering, batch["message_id"]
        self._changes = _changes(ids)
        self.begins = np.flatnonzero(self._changes)
        self._of = np.cumsum(self._changes) - 1
        self.at, self._mono = (batch[name].fill_null(0).to_numpy() for name in ("at", "mono"))
        self.latest = np.maximum.reduceat(self.at, self.begins)
        self._strange = ~_flags(ids.is_valid()) | _flags(pc.starts_with(ids, TRIAL_MARK))
        if doubted:
            self._strange |= _flags(pc.is_in(ids, value_set=pa.array(sorted(doubted))))
        for instants in (self.at, self._mono):
            self._strange |= (instants > FAR) | (instants < -FAR)
        for name in ALWAYS_THERE:
            self._strange |= _flags(batch[name].is_null())
        self._strange |= self._out_of_order()
        self._details, self.documents = self._without_its_own()
        self._role_numbers: dict[str, Numbers] = {}
        columns = [
            *(
                numbering.of(name, self._details if name == "detail" else batch[name])
                for name in EXACT
            ),
            self._labels(),
        ]
        looks = np.stack(columns, axis=1).astype(np.uint32)
        self._width, self._text = looks.shape[1] * looks.itemsize, looks.tobytes()
        self.judged_alone: Flags = np.logical_or.reduceat(self._strange, self.begins)

    # --- of messages ---

    def keys(self) -> Iterator[tuple[bytes, bytes]]:
        """Per message, the numbers of its participants and the text that is equal for all messages
        of one course."""
        import numpy as np

        casts = np.concatenate([self._role_numbers[role] for role in ROLES], axis=1)
        casts = casts.astype(np.uint32)
        wide, names = casts.shape[1] * casts.itemsize, casts.tobytes()
        begins = (self.begins * self._width).tolist()
        for number, (begin, end) in enumerate(
            zip(begins, [*begins[1:], len(self._text)], strict=True)
        ):
            yield names[number * wide : (number + 1) * wide], self._text[begin:end]

    def roles(self, number: int) -> dict[str, list[str]]:
        """The names of a message's participants, in the order of their roles."""
        return {
            role: [
                self._numbering.name(role, each)
                for each in self._role_numbers[role][number].tolist()
                if each
            ]
            for role in ROLES
        }

    def slice_of(self, number: int) -> pa.RecordBatch:
        """The rows of a message."""
        begin = int(self.begins[number])
        is_last = number + 1 == len(self.begins)
        end = len(self._batch) if is_last else int(self.begins[number + 1])
        return self._batch.slice(begin, end - begin)

    def pattern(self, number: int) -> pa.RecordBatch:
        """The rows of a message, with the details of its course."""
        rows = self.slice_of(number)
        details = self._details.slice(int(self.begins[number]), len(rows))
        return rows.set_column(rows.schema.get_field_index("detail"), "detail", details)

    def time_to_live_of(self, number: int) -> Instant | None:
        """The TimeToLive of a message."""
        return int(self._times_to_live[number]) or None

    def rows_of(self, messages: Flags) -> pa.Array:
        """The rows of some messages, as a mask."""
        import pyarrow as pa

        return pa.array(messages[self._of])

    def instants(self, is_mono: Numbers, rows: Numbers, messages: Numbers) -> Numbers:
        """For each of some messages, the instants that a condition compares."""
        import numpy as np

        places = self.begins[messages] + np.maximum(rows, 0)
        found: Numbers = np.where(is_mono == 1, self._mono[places], self.at[places])
        found[rows < 0] = 0
        ends = rows == TIME_TO_LIVE
        found[ends] = self._times_to_live[messages[ends]]
        return found

    # --- of rows ---

    def _out_of_order(self) -> Flags:
        """Which rows, within one node and message, were written by another process run than the row
        before, or have no later position."""
        import numpy as np

        seq = self._batch["seq"].fill_null(0).to_numpy()
        odd = _changes(self._batch["boot"])
        odd[1:] |= seq[1:] <= seq[:-1]
        found: Flags = odd & ~_changes(self._batch["node"]) & ~self._changes
        return np.asarray(found)

    def _labels(self) -> Numbers:
        """Per row, a bit mask of participants and distinct values."""
        import numpy as np

        found = _flags(self._batch["size"].is_valid()).astype(np.int64)
        for role in ROLES:
            labels, self._role_numbers[role] = self._label(
                self._numbering.of(role, self._batch[role])
            )
            found = found << 3 | labels
        for name in SAME:
            encoded = self._batch[name].dictionary_encode()
            numbers = encoded.indices.fill_null(-1).to_numpy().astype(np.int64) + 1
            found = found << 3 | self._label(numbers)[0]
        return found

    def _label(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """The values of each message, numbered in the order in which they occur, and the values
        themselves; a row with one too many makes its message strange."""
        import numpy as np

        rows = np.arange(len(numbers))
        labels = np.zeros(len(numbers), np.int64)
        values = np.zeros((len(self.begins), MOST), np.int64)
        left = numbers > 0
        beyond = np.append(numbers, 0)
        for number in range(MOST):
            if not left.any():
                break
            first = np.minimum.reduceat(np.where(left, rows, len(rows)), self.begins)
            values[:, number] = beyond[first]
            same = left & (numbers == values[:, number][self._of])
            labels[same] = number + 1
            left &= ~same
        self._strange |= left
        return labels, values

    def _without_its_own(self) -> tuple[pa.Array, pa.Array]:
        """The details as a course has them, and for each message the document it is a part of."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        whole = self._batch["detail"]
        details = pc.replace_substring_regex(whole, _UNREAD_FACTS, LEFT_OUT)
        for text in (_NEAR_DEADLINE, _ESCAPED):
            self._strange |= _flags(pc.match_substring(details, text))
        # A fact that is left out must not contain a word that the predicates search for.
        asking = pa.array(np.flatnonzero(_flags(pc.match_substring_regex(whole, "|".join(ASKED)))))
        before, after = whole.take(asking), details.take(asking)
        for word in ASKED:
            same = pc.equal(pc.count_substring(before, word), pc.count_substring(after, word))
            self._strange[asking.to_numpy()[~_flags(same)]] = True
        self._strange |= self._disagreeing(whole)
        found = _Own(len(self.begins))
        for name, taken_from in (("split_id", found.document), ("time_to_live", found.deadline)):
            mask = pc.match_substring(details, name).fill_null(False)
            rows = pa.array(np.flatnonzero(_flags(mask)))
            if len(rows):
                ids = self._batch["message_id"].take(rows).to_pylist()
                messages, texts = self._of[rows].tolist(), details.take(rows).to_pylist()
                made = list(map(taken_from, messages, texts, ids))
                details = pc.replace_with_mask(details, mask, pa.array(made))
        self._strange |= np.isin(self._of, list(found.strange))
        self._times_to_live = np.array(found.times_to_live, np.int64)
        return details, pa.array(found.documents, pa.string())

    def _disagreeing(self, details: pa.Array) -> Flags:
        """Rows of messages whose sender and receiver wrote down different facts, that have several
        sizes, or that were submitted for another party than they name."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        kinds = pc.is_in(self._batch["kind"], pa.array([SUBMITTED, RECEIVED]))
        rows = np.flatnonzero(_flags(kinds))
        chosen, messages = pa.array(rows), self._of[rows]
        texts = details.take(chosen)
        columns, differs = [(self._batch["size"], self._of)], np.zeros(len(self.begins), bool)
        for name in COMPARED:
            found = fact_in(texts, name)
            columns.append((found, messages))
            # Spelled otherwise than handlers spell it, or there twice.
            times = pc.count_substring(texts, f'"{name}"').fill_null(0)
            spelled = pc.equal(times, pc.cast(pc.is_valid(found), times.type))
            differs[messages[~_flags(spelled)]] = True
            if name == "to_party":
                # Whom it was submitted for is compared, too.
                handed_in = pc.equal(self._batch["kind"].take(chosen), SUBMITTED)
                others = pc.not_equal(self._batch["peer"].take(chosen), found)
                differs[messages[_flags(pc.and_(handed_in, others))]] = True
        for column, of_rows in columns:
            there = _flags(pc.is_valid(column))
            codes = column.filter(pa.array(there)).dictionary_encode()
            numbers, of = codes.indices.to_numpy(zero_copy_only=False), of_rows[there]
            # Rows of one message lie together.
            same = of[1:] == of[:-1]
            differs[of[1:][same & (numbers[1:] != numbers[:-1])]] = True
        found_in: Flags = differs[self._of]
        return found_in


def fact_in(details: pa.Array, name: str) -> pa.Array:
    """A fact of details as text, where it is spelled as handlers spell it."""
    import pyarrow.compute as pc

    found = pc.extract_regex(details, f'"{name}":"(?P<fact>{_PLAIN})"')
    return pc.struct_field(found, "fact")


class _Own:
    """Values in the details of messages that are each message's own."""

    __slots__ = ("documents", "strange", "times_to_live")

    def __init__(self, messages: int) -> None:
        self.times_to_live = [0] * messages
        self.documents: list[str | None] = [None] * messages
        self.strange: set[int] = set()
        """Messages whose rows contradict each other, or are written as no handler writes them."""

    def document(self, message: int, text: str, message_id: str) -> str:
        """A detail without the SplitId."""
        found = _SPLIT_ID.search(text)
        if found is None or "\\" in text or text.count("split_id") > 1:
            self.strange.add(message)
            return text
        split_id, name = found[1], MESSAGE
        if split_id != message_id:
            name, known = DOCUMENT, self.documents[message]
            if known is None:
                self.documents[message] = split_id
            elif known != split_id:
                self.strange.add(message)
        return f"{text[: found.start(1)]}{name}{text[found.end(1) :]}"

    def deadline(self, message: int, text: str, _: str) -> str:
        """A detail without the TimeToLive."""
        found = _TIME_TO_LIVE.search(text)
        if found is None or "\\" in text or text.count("time_to_live") > 1:
            self.strange.add(message)
            return text
        instant, known = int(found[1]), self.times_to_live[message]
        if not known:
            self.times_to_live[message] = instant
        elif known != instant:
            self.strange.add(message)
        return f"{text[: found.start(1)]}{DEADLINE}{text[found.end(1) :]}"


def _changes(column: pa.Array) -> Flags:
    """Which rows have another value than the row before; the first one counts as changed."""
    import numpy as np
    import pyarrow.compute as pc

    found = np.ones(len(column), bool)
    if len(column) > 1:
        found[1:] = ~_flags(pc.equal(column.slice(1), column.slice(0, len(column) - 1)))
    return found


def _flags(values: pa.Array) -> Flags:
    """A mask; an unknown value counts as false."""
    import numpy as np

    found: Flags = np.asarray(values.fill_null(False).to_numpy(zero_copy_only=False), bool)
    return found


ROWS_TOGETHER = 40_000
"""Rows that are compared together: each column has a fixed cost, however short it is."""

SEEN_BEFORE = 4
"""How often a way is seen before it is learned: learning costs as much as a few judgements."""

KEPT = 20_000
"""Most casts, ways and seen ways that a task keeps; beyond it, it forgets all of them."""

VALUES_KEPT = 200_000
"""Most different values that a task numbers; most are texts of details."""

_NO_CONDITION = Condition("at", ORIGIN, ORIGIN, 0)


def whole_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Regroup rows, sorted by message, into batches that end where a message ends."""
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
    """Its values, or anonymised: then they name a row."""
    from_peer: str | None
    to_peer: str | None
    horizon: Instant
    """Messages whose timers began before this instant are completely judged."""


class Taken(NamedTuple):
    """The messages of a batch that went a known way and are completely judged."""

    batch: pa.RecordBatch
    begins: Numbers
    """Per message, the index of its first row."""
    ways: Numbers
    closed: Flags
    """Per message, whether all timers have run out since its last event."""
    documents: pa.Array
    """Per message, the document that it is a part of."""


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
    """The courses that this process knows. A worker of Spark runs many tasks, of one run and of the
    next batches of a stream."""

    def __init__(self) -> None:
        self._judging: Judging | None = None
        self._courses: Courses | None = None

    def of(self, judging: Judging) -> Courses:
        """The courses learned under this context; forgotten when they are too many."""
        before = self._judging
        same = before is judging or (
            before is not None and judging.run is not None and before.run == judging.run
        )
        if self._courses is None or self._courses.is_full:
            self._courses = Courses(judging.context)
        elif not same:
            named = judging.run is not None
            if not named or not self._courses.goes_on(judging.context):
                self._courses = Courses(judging.context)
        self._judging = judging
        return self._courses


_LEARNED = _Learned()


class Courses:
    """The courses that a task has learned."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._numbering = Numbering()
        self._casts: dict[bytes, tuple[int, Participants]] = {}
        self._relations: dict[object, int] = {}
        self._courses: list[tuple[HistoryShape, str | None, str | None]] = []
        self._course_of: dict[tuple[int, bytes], int] = {}
        self._seen: dict[tuple[int, bytes], int] = {}
        self._way_of: dict[tuple[bytes, bytes], int] = {}
        self.known: list[Known] = []

    @property
    def is_full(self) -> bool:
        """Whether it knows more than it should keep."""
        kept = (len(self._casts), len(self._way_of), len(self._seen), len(self._course_of))
        return max(kept) > KEPT or self._numbering.size > VALUES_KEPT

    def goes_on(self, context: Context) -> bool:
        """Go on under another context, if what was learned holds there too: only the participants
        and their horizons are asked anew."""
        before = self._context
        if (before.terms, before.declared, before.calm) != (
            context.terms,
            context.declared,
            context.calm,
        ):
            return False
        self._context = context
        self._casts, self._way_of, self.known = {}, {}, []
        return True

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
        """Per message, the number of its way; -1: it is to be judged by itself."""
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
        """The way of a message whose history is new for these participants."""
        if names not in self._casts:
            cast = Participants(self._context, look.roles(number))
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

    def _learn(self, look: Look, number: int, cast: Participants) -> int:
        pattern = look.pattern(number)
        rows = list(rows_of_batch(pattern))
        course = shape_of(rows, look.time_to_live_of(number), cast)
        if course is None:
            return -1
        peers, message_id = Peers(), rows[0].message_id or ""
        peers.note(pattern)
        role = {name: role for role, name in cast.names.items() if role.startswith("peer")}
        receiver = cast.names.get(course.outcome.receiver or "")
        # No participant has an empty name: a cast with such a name has no courses.
        of, to = peers.of(message_id, receiver), peers.to(message_id)
        self._courses.append((course, role.get(of or ""), role.get(to or "")))
        return len(self._courses) - 1

    def _follow(self, number: int, cast: Participants) -> int:
        """The number of the way of a course with these participants."""
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
