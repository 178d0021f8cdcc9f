"""Submit: an application's document becomes a stored message with a first attempt due."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from oncewire.agreement.agreement import ActionBinding, Agreement, Requested
from oncewire.agreement.resolve import binding_to_send
from oncewire.agreement.rules import sends_synchronously
from oncewire.errors import InvalidValue, NotAllowed, NotHere
from oncewire.handler.actions import PostAnswer
from oncewire.handler.context import BODY_MAX, HandlerContext
from oncewire.handler.encryption import check_closable
from oncewire.handler.perform import first_attempt, perform
from oncewire.handler.route import Route, addresses_for, route_under, with_hop, with_number
from oncewire.handler.sending.outgoing_document import Original, is_whole
from oncewire.handler.sending.seal import draft_of, seal, unpack_draft, whole_parcel
from oncewire.handler.sending.splitting import (
    check_splittable,
    needs_parts,
    put_into_spool,
    store_document,
)
from oncewire.journal.identity import identity_digest
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.header import (
    TRIAL_MARK,
    TRIAL_SERVICE,
    AckRequest,
    DeliverySemantics,
    Header,
    SequenceNumber,
    SyncReplyMode,
    is_named_rightly,
    is_trial,
)
from oncewire.message.ids import Service, check_id
from oncewire.message.instant import DAY, SECOND, Duration, Instant, format_instant
from oncewire.message.payload import Payload, Reference, check_payloads
from oncewire.message.quick import quick, variant
from oncewire.message.signals import Acknowledgment, Error, ErrorList
from oncewire.protocol.effects import Note
from oncewire.protocol.notes import Submitted
from oncewire.protocol.sender import enter_window
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import Outgoing
from oncewire.protocol.terms import OnExhausted, Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import MessageFacts, StoredOutgoing
from oncewire.wire import codec
from oncewire.wire.limits import DEFAULT_LIMITS

# Fitting: the terms a submission runs under, and whether its documents fit what was agreed.
#
# It is asked before a document is read, where its size is known by then, and again when it was.


PAYLOAD_BYTES_MAX = BODY_MAX - 2 * DEFAULT_LIMITS.header_bytes
"""Bytes of all payloads of a message: with what is around them a body that a handler takes."""


TRIAL_PAUSE: Duration = 3 * SECOND
"""Between two attempts of a trial, since a person waits for it."""


def _trial_terms(terms: Terms) -> Terms:
    """Terms for a trial: repeated within seconds, and given up by itself."""
    hasty = replace(
        terms,
        timeout=TRIAL_PAUSE,
        retry_interval=TRIAL_PAUSE,
        retries=4,
        on_exhausted=OnExhausted.FAIL_MESSAGE,
    )
    return hasty if hasty.longest_retry < terms.persist_duration else terms


def terms_to_send(submission: Submission, binding: ActionBinding) -> Terms:
    """The terms of its action, less what the submission goes without."""
    terms, opens = binding.terms, submission.ref_to_message_id is None
    if submission.best_effort and terms.reliable:
        terms = replace(terms, reliable=False, numbered=False, ordered=False)
    if terms.synchronous and not sends_synchronously(binding, opens=opens):
        # Nobody waits on its connection, so it is repeated like any other (SYNC-18).
        terms = replace(terms, sync_mode=SyncReplyMode.NONE)
    return terms


def check_sizes_known(submission: Submission, agreement: Agreement) -> None:
    """Refuse a submission by what is known of its documents before anybody has read them."""
    binding = binding_to_send(agreement, submission.service, submission.action)
    check_sizes(submission, agreement, binding, terms_to_send(submission, binding))


def check_sizes(
    submission: Submission, agreement: Agreement, binding: ActionBinding, terms: Terms
) -> None:
    """Refuse what the partner would refuse: more than was agreed, or than a handler takes."""
    payloads = submission.payloads
    if terms.max_size is not None and needs_parts(payloads, terms):
        check_splittable(payloads, terms, agreement.form, binding.security)
        return
    together = sum(payload.size for payload in payloads)
    if together > PAYLOAD_BYTES_MAX:
        raise InvalidValue(
            f"the payloads have {together:,} bytes together, more than {PAYLOAD_BYTES_MAX:,}",
            remedy="send them in several messages, or agree on parts (payload.max_size)",
        )
    check_closable(payloads, binding.security)


LIFETIME_MAX: Duration = 100 * 366 * DAY
"""A message that may take longer may take for ever: it needs no TimeToLive."""


@quick
@dataclass(frozen=True, slots=True)
class Submission:
    """What an application hands in: documents, and under which agreement and for what.

    `cpa_id`: the agreement, as `oncewire agreement show` names it.
    `service`, `action`: what the partner is to do with it.
    `payloads`: the documents; none are needed, the action may say it all.
    `conversation_id`: of the conversation that it belongs to; a new one is made for None.
    `message_id`: given by an application that may repeat a submission after a crash.
    `ref_to_message_id`: the message that it responds to.
    `time_to_live`: in microseconds from now; as agreed for None.
    `best_effort`: without repeats and acknowledgements, although the agreement has them.
    """

    cpa_id: str
    service: Service
    action: str
    payloads: tuple[Payload, ...] = ()
    conversation_id: str | None = None
    message_id: str | None = None
    ref_to_message_id: str | None = None
    time_to_live: Duration | None = None
    best_effort: bool = False

    def __post_init__(self) -> None:
        """Everything that comes from outside is a Submission once, so it is checked here."""
        check_id(self.cpa_id, "cpa_id")
        if not isinstance(self.service, Service):
            raise _is_no("service", "Service", self.service, "give an oncewire Service")
        check_id(self.action, "action")
        for name in ("conversation_id", "message_id", "ref_to_message_id"):
            if (value := getattr(self, name)) is not None:
                check_id(value, name)
        lifetime = self.time_to_live
        # To Python a truth is a number.
        whole = type(lifetime) is int and 0 < lifetime <= LIFETIME_MAX
        if lifetime is not None and not whole:
            remedy = f"give whole microseconds, from 1 to {LIFETIME_MAX}, or none"
            raise _is_no("time_to_live", "lifetime", lifetime, remedy)
        if not isinstance(self.best_effort, bool):
            raise _is_no("best_effort", "bool", self.best_effort, "say True or False")
        if not is_named_rightly(self.message_id or "", self.service):
            raise InvalidValue(
                f"service {TRIAL_SERVICE} and MessageIds with {TRIAL_MARK} are for trials",
                remedy="`oncewire partner test` makes them",
            )
        check_payloads(self.payloads)


def _is_no(name: str, kind: str, value: object, remedy: str) -> InvalidValue:
    return InvalidValue(f"{name} is no {kind}: {repr(value)[:32]}", remedy=remedy)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The store has it: from now on it is sent, or somebody is told.

    `message_id`: by which `wait`, `ask` and `oncewire why` know it.
    `conversation_id`: for further messages that belong to it.
    `repeated`: the same id was submitted before with the same content; nothing new happened.
    """

    message_id: str
    conversation_id: str
    repeated: bool = False


