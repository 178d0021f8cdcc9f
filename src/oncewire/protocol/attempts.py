"""Attempts: what timers and transports do to an outgoing message.

It enters the window, is sent and resent by the retry law, changes its transport, and is
given up when its retries or its time are used up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from oncewire.errors import NotAllowed
from oncewire.message.instant import Instant
from oncewire.protocol import notes
from oncewire.protocol.effects import AskStatus, Leave, Note, Transmit
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.settling import Fate, SenderStep, fail, go_on, note_of, stop
from oncewire.protocol.states import FINAL_OUTGOING, OutgoingEvent, OutgoingState, Proof
from oncewire.protocol.terms import OnExhausted, RetryCount, Terms


@dataclass(frozen=True, slots=True)
class Way:
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
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    now: Instant,
    way: Way = OPEN,
) -> SenderStep:
    """The timer ran out: send, resend, change the transport, or give up.

    Raises NotAllowed where there is no way at all: what cannot be sent is not given up either,
    it waits until somebody has mended the agreement.
    """
    if outgoing.state is not OutgoingState.OUTSTANDING:
        return SenderStep(replace(outgoing, next_attempt_at=None), channel)
    deadline = outgoing.deadline(terms)
    if deadline is not None and now >= deadline:
        return deadline_passed(outgoing, channel, terms, now)
    if outgoing.next_attempt_at is None or now < outgoing.next_attempt_at:
        return SenderStep(outgoing, channel)
    if channel is not None and channel.suspended:
        # The timer stays as it is: whoever lifts the suspension finds it due.
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
) -> SenderStep:
    """The transport could not recover (RTY-6). `certain`: the message did not get across."""
    note = Note(
        notes.SendFailed("refused" if certain else "unknown", reason),
        outgoing.message_id,
        channel=outgoing.channel,
        attempt=attempt,
        transport=outgoing.transport_name(terms),
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
    that is the last word on a message: nobody will acknowledge it."""
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
