"""Judging: the checker over the journals of one party or of several, joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from oncewire.entry.party.settings import Settings
from oncewire.entry.party.store import open_readers, reading
from oncewire.journal.check import JournalReport, check_journal, message_key
from oncewire.journal.identity import unchained
from oncewire.journal.outcome import fold_outcome
from oncewire.journal.predicates.context import QUARANTINE, Context, Violation, ViolationKind
from oncewire.journal.predicates.message import Extent
from oncewire.journal.row import Row
from oncewire.message.envelope import is_trial
from oncewire.message.instant import DAY, Instant
from oncewire.protocol.states import IncomingState
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Reader

_IN_INBOX = frozenset({IncomingState.READY, IncomingState.HANDED_OVER})
"""States in which a message is given to the next taker, for the first time or again."""

_NOT_TAKEN = frozenset({ViolationKind.LOST.value, ViolationKind.UNCONFIRMED.value})
"""What rows say of a message that no application has."""

PAGE = 20_000
"""Rows of one question: a view that stays open keeps the handler's log from being recycled."""


def journal_rows(
    settings: Settings,
    advance: Callable[[int], None] = lambda _rows: None,
    altered: list[Violation] | None = None,
) -> Iterator[Row]:
    """A party's whole journal, in short questions. With `altered` its chain is made again, and a
    finding is added where rows are not those that its handler had chained."""
    readers = open_readers(settings)
    broken: list[int] = []
    try:
        seq, node = 0, settings.party.name
        while True:
            with readers.reader() as reader:
                rows = reader.journal_since(seq, PAGE)
                heads = {} if altered is None else reader.journal_heads(seq, PAGE + 1)
            if not rows:
                if broken and altered is not None:
                    altered.append(_altered(node, broken))
                # The head behind the last row has the number of the next one.
                if altered is not None and max(heads, default=0) > seq + 1:
                    altered.append(_cut(node, seq, max(heads) - 1))
                return
            node = rows[0].node
            broken += unchained(rows, heads)
            yield from rows
            seq = rows[-1].seq
            advance(len(rows))
    finally:
        readers.close()


def _altered(node: str, broken: list[int]) -> Violation:
    some = ", ".join(map(str, broken[:5])) + (" and others" if len(broken) > 5 else "")
    what = (
        f"Row {some} of its journal is not the one"
        if len(broken) == 1
        else (f"{len(broken)} rows of its journal ({some}) are not those")
    )
    return _unchained(node, f"{what} that its handler had chained: the store was changed since.")


def _cut(node: str, last: int, written: int) -> Violation:
    return _unchained(
        node,
        f"Its journal ends with row {last}, and its handler had written {written}: rows at its end "
        "were removed since.",
    )


def _unchained(node: str, sentence: str) -> Violation:
    return Violation(QUARANTINE, ViolationKind.UNCHAINED.value, None, None, node, sentence)


@dataclass(frozen=True, slots=True)
class Totals:
    """What a ledger counts of a run, over all journals given."""

    # Messages that an application submitted.
    sent: int = 0
    # Those that an application has confirmed exactly once.
    delivered_once: int = 0
    resends: int = 0
    duplicates_stopped: int = 0
    # Given to the application again after a crash, and marked so.
    redelivered: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The checker's word and the totals."""

    report: JournalReport
    totals: Totals
    nodes: tuple[str, ...]
    outcomes: Mapping[str, int] = field(default_factory=dict)
    # Of messages from before that instant it was also judged what is missing; None: of all.
    through: Instant | None = None
    # When the last timer of all messages will have run out; None: of all it was judged.
    until: Instant | None = None
    # For each party how many messages lie in its inbox and wait for the application.
    inboxes: Mapping[str, int] = field(default_factory=dict)

    @property
    def waiting(self) -> int:
        """Messages that arrived, and that no application has taken and confirmed yet."""
        return sum(self.inboxes.values())

    @property
    def not_yet(self) -> int:
        """Messages of which something may still come, so that nothing of it is called missing."""
        return self.report.extents.get(Extent.NOT_YET.value, 0)

    @property
    def in_doubt(self) -> int:
        """Messages whose rows may be among those that are missing."""
        return self.report.extents.get(Extent.IN_DOUBT.value, 0)

    @property
    def clean(self) -> bool:
        """Nothing is broken, and everything could be judged."""
        return self.report.clean

    def count(self, kind: str) -> int:
        """How many violations of a kind."""
        return self.report.kinds.get(kind, 0)


