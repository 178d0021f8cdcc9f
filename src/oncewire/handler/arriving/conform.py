"""Conform: whether a message has the form that was agreed for it.

`wire/` reads every message leniently, because the agreement is known only once the header
is read. What the agreement's `Form` asks beyond that is applied here: the dialect, the
SOAPAction, the schema, and whether a RefToMessageId must name a message we know.
"""

from __future__ import annotations

import logging

from oncewire.agreement.resolve import SERVICE, Resolution
from oncewire.errors import Inconsistent, MimeProblem, NotSupported, ValueNotRecognized
from oncewire.handler.answering.answer import agreement_of
from oncewire.handler.node import Node
from oncewire.handler.reading import RefusedByTerms
from oncewire.handler.route import is_receiver, peer_label
from oncewire.handler.source import Source
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.form import Base64Check, Form, UnknownRef, Validation
from oncewire.message.header import Header
from oncewire.message.trial import TRIAL_MARK, TRIAL_SERVICE, is_named_rightly, is_trial
from oncewire.protocol.acknowledging import AckOwed
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.wire import codec, schema, soap
from oncewire.wire.parcel import Parcel
from oncewire.wire.received import Received
from oncewire.wire.refusal import ReadFault

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


def refusal_by_schema(node: Node, parcel: Parcel, fault: ReadFault, source: Source) -> ReadFault:
    """A refusal in the words of an agreement that holds its partner to the schema."""
    agreement = agreement_of(node, fault.known, source)
    if agreement is None or agreement.form.validation is not Validation.ENFORCE:
        return fault
    try:
        codec.read(parcel, node.limits, validation=Validation.ENFORCE)
    except ReadFault as strict:
        return RefusedByTerms.of(strict)
    return fault


def check_signing(node: Node, owed: AckOwed) -> None:
    """Refuse to owe a signed acknowledgement that this handler could not sign (§6.3.2.5)."""
    if owed.signed and node.keys is None:
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
