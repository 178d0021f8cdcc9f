"""Outlook: what stops a message, the command that makes it go on, and open trouble.

The journal tells what became of a message; whether its channel stands still, and when its timer
runs out, only the state rows know.
"""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oncewire.journal.history import failure_reason
from oncewire.message.instant import SECOND, Instant, moment
from oncewire.protocol.states import FINAL_OUTGOING, IncomingState, OutgoingState
from oncewire.store.contract import Reader
from oncewire.store.records import Incident, StoredIncoming, StoredOutgoing

if TYPE_CHECKING:
    from oncewire.entry.party.names import Names
    from oncewire.entry.party.settings import Settings

PARTS_LOOKED_AT = 20_000
"""How many of the newest messages under way are searched for the parts of a document."""

SOON = 30 * SECOND
"""How not to wait for what comes sooner is not worth telling."""


_DISTRUSTED = ("ended before the answer", "CERTIFICATE", "ALERT", "Connection reset", "pinned")
"""In the reasons of attempts that a certificate may have ended, which nobody says over the line."""


def outlook(
    reader: Reader, message_id: str, now: Instant, settings: Settings, place: str = ""
) -> str:
    """What must happen before a message that we send goes on; empty when nothing has to. Of one
    that is over, the reason that its notice gives. `place`: what commands need to find the party.
    """
    from oncewire.entry.messages.stored import outworn
    from oncewire.handler.perform import receiver_key

    stored = reader.outgoing(message_id)
    if stored is None:
        return ""
    sent = stored.outgoing
    if sent.state in FINAL_OUTGOING:
        return sent.reason
    channel = reader.sending_channel(sent.channel or "")
    if channel is not None and channel.suspended:
        return (
            f"its channel {channel.key} is suspended ({channel.suspended_reason}) until "
            f"`{resume_channel(channel.key, place)}`"
        )
    trouble = [
        incident.reason for incident in reader.incidents() if incident.message_id == message_id
    ]
    if trouble and sent.state is not OutgoingState.SUSPENDED:
        return f"{trouble[0]}; it is looked at again every minute while a handler runs"
    parts = progress(reader, stored)
    if parts:
        return f"it travels in parts: {parts}{_parts_that_wait(reader, stored, now, place)}"
    if sent.state is OutgoingState.WAITING:
        return "it waits for a place in the window of its channel"
    if sent.next_attempt_at is None:
        return ""
    receiver = reader.sending_channel(receiver_key(stored.peer))
    due = max(sent.next_attempt_at, 0 if receiver is None else receiver.paused_until)
    terms = reader.terms(sent.terms_id)
    if terms is not None and terms.never_repeated and sent.attempts_here:
        at = (
            f"while a handler runs (`oncewire serve{place}`)" if due <= now else f"at {moment(due)}"
        )
        return f"it is not sent again (sync.retries = none), and its outcome is known {at}"
    if due <= now:
        return f"it is due now, and leaves while a handler runs (`oncewire serve{place}`)"
    if sent.attempts == 0:
        return f"the first try is at {moment(due)}"
    sooner = "" if due - now < SOON else f"; `oncewire resume {quote(message_id)}{place}` tries now"
    if any(word in failure_reason(reader.journal_of(message_id)) for word in _DISTRUSTED):
        sooner += (
            f"; `oncewire doctor{place}` looks whether both sides know each other's certificate"
        )
    said = f"the next try (or, after the last one, the verdict) is at {moment(due)}{sooner}"
    if old := outworn(settings, reader, message_id, now):
        named = f"{quote(message_id)}{place}"
        return (
            f"{said}; {old}, and whoever does not believe that any more refuses it: ask "
            f"(`oncewire ask {named}`), and if it is not known there give it up (`oncewire abandon "
            f"{named}`) and send the document as a new message"
        )
    return said


def held_for(reader: Reader, arrived: StoredIncoming) -> str:
    """What a received message that is held waits for; empty where it is not held by its number."""
    incoming = arrived.incoming
    channel = reader.receiving_channel(incoming.channel or "")
    if incoming.state is not IncomingState.HELD or channel is None or incoming.number is None:
        return ""
    if channel.epoch != incoming.epoch or channel.expected == incoming.number:
        return ""
    return (
        f" It is held until number {channel.expected} of channel {channel.key}, which has not "
        "come, and all up to its own have."
    )


def _parts_that_wait(reader: Reader, stored: StoredOutgoing, now: Instant, place: str) -> str:
    """How many parts under way failed, and when the first of them is tried again."""

    message_id = stored.outgoing.message_id
    waiting = [
        part.outgoing.next_attempt_at
        for part in reader.outgoing_list(states=(OutgoingState.OUTSTANDING,), limit=PARTS_LOOKED_AT)
        if part.facts.split_id == message_id
        and part.outgoing.attempts_lost
        and part.outgoing.next_attempt_at is not None
    ]
    if not waiting:
        return ""
    many = "1 part failed" if len(waiting) == 1 else f"{len(waiting)} parts failed"
    said = f"; {many}, the next try is at {moment(min(waiting))}"
    if min(waiting) - now < SOON:
        return said
    return f"{said}; `oncewire resume {quote(message_id)}{place}` tries now"


