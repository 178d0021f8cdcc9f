"""Signals: acknowledgements, errors, status and ping between handlers."""

from __future__ import annotations

from collections.abc import Sequence

from oncewire.agreement.agreement import Agreement, Direction
from oncewire.agreement.resolve import Resolution, find_binding
from oncewire.agreement.rules import waits_for_signals
from oncewire.handler.actions import Ponged, Source, StatusTold
from oncewire.handler.authentication import is_authentic, proves_receipt, references_sent
from oncewire.handler.context import HandlerContext
from oncewire.handler.encryption import head_of, read_stored
from oncewire.handler.perform import load_channel, perform
from oncewire.handler.receiving.reports import (
    Claim,
    acknowledged,
    ignore,
    ignore_stray,
    receive_errors,
    whose_word,
)
from oncewire.handler.route import agreement_of_hop, envelope_for, is_receiver, peer_label
from oncewire.handler.sending.answer import NOTHING, Answer, awaits_join, post_signal, signal_route
from oncewire.handler.sending.outgoing_document import index_heard_of
from oncewire.handler.sending.seal import seal
from oncewire.message.envelope import (
    PROBE_MARK,
    Acknowledgment,
    Actor,
    Error,
    Message,
    MessageKind,
    MessageStatus,
)
from oncewire.message.form import AckRequest
from oncewire.protocol.sender import ack_arrived, error_arrived, is_id_taken
from oncewire.protocol.states import FINAL_OUTGOING, IncomingState, Proof
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredAnswer, StoredOutgoing, StoredParcel, StoredReceipt
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
    for reference in acknowledged(message):
        stored = tx.outgoing(reference)
        if stored is None or not is_receiver(resolution.agreement, stored):
            ignore_stray(context, tx, message, resolution.agreement, reference, stored)
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
    for reference in acknowledged(message):
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
    proof = whose_word(message, stored, agreement)
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
        ignore_stray(context, tx, message, resolution.agreement, reference, stored)
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
    proof, ack_id = whose_word(message, stored, resolution.agreement), message.header.message_id
    step = ack_arrived(stored.outgoing, channel, terms, ack_id=ack_id, by="status", proof=proof)
    step = index_heard_of(tx, stored, step, proof, ack_id)
    if step.effects:
        perform(context, tx, stored, channel, step, terms)
