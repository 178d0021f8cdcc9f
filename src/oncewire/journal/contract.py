"""The contract of one row: what its kind must say before anybody believes it.

Whoever takes rows in asks here first. A row that breaks the contract is set aside with the reason:
judged with the others, it would be told as a fault of its neighbours, or not at all.
"""

from __future__ import annotations

from oncewire.errors import JournalProblem
from oncewire.journal.row import Row
from oncewire.message.instant import Instant
from oncewire.protocol import notes
from oncewire.protocol.detail import read_terms
from oncewire.protocol.kinds import Kind

NO_INSTANT: Instant = 253_402_300_800_000_000
"""The year 10000: calendars end before it, so a clock that shows it is not believed."""

MANDATORY: dict[str, tuple[str, ...]] = {
    kind.value: columns
    for kind, columns in {
        Kind.STARTED: ("detail",),
        Kind.STOPPED: (),
        Kind.TERMS: ("terms_id", "detail"),
        Kind.CLOCK_SET: ("detail",),
        Kind.SUBMITTED: ("message_id", "terms_id", "digest"),
        Kind.NUMBERED: ("message_id", "terms_id", "channel", "epoch", "sequence_number"),
        Kind.SENT: ("message_id", "attempt", "transport"),
        Kind.SEND_FAILED: ("message_id",),
        Kind.ACKNOWLEDGED: ("message_id",),
        Kind.REJECTED: ("message_id", "detail"),
        Kind.WARNED: ("message_id", "detail"),
        Kind.TRANSIENT: ("message_id", "detail"),
        Kind.EXHAUSTED: ("message_id", "transport"),
        Kind.EXPIRED: ("message_id", "detail"),
        Kind.FAILED: ("message_id", "detail"),
        Kind.NOTIFIED: ("message_id", "detail"),
        Kind.SUSPENDED: (),
        Kind.RESUMED: (),
        Kind.ABANDONED: ("message_id",),
        Kind.EPOCH_ENDED: ("channel",),
        Kind.RECEIVED: ("message_id", "terms_id", "digest"),
        Kind.DUPLICATE: ("message_id",),
        Kind.REFUSED: ("detail",),
        Kind.IGNORED: (),
        Kind.SKIPPED: ("channel", "epoch", "sequence_number"),
        Kind.EPOCH_BEGAN: ("channel", "epoch"),
        Kind.WARNING_SENT: ("message_id", "detail"),
        Kind.ACK_SENT: ("message_id", "ref_to"),
        Kind.HANDED_OVER: ("message_id",),
        Kind.CONFIRMED: ("message_id",),
        Kind.JOINED: ("message_id", "digest", "detail"),
        Kind.FORWARDED: ("message_id", "terms_id"),
        Kind.PASSED_ON: ("message_id", "peer"),
        Kind.INCIDENT: ("detail",),
        Kind.RESOLVED: ("detail",),
    }.items()
}
"""For each kind the columns without which it says nothing; those of every row are apart."""

_POSITIONS = {
    kind: tuple(Row._fields.index(name) for name in names) for kind, names in MANDATORY.items()
}
_DETAILS = {kind.value: cls for kind, cls in notes.DETAILS.items()}
_KNOWN_MAX = 4_096
_known: dict[tuple[str, str], str] = {}
"""Details that were read already, each with its problem: most rows say what others said."""


def problem_of(row: Row) -> str | None:
    """What breaks the contract, in words; None when nothing does."""
    kind = row[5]
    mandatory = _POSITIONS.get(kind)
    if mandatory is None:
        return f"no journal of this version has the kind {kind!r}"
    if not 0 <= row[1] < NO_INSTANT:
        return f"at is {row[1]}, which no calendar has"
    for position in mandatory:
        if row[position] is None:
            return f"a row {kind!r} lacks its {Row._fields[position]}"
    text = row[18]
    if text is None:
        return None
    found = _known.get((kind, text))
    if found is None:
        found = _problem_of_detail(kind, text)
        if len(text) < 120:
            if len(_known) >= _KNOWN_MAX:
                _known.clear()
            _known[kind, text] = found
    return found or None


def _problem_of_detail(kind: str, text: str) -> str:
    try:
        if kind == Kind.TERMS.value:
            read_terms(text)
        elif kind in _DETAILS:
            _DETAILS[kind].read(text)
    except JournalProblem as problem:
        return problem.problem
    return ""
