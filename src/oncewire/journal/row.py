"""One journal row: one thing that happened to a message, a channel or a node.

This is a public contract. Readers of the journal (the checker, Spark, an auditor) read these
columns; their meaning changes only with the version. The kinds are those of `protocol/notes.py`,
the details the classes of `protocol/notes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from oncewire.errors import JournalProblem
from oncewire.message.instant import Instant
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind, read_terms

JOURNAL_VERSION = 1
"""Raised whenever a column or the meaning of a kind changes."""


class Row(NamedTuple):
    """The columns, in the order every backend stores and every reader sees them."""

    seq: int
    """Position in this node's journal; positions of different nodes do not compare."""
    at: int
    """UTC instant, microseconds."""
    mono: int
    """Steady microseconds, asleep or awake; only rows of one boot, or of one machine, compare."""
    boot: str
    """Which run of the process wrote the row; before a dot, if there is one, the boot of the
    machine it ran on."""
    node: str
    """Which handler wrote the row."""
    kind: str
    """A value of Kind."""
    message_id: str | None = None
    ref_to: str | None = None
    terms_id: str | None = None
    channel: str | None = None
    epoch: int | None = None
    sequence_number: int | None = None
    attempt: int | None = None
    """1 for the first transmission of a message; counts on over transports and resumes."""
    hop: int | None = None
    peer: str | None = None
    """The other party or handler of this event."""
    transport: str | None = None
    digest: str | None = None
    """Identity digest of the message (gap 16), except for JOINED: SHA-256 of the document."""
    size: int | None = None
    detail: str | None = None
    """JSON object with what has no column of its own."""


COLUMNS: tuple[str, ...] = Row._fields


def machine_of(boot: str) -> str | None:
    """The boot of the machine that a run of the process was in; None where it was not noted."""
    machine, dot, _ = boot.partition(".")
    return machine if dot else None


# The columns as data, from which every backend derives its own schema, and rows from plain values.
#
# The types are Python's `int` (64 bits, signed) and `str`; instants and durations are `int`.


class Column(NamedTuple):
    """One column: its name, `int` or `str`, and whether it may be empty."""

    name: str
    type: type[int] | type[str]
    nullable: bool


_INTEGERS = {"seq", "at", "mono", "epoch", "sequence_number", "attempt", "hop", "size"}
_ALWAYS = {"seq", "at", "mono", "boot", "node", "kind"}

SCHEMA: tuple[Column, ...] = tuple(
    Column(name, int if name in _INTEGERS else str, name not in _ALWAYS) for name in COLUMNS
)
"""Every column in the order that all backends store and all readers see."""


def check_version(version: int | str | None) -> None:
    """Refuse a journal that another version wrote; `version` is what stands beside the rows."""
    if str(version) != str(JOURNAL_VERSION):
        raise JournalProblem(
            f"the journal has version {version}, this is a reader of version {JOURNAL_VERSION}",
            remedy="read it with the version of Oncewire that wrote it, or export it again",
        )


def rows_from_columns(columns: Mapping[str, Sequence[Any]]) -> Iterator[Row]:
    """Rows of a batch that is held by column, as Arrow does; a column left out is empty.

    Nothing is checked: this is the way of millions of rows whose schema was checked once.
    """
    missing = sorted(_ALWAYS - set(columns))
    if missing:
        raise JournalProblem(
            f"a batch of journal rows lacks {', '.join(missing)}",
            remedy="select every column that a journal row always has",
        )
    given = [columns.get(name, repeat(None)) for name in COLUMNS]
    return map(Row._make, zip(*given, strict=False))


# The contract of one row: what its kind must say before it is believed.
#
# Every reader asks here first. A row that breaks the contract is set aside with the
# reason: judged with the others, it would be told as a fault of its neighbours, or not at all.


NO_INSTANT: Instant = 253_402_300_800_000_000
"""The year 10000: calendars end before it, so a clock that shows it is not believed."""

MANDATORY: dict[str, tuple[str, ...]] = {
    kind.value: columns
    for kind, columns in {
        Kind.STARTED: ("detail",),
        Kind.STOPPED: (),
        Kind.TERMS: ("terms_id", "detail"),
        Kind.CLOCK_SET: ("detail",),
        Kind.TRIMMED: ("detail",),
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
        Kind.HOLD_SET: ("message_id",),
        Kind.HOLD_LIFTED: ("message_id",),
        Kind.INCIDENT: ("detail",),
        Kind.RESOLVED: ("detail",),
    }.items()
}
"""For each kind the columns without which it says nothing; those of every row are apart."""

_POSITIONS = {
    kind: tuple(Row._fields.index(name) for name in names) for kind, names in MANDATORY.items()
}
COUNTED = ("epoch", "sequence_number", "attempt", "hop", "size")
_DETAILS = {kind.value: cls for kind, cls in notes.DETAILS.items()}
_KNOWN_MAX = 4_096
_known: dict[tuple[str, str], str] = {}
"""Details that were read already, each with its problem: most rows say what others said."""


def problem_of(row: Row) -> str | None:
    """What breaks the contract, in words; None when nothing does."""
    kind, text = row.kind, row.detail
    mandatory = _POSITIONS.get(kind)
    if mandatory is None:
        return f"no journal of this version has the kind {kind!r}"
    if not 0 <= row.at < NO_INSTANT:
        return f"at is {row.at}, which no calendar has"
    for position in mandatory:
        if row[position] is None:
            return f"a row {kind!r} lacks its {Row._fields[position]}"
    for name in COUNTED:
        value = getattr(row, name)
        if value is not None and value < 0:
            return f"{name} is {value}, and nothing is counted below zero"
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
