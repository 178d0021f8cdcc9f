"""The fold over one channel's rows: S6, S7, S8, and the pauses that concern a whole channel.

Nothing here crosses nodes: the sender's rows and the receiver's are each judged in the order of
their own node. So rows may be divided by (channel, node) as well as by channel.
"""

from __future__ import annotations

from oncewire.errors import JournalProblem
from oncewire.journal.predicates.context import Context, TermsMissing
from oncewire.journal.predicates.receiving_channel import ReceivingChannelFold
from oncewire.journal.predicates.sending_channel import SendingChannelFold
from oncewire.journal.predicates.violation import Violation, unreadable
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ABANDONED,
    ACKNOWLEDGED,
    EPOCH_ENDED,
    FAILED,
    FORWARDED,
    HANDED_OVER,
    INCIDENT,
    NUMBERED,
    RECEIVED,
    REJECTED,
    RESOLVED,
    RESUMED,
    SENT,
    SKIPPED,
    TRANSIENT,
)
from oncewire.protocol.terms import Terms

SENDING = frozenset(
    {
        NUMBERED,
        SENT,
        ACKNOWLEDGED,
        REJECTED,
        ABANDONED,
        FAILED,
        EPOCH_ENDED,
        TRANSIENT,
        RESUMED,
    }
)
RECEIVING = frozenset({RECEIVED, SKIPPED, HANDED_OVER, FORWARDED})
CALLING = frozenset({INCIDENT, RESOLVED})
KINDS = SENDING | RECEIVING | CALLING
"""The kinds that the fold looks at; of all others only the terms that they name."""


class ChannelFold:
    """Feed the rows of one channel in order of (node, seq), then finish."""

    __slots__ = (
        "_context",
        "_found",
        "_last",
        "_node",
        "_receiving",
        "_sending",
        "_terms",
        "_unknown",
    )

    def __init__(self, context: Context) -> None:
        self._context = context
        self._found: list[Violation] = []
        self._open("")

    def _open(self, node: str) -> None:
        self._node = node
        self._terms: Terms | None = None
        self._unknown = False
        self._last = 0
        self._sending = SendingChannelFold(self._found)
        self._receiving = ReceivingChannelFold(self._found)

    def feed(self, row: Row) -> None:
        """One more row of the channel."""
        if row.node != self._node:
            self._receiving.finish(self._context)
            self._open(row.node)
        if (self._context.holes or self._context.aside) and self._context.is_broken(
            row.node, row.channel, self._last, row.seq
        ):
            # What the missing rows told is not known: both take up from what the next ones show.
            self._sending.take_up()
            self._receiving.take_up()
        self._last = row.seq
        kind = row.kind
        terms = self._terms
        if row.terms_id is not None and kind != FORWARDED:
            # A hub forwards under the terms of the next hop; the numbers are of the last one.
            terms = self._terms = self._context.terms.get(row.terms_id)
        if kind not in KINDS:
            return
        if kind in CALLING:
            self._receiving.call(row)
            return
        if kind == FORWARDED and row.sequence_number is None:
            return  # It came on no stream; the one it goes on with has rows of its own.
        if terms is None:
            self._quarantine(row)
            return
        try:
            if kind in SENDING:
                self._sending.take(row, terms, self._context)
            else:
                self._receiving.take(row, terms, self._context)
        except JournalProblem as problem:
            self._found.append(
                unreadable(
                    str(problem), message_id=row.message_id, channel=row.channel, node=row.node
                )
            )

    def _quarantine(self, row: Row) -> None:
        context = self._context
        if self._unknown or row.terms_id in context.doubted_terms:
            return
        self._unknown = True
        missing = unreadable(str(TermsMissing(row)), node=row.node)
        if row.terms_id is None:
            missing = unreadable(
                f"no terms row explains the numbers of channel {row.channel} on node "
                f"{row.node}, from row {row.seq} on",
                channel=row.channel,
                node=row.node,
            )
        # They are written once, however long before: any hole may have swallowed them.
        if not context.has_hole_before(row.node, row.seq):
            self._found.append(missing)

    def finish(self) -> list[Violation]:
        """Every promise about this channel that its rows show broken."""
        self._receiving.finish(self._context)
        return self._found