def submit(
    context: HandlerContext,
    tx: Transaction,
    submission: Submission,
    acknowledgments: tuple[Acknowledgment, ...] = (),
    warnings: tuple[Error, ...] = (),
) -> Accepted:
    """Build, number if there is a place, store, and begin the first attempt.

    `acknowledgments` and `warnings` ride on it: they answer the message that it responds to
    (ACK-16, ERR-10); on a document in parts only warnings do.
    """
    known = None if submission.message_id is None else tx.outgoing(submission.message_id)
    if known is not None:
        return _repeated(context, tx, known, submission)
    agreement = agreement_called(context, submission.cpa_id)
    if submission.ref_to_message_id is None:
        # What answers a message is owed to it, whatever has ended since.
        _check_in_force(agreement, context.now())
    message, route = _compose(
        context, submission, agreement, context.now(), lambda *way: _stamp(context, tx, *way)
    )
    bounded = route.terms.max_size is not None
    large = bounded and needs_parts(message.payloads, route.terms)
    if acknowledgments and not large:
        message = replace(message, acknowledgments=acknowledgments)
    if warnings:
        message = replace(message, error_list=ErrorList(warnings))
    _check_unused(tx, message.header.message_id)
    if large:
        contents = put_into_spool(context, submission.payloads, route)
        store_document(context, tx, message, facts_of(message), route, contents)
    else:
        store_outgoing(context, tx, message, route)
    return Accepted(message.header.message_id, message.header.conversation_id)


