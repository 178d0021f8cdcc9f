"""Terms: the policies in force for one message, as data.

Every place where the drafts disagree is a value here (docs/explanation/decisions.md), so one
engine runs all of them and nothing outside `wire/` asks which dialect it speaks. The
agreement fills them; their digest, `terms_id`, is what journal rows refer to.
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from functools import lru_cache
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins

from oncewire.errors import AgreementProblem, InvalidValue
from oncewire.message.form import AckRequest, ReliableMessagingMethod, SyncReplyMode
from oncewire.message.instant import DAY, Duration, seconds
from oncewire.protocol.sequence import SLIDES_RANGE, SequenceRange, check_window


class FlowMode(StrEnum):
    """How many messages may be unacknowledged at once (C3)."""

    STOP_AND_WAIT = "stop-and-wait"
    WINDOW = "window"
    UNRESTRICTED = "unrestricted"


class Scope(StrEnum):
    """What one numbered stream is (C6)."""

    TRIPLE = "triple"
    PAIR = "pair"
    CONVERSATION = "conversation"


class OnGap(StrEnum):
    """What the receiver does with a number that comes too early (C4)."""

    REJECT = "reject"
    BUFFER = "buffer"


class ResetRule(StrEnum):
    """How a restart of the numbering is announced (C7)."""

    SILENT = "silent"  # v0-078: the value 1 says it
    FIRST_WINDOW = "first-window"  # slides: Status=Reset on the whole first window
    FIRST_MESSAGE = "first-message"  # ebMS 2.0: Reset only with the first number


class DuplicateAnswer(StrEnum):
    """What a duplicate is answered with (C14). In all cases stored bytes are sent."""

    ORIGINAL = "original"
    MOST_RECENT = "most_recent"
    FRESH_ACK = "fresh_ack"


class NoResponse(StrEnum):
    """What a duplicate gets when no response is stored for it (C16)."""

    ACK = "ack"
    IGNORE = "ignore"


class OnExhausted(StrEnum):
    """What the last unanswered retry leads to (C22). Both raise an incident."""

    FAIL_MESSAGE = "fail_message"
    SUSPEND_CHANNEL = "suspend_channel"


class RetryCount(StrEnum):
    """Whether Retries counts per transport (DB chapter) or in all (v0-078) (C21)."""

    PER_TRANSPORT = "per_transport"
    TOTAL = "total"


class HopMode(StrEnum):
    """What an intermediary's acknowledgement means (C23, C39)."""

    STORE_AND_FORWARD = "store_and_forward"
    TRANSIENT_UNTIL_FORWARDED = "transient_until_forwarded"
    TRANSPARENT = "transparent"
    BY_REQUEST = "by_request"


class SyncRetries(StrEnum):
    """Whether a synchronous request may be resent (C28)."""

    NONE = "none"
    SAME_MESSAGE = "same_message"


class SyncBundle(StrEnum):
    """How two replies share one connection (C30)."""

    MERGED = "merged"
    CONCATENATED = "concatenated"


class AckBundling(StrEnum):
    """Whether an acknowledgement may ride on a business response (C13)."""

    STANDALONE = "standalone"
    PIGGYBACK = "piggyback"
    AUTO = "auto"


class HeaderConflict(StrEnum):
    """Who wins when header and agreement differ (C17; CPA-9..12)."""

    HEADER = "a"
    HEADER_WARN = "b"
    AGREEMENT_WARN = "c"
    REJECT = "d"


class ReceiptProvided(StrEnum):
    """Which delivery receipts the To Party can give (CPA-13)."""

    SIGNED = "Signed"
    UNSIGNED = "Unsigned"
    BOTH = "Both"
    NONE = "None"


STOP_AND_WAIT_WINDOW = 1


