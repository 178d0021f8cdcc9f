"""Operating: what an administrator's word does to an outgoing message."""

from __future__ import annotations

from shlex import quote

from oncewire.errors import NotAllowed
from oncewire.message.instant import Instant, format_instant
from oncewire.protocol import notes
from oncewire.protocol.attempts import deadline_passed
from oncewire.protocol.effects import Effect, Resolve
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.settling import Fate, SenderStep, failure, go_on, note_of
from oncewire.protocol.states import FINAL_OUTGOING, OUTGOING, OutgoingEvent
from oncewire.protocol.terms import Terms


def resume(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, now: Instant
) -> SenderStep:
    """The operator resolved the incident: the counter returns to zero (RTY-13).

    Past persistDuration the same id must not be sent again: the message ends as unknown
    and its status is asked for (C37).
    """
    deadline = outgoing.deadline(terms)
    past = deadline is not None and now >= deadline
    if outgoing.state not in FINAL_OUTGOING and past:
        return deadline_passed(outgoing, channel, terms, now)
    check_resendable(outgoing, channel, terms, now)
    resumed = outgoing.moved(
        OutgoingEvent.RESUMED,
        attempts_here=0,
        transport=0,
        resumes=outgoing.resumes + 1,
        next_attempt_at=now,
        reason="",
        # Nobody took the notice of a failure that is none any more.
        notice_owed=False,
    )
    effects = (note_of(notes.Resumed(), resumed), Resolve(resumed.message_id, resumed.channel))
    return go_on(resumed, channel, terms, effects, Fate.KEPT)


def check_resendable(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, now: Instant
) -> None:
    """Raise NotAllowed, with the reason, if the same id must not be sent again."""
    why = _why_not_resent(outgoing, channel, terms, now)
    if why:
        message_id = outgoing.message_id
        raise NotAllowed(
            f"message {message_id} is {outgoing.state.value} and cannot be resent: {why}",
            remedy="send its content as a new message; `oncewire abandon "
            f"{quote(message_id)}` closes its incident, if one is open",
        )


def _why_not_resent(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, now: Instant
) -> str:
    deadline = outgoing.deadline(terms)
    if deadline is not None and now >= deadline:
        ended = f"its {outgoing.ended_by(terms)} has passed, at {format_instant(deadline)}"
        return f"{ended}, and its receiver need not know its id any more"
    if (outgoing.state, OutgoingEvent.RESUMED) not in OUTGOING:
        return "it is done with"
    # On a channel only a message that still has its number can be sent again in its place.
    if channel is not None and not channel.is_unsettled(outgoing.epoch, outgoing.number, terms):
        return "its place in the order of its channel was given up"
    return ""


def abandon(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, by: str | None = None
) -> SenderStep:
    """The operator, called `by`, gives the message up; on a numbered channel that ends the
    epoch."""
    final = outgoing.state in FINAL_OUTGOING
    # An outcome settles the number; only the suspension it caused may be left to end.
    if final and (channel is None or channel.suspended_by != outgoing.message_id):
        raise NotAllowed(
            f"message {outgoing.message_id} is {outgoing.state.value} already",
            remedy="there is nothing left to abandon",
        )
    event = OutgoingEvent.ABANDONED
    if final:
        # An outcome that was told stands, whatever became known of the attempts since.
        abandoned = outgoing.moved(event)
    else:
        abandoned = outgoing.failed(event, outgoing.unheard, "abandoned by the operator")
    effects: tuple[Effect, ...] = (
        note_of(notes.Abandoned(by), abandoned),
        Resolve(outgoing.message_id),
    )
    if not final:
        effects += failure(abandoned, "abandoned")
    return go_on(abandoned, channel, terms, effects, Fate.GIVEN_UP)
