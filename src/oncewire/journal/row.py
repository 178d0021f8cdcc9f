"""One journal row: one thing that happened to a message, a channel or a node.

This is a public contract. Whoever reads the journal (the checker, Spark, an auditor) reads these
columns; their meaning changes only with the version. The kinds are those of `protocol/kinds.py`,
the details the classes of `protocol/notes.py`.
"""

from __future__ import annotations

from typing import NamedTuple

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
    """The boot of the machine that a run of the process was in; None where nobody noted it."""
    machine, dot, _ = boot.partition(".")
    return machine if dot else None
