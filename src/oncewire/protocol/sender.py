"""The sender: what happens to one outgoing message, from submission to its outcome.

Each function is one event. It takes the message, its channel (None where the stream is
neither numbered nor limited), the terms and `now`, and returns a `Sent` step: the new
state and the effects to perform once that state is saved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from oncewire.errors import NotAllowed
from oncewire.message.fault import Error, ErrorClass, Severity
from oncewire.message.header import SyncReplyMode
from oncewire.message.instant import Instant, seconds
from oncewire.protocol.effects import (
    Admit,
    AskStatus,
    Effect,
    Note,
    Notify,
    Raise,
    Resolve,
    Transmit,
)
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import FINAL_OUTGOING, OUTGOING, OutgoingEvent, OutgoingState
from oncewire.protocol.terms import OnExhausted, RetryCount, SyncRetries, Terms

NUMBER_NOTED = frozenset({"TimeToLiveExpired"})
"""Refusals that prove the receiver moved past the number.

Most errors are raised before a receiver has judged the number, or even knows which stream
it belongs to (an unknown agreement, a bad signature). After such a refusal the number is
given up like an abandoned one: the stream restarts, instead of waiting for a number that
its receiver never noted.
"""

_LIVE = (OutgoingState.OUTSTANDING, OutgoingState.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Sent:
    """One step of the sender."""

    outgoing: Outgoing
    channel: SendingChannel | None = None
    effects: tuple[Effect, ...] = ()


def enter_window(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, now: Instant
) -> Sent:
    """The message gets its place and number and may be transmitted at once (gap 14)."""
    event, to = OutgoingEvent.WINDOW_ENTERED, OutgoingState.OUTSTANDING
    if channel is None:
        return Sent(outgoing.moved(event, to, next_attempt_at=now))
    entered, sequence = channel.enter(terms)
    numbered = outgoing.moved(
        event,
        to,
        next_attempt_at=now,
        epoch=entered.epoch,
        number=sequence.number,
        status=sequence.status,
    )
    facts = {"status": sequence.status.value} if sequence.status else {}
    return Sent(numbered, entered, (_note("numbered", numbered, **facts),))


def attempt_due(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, now: Instant
) -> Sent:
    """The timer ran out: send, resend, change the transport, or give up."""
    if outgoing.state is not OutgoingState.OUTSTANDING:
        return Sent(replace(outgoing, next_attempt_at=None), channel)
    deadline = outgoing.deadline(terms)
    if deadline is not None and now >= deadline:
        return deadline_passed(outgoing, channel, terms, now)
    if outgoing.next_attempt_at is None or now < outgoing.next_attempt_at:
        return Sent(outgoing, channel)
    if channel is not None and channel.suspended:
        # The timer stays as it is: whoever lifts the suspension finds it due.
        return Sent(outgoing, channel)
    if channel is not None and now < channel.paused_until:
        return Sent(replace(outgoing, next_attempt_at=channel.paused_until), channel)
    if _is_exhausted(outgoing, terms):
        return _exhausted(outgoing, channel, terms, now)
    return _transmit(outgoing, channel, terms, now)


def _is_exhausted(outgoing: Outgoing, terms: Terms) -> bool:
    if not terms.runs_protocol:
        return outgoing.attempts > 0
    return outgoing.attempts_here > _retries(terms)


def _retries(terms: Terms) -> int:
    """No retry is made inside a synchronous exchange where so agreed (SYNC-18)."""
    if terms.sync_mode is not SyncReplyMode.NONE and terms.sync_retries is SyncRetries.NONE:
        return 0
    return terms.retries


def _transmit(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, now: Instant
) -> Sent:
    first = outgoing.attempts_here == 0
    # The first resend waits Timeout, later ones RetryInterval (RTY-1, RTY-2).
    wait = terms.timeout if first else terms.retry_interval
    to = OutgoingState.OUTSTANDING if terms.reliable else OutgoingState.SENT
    sent = outgoing.moved(
        OutgoingEvent.ATTEMPT_DUE,
        to,
        attempts=outgoing.attempts + 1,
        attempts_here=outgoing.attempts_here + 1,
        first_sent_at=now if outgoing.first_sent_at is None else outgoing.first_sent_at,
        last_sent_at=now,
        next_attempt_at=now + wait if terms.runs_protocol else None,
    )
    transport = outgoing.transport_name(terms)
    return Sent(
        sent,
        channel,
        (
            _note("sent", sent, transport=transport),
            Transmit(sent.message_id, sent.attempts, transport),
        ),
    )


def transmission_failed(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    now: Instant,
    *,
    attempt: int,
    certain: bool,
    reason: str,
) -> Sent:
    """The transport could not recover (RTY-6). `certain`: the message did not get across."""
    note = Note(
        "send_failed",
        outgoing.message_id,
        channel=outgoing.channel,
        attempt=attempt,
        transport=outgoing.transport_name(terms),
        detail={"outcome": "refused" if certain else "unknown", "reason": reason[:300]},
    )
    lost = outgoing.attempts_lost + (1 if certain else 0)
    if outgoing.state is not OutgoingState.OUTSTANDING or attempt != outgoing.attempts:
        # A report about an earlier attempt changes no timer.
        return Sent(replace(outgoing, attempts_lost=lost), channel, (note,))
    if not terms.runs_protocol:
        # The product that was trusted with the delivery reports that it failed (RM-8).
        failed = replace(outgoing, attempts_lost=lost)
        event = OutgoingEvent.TRANSMISSION_FAILED
        return _fail(failed, channel, terms, event, f"transport: {reason}", (note,))
    # Wait a retry interval from now, but never resend before the timer that runs already.
    due = max(outgoing.next_attempt_at or now, now + terms.retry_interval)
    return Sent(
        outgoing.moved(
            OutgoingEvent.TRANSMISSION_FAILED,
            OutgoingState.OUTSTANDING,
            attempts_lost=lost,
            next_attempt_at=due,
        ),
        channel,
        (note,),
    )


def transmission_ended(outgoing: Outgoing, channel: SendingChannel | None, terms: Terms) -> Sent:
    """The transport took the message. Only a reliable transport's word settles it (RM-7)."""
    trusted = terms.reliable and not terms.runs_protocol
    if not trusted or outgoing.state is not OutgoingState.OUTSTANDING:
        return Sent(outgoing, channel)
    event = OutgoingEvent.TRANSMISSION_ENDED
    delivered = outgoing.moved(event, OutgoingState.DELIVERED, next_attempt_at=None)
    return _settle(delivered, channel, terms, (_note("acknowledged", delivered, by="transport"),))


