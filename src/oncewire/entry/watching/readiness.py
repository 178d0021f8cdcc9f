"""Readiness: whether a handler lives, whether it can take messages, and if not, why.

Whoever starts handlers again asks whether one lives; whoever leads partners to them, whether it is
ready. A partner that is silent, or a certificate that runs out, is no reason to start anything
again: it is a doubt, which is told beside the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from oncewire.agreement.check.exposure import EXPIRING_SOON
from oncewire.entry.files import number_of, size_of
from oncewire.entry.watching.snapshot import PATIENCE, Snapshot, snapshot
from oncewire.errors import OncewireError
from oncewire.handler.perform import DAMAGED, STORE
from oncewire.message.instant import format_instant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncewire.handler.runtime.handler import Handler

SPACE_LOW = 1024**3
"""Bytes that the disk should have free: a full disk stops all messages."""

SPACE_NONE = 64 * 1024**2
"""With less a body of a usual size may not fit any more, and senders are sent away."""


class Readiness(Struct, frozen=True):
    """Whether messages can be taken.

    `ready`: the answer. `reasons`: why it is no. `doubts`: what is wrong besides, and is no reason
    to lead partners elsewhere.
    """

    ready: bool
    reasons: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def readiness(handler: Handler, patience: float = PATIENCE) -> Readiness:
    """Whether the handler can take messages now; from any thread but that of its loop."""
    try:
        seen = snapshot(handler, patience)
    except (OncewireError, TimeoutError) as problem:
        return Readiness(False, [str(problem)])
    return judge(seen)


def judge(seen: Snapshot) -> Readiness:
    """The readiness of what was seen."""
    reasons = list(_reasons(seen))
    return Readiness(not reasons, reasons, list(_doubts(seen)))


def _reasons(seen: Snapshot) -> Iterator[str]:
    free = seen.space.free
    if free is not None and free < SPACE_NONE:
        yield f"the disk is full: {size_of(free)} free"
    for incident in seen.incidents:
        if incident.channel in (STORE, DAMAGED):
            yield incident.reason


def _doubts(seen: Snapshot) -> Iterator[str]:
    free = seen.space.free
    if free is not None and SPACE_NONE <= free < SPACE_LOW:
        yield f"the disk is nearly full: {size_of(free)} free"
    ends = seen.certificate_ends
    if ends is not None and ends <= seen.at + EXPIRING_SOON:
        word = "ended" if ends <= seen.at else "ends"
        yield f"our own certificate {word} at {format_instant(ends)}"
    silent = sum(bool(partner.contact.silent_since) for partner in seen.partners)
    if silent:
        yield f"{number_of(silent, 'partner', 'is')} silent"
    if seen.refused:
        yield f"the application refuses {number_of(seen.refused, 'message')}"
    if seen.incidents:
        yield f"{number_of(len(seen.incidents), 'incident', 'is')} open"
    if seen.clock_in_doubt:
        yield "the clock is in doubt"
