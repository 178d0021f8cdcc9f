"""Agreement match: the agreement that a message belongs under, and as much of the message as is
believed under it.

A copy belongs under the agreement of its original (`original`). Anything else is judged by
today's; what today's refuses may still answer a message that was sent under an older one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement, sender_of
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
from oncewire.handler.facts import is_answer
from oncewire.handler.route import agreement_of_hop, is_receiver, peer_label
from oncewire.handler.sending.answer import agreement_of, signal_route
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
from oncewire.message.ids import Party
from oncewire.message.instant import Instant
from oncewire.protocol.receiver import AckOwed
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.store.contract import Transaction
from oncewire.store.records import Removed, StoredIncoming
from oncewire.wire import codec, schema, soap
from oncewire.wire.ebms2.reader import UNNAMED
from oncewire.wire.parcel import Parcel, PartialHeader, ReadFault, Received
from oncewire.wire.security.algorithms import kind_of

# AcceptedTerms: the agreement a message was accepted under, for its copies and its answers.
#
# Agreements end, change and are replaced while messages are under way. A copy of a message that
# was accepted is a copy still: to judge it by today's agreement would refuse what its receiver
# has, and its sender would call it not delivered (RM-17). So would an acknowledgement that comes
# after the end be refused. Both are judged by the agreement of the message they belong to, which
# is kept with it; only what is new is judged by today's. A certificate that is revoked counts for
# nothing at once, whatever was agreed (`Agreements.withdrawn`).


class AcceptedTerms(Struct, frozen=True):
    """An agreement by what was accepted under it, and when: certificates are judged as of then."""

    agreement: Agreement
    accepted_at: Instant
    # No side asked for repeats to be stopped: a copy that today's agreement allows is a message
    # of its own (C40), and only where it does not it is a copy.
    repeats_pass: bool = False


def copied(context: HandlerContext, tx: Transaction, message: Message) -> AcceptedTerms | None:
    """What a message was accepted under that says it is a copy; None: it is judged as new.

    Nothing is believed of it yet. It has to prove that it comes from the party it names, by the
    terms that its original was accepted under, before anything is said about that.
    """
    party, message_id = message.header.from_party, message.header.message_id
    known = received_from(context, tx, party, message_id)
    if known is not None:
        original = _original(context, tx, known.agreement_id, known.incoming.received_at)
        passes = _repeats_pass(context, tx, message, known)
        return None if original is None else replace(original, repeats_pass=passes)
    gone = _removed_from(context, tx, party, message_id)
    if gone is None:
        return None
    return _original(context, tx, gone.agreement_id, gone.at)


def is_known(context: HandlerContext, tx: Transaction, known: PartialHeader) -> bool:
    """Whether what could be read of a message names one that was accepted before."""
    if known.message_id is None or known.from_party is None:
        return False
    stored = received_from(context, tx, known.from_party, known.message_id)
    if stored is not None:
        return stored.incoming.state is not IncomingState.REFUSED
    return _removed_from(context, tx, known.from_party, known.message_id) is not None


def received_from(
    context: HandlerContext, tx: Transaction, party: Party, message_id: str
) -> StoredIncoming | None:
    """The message of that id whose sender these ids may mean, in whatever order they stand."""
    for stored in tx.incoming_by_id(message_id):
        if _is_meant(context, tx, party, stored.incoming.sender, stored.agreement_id):
            return stored
    return None


def _removed_from(
    context: HandlerContext, tx: Transaction, party: Party, message_id: str
) -> Removed | None:
    """The message of that id and sender, if retention removed it."""
    for gone in tx.removed(message_id):
        if gone.sender is None or gone.state == IncomingState.REFUSED:
            continue
        if _is_meant(context, tx, party, gone.sender, gone.agreement_id):
            return gone
    return None


def _is_meant(
    context: HandlerContext, tx: Transaction, party: Party, sender: str, agreement_id: str | None
) -> bool:
    """Whether a sender, as its message is filed, may be the party of a header."""
    if sender in {str(party_id) for party_id in party.ids}:
        return True
    agreement = context.agreement_kept(tx, agreement_id)
    if agreement is None or not agreement.partner.reaches(party):
        return False
    return sender == str(sender_of(agreement, party))


def known_as(
    tx: Transaction, sender: str, agreement: Agreement, message_id: str
) -> StoredIncoming | None:
    """The message of that id from a sender who proved who he is (DUP-1).

    Versions before this one filed it under the id that stood first in its header.
    """
    for name in _names(sender, agreement):
        known = tx.incoming(name, message_id)
        if known is not None:
            return known
    return None


def removed_as(
    tx: Transaction, sender: str, agreement: Agreement, message_id: str
) -> Removed | None:
    """What is remembered of an accepted message if retention removed it.

    Its sender should have stopped before that, but networks keep copies and not every
    handler stops.
    """
    names = _names(sender, agreement)
    for gone in tx.removed(message_id):
        if gone.sender in names and gone.state != IncomingState.REFUSED:
            return gone
    return None


def check_not_refused(tx: Transaction, sender: str, agreement: Agreement, message_id: str) -> None:
    """Refuse a copy of a message that was refused before retention removed it, whatever is agreed
    today: its sender was told that it is not delivered."""
    names = _names(sender, agreement)
    found = [gone for gone in tx.removed(message_id) if gone.sender in names]
    if any(gone.state == IncomingState.REFUSED for gone in found):
        raise Inconsistent(
            "a message with this MessageId was refused before",
            location="//MessageData/MessageId",
            remedy="send it under another MessageId",
        )


def _names(sender: str, agreement: Agreement) -> tuple[str, ...]:
    own = tuple(map(str, agreement.partner.party.ids))
    return own if sender == own[0] else (sender,)


def _repeats_pass(
    context: HandlerContext, tx: Transaction, message: Message, known: StoredIncoming
) -> bool:
    """Whether a copy is a message of its own."""
    if message.header.duplicate_elimination or message.header.split is not None:
        return False
    if known.incoming.state in (IncomingState.REFUSED, IncomingState.FORWARDED):
        return False
    return context.terms_of(tx, known.incoming.terms_id).repeats_pass


def answered(context: HandlerContext, tx: Transaction, message: Message) -> AcceptedTerms | None:
    """What the message that a signal is about was accepted under, if that is known here."""
    if message.kind is MessageKind.STATUS_REQUEST:
        return _asked_about(context, tx, message)
    for reference in spoken_of(message):
        stored = tx.outgoing(reference)
        if stored is not None:
            return _original(context, tx, stored.agreement_id, stored.outgoing.submitted_at)
    return None


def spoken_of(message: Message) -> list[str]:
    """The messages of ours that a message speaks of."""
    spoken = [ack.ref_to_message_id for ack in message.acknowledgments]
    if message.kind is MessageKind.NORMAL:
        # What is new answers to today's agreement, whatever it refers to.
        return spoken
    if message.status_response is not None:
        spoken.append(message.status_response.ref_to_message_id)
    if message.header.ref_to_message_id is not None:
        spoken.append(message.header.ref_to_message_id)
    return spoken


def _asked_about(
    context: HandlerContext, tx: Transaction, message: Message
) -> AcceptedTerms | None:
    """A sender asks when it has heard nothing, and that may be after the agreement's end."""
    if message.status_request is None:
        return None
    reference, party = message.status_request.ref_to_message_id, message.header.from_party
    known = received_from(context, tx, party, reference)
    if known is not None:
        return _original(context, tx, known.agreement_id, known.incoming.received_at)
    gone = _removed_from(context, tx, party, reference)
    return None if gone is None else _original(context, tx, gone.agreement_id, gone.at)


