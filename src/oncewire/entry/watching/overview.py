"""What a watcher sees of a running party, as values for pages and programs: an overview, and
whether it is ready to take messages.

The overview is the snapshot that metrics are made of, with partners by their names and with what
the application refuses. It costs the same however many messages are kept.

Whoever starts handlers again asks whether one lives; whoever leads partners to them, whether it is
ready. A partner that is silent, or a certificate that runs out, is no reason to start anything
again: it is a doubt, which is told beside the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from oncewire.agreement.check.exposure import EXPIRING_SOON
from oncewire.entry.files import number_of, size_of
from oncewire.entry.party.names import Names
from oncewire.entry.watching.snapshot import PATIENCE, PartnerSeen, Snapshot, snapshot
from oncewire.errors import OncewireError
from oncewire.handler.perform import DAMAGED, STORE
from oncewire.message.instant import Instant, format_instant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncewire.handler.runtime.handler import Handler


class PartnerOverview(Struct, frozen=True):
    """One partner; instants are microseconds since 1970.

    `name`, `party_id`: what it is called here, and in messages.
    `silent_since`: since when attempts fail and nothing is heard, once that has lasted for
    `alerts.silent_intervals` retry intervals; 0: it answers. `reason`: why the last of them failed.
    `through`: the hub that messages to it go to; empty: they go to itself.
    `heard_at`: when anything of it was heard last in this run of the handler; 0: not yet.
    `oldest_at`: when the message was submitted that waits the longest; None: none waits.
    `outcomes`: how attempts of this run ended: sent, refused, unknown, later. `arrivals`: messages
    and signals of it that were believed. `window_used`, `window_size`: the fullest window to it.
    `certificate_ends`, `agreement_ends`: when they run out; None: they do not.
    """

    name: str
    party_id: str
    silent_since: Instant
    reason: str
    heard_at: Instant
    arrivals: int
    outcomes: dict[str, int]
    window_used: int
    window_size: int
    oldest_at: Instant | None
    certificate_ends: Instant | None
    agreement_ends: Instant | None
    through: str = ""


class RefusedMessage(Struct, frozen=True):
    """A message that the application is offered and refuses.

    `message_id`: its MessageId. `count`: how often it was refused. `last_at`: when last, in
    microseconds since 1970. `raised`: what the application raised then.
    """

    message_id: str
    count: int
    last_at: Instant
    raised: str


class Overview(Struct, frozen=True):
    """A handler that takes turns, at one moment; instants are microseconds since 1970.

    `party`: its name. `at`: the moment. `lag`: the longest wait for a turn in the last minute, and
    `commit`: how long commits take, both in seconds. `in_flight`: attempts under way.
    `journal`: its last row. `incidents`: how many are open. `clock_in_doubt`: whether the clock was
    set and nothing may expire. `strangers_refused`: messages of strangers that were refused.
    `certificate_ends`: when our own certificate ends. `disk_free`, `database`, `spool`: bytes.
    `partners`: each of them. `refusals`: what the application refuses.
    """

    party: str
    at: Instant
    lag: float
    commit: float
    in_flight: int
    journal: int
    incidents: int
    clock_in_doubt: bool
    strangers_refused: int
    certificate_ends: Instant | None
    disk_free: int | None
    database: int
    spool: int
    partners: tuple[PartnerOverview, ...]
    refusals: tuple[RefusedMessage, ...]


def overview(handler: Handler, names: Names, silent_intervals: int) -> Overview:
    """See how a handler does; from any thread but that of its loop. `silent_intervals`: after how
    many retry intervals a partner is called silent."""
    seen = snapshot(handler)
    return Overview(
        party=seen.party,
        at=seen.at,
        lag=seen.lag,
        commit=seen.commit,
        in_flight=seen.in_flight,
        journal=seen.journal,
        incidents=len(seen.incidents),
        clock_in_doubt=seen.clock_in_doubt,
        strangers_refused=seen.strangers,
        certificate_ends=seen.certificate_ends,
        disk_free=seen.space.free,
        database=seen.space.database,
        spool=seen.space.spool,
        partners=tuple(_partner(each, names, seen.at, silent_intervals) for each in seen.partners),
        refusals=tuple(
            RefusedMessage(message_id, *told) for message_id, told in handler.refusals().items()
        ),
    )


def _partner(
    seen: PartnerSeen, names: Names, now: Instant, silent_intervals: int
) -> PartnerOverview:
    contact = seen.contact
    return PartnerOverview(
        names(seen.party_id),
        seen.party_id,
        contact.silent_since if seen.is_silent(now, silent_intervals) else 0,
        contact.reason,
        contact.heard_at,
        contact.arrivals,
        {outcome.value: count for outcome, count in contact.outcomes.items()},
        seen.window_used,
        seen.window_size,
        seen.oldest_at,
        seen.certificate_ends,
        seen.agreement_ends,
        "" if seen.direct else names(seen.peer),
    )


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
