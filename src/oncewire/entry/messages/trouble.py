"""Trouble: open incidents as people meet them, one for each partner and cause.

A partner that cannot be reached fails every message to it, each with an incident of its own. They
are one trouble: it is told once, with how many messages it is about and what failed last, and one
command ends all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote

from msgspec import Struct
from msgspec.structs import replace

from oncewire.entry.messages.outlook import next_steps
from oncewire.entry.party.names import Names
from oncewire.journal.history import failure_reason
from oncewire.message.instant import Instant
from oncewire.protocol.states import OutgoingState
from oncewire.store.contract import Reader
from oncewire.store.records import Incident

FAILED = (OutgoingState.NOT_DELIVERED, OutgoingState.UNKNOWN)

LOOKED_INTO = 1_000
"""Of so many incidents the journal is asked what failed last; others are told by their reason."""


class Trouble(Struct, frozen=True):
    """Incidents of one partner and one cause, or one that stands alone.

    `id`: of the first of them.
    `opened_at`, `last_at`, `resolved_at`: when the first and the last were opened, and when that
    was over, in microseconds since 1970.
    `problem`: what is wrong, in words. `count`: how many messages that is about.
    `partner`: whose they are; empty where it is about no message of ours.
    `message_id`: the first of the messages. `channel`: the channel, if it is about one.
    """

    id: int
    opened_at: Instant
    last_at: Instant
    problem: str
    count: int = 1
    partner: str = ""
    message_id: str | None = None
    channel: str | None = None
    resolved_at: Instant | None = None


def troubles(reader: Reader, names: Names, incidents: Iterable[Incident]) -> list[Trouble]:
    """Incidents by partner and cause, in the order of the first of each."""
    found: dict[tuple[object, ...], Trouble] = {}
    for looked_at, incident in enumerate(incidents):
        one, joins = _trouble(reader, names, incident, looks=looked_at < LOOKED_INTO)
        key = (one.partner, one.problem, one.resolved_at is None) if joins else (incident.id,)
        before = found.get(key)
        if before is None:
            found[key] = one
        else:
            latest = max(before.last_at, one.last_at)
            found[key] = replace(before, count=before.count + 1, last_at=latest)
    return list(found.values())


def _trouble(
    reader: Reader, names: Names, incident: Incident, *, looks: bool
) -> tuple[Trouble, bool]:
    """The trouble of one incident, and whether it is one with others like it."""
    opened, message_id = incident.opened_at, incident.message_id
    one = Trouble(
        incident.id,
        opened,
        opened,
        incident.reason,
        message_id=message_id,
        channel=incident.channel,
        resolved_at=incident.resolved_at,
    )
    if message_id is None:
        return one, False
    stored = reader.outgoing(message_id)
    if stored is None:
        for arrived in reader.incoming(message_id):
            facts = arrived.facts
            return replace(one, partner=names(facts.from_party, facts.cpa_id)), False
        return one, False
    facts = stored.facts
    one = replace(one, partner=names(facts.to_party, facts.cpa_id))
    if stored.outgoing.state not in FAILED or incident.channel is not None:
        return one, False
    last = failure_reason(reader.journal_of(message_id)) if looks else ""
    # What ended otherwise, by its lifetime or a refusal, says so itself.
    if last and "attempts" in one.problem and last not in one.problem:
        one = replace(one, problem=f"{one.problem}; the last one: {last}")
    return one, True


def advice(
    reader: Reader, found: list[Trouble], incidents: Iterable[Incident], now: Instant, place: str
) -> tuple[str, ...]:
    """What to run: what ends all of a trouble first, then what is for single messages."""
    ends = [
        f"oncewire resend --failed --to {quote(one.partner)}{place}"
        for one in found
        if one.count > 1 and one.resolved_at is None
    ]
    alone = {one.id for one in found if one.count == 1}
    left = [incident for incident in incidents if not ends or incident.id in alone]
    return (*dict.fromkeys(ends), *next_steps(reader, left, now, place))