def ack_arrived(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    *,
    ack_id: str,
    by: str = "ack",
) -> Sent:
    """A matching acknowledgement: the message is delivered, its number settled.

    One for a message that was never sent, or that is delivered already, changes nothing
    (RM-14); one that comes after the failure was reported is recorded as late (DRV-7).
    """
    if outgoing.attempts == 0 or outgoing.state in (OutgoingState.DELIVERED, OutgoingState.SENT):
        return Sent(outgoing, channel)
    late = outgoing.state not in _LIVE
    delivered = outgoing.moved(
        OutgoingEvent.ACK_ARRIVED,
        OutgoingState.DELIVERED,
        next_attempt_at=None,
        late=late,
        reason="acknowledged late" if late else "",
    )
    facts: dict[str, object] = {"by": by}
    if late:
        facts["late"] = True
    effects: tuple[Effect, ...] = (
        replace(_note("acknowledged", delivered), ref_to=ack_id, detail=facts),
    )
    if outgoing.state is not OutgoingState.OUTSTANDING:
        effects += (Resolve(outgoing.message_id),)
    return _settle(delivered, channel, terms, effects)


def error_arrived(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    now: Instant,
    *,
    error: Error,
    error_id: str,
) -> Sent:
    """An error message names this message: recover as its class demands (ERR-1)."""
    kind = error.error_class
    if outgoing.attempts == 0 or outgoing.state is OutgoingState.SENT:
        return Sent(outgoing, channel)
    if kind is ErrorClass.TRANSIENT:
        return _transient(outgoing, channel, terms, now, error, error_id)
    if kind is ErrorClass.COMMUNICATION and outgoing.state is OutgoingState.OUTSTANDING:
        return transmission_failed(
            outgoing,
            channel,
            terms,
            now,
            attempt=outgoing.attempts,
            certain=False,
            reason=error.description or error.code,
        )
    if kind is ErrorClass.MESSAGING:
        return _messaging_error(outgoing, channel, terms, error, error_id)
    # An invalid sequence number: the message stays outstanding, and so does the missing
    # one before it; both are resent by their own timers (SEQ-10).
    note = replace(
        _note("send_failed", outgoing),
        ref_to=error_id,
        detail={"outcome": "refused", "reason": _words(error)[:300]},
    )
    return Sent(outgoing, channel, (note,))


