"""What an HTTP attempt says of itself: from an answer, or from what went wrong instead of one."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime

from oncewire.transport.contract import AttemptOutcome, OutcomeKind, Reply
from oncewire.transport.http_pool import Answer

_REASON_LENGTH = 300
# Nobody waits longer than a day because a peer said so.
_LONGEST_RETRY_AFTER = 86_400

# Alerts by which a TLS 1.3 server ends a handshake that we believed finished: it had not taken
# our certificate, so it has not read the request either.
_HANDSHAKE_ALERTS = (
    "CERTIFICATE_REQUIRED", "UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED", "CERTIFICATE_UNKNOWN", "UNSUPPORTED_CERTIFICATE", "ACCESS_DENIED",
    "HANDSHAKE_FAILURE",
)  # fmt: skip


def judge(answer: Answer) -> AttemptOutcome:
    """What a whole answer says of the attempt."""
    headers = answer.head.headers
    reply = Reply(
        status=answer.head.status,
        content_type=headers.get("Content-Type", ""),
        headers=headers.pairs,
        body=answer.body,
        retry_after=retry_after(headers),
    )
    return outcome_of(reply, answer.head.phrase)


def outcome_of(reply: Reply, phrase: str = "") -> AttemptOutcome:
    """What an HTTP answer says of the attempt (ebMS 2.0 Appendix B.2)."""
    status = reply.status
    if 200 <= status < 300:
        return AttemptOutcome(OutcomeKind.SENT, reply=reply)
    reason = f"HTTP {status} {phrase}".strip()[:_REASON_LENGTH]
    # A redirect is not followed: the agreement names the address, not whoever answers there.
    refused = 300 <= status < 500
    kind = OutcomeKind.REFUSED if refused else OutcomeKind.UNKNOWN
    return AttemptOutcome(kind, reason, reply, reply.retry_after)


def retry_after(headers: Mapping[str, str]) -> int | None:
    """Seconds to wait, from seconds or from a date (measured against the answer's own Date)."""
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return min(int(text[:10]), _LONGEST_RETRY_AFTER)
    try:
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("Date", ""))
    except (ValueError, TypeError):
        return None
    return min(max(int(wait.total_seconds()), 0), _LONGEST_RETRY_AFTER)


def failed(error: Exception, *, sent: bool) -> AttemptOutcome:
    """What a failure says of the attempt; `sent`: a byte of it may have left."""
    reason = _error_text(error)[:_REASON_LENGTH]
    if not sent or _ended_handshake(error):
        return AttemptOutcome(OutcomeKind.REFUSED, reason)
    return AttemptOutcome(OutcomeKind.UNKNOWN, reason)


def _error_text(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"timed out: {error}" if str(error) else "timed out"
    return str(error) or type(error).__name__


def _ended_handshake(error: BaseException) -> bool:
    return any(
        isinstance(cause, ssl.SSLError)
        and "ALERT" in (cause.reason or "")
        and any(alert in (cause.reason or "") for alert in _HANDSHAKE_ALERTS)
        for cause in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    seen = 0
    while current is not None and seen < 10:
        yield current
        current = current.__cause__ or current.__context__
        seen += 1
