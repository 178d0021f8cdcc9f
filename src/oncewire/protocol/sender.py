"""The sender: what happens to one outgoing message, from submission to its outcome.

Each function is one event. It takes the message, its channel (None where the stream is
neither numbered nor limited), the terms and `now`, and returns a `SenderStep` step: the new
state and the effects to perform once that state is saved.
"""

from __future__ import annotations

import re
from shlex import quote

from msgspec import Struct
from msgspec.structs import replace

from oncewire.errors import NotAllowed
from oncewire.message.envelope import Error, ErrorClass, Severity
from oncewire.message.instant import Instant, format_instant, seconds
from oncewire.protocol import notes
from oncewire.protocol.notes import AskStatus, Effect, Leave, Note, Notify, Pause, Resolve, Transmit
from oncewire.protocol.sending import (
    Fate,
    SenderStep,
    SendingChannel,
    fail,
    failure,
    go_on,
    note_of,
    stop,
)
from oncewire.protocol.states import (
    FINAL_OUTGOING,
    OUTGOING,
    Outgoing,
    OutgoingEvent,
    OutgoingState,
    Proof,
)
from oncewire.protocol.terms import OnExhausted, RetryCount, Terms

# Attempts: what timers and transports do to an outgoing message.
#
# It enters the window, is sent and resent by the retry law, changes its transport, and is given up
# when its retries or its time are used up.


class Way(Struct, frozen=True, gc=False):
    """What lies between the sender and the receiver of a message now."""

    # A Transient Error stopped everything that goes to this receiver until then (RTY-8).
    paused_until: Instant = 0
    # Agreed transports on which the receiver has no address.
    closed: frozenset[str] = frozenset()
    # Agreed transports that a message has left with all retries used up, and that no probe has
    # got through on since.
    left: frozenset[str] = frozenset()


OPEN = Way()

_NO_ADDRESS = "its receiver has no address"
_LEFT = "others got nothing across, and it is being probed"


def enter_window(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, now: Instant
) -> SenderStep:
    """The message gets its place and number and may be transmitted at once (gap 14)."""
    event = OutgoingEvent.WINDOW_ENTERED
    if channel is None:
        return SenderStep(outgoing.moved(event, next_attempt_at=now))
    entered, sequence = channel.enter(terms)
    numbered = outgoing.moved(
        event,
        next_attempt_at=now,
        epoch=entered.epoch,
        number=sequence.number,
        status=sequence.status,
    )
    what = notes.Numbered(sequence.status.value if sequence.status else None)
    return SenderStep(numbered, entered, (note_of(what, numbered),))


def attempt_due(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, now: Instant, way: Way = OPEN
) -> SenderStep:
    """The timer ran out: send, resend, change the transport, or give up.

    Raises NotAllowed where there is no way at all: what cannot be sent is not given up either,
    it waits until the agreement is mended.
    """
    if outgoing.state is not OutgoingState.OUTSTANDING:
        return SenderStep(replace(outgoing, next_attempt_at=None), channel)
    deadline = outgoing.deadline(terms)
    if deadline is not None and now >= deadline:
        return deadline_passed(outgoing, channel, terms, now)
    if outgoing.next_attempt_at is None or now < outgoing.next_attempt_at:
        return SenderStep(outgoing, channel)
    if channel is not None and channel.suspended:
        # The timer stays as it is: the message is due once the suspension is lifted.
        return SenderStep(outgoing, channel)
    until = max(way.paused_until, 0 if channel is None else channel.paused_until)
    if now < until:
        return SenderStep(replace(outgoing, next_attempt_at=until), channel)
    if outgoing.attempts_here > terms.resends:
        return _exhausted(outgoing, channel, terms, now, way)
    begun, passed = _begin_on(outgoing, terms, way)
    step = _transmit_on(begun, channel, terms, now, way)
    return replace(step, effects=(*passed, *step.effects)) if passed else step


def _begin_on(outgoing: Outgoing, terms: Terms, way: Way) -> tuple[Outgoing, tuple[Note, ...]]:
    """A message that begins on a transport that others have left passes it by, if there is one
    after it that works; with the rows that say so."""
    passed: tuple[Note, ...] = ()
    changed: Outgoing | None = None if outgoing.attempts_here or not way.left else outgoing
    while changed is not None:
        name = changed.transport_name(terms)
        if name not in way.left | way.closed:
            return changed, passed
        why = _LEFT if name in way.left else _NO_ADDRESS
        passed += (_not_tried(changed, name, why),)
        changed = _on_next_transport(changed, terms)
    return outgoing, ()