def agreement_called(context: HandlerContext, cpa_id: str) -> Agreement:
    """The agreement an application names."""
    found = context.agreements.by_cpa_id(cpa_id)
    if not found:
        raise NotHere(
            f"there is no agreement {cpa_id!r}",
            remedy="name one that `oncewire agreement show` lists",
        )
    return found[0]


def _check_in_force(agreement: Agreement, now: Instant) -> None:
    """Refuse what the partner would refuse: nothing is agreed for today."""
    if agreement.in_force(now):
        return
    begins, name = agreement.start, f"agreement {agreement.cpa_id}"
    if begins is not None and now < begins:
        raise NotAllowed(
            f"{name} begins at {format_instant(begins)}",
            remedy="send it then, or agree on another period",
        )
    ended = "" if agreement.end is None else format_instant(agreement.end)
    raise NotAllowed(f"{name} ended at {ended}", remedy="agree on a new period")


def _repeated(
    context: HandlerContext, tx: Transaction, known: StoredOutgoing, submission: Submission
) -> Accepted:
    """A submission that was accepted before: its answer was lost, its message was not.

    It is composed once more as it was then, under the agreement of then and at that time. If
    the application gave the same, it is the same message down to its identity; what it left to
    us is not compared. Anything else under the id would be accepted and never sent.
    """
    facts, message_id = known.facts, known.outgoing.message_id
    agreement = context.agreement_kept(tx, known.agreement_id)
    if agreement is None:
        agreement = agreement_called(context, submission.cpa_id)
    named = submission.cpa_id in (agreement.cpa_id, *agreement.also_known_as)
    given = replace(submission, conversation_id=submission.conversation_id or facts.conversation_id)
    then = known.outgoing.submitted_at
    message, _ = _compose(context, given, agreement, then, lambda *_: facts.timestamp)
    # Earlier versions sent the Service as its caller named it, and not as it is agreed.
    as_called = replace(message, header=replace(message.header, service=given.service))
    same = facts.digest in (identity_digest(message), identity_digest(as_called)) or (
        facts.digest == _digest_warned(context, tx, known, message)
    )
    if known.relayed_from is not None or not named or not same:
        raise InvalidValue(
            f"MessageId {message_id} was used for another message",
            remedy="give every message an id of its own; to repeat a submission, give what was "
            "given before",
        )
    return Accepted(message_id, facts.conversation_id, repeated=True)


def _digest_warned(
    context: HandlerContext, tx: Transaction, known: StoredOutgoing, message: Message
) -> str:
    """The identity of the message with the warnings that ride on the first one."""
    parcel = tx.outgoing_parcel(known.outgoing.message_id)
    if is_whole(known):
        whole = unpack_draft(Original.read(parcel, known.outgoing.message_id).draft)
    elif parcel is not None:
        whole = whole_parcel(context, parcel)
    else:
        whole = unpack_draft(tx.draft(known.outgoing.message_id) or b"")
    return identity_digest(replace(message, error_list=codec.read(whole).message.error_list))


def _check_unused(tx: Transaction, message_id: str) -> None:
    """Refuse an id that was sent before: its receiver may have forgotten it as well, and then
    the same document would arrive a second time."""
    for gone in tx.removed(message_id):
        if gone.sender is None:
            raise NotAllowed(
                f"message {message_id} was sent from here on {format_instant(gone.at)} and "
                f"removed by retention on {format_instant(gone.removed_at)}",
                remedy=f"`oncewire why {message_id}` tells what became of it; give a new message "
                "an id of its own",
            )


