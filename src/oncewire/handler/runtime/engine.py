"""Engine: the synchronous handler. Verbs change state; `commit` makes it so and lets go.

A verb runs one transition. Nothing it decides leaves the process before `commit` returns:
replies, posts and notices are collected and given out by the commit, or thrown away with
it. The commit loop or the simulator calls verbs, then commit, then performs the actions.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
from collections.abc import Sequence

from oncewire.errors import (
    AgreementProblem,
    EbxmlError,
    InvalidValue,
    OncewireError,
    StoreFull,
    StoreGone,
    StoreProblem,
    __version__,
)
from oncewire.handler.actions import (
    Accepted,
    Action,
    Join,
    Notice,
    Post,
    PostAnswer,
    PostOn,
    PostReply,
    Relay,
    Source,
    Submission,
)
from oncewire.handler.context import HandlerContext
from oncewire.handler.delivering import deliver, notices
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.hub.next_hop import abandon_stranded, resume_stranded, resume_stranded_hops
from oncewire.handler.hub.passing import nothing_more, relay
from oncewire.handler.perform import open_incident, resolve_incidents
from oncewire.handler.receiving import gathering, release
from oncewire.handler.receiving.inbound import Expected, Reply, expected
from oncewire.handler.receiving.joining import (
    Joined,
    JoinPlan,
    finish_join,
    give_up_incomplete,
    plan_join,
    refuse_join,
)
from oncewire.handler.receiving.receive import (
    receive,
    receive_aside,
    receive_onward,
    receive_reply,
    repost_answers,
)
from oncewire.handler.receiving.release import give_up_gaps
from oncewire.handler.runtime import beside, operate, retention
from oncewire.handler.runtime.beside import LOOK_EVERY
from oncewire.handler.runtime.failures import left_untold, tell_failures
from oncewire.handler.runtime.operate import close_what_is_over
from oncewire.handler.runtime.retention import next_wake
from oncewire.handler.sending import answer as unaddressed
from oncewire.handler.sending import parts, transmit
from oncewire.handler.sending.answer import Answer, Awaited
from oncewire.handler.sending.asking import ask_for_unknown, ask_status, ping
from oncewire.handler.sending.respond import (
    acknowledge_next,
    close_if_alone,
    left_alone,
    overdue,
    reply_to,
    respond,
    send,
    take_up_waiting,
)
from oncewire.handler.sending.submit import agreement_called
from oncewire.handler.sending.transmit import (
    Transmission,
    admit_waiting,
    hurry,
    look_again,
    recheck_waiting,
    set_aside,
)
from oncewire.handler.spool_reading import Reading
from oncewire.journal.row import JOURNAL_VERSION
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.notes import Note, Raise, Resolve, Started, Stopped
from oncewire.protocol.states import ENDLESS, IncomingState
from oncewire.store.records import StoredParcel
from oncewire.wire.parcel import Parcel, Received

logger = logging.getLogger("oncewire.handler")


class Engine:
    """One handler without its sockets."""

    def __init__(self, context: HandlerContext) -> None:
        self.context = context
        if context.at_rest:
            # It is never started; what it writes must not look like a time that was accepted.
            retention.begin_clock(context)

    # --- life ---

    def start(self) -> None:
        """Record the boot and take up what an earlier one left: answers still owed."""
        context = self.context
        retention.begin_clock(context)
        with context.store.reader() as reader:
            # What held these up may have been mended.
            context.state.troubled = {
                incident.message_id: 1 for incident in reader.incidents() if incident.message_id
            }
        with context.transition() as tx:
            parties = sorted(
                {str(party_id) for deal in context.agreements for party_id in deal.own.party.ids}
                | {party_id.value for deal in context.agreements for party_id in deal.own.party.ids}
            )
            context.write(tx, [Note(Started(__version__, JOURNAL_VERSION, tuple(parties)))])
        retention.watch(context)
        if context.store.fellows is not None:
            with context.transition():
                context.store.fellows.take_over()
            context.state.fellows_due_at = context.now() + LOOK_EVERY
        self._take_up()
        retention.begin_retention(context)

    def _take_up(self) -> None:
        """Take up what an earlier run has left, or a handler beside this one that is over."""
        context = self.context
        for step in (
            lambda tx: release.survey(context, tx),
            lambda tx: deliver.recover_hand_overs(context, tx),
            lambda tx: take_up_waiting(context, tx),
            lambda tx: context.state.failed.extend(left_untold(context, tx)),
            lambda tx: gathering.begin_all(context, tx),
            lambda tx: retention.end_all_answers(context, tx),
            lambda tx: repost_answers(context, tx),
            lambda tx: transmit.take_up_delegated(context, tx),
            lambda tx: resume_stranded_hops(context, tx),
        ):
            # A handler that cannot take up one part of it serves the rest.
            context.logged_step(step, "what an earlier run left is not taken up")

    def _look_around(self) -> None:
        """Take up what handlers have left that are over."""
        context, fellows = self.context, self.context.store.fellows
        context.state.fellows_due_at = context.now() + LOOK_EVERY
        if fellows is None or fellows.draining:
            return
        with context.transition() as tx:
            retention.call_again(context, tx)
            gone = fellows.take_over()
        if gone:
            logger.warning("the work of other handlers is taken over", extra={"handlers": gone})
            self._take_up()

    def stop(self) -> None:
        """Record a graceful end."""
        with self.context.transition() as tx:
            self.context.state.refusals.write(tx, self.context.now())
            self.context.write(tx, [Note(Stopped())])

    def commit(self) -> list[Action]:
        """Make every transition since the last commit durable and give its actions out.

        When the store cannot, nothing happened: the error is raised, and every caller
        whose verb was in it must be told so.
        """
        context, state = self.context, self.context.state
        try:
            if state.contacts.returned and not context.at_rest:
                hurry(context)
            while state.admissions or state.failed or state.parts_ended or state.releasing:
                parts.follow(context)
                admit_waiting(context)
                for message_id, problem in parts.release(context):
                    set_aside(context, message_id, problem)
                tell_failures(context)
            if state.unaddressed:
                unaddressed.call_operator(context)
            fellows = context.store.fellows
            if fellows is None:
                context.store.commit()
            else:
                with beside.claimed(context, fellows):
                    if context.store.pending() or fellows.wants_turn:
                        context.store.commit()
        except OncewireError:
            self._put_back()
            for action in state.actions:
                post: object = action
                if isinstance(action, PostReply):
                    post = action.post
                elif isinstance(action, Relay):
                    post = action.instead
                if isinstance(post, Post):
                    state.in_flight.discard(post.message_id)
            state.actions = []
            raise
        finally:
            state.trouble_changed, state.acks_leaving = [], []
            state.reposted = False
            spooled, state.spooled = state.spooled, []
            for name in spooled:
                context.store.spool.let_go(name)
        state.timeline.keep()
        state.refusals.keep()
        if state.joining:
            gathering.forget_joined(context)
        actions, state.actions = state.actions, []
        return actions

    def _put_back(self) -> None:
        """Nothing happened since the last commit: what that had taken from memory waits again."""
        context, state = self.context, self.context.state
        # It may have been a sweep that was undone, and a full disk is a reason for one.
        state.sweep_due_at = min(state.sweep_due_at, context.now() + retention.FIRST_SWEEP)
        state.refusals.undo()
        state.timeline.undo()
        recheck_waiting(context)
        if state.reposted:
            state.repost_after = 0
        for due in state.acks_leaving:
            heapq.heappush(state.acks_waiting, due)
        state.acks_leaving = []
        state.numbered.clear()

    def next_wake(self) -> Instant:
        """When `tick` has something to do next."""
        return next_wake(self.context, self.context.now())

    def rest(self) -> Duration:
        """How long `tick` has nothing to do from now on; not more than 0: it has something."""
        now = self.context.now()
        return next_wake(self.context, now) - now

    # --- verbs ---

    def expect(self, message_ids: Sequence[str], submissions: int = 0) -> None:
        """Verbs that wait may ask for these messages, and so many for a new one each: have the
        store find all of them at once."""
        fresh = self.context.fresh_message_ids(submissions)
        with self.context.store.transition() as tx:
            tx.expect((*message_ids, *fresh))

    def submit(self, submission: Submission) -> Accepted:
        """Take a document from an application."""
        with self.context.transition(submission.by) as tx:
            return send(self.context, tx, submission)

    def receive(
        self,
        parcel: Parcel,
        source: Source,
        stored: StoredParcel | None = None,
        reading: Reading | None = None,
    ) -> Answer:
        """Take what a transport brought; the answer may leave after the commit.

        `stored` says where the bytes lie, if spooled already, `reading` what they say, if read.
        """
        with self.context.transition() as tx:
            return receive(self.context, tx, parcel, source, stored, reading)

    def expects(self, received: Received) -> Expected:
        """Whether the rest of a message may come whose header is there."""
        with self.context.transition() as tx:
            return expected(self.context, tx, received)

    def join_plan(self, wanted: Join) -> JoinPlan | None:
        """What a document is to be made of; None: nothing any more."""
        try:
            with self.context.transition() as tx:
                return plan_join(self.context, tx, wanted.sender, wanted.split_id)
        except EbxmlError as error:
            self.not_joined(wanted, error)
            return None

    def joined(self, plan: JoinPlan, joined: tuple[Joined, ...], made: Sequence[str]) -> None:
        """A document was put together; `made`: the files that came to be by that."""
        self.context.state.spooled += made
        with self.context.transition() as tx:
            finish_join(self.context, tx, plan, joined)
            # There may have been no room for it until now.
            resolve_incidents(self.context, tx, Resolve(plan.document.split_id))

    def not_joined(self, wanted: Join, error: EbxmlError) -> None:
        """The parts are no document, for a reason that its sender is told."""
        with self.context.transition() as tx:
            refuse_join(self.context, tx, wanted.sender, wanted.split_id, error)

    def transmission_over(self, ended: Transmission, reply: Reply | None = None) -> None:
        """Take the transport's word on an attempt, and what came back with it."""
        # It is over even when the store cannot take note of it: its timer brings it up again.
        self.context.state.in_flight.discard(ended.message_id)
        self.context.state.delegated.discard(ended.message_id)
        with self.context.transition() as tx:
            if reply is not None:
                receive_reply(self.context, tx, reply, ended)
            else:
                transmit.transmission_over(self.context, tx, ended)
                if ended.sent:
                    nothing_more(self.context, tx, ended.message_id)

    def answer_left(self, answer: PostAnswer, *, sent: bool, reply: Reply | None = None) -> None:
        """An answer on a connection of its own went out, or did not: then it stays owed
        until the duplicate that will surely come, or the next start.

        A question may be answered where it was asked: `reply` is what came back.
        """
        if reply is not None:
            with self.context.transition() as tx:
                receive_aside(self.context, tx, reply, answer.address)
        if not sent or not answer.message_id:
            return
        with self.context.transition() as tx:
            tx.answer_left(answer.sender, answer.message_id)

    def onward_over(self, post: PostOn, ended: Transmission, reply: Reply | None = None) -> None:
        """Take what the next hop said of a message whose connection waits here."""
        with self.context.transition() as tx:
            receive_onward(self.context, tx, post, ended, reply)

    def relay(self, awaited: Awaited, said: Sequence[Relay]) -> Answer:
        """What goes back on a connection that waited for the next hop; nothing said: it did
        not speak in time."""
        with self.context.transition() as tx:
            return relay(self.context, tx, awaited, said)

    def tick(self) -> None:
        """Do what time has made due: expiries, attempts, notices, questions, retention."""
        context, state = self.context, self.context.state
        try:
            with context.store.one_turn():
                self._serve_timers()
        except (StoreFull, StoreGone):
            # Where nothing else was to be kept, the commit that follows does not fail.
            self._put_back()
            raise
        now = context.now()
        if now >= state.clean_due_at:
            retention.clean_spool(context)
        if now >= state.sweep_due_at and not state.timeline.in_doubt:
            with context.transition() as tx:
                retention.sweep(context, tx)

    def _serve_timers(self) -> None:
        context, state = self.context, self.context.state
        retention.watch(context)
        state.ticked_at = context.now()
        state.contacts.tell(state.ticked_at)
        look_again(context)
        transmit.expire_due(context)
        transmit.transmit_due(context)
        if state.ticked_at >= state.fellows_due_at:
            self._look_around()
        looks_at_gaps = state.ticked_at >= state.gaps_due_at
        give_up_gaps(context)
        if looks_at_gaps:
            # What could not be put together for want of room is tried again.
            context.logged_step(
                lambda tx: gathering.begin_all(context, tx), "documents are not put together"
            )
            close_what_is_over(context)
        if looks_at_gaps and not state.timeline.in_doubt:
            give_up_incomplete(context)
        if state.repost_after is not None:
            context.logged_step(
                lambda tx: repost_answers(context, tx), "answers are not posted again"
            )
        while state.acks_waiting and state.acks_waiting[0][0] <= state.ticked_at:
            context.logged_step(
                lambda tx: acknowledge_next(context, tx), "an acknowledgement does not leave"
            )
        questions, state.status_questions = state.status_questions, []
        for message_id in questions:
            # Where no handler can be asked (rm-0.78 has no such question) it stays unknown.
            with contextlib.suppress(InvalidValue, AgreementProblem), context.transition() as tx:
                ask_status(context, tx, message_id)
        now, due = context.now(), state.refusals.due_at
        if due is not None and now >= due:
            with context.transition() as tx:
                state.refusals.write(tx, now)

    def ping(self, cpa_id: str) -> str:
        """Ask whether the partner's handler is there; a `Ponged` of that id says yes."""
        with self.context.transition():
            return ping(self.context, agreement_called(self.context, cpa_id))

    def ask_status(self, message_id: str, cpa_id: str | None = None) -> str:
        """Ask the receiver of a message what became of it, or, where it is unknown here, the
        partner of that agreement; returns the CPAId that its `StatusTold` has."""
        with self.context.transition() as tx:
            if cpa_id is not None:
                agreement = agreement_called(self.context, cpa_id)
                if ask_for_unknown(self.context, tx, agreement, message_id):
                    return agreement.cpa_id
            operate.find_outgoing(tx, message_id)
            ask_status(self.context, tx, message_id)
        return ""

    def is_called(self, channel: str) -> bool:
        """Whether the operator is called for a channel now."""
        with self.context.store.reader() as reader:
            return any(incident.channel == channel for incident in reader.incidents())

    def trouble(self, problem: StoreProblem, message_id: str | None = None) -> None:
        """Call the operator for something that the store cannot do, once."""
        with self.context.transition() as tx:
            release.call_operator(self.context, tx, problem, message_id)

    def hand_over(
        self,
        limit: int,
        lease: Duration,
        room: deliver.Room | None = None,
        *,
        one_by_one: bool = False,
        by: str | None = None,
    ) -> list[GivenMessage]:
        """Hand messages to the application; to be believed only after the commit. `one_by_one`:
        of each channel one, and the next when that is confirmed. `by`: who takes them."""
        with self.context.transition(by) as tx:
            given = deliver.hand_over(
                self.context,
                tx,
                limit,
                lease,
                room,
                one_by_one=one_by_one,
                is_over=lambda stored: close_if_alone(self.context, tx, stored),
            )
        if lease >= ENDLESS and self.context.store.fellows is not None:
            # The application is called with them by this process, and by no other.
            keys = [(taken.sender, taken.message_id) for taken in given]
            self.context.state.offering.update(keys)
            self.context.state.offered += keys
        return given

    def still_offered(self, sender: str, message_id: str) -> bool:
        """Whether the application may be called once more with a message that it refused: not
        when it was confirmed, nor when its response is not awaited any more."""
        with self.context.transition() as tx:
            stored = tx.incoming(sender, message_id)
            if stored is None or stored.incoming.state is not IncomingState.HANDED_OVER:
                return False
            return not close_if_alone(self.context, tx, stored)

    def confirm(
        self,
        sender: str,
        message_id: str,
        responses: Sequence[Submission] = (),
        by: str | None = None,
    ) -> bool:
        """The application has the message; its answers are submitted in the same transition,
        and only with the first confirmation. `by`: the person who says so in its place."""
        with self.context.transition() as tx:
            stored = tx.incoming(sender, message_id)
            first = deliver.confirm(self.context, tx, sender, message_id, by)
            if first and stored is not None:
                respond(self.context, tx, stored, responses)
            return first

    def refused(self, sender: str, message_id: str, reason: str) -> bool:
        """The application will not take a message that it was offered again and again; False
        when it waits for the application no more."""
        with self.context.store.reader() as reader:
            called = any(incident.message_id == message_id for incident in reader.incidents())
        with self.context.transition() as tx:
            stored = tx.incoming(sender, message_id)
            if stored is None or stored.incoming.state is not IncomingState.HANDED_OVER:
                return False
            if not called:
                problem = (
                    f"the application does not take it: {reason[:200]}; mend the application: the "
                    "message is offered to it until it takes it; what it can never take is given "
                    f"up with `oncewire abandon {message_id}`"
                )
                open_incident(self.context, tx, Raise(problem, message_id), stored.incoming)
            return True

    def notices(self, limit: int) -> list[Notice]:
        """What the application has to be told of, the oldest message first."""
        with self.context.transition() as tx:
            return notices.owed(tx, limit)

    def owes(self, notice_id: str) -> bool:
        """Whether a notice is still to be told."""
        with self.context.transition() as tx:
            return notices.find_owed(tx, notice_id) is not None

    def confirm_notice(self, notice_id: str, by: str | None = None) -> bool:
        """The application took the notice of a failure; False when it is owed no more."""
        with self.context.transition(by) as tx:
            return notices.take(self.context, tx, notice_id)

    def notice_refused(self, notice_id: str, reason: str) -> bool:
        """The application will not take a notice that it was told again and again; False when
        it is owed no more."""
        with self.context.transition() as tx:
            return notices.refuse(self.context, tx, notice_id, reason)

    def reply_to(self, awaited: Awaited) -> Answer | None:
        """What goes back on a connection that waits for a response; None: nothing yet."""
        with self.context.transition() as tx:
            return reply_to(self.context, tx, awaited)

    def overdue(self, awaited: Awaited) -> Answer:
        """A connection cannot wait for its response any longer."""
        with self.context.transition() as tx:
            return overdue(self.context, tx, awaited)

    def left_alone(self, awaited: Awaited) -> None:
        """A connection that waited for its response has gone."""
        with self.context.transition() as tx:
            left_alone(self.context, tx, awaited)

    def resume(
        self,
        *,
        message_id: str | None = None,
        channel: str | None = None,
        partner: str | None = None,
        by: str | None = None,
    ) -> None:
        """The operator resolved the trouble of a message, a channel or a partner."""
        if partner is not None:
            peer = operate.find_partner(self.context, partner)
            with self.context.store.reader() as reader:
                # What a person paused goes on when its channel is named.
                suspended = [
                    each.key
                    for each in reader.channels()[0]
                    if each.suspended and not each.suspended_reason.startswith(operate.PAUSED)
                ]
            with self.context.transition(by) as tx:
                operate.resume_partner(self.context, tx, peer, suspended)
            return
        with self.context.transition(by) as tx:
            if channel is not None:
                operate.resume_channel(self.context, tx, channel)
            elif message_id is not None and not resume_stranded(self.context, tx, message_id):
                operate.resume_message(self.context, tx, message_id)

    def pause(self, channel: str, reason: str, by: str | None = None) -> None:
        """Stop sending on a channel."""
        with self.context.transition(by) as tx:
            operate.pause_channel(self.context, tx, channel, reason)

    def abandon(self, message_id: str, by: str | None = None) -> None:
        """Give a message up, by the word of that person."""
        with self.context.transition(by) as tx:
            if not abandon_stranded(self.context, tx, message_id, by):
                operate.abandon_message(self.context, tx, message_id, by)

    def hold(self, message_id: str, *, held: bool, by: str | None = None) -> None:
        """Put a message under legal hold, or lift it."""
        with self.context.transition(by) as tx:
            operate.hold_message(self.context, tx, message_id, held=held)

    def accept_clock(self, by: str | None = None) -> None:
        """The operator says that the machine's clock is right, however it was set."""
        with self.context.transition(by) as tx:
            retention.accept(self.context, tx)

    def trim_journal(self, before: Instant, through: int, by: str | None = None) -> int:
        """Remove some rows from the journal's beginning; returns how many, 0 where none may go."""
        with self.context.transition(by) as tx:
            return retention.trim_journal(self.context, tx, before, through)

    def restart(self, channel: str, by: str | None = None) -> None:
        """Restart the numbering of a channel."""
        with self.context.transition(by) as tx:
            operate.restart_channel(self.context, tx, channel)


__all__ = ["Accepted", "Answer", "Engine", "Notice", "Source", "Submission", "Transmission"]
