"""Violation: one broken promise, named for the predicate of the guarantee it breaks."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class ViolationKind(StrEnum):
    """What went wrong, in the ledger's words, gravest first for a message's verdict.

    One cause is reported under one of them.
    """

    LOST = "lost"  # neither confirmed nor was anyone told
    TWICE = "twice"  # handed over or confirmed more often than once
    OUT_OF_ORDER = "out_of_order"  # handed over after a later number
    ALTERED = "altered"  # the content differs from what was submitted or first received
    UNNOTIFIED = "unnotified"  # failed, and the From Party was not told
    UNTOLD = "untold"  # recorded as told, but its application never took the notice
    UNCONFIRMED = "unconfirmed"  # handed over, but no application ever confirmed it
    GAP = "gap"  # a number is missing and no skip says why
    REPEATED_NUMBER = "repeated_number"  # one number, two messages
    WINDOW_EXCEEDED = "window_exceeded"  # more than W unsettled
    WRONG_STATUS = "wrong_status"  # Reset where Continue is due, or the other way round
    EARLY_RESET = "early_reset"  # a new epoch while numbers of the old one were unsettled
    EARLY_RETRY = "early_retry"  # sooner than Timeout, RetryInterval or a pause allow
    TOO_MANY_RETRIES = "too_many_retries"  # more attempts than 1 + Retries
    LATE_SEND = "late_send"  # after the end: acknowledged, failed, TimeToLive, persistDuration
    GAVE_UP_EARLY = "gave_up_early"  # fewer attempts than agreed
    ACK_WITHOUT_STORE = "ack_without_store"  # acknowledged, but not in the store
    FORGOTTEN = "forgotten"  # stored a second time as if it were new
    INVENTED = "invented"  # handed over, but never submitted or never received
    WRONG_OUTCOME = "wrong_outcome"  # the outcome told is not the one that happened
    TAKEN_BACK = "taken_back"  # failed after the To Party itself had acknowledged it
    NEEDLESS_NOTICE = "needless_notice"  # a failure notice about a failure notice
    UNMATCHED_ACK = "unmatched_ack"  # an acknowledgement of nothing that was outstanding
    UNSIGNED = "unsigned"  # a signature was agreed and does not cover what was used
    INCOMPLETE = "incomplete"  # a document without all its parts
    UNFINISHED = "unfinished"  # all timers ran out, and the sender has no outcome
    IMPOSSIBLE_ORDER = "impossible_order"  # a step stands before the one it follows from
    CONTRADICTION = "contradiction"  # rows of one message on one node name different numbers
    # What follows is wrong with the journal itself: quarantined, no promise is known to be broken.
    HOLE = "hole"  # rows are missing in the middle of a journal
    TRIMMED = "trimmed"  # rows are missing at its beginning, and something depends on them
    CUT_OFF = "cut_off"  # it ends before things that others have its word on
    UNSTARTED = "unstarted"  # a handler was at work, and no row says that it was started
    OTHER_TERMS = "other_terms"  # terms whose content is not what their id stands for
    COPIED = "copied"  # one journal under two names
    UNREADABLE = "unreadable"  # rows that break the contract, or that nothing explains


class Violation(NamedTuple):
    """A finding. `predicate` is S1..S15, L1, L3, or one that has a name of its own (`taken back`,
    `told`, `steps`); `journal` marks what is wrong with the journal itself."""

    predicate: str
    kind: str
    message_id: str | None
    channel: str | None
    node: str | None
    sentence: str


QUARANTINE = "journal"
"""The `predicate` of what is wrong with the journal itself, so that promises cannot be judged."""

OF_JOURNALS: frozenset[str] = frozenset(
    kind.value
    for kind in (
        ViolationKind.HOLE,
        ViolationKind.TRIMMED,
        ViolationKind.CUT_OFF,
        ViolationKind.UNSTARTED,
        ViolationKind.OTHER_TERMS,
        ViolationKind.COPIED,
        ViolationKind.UNREADABLE,
    )
)
"""Its kinds."""

EVIDENT: frozenset[str] = frozenset(
    {ViolationKind.TWICE.value, ViolationKind.ALTERED.value, ViolationKind.UNSIGNED.value}
)
"""Kinds that the rows which are there prove, whatever rows are missing."""

MISSING: frozenset[str] = frozenset(
    kind.value
    for kind in (
        ViolationKind.LOST,
        ViolationKind.UNNOTIFIED,
        ViolationKind.UNCONFIRMED,
        ViolationKind.UNFINISHED,
    )
)
"""Kinds that rows at the end of a journal would have kept from being told."""


def unreadable(
    sentence: str,
    *,
    message_id: str | None = None,
    channel: str | None = None,
    node: str | None = None,
) -> Violation:
    """A finding about the journal itself."""
    return Violation(
        QUARANTINE, ViolationKind.UNREADABLE.value, message_id, channel, node, sentence
    )
