"""Place: the agreement that a message belongs under, and the message as far as that lets us
believe it.

A copy belongs under the agreement of its original (`original`). Anything else is judged by
today's; what today's refuses may still answer a message that was sent under an older one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.resolve import Resolution, resolve, resolve_under
from oncewire.errors import EbxmlError, SoapFault
from oncewire.handler.arriving.conform import check_form
from oncewire.handler.arriving.original import Original, answered
from oncewire.handler.hub.passing import is_answer
from oncewire.handler.node import Node
from oncewire.handler.route import agreement_of_hop
from oncewire.handler.sealing.secure import verified_message
from oncewire.handler.source import REPLY, Source
from oncewire.message.envelope import Message, MessageKind
from oncewire.store.contract import Transaction
from oncewire.wire.ebms2.header import UNNAMED
from oncewire.wire.received import Received


@dataclass(frozen=True, slots=True)
class Placed:
    """A message and everything about it that was agreed."""

    # The values that may be trusted: read from the signed part where there is a signature.
    message: Message
    resolution: Resolution
    # It is on its way through here; a hub verifies nothing of it.
    for_others: bool = False


def place(
    node: Node, tx: Transaction, received: Received, source: Source, original: Original | None
) -> Placed:
    """The message under the agreement it belongs to, or the error it is answered with."""
    if original is not None:
        return _under(node, tx, received, source, original)
    try:
        return _under(node, tx, received, source, None)
    except (EbxmlError, SoapFault):
        if received.message.kind is not MessageKind.NORMAL:
            earlier = place_as_answer(node, tx, received, source)
            if earlier is not None:
                return earlier
        raise


def place_as_answer(
    node: Node, tx: Transaction, received: Received, source: Source
) -> Placed | None:
    """The message under the agreement of what it answers; None: it answers nothing that we
    know of, or cannot prove that it may."""
    about = answered(node, tx, received.message)
    if about is None:
        return None
    with suppress(EbxmlError, SoapFault):
        return _under(node, tx, received, source, about)
    return None


def _under(
    node: Node, tx: Transaction, received: Received, source: Source, original: Original | None
) -> Placed:
    named, resolution = _resolve(node, tx, received.message, source, original)
    check_form(received, resolution.form, source)
    if resolution.at_hop and not _is_ours(resolution.agreement, named):
        return Placed(received.message, resolution, for_others=True)
    return Placed(verified_message(node, received, resolution, source), resolution)


def _resolve(
    node: Node, tx: Transaction, message: Message, source: Source, original: Original | None
) -> tuple[Message, Resolution]:
    """Everything about a message that was agreed, and the message with the names that were
    found to be meant; or the error it is answered with."""
    transport = None if source.transport == REPLY else source.transport

    def under(named: Message) -> tuple[Message, Resolution]:
        if original is None:
            now = node.now()
            found = resolve(node.agreements, named, receiving=True, now=now, transport=transport)
            return named, found
        at, agreement = original.accepted_at, original.agreement
        found = resolve_under(agreement, named, receiving=True, accepted_at=at, transport=transport)
        return named, found

    try:
        return under(_completed(node, tx, message))
    except (EbxmlError, SoapFault):
        behind = _from_behind(node, tx, message)
        if behind is None:
            raise
    return under(behind)


def _from_behind(node: Node, tx: Transaction, message: Message) -> Message | None:
    """An answer that came through a hub, with the names of our own hop in it.

    In the drafts it names the two ends of the hop that it answers (ACK-4, ACK-12). Where a hub
    passed it back, that hop is one we need not know (HOP-5); what it refers to, we sent. A hub
    sends its own notices to parties behind a neighbour, under an agreement that it need not know.
    """
    reference = message.header.ref_to_message_id
    about = tx.outgoing(reference) if reference is not None and is_answer(message) else None
    agreement = agreement_of_hop(node, tx, about) if about is not None else None
    if about is None or agreement is None:
        return None
    beyond = about.facts.to_party in map(str, agreement.partner.behind)
    if agreement.via is None and about.relayed_from is None and not beyond:
        return None
    partner, own = agreement.partner.party, agreement.own.party
    return replace(message, header=replace(message.header, from_party=partner, to_party=own))


def _completed(node: Node, tx: Transaction, message: Message) -> Message:
    """A signal with what its sender left out, taken from the message of ours it refers to.

    PHINMS acknowledges to nobody by name. A partner that could not read our CPAId reports
    that under a name nobody knows (Norway's handlers write `unknown`).
    """
    header = message.header
    unnamed = header.to_party.ids == (UNNAMED,)
    reported = message.kind is MessageKind.ERROR and not node.agreements.by_cpa_id(header.cpa_id)
    if not (unnamed or reported) or header.ref_to_message_id is None:
        return message
    about = tx.outgoing(header.ref_to_message_id)
    agreement = agreement_of_hop(node, tx, about) if about is not None else None
    if about is None or agreement is None:
        return message
    if unnamed:
        header = replace(header, to_party=agreement.own.party)
    if reported:
        # Our own message keeps the name it was sent under, though its agreement be gone: another
        # that leads to the same hub is with somebody else.
        ours = about.relayed_from is None
        header = replace(header, cpa_id=about.facts.cpa_id if ours else agreement.cpa_id)
    return replace(message, header=header)


def _is_ours(agreement: Agreement, message: Message) -> bool:
    """Whether a hub is itself addressed: a neighbour's signal about its own hop."""
    to_party = message.header.to_party
    return agreement.own.is_named_by(to_party) or agreement.own.handles(to_party)
