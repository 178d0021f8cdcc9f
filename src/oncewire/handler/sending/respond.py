"""Respond: what an application sends, and the answer of a request when it has spoken.

The answer of a request is an acknowledgment, the application's response, or both: in one header,
one after the other in one body, or each on its own, as `ack.bundling` and `sync.bundle` say. It is
stored before a byte of it is written, so every copy of the request gets the same bytes.

Where no connection waits, an acknowledgment may still wait a little for a response to ride on.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement, Direction
from oncewire.agreement.resolve import find_binding
from oncewire.agreement.rules import takes_best_effort, weigh
from oncewire.errors import EbxmlError, StoreDamaged
from oncewire.handler.actions import Accepted, Post, PostReply, Submission
from oncewire.handler.context import HandlerContext
from oncewire.handler.delivering.deliver import FOR_EVER
from oncewire.handler.encryption import read_stored, whole_parcel
from oncewire.handler.perform import follow, open_incident, withhold
from oncewire.handler.route import agreement_of_hop, peer_label
from oncewire.handler.sending.answer import (
    NOTHING,
    Answer,
    Awaited,
    ack_waits,
    acknowledge,
    acknowledgment_for,
    answer_error,
    awaits_join,
    is_awaited,
    post_signal,
    signal_route,
    write_answer,
)
from oncewire.handler.sending.seal import sealed
from oncewire.handler.sending.submit import agreement_called, submit
from oncewire.message.envelope import Acknowledgment, Error, Message, MessageKind
from oncewire.protocol.notes import Note, Raise, Refused
from oncewire.protocol.receiver import AckOwed, ack_owed, close_number
from oncewire.protocol.states import IncomingState
from oncewire.protocol.synchronous import (
    TIMEOUT_MESSAGE,
    SyncPlan,
    answerable_after_restart,
    awaits_response,
    concatenates,
    ignored_wish,
    late_warning,
    timeout_error,
)
from oncewire.protocol.terms import AckBundling, Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredAnswer, StoredIncoming, StoredParcel
from oncewire.wire import codec
from oncewire.wire.parcel import Received


@dataclass(frozen=True, slots=True)
class Request:
    """One stored message, with everything its answer is made from."""

    context: HandlerContext
    tx: Transaction
    stored: StoredIncoming
    received: Received
    agreement: Agreement
    # Those it was accepted under.
    terms: Terms
    owed: AckOwed

    @classmethod
    def read(
        cls, context: HandlerContext, tx: Transaction, stored: StoredIncoming
    ) -> Request | None:
        """None where its bytes or its agreement are gone."""
        agreement = agreement_of_hop(context, tx, stored)
        facts = stored.facts
        joined = facts.split_id == stored.incoming.message_id and facts.split_number is None
        if agreement is None or stored.parcel is None or joined:
            # A document that came in parts was answered with the last of them.
            return None
        received = read_stored(context.store.spool, stored.parcel, context.limits)
        terms = context.terms_of(tx, stored.incoming.terms_id)
        owed = ack_owed(received.message, terms, final=True)
        return cls(context, tx, stored, received, agreement, terms, owed)

    @property
    def message(self) -> Message:
        """What was asked."""
        return self.received.message

    @property
    def plan(self) -> SyncPlan:
        """What its connection was to carry back."""
        return SyncPlan(self.terms.sync_mode)

    @property
    def synchronous(self) -> bool:
        """Whether its response goes back on its own connection."""
        return awaits_response(self.terms)

    @property
    def warnings(self) -> tuple[Error, ...]:
        """What its sender is told beside the answer: differences from the agreement that were
        borne, and a wish that was ignored."""
        try:
            binding = find_binding(self.agreement, Direction.RECEIVE, self.message)
            borne = weigh(binding, self.message).warnings
        except EbxmlError:
            # The agreement has changed since: what was accepted stays accepted.
            borne = ()
        return (*borne, *self.ignored)

    @property
    def ignored(self) -> tuple[Error, ...]:
        """The warning that its wish for a synchronous reply was ignored (SYNC-10)."""
        wish = ignored_wish(self.message, self.terms)
        return () if wish is None else (wish,)

    def is_answered_by(self, response: Submission) -> bool:
        """Whether a submission is a response to it, and goes to the handler it came from."""
        if response.ref_to_message_id != self.stored.incoming.message_id:
            return False
        return peer_label(agreement_called(self.context, response.cpa_id)) == self.stored.peer

    def riding(self, response: Submission) -> tuple[Acknowledgment, ...] | None:
        """The elements that ride on a response (SYNC-7, ACK-16); None where the
        acknowledgement is no part of it: not agreed, not owed, or a signed one that an
        unsigned response cannot carry."""
        if not self.owed.owed or self.terms.ack_bundling is AckBundling.STANDALONE:
            return None
        header = replace(self.message.header, service=response.service, action=response.action)
        binding = find_binding(self.agreement, Direction.SEND, replace(self.message, header=header))
        if self.owed.signed and not binding.security.sign:
            return None
        back = signal_route(self.agreement, MessageKind.ACKNOWLEDGMENT)
        ack = acknowledgment_for(
            self.context, self.message, back, self.owed, self.received, final=True
        )
        return ack.acknowledgments

    def acknowledge(self, *warnings: Error) -> StoredAnswer:
        """The acknowledgement as a message of its own."""
        return acknowledge(
            self.context,
            self.message,
            self.agreement,
            self.owed,
            self.plan,
            self.received,
            final=True,
            warnings=warnings,
        )

    def save_ack(self, *more: Error) -> None:
        """The acknowledgement alone is the answer; no connection waits for it: it leaves on
        one of its own."""
        warnings = (*self.warnings, *more)
        answer = self.acknowledge(*warnings)
        self.save(answer, acknowledges=True, warnings=warnings)
        if answer.owed:
            incoming = self.stored.incoming
            post_signal(
                self.context,
                self.agreement,
                answer,
                sender=incoming.sender,
                message_id=incoming.message_id,
            )

    def save_warnings(self) -> None:
        """Neither an acknowledgement nor a response is the answer, but the sender is warned."""
        warnings = self.warnings
        if not warnings:
            return
        answer = answer_error(self.context, self.message, self.agreement, warnings, self.plan)
        if answer is not None:
            self.save(answer, warnings=warnings)

    def save(
        self, answer: StoredAnswer, *, acknowledges: bool = False, warnings: tuple[Error, ...] = ()
    ) -> None:
        """Keep the bytes that answer it first: every copy gets the same (DUP-5)."""
        incoming = self.stored.incoming
        self.tx.save_answer(incoming.sender, incoming.message_id, answer)
        write_answer(
            self.context, self.tx, self.stored, answer, warnings, acknowledges=acknowledges
        )

    def concatenate(self, ack: StoredAnswer, response: StoredParcel) -> StoredAnswer:
        """Acknowledgement and response as two messages in one body (SYNC-8, C30)."""
        whole = [whole_parcel(self.context, parcel) for parcel in (ack.parcel, response)]
        together = sealed(self.context, codec.bundle(whole))
        return StoredAnswer(ack.answer_id, MessageKind.NORMAL, together)


def _pending(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> Request | None:
    """A message that still waits for its answer."""
    if is_awaited(context, tx, stored) or ack_waits(context, tx, stored):
        return Request.read(context, tx, stored)
    return None


def send(context: HandlerContext, tx: Transaction, submission: Submission) -> Accepted:
    """Take a document from an application, which may be the response to a request.

    An application that takes its messages itself responds by what it sends. One that is called
    responds by what it returns, so what else it sends meanwhile is no response.
    """
    reference = submission.ref_to_message_id
    if reference is None:
        return submit(context, tx, submission)
    for stored in tx.incoming_by_id(reference):
        request = None if context.application_called else _pending(context, tx, stored)
        if request is not None and request.is_answered_by(submission) and _may_answer(request):
            accepted, post = _answer(request, submission)
            _let_go(request, post)
            return accepted
    return _send_unawaited(context, tx, submission)


def _send_unawaited(context: HandlerContext, tx: Transaction, submission: Submission) -> Accepted:
    """Send a message that is not an awaited reply; attach warnings if it answers a request."""
    reference = submission.ref_to_message_id
    for stored in tx.incoming_by_id(reference) if reference is not None else ():
        terms = context.terms_of(tx, stored.incoming.terms_id)
        # Without a synchronous reply in force, and only there, a wish may have been ignored.
        wish = not terms.synchronous and stored.facts.kind is MessageKind.NORMAL
        request = Request.read(context, tx, stored) if wish else None
        if request is not None and request.is_answered_by(submission):
            return submit(context, tx, submission, warnings=request.ignored)
    return submit(context, tx, submission)


def respond(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredIncoming,
    responses: Sequence[Submission],
) -> None:
    """Store what the application returned; where the request waits for its answer, the response
    that refers to it is that answer.

    `stored` is the request as it was before its confirmation.
    """
    request = _pending(context, tx, stored)
    if request is None:
        for response in responses:
            _send_unawaited(context, tx, response)
        return
    reply = next(
        (submission for submission in responses if request.is_answered_by(submission)), None
    )
    post = None
    if reply is not None and _may_answer(request):
        _, post = _answer(request, reply)
    elif reply is not None:
        # Its initiator was told that no response came, and asks anew if it wants one.
        problem = "its response came after the connection that waited for it was gone: not sent"
        open_incident(context, tx, Raise(problem, stored.incoming.message_id))
    elif request.owed.owed:
        request.save_ack()
    else:
        request.save_warnings()
    for response in responses:
        if response is not reply:
            submit(context, tx, response)
    _let_go(request, post)


def _is_elsewhere(request: Request) -> bool:
    """Whether it waits at another handler."""
    incoming = request.stored.incoming
    return (incoming.sender, incoming.message_id) in request.context.elsewhere("reply")


def _may_answer(request: Request) -> bool:
    """Whether a response is still awaited."""
    if not request.synchronous or _is_waited_for(request.context, request.stored):
        return True
    return answerable_after_restart(request.terms)


def _let_go(request: Request, post: Post | None) -> None:
    if request.synchronous:
        incoming = request.stored.incoming
        request.context.state.actions.append(
            PostReply(incoming.sender, incoming.message_id, post, _is_elsewhere(request))
        )


def _answer(request: Request, reply: Submission) -> tuple[Accepted, Post | None]:
    """Store the response, with the acknowledgement in it or before it, as the answer; on a
    connection that waits its first attempt is the reply.

    Where the two cannot travel together, or the response must wait (for a place in its window,
    or because its receiver asked for a pause), the acknowledgement alone is the answer, and the
    response leaves on its own.
    """
    context, tx, terms = request.context, request.tx, request.terms
    binding = request.agreement.sending
    if request.synchronous and not answerable_after_restart(terms) and takes_best_effort(binding):
        reply = replace(reply, best_effort=True)
    riding, warnings = request.riding(reply), request.warnings
    accepted = submit(context, tx, reply, riding or (), warnings)
    # Its first attempt, if that leaves after this commit.
    posts = [post for post in context.state.actions if isinstance(post, Post)]
    post = next((post for post in posts if post.message_id == accepted.message_id), None)
    leaves = post is not None and not accepted.repeated
    parcel = tx.outgoing_parcel(accepted.message_id) if leaves else None
    rides, owed = riding is not None, request.owed.owed
    together = owed and request.synchronous and concatenates(terms)
    if parcel is None or (owed and not rides and not together):
        if owed:
            request.save_ack()
        return accepted, None
    if together:
        ack = request.acknowledge()
        both = request.concatenate(ack, parcel)
        request.save(both, acknowledges=True, warnings=warnings)
        if not rides and not _is_waited_for(context, request.stored):
            post_signal(context, request.agreement, ack)
    else:
        answer = StoredAnswer(accepted.message_id, MessageKind.NORMAL, parcel)
        request.save(answer, acknowledges=rides, warnings=warnings)
    if post is None or not request.synchronous:
        return accepted, None
    # It leaves on the connection that waits, or on its own if none waits any more.
    context.state.actions.remove(post)
    return accepted, post


def acknowledge_next(context: HandlerContext, tx: Transaction) -> None:
    """An acknowledgement that found no response to ride on in time leaves by itself."""
    due = heapq.heappop(context.state.acks_waiting)
    context.state.acks_leaving.append(due)
    _, sender, message_id = due
    stored = tx.incoming(sender, message_id)
    if stored is None or not ack_waits(context, tx, stored):
        return
    request = Request.read(context, tx, stored)
    if request is not None:
        request.save_ack()


# Awaiting: requests whose connection waits for the application's response, and the end of that.
#
# The request is stored in a first commit, and its connection waits. The application is asked
# outside any transaction. A second commit stores its response, and only then the reply is written.


_GONE = "the connection that waited for its response is gone"


def reply_to(context: HandlerContext, tx: Transaction, awaited: Awaited) -> Answer | None:
    """The reply as the store has it; None: there is none yet."""
    stored = tx.incoming(awaited.sender, awaited.message_id)
    if stored is None:
        return NOTHING
    if is_awaited(context, tx, stored) or awaits_join(tx, stored):
        return None
    return NOTHING if stored.answer is None else Answer(200, stored.answer.parcel)


def overdue(context: HandlerContext, tx: Transaction, awaited: Awaited) -> Answer:
    """The application did not answer in time (SYNC-17).

    Where the request may be repeated it is stored for good: it is acknowledged with a warning,
    and the response follows on its own. Where it may not, its initiator has nothing left to
    wait for: what was not handed over yet never will be (SYNC-18).
    """
    known = reply_to(context, tx, awaited)
    stored = tx.incoming(awaited.sender, awaited.message_id)
    if stored is not None and awaits_join(tx, stored):
        # The next copy of it finds its answer.
        return NOTHING
    request = None if stored is None else Request.read(context, tx, stored)
    if known is not None or request is None:
        return known or NOTHING
    if answerable_after_restart(request.terms):
        if request.owed.owed:
            request.save_ack(late_warning())
            return reply_to(context, tx, awaited) or NOTHING
    elif request.stored.incoming.state is not IncomingState.HANDED_OVER:
        _close(context, tx, request.stored, TIMEOUT_MESSAGE)
    errors = (timeout_error(), *request.warnings)
    report = answer_error(context, request.message, request.agreement, errors, request.plan)
    return NOTHING if report is None else Answer(200, report.parcel)


def close_if_alone(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> bool:
    """Close a request that only its connection could answer when no connection waits for it:
    its initiator has given up, and must not hear of it in another way (SYNC-18)."""
    incoming = stored.incoming
    if _is_waited_for(context, stored):
        return False
    if not is_awaited(context, tx, stored):
        return False
    if answerable_after_restart(context.terms_of(tx, incoming.terms_id)):
        return False
    _close(context, tx, stored, _GONE)
    return True


def _is_waited_for(context: HandlerContext, stored: StoredIncoming) -> bool:
    """Whether a connection waits for its response, here or at another handler."""
    key = stored.incoming.sender, stored.incoming.message_id
    return key in context.state.replying or key in context.elsewhere("reply")


def left_alone(context: HandlerContext, tx: Transaction, awaited: Awaited) -> None:
    """A connection has gone before its response; what the application is called with now it
    may still take."""
    stored = tx.incoming(awaited.sender, awaited.message_id)
    if stored is not None and stored.incoming.state is not IncomingState.HANDED_OVER:
        close_if_alone(context, tx, stored)


def take_up_waiting(context: HandlerContext, tx: Transaction) -> None:
    """After a restart the connections are gone, and what only they could answer is over;
    acknowledgements that waited for a response have waited long enough."""
    for stored in (*tx.ready(FOR_EVER, 10_000), *tx.held(10_000)):
        try:
            terms = context.terms_of(tx, stored.incoming.terms_id)
        except StoreDamaged as problem:
            withhold(context, tx, stored, problem)
            continue
        if _is_waited_for(context, stored):
            continue
        if is_awaited(context, tx, stored) and not answerable_after_restart(terms):
            _close(context, tx, stored, _GONE)
        elif ack_waits(context, tx, stored):
            incoming = stored.incoming
            heapq.heappush(
                context.state.acks_waiting, (context.now(), incoming.sender, incoming.message_id)
            )


def _close(context: HandlerContext, tx: Transaction, stored: StoredIncoming, problem: str) -> None:
    """Never hand a request over, and settle its number, so that its stream goes on."""
    incoming = stored.incoming.closed()
    tx.save_incoming(incoming)
    note = Note(
        Refused("DeliveryFailure", "Warning", problem=problem),
        incoming.message_id,
        stored.facts.ref_to,
        incoming.channel,
    )
    context.write(
        tx,
        [note],
        terms_id=incoming.terms_id,
        peer=stored.peer,
        digest=incoming.digest,
        size=stored.facts.size,
    )
    channel = None if incoming.channel is None else tx.receiving_channel(incoming.channel)
    if channel is not None:
        follow(context, tx, *close_number(stored.incoming, channel))
