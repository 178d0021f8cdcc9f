"""Asking: whether a partner's handler is there, and what became of a message that it got."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement
from oncewire.errors import AgreementProblem, InvalidValue
from oncewire.handler.context import HandlerContext
from oncewire.handler.encryption import read_stored
from oncewire.handler.route import agreement_of_hop, envelope_for, is_receiver, peer_label
from oncewire.handler.sending.answer import post_signal, signal_route, signal_ways
from oncewire.handler.sending.outgoing_document import OutgoingDocument, is_whole
from oncewire.handler.sending.parts import document_of, parts_sent
from oncewire.handler.sending.seal import seal, unpack_draft
from oncewire.message.envelope import Header, Message, MessageKind
from oncewire.protocol.states import OutgoingState
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredAnswer
from oncewire.wire import answers, codec


def ping(context: HandlerContext, agreement: Agreement) -> str:
    """Ask whether the partner's handler is there; returns the MessageId of the question."""

    def ask(envelope: answers.Envelope) -> Message:
        return answers.ping_like(_ours(agreement, envelope, envelope.message_id), envelope)

    message_id = _post(context, agreement, MessageKind.PING, ask)
    context.state.pings.add(message_id)
    return message_id


def ask_status(context: HandlerContext, tx: Transaction, message_id: str) -> None:
    """Ask the receiver what became of a message of ours (C37), or raise why it cannot be asked."""
    stored, parcel = tx.outgoing(message_id), tx.outgoing_parcel(message_id)
    if stored is None or parcel is None:
        raise InvalidValue(
            f"message {message_id} is not kept here any more",
            remedy=f"`oncewire why {message_id}` tells what is known of it",
        )
    agreement = agreement_of_hop(context, tx, stored)
    if agreement is None:
        raise AgreementProblem(
            f"no agreement leads to {stored.peer} any more", remedy="`oncewire partner add`"
        )
    in_parts = is_whole(stored)
    if in_parts and stored.outgoing.state is not OutgoingState.DELIVERED:
        under_way = [part.outgoing.message_id for part in parts_sent(tx, document_of(tx, stored))]
        about = f"`oncewire ask {under_way[0]}`" if under_way else f"`oncewire why {message_id}`"
        raise InvalidValue(
            f"message {message_id} is a document in parts, of which its receiver knows nothing "
            "until it is whole",
            remedy=f"ask about a part that is under way: {about}",
        )
    if in_parts:
        # Its receiver keeps it under its SplitId, which is the MessageId that we gave it.
        draft = unpack_draft(OutgoingDocument.read(parcel, message_id).draft)
        asked = codec.read(draft, context.limits).message
    else:
        asked = read_stored(context.store.spool, parcel, context.limits).message
    own, partner = agreement.own.party, agreement.partner.party
    if stored.relayed_from is not None and stored.facts.to_party not in map(str, partner.ids):
        # A hub asks the next hub in its own name; in the From Party's the question would go on
        # to the To Party. That one knows no name but the From Party's.
        names = replace(asked.header, from_party=own, to_party=partner, cpa_id=agreement.cpa_id)
        asked = replace(asked, header=names)
    _post(context, agreement, MessageKind.STATUS_REQUEST, partial(answers.ask_status, asked))


def ask_for_unknown(
    context: HandlerContext, tx: Transaction, agreement: Agreement, message_id: str
) -> bool:
    """Ask a partner what became of a message that is not known here any more, as after an older
    backup was restored; False: it is known. Whatever the partner answers settles nothing."""
    stored = tx.outgoing(message_id)
    if stored is not None:
        # Refuse to ask another partner than the one a message went to.
        if not is_receiver(agreement, stored):
            raise InvalidValue(
                f"message {stored.outgoing.message_id} went to {stored.facts.to_party}, "
                f"not to {agreement.partner.party.ids[0]}",
                remedy="ask without naming a partner: its receiver is known",
            )
        return False

    def ask(envelope: answers.Envelope) -> Message:
        return answers.ask_status(_ours(agreement, envelope, message_id), envelope)

    _post(context, agreement, MessageKind.STATUS_REQUEST, ask)
    context.state.asked.add((agreement.cpa_id, message_id))
    return True


def _ours(agreement: Agreement, envelope: answers.Envelope, message_id: str) -> Message:
    """A message to the partner, as far as a question needs one to be like."""
    header = Header(
        from_party=agreement.own.party,
        to_party=agreement.partner.party,
        cpa_id=agreement.cpa_id,
        conversation_id=envelope.message_id,
        service=None,
        action=None,
        message_id=message_id,
        timestamp=envelope.now,
    )
    return Message(envelope.form.dialect, MessageKind.NORMAL, header)


def _post(
    context: HandlerContext,
    agreement: Agreement,
    kind: MessageKind,
    ask: Callable[[answers.Envelope], Message],
) -> str:
    """Send a question; returns its MessageId. Where there is no address, that is said at once: a
    caller that waited for an answer would wait in vain."""
    if not signal_ways(context, agreement, kind):
        raise AgreementProblem(
            f"{peer_label(agreement)} has no address to ask at",
            key="partner",
            remedy=f"name one in agreement {agreement.cpa_id}",
        )
    route = signal_route(agreement, kind)
    envelope = envelope_for(context, route)
    question, asked = ask(envelope), envelope.message_id
    answer = StoredAnswer(asked, kind, seal(context, question, route))
    post_signal(context, agreement, answer, ping_id=asked if kind is MessageKind.PING else "")
    return asked
