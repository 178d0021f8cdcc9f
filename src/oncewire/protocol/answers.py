"""Answers: what the receiver's acknowledgements and errors do to an outgoing message."""

from __future__ import annotations

import re

from oncewire.message.fault import Error, ErrorClass, Severity
from oncewire.message.instant import Instant, format_instant, seconds
from oncewire.message.variant import variant
from oncewire.protocol import notes
from oncewire.protocol.attempts import transmission_failed
from oncewire.protocol.effects import Effect, Note, Notify, Pause, Resolve
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.settling import Fate, SenderStep, failure, go_on, note_of
from oncewire.protocol.states import FINAL_OUTGOING, OutgoingEvent, OutgoingState, Proof
from oncewire.protocol.terms import Terms


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
    comes after the failure is recorded as late (DRV-7); a failure that nobody was told of yet
    need not be told any more. An intermediary's that comes after the report that it could not
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
    if _only_warns(outgoing, error):
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
    return variant(outgoing, taken_back=True)


def _only_warns(outgoing: Outgoing, error: Error) -> bool:
    """Whether an error is news and not an answer: the acknowledgement is still awaited.

    A hub that warns of a failed delivery takes back what it acknowledged (HOP-9).
    """
    recovers = error.error_class in (ErrorClass.TRANSIENT, ErrorClass.COMMUNICATION)
    taken_back = error.code == "DeliveryFailure" and outgoing.state is OutgoingState.DELIVERED
    return error.severity is Severity.WARNING and not recovers and not taken_back


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
    if outgoing.state is OutgoingState.DELIVERED:
        if error.code != "DeliveryFailure":
            return SenderStep(outgoing, channel)
        if outgoing.proved_by is not Proof.HOP:
            return SenderStep(outgoing, channel, (_overtaken(outgoing, error, error_id),))
        # A hop that took responsibility can give it back (HOP-9).
        return _taken_back(outgoing, channel, terms, error, note)
    # A copy that the network still holds may meet another agreement than this one did.
    certain = not (_is_about_agreement(error) and outgoing.copies > 1)
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
    outgoing: Outgoing,
    channel: SendingChannel | None,
    error: Error,
    error_id: str,
    by: str | None,
) -> SenderStep:
    """A message that was sent with best effort has its outcome: no error changes that (OPS-4).

    Who refused it and why is journaled and told to the higher level (ERR-2), once: nothing waits
    for an answer, so nobody would act by a second error. A warning is journaled as one; where a
    transport alone says that it could not take the message (no `error_id`), nothing is.
    """
    if error.severity is Severity.WARNING and error_id:
        return warning_arrived(outgoing, channel, error=error, error_id=error_id)
    if error.severity is Severity.WARNING or outgoing.reason:
        return SenderStep(outgoing, channel)
    who = by or "its receiver"
    reason = f"refused by {who}: {_error_text(error)}"
    refused = outgoing.moved(OutgoingEvent.ERROR_ARRIVED, reason=reason)
    note = _rejected(refused, error, error_id, by)
    return SenderStep(refused, channel, (note, Notify(outgoing.message_id, error.severity, reason)))


def _refused(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    to: OutgoingState,
    reason: str,
    note: Note,
) -> SenderStep:
    """The message ends by the word of somebody who did not take it."""
    refused = outgoing.failed(OutgoingEvent.ERROR_ARRIVED, to, reason)
    effects: tuple[Effect, ...] = (note, *failure(refused, "rejected"))
    if outgoing.state is not OutgoingState.OUTSTANDING:
        effects += (Resolve(outgoing.message_id),)
    # No error proves that the To Party's handler has noted the number: it may be raised before
    # the number is judged (a bad signature, an unknown agreement) or by somebody on the way.
    # So the stream restarts, instead of waiting for a number that its receiver never saw.
    return go_on(refused, channel, terms, effects, Fate.GIVEN_UP)


_ID_TAKEN = re.compile(r"Inconsistent at \S*MessageId\b")


def is_id_taken(refusal: str) -> bool:
    """Whether a refusal says that there is a message of that id, with other content (DRV-6).

    What became of that other one is no word about the message that was refused.
    """
    return _ID_TAKEN.match(refusal) is not None


def _is_about_agreement(error: Error) -> bool:
    """Whether a receiver has no agreement for the message now; no copy of it is remembered."""
    return error.location.rpartition("/")[2] in ("CPAId", "TPAId")


def _taken_back(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    error: Error,
    note: Note,
) -> SenderStep:
    """An intermediary acknowledged the message and could not deliver it after all."""
    certain = error.severity is Severity.ERROR
    to = OutgoingState.NOT_DELIVERED if certain else OutgoingState.UNKNOWN
    failed = outgoing.failed(OutgoingEvent.ERROR_ARRIVED, to, _error_text(error))
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
    """A hub acknowledges what could not be delivered after it had it: whoever still waits has
    both of its words now, and they mean what they do in the other order."""
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
