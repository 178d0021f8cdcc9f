"""Agreement match: the agreement that a message belongs under, and as much of the message as is
believed under it.

A copy belongs under the agreement of its original (`original`). Anything else is judged by
today's; what today's refuses may still answer a message that was sent under an older one.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.resolve import SERVICE, Resolution, resolve, resolve_under
from oncewire.errors import (
    EbxmlError,
    Inconsistent,
    MimeProblem,
    NotSupported,
    SoapFault,
    ValueNotRecognized,
)
from oncewire.handler.actions import REPLY, Source
from oncewire.handler.authentication import verified_message
from oncewire.handler.context import HandlerContext
from oncewire.handler.hub.passing import is_answer
from oncewire.handler.receiving.accepted_terms import AcceptedTerms, answered
from oncewire.handler.route import agreement_of_hop, is_receiver, peer_label
from oncewire.handler.sending.answer import agreement_of
from oncewire.handler.spool_reading import RefusedByTerms
from oncewire.message.envelope import (
    TRIAL_MARK,
    TRIAL_SERVICE,
    Header,
    Message,
    MessageKind,
    is_named_rightly,
    is_trial,
)
from oncewire.message.form import Base64Check, Form, UnknownRef, Validation
from oncewire.protocol.receiver import AckOwed
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.wire import codec, schema, soap
from oncewire.wire.ebms2.header import UNNAMED
from oncewire.wire.parcel import Parcel, Received
from oncewire.wire.refusal import ReadFault

# Conform: whether a message has the form that was agreed for it.
#
# `wire/` reads every message leniently, because the agreement is known only once the header is
# read. What the agreement's `Form` asks beyond that is applied here: the dialect, the SOAPAction,
# the schema, and whether a RefToMessageId must name a message we know.


logger = logging.getLogger("oncewire.handler")

REFERENCE = "//Header/MessageHeader/MessageData/RefToMessageId"

WITH_HEADERS = ("http", "smtp")
"""Transports whose headers travel beside the body; only there can a SOAPAction be missing."""


def check_form(received: Received, form: Form, source: Source) -> None:
    """Refuse a message whose frame or structure is not the agreed one."""
    message = received.message
    if message.dialect is not form.dialect:
        raise NotSupported(
            f"the message is {message.dialect.value}, the agreement says {form.dialect.value}",
            location="//Header",
            remedy="send the agreed format",
        )
    if source.transport in WITH_HEADERS:
        soap.check_action(received.parcel.header("SOAPAction"), message, form)
    if received.odd_base64 and form.base64 is Base64Check.STRICT:
        raise MimeProblem(
            "base64 is damaged: it holds characters that do not belong there",
            location="MIME",
            remedy="send the part again, whole, or agree that they are skipped (wire.base64)",
        )
    problems = received.schema_problems
    if not problems or form.validation is Validation.OFF:
        return
    if form.validation is Validation.ENFORCE:
        raise schema.broken(problems)
    logger.info(
        "a header breaks its schema",
        extra={"message_id": message.header.message_id, "problem": problems[0][:200]},
    )


def check_content(tx: Transaction, message: Message, resolution: Resolution) -> None:
    """Refuse what the To Party's handler must not store: what is too large, what refers to nothing
    that is known here, and what is a trial by its id, its SplitId or its service alone."""
    _check_sizes(message, resolution.terms)
    check_reference(tx, message, resolution)
    if message.kind is MessageKind.NORMAL:
        _check_trial(message.header)


def _check_trial(header: Header) -> None:
    if not is_named_rightly(header.message_id, header.service):
        raise ValueNotRecognized(
            f"a message of service {TRIAL_SERVICE} has a MessageId that begins with {TRIAL_MARK}, "
            "and no other has",
            location=SERVICE,
            remedy="have trials made by `oncewire partner test`",
        )
    split = header.split
    if split is not None and (is_trial(header.message_id) or is_trial(split.split_id)):
        raise ValueNotRecognized(
            f"a trial is no part of a document, and no document's SplitId begins with {TRIAL_MARK}",
            location="//SplitId",
            remedy="send the document under another id",
        )


def _check_sizes(message: Message, terms: Terms) -> None:
    """Refuse a payload that is larger than was agreed. Of a large body that is found while it
    comes (`expected`); here it is found of any."""
    for payload in message.payloads:
        if terms.max_size is not None and payload.size > terms.max_size:
            raise MimeProblem(
                f"a payload has {payload.size:,} bytes, and no more than {terms.max_size:,} "
                "are agreed",
                location=f"cid:{payload.content_id}",
                remedy="send it in parts, or agree on a larger MaxSize",
            )


def refusal_by_schema(
    context: HandlerContext, parcel: Parcel, fault: ReadFault, source: Source
) -> ReadFault:
    """A refusal in the words of an agreement that holds its partner to the schema."""
    agreement = agreement_of(context, fault.known, source)
    if agreement is None or agreement.form.validation is not Validation.ENFORCE:
        return fault
    try:
        codec.read(parcel, context.limits, validation=Validation.ENFORCE)
    except ReadFault as strict:
        return RefusedByTerms.of(strict)
    return fault


def check_signing(context: HandlerContext, owed: AckOwed) -> None:
    """Refuse to owe a signed acknowledgement that this handler could not sign (§6.3.2.5)."""
    if owed.signed and context.keys is None:
        raise Inconsistent(
            "a signed acknowledgement is asked for, and this handler has no key to sign with",
            location="//Header/AckRequested/@signed",
            remedy="ask for an unsigned one, or agree on signatures",
        )


def check_reference(tx: Transaction, message: Message, resolution: Resolution) -> None:
    """Refuse a RefToMessageId that names no message between the two parties."""
    reference = message.header.ref_to_message_id
    if resolution.form.unknown_ref is UnknownRef.IGNORE or reference is None:
        return
    if message.kind is not MessageKind.NORMAL:
        return
    agreement = resolution.agreement
    sent = tx.outgoing(reference)
    if sent is not None and is_receiver(agreement, sent):
        return
    if any(stored.peer == peer_label(agreement) for stored in tx.incoming_by_id(reference)):
        return
    if tx.removed(reference):
        # Known, and older than it had to be kept.
        return
    raise ValueNotRecognized(
        "RefToMessageId names no message that is known here",
        location=REFERENCE,
        remedy="refer to a message of this conversation",
    )


@dataclass(frozen=True, slots=True)
class Placed:
    """A message and everything about it that was agreed."""

    # The values that may be trusted: read from the signed part where there is a signature.
    message: Message
    resolution: Resolution
    # It is on its way through here; a hub verifies nothing of it.
    for_others: bool = False


def place(
    context: HandlerContext,
    tx: Transaction,
    received: Received,
    source: Source,
    original: AcceptedTerms | None,
) -> Placed:
    """The message under the agreement it belongs to, or the error it is answered with."""
    if original is not None:
        return _under(context, tx, received, source, original)
    try:
        return _under(context, tx, received, source, None)
    except (EbxmlError, SoapFault):
        if received.message.kind is not MessageKind.NORMAL:
            earlier = place_as_answer(context, tx, received, source)
            if earlier is not None:
                return earlier
        raise


def place_as_answer(
    context: HandlerContext, tx: Transaction, received: Received, source: Source
) -> Placed | None:
    """The message under the agreement of what it answers; None: it answers nothing that we
    know of, or cannot prove that it may."""
    about = answered(context, tx, received.message)
    if about is None:
        return None
    with suppress(EbxmlError, SoapFault):
        return _under(context, tx, received, source, about)
    return None


def _under(
    context: HandlerContext,
    tx: Transaction,
    received: Received,
    source: Source,
    original: AcceptedTerms | None,
) -> Placed:
    named, resolution = _resolve(context, tx, received.message, source, original)
    check_form(received, resolution.form, source)
    if resolution.at_hop and not _is_ours(resolution.agreement, named):
        return Placed(received.message, resolution, for_others=True)
    return Placed(verified_message(context, received, resolution, source), resolution)


def _resolve(
    context: HandlerContext,
    tx: Transaction,
    message: Message,
    source: Source,
    original: AcceptedTerms | None,
) -> tuple[Message, Resolution]:
    """Everything about a message that was agreed, and the message with the names that were
    found to be meant; or the error it is answered with."""
    transport = None if source.transport == REPLY else source.transport

    def under(named: Message) -> tuple[Message, Resolution]:
        if original is None:
            now = context.now()
            found = resolve(context.agreements, named, receiving=True, now=now, transport=transport)
            return named, found
        at, agreement = original.accepted_at, original.agreement
        found = resolve_under(agreement, named, receiving=True, accepted_at=at, transport=transport)
        return named, found

    try:
        return under(_completed(context, tx, message))
    except (EbxmlError, SoapFault):
        behind = _from_behind(context, tx, message, original)
        if behind is None:
            raise
    return under(behind)


def _from_behind(
    context: HandlerContext, tx: Transaction, message: Message, original: AcceptedTerms | None
) -> Message | None:
    """An answer that came through a hub, with the names of our own hop in it.

    In the drafts it names the two ends of the hop that it answers (ACK-4, ACK-12). Where a hub
    passed it back, that hop is one we need not know (HOP-5); what it refers to, we sent. A hub
    sends its own notices to parties behind a neighbour, under an agreement that it need not know.
    """
    reference = message.header.ref_to_message_id
    about = tx.outgoing(reference) if reference is not None and is_answer(message) else None
    if about is None:
        return None
    # Today's may lead to the same hub and be with another partner.
    kept = None if original is None else original.agreement
    agreement = kept or agreement_of_hop(context, tx, about)
    if agreement is None:
        return None
    beyond = about.facts.to_party in map(str, agreement.partner.behind)
    if agreement.via is None and about.relayed_from is None and not beyond:
        return None
    partner, own = agreement.partner.party, agreement.own.party
    return replace(message, header=replace(message.header, from_party=partner, to_party=own))


def _completed(context: HandlerContext, tx: Transaction, message: Message) -> Message:
    """A signal with what its sender left out, taken from the message of ours it refers to.

    PHINMS acknowledges to nobody by name. A partner that could not read our CPAId reports
    that under a name nobody knows (Norway's handlers write `unknown`).
    """
    header = message.header
    unnamed = header.to_party.ids == (UNNAMED,)
    reported = message.kind is MessageKind.ERROR and not context.agreements.by_cpa_id(header.cpa_id)
    if not (unnamed or reported) or header.ref_to_message_id is None:
        return message
    about = tx.outgoing(header.ref_to_message_id)
    agreement = agreement_of_hop(context, tx, about) if about is not None else None
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