def _original(
    context: HandlerContext, tx: Transaction, agreement_id: str | None, at: Instant
) -> AcceptedTerms | None:
    agreement = context.agreement_kept(tx, agreement_id)
    return None if agreement is None else AcceptedTerms(agreement, at)


# Fresh: whether a message is news, or anybody may have sent it again.
#
# Who has recorded a message can send it from anywhere, signature and all. It is a partner's word,
# and it is treated as a copy; but it does not show that the partner is where it came from now.
# What was not said here before does.


class Standing(Struct, frozen=True):
    """What is known about a message, and about those of ours that it speaks of."""

    # Whether it was accepted, now or long ago.
    accepted: bool
    ours: tuple[OutgoingState | None, ...]
    # Whether a caller waits for it as the answer to a Ping.
    pinged: bool


# What is known about a new message that speaks of nothing of ours.
UNHEARD = Standing(accepted=False, ours=(), pinged=False)


def standing(
    context: HandlerContext,
    tx: Transaction,
    message: Message,
    stored: Sequence[StoredIncoming],
    removed: Sequence[Removed],
) -> Standing:
    """What is known now; `stored` and `removed` have the id of the message."""
    states: list[str] = [each.incoming.state for each in stored]
    if removed:
        states += [gone.state for gone in removed]
    accepted = states.count(IncomingState.REFUSED) < len(states)
    reference = message.header.ref_to_message_id
    if reference is None and not (message.acknowledgments or message.status_response):
        return Standing(accepted, (), pinged=False)
    spoken = dict.fromkeys((*spoken_of(message), reference or ""))
    found = [tx.outgoing(name) for name in spoken if name]
    ours = tuple([None if sent is None else sent.outgoing.state for sent in found])
    pinged = reference in context.state.pings or ("", reference) in context.elsewhere("ping")
    return Standing(accepted, ours, pinged)


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
    # Refuse a payload that is larger than was agreed. Of a large body that is found while it
    # comes (`expected`); here it is found of any.
    terms = resolution.terms
    for payload in message.payloads:
        if terms.max_size is not None and payload.size > terms.max_size:
            raise MimeProblem(
                f"a payload has {payload.size:,} bytes, and no more than {terms.max_size:,} "
                "are agreed",
                location=f"cid:{payload.content_id}",
                remedy="send it in parts, or agree on a larger MaxSize",
            )
    if message.header.ref_to_message_id is not None:
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


