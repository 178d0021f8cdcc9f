"""Receive: what a transport brought is read, placed under an agreement and taken in.

Whatever is wrong with it is journaled as refused, answered with the error that names its
cause, and harms nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from oncewire.agreement.resolve import Resolution
from oncewire.errors import EbxmlError, SoapFault, StoreDamaged, ValueNotRecognized
from oncewire.handler.actions import REPLY, PostOn, Source, replied
from oncewire.handler.authentication import check_connection, check_passing, is_authentic
from oncewire.handler.content_digest import check_kept, is_intact
from oncewire.handler.context import HandlerContext
from oncewire.handler.facts import MESSAGE, is_answer, word_for
from oncewire.handler.hub.next_hop import resume_stranded_hops
from oncewire.handler.hub.passing import (
    asked_here,
    check_say,
    check_way,
    is_from_beyond,
    is_receipt,
    not_passed,
    nothing_more,
    pass_back,
    pass_on,
    relay_receipt,
    way_back,
)
from oncewire.handler.receiving import signals
from oncewire.handler.receiving.agreement_match import (
    UNHEARD,
    AcceptedTerms,
    Placed,
    Standing,
    copied,
    is_known,
    place,
    place_as_answer,
    received_from,
    refusal_by_schema,
    spoken_of,
    standing,
)
from oncewire.handler.receiving.arrive import Arriving
from oncewire.handler.receiving.inbound import Reply, heard, no_message
from oncewire.handler.receiving.release import call_operator
from oncewire.handler.receiving.reports import Claim, ignore, ignore_unbacked
from oncewire.handler.route import agreement_of_hop, peer_label
from oncewire.handler.sending.answer import DAMAGED, NOTHING, Answer, answer_unread, post_signal
from oncewire.handler.sending.transmit import Transmission, transmission_over
from oncewire.handler.spool_reading import Reading, RefusedByTerms
from oncewire.message.envelope import ANSWERS, Actor, Message, MessageKind
from oncewire.protocol.hops import HopDuty, hop_duty
from oncewire.protocol.notes import Note, Refused
from oncewire.store.contract import Transaction
from oncewire.store.records import Removed, StoredIncoming, StoredParcel
from oncewire.wire import codec
from oncewire.wire.header import named_by
from oncewire.wire.parcel import Parcel, PartialHeader, ReadFault, Received


def receive(
    context: HandlerContext,
    tx: Transaction,
    parcel: Parcel,
    source: Source,
    stored: StoredParcel | None = None,
    reading: Reading | None = None,
) -> Answer:
    """Take one parcel from a transport; `reading` is what it says, if it was read already."""
    if not (is_intact(parcel) if reading is None else reading.intact):
        problem = "the body was damaged on its way"
        context.state.refusals.count("damaged", source.address, problem, None, context.now())
        return replace(DAMAGED, refused=True)
    try:
        if reading is not None:
            received = reading.message()
        else:
            received = codec.read(
                parcel, context.limits, templates=context.caches.templates.envelopes
            )
    except ReadFault as lenient:
        # What was refused while it came is not there any more to be read again.
        whole = bool(parcel.body)
        fault = refusal_by_schema(context, parcel, lenient, source) if whole else lenient
        if fault.known.dialect is None:
            claimed = named_by(parcel.content_type, fault.envelope or parcel.body)
            fault.known = replace(fault.known, dialect=claimed)
        _journal_refused(context, tx, fault.known, fault.error, source)
        if is_known(context, tx, fault.known):
            # To call it wrong would take back what was said of the copy that was whole.
            return replace(DAMAGED, refused=True)
        return replace(answer_unread(context, fault, source), refused=True)
    return receive_message(context, tx, received, source, stored)


def receive_message(
    context: HandlerContext,
    tx: Transaction,
    received: Received,
    source: Source,
    stored: StoredParcel | None = None,
) -> Answer:
    """Take one message that could be read."""
    message = received.message
    parcel = received.parcel
    kept = stored or StoredParcel(parcel.content_type, parcel.headers, (parcel.body,))
    message_id, stored_now = message.header.message_id, _is_for_application(message)
    # Where we are the ones who called, it is known who is there.
    replied_here = source.transport == REPLY
    known: Sequence[StoredIncoming] = ()
    gone: Sequence[Removed] = ()
    if stored_now or not replied_here:
        known, gone = tx.incoming_by_id(message_id), tx.removed(message_id)
    new = stored_now and not known and not gone
    # What is new and speaks of nothing of ours is news if it is accepted.
    header = message.header
    plain = new and header.ref_to_message_id is None and not message.acknowledgments
    before = None
    if not replied_here:
        before = UNHEARD if plain else standing(context, tx, message, known, gone)
    asked = asked_here(tx, message) if is_answer(message) else None
    original = copied(context, tx, message) if stored_now and not new else None
    try:
        if asked is not None and (asked.passed_on or is_from_beyond(context, tx, received, asked)):
            # Whatever party it names: it answers what came through here (HOP-7).
            pass_back(context, tx, received, asked, source)
            return NOTHING
        if original is None:
            placed = place(context, tx, received, source, None)
        else:
            original, placed = _placed_as_copy(context, tx, received, source, original)
        if placed.message is not message:
            ignore_unbacked(context, tx, placed.resolution.agreement, message, placed.message)
        message, resolution = placed.message, placed.resolution
        peer = peer_label(resolution.agreement)
        if placed.for_others:
            taken = _take_for_others(context, tx, received, kept, resolution, source, asked)
            context.state.contacts.arrived(peer, context.now())
            return _of_partner(context, tx, received.message, before, gone, taken)
        # Believed: its sender is there, and it may teach how the next ones of it are read.
        context.state.contacts.arrived(peer, context.now())
        context.caches.templates.envelopes.learn(received, peer, context.limits)
    except (EbxmlError, SoapFault) as error:
        if original is not None:
            # A sender that says it repeats what we have and cannot prove it is told nothing: an
            # error about that message would be believed by the one who sent it. A fault only
            # goes to the one who is there.
            _journal_refused(context, tx, PartialHeader.of(message), error, source)
            told = NOTHING
            if isinstance(error, SoapFault):
                fault = RefusedByTerms((error,), PartialHeader.of(message))
                told = answer_unread(context, fault, source, received)
            return replace(told, refused=True)
        _settle_refused(context, tx, received, source, kept)
        return replace(_refuse(context, tx, received, error, source), refused=True)
    if message is not received.message:
        stored_now = _is_for_application(message)
    if not stored_now:
        if asked is not None and is_receipt(message, asked):
            # It settles our copy, and its From Party asked for it as well (SYNC-2).
            relay_receipt(context, tx, received, asked, source)
        taken = signals.receive_signal(context, tx, message, resolution, source, kept)
    else:
        arriving = Arriving(
            context, tx, received, kept, message, resolution, source,
            under_original=original is not None and original.repeats_pass, new=new,
        )  # fmt: skip
        taken = arriving.take()
        if plain and not replied_here:
            return replace(taken, partner_is_there=True) if arriving.accepted else taken
    return _of_partner(context, tx, received.message, before, gone, taken)


def _of_partner(
    context: HandlerContext,
    tx: Transaction,
    message: Message,
    before: Standing | None,
    gone: Sequence[Removed],
    taken: Answer,
) -> Answer:
    if before is None:
        return taken
    known = tx.incoming_by_id(message.header.message_id)
    # News: it was accepted, or it settled a message of ours, and neither had happened before.
    after = standing(context, tx, message, known, gone)
    return replace(taken, partner_is_there=before != after)


def _placed_as_copy(
    context: HandlerContext,
    tx: Transaction,
    received: Received,
    source: Source,
    original: AcceptedTerms,
) -> tuple[AcceptedTerms | None, Placed]:
    """The message under today's agreement, or under that of the original it is a copy of.

    A copy that may be a message of its own is one where today's agreement takes it. Where that
    refuses it, its sender must not be told so: one of them has arrived (RM-17).
    """
    if original.repeats_pass:
        with suppress(EbxmlError, SoapFault):
            return None, place(context, tx, received, source, None)
    return original, place(context, tx, received, source, original)


def _is_for_application(message: Message) -> bool:
    """Whether a message is stored and handed over, and not only for the handler itself.

    Reliable failure notices are stored too. PHINMS sends the application's status beside
    its acknowledgement: what has a payload has a reader.
    """
    if message.kind is MessageKind.NORMAL or message.reliable:
        return True
    return message.kind is MessageKind.ACKNOWLEDGMENT and bool(message.payloads)


def _settle_refused(
    context: HandlerContext, tx: Transaction, received: Received, source: Source, kept: StoredParcel
) -> None:
    """A message that is refused may carry the acknowledgement of one that was accepted: it is
    true all the same, if it proves to come from the one who can say so."""
    if received.message.kind is not MessageKind.NORMAL:
        return
    placed = place_as_answer(context, tx, received, source)
    if placed is not None and not placed.for_others:
        message = placed.message
        header = replace(message.header, ref_to_message_id=None)
        acks = replace(message, header=header)
        signals.settle_references(context, tx, acks, placed.resolution, kept)


def _take_for_others(
    context: HandlerContext,
    tx: Transaction,
    received: Received,
    kept: StoredParcel,
    resolution: Resolution,
    source: Source,
    asked: StoredIncoming | None,
) -> Answer:
    """A hub's part: pass it on, or store it and take over the duty to deliver."""
    check_connection(context, resolution.agreement, source, resolution.accepted_at)
    message = received.message
    header = message.header
    if resolution.agreement.partner.is_named_by(header.from_party) and not is_answer(message):
        # Of a neighbour's own message the hub can check what it asks of the neighbour; who lies
        # behind one is between the ends.
        check_passing(context, received, resolution, source)
    known = received_from(context, tx, header.from_party, header.message_id)
    passed = known is not None and known.passed_on
    ahead = context.agreements.toward(header.to_party, header.service)
    ahead = ahead or way_back(context, tx, message, asked)
    if not is_answer(message):
        check_way(message, resolution.agreement, ahead, source)
    if ahead is None and known is not None and not passed:
        # A copy of what this hub has taken upon itself needs no way on to be answered.
        arriving = Arriving(context, tx, received, kept, message, resolution, source, final=False)
        return arriving.take()
    if ahead is None:
        raise ValueNotRecognized(
            "nobody here knows the way to the To Party", location="//Header/MessageHeader/To"
        )
    check_say(context, tx, message, spoken_of(message), resolution.agreement, ahead)
    if is_authentic(context, resolution.agreement, source, received):
        signals.settle_passing(context, tx, message, resolution, kept)
    acks = message.acknowledgments
    if asked is not None and acks and all(ack.actor is Actor.NEXT_MSH for ack in acks):
        # Only the hop is acknowledged, to the hub that made it: of all intermediaries the
        # initiator hears the first one (HOP-12).
        return NOTHING
    if passed or hop_duty(message, resolution.terms) is HopDuty.PROXY:
        # A copy goes the way of the first one: what was passed on is not kept here.
        return pass_on(context, tx, received, ahead, resolution, source, asked)
    # What stands here for want of a way goes before what comes after it.
    resume_stranded_hops(context, tx, str(message.header.to_party))
    arriving = Arriving(context, tx, received, kept, message, resolution, source, False, ahead)
    return arriving.take()