class Terms(Struct, frozen=True, gc=False, forbid_unknown_fields=True, cache_hash=True):
    """What the two handlers of one hop do with one message."""

    # Reliability
    reliable: bool = True
    method: ReliableMessagingMethod = ReliableMessagingMethod.EBXML
    duplicate_elimination: bool = True
    best_effort_filter: bool = True
    # Acknowledgements: what our sender asks for, per handler that may answer.
    ack_requested: AckRequest = AckRequest.UNSIGNED
    hop_ack_requested: AckRequest = AckRequest.NONE
    receipt_provided: ReceiptProvided = ReceiptProvided.BOTH
    ack_bundling: AckBundling = AckBundling.AUTO
    # How long an acknowledgement may wait for a response to ride on (see `ride_patience`).
    ack_wait: Duration = 0
    # Numbers, windows, order
    numbered: bool = False
    ordered: bool = False
    flow: FlowMode = FlowMode.UNRESTRICTED
    window: int = 1
    numbers: SequenceRange = SLIDES_RANGE
    scope: Scope = Scope.PAIR
    on_gap: OnGap = OnGap.BUFFER
    reset: ResetRule = ResetRule.FIRST_WINDOW
    # Duplicates
    duplicate_answer: DuplicateAnswer = DuplicateAnswer.ORIGINAL
    duplicate_no_response: NoResponse = NoResponse.ACK
    # Time
    timeout: Duration = seconds(60)
    retries: int = 3
    retry_interval: Duration = seconds(60)
    retries_counted: RetryCount = RetryCount.PER_TRANSPORT
    persist_duration: Duration = DAY
    # Lifetime given to a message that is submitted without one; None: no TimeToLive.
    time_to_live: Duration | None = None
    time_accuracy: Duration = 0
    # Trouble
    on_exhausted: OnExhausted = OnExhausted.FAIL_MESSAGE
    header_conflict: HeaderConflict = HeaderConflict.HEADER
    # Ways to travel, in the order they are tried
    transports: tuple[str, ...] = ("http",)
    hop_mode: HopMode = HopMode.STORE_AND_FORWARD
    # Synchronous replies
    sync_mode: SyncReplyMode = SyncReplyMode.NONE
    sync_retries: SyncRetries = SyncRetries.SAME_MESSAGE
    sync_timeout: Duration = seconds(30)
    sync_bundle: SyncBundle = SyncBundle.MERGED
    # Large documents
    max_size: int | None = None
    compress_encoding: str | None = None
    # Limits of received documents; None: the handler's own. Bytes of a document, decompressed too;
    # its parts; decompressed to compressed; bytes of all documents that still wait for parts.
    max_document: int | None = None
    max_parts: int | None = None
    max_ratio: int | None = None
    quota: int | None = None
    # Kept beyond persistDuration for legal or business reasons (STO-8).
    keep: Duration = 0

    def __post_init__(self) -> None:
        for name in _DURATIONS:
            if getattr(self, name) < 0:
                raise InvalidValue(f"{name} is negative", remedy=f"give {name} 0 or more")
        if self.retries < 0:
            raise InvalidValue("retries is negative", remedy="give retries 0 or more")
        if self.time_to_live is not None and self.time_to_live <= 0:
            raise InvalidValue("time_to_live is not positive", remedy="give it a positive duration")
        for name in ("max_size", "max_document", "max_parts", "max_ratio", "quota"):
            bound = getattr(self, name)
            if bound is not None and bound < 1:
                raise InvalidValue(f"{name} is below 1", remedy=f"give {name} 1 or more, or none")
        if self.numbered or self.flow is FlowMode.WINDOW:
            check_window(self.window_size, self.numbers)
        _check_contradictions(self)

    @property
    def window_size(self) -> int:
        """W for the flow mode: 1 in stop-and-wait, half the range where nothing limits."""
        if self.flow is FlowMode.STOP_AND_WAIT:
            return STOP_AND_WAIT_WINDOW
        if self.flow is FlowMode.WINDOW:
            return self.window
        return self.numbers.size // 2

    @property
    def repeats_pass(self) -> bool:
        """Whether copies are passed on: each is a message of its own (C40)."""
        return not self.duplicate_elimination and (self.reliable or not self.best_effort_filter)

    @property
    def runs_protocol(self) -> bool:
        """Whether acks and retries are ours: reliable, and not left to the transport (RM-7)."""
        return self.reliable and self.method is ReliableMessagingMethod.EBXML

    @property
    def synchronous(self) -> bool:
        """Whether answers come back on the connection of what they answer (C31)."""
        return self.sync_mode is not SyncReplyMode.NONE

    @property
    def never_repeated(self) -> bool:
        """Whether its sender has given it up when its connection ends: a synchronous request that
        is not resent (C28, SYNC-18)."""
        return self.sync_retries is SyncRetries.NONE and self.synchronous

    @property
    def resends(self) -> int:
        """Resends on one transport: none are ours where the transport answers for the delivery
        (RM-7), and none are made inside a synchronous exchange where so agreed (SYNC-18)."""
        return self.retries if self.runs_protocol and not self.never_repeated else 0

    @property
    def longest_retry(self) -> Duration:
        """From first send to giving up, over all transports (DRV-4)."""
        ways = 1 if self.retries_counted is RetryCount.TOTAL else len(self.transports)
        return ways * (self.timeout + self.retries * self.retry_interval)

    @property
    def terms_id(self) -> str:
        """A digest of every value: equal terms have one id on every node and run."""
        return _id_of(self)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as the journal keeps terms and `agreement show` prints them."""
        plain: dict[str, Any] = to_builtins(self)
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Terms:
        """The terms that `as_dict` was made from; unknown names and values are refused."""
        try:
            return convert(values, cls)
        except ValidationError as error:
            raise InvalidValue(
                f"terms cannot be read: {error}",
                remedy="read them with the version of Oncewire that wrote them",
            ) from None


@lru_cache(maxsize=1024)
def _id_of(terms: Terms) -> str:
    """Cached: a digest over every value is too expensive for every message."""
    return terms_id_of(terms.as_dict())


def terms_id_of(values: dict[str, Any]) -> str:
    """The id of terms with these plain values, whichever version wrote them."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_DURATIONS = (
    "ack_wait",
    "timeout",
    "retry_interval",
    "persist_duration",
    "time_accuracy",
    "sync_timeout",
    "keep",
)


