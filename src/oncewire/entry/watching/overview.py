"""Overview: what a watcher sees of a running party, as one value for pages and programs.

It is the snapshot that metrics are made of, with partners by their names and with what the
application refuses. It costs the same however many messages are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from oncewire.entry.party.names import Names
from oncewire.entry.watching.snapshot import PartnerSeen, snapshot
from oncewire.message.instant import Instant

if TYPE_CHECKING:
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