def _compose(
    context: HandlerContext,
    submission: Submission,
    agreement: Agreement,
    now: Instant,
    stamped: Callable[[Route, str], Instant],
) -> tuple[Message, Route]:
    """The message's values and its way, before a number is known."""
    conversation = submission.conversation_id or context.world.new_id()
    message_id = submission.message_id or context.fresh_message_id()
    binding = binding_to_send(agreement, submission.service, submission.action)
    terms = terms_to_send(submission, binding)
    if is_trial(message_id):
        terms = _trial_terms(terms)
    check_sizes(submission, agreement, binding, terms)
    if terms.max_size is None or not needs_parts(submission.payloads, terms):
        _check_read(submission.payloads)
    route = route_under(agreement, binding, terms)
    stamp = stamped(route, conversation)
    # At most once without acknowledgements is a combination of its own (ebMS 2.0 §6.6).
    once = binding.rules.duplicate_elimination is Requested.ALWAYS
    header = Header(
        from_party=agreement.own.party.acting_as(binding.from_role),
        to_party=agreement.partner.party.acting_as(binding.to_role),
        cpa_id=agreement.cpa_id,
        conversation_id=conversation,
        # What is agreed, whatever its caller calls it: the partner knows it by its type, too.
        service=binding.service or submission.service,
        action=submission.action,
        message_id=message_id,
        timestamp=stamp,
        ref_to_message_id=submission.ref_to_message_id,
        **_quality(submission, terms, now, at_most_once=once),
    )
    message = Message(
        agreement.form.dialect,
        MessageKind.NORMAL,
        header,
        manifest=tuple([Reference(f"cid:{each.content_id}") for each in submission.payloads]),
        payloads=submission.payloads,
    )
    return codec.as_stated(with_hop(message, route, stamp)), route


def _check_read(payloads: tuple[Payload, ...]) -> None:
    """Refuse what nobody has read: of that there are no bytes to send."""
    for payload in payloads:
        if not payload.digest:
            problem = f"nobody has read payload {payload.content_id} yet"
            raise InvalidValue(problem, remedy="hand the submission in with `send`")


def _stamp(context: HandlerContext, tx: Transaction, route: Route, conversation_id: str) -> Instant:
    """Now; on a numbered stream strictly later than the message before it."""
    key = route.channel_of(conversation_id)
    now = context.now()
    if key is None:
        return now
    channel = tx.sending_channel(key) or SendingChannel.open(key, route.terms)
    channel, stamp = channel.stamp(now)
    tx.save_sending_channel(channel)
    return stamp


def _quality(
    submission: Submission, terms: Terms, now: Instant, *, at_most_once: bool
) -> dict[str, Any]:
    """Semantics, lifetime and wishes of a header, as the terms say.

    The lifetime counts from now. The timestamp may lie ahead of it, by as much as the clock was
    set back: it has to be later than the one before.
    """
    lifetime = submission.time_to_live or terms.time_to_live
    once = terms.reliable and terms.duplicate_elimination
    opening = submission.ref_to_message_id is None
    asks_sync = terms.synchronous and opening
    wants_receipt = terms.runs_protocol and terms.ack_requested is not AckRequest.NONE
    return {
        "time_to_live": None if lifetime is None else now + lifetime,
        "semantics": DeliverySemantics.ONCE_AND_ONLY_ONCE
        if once
        else DeliverySemantics.BEST_EFFORT,
        "duplicate_elimination": at_most_once or once,
        "delivery_receipt_requested": terms.ack_requested if wants_receipt else None,
        "sync_reply": terms.sync_mode if asks_sync else None,
    }


def facts_of(message: Message) -> MessageFacts:
    """What listings and queries show of a message."""
    header, split = message.header, message.header.split
    return MessageFacts(
        cpa_id=header.cpa_id,
        conversation_id=header.conversation_id,
        from_party=str(header.from_party),
        to_party=str(header.to_party),
        service="" if header.service is None else str(header.service),
        action=header.action or "",
        timestamp=header.timestamp,
        ref_to=header.ref_to_message_id,
        kind=message.kind,
        digest=identity_digest(message),
        size=sum(payload.size for payload in message.payloads),
        split_id=split.split_id if split else None,
        split_number=split.number if split else None,
        split_total=split.total if split else None,
    )