def _check_contradictions(terms: Terms) -> None:
    """Refuse values that no handler could keep together (C4, C7, C29, HDR-3)."""
    if not terms.transports:
        raise AgreementProblem(
            "no transport is agreed", key="transports", remedy="name at least one transport"
        )
    if terms.ordered and not terms.numbered:
        raise AgreementProblem(
            "order is agreed, but messages carry no numbers",
            key="sequence",
            remedy="agree on sequence numbers, or drop the order",
        )
    if terms.numbered and not terms.runs_protocol:
        raise AgreementProblem(
            "numbers are agreed for messages that are not reliable",
            key="sequence",
            remedy="only reliable messages are numbered",
        )
    if terms.numbered and terms.scope is Scope.TRIPLE and len(terms.transports) > 1:
        # A message keeps its number wherever it goes, and what it meets on another transport is
        # a stream in which that number has another place.
        raise AgreementProblem(
            "messages are numbered per transport, but may change their transport",
            key="sequence.scope",
            remedy="use scope pair or conversation, or one transport",
        )
    if terms.on_gap is OnGap.REJECT and terms.flow is not FlowMode.STOP_AND_WAIT and terms.numbered:
        raise AgreementProblem(
            "gaps are rejected, but several messages may be under way at once",
            key="sequence.on_gap",
            remedy="use stop-and-wait, or buffer early messages",
        )
    if terms.numbered and terms.reset is ResetRule.SILENT and terms.window_size > 1:
        # After the last number comes the first: with several under way at once, nothing
        # tells that from a restart.
        raise AgreementProblem(
            "restarts are silent, but several messages may be under way at once",
            key="sequence.reset",
            remedy="use stop-and-wait, or announce restarts (first-window, first-message)",
        )
