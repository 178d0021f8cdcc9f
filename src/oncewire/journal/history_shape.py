"""Event history of a message with ids, digests and times replaced by placeholders.

Most messages of an archive have one of a few histories, and differ only in who took part and in
their ids, digests, numbers and instants. Each shape of a history is judged once, and the verdict
holds for every message that has it, so that the cost of judging does not grow with the messages.

The predicates run on anonymised rows. A placeholder answers only what all messages of the shape
have in common: whether it equals the value of another row, whether a row is before another. A
comparison of instants is answered too, and recorded as a condition that a message of the shape
must fulfil. Any other question raises Unanswerable, and such messages are judged one by one. So
no rule is written twice and none is skipped. Only a history that breaks no promise and is judged
to its end becomes a shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, NoReturn

from oncewire.errors import JournalProblem
from oncewire.journal.outcome import HEADER, MessageOutcome, described_by, is_signal, outcome_of
from oncewire.journal.predicates.context import ALWAYS, Context
from oncewire.journal.predicates.message import find_violations
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.row import Row
from oncewire.journal.trace import gather
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.terms import Terms

MESSAGE, DOCUMENT = "(message)", "(document)"
"""Placeholders in details for the MessageId, and for the SplitId of the document that the message
is a part of."""

DEADLINE: Instant = 2**61 - 1
"""Placeholder in details for the message's TimeToLive."""

FAR: Duration = 2**60
"""No message has an instant beyond; differences of larger ones might overflow in Spark."""

LEFT_OUT = '"left out":""'
"""Placeholder in details for the facts of UNREAD: a name that no kind of row has."""

UNREAD = (
    "from_party",
    "to_party",
    "cpa_id",
    "conversation_id",
    "service",
    "action",
    "document_digest",
)
"""Facts in details that no predicate about a message reads, unless it waits for an operator, or
that it only compares (`COMPARED`): a shape leaves them out, as it does sizes. A message whose rows
do not agree on what is compared is judged by itself."""

ASKED = (
    "split_id",
    "split_number",
    "time_to_live",
    "notice",
    "signature_required",
    "redelivered",
    "signal",
)
"""Words that predicates search for in the text of a detail, before or instead of decoding it."""

EXACT = ("kind", "terms_id", "attempt", "hop", "transport", "detail")
"""Columns whose values are part of the shape."""

ROLES = ("node", "peer", "channel")
"""Columns whose values are names: a shape has roles in their place, and `Participants` says who has
which."""

SAME = ("ref_to", "epoch", "sequence_number", "digest")
"""Columns of which a shape records only which rows have equal values."""


class Unanswerable(Exception):
    """A predicate asked for something that the shape does not record."""


ORIGIN, TIME_TO_LIVE = -1, -2
"""In place of a row in a condition: instant zero, and the message's TimeToLive."""


class Condition(NamedTuple):
    """In `column`, the value of row `later` exceeds that of row `earlier` by at most `most`."""

    column: str
    later: int
    earlier: int
    most: Duration


class Anonymous:
    """Placeholder for a value of one row: every question about it raises Unanswerable."""

    __slots__ = ("column", "row")

    def __init__(self, column: str, row: int) -> None:
        self.column, self.row = column, row

    def refuse(self, *_: object) -> NoReturn:
        """Raise Unanswerable."""
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


class Same(Anonymous):
    """Placeholder that can be compared with those of the same column: equal values have equal
    placeholders."""

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


class Position(Anonymous):
    """Placeholder for `seq`: tells which of two rows of one node is first."""

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
    """The comparisons of instants that predicates made, as conditions under which another message
    gets the same answers."""

    time_to_live: Instant | None
    found: list[Condition]

    def is_at_most(self, one: Measured, most: int) -> bool:
        """Whether a time is at most that long; the answer is recorded as a condition."""
        since, limit = one.since, most
        if abs(most - DEADLINE) <= 1 and since == ORIGIN and self.time_to_live is not None:
            since, most = TIME_TO_LIVE, most - DEADLINE
            limit = self.time_to_live + most
        if one.value <= limit:
            self.found.append(Condition(one.column, one.row, since, most))
            return True
        self.found.append(Condition(one.column, since, one.row, -most - 1))
        return False