def _not_tried(outgoing: Outgoing, transport: str, why: str) -> Note:
    # No attempt was made, so the row has none.
    note = note_of(notes.SendFailed("refused", why), outgoing, transport=transport)
    return replace(note, attempt=None)


def _transmit(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, now: Instant, transport: str
) -> SenderStep:
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
    effects = (
        note_of(notes.Sent(), sent, transport=transport),
        Transmit(sent.message_id, sent.attempts, transport),
    )
    if not terms.reliable:
        # Nothing more will be heard of it, so it must not keep its place in the window.
        return go_on(sent, channel, terms, effects, Fate.SETTLED)
    return SenderStep(sent, channel, effects)


def _transmit_on(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, now: Instant, way: Way
) -> SenderStep:
    """Send on the present transport or, where that leads nowhere, on the next one that does."""
    closed: tuple[Note, ...] = ()
    changed: Outgoing | None = outgoing
    while changed is not None:
        name = changed.transport_name(terms)
        if name not in way.closed:
            step = _transmit(changed, channel, terms, now, name)
            return replace(step, effects=(*closed, *step.effects)) if closed else step
        closed += (_not_tried(changed, name, _NO_ADDRESS),)
        changed = _on_next_transport(changed, terms)
    raise NotAllowed(
        f"{_NO_ADDRESS} for {', '.join(sorted(way.closed))}",
        remedy="add an address to the agreement, or put the agreement back; it goes on by itself",
    )


def _on_next_transport(outgoing: Outgoing, terms: Terms) -> Outgoing | None:
    """The message on the transport that is agreed after the present one (RTY-15); None: that
    was the last."""
    per_transport = terms.retries_counted is RetryCount.PER_TRANSPORT
    if not per_transport or outgoing.transport + 1 >= len(terms.transports):
        return None
    return replace(outgoing, transport=outgoing.transport + 1, attempts_here=0)


def _exhausted(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, now: Instant, way: Way
) -> SenderStep:
    """The last retry went unanswered: another transport, the operator, or failure."""
    name = outgoing.transport_name(terms)
    note = note_of(notes.Exhausted(), outgoing, transport=name)
    changed = _on_next_transport(outgoing, terms)
    if changed is not None:
        step = _transmit_on(changed, channel, terms, now, way)
        return replace(step, effects=(note, Leave(name), *step.effects))
    reason = f"no acknowledgement after {outgoing.attempts} attempts"
    if outgoing.attempts == outgoing.attempts_lost:
        reason = f"nothing got across in {outgoing.attempts} attempts"
    if terms.on_exhausted is OnExhausted.SUSPEND_CHANNEL:
        suspended = outgoing.moved(
            OutgoingEvent.RETRIES_EXHAUSTED,
            OutgoingState.SUSPENDED,
            next_attempt_at=None,
            reason=reason,
        )
        return stop(suspended, channel, terms, (note,), Fate.KEPT)
    return fail(outgoing, channel, terms, OutgoingEvent.RETRIES_EXHAUSTED, reason, (note,))


def transmission_failed(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    now: Instant,
    *,
    attempt: int,
    certain: bool,
    reason: str,
    transport: str | None = None,
) -> SenderStep:
    """The transport could not recover (RTY-6). `certain`: the message did not get across.
    `transport`: the one that the attempt was made on, where that may not be the present one."""
    note = Note(
        notes.SendFailed("refused" if certain else "unknown", reason),
        outgoing.message_id,
        channel=outgoing.channel,
        attempt=attempt,
        transport=transport or outgoing.transport_name(terms),
    )
    lost = outgoing.attempts_lost + (1 if certain else 0)
    if outgoing.state is not OutgoingState.OUTSTANDING or attempt != outgoing.attempts:
        # A report about an earlier attempt changes no timer.
        return SenderStep(replace(outgoing, attempts_lost=lost), channel, (note,))
    if not terms.runs_protocol:
        # The product that was trusted with the delivery reports that it failed (RM-8).
        failed = replace(outgoing, attempts_lost=lost)
        event = OutgoingEvent.TRANSMISSION_FAILED
        return fail(failed, channel, terms, event, f"transport: {reason}", (note,))
    # Wait a retry interval from now, but never resend before the timer that runs already.
    due = max(outgoing.next_attempt_at or now, now + terms.retry_interval)
    return SenderStep(
        outgoing.moved(
            OutgoingEvent.TRANSMISSION_FAILED,
            OutgoingState.OUTSTANDING,
            attempts_lost=lost,
            next_attempt_at=due,
        ),
        channel,
        (note,),
    )