def judge(
    rows: Iterable[Row], *, ended: bool, now: Instant, altered: Sequence[Violation] = ()
) -> Verdict:
    """Judge rows of any number of nodes; `altered` is what their chains show.

    `ended` says that the run is over and what is missing now is lost; otherwise only messages
    whose every timer has run out are judged so.
    """
    everything = list(rows)
    context = Context.gather(everything, healed=ended)
    before = until = None
    if everything and not ended:
        # After so long every timer of a message has run out, on every node: a sender stops at
        # persistDuration, and then a hub may begin with its own.
        longest = 2 * max((terms.persist_duration for terms in context.terms.values()), default=DAY)
        before = _reached(everything, now) - longest
        until = _newest(everything) + longest
    report = check_journal(everything, healed=ended, healed_before=before)
    report = replace(report, quarantined=(*report.quarantined, *altered))
    totals = count(everything, context.terms)
    nodes = tuple(sorted({row.node for row in everything}))
    return Verdict(report, totals, nodes, dict(report.outcomes), before, until)


def with_inboxes(verdict: Verdict, parties: Iterable[Settings]) -> Verdict:
    """The verdict of a judge who has the parties' stores at hand, and not their rows alone.

    Rows say that an application never confirmed a message. If the inbox still has it, it is no
    more lost than a letter that was not fetched: it is given to the next taker.
    """
    inboxes: dict[str, int] = {}
    found = verdict.report.violations
    for settings in parties:
        with reading(settings) as reader:
            counts = reader.counts()
            inboxes[settings.party.name] = sum(counts[f"in.{state}"] for state in _IN_INBOX)
            found = tuple(
                violation
                for violation in found
                if violation.node != settings.party.name or not _waits(reader, violation)
            )
    return replace(verdict, report=replace(verdict.report, violations=found), inboxes=inboxes)


def _waits(reader: Reader, violation: Violation) -> bool:
    """Whether what is called missing lies in the inbox."""
    if violation.kind not in _NOT_TAKEN or violation.message_id is None:
        return False
    kept = reader.incoming(violation.message_id)
    return any(stored.incoming.state in _IN_INBOX for stored in kept)


def _reached(rows: list[Row], now: Instant) -> Instant:
    """How far the journals of all nodes go. A clock that runs ahead of ours is not believed: it
    would call everything late."""
    reached: dict[str, Instant] = {}
    for row in rows:
        reached[row.node] = min(max(row.at, reached.get(row.node, 0)), now)
    return min(reached.values(), default=0)


def _newest(rows: list[Row]) -> Instant:
    """When the newest message began."""
    began: dict[str, Instant] = {}
    for row in rows:
        key = message_key(row)
        if key is not None:
            began[key] = min(row.at, began.get(key, row.at))
    return max(began.values(), default=0)


def count(rows: list[Row], terms: Mapping[str, Terms]) -> Totals:
    """The totals of all messages: those that were submitted here, and those that came from others
    whose journals are not among these."""
    by_message: dict[str, list[Row]] = {}
    restarts = redelivered = 0
    starts: set[str] = set()
    for row in rows:
        if row.kind == "started":
            restarts += row.node in starts
            starts.add(row.node)
        key = message_key(row)
        if key is not None and is_trial(key):
            continue
        if row.kind == "handed_over" and '"redelivered":true' in (row.detail or ""):
            redelivered += 1
        if key is not None:
            by_message.setdefault(key, []).append(row)
    sent = once = resends = duplicates = 0
    for group in by_message.values():
        outcome = fold_outcome(sorted(group, key=lambda row: (row.node, row.seq)), terms)
        if outcome is None:
            continue
        sent += outcome.submitted_at is not None
        once += outcome.confirmed == 1
        resends += outcome.resends
        duplicates += outcome.duplicates_stopped
    return Totals(sent, once, resends, duplicates, redelivered, restarts)