def _refuse(
    context: HandlerContext,
    tx: Transaction,
    received: Received,
    error: EbxmlError | SoapFault,
    source: Source,
) -> Answer:
    """A readable message that no agreement covers, or that its agreement refuses."""
    message = received.message
    about = next(
        (message_id for message_id in spoken_of(message) if tx.outgoing(message_id) is not None),
        None,
    )
    _journal_refused(context, tx, PartialHeader.of(message), error, source, about)
    if message.kind in ANSWERS:
        return NOTHING
    fault = RefusedByTerms((error,), PartialHeader.of(message))
    return answer_unread(context, fault, source, received)


def _journal_refused(
    context: HandlerContext,
    tx: Transaction,
    known: PartialHeader,
    error: EbxmlError | SoapFault,
    source: Source,
    about: str | None = None,
) -> None:
    """Count what is not accepted; where it names an agreement, and that does not happen all the
    time, journal it. A signal is `about` a message of ours, whose story it belongs to."""
    about = about or known.ref_to_message_id
    peer = str(known.from_party) if known.from_party is not None else source.address or None
    code = error.code if isinstance(error, EbxmlError) else f"SOAP {error.faultcode}"
    now = context.now()
    context.state.refusals.count(code, source.address, error.problem, known.message_id, now)
    if about is not None and tx.outgoing(about) is not None:
        word = word_for(known.kind)
        claim = Claim(word, code, error.problem, peer, known.message_id, source.transport)
        ignore(context, tx, claim, about)
        if known.kind is not MessageKind.NORMAL:
            return
    if not _names_agreement(context, known) or not context.state.refusals.may_journal(now):
        return
    word = word_for(known.kind)
    what = Refused(code, problem=error.problem, signal=None if word == MESSAGE else word)
    if isinstance(error, EbxmlError):
        what = replace(what, severity=error.severity, location=error.location or None)
    note = Note(what, known.message_id, known.ref_to_message_id, transport=source.transport)
    context.write(tx, [note], peer=peer)