def transmission_ended(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, *, is_last_word: bool = False
) -> SenderStep:
    """The transport took the message. Only a reliable transport's word settles it (RM-7), or one
    that is the last word on a message: no acknowledgement will come."""
    trusted = is_last_word or (terms.reliable and not terms.runs_protocol)
    if not trusted or outgoing.state is not OutgoingState.OUTSTANDING:
        return SenderStep(outgoing, channel)
    event = OutgoingEvent.TRANSMISSION_ENDED
    # The product's word, not the To Party's.
    delivered = outgoing.moved(event, next_attempt_at=None, proved_by=Proof.HOP)
    note = note_of(notes.Acknowledged("transport"), delivered)
    return go_on(delivered, channel, terms, (note,), Fate.SETTLED)


def deadline_passed(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, now: Instant
) -> SenderStep:
    """TimeToLive or persistDuration is over: never sent again under this id (RTY-17)."""
    deadline = outgoing.deadline(terms)
    if outgoing.state in FINAL_OUTGOING or deadline is None or now < deadline:
        return SenderStep(outgoing, channel)
    by = outgoing.ended_by(terms)
    note = note_of(notes.Expired(by), outgoing)
    step = fail(
        outgoing, channel, terms, OutgoingEvent.DEADLINE_PASSED, f"{by} has passed", (note,)
    )
    if step.outgoing.state is OutgoingState.UNKNOWN and by == "persistDuration":
        return replace(step, effects=(*step.effects, AskStatus(outgoing.message_id)))
    return step


# Operating: what an administrator's word does to an outgoing message.