def can_sign(context: HandlerContext, agreement: Agreement) -> bool:
    """Whether this handler has a key that signs acknowledgements as an agreement says."""
    said = signal_route(agreement, MessageKind.ACKNOWLEDGMENT).security.signature_algorithm
    return context.keys is not None and f"#{kind_of(context.keys.signing_key)}-" in said


def check_signing(context: HandlerContext, agreement: Agreement, owed: AckOwed) -> None:
    """Refuse to owe a signed acknowledgement that this handler could not sign (§6.3.2.5)."""
    if owed.signed and not can_sign(context, agreement):
        raise Inconsistent(
            "a signed acknowledgement is asked for, and there is no key to sign with as agreed",
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


class Placed(Struct, frozen=True):
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
    """The message under that agreement, or today's, by the names that were found to be meant."""
    transport = None if source.transport == REPLY else source.transport
    named = _completed(context, tx, received.message)
    try:
        resolution = _resolve(context, named, transport, original)
    except (EbxmlError, SoapFault):
        behind = _from_behind(context, tx, received.message, original)
        if behind is None:
            raise
        named, resolution = behind, _resolve(context, behind, transport, original)
    check_form(received, resolution.form, source)
    if resolution.at_hop and not _is_ours(resolution.agreement, named):
        return Placed(received.message, resolution, for_others=True)
    return Placed(verified_message(context, received, resolution, source), resolution)


def _resolve(
    context: HandlerContext, named: Message, transport: str | None, original: AcceptedTerms | None
) -> Resolution:
    """Everything about a message that was agreed, or the error it is answered with."""
    if original is None:
        now = context.now()
        return resolve(context.agreements, named, receiving=True, now=now, transport=transport)
    at, agreement = original.accepted_at, original.agreement
    return resolve_under(agreement, named, receiving=True, accepted_at=at, transport=transport)


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

    PHINMS names no party in its acknowledgements. A partner that could not read our CPAId reports
    that under an unknown name (Norway's handlers write `unknown`).
    """
    header = message.header
    if header.ref_to_message_id is None:
        return message
    unnamed = header.to_party.ids == (UNNAMED,)
    reported = message.kind is MessageKind.ERROR and not context.agreements.by_cpa_id(header.cpa_id)
    if not (unnamed or reported):
        return message
    about = tx.outgoing(header.ref_to_message_id)
    agreement = agreement_of_hop(context, tx, about) if about is not None else None
    if about is None or agreement is None:
        return message
    if unnamed:
        header = replace(header, to_party=agreement.own.party)
    if reported:
        # Our own message keeps the name it was sent under, though its agreement be gone: another
        # that leads to the same hub is with another partner.
        ours = about.relayed_from is None
        header = replace(header, cpa_id=about.facts.cpa_id if ours else agreement.cpa_id)
    return replace(message, header=header)


def _is_ours(agreement: Agreement, message: Message) -> bool:
    """Whether a hub is itself addressed: a neighbour's signal about its own hop."""
    to_party = message.header.to_party
    return agreement.own.is_named_by(to_party) or agreement.own.handles(to_party)