def _transient(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    now: Instant,
    error: Error,
    error_id: str,
) -> Sent:
    """Pause the whole channel for MinRetrySecs, or for RetryInterval (RTY-8)."""
    if error.min_retry_secs is None:
        until = now + terms.retry_interval
    else:
        until = now + seconds(error.min_retry_secs)
    note = replace(_error_note("transient", outgoing, error, error_id), detail={"until": until})
    if outgoing.state is not OutgoingState.OUTSTANDING:
        return Sent(outgoing, channel, (note,))
    paused = channel.pause(until) if channel is not None else None
    # The pause may end before the retry law allows a resend; the later of the two holds.
    due = max(until, outgoing.next_attempt_at or until)
    waiting = outgoing.moved(
        OutgoingEvent.ERROR_ARRIVED, OutgoingState.OUTSTANDING, next_attempt_at=due
    )
    return Sent(waiting, paused, (note,))


def _messaging_error(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    error: Error,
    error_id: str,
) -> Sent:
    """Passed to the higher level, and the transfer goes on (ERR-2)."""
    note = _error_note("rejected", outgoing, error, error_id)
    event = OutgoingEvent.ERROR_ARRIVED
    if outgoing.state is OutgoingState.DELIVERED:
        # Only the hop that took responsibility can take its acknowledgement back (HOP-9).
        if error.code != "DeliveryFailure":
            return Sent(outgoing, channel)
        to = (
            OutgoingState.NOT_DELIVERED
            if error.severity is Severity.ERROR
            else OutgoingState.UNKNOWN
        )
        failed = outgoing.moved(event, to, reason=_words(error), notice_owed=True)
        return Sent(failed, channel, (note, *_failure(failed, error.severity, "rejected")))
    if error.severity is Severity.WARNING or outgoing.state is OutgoingState.NOT_DELIVERED:
        # A warning is news, not an answer: the acknowledgement is still awaited.
        return Sent(outgoing, channel)
    refused = outgoing.moved(
        event,
        OutgoingState.NOT_DELIVERED,
        next_attempt_at=None,
        reason=_words(error),
        notice_owed=True,
    )
    effects = (note, *_failure(refused, Severity.ERROR, "rejected"))
    if error.code in NUMBER_NOTED:
        return _settle(refused, channel, terms, effects)
    return _give_up_number(refused, channel, terms, effects)


def deadline_passed(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, now: Instant
) -> Sent:
    """TimeToLive or persistDuration is over: never sent again under this id (RTY-17)."""
    deadline = outgoing.deadline(terms)
    if outgoing.state in FINAL_OUTGOING or deadline is None or now < deadline:
        return Sent(outgoing, channel)
    by = "TimeToLive" if outgoing.expires_at == deadline else "persistDuration"
    note = _note("expired", outgoing, by=by)
    step = _fail(
        outgoing, channel, terms, OutgoingEvent.DEADLINE_PASSED, f"{by} has passed", (note,)
    )
    if step.outgoing.state is OutgoingState.UNKNOWN and by == "persistDuration":
        return replace(step, effects=(*step.effects, AskStatus(outgoing.message_id)))
    return step