def progress(reader: Reader, stored: StoredOutgoing) -> str:
    """How far a document is that is sent in parts; empty where it is none, or over."""

    facts, sent = stored.facts, stored.outgoing
    if facts.split_id != sent.message_id or sent.state in FINAL_OUTGOING:
        return ""
    document = reader.document("", sent.message_id)
    if document is None:
        return ""
    share = document.count * 100 // document.total
    return f"{document.count} of {document.total} parts are there ({share} %)"


def tries(stored: StoredOutgoing) -> int | None:
    """How often a message was tried; None of a document of which only the parts travel."""
    from oncewire.handler.sending.outgoing_document import is_whole

    return None if is_whole(stored) else stored.outgoing.attempts


def resume_channel(key: str, place: str = "") -> str:
    """The command that lets a channel go on; a key has characters that a shell would read."""
    return f"oncewire resume --channel {quote(key)}{place}"


def held_up(reader: Reader, stored: StoredOutgoing) -> str:
    """In a word, why a message stands where it does: its own reason, else its channel's."""

    sent = stored.outgoing
    if sent.reason or sent.state in FINAL_OUTGOING:
        return sent.reason
    channel = None if sent.channel is None else reader.sending_channel(sent.channel)
    if channel is not None and channel.suspended:
        return f"channel suspended: {channel.suspended_reason}"
    if sent.attempts and sent.attempts == sent.attempts_lost:
        return "cannot be reached"
    return ""


def is_of_clock(incident: Incident) -> bool:
    """Whether it is about the machine's clock: that belongs to no message and no channel."""
    return incident.message_id is None and incident.channel is None


def next_steps(
    reader: Reader, incidents: Iterable[Incident], now: Instant, place: str
) -> tuple[str, ...]:
    """What to run about open incidents: one command of each kind, for the first that needs it."""
    from oncewire.handler.delivering.notices import is_about_a_notice

    found: dict[str, str] = {}
    for incident in incidents:
        if incident.message_id is None:
            if is_of_clock(incident):
                found.setdefault("clock", f"oncewire clock accept{place}")
            if incident.channel is not None:
                kind, command = _of_channel(incident.channel, place)
                found.setdefault(kind, command)
            continue
        named = f"{quote(incident.message_id)}{place}"
        found.setdefault("why", f"oncewire why {named}")
        if is_about_a_notice(incident.reason):
            found.setdefault("notices", f"oncewire notices{place}")
            continue
        verb = _verb(reader, incident.message_id, now)
        if verb:
            found.setdefault(verb, f"oncewire {verb} {named}")
    return tuple(found.values())


def resolving(reader: Reader, message_id: str, now: Instant, place: str) -> tuple[str, ...]:
    """What to run about the open incidents of one message, whose `why` was asked already."""
    named = [incident for incident in reader.incidents() if incident.message_id == message_id]
    steps = next_steps(reader, named, now, place)[1:]
    if not steps and any("`oncewire abandon" in incident.reason for incident in named):
        # The application is what is to be mended; what it can never take is given up.
        return (f"oncewire abandon {quote(message_id)}{place}",)
    return steps


def _of_channel(channel: str, place: str) -> tuple[str, str]:
    """What helps a channel on, and of which kind that is. What is about files, a way, an address or
    the store is closed when they are right again: to resume it would only silence it."""
    from oncewire.entry.party.agreements import AGREEMENT, FILES
    from oncewire.handler.perform import DAMAGED, STORE, WAY
    from oncewire.handler.sending.answer import ANSWER_CHANNEL

    if channel.startswith((AGREEMENT, ANSWER_CHANNEL)):
        return "agreement", f"oncewire agreement check{place}"
    if channel in (FILES, STORE, DAMAGED) or channel.startswith(WAY):
        return "doctor", f"oncewire doctor{place}"
    return "channel", resume_channel(channel, place)


def _verb(reader: Reader, message_id: str, now: Instant) -> str:
    """What an operator may do about a message; empty: no command helps. What arrived is the
    application's to take, so that is what is mended, unless it stands here because its way on is
    gone; what cannot be sent again under its id (C37) can only be given up."""
    from oncewire.handler.runtime.operate import can_resume
    from oncewire.store.transition.rows import FINAL_INCOMING

    stored = reader.outgoing(message_id)
    arrived = [] if stored is not None else reader.incoming(message_id)
    if any(kept.incoming.state is IncomingState.HELD for kept in arrived):
        return "resume"
    if arrived and any(kept.incoming.state not in FINAL_INCOMING for kept in arrived):
        return ""
    return "resume" if stored is None or can_resume(reader, stored, now) else "abandon"


# Trouble: open incidents as people meet them, one for each partner and cause.
#
# A partner that cannot be reached fails every message to it, each with an incident of its own.
# They are one trouble: it is told once, with how many messages it is about and what failed last,
# and one command ends all of it.

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


def incidents_of(
    reader: Reader, outage: tuple[Instant, str] | None, *, every: bool = False
) -> list[Incident]:
    """The open incidents, or every one. `outage`: of a handler whose store can keep none of its
    own."""
    from oncewire.handler.perform import STORE

    found = list(reader.incidents(open_only=not every))
    if outage and all(each.channel != STORE or each.resolved_at for each in found):
        found.append(Incident(0, *outage, channel=STORE))
    return found


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