def resume(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    now: Instant,
    by: str | None = None,
) -> SenderStep:
    """The operator, or who is named by `by`, resolved the incident: the counter returns to zero
    (RTY-13).

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
        # The notice was not taken, and the failure is none any more.
        notice_owed=False,
    )
    # Where another message stopped the stream, the incident of that stays open.
    effects = (note_of(notes.Resumed(by), resumed), Resolve(resumed.message_id))
    return go_on(resumed, channel, terms, effects, Fate.KEPT)


HURRIES_MAX = 3
"""How often a message is sent again at once because its receiver answers again. Each time its
retries start anew, and a receiver that answers and takes nothing must not keep it for ever from the
end that calls somebody (RTY-12)."""

ANSWERS_AGAIN = "the handler: the partner answers again"
"""Whose decision it is to send such a message before its timer runs out."""


def may_hurry(outgoing: Outgoing, terms: Terms, now: Instant, way: Way = OPEN) -> bool:
    """Whether a message whose last attempt failed may start again at once: a retry of it is agreed
    and due later, and nothing else keeps it back."""
    deadline, due = outgoing.deadline(terms), outgoing.next_attempt_at
    return (
        outgoing.state is OutgoingState.OUTSTANDING
        and terms.runs_protocol
        and outgoing.resumes < HURRIES_MAX
        and 0 < outgoing.attempts_here <= terms.resends
        and due is not None
        and now < due
        and way.paused_until <= now
        and (deadline is None or now < deadline)
    )


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
    if outgoing.state in FINAL_OUTGOING and terms.never_repeated and outgoing.transmitted:
        # SYNC-18: its receiver gives no copy of it to the application.
        return "a synchronous request is not repeated (sync.retries = none)"
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


# Answers: what the receiver's acknowledgements and errors do to an outgoing message.


def ack_arrived(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    *,
    ack_id: str,
    by: str = "ack",
    signed: bool = False,
    proof: Proof = Proof.TO_PARTY,
) -> SenderStep:
    """A matching acknowledgement: the message is delivered, its number settled.

    One for a message that was never sent, or that is delivered already, changes nothing
    (RM-14), except that the To Party's own makes an intermediary's final. One that
    comes after the failure is recorded as late (DRV-7); a failure that was not told yet need not
    be told any more. An intermediary's that comes after the report that it could not
    deliver the message was overtaken by it, or is a stored one, and delivers nothing (HOP-9).
    """
    known = outgoing.state is OutgoingState.DELIVERED
    if outgoing.attempts == 0 or outgoing.state is OutgoingState.SENT:
        return SenderStep(outgoing, channel)
    if known and (proof is Proof.HOP or outgoing.proved_by is not Proof.HOP):
        return SenderStep(outgoing, channel)
    if proof is Proof.HOP and outgoing.taken_back:
        return _disowned(outgoing, channel, terms, ack_id)
    # The second of two that come after the failure is late as the first one was.
    late = outgoing.late if known else outgoing.state in FINAL_OUTGOING
    delivered = outgoing.moved(
        OutgoingEvent.ACK_ARRIVED,
        next_attempt_at=None,
        late=late,
        reason="acknowledged late" if late else outgoing.reason if known else "",
        notice_owed=False,
        proved_by=proof,
    )
    what = notes.Acknowledged(by, late, signed, proof is Proof.HOP)
    effects: tuple[Effect, ...] = (note_of(what, delivered, ref_to=ack_id),)
    if known:
        # Its number was settled by the first of the two.
        return SenderStep(delivered, channel, effects)
    if outgoing.state is not OutgoingState.OUTSTANDING:
        effects += (Resolve(outgoing.message_id),)
    return go_on(delivered, channel, terms, effects, Fate.SETTLED)


def error_arrived(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    now: Instant,
    *,
    error: Error,
    error_id: str,
    by: str | None = None,
) -> SenderStep:
    """An error message names this message: recover as its class demands (ERR-1).

    `by` is who sent it, where that is known.
    """
    kind, outgoing = error.error_class, _reported(outgoing, error)
    if _only_warns(outgoing, terms, error):
        return warning_arrived(outgoing, channel, error=error, error_id=error_id)
    if outgoing.attempts == 0:
        return SenderStep(outgoing, channel)
    if outgoing.state is OutgoingState.SENT:
        return _refused_best_effort(outgoing, channel, error, error_id, by)
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
        return _messaging_error(outgoing, channel, terms, error, error_id, by)
    # An invalid sequence number: the message stays outstanding, and so does the missing
    # one before it; both are resent by their own timers (SEQ-10). Its receiver threw one copy
    # away (SEQ-9). That does not prove that no copy of it got across: the network may hold
    # another, which fits once the missing number has come. So the attempt is not a lost one,
    # and a message that is given up after it is unknown, not undelivered (S5).
    what = notes.SendFailed("discarded", _error_text(error))
    note = note_of(what, outgoing, ref_to=error_id)
    return SenderStep(outgoing, channel, (note,))


def warning_arrived(
    outgoing: Outgoing, channel: SendingChannel | None, *, error: Error, error_id: str
) -> SenderStep:
    """News about a message that was sent: told, and nothing else changes (ERR-10)."""
    outgoing = _reported(outgoing, error)
    if outgoing.attempts == 0:
        return SenderStep(outgoing, channel)
    what = notes.Warned(error.code, error.location or None, error.description or None)
    return SenderStep(outgoing, channel, (note_of(what, outgoing, ref_to=error_id),))


def _reported(outgoing: Outgoing, error: Error) -> Outgoing:
    """The message after an error is heard of it, however that is said: no hub's word counts after
    the report that it could not be delivered."""
    if error.code != "DeliveryFailure" or outgoing.proved_by is Proof.TO_PARTY:
        return outgoing
    return replace(outgoing, taken_back=True)


def _only_warns(outgoing: Outgoing, terms: Terms, error: Error) -> bool:
    """Whether an error is news and not an answer: the acknowledgement is still awaited.

    A hub that warns of a failed delivery takes back what it acknowledged (HOP-9). To a synchronous
    request that is not repeated the same warning is the answer: no other follows (SYNC-18).
    """
    recovers = error.error_class in (ErrorClass.TRANSIENT, ErrorClass.COMMUNICATION)
    answers = terms.never_repeated and outgoing.state is OutgoingState.OUTSTANDING
    failed = answers or outgoing.state is OutgoingState.DELIVERED
    ended = error.code == "DeliveryFailure" and failed
    return error.severity is Severity.WARNING and not recovers and not ended


def _transient(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    now: Instant,
    error: Error,
    error_id: str,
) -> SenderStep:
    """Send nothing to the receiver for MinRetrySecs, or for RetryInterval (RTY-8)."""
    until, problem = _pause(outgoing, terms, now, error.min_retry_secs)
    note = note_of(notes.Transient(until), outgoing, ref_to=error_id)
    paused = channel.pause(until) if channel is not None else None
    if outgoing.state is OutgoingState.SUSPENDED:
        # It waits for the operator anyway; everything else waits for the receiver.
        return SenderStep(outgoing, paused, (note, Pause(until, problem)))
    if outgoing.state is not OutgoingState.OUTSTANDING:
        return SenderStep(outgoing, channel, (note,))
    # The pause may end before the retry law allows a resend; the later of the two holds.
    due = max(until, outgoing.next_attempt_at or until)
    waiting = outgoing.moved(
        OutgoingEvent.ERROR_ARRIVED, OutgoingState.OUTSTANDING, next_attempt_at=due
    )
    return SenderStep(waiting, paused, (note, Pause(until, problem)))


def _pause(
    outgoing: Outgoing, terms: Terms, now: Instant, asked: int | None
) -> tuple[Instant, str]:
    """Until when the receiver is left alone, and what an operator must know of that.

    A receiver may ask for any time, and one answer must not stop everything for years. It gets
    what the terms leave: the message that it turned away can be sent once more before its
    persistDuration ends (RTY-17), and a RetryInterval in any case.
    """
    if asked is None:
        return now + terms.retry_interval, ""
    first = outgoing.first_sent_at or now
    last_chance = first + terms.persist_duration - terms.retry_interval
    longest = max(last_chance, now + terms.retry_interval)
    if now + seconds(asked) <= longest:
        return now + seconds(asked), ""
    problem = (
        f"the receiver asked for a pause of {asked} s, which is longer than persistDuration "
        f"leaves; nothing is sent to it before {format_instant(longest)}"
    )
    return longest, problem


_AGREED = frozenset({"CPAId", "TPAId", "Service", "Action", "Role"})
"""What an error points at where the message does not fit the agreement that its receiver has now:
no copy of it is remembered, and another agreement may take one."""


def _messaging_error(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    error: Error,
    error_id: str,
    by: str | None,
) -> SenderStep:
    """Passed to the higher level, and the transfer goes on (ERR-2)."""
    note = _rejected(outgoing, error, error_id, by)
    # A copy that the network still holds may meet another agreement than this one did. A warning
    # says that the message was transmitted, and not what became of it (ERR-9).
    certain = error.severity is Severity.ERROR and not (
        error.location.rpartition("/")[2] in _AGREED
        and (outgoing.copies > 1 or outgoing.proved_by is Proof.HOP)
    )
    if outgoing.state is OutgoingState.DELIVERED:
        if outgoing.proved_by is Proof.HOP:
            # A hop that took responsibility can give it back (HOP-9), and what the To Party
            # itself refuses no hop has delivered: the hop's own report may be lost.
            return _taken_back(outgoing, channel, terms, error, note, certain=certain)
        if error.code != "DeliveryFailure":
            return SenderStep(outgoing, channel)
        return SenderStep(outgoing, channel, (_overtaken(outgoing, error, error_id),))
    to = OutgoingState.NOT_DELIVERED if certain else OutgoingState.UNKNOWN
    if outgoing.state in (to, OutgoingState.NOT_DELIVERED):
        # That it did not arrive is certain; no doubt about another copy changes that.
        return SenderStep(outgoing, channel)
    return _refused(outgoing, channel, terms, to, _error_text(error), note)


def _rejected(outgoing: Outgoing, error: Error, error_id: str, by: str | None) -> Note:
    """The row of an error that says that the message was not accepted."""
    place = error.location or None
    what = notes.Rejected(error.code, error.severity.value, error.description, place, by)
    return note_of(what, outgoing, ref_to=error_id or None)


def _refused_best_effort(
    outgoing: Outgoing, channel: SendingChannel | None, error: Error, error_id: str, by: str | None
) -> SenderStep:
    """A message that was sent with best effort has its outcome: no error changes that (OPS-4).

    The refusal and its reason are journaled and told to the higher level (ERR-2), once: nothing
    waits for an answer, so a second error would change nothing. A warning is journaled as one; one
    that only a transport reports (no `error_id`) is not journaled.
    """
    if error.severity is Severity.WARNING and error_id:
        return warning_arrived(outgoing, channel, error=error, error_id=error_id)
    if error.severity is Severity.WARNING or outgoing.reason:
        return SenderStep(outgoing, channel)
    who = by or "its receiver"
    reason = f"refused by {who}: {_error_text(error)}"
    refused = outgoing.moved(OutgoingEvent.ERROR_ARRIVED, reason=reason)
    note = _rejected(refused, error, error_id, by)
    return SenderStep(refused, channel, (note, Notify(error.severity)))


def _refused(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    to: OutgoingState,
    reason: str,
    note: Note,
) -> SenderStep:
    """The message ends by an error of a handler that did not accept it."""
    refused = outgoing.failed(OutgoingEvent.ERROR_ARRIVED, to, reason)
    effects: tuple[Effect, ...] = (note, *failure(refused, "rejected"))
    if outgoing.state is not OutgoingState.OUTSTANDING:
        effects += (Resolve(outgoing.message_id),)
    # No error proves that the To Party's handler has noted the number: it may be raised before
    # the number is judged (a bad signature, an unknown agreement) or by a hub.
    # So the stream restarts, instead of waiting for a number that its receiver never saw.
    return go_on(refused, channel, terms, effects, Fate.GIVEN_UP)


_ID_TAKEN = re.compile(r"Inconsistent at \S*MessageId\b")


def is_id_taken(refusal: str) -> bool:
    """Whether a refusal says that there is a message of that id, with other content (DRV-6).

    What became of that other one is no word about the message that was refused.
    """
    return _ID_TAKEN.match(refusal) is not None


def _taken_back(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    error: Error,
    note: Note,
    *,
    certain: bool,
) -> SenderStep:
    """An intermediary acknowledged the message, and it was not delivered after all."""
    to = OutgoingState.NOT_DELIVERED if certain else OutgoingState.UNKNOWN
    disowned = replace(outgoing, taken_back=True)
    failed = disowned.failed(OutgoingEvent.ERROR_ARRIVED, to, _error_text(error))
    effects: tuple[Effect, ...] = (note, *failure(failed, "rejected"))
    if channel is None or not terms.numbered or outgoing.epoch != channel.epoch:
        return SenderStep(failed, channel, effects)
    # Its number is settled here, but where numbers belong to the whole way the To Party's
    # handler still waits for it.
    ended = Note(notes.EpochEnded(), outgoing.message_id, channel=channel.key, epoch=channel.epoch)
    return SenderStep(failed, channel.end_epoch(), (*effects, ended))


def _disowned(
    outgoing: Outgoing, channel: SendingChannel | None, terms: Terms, ack_id: str
) -> SenderStep:
    """A hub acknowledges a message after the report that it could not be delivered further. A
    message that still waits ends as if the two had come in the other order."""
    problem = "the message could not be delivered after the next handler had it"
    code, to = "DeliveryFailure", OutgoingState.UNKNOWN
    if outgoing.state in FINAL_OUTGOING:
        ignored = notes.Ignored("acknowledgement", code, problem)
        return SenderStep(outgoing, channel, (note_of(ignored, outgoing, ref_to=ack_id),))
    rejected = notes.Rejected(code, Severity.WARNING.value, problem)
    note = note_of(rejected, outgoing, ref_to=ack_id)
    return _refused(outgoing, channel, terms, to, f"{code}: {problem}", note)


def _overtaken(outgoing: Outgoing, error: Error, error_id: str) -> Note:
    """The To Party's own word is final: a report that comes after it is noted, no more."""
    problem = f"{_error_text(error)}: but the To Party itself has acknowledged it"
    return note_of(notes.Ignored("error", error.code, problem), outgoing, ref_to=error_id)


def _error_text(error: Error) -> str:
    """Code, place and words: the place tells which part of the message is meant."""
    place = f" at {error.location}" if error.location else ""
    return f"{error.code}{place}: {error.description}" if error.description else error.code + place


__all__ = ["SenderStep"]
