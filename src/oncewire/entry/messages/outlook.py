"""Outlook: what has to happen before something goes on, and the command that makes it happen.

The journal tells what became of a message; whether its channel stands still, and when its timer
runs out, only the state rows know.
"""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote
from typing import TYPE_CHECKING

from oncewire.message.instant import SECOND, moment

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings
    from oncewire.message.instant import Instant
    from oncewire.protocol.sending import SendingChannel
    from oncewire.store.contract import Reader
    from oncewire.store.records import Incident, StoredOutgoing

PARTS_LOOKED_AT = 20_000
"""How many of the newest messages under way are searched for the parts of a document."""

SOON = 30 * SECOND
"""Nobody need be told how not to wait for what comes sooner."""


def outlook(
    reader: Reader, message_id: str, now: Instant, settings: Settings, place: str = ""
) -> str:
    """What must happen before a message that we send goes on; empty when nothing has to. Of one
    that is over, the reason that its notice gives. `place`: what commands need to find the party.
    """
    from oncewire.entry.messages.stored import outworn
    from oncewire.handler.perform import receiver_key
    from oncewire.protocol.states import FINAL_OUTGOING, OutgoingState

    stored = reader.outgoing(message_id)
    if stored is None:
        return ""
    sent = stored.outgoing
    if sent.state in FINAL_OUTGOING:
        return sent.reason
    channels = {each_channel.key: each_channel for each_channel in reader.channels()[0]}
    channel = channels.get(sent.channel or "")
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
    receiver = channels.get(receiver_key(stored.peer))
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
    said = f"the next try (or, after the last one, the verdict) is at {moment(due)}{sooner}"
    if old := outworn(settings, reader, message_id, now):
        named = f"{quote(message_id)}{place}"
        return (
            f"{said}; {old}, and whoever does not believe that any more refuses it: ask "
            f"(`oncewire ask {named}`), and if it is not known there give it up (`oncewire abandon "
            f"{named}`) and send the document as a new message"
        )
    return said


def _parts_that_wait(reader: Reader, stored: StoredOutgoing, now: Instant, place: str) -> str:
    """How many parts under way failed, and when the first of them is tried again."""
    from oncewire.protocol.states import OutgoingState

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
    from oncewire.protocol.states import FINAL_OUTGOING

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


def held_up(stored: StoredOutgoing, suspended: dict[str, SendingChannel]) -> str:
    """In a word, why a message stands where it does: its own reason, else its channel's."""
    from oncewire.protocol.states import FINAL_OUTGOING

    sent = stored.outgoing
    if sent.reason or sent.state in FINAL_OUTGOING:
        return sent.reason
    channel = suspended.get(sent.channel or "")
    if channel is not None:
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
    from oncewire.protocol.states import IncomingState
    from oncewire.store.transition.rows import FINAL_INCOMING

    stored = reader.outgoing(message_id)
    arrived = [] if stored is not None else reader.incoming(message_id)
    if any(kept.incoming.state is IncomingState.HELD for kept in arrived):
        return "resume"
    if arrived and any(kept.incoming.state not in FINAL_INCOMING for kept in arrived):
        return ""
    return "resume" if stored is None or can_resume(reader, stored, now) else "abandon"
