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
    UNREADABLE = "unreadable"  # rows that cannot be judged: quarantined, not a broken promise


class Violation(NamedTuple):
    """A finding. `predicate` is S1..S15, L1, L3, or one that has a name of its own (`taken back`,
    `told`); `journal` marks rows that cannot be judged."""

    predicate: str
    kind: str
    message_id: str | None
    channel: str | None
    node: str | None
    sentence: str


QUARANTINE = "journal"
"""The `predicate` of rows that cannot be judged."""


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
