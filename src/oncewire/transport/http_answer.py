"""What an HTTP answer says of the attempt that it answers (ebMS 2.0 Appendix B.2)."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from oncewire.transport.contract import AttemptOutcome, OutcomeKind, Reply

_REASON_LENGTH = 300
# Nobody waits longer than a day because a peer said so.
_LONGEST_RETRY_AFTER = 86_400


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
