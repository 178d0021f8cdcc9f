"""Arrive: one readable message under an agreement, judged and stored with its answer.

For the To Party and for a hub the steps are the same: judge the id, the time to live and
the number; store the message, its answer and everything that follows in one transition.
They differ in what an accepted message becomes: ready for the application, or a copy
bound for the next hop, stored in that same transition.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement, Direction
from oncewire.agreement.resolve import Resolution, is_of_another, other_names
from oncewire.agreement.rules import plan_under
from oncewire.errors import EbxmlError
from oncewire.handler.actions import Ready, Source
from oncewire.handler.authentication import is_verified
from oncewire.handler.content_digest import with_whole_answer
from oncewire.handler.context import HandlerContext
from oncewire.handler.delivering.view import digest_of_copy, view_of
from oncewire.handler.facts import facts_under, words_of
from oncewire.handler.hub.passing import HubArrival
from oncewire.handler.perform import follow
from oncewire.handler.receiving import signals
from oncewire.handler.receiving.agreement_match import (
    can_sign,
    check_content,
    check_not_refused,
    check_signing,
    known_as,
    removed_as,
)
from oncewire.handler.receiving.gathering import (
    check_gathering,
    check_id,
    completes,
    gather,
    in_spool,
    is_gathered,
    split_begun,
    split_by_name,
)
from oncewire.handler.receiving.release import release, release_old
from oncewire.handler.receiving.reports import is_for_us, receive_errors, take_it
from oncewire.handler.route import peer_label
from oncewire.handler.sending.answer import (
    NOTHING,
    Answer,
    Patience,
    acknowledge,
    answer_error,
    await_response,
    await_rider,
    awaits_join,
    count_copy,
    is_awaited,
    post_or_reply,
    response_again,
    response_to_repeat,
    was_given,
    write_answer,
)
from oncewire.message.envelope import Error, Message, MessageKind, SequenceNumber, Split, is_trial
from oncewire.message.form import PartsForm
from oncewire.message.instant import Instant
from oncewire.protocol import notes
from oncewire.protocol.hops import HopDuty, hop_duty
from oncewire.protocol.notes import Note
from oncewire.protocol.receiver import (
    NOTHING_OWED,
    AckOwed,
    Arrival,
    DuplicateReply,
    First,
    Rejection,
    ack_owed,
    answer_duplicate,
    judge,
    judge_copy,
    refuse,
)
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.states import Incoming, IncomingEvent, IncomingState
from oncewire.protocol.synchronous import ASYNCHRONOUS, SyncPlan, plan_reply
from oncewire.protocol.terms import Scope, Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import (
    MessageFacts,
    Removed,
    StoredAnswer,
    StoredIncoming,
    StoredParcel,
    Word,
)
from oncewire.wire.parcel import Received

# What the journal says of a message when its first copy is stored or refused, and of copies.


def received_note(
    stored: StoredIncoming,
    message: Message,
    received: Received,
    resolution: Resolution,
    *,
    final: bool,
) -> Note:
    """Header facts and what was verified; `final`: this handler acts for the To Party."""
    facts = stored.facts
    verified = final and is_verified(received, resolution.security)
    what = notes.Received(
        from_party=facts.from_party,
        to_party=facts.to_party,
        cpa_id=facts.cpa_id,
        conversation_id=facts.conversation_id,
        service=facts.service,
        action=facts.action,
        best_effort=not resolution.terms.reliable,
        notice=message.kind is MessageKind.ERROR,
        signature_required=final and resolution.security.require_signature,
        signature="verified" if verified else "none",
        split_id=facts.split_id,
        split_number=facts.split_number,
        split_total=facts.split_total,
    )
    return Note.about(stored.incoming, what, facts.ref_to, stored.transport)


def duplicate_note(stored: StoredIncoming, answer: str, transport: str) -> Note:
    """A copy came, and which answer it gets."""
    incoming, what = stored.incoming, notes.Duplicate(answer)
    return Note(what, incoming.message_id, None, incoming.channel, transport=transport)


def refused_note(stored: StoredIncoming, error: Error, channel: str | None) -> Note:
    """Which error it is answered with."""
    what = notes.Refused(
        error.code, error.severity.value, error.location or None, error.description or None
    )
    return Note(what, stored.incoming.message_id, stored.facts.ref_to, channel)


# What the protocol is asked about a message that came in.


def number_of_arrival(message: Message, resolution: Resolution) -> SequenceNumber | None:
    """The number that counts here. At a hub that is the hop's own; a MessageOrder is between
    the end parties, and two pairs of them may use one ConversationId (C6)."""
    if not resolution.at_hop:
        return message.sequence
    return None if message.last_hop is None else message.last_hop.sequence


def channel_of_arrival(
    context: HandlerContext, tx: Transaction, message: Message, resolution: Resolution
) -> ReceivingChannel | None:
    """The stream that the message's number counts in; None: it has no number here.

    A number does not say whether it counts per pair or per triple. Where the agreement changed
    from one to the other, a stream that its sender goes on with keeps the name it began under.
    """
    key, terms = resolution.channel, resolution.terms
    number = number_of_arrival(message, resolution)
    if key is None or number is None or not terms.numbered:
        return None
    channel = tx.receiving_channel(key)
    if channel is None or channel.furthest is None:
        # Nothing was received yet: today's range is the first one.
        channel = ReceivingChannel.open(key, terms)
    known_later = context.state.numbered
    if terms.scope is Scope.CONVERSATION or key in known_later:
        return channel
    names = other_names(key, terms)
    found = [
        each
        for name in names
        if (each := tx.receiving_channel(name)) is not None
        and not is_of_another(name, context.agreements, Direction.RECEIVE)
    ]
    other = max(found, key=lambda each: each.newest_stamp, default=None)
    if other is None or other.newest_stamp <= channel.newest_stamp:
        known_later.add(key)
        known_later.difference_update(names)
        return channel
    if channel.furthest is None:
        # It follows the other one as one epoch follows another.
        channel = replace(channel, oldest_stamp=other.newest_stamp)
    return other if other.goes_on(number, stamp_of(message, resolution), terms) else channel


def stamp_of(message: Message, resolution: Resolution) -> Instant:
    """When the handler that numbered the message made it ready (see `protocol.receiving`)."""
    hop = message.routing[-1] if message.routing else None
    per_hop = resolution.at_hop or resolution.terms.scope is not Scope.CONVERSATION
    if per_hop and hop is not None and hop.timestamp is not None:
        return hop.timestamp
    return message.header.timestamp


def arrival_of(
    message: Message, resolution: Resolution, digest: str, channel: ReceivingChannel | None
) -> Arrival:
    """What the judgement needs to know of the message."""
    # The agreed lifetime is that of business messages; a failure notice has its own.
    normal = message.kind is MessageKind.NORMAL
    return Arrival(
        message.header.message_id,
        digest,
        stamp_of(message, resolution),
        number_of_arrival(message, resolution) if channel is not None else None,
        resolution.expires_at if normal else message.header.time_to_live,
    )


@dataclass(slots=True)
class Arriving:
    """One message on its way from the reader into the store, judged and answered."""

    context: HandlerContext
    tx: Transaction
    received: Received
    # The received bytes, as the store keeps them.
    kept: StoredParcel
    # The values that may be trusted: read from the signed part where there is a signature.
    message: Message
    resolution: Resolution
    source: Source
    # Whether this handler acts for the To Party, or is a hub on the message's way.
    final: bool = True
    # The way on from a hub; a copy needs none.
    ahead: Agreement | None = None
    # It is judged by the agreement of its original: a copy, whatever may be repeated.
    under_original: bool = False
    # No message of its id is stored or was removed.
    new: bool = False
    # Whether it was taken, as a message and not as a copy.
    accepted: bool = field(init=False, default=False)
    # The agreement with the handler the message came from.
    agreement: Agreement = field(init=False)
    # What listings show of it.
    facts: MessageFacts = field(init=False)
    # The document that it is a part of, if that is joined here.
    _split: Split | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.agreement = self.resolution.agreement
        self.facts = facts_under(self.message, self.agreement, self.ahead)
        header, form = self.message.header, self.resolution.form
        if not self.final or self.message.kind is not MessageKind.NORMAL:
            return
        if header.split is not None:
            self._split = header.split
            return
        sender = self.facts.from_party
        if form.parts is PartsForm.MID and not self.resolution.terms.numbered:
            split = split_by_name(self.tx, sender, self.message, form)
        else:
            # What was begun under an agreement that was replaced is not torn apart by that.
            split = split_begun(self.tx, sender, self.message)
        if split is not None:
            self._split = split
            self.facts = replace(
                self.facts,
                split_id=split.split_id,
                split_number=split.number,
                split_total=split.total,
            )

    def _incoming(self, sender: str, channel: ReceivingChannel | None, terms: Terms) -> Incoming:
        sequence = number_of_arrival(self.message, self.resolution) if channel else None
        return Incoming(
            sender,
            self.message.header.message_id,
            self.facts.digest,
            self.context.keep_terms(self.tx, terms),
            self.context.now(),
            channel=channel.key if channel else None,
            epoch=channel.epoch if channel else None,
            number=sequence.number if sequence else None,
        )

    def _stored(self, incoming: Incoming, answer: StoredAnswer | None) -> StoredIncoming:
        kept, view = None, None
        if incoming.state is not IncomingState.REFUSED:
            kept = self.kept if self._split is None else in_spool(self.context, self.kept)
            view = view_of(self.message, self.received) if self.final else None
        return StoredIncoming(
            incoming,
            self.facts,
            peer_label(self.agreement),
            self.source.transport,
            kept,
            answer,
            hop=len(self.message.routing),
            agreement_id=self.context.keep_agreement(self.tx, self.agreement),
            view=view,
        )

    def _write(
        self, note: Note, stored: StoredIncoming, digest: str, size: int | None = None
    ) -> None:
        self.context.write(
            self.tx,
            [note],
            terms_id=stored.incoming.terms_id,
            hop=stored.hop or None,
            peer=stored.peer,
            digest=digest,
            size=size,
        )

    @property
    def _hub(self) -> HubArrival:
        """A hub's own part in it."""
        return HubArrival(self.context, self.tx, self.received, self.resolution, self.source)

    def take(self) -> Answer:
        """Judge it, store it with its answer, and let go what waited for it."""
        message, terms = self.message, self.resolution.terms
        sender, known, gone = self.facts.from_party, None, None
        owed = ack_owed(message, terms, final=self.final)
        if not self.new:
            known = known_as(self.tx, sender, self.agreement, message.header.message_id)
            gone = self._removed(sender) if known is None else None
        passes = known is not None and self._repeats_pass(known.incoming.state)
        if (known is not None and not passes) or gone is not None:
            return self._copy(known, gone, owed)
        if passes:
            # Neither side asked for repeats to be stopped: each copy is a message (C40).
            sender = f"{sender} {self.context.world.new_id()}"
        channel = channel_of_arrival(self.context, self.tx, message, self.resolution)
        arrival = arrival_of(message, self.resolution, self.facts.digest, channel)
        try:
            plan = self._plan(owed)
            # A hub that cannot sign what is asked of it takes no responsibility (HOP-8).
            check_signing(self.context, self.agreement, owed)
            if self.final:
                check_content(self.tx, message, self.resolution)
                split = self._split
                check_id(self.tx, sender, message.header.message_id, message.header)
                if split is not None:
                    check_gathering(
                        self.context, self.tx, sender, message, split, self.facts, terms
                    )
            judgement = judge(arrival, channel, terms, self.context.now())
            if isinstance(judgement, First) and not self.new:
                check_not_refused(self.tx, sender, self.agreement, arrival.message_id)
        except EbxmlError as error:
            judgement, plan = refuse(arrival, error, channel, terms), self._plain_plan()
        if isinstance(judgement, First):
            self.accepted = True
            return self._first(sender, judgement, owed, plan)
        if known is not None:
            # An error about this copy would be believed of all of them (RM-17).
            return self._copy(known, None, owed)
        return self._refused(sender, judgement, plan)

    def _copy(self, known: StoredIncoming | None, gone: Removed | None, owed: AckOwed) -> Answer:
        """The id is known: that is judged before anything an agreement could refuse (RM-17)."""
        message, resolution = self.message, self.resolution
        digest = known.incoming.digest if known is not None else gone.digest if gone else ""
        channel = channel_of_arrival(self.context, self.tx, message, resolution)
        said = self.facts.digest
        if known is not None and self.final and is_verified(self.received, resolution.security):
            said = digest_of_copy(self.context, known, message, said)
        arrival = arrival_of(message, resolution, said, channel)
        other = judge_copy(arrival, digest, channel)
        if owed.signed and not can_sign(self.context, self.agreement):
            # The key is gone that could sign it anew; what was said before is still there.
            owed = NOTHING_OWED
        try:
            plan = self._plan(owed)
        except EbxmlError:
            plan = self._plain_plan()
        if other is not None:
            return self._refused(self.facts.from_party, other, plan)
        if known is not None:
            return self._duplicate(known, owed, plan)
        return NOTHING if gone is None else self._late_copy(gone, channel, owed, plan)

    def _plain_plan(self) -> SyncPlan:
        """How an answer goes back where nothing may be asked of the connection."""
        terms = self.resolution.terms
        return SyncPlan(terms.sync_mode) if self.source.can_answer else ASYNCHRONOUS

    def _plan(self, owed: AckOwed) -> SyncPlan:
        """What this connection carries back, or the error that refuses the wish."""
        message, terms, here = self.message, self.resolution.terms, self.source.can_answer
        binding, plan = self.resolution.binding, self.resolution.plan
        if plan is not None and here and self.final:
            return plan
        if not self.final or binding is None:
            return plan_reply(message, terms, can_answer=here, final=False, ack_owed=owed.owed)
        return plan_under(binding, message, terms, can_answer=here, ack_owed=owed.owed)

    def _removed(self, sender: str) -> Removed | None:
        """What is remembered of the message if retention removed it."""
        gone = removed_as(self.tx, sender, self.agreement, self.message.header.message_id)
        if gone is None or self._repeats_pass(IncomingState(gone.state)):
            return None
        return gone

    def _repeats_pass(self, state: IncomingState) -> bool:
        if self.under_original or not self.final or state is IncomingState.REFUSED:
            return False
        if self._split is not None:
            # A document takes each of its parts once, and is a message once.
            return False
        # What the agreement does not ask for the header still may.
        return self.resolution.terms.repeats_pass and not self.message.header.duplicate_elimination

    # --- a message never seen before ---

    def _first(self, sender: str, judgement: First, owed: AckOwed, plan: SyncPlan) -> Answer:
        context, tx, patience = self.context, self.tx, self._patience(owed, plan, judgement.terms)
        terms, split = patience.terms, self._split
        to = IncomingState.READY if self.final else IncomingState.FORWARDED
        joins = split is not None and completes(tx, sender, split, self.message)
        if split is not None:
            to = IncomingState.GATHERED
        incoming = self._incoming(sender, judgement.channel, terms).moved(
            IncomingEvent.ARRIVED, IncomingState.HELD if judgement.held else to
        )
        rides = patience.rides and not judgement.held
        relays = not self.final and self._hub.keeps_open(plan)
        at_once = not patience.waits and not rides and not relays and not joins
        answer = self._answer_at_once(owed, plan) if at_once else None
        stored = self._stored(incoming, answer)
        # What an epoch that is over still held goes before the one that begins the next (S6).
        deliver, old = judgement.deliver, 0
        if deliver:
            old = release_old(context, tx, judgement.channel, deliver)
        words: tuple[Word, ...] = ()
        if split is None and self.final:
            # A part is found by its document.
            binding = self.resolution.binding
            index = () if binding is None else binding.rules.index
            words = words_of(self.message.payloads, index)
        tx.add_incoming(stored, words)
        note = received_note(stored, self.message, self.received, self.resolution, final=self.final)
        self._write(note, stored, incoming.digest, self.facts.size)
        if judgement.channel is not None or judgement.effects:
            follow(context, tx, judgement.channel, judgement.effects)
        if split is not None:
            gather(context, tx, stored, self.message, split, last=joins)
        if self.final:
            # Stored, then correlated, and only then acknowledged (RM-17).
            self._consume(stored, held=judgement.held)
        reply = None
        if answer is not None:
            # A hop is complete before the next one begins (HOP-1).
            write_answer(context, tx, stored, answer, self._warnings(plan))
            reply = post_or_reply(context, self.agreement, stored, answer, plan, self.source)
        if self.ahead is not None and not judgement.held:
            self._hub.send_on(stored, self.ahead, kept_open=relays)
        if judgement.channel is not None:
            # Messages that waited for this one.
            release(context, tx, judgement.channel.key, deliver[old:])
        if reply is not None:
            return reply
        if joins and not self._waits_here(plan):
            return NOTHING
        if patience.waits or joins:
            return await_response(stored, terms)
        if rides:
            await_rider(context, stored, terms)
        if relays:
            return self._hub.kept_open(incoming.sender)
        return self._nothing_yet(stored, owed, plan)

    def _patience(self, owed: AckOwed, plan: SyncPlan, kept: Terms | None = None) -> Patience:
        terms = kept or self.resolution.terms
        header, kind = self.message.header, self.message.kind
        whole = kind is MessageKind.NORMAL and self._split is None
        if not self.final or not whole or is_trial(header.message_id):
            return Patience(terms)
        return Patience.of(terms, plan, owed, called=self.context.application_called)

    def _answer_at_once(self, owed: AckOwed, plan: SyncPlan) -> StoredAnswer | None:
        """The acknowledgement; what has none to ride on is told in a message of its own."""
        if owed.owed and self._acks_at_once():
            return self._acknowledge(owed, plan)
        told = self.resolution.warnings
        return (
            answer_error(self.context, self.message, self.agreement, told, plan) if told else None
        )

    def _acks_at_once(self) -> bool:
        if self.final:
            return True
        return hop_duty(self.message, self.resolution.terms) is HopDuty.RESPONSIBLE

    def _acknowledge(self, owed: AckOwed, plan: SyncPlan) -> StoredAnswer:
        return acknowledge(
            self.context, self.message, self.agreement, owed, plan, self.received,
            final=self.final, warnings=self._warnings(plan),
        )  # fmt: skip

    def _warnings(self, plan: SyncPlan) -> tuple[Error, ...]:
        """What the sender is told beside the acknowledgement."""
        ignored = () if plan.warning is None else (plan.warning,)
        return (*self.resolution.warnings, *ignored)

    def _consume(self, stored: StoredIncoming, *, held: bool) -> None:
        """What an accepted message means here, besides waiting for the application."""
        ours = is_for_us(stored.incoming.message_id, self.message.kind)
        if ours and not held:
            take_it(self.context, self.tx, self.message, stored)
        if ours:
            return
        message = self.message
        if message.acknowledgments or message.header.ref_to_message_id is not None:
            # Any accepted message that refers to one of ours completes it (RM-16).
            signals.settle_references(self.context, self.tx, message, self.resolution, self.kept)
            # What it warns of may ride on it (ERR-10).
            receive_errors(self.context, self.tx, message, self.agreement)
        if not held and self._split is None:
            self.context.state.actions.append(Ready(1))

    def _waits_here(self, plan: SyncPlan) -> bool:
        """Whether its answer is to go back on the connection that it came on."""
        return plan.signals and self.source.can_answer

    # --- a copy ---

    def _duplicate(self, known: StoredIncoming, owed: AckOwed, plan: SyncPlan) -> Answer:
        context, tx, incoming = self.context, self.tx, known.incoming
        known = with_whole_answer(known)
        # What was refused without an answer (no error answers an error) stays unanswered.
        refused = incoming.state in (IncomingState.REFUSED, IncomingState.CLOSED)
        terms = self.resolution.terms
        again = response_to_repeat(tx, known, terms) if self.final else None
        if awaits_join(tx, known):
            self._journal_duplicate(known, "awaited")
            if not self._waits_here(plan):
                return NOTHING
            return await_response(known, context.terms_of(tx, incoming.terms_id))
        if self._patience(owed, plan).waits and is_awaited(context, tx, known):
            self._journal_duplicate(known, "awaited")
            return await_response(known, context.terms_of(tx, incoming.terms_id))
        reply = answer_duplicate(
            terms,
            answered=was_given(context, tx, known),
            responded=again is not None,
            owed=owed.owed and self._acks_at_once() and not refused,
            kept=known.answer is not None,
        )
        if not self.final and self._hub.waits_again(known, plan):
            self._journal_duplicate(known, "awaited")
            return self._hub.kept_open(incoming.sender)
        self._journal_duplicate(known, reply.name.lower())
        if not self.final:
            self._hub.ask_again(known)
        if reply is DuplicateReply.STORED_ANSWER and known.answer is not None:
            count_copy(context, tx, known.answer)
            return post_or_reply(context, self.agreement, known, known.answer, plan, self.source)
        if reply is DuplicateReply.NEW_ACK:
            failed = None if self.final else self._hub.given_up(known, plan)
            if failed is not None:
                return failed
            answer = self._acknowledge(owed, plan)
            if known.answer is None:
                tx.save_answer(incoming.sender, incoming.message_id, answer)
            write_answer(context, tx, known, answer, self._warnings(plan))
            kept = replace(known, answer=answer)
            return post_or_reply(context, self.agreement, kept, answer, plan, self.source)
        if again is not None and reply in (
            DuplicateReply.FIRST_RESPONSE,
            DuplicateReply.LATEST_RESPONSE,
        ):
            here = plan.signals and self.source.can_answer
            return response_again(context, tx, again, self.agreement, here=here)
        return self._nothing_yet(known, owed, plan)

    def _nothing_yet(self, stored: StoredIncoming, owed: AckOwed, plan: SyncPlan) -> Answer:
        """A hub may acknowledge later, and says so; who owes no acknowledgement has taken the
        message, and sends no sender away that would not come back (RM-7)."""
        done = self.final or not owed.owed
        return NOTHING if done else self._hub.until_forwarded(stored, plan)

    def _late_copy(
        self, gone: Removed, channel: ReceivingChannel | None, owed: AckOwed, plan: SyncPlan
    ) -> Answer:
        """A copy of what retention removed: not handed over, and acknowledged anew
        because the first answer's bytes are gone with it."""
        incoming = self._incoming(gone.sender or "", channel, self.resolution.terms)
        # One that was closed unanswered stays unanswered.
        ours = gone.state != IncomingState.CLOSED and self._acks_at_once()
        stored = self._stored(incoming, None)
        reply = answer_duplicate(
            self.resolution.terms, answered=False, responded=False, owed=owed.owed and ours
        )
        self._journal_duplicate(stored, reply.name.lower())
        if reply is not DuplicateReply.NEW_ACK:
            return NOTHING
        answer = self._acknowledge(owed, plan)
        write_answer(self.context, self.tx, stored, answer, self._warnings(plan))
        return post_or_reply(self.context, self.agreement, stored, answer, plan, self.source)

    def _journal_duplicate(self, known: StoredIncoming, answer: str) -> None:
        note = duplicate_note(known, answer, self.source.transport)
        self._write(note, known, known.incoming.digest)

    # --- a refusal ---

    def _refused(self, sender: str, judgement: Rejection, plan: SyncPlan) -> Answer:
        context, tx, error = self.context, self.tx, judgement.error
        answer = answer_error(context, self.message, self.agreement, (error,), plan)
        terms = judgement.terms or self.resolution.terms
        incoming = self._incoming(sender, judgement.channel, terms).moved(
            IncomingEvent.ARRIVED, IncomingState.REFUSED
        )
        stored = self._stored(incoming, answer)
        note = refused_note(stored, error, incoming.channel or self.resolution.channel)
        self._write(note, stored, self.facts.digest, self.facts.size)
        follow(context, tx, judgement.channel, judgement.effects)
        if judgement.channel is not None:
            release(context, tx, judgement.channel.key, judgement.deliver)
        kept = judgement.remembered and tx.incoming(sender, incoming.message_id) is None
        if kept and not (self.final and is_gathered(tx, sender, incoming.message_id)):
            tx.add_incoming(stored)
        else:
            # Nothing is kept: the answer is sent once, and the next copy gets its own.
            stored = replace(stored, answer=None)
        if answer is None:
            return NOTHING
        return post_or_reply(context, self.agreement, stored, answer, plan, self.source)