def _names_agreement(context: HandlerContext, known: PartialHeader) -> bool:
    """Whether a partner may have meant it: its agreement's name or its own stands in it."""
    if context.agreements.by_cpa_id(known.cpa_id or ""):
        return True
    party = known.from_party
    return party is not None and any(
        agreement.partner.reaches(party) for agreement in context.agreements
    )


def receive_reply(
    context: HandlerContext, tx: Transaction, reply: Reply, ended: Transmission
) -> None:
    """Take what came back on the connection of one of our own transmissions: a message, or
    several in one body (SYNC-8).

    A SOAP Fault refuses the message, or only this attempt, as the agreement says; a body
    that is no message says that the attempt failed.
    """
    try:
        together = heard(reply, context.limits, context.caches.templates.envelopes).messages()
    except ReadFault as fault:
        reason = no_message(fault, reply, ended.address, ended.reason)
        if fault.fault is not None:
            source = replied(ended.address)
            if signals.receive_fault(context, tx, ended.message_id, fault.fault, source):
                return
            reason = signals.words_of(fault.fault)
        failed = replace(ended, sent=False, certain=False, reason=reason[:300], retry_after=None)
        transmission_over(context, tx, failed)
        return
    transmission_over(context, tx, ended)
    for received in together:
        receive_message(context, tx, received, replied(ended.address))
    nothing_more(context, tx, ended.message_id)