class Measured(Anonymous):
    """Placeholder for an instant, or for the time since another row; a comparison records a
    condition."""

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
    """Facts about single messages, which a shape lacks: every access raises Unanswerable."""

    def refuse(self, *_: object) -> NoReturn:
        """Raise Unanswerable."""
        raise Unanswerable("what is known of single messages")

    __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = refuse
    get = keys = values = items = refuse


class Participants:
    """The nodes, peers and channels of a message, which its shape calls by roles.

    `relation`: which peers live on which nodes, on which the shape depends; None where something
    is known of a participant that concerns single messages.
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
        """The context of a judgement, with roles in place of names."""
        return Context(
            healed=True,
            terms=self._context.terms,
            homes={
                f"peer {number}": set(nodes)
                for number, nodes in enumerate(self.relation or (), start=1)
                if nodes is not None
            },
            declared=self._context.declared,
            explained=Unknown(),
            withheld=Unknown(),
            lifted=Unknown(),
            calm=self._context.calm,
        )

    def horizon(self, shape: HistoryShape) -> Instant | None:
        """The instant before which the timers of a message of that shape must have begun for its
        judgement to be complete; None: messages are judged one by one."""
        nodes = [self.names[role] for role in shape.nodes]
        until = self._context.healed_until(nodes, shape.terms)
        # Durations of agreements and journals are unbounded.
        return until if until == ALWAYS or (type(until) is int and abs(until) < FAR) else None


def is_special(context: Context, roles: Mapping[str, Sequence[str]]) -> bool:
    """Whether something is known of the participants that concerns single messages: a channel waits
    for its operator, rows are missing that may belong to any message, or a name is empty."""
    peers = roles["peer"]
    return (
        "" in context.homes
        or any("" in names for names in roles.values())
        or any(channel in roles["channel"] for _, channel in context.suspended)
        or any(node in context.archives for node in roles["node"])
        or (bool(context.holes) and any(peer not in context.homes for peer in peers))
    )


class HistoryShape(NamedTuple):
    """The verdict about every message with this history."""

    outcome: MessageOutcome
    """Its values are part of the shape, or roles, or placeholders that name a row."""
    since: int
    """The row at which its timers begin."""
    nodes: tuple[str, ...]
    """The roles of its nodes."""
    terms: Terms | None
    conditions: tuple[Condition, ...]


def shape_of(
    rows: Sequence[Row], time_to_live: Instant | None, who: Participants
) -> HistoryShape | None:
    """The shape of a message's rows, sorted by (node, seq), with the placeholders `MESSAGE`,
    `DOCUMENT` and `DEADLINE` in their details; None where the message is judged by itself."""
    conditions = Conditions(time_to_live, [])
    try:
        traces = gather(_anonymised(rows, who, conditions))
        subject = Subject(MESSAGE, traces, who.context, healed=True)
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
    described = described_by(traces)
    place: object = None if described is None else described.seq
    if isinstance(place, Position):
        facts: dict[str, Any] = {name: Anonymous(name, place.row) for name in HEADER}
        outcome = outcome._replace(**facts)
    return HistoryShape(outcome, since.row, nodes, terms, tuple(dict.fromkeys(conditions.found)))


def _anonymised(rows: Sequence[Row], who: Participants, conditions: Conditions) -> list[Row]:
    """The rows with placeholders for everything that the shape leaves out."""
    for _, group in groupby(rows, attrgetter("node")):
        if len({row.boot for row in group}) > 1:
            raise Unanswerable("whether a process died in between is told by the boots")
    roles = {(role.partition(" ")[0], name): role for role, name in who.names.items()}
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
        hidden["size"] = None if row.size is None else Anonymous("size", number)
        made.append(row._replace(boot="", message_id=MESSAGE, **hidden))  # type: ignore[arg-type]
    return made
