"""HistoryShape: how a message went, without what makes it this message and no other.

Most messages of an archive go one of a few ways, and differ in who took part, and in their ids,
digests, numbers and instants. A course is judged once, and what is said of it is said of every
message that took it: then the cost of a judgement does not follow the number of messages.

What a course leaves out is blinded. Of a blinded value can be asked what all messages of the
course have in common: whether it is the same as there, whether this row is before that one. How
instants lie to each other may be asked too; the answer is a condition, and only messages that
fulfil it are of the course. Whoever asks for more is not answered, and then each such message is
judged by itself. So no rule is written twice, and none is passed over. Only what breaks no promise
and is wholly judged is a course at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, NoReturn

from oncewire.errors import JournalProblem
from oncewire.journal.outcome import MessageOutcome, is_signal, outcome_of
from oncewire.journal.predicates.context import ALWAYS, Context
from oncewire.journal.predicates.message import find_violations
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.row import Row
from oncewire.journal.trace import gather
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.terms import Terms

MESSAGE, DOCUMENT = "(message)", "(document)"
"""What stands in the details of a course for the MessageId, and for the SplitId of the document
that the message is a part of."""

DEADLINE: Instant = 2**61 - 1
"""What stands there for its TimeToLive."""

FAR: Duration = 2**60
"""Instants beyond are nobody's, and their differences might not fit where they are computed."""

LEFT_OUT = '"left out":""'
"""What stands there for facts that a course does not have: a name that no kind of row knows."""

UNREAD = (
    "from_party",
    "to_party",
    "cpa_id",
    "conversation_id",
    "service",
    "action",
    "document_digest",
)
"""What details say and no predicate about a message asks for, unless an operator is waited for: a
course does not have it."""

ASKED = (
    "split_id",
    "split_number",
    "time_to_live",
    "notice",
    "signature_required",
    "redelivered",
    "signal",
)
"""Words that predicates look for in a detail as a text, before they read it or instead."""

EXACT = ("kind", "terms_id", "attempt", "hop", "transport", "detail")
"""The columns whose values belong to the course."""

ROLES = ("node", "peer", "channel")
"""The columns whose values are names: a course has roles instead, and a cast says who has them."""

SAME = ("ref_to", "epoch", "sequence_number", "digest")
"""The columns of which a course knows in which rows they are the same."""


class Unanswerable(Exception):
    """Something was asked that the course does not say."""


ORIGIN, TIME_TO_LIVE = -1, -2
"""What may stand for a row in a condition: the beginning of all clocks, and the message's
TimeToLive."""


class Condition(NamedTuple):
    """That in a column one row's value is not greater than another's by more than so much."""

    column: str
    later: int
    earlier: int
    most: Duration


class Blind:
    """A value of one row, of which nothing can be asked."""

    __slots__ = ("column", "row")

    def __init__(self, column: str, row: int) -> None:
        self.column, self.row = column, row

    def refuse(self, *_: object) -> NoReturn:
        """There is no answer."""
        raise Unanswerable(f"{self.column} of row {self.row}")

    def __eq__(self, other: object) -> bool:
        return self.refuse()

    def __hash__(self) -> int:
        return self.refuse()

    def __bool__(self) -> bool:
        return self.refuse()

    def __lt__(self, other: object) -> bool:
        return self.refuse()

    def __gt__(self, other: object) -> bool:
        return self.refuse()

    def __le__(self, other: object) -> bool:
        return self.refuse()

    def __ge__(self, other: object) -> bool:
        return self.refuse()


class Same(Blind):
    """A value that is the same in some rows: each of them may be asked whether it is."""

    __slots__ = ("_which",)

    def __init__(self, column: str, row: int, which: int) -> None:
        super().__init__(column, row)
        self._which = which

    def __eq__(self, other: object) -> bool:
        if other is None:
            return False
        if type(other) is Same and other.column == self.column:
            return other._which == self._which
        return self.refuse()

    def __hash__(self) -> int:
        return hash((self.column, self._which))


class Position(Blind):
    """Where a row stands in its node's journal: before another, or behind it."""

    __slots__ = ("node",)

    def __init__(self, row: int, node: str) -> None:
        super().__init__("seq", row)
        self.node = node

    def _other(self, other: object) -> int:
        if type(other) is Position and other.node == self.node:
            return other.row
        return self.refuse()

    def __lt__(self, other: object) -> bool:
        return self.row < self._other(other)

    def __gt__(self, other: object) -> bool:
        return self.row > self._other(other)


class Conditions(NamedTuple):
    """What was asked of the instants of a message, and what must hold for the same answers."""

    time_to_live: Instant | None
    found: list[Condition]

    def is_at_most(self, one: Measured, most: int) -> bool:
        """Whether a time is not longer than so much."""
        since, limit = one.since, most
        if abs(most - DEADLINE) <= 1 and since == ORIGIN and self.time_to_live is not None:
            since, most = TIME_TO_LIVE, most - DEADLINE
            limit = self.time_to_live + most
        if one.value <= limit:
            self.found.append(Condition(one.column, one.row, since, most))
            return True
        self.found.append(Condition(one.column, since, one.row, -most - 1))
        return False


class Measured(Blind):
    """An instant, or the time since another row: to compare it makes a condition."""

    __slots__ = ("_conditions", "since", "value")

    def __init__(
        self, column: str, row: int, since: int, value: int, conditions: Conditions
    ) -> None:
        super().__init__(column, row)
        self.since, self.value, self._conditions = since, value, conditions

    def __sub__(self, other: object) -> Measured:
        if type(other) is not Measured or other.column != self.column or other.since != ORIGIN:
            return self.refuse()
        between = self.value - other.value
        return Measured(self.column, self.row, other.row, between, self._conditions)

    def __lt__(self, other: object) -> bool:
        return self._is_at_most(other, 1)

    def __le__(self, other: object) -> bool:
        return self._is_at_most(other, 0)

    def __gt__(self, other: object) -> bool:
        return not self._is_at_most(other, 0)

    def __ge__(self, other: object) -> bool:
        return not self._is_at_most(other, 1)

    def _is_at_most(self, other: object, less: int) -> bool:
        if type(other) is not int:
            return self.refuse()
        return self._conditions.is_at_most(self, other - less)