def _exhausted(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, now: Instant
) -> Sent:
    """The last retry went unanswered: another transport, the operator, or failure."""
    note = _note("exhausted", outgoing, transport=outgoing.transport_name(terms))
    per_transport = terms.retries_counted is RetryCount.PER_TRANSPORT
    if per_transport and outgoing.transport + 1 < len(terms.transports):
        changed = replace(outgoing, transport=outgoing.transport + 1, attempts_here=0)
        step = _transmit(changed, channel, terms, now)
        return replace(step, effects=(note, *step.effects))
    reason = f"no acknowledgement after {outgoing.attempts} attempts"
    if terms.on_exhausted is OnExhausted.SUSPEND_CHANNEL:
        suspended = outgoing.moved(
            OutgoingEvent.RETRIES_EXHAUSTED,
            OutgoingState.SUSPENDED,
            next_attempt_at=None,
            reason=reason,
        )
        return _suspend(suspended, channel, reason, (note,))
    return _fail(outgoing, channel, terms, OutgoingEvent.RETRIES_EXHAUSTED, reason, (note,))


def _fail(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    event: OutgoingEvent,
    reason: str,
    effects: tuple[Effect, ...],
) -> Sent:
    """Set the honest outcome: not delivered if it never left, else unknown (S5)."""
    to = OutgoingState.UNKNOWN if outgoing.transmitted else OutgoingState.NOT_DELIVERED
    failed = outgoing.moved(event, to, next_attempt_at=None, reason=reason, notice_owed=True)
    severity = Severity.WARNING if outgoing.transmitted else Severity.ERROR
    effects = (*effects, *_failure(failed, severity, _WHY[event]))
    unsettled = channel is not None and channel.is_unsettled(failed.epoch, failed.number, terms)
    if unsettled and terms.on_exhausted is OnExhausted.SUSPEND_CHANNEL:
        # Skipping the number would break the order: the operator decides (C22, C37).
        return _suspend(failed, channel, reason, effects)
    return _give_up_number(failed, channel, terms, (*effects, Raise(reason, failed.message_id)))


def _suspend(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    reason: str,
    effects: tuple[Effect, ...],
) -> Sent:
    key = outgoing.channel
    if channel is not None and not channel.suspended:
        channel = channel.suspend(reason, outgoing.message_id)
    note = Note("suspended", outgoing.message_id, channel=key, detail={"reason": reason})
    return Sent(outgoing, channel, (*effects, note, Raise(reason, outgoing.message_id, key)))


def resume(outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, now: Instant) -> Sent:
    """The operator resolved the incident: the counter returns to zero (RTY-13).

    Past persistDuration the same id must not be sent again: the message ends as unknown
    and its status is asked for (C37).
    """
    deadline = outgoing.deadline(terms)
    past = deadline is not None and now >= deadline
    if outgoing.state in _LIVE and past:
        return deadline_passed(outgoing, channel, terms, now)
    given_up = outgoing.number is not None and not (
        channel is not None and channel.is_unsettled(outgoing.epoch, outgoing.number, terms)
    )
    if past or given_up or (outgoing.state, OutgoingEvent.RESUMED) not in OUTGOING:
        raise NotAllowed(
            f"message {outgoing.message_id} is {outgoing.state.value} and cannot be resent",
            remedy="abandon it, or send its content as a new message",
        )
    resumed = outgoing.moved(
        OutgoingEvent.RESUMED,
        OutgoingState.OUTSTANDING,
        attempts_here=0,
        transport=0,
        resumes=outgoing.resumes + 1,
        next_attempt_at=now,
        reason="",
    )
    note = _note("resumed", resumed)
    return Sent(resumed, channel, (note, Resolve(resumed.message_id, resumed.channel)))


