"""Signals: acknowledgements, errors, status and ping between handlers."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement, Direction
from oncewire.agreement.resolve import Resolution, find_binding
from oncewire.agreement.rules import waits_for_signals
from oncewire.handler.actions import Ponged, Source, StatusTold, Warned
from oncewire.handler.authentication import is_authentic, proves_receipt, references_sent
from oncewire.handler.context import HandlerContext
from oncewire.handler.encryption import head_of, read_stored
from oncewire.handler.perform import load_channel, perform
from oncewire.handler.receiving.gathering import awaits_join
from oncewire.handler.route import agreement_of_hop, envelope_for, is_receiver, peer_label
from oncewire.handler.sending.answer import (
    NOTHING,
    Answer,
    Claim,
    ignore,
    post_signal,
    signal_route,
)
from oncewire.handler.sending.outgoing_document import index_heard_of
from oncewire.handler.sending.seal import seal
from oncewire.journal.identity import identity_digest
from oncewire.message.envelope import (
    PROBE_MARK,
    Acknowledgment,
    Actor,
    Error,
    ErrorClass,
    Message,
    MessageKind,
    MessageStatus,
    Severity,
    is_trial,
)
from oncewire.message.form import AckRequest
from oncewire.protocol import notes
from oncewire.protocol.notes import Note
from oncewire.protocol.sender import (
    ack_arrived,
    error_arrived,
    is_id_taken,
    warning_arrived,
)
from oncewire.protocol.states import FINAL_OUTGOING, IncomingState, Proof
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import (
    StoredAnswer,
    StoredIncoming,
    StoredOutgoing,
    StoredParcel,
    StoredReceipt,
)
from oncewire.wire import answers
from oncewire.wire.parcel import Fault


def receive_signal(
    context: HandlerContext,
    tx: Transaction,
    message: Message,
    resolution: Resolution,
    source: Source,
    kept: StoredParcel,
) -> Answer:
    """Take a signal that is not itself reliable, `kept` as it came. Nothing answers an
    acknowledgement (ACK-9)."""
    kind = message.kind
    if kind is MessageKind.PING:
        envelope = envelope_for(context, signal_route(resolution.agreement, MessageKind.PONG))
        pong = answers.pong_for(message, envelope)
        return _send_signal(context, pong, message, resolution, source)
    if kind is MessageKind.STATUS_REQUEST:
        return _status(context, tx, message, resolution, source)
    if kind is MessageKind.STATUS_RESPONSE:
        _learn_status(context, tx, message, resolution)
        return NOTHING
    if kind is MessageKind.PONG:
        ping_id = message.header.ref_to_message_id or ""
        if ping_id in context.state.pings or ("", ping_id) in context.elsewhere("ping"):
            context.state.pings.discard(ping_id)
            context.state.actions.append(Ponged(ping_id))
        elif not ping_id.startswith(PROBE_MARK):
            unasked = "nobody here waits for it"
            claim = Claim.of(message, resolution.agreement, "ValueNotRecognized", unasked)
            ignore(context, tx, claim, ping_id or None)
        return NOTHING
    settle_references(context, tx, message, resolution, kept)
    receive_errors(context, tx, message, resolution.agreement)
    return NOTHING


def settle_references(
    context: HandlerContext,
    tx: Transaction,
    message: Message,
    resolution: Resolution,
    kept: StoredParcel,
) -> None:
    """Complete the messages this one acknowledges (RM-14, RM-16)."""
    for reference in _acknowledged(message):
        stored = tx.outgoing(reference)
        if stored is None or not is_receiver(resolution.agreement, stored):
            _ignore_stray(context, tx, message, resolution.agreement, reference, stored)
        else:
            _settle(context, tx, message, stored, resolution.agreement, kept)


def settle_passing(
    context: HandlerContext,
    tx: Transaction,
    message: Message,
    resolution: Resolution,
    kept: StoredParcel,
) -> None:
    """At a hub: what goes back to the From Party tells what became of our own copy too.

    Where only the To Party is asked to acknowledge, no other word of it ever comes here. And what
    the From Party hears was refused must not be delivered by a later attempt of ours.
    """
    for reference in _acknowledged(message):
        stored = tx.outgoing(reference)
        if stored is None or stored.relayed_from is None:
            continue
        if is_receiver(resolution.agreement, stored):
            _settle(context, tx, message, stored, resolution.agreement, kept)
    if message.status_response is not None:
        stored = tx.outgoing(message.status_response.ref_to_message_id)
        if stored is not None and stored.relayed_from is not None:
            _learn_status(context, tx, message, resolution)
    if message.kind is MessageKind.ERROR:
        stored = tx.outgoing(message.header.ref_to_message_id or "")
        if (
            stored is not None
            and stored.relayed_from is not None
            and stored.outgoing.state not in FINAL_OUTGOING
        ):
            receive_errors(context, tx, message, resolution.agreement)


def _acknowledged(message: Message) -> list[str]:
    """The messages that this one says have arrived."""
    if message.kind is MessageKind.ERROR or message.failed:
        # A report is no acknowledgement, not even one that only warns.
        return []
    references = [ack.ref_to_message_id for ack in message.acknowledgments]
    if message.header.ref_to_message_id is not None:
        references.append(message.header.ref_to_message_id)
    return list(dict.fromkeys(references))


def _settle(
    context: HandlerContext,
    tx: Transaction,
    message: Message,
    stored: StoredOutgoing,
    agreement: Agreement,
    kept: StoredParcel,
) -> None:
    reference = stored.outgoing.message_id
    trial = context.state.trials.get(reference)
    if trial is not None and trial.overlooks(message):
        unheard = "a trial plays that it was lost"
        ignore(context, tx, Claim.of(message, agreement, "trial", unheard), reference)
        return
    terms = context.terms_of(tx, stored.outgoing.terms_id)
    proof = _whose_word(message, stored, agreement)
    acks = [ack for ack in message.acknowledgments if ack.ref_to_message_id == reference]
    # A hub is done with its copy when the next handler took it, be that the To Party's, which
    # acknowledges the hop alone where nothing else was asked; the rest is between the ends.
    of_hop = bool(acks) and all(ack.actor is Actor.NEXT_MSH for ack in acks)
    near = stored.relayed_from is not None and (proof is Proof.HOP or of_hop)
    signed = terms.hop_ack_requested is AckRequest.SIGNED if near else _wants_signed(terms, proof)
    if acks and terms.ack_requested is not AckRequest.NONE and not near:
        # The To Party's was asked for: one from the next handler on the way is not the end of
        # the matter (ebMS 2.0 §6.3).
        acks = [ack for ack in acks if ack.actor is Actor.TO_PARTY_MSH]
        if not acks:
            if terms.hop_ack_requested is AckRequest.NONE:
                awaited = "the To Party's own is awaited, and no other was asked for"
                ignore(
                    context, tx, Claim.of(message, agreement, "Inconsistent", awaited), reference
                )
            return
    if signed and not _is_proven(context, tx, reference, acks):
        if message.acknowledgments:
            problem = "the acknowledgement does not name the digests of what was sent"
            ignore(context, tx, Claim.of(message, agreement, "SecurityFailure", problem), reference)
        return
    channel = load_channel(tx, stored.outgoing)
    by = "ack" if message.kind is MessageKind.ACKNOWLEDGMENT else "response"
    step = ack_arrived(
        stored.outgoing,
        channel,
        terms,
        ack_id=message.header.message_id,
        by=by,
        signed=signed,
        proof=proof,
    )
    if by == "ack":
        step = index_heard_of(tx, stored, step, proof, message.header.message_id)
    if step.effects:
        perform(context, tx, stored, channel, step, terms)
        if signed:
            # A receiver that denies later to have got it has signed that it did.
            tx.keep_receipt(
                reference, StoredReceipt(message.header.message_id, context.now(), kept)
            )


def _whose_word(message: Message, stored: StoredOutgoing, agreement: Agreement) -> Proof:
    """Whether the To Party's own handler speaks, or a hub on the way: the Acknowledgment names
    who gave it, or else the header does (ACK-18)."""
    party, to_party = message.header.from_party, stored.facts.to_party
    for ack in message.acknowledgments:
        if ack.ref_to_message_id == stored.outgoing.message_id and ack.from_party is not None:
            party = ack.from_party
    if to_party in {str(party_id) for party_id in party.ids}:
        return Proof.TO_PARTY
    partner = agreement.partner
    ours = to_party in {str(party_id) for party_id in partner.party.ids}
    named = ours and (partner.is_named_by(party) or partner.handles(party))
    return Proof.TO_PARTY if named else Proof.HOP


def _is_proven(
    context: HandlerContext, tx: Transaction, reference: str, acks: Sequence[Acknowledgment]
) -> bool:
    """Whether one of them names the digests of what was sent, as a signed one must."""
    parcel = tx.outgoing_parcel(reference)
    if not acks or parcel is None:
        return False
    # What was signed says it all in its signature; only the rest need be digested again.
    signed = references_sent(context, parcel)
    if signed is not None:
        return any(proves_receipt(signed, ack) for ack in acks)
    sent = head_of(context.store.spool, parcel, context.limits)
    if sent is None or not sent.signed:
        sent = read_stored(context.store.spool, parcel, context.limits)
    return any(proves_receipt(sent, ack) for ack in acks)


def _wants_signed(terms: Terms, proof: Proof) -> bool:
    """Whether the word of the To Party, or of a hub, has to be signed. The To Party is the next
    handler too where nothing else was asked of it. A best-effort message asks nobody."""
    receipt = terms.ack_requested
    nearest = proof is Proof.HOP or receipt is AckRequest.NONE
    near = terms.hop_ack_requested if nearest else AckRequest.NONE
    return terms.reliable and AckRequest.SIGNED in (receipt, near)


def _ignore_stray(
    context: HandlerContext,
    tx: Transaction,
    message: Message,
    agreement: Agreement,
    reference: str,
    stored: StoredOutgoing | None,
) -> None:
    if message.kind is MessageKind.NORMAL:
        return
    problem = "no such message was sent" if stored is None else "it was not sent to this partner"
    ignore(context, tx, Claim.of(message, agreement, "ValueNotRecognized", problem), reference)


def receive_fault(
    context: HandlerContext, tx: Transaction, message_id: str, fault: Fault, source: Source
) -> bool:
    """Take a SOAP Fault as the answer to a message of ours; False: it may be sent again.

    A Fault names no message and carries no signature: it answers what was sent on its
    connection. Which codes are worth another attempt is agreed; the rest refuse the message
    as an ErrorList would, as far as such a word can be believed.
    """
    stored = tx.outgoing(message_id)
    if stored is None or _is_passing(context, tx, stored, fault):
        return False
    agreement = agreement_of_hop(context, tx, stored)
    if agreement is None or not is_authentic(context, agreement, source):
        claim = Claim("fault", f"SOAP:{fault.code}", f"unproven: {words_of(fault)}", stored.peer)
        ignore(context, tx, claim, message_id)
        return False
    context.state.in_flight.discard(message_id)
    terms = context.terms_of(tx, stored.outgoing.terms_id)
    channel = load_channel(tx, stored.outgoing)
    error = Error(f"SOAP:{fault.code}", description=words_of(fault)[:1024])
    step = error_arrived(
        stored.outgoing, channel, terms, context.now(), error=error, error_id="", by=stored.peer
    )
    perform(context, tx, stored, channel, step, terms)
    return True


def _is_passing(
    context: HandlerContext, tx: Transaction, stored: StoredOutgoing, fault: Fault
) -> bool:
    """Whether only this attempt failed: the agreement lists one of the fault's codes as worth
    another one, or the fault proves nothing of the message.

    It does not where an earlier copy may have arrived: a receiver answers a copy as it answered
    the first, so another party speaks here.
    """
    agreement = agreement_of_hop(context, tx, stored)
    parcel = tx.outgoing_parcel(stored.outgoing.message_id)
    outgoing = stored.outgoing
    if agreement is None or parcel is None or outgoing.copies > 1:
        return True
    sent = head_of(context.store.spool, parcel, context.limits)
    if sent is None:
        return True
    rules = find_binding(agreement, Direction.SEND, sent.message).rules
    codes = (fault.code, *(detail.code for detail in fault.details))
    return any(code in rules.retry_faults for code in codes)


def words_of(fault: Fault) -> str:
    """A fault in one line."""
    details = "; ".join(f"{entry.code} {entry.description}".strip() for entry in fault.details)
    return f"SOAP Fault {fault.code}: {fault.string}" + (f" ({details})" if details else "")


def receive_errors(
    context: HandlerContext, tx: Transaction, message: Message, agreement: Agreement
) -> None:
    """Feed every error of a report to the message it names (ERR-1).

    The To Party's handler may refuse, and any handler on the way may report that it could not
    deliver (ERR-5); of anybody else's word only the journal takes note.
    """
    reference = message.header.ref_to_message_id
    if message.error_list is None or reference is None:
        return
    stored = tx.outgoing(reference)
    if stored is None or not is_receiver(agreement, stored):
        _ignore_stray(context, tx, message, agreement, reference, stored)
        return
    if stored.outgoing.resumes and _is_repeat(context, message, stored, agreement):
        repeated = "it repeats a report that was heard before"
        ignore(context, tx, Claim.of(message, agreement, "DeliveryFailure", repeated), reference)
        return
    for error in _told_together(message.error_list.errors):
        stored = tx.outgoing(reference)
        if stored is None:
            return
        terms = context.terms_of(tx, stored.outgoing.terms_id)
        channel = load_channel(tx, stored.outgoing)
        error_id = message.header.message_id
        if reference in _acknowledged(message):
            # What acknowledges a message does not take that back in the same breath.
            step = warning_arrived(stored.outgoing, channel, error=error, error_id=error_id)
        else:
            step = error_arrived(
                stored.outgoing,
                channel,
                terms,
                context.now(),
                error=error,
                error_id=error_id,
                by=peer_label(agreement),
            )
        if any(
            isinstance(effect, Note) and isinstance(effect.what, notes.Warned)
            for effect in step.effects
        ):
            context.state.actions.append(Warned(reference, error.code, error.description))
        perform(context, tx, stored, channel, step, terms)


def _is_repeat(
    context: HandlerContext, message: Message, stored: StoredOutgoing, agreement: Agreement
) -> bool:
    """Whether a hub's report has failed the message before. Since then the operator may have sent
    it again, of which that report says nothing; the To Party answers each copy with its first word,
    and means the copy."""
    if _whose_word(message, stored, agreement) is Proof.TO_PARTY:
        return False
    with context.store.reader() as reader:
        rows = reader.journal_of(stored.outgoing.message_id)
    heard = message.header.message_id
    return any(row.kind == notes.Kind.REJECTED and row.ref_to == heard for row in rows)


def _told_together(errors: tuple[Error, ...]) -> tuple[Error, ...]:
    """The errors with those that end the message in one: it ends once, for all its reasons."""
    fatal = [
        error
        for error in errors
        if error.error_class is ErrorClass.MESSAGING and error.severity is Severity.ERROR
    ]
    if len(fatal) < 2:
        return errors
    # A DeliveryFailure can take an acknowledgement back, so it must keep its name.
    lead = next((error for error in fatal if error.code == "DeliveryFailure"), fatal[0])
    others = "; ".join(f"{error.code}: {error.description}" for error in fatal if error is not lead)
    whole = replace(lead, description=f"{lead.description}; {others}"[:1024])
    return (*(error for error in errors if error not in fatal), whole)


def _status(
    context: HandlerContext,
    tx: Transaction,
    message: Message,
    resolution: Resolution,
    source: Source,
) -> Answer:
    """What became of a message that this partner sent us (OPS-2)."""
    request = message.status_request
    if request is None:
        return NOTHING
    agreement = resolution.agreement
    partner = {str(party_id) for party_id in agreement.partner.party.ids}
    found = [
        stored
        for stored in tx.incoming_by_id(request.ref_to_message_id)
        if stored.facts.from_party in partner or stored.peer == peer_label(agreement)
    ]
    # A document goes before the message of its own id that names its fragments.
    found.sort(key=lambda stored: stored.facts.split_number is not None)
    status, received_at = MessageStatus.NOT_RECOGNIZED, None
    # What becomes of its document answers a part that completes it, and nothing before that.
    if found and not awaits_join(tx, found[0]):
        status = _status_of(found[0].incoming.state)
        received_at = found[0].incoming.received_at
    for gone in tx.removed(request.ref_to_message_id) if not found else ():
        # A sender asks when persistDuration is over, and that is when we clear away.
        if gone.sender in partner:
            status, received_at = _status_of(IncomingState(gone.state)), gone.at
    envelope = envelope_for(context, signal_route(agreement, MessageKind.STATUS_RESPONSE))
    response = answers.status_response_for(message, status, envelope, received_at=received_at)
    return _send_signal(context, response, message, resolution, source)


def _status_of(state: IncomingState) -> MessageStatus:
    if state in (IncomingState.REFUSED, IncomingState.CLOSED):
        # To say that we have it would make its sender believe that it was delivered.
        return MessageStatus.NOT_RECOGNIZED
    if state is IncomingState.CONFIRMED:
        return MessageStatus.PROCESSED
    if state is IncomingState.FORWARDED:
        return MessageStatus.FORWARDED
    return MessageStatus.RECEIVED


def _send_signal(
    context: HandlerContext,
    signal: Message,
    request: Message,
    resolution: Resolution,
    source: Source,
) -> Answer:
    route = signal_route(resolution.agreement, signal.kind)
    parcel = seal(context, signal, route)
    asked = request.header.asks_sync_reply
    if (asked or waits_for_signals(resolution.agreement, request.kind)) and source.can_answer:
        return Answer(200, parcel)
    answer = StoredAnswer(signal.header.message_id, signal.kind, parcel)
    post_signal(context, resolution.agreement, answer)
    return NOTHING


def _learn_status(
    context: HandlerContext, tx: Transaction, message: Message, resolution: Resolution
) -> None:
    """A receiver that says it has the message settles what was unknown (S5)."""
    response = message.status_response
    if response is None:
        return
    reference = response.ref_to_message_id
    stored = tx.outgoing(reference)
    question = (resolution.agreement.cpa_id, reference)
    if question in context.state.asked or question in context.elsewhere("ask"):
        # It is not of ours as far as is known here, so there is nothing to settle.
        context.state.actions.append(StatusTold(response, resolution.agreement.cpa_id))
        return
    if stored is None or not is_receiver(resolution.agreement, stored):
        _ignore_stray(context, tx, message, resolution.agreement, reference, stored)
        return
    context.state.actions.append(StatusTold(response))
    terms = context.terms_of(tx, stored.outgoing.terms_id)
    # A handler that forwarded it may have kept nothing, so that is no end of the matter.
    problem = ""
    if response.status is MessageStatus.RECEIVED and terms.never_repeated:
        # Its application is not given it any more once the request was answered (SYNC-18).
        problem = "it was received, and its response is what settles it"
    elif response.status not in (MessageStatus.RECEIVED, MessageStatus.PROCESSED):
        problem = f"it settles nothing: {response.status.value}"
    elif is_id_taken(stored.outgoing.reason):
        problem = "it is about the earlier message of this id"
    if problem:
        ignore(context, tx, Claim.of(message, resolution.agreement, "Unknown", problem), reference)
        return
    channel = load_channel(tx, stored.outgoing)
    proof, ack_id = _whose_word(message, stored, resolution.agreement), message.header.message_id
    step = ack_arrived(stored.outgoing, channel, terms, ack_id=ack_id, by="status", proof=proof)
    step = index_heard_of(tx, stored, step, proof, ack_id)
    if step.effects:
        perform(context, tx, stored, channel, step, terms)


# Reports and trials: stored like any other message, and taken by the handler itself.


def is_for_us(message_id: str, kind: MessageKind) -> bool:
    """Whether a stored message is for the handler: no application is given it."""
    return kind is MessageKind.ERROR or is_trial(message_id)


def take_it(
    context: HandlerContext, tx: Transaction, message: Message, stored: StoredIncoming
) -> None:
    """Take a message that is for the handler itself, a failure notice or a trial, at once."""
    if message.kind is MessageKind.ERROR:
        # A reliable failure notice (ERR-5..9). It is read under the agreement that it was accepted
        # under: where that is gone, another that leads to the same hub says nothing of whom the
        # message was sent to.
        agreement = context.agreement_kept(tx, stored.agreement_id)
        agreement = agreement or agreement_of_hop(context, tx, stored)
        if agreement is not None:
            receive_errors(context, tx, message, agreement)
    now = context.now()
    done = stored.incoming.handed_over(now).confirmed(now)
    tx.save_incoming(done)
    facts = {
        "terms_id": done.terms_id,
        "peer": stored.facts.from_party,
        "digest": identity_digest(message),
        "size": stored.facts.size,
    }
    for what in (notes.HandedOver(), notes.Confirmed()):
        note = Note(
            what, done.message_id, stored.facts.ref_to, done.channel, done.epoch, done.number
        )
        context.write(tx, [note], **facts)  # type: ignore[arg-type]