def receive_aside(context: HandlerContext, tx: Transaction, reply: Reply, address: str) -> None:
    """Take what came back on the connection of a signal of ours: a Pong, a status, an error."""
    try:
        for received in heard(reply, context.limits, context.caches.templates.envelopes).messages():
            receive_message(context, tx, received, replied(address))
    except ReadFault as fault:
        # A page of a proxy, a SOAP Fault: nothing that concerns a message of ours.
        problem = no_message(fault, reply, address)
        ignore(context, tx, Claim("reply", "unread", problem, address or None), None)


def receive_onward(
    context: HandlerContext, tx: Transaction, post: PostOn, ended: Transmission, reply: Reply | None
) -> None:
    """Take what the next handler said of a message that was passed on, while the connection
    of its request waits."""
    fault = None
    if reply is not None:
        said = heard(reply, context.limits, context.caches.templates.envelopes)
        try:
            for received in said.messages():
                receive_message(context, tx, received, replied(post.address))
            nothing_more(context, tx, post.message_id)
            return
        except ReadFault as problem:
            fault = said.parcel if problem.fault is not None else None
    elif ended.sent:
        nothing_more(context, tx, post.message_id)
        return
    not_passed(context, tx, post, ended, fault)


REPOSTED = 256
"""Answers that are taken up at once: as many as may be under way."""


def repost_answers(context: HandlerContext, tx: Transaction) -> None:
    """After a restart: answers that were stored but may never have left are sent again, a
    number of them in each turn."""
    owed = tx.answers_owed(REPOSTED, context.state.repost_after or 0)
    context.state.repost_after = owed[-1].row if len(owed) == REPOSTED else None
    context.state.reposted = True
    for stored in owed:
        sender, message_id = stored.incoming.sender, stored.incoming.message_id
        if (sender, message_id) in context.state.answering or (
            (sender, message_id) in context.elsewhere("answer")
        ):
            continue
        try:
            agreement = agreement_of_hop(context, tx, stored)
            answer = tx.answer(sender, message_id)
            if agreement is not None and answer is not None:
                check_kept(answer.parcel, message_id)
                post_signal(context, agreement, answer, sender=sender, message_id=message_id)
        except StoreDamaged as problem:
            # Its sender will ask for it again; then it is acknowledged anew.
            call_operator(context, tx, problem, message_id)