def abandon(outgoing: Outgoing, channel: SendingChannel | None, terms: Terms) -> Sent:
    """The operator gives the message up; on a numbered channel that ends the epoch."""
    unsettled = channel is not None and channel.is_unsettled(outgoing.epoch, outgoing.number, terms)
    if outgoing.state in FINAL_OUTGOING and not unsettled:
        raise NotAllowed(
            f"message {outgoing.message_id} is {outgoing.state.value} already",
            remedy="there is nothing left to abandon",
        )
    final = outgoing.state in FINAL_OUTGOING
    to = OutgoingState.UNKNOWN if outgoing.transmitted else OutgoingState.NOT_DELIVERED
    reason = outgoing.reason if final else "abandoned by the operator"
    abandoned = outgoing.moved(
        OutgoingEvent.ABANDONED,
        to,
        next_attempt_at=None,
        reason=reason,
        notice_owed=outgoing.notice_owed or not final,
    )
    effects: tuple[Effect, ...] = (_note("abandoned", abandoned), Resolve(outgoing.message_id))
    if not final:
        severity = Severity.WARNING if outgoing.transmitted else Severity.ERROR
        effects += _failure(abandoned, severity, "abandoned")
    return _give_up_number(abandoned, channel, terms, effects)


def _give_up_number(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    effects: tuple[Effect, ...],
) -> Sent:
    """Settle a number the receiver may never have seen: the epoch ends (gap 14)."""
    number = outgoing.number
    if channel is None or number is None or not terms.numbered:
        return _settle(outgoing, channel, terms, effects)
    if not channel.is_unsettled(outgoing.epoch, number, terms):
        return _reopen(outgoing, channel, terms, effects)
    note = Note("epoch_ended", outgoing.message_id, channel=channel.key, epoch=channel.epoch)
    return _reopen(outgoing, channel.abandon(number, terms), terms, (*effects, note))


def _settle(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    effects: tuple[Effect, ...],
) -> Sent:
    """Settle the message's number, if it has one, and let the next messages in."""
    if channel is None:
        return Sent(outgoing, None, effects)
    number = outgoing.number
    if number is not None and channel.is_unsettled(outgoing.epoch, number, terms):
        channel = channel.settle(number, terms)
    return _reopen(outgoing, channel, terms, effects)


def _reopen(
    outgoing: Outgoing, channel: SendingChannel, terms: Terms, effects: tuple[Effect, ...]
) -> Sent:
    """Trouble with this message is over: lift the suspension it caused, admit the next."""
    if channel.suspended and channel.suspended_by == outgoing.message_id:
        channel = channel.resume()
        effects = (*effects, Resolve(outgoing.message_id, channel.key))
    places = channel.places(terms)
    if places:
        effects = (*effects, Admit(channel.key, places))
    return Sent(outgoing, channel, effects)


_WHY = {
    OutgoingEvent.TRANSMISSION_FAILED: "transport",
    OutgoingEvent.DEADLINE_PASSED: "expired",
    OutgoingEvent.RETRIES_EXHAUSTED: "exhausted",
}


def _failure(outgoing: Outgoing, severity: Severity, why: str) -> tuple[Effect, ...]:
    note = Note(
        "failed",
        outgoing.message_id,
        channel=outgoing.channel,
        epoch=outgoing.epoch,
        number=outgoing.number,
        detail={"outcome": outgoing.state.value, "reason": why},
    )
    return (note, Notify(outgoing.message_id, severity, outgoing.reason))


def _note(kind: str, outgoing: Outgoing, *, transport: str | None = None, **detail: object) -> Note:
    return Note(
        kind,
        outgoing.message_id,
        channel=outgoing.channel,
        epoch=outgoing.epoch,
        number=outgoing.number,
        attempt=outgoing.attempts or None,
        transport=transport,
        detail=detail,
    )


def _error_note(kind: str, outgoing: Outgoing, error: Error, error_id: str) -> Note:
    detail: dict[str, object] = {
        "code": error.code,
        "severity": error.severity.value,
        "description": error.description[:300],
    }
    return replace(_note(kind, outgoing), ref_to=error_id, detail=detail)


def _words(error: Error) -> str:
    return f"{error.code}: {error.description}" if error.description else error.code