class Unknown(dict[Any, Any]):
    """What is known of single messages, so that a course cannot say it."""

    def refuse(self, *_: object) -> NoReturn:
        """There is no answer."""
        raise Unanswerable("what is known of single messages")

    __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = refuse
    get = keys = values = items = refuse


class Cast:
    """Who took part in a message: what a course calls by its role.

    `relation` is what the course of such a message depends on; None where something is known of
    one of them that concerns single messages.
    """

    __slots__ = ("_context", "names", "relation")

    def __init__(self, context: Context, roles: Mapping[str, Sequence[str]]) -> None:
        self._context = context
        self.names = {
            f"{role} {number}": name
            for role in ROLES
            for number, name in enumerate(roles[role], start=1)
        }
        others = {node for peer in roles["peer"] for node in context.homes.get(peer, ())}
        others -= set(roles["node"])
        self.names |= {f"other {at}": name for at, name in enumerate(sorted(others), start=1)}
        nodes = {
            name: role for role, name in self.names.items() if role.startswith(("node", "other"))
        }
        self.relation: tuple[tuple[str, ...] | None, ...] | None = tuple(
            tuple(sorted(nodes[node] for node in context.homes[peer]))
            if peer in context.homes
            else None
            for peer in roles["peer"]
        )
        if is_special(context, roles):
            self.relation = None

    @property
    def context(self) -> Context:
        """What a judge of the course must know, by roles."""
        return Context(
            healed=True,
            terms=self._context.terms,
            homes={
                f"peer {number}": set(nodes)
                for number, nodes in enumerate(self.relation or (), start=1)
                if nodes is not None
            },
            declared=self._context.declared,
            withheld=Unknown(),
            lifted=Unknown(),
            calm=self._context.calm,
        )

    def horizon(self, course: HistoryShape) -> Instant | None:
        """Only messages of the course whose timers began before are wholly judged."""
        nodes = [self.names[role] for role in course.nodes]
        until = self._context.healed_until(nodes, course.terms)
        # What an agreement or a journal names as a duration may be anything.
        return until if until == ALWAYS or (type(until) is int and abs(until) < FAR) else None


def is_special(context: Context, roles: Mapping[str, Sequence[str]]) -> bool:
    """Whether something is known of who took part that concerns single messages: a channel waits
    for its operator; or rows are missing that may be anybody's; or somebody has no name."""
    peers = roles["peer"]
    return (
        "" in context.homes
        or any("" in names for names in roles.values())
        or any(channel in roles["channel"] for _, channel in context.suspended)
        or (bool(context.holes) and any(peer not in context.homes for peer in peers))
    )


class HistoryShape(NamedTuple):
    """What is said of every message that went this way."""

    outcome: MessageOutcome
    """Its values are those of the course, or roles, or blinded: then they name a row."""
    since: int
    """The row from which on its timers run."""
    nodes: tuple[str, ...]
    """The roles of all nodes that it concerns."""
    terms: Terms | None
    conditions: tuple[Condition, ...]


def course_of(rows: Sequence[Row], time_to_live: Instant | None, cast: Cast) -> HistoryShape | None:
    """The course of a message by its rows, sorted by (node, seq), in whose details `MESSAGE`,
    `DOCUMENT` and `DEADLINE` stand for what is its own; None where it is to be judged by itself."""
    conditions = Conditions(time_to_live, [])
    try:
        traces = gather(_blinded(rows, cast, conditions))
        subject = Subject(MESSAGE, traces, cast.context, healed=True)
        if find_violations(subject) or subject.violations:
            return None
        outcome = None if is_signal(traces) else outcome_of(traces, subject.context.terms)
        since: object = subject.since.at
        nodes, terms = tuple(sorted(subject.nodes)), subject.terms
    except (Unanswerable, JournalProblem):
        return None
    if outcome is None or not isinstance(since, Measured):
        return None
    if any(abs(condition.most) > FAR for condition in conditions.found):
        return None
    return HistoryShape(outcome, since.row, nodes, terms, tuple(dict.fromkeys(conditions.found)))


def _blinded(rows: Sequence[Row], cast: Cast, conditions: Conditions) -> list[Row]:
    """The same rows without what the course leaves out."""
    for _, group in groupby(rows, attrgetter("node")):
        if len({row.boot for row in group}) > 1:
            raise Unanswerable("whether a process died in between is told by the boots")
    roles = {(role.partition(" ")[0], name): role for role, name in cast.names.items()}
    known: dict[str, dict[object, int]] = {name: {} for name in SAME}
    made = []
    for number, row in enumerate(rows):
        hidden: dict[str, object] = {
            name: Same(name, number, known[name].setdefault(value, len(known[name])))
            for name in SAME
            if (value := getattr(row, name)) is not None
        }
        hidden |= {
            name: roles[name, value] for name in ROLES if (value := getattr(row, name)) is not None
        }
        hidden["seq"] = Position(number, row.node)
        hidden["at"] = Measured("at", number, ORIGIN, row.at, conditions)
        hidden["mono"] = Measured("mono", number, ORIGIN, row.mono, conditions)
        hidden["size"] = None if row.size is None else Blind("size", number)
        made.append(row._replace(boot="", message_id=MESSAGE, **hidden))  # type: ignore[arg-type]
    return made