def store_outgoing(
    context: HandlerContext,
    tx: Transaction,
    message: Message,
    route: Route,
    *,
    relayed_from: str | None = None,
    notes: tuple[Note, ...] = (),
) -> None:
    """Store a composed message and, if its stream has a place, begin its first attempt."""
    now = context.now()
    terms = route.terms
    facts = facts_of(message)
    channel_key = route.channel(message)
    outgoing = Outgoing(
        message.header.message_id,
        context.keep_terms(tx, terms),
        now,
        channel_key,
        expires_at=message.header.time_to_live,
    )
    stored = StoredOutgoing(
        outgoing,
        facts,
        route.peer,
        relayed_from=relayed_from,
        hop=len(message.routing),
        agreement_id=context.keep_agreement(tx, route.agreement),
    )
    first = notes or (_submitted(message, channel_key, terms),)
    context.write(
        tx,
        first,
        terms_id=outgoing.terms_id,
        peer=facts.to_party if relayed_from is None else route.peer,
        hop=stored.hop or None,
        digest=facts.digest,
        size=facts.size,
    )
    channel = None
    if channel_key is not None:
        channel = tx.sending_channel(channel_key) or SendingChannel.open(channel_key, terms)
        if channel.places(terms) < 1 or tx.waiting(channel_key, 1):
            draft, files = draft_of(message, route.form)
            tx.add_outgoing(stored, parcel=None, draft=draft, files=files)
            # What waits before it may be a document, which it need not wait for.
            context.state.admissions[channel_key] = None
            return
    _send_now(context, tx, stored, message, route, channel)


def _send_now(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredOutgoing,
    message: Message,
    route: Route,
    channel: SendingChannel | None,
) -> None:
    """There is a place: number, bytes and first attempt go into one insert."""
    now, terms = context.now(), route.terms
    entered = enter_window(stored.outgoing, channel, terms, now)
    if entered.outgoing.number is not None:
        number = SequenceNumber(entered.outgoing.number, entered.outgoing.status)
        message = with_number(message, number, terms)
    addresses = addresses_for(context, tx, stored, terms.transports)
    step = first_attempt(context, tx, stored, entered, terms, now, addresses)
    parcel = seal(context, message, route)
    fresh = variant(stored, outgoing=step.outgoing)
    tx.add_outgoing(fresh, parcel=parcel, draft=None)
    perform(context, tx, fresh, channel, step, terms, parcel=parcel, addresses=addresses)


def _submitted(message: Message, channel: str | None, terms: Terms) -> Note:
    header, split = message.header, message.header.split
    what = Submitted(
        from_party=str(header.from_party),
        to_party=str(header.to_party),
        cpa_id=header.cpa_id,
        conversation_id=header.conversation_id,
        service=str(header.service),
        action=header.action,
        time_to_live=header.time_to_live,
        best_effort=not terms.reliable,
        notice=message.kind is MessageKind.ERROR,
        split_id=None if split is None else split.split_id,
        split_number=None if split is None else split.number,
        split_total=None if split is None else split.total,
    )
    return Note(what, header.message_id, header.ref_to_message_id, channel)


# Copying: a trial that was sent is sent once more, to see what its receiver makes of a copy.


def send_copy(context: HandlerContext, tx: Transaction, message_id: str) -> None:
    """Let the stored bytes of a trial leave again, beside its own attempts."""
    stored, parcel = tx.outgoing(message_id), tx.outgoing_parcel(message_id)
    if stored is None or parcel is None or not is_trial(message_id):
        raise NotAllowed(
            f"message {message_id} is no trial that was sent", remedy="copy none but trials"
        )
    transports = context.terms_of(tx, stored.outgoing.terms_id).transports
    ways = list(addresses_for(context, tx, stored, transports).items())
    if ways:
        tx.save_outgoing(stored.outgoing.repeated())
        context.state.actions.append(PostAnswer(*ways[0], parcel, others=tuple(ways[1:])))
