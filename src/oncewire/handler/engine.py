"""Engine: the synchronous handler. Verbs change state; `commit` makes it so and lets go.

A verb runs one transition. Nothing it decides leaves the process before `commit` returns:
replies, posts and notices are collected and given out by the commit, or thrown away with
it. Whoever drives the engine (the asyncio shell, the simulator) calls verbs, then commit,
then performs the actions.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

from oncewire import __version__
from oncewire.errors import (
    AgreementProblem,
    EbxmlError,
    InvalidValue,
    OncewireError,
    StoreProblem,
)
from oncewire.handler.actions import (
    Action,
    Join,
    Notice,
    Post,
    PostAnswer,
    PostOn,
    PostReply,
    Relay,
    Source,
)
from oncewire.handler.answering import answer as unaddressed
from oncewire.handler.answering.answer import Answer, Awaited
from oncewire.handler.answering.asking import ask_for_unknown, ask_status, ping
from oncewire.handler.arriving import release
from oncewire.handler.arriving.inbound import Expected, Reply, expected
from oncewire.handler.arriving.joined import (
    JoinPlan,
    finish_join,
    give_up_incomplete,
    plan_join,
    refuse_join,
)
from oncewire.handler.arriving.receive import (
    receive,
    receive_aside,
    receive_onward,
    receive_reply,
    repost_answers,
)
from oncewire.handler.arriving.release import give_up_gaps
from oncewire.handler.arriving.reply import (
    acknowledge_next,
    close_if_alone,
    left_alone,
    overdue,
    reply_to,
    respond,
    send,
    take_up_waiting,
)
from oncewire.handler.context import Node
from oncewire.handler.delivering import deliver, notices
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.documents import gathering, parts
from oncewire.handler.documents.joining import Joined
from oncewire.handler.failures import left_untold, tell_failures
from oncewire.handler.hub.next_hop import abandon_stranded, go_on_at_last, resume_stranded
from oncewire.handler.hub.passing import nothing_more, relay
from oncewire.handler.perform import open_incident, resolve_incidents
from oncewire.handler.sending import transmit
from oncewire.handler.sending.submit import Accepted, Submission, agreement_called
from oncewire.handler.sending.transmit import (
    Transmission,
    admit_waiting,
    look_again,
    look_again_at_all,
    set_aside,
)
from oncewire.handler.spool_reading import Reading
from oncewire.handler.upkeep import operate, retention
from oncewire.handler.upkeep.operate import close_what_is_over
from oncewire.handler.upkeep.retention import next_wake
from oncewire.journal.row import JOURNAL_VERSION
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.effects import Note, Raise, Resolve
from oncewire.protocol.notes import Started, Stopped
from oncewire.protocol.states import IncomingState
from oncewire.store.records import StoredIncoming, StoredParcel
from oncewire.wire.parcel import Parcel, Received

logger = logging.getLogger("oncewire.handler")


class Engine:
    """One handler without its sockets."""

    def __init__(self, node: Node) -> None:
        self.node = node
        if node.at_rest:
            # It is never started; what it writes must not look like a time that was accepted.
            retention.begin_clock(node)

    # --- life ---

    def start(self) -> None:
        """Record the boot and take up what an earlier one left: answers still owed."""
        node = self.node
        retention.begin_clock(node)
        with node.store.reader() as reader:
            # Somebody may have mended what held these up.
            node.troubled = {
                incident.message_id: 1 for incident in reader.incidents() if incident.message_id
            }
        with node.transition() as tx:
            parties = sorted(
                {str(party_id) for deal in node.agreements for party_id in deal.own.party.ids}
                | {party_id.value for deal in node.agreements for party_id in deal.own.party.ids}
            )
            node.write(tx, [Note(Started(__version__, JOURNAL_VERSION, tuple(parties)))])
        retention.watch(node)
        for step in (
            lambda tx: release.survey(node, tx),
            lambda tx: deliver.recover_hand_overs(node, tx),
            lambda tx: take_up_waiting(node, tx),
            lambda tx: node.failed.extend(left_untold(node, tx)),
            lambda tx: gathering.begin_all(node, tx),
            lambda tx: retention.end_all_answers(node, tx),
            lambda tx: repost_answers(node, tx),
            lambda tx: transmit.take_up_delegated(node, tx),
            lambda tx: go_on_at_last(node, tx),
        ):
            problem = node.apart(step)
            if problem is not None:
                # A handler that cannot take up one part of it serves the rest.
                logger.error("what an earlier run left is not taken up", exc_info=problem)
        retention.begin_retention(node)

    def stop(self) -> None:
        """Record a graceful end."""
        with self.node.transition() as tx:
            self.node.refusals.write(tx, self.node.now())
            self.node.write(tx, [Note(Stopped())])

    def commit(self) -> list[Action]:
        """Make every transition since the last commit durable and give its actions out.

        When the store cannot, nothing happened: the error is raised, and every caller
        whose verb was in it must be told so.
        """
        node = self.node
        try:
            while node.admissions or node.failed or node.parts_ended or node.releasing:
                parts.follow(node)
                admit_waiting(node)
                for message_id, problem in parts.release(node):
                    set_aside(node, message_id, problem)
                tell_failures(node)
            if node.unaddressed:
                unaddressed.call_operator(node)
            if node.store.pending():
                node.store.commit()
        except OncewireError:
            # It may have been a sweep that was undone, and a full disk is a reason for one.
            node.sweep_due_at = min(node.sweep_due_at, node.now() + retention.FIRST_SWEEP)
            node.timeline.undo()
            look_again_at_all(node)
            for action in node.actions:
                post: object = action
                if isinstance(action, PostReply):
                    post = action.post
                elif isinstance(action, Relay):
                    post = action.instead
                if isinstance(post, Post):
                    node.in_flight.discard(post.message_id)
            node.actions = []
            raise
        finally:
            node.relieved = []
            spooled, node.spooled = node.spooled, []
            for name in spooled:
                node.store.spool.let_go(name)
        node.timeline.keep()
        actions, node.actions = node.actions, []
        return actions

    def next_wake(self) -> Instant:
        """When `tick` has something to do next."""
        return next_wake(self.node, self.node.now())

    def rest(self) -> Duration:
        """How long `tick` has nothing to do from now on; not more than 0: it has something."""
        now = self.node.now()
        return next_wake(self.node, now) - now

    # --- verbs ---

    def expect(self, message_ids: Sequence[str], submissions: int = 0) -> None:
        """Verbs that wait may ask for these messages, and so many for a new one each: have the
        store find all of them at once."""
        fresh = self.node.fresh_message_ids(submissions)
        with self.node.store.transition() as tx:
            tx.expect((*message_ids, *fresh))

    def submit(self, submission: Submission) -> Accepted:
        """Take a document from an application."""
        with self.node.transition() as tx:
            return send(self.node, tx, submission)

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
        with self.node.transition() as tx:
            return receive(self.node, tx, parcel, source, stored, reading)

    def expects(self, received: Received) -> Expected:
        """Whether the rest of a message may come whose header is there."""
        with self.node.transition() as tx:
            return expected(self.node, tx, received)

    def join_plan(self, wanted: Join) -> JoinPlan | None:
        """What a document is to be made of; None: nothing any more."""
        try:
            with self.node.transition() as tx:
                return plan_join(self.node, tx, wanted.sender, wanted.split_id)
        except EbxmlError as error:
            self.not_joined(wanted, error)
            return None

    def joined(self, plan: JoinPlan, joined: tuple[Joined, ...], made: Sequence[str]) -> None:
        """A document was put together; `made`: the files that came to be by that."""
        self.node.spooled += made
        with self.node.transition() as tx:
            finish_join(self.node, tx, plan, joined)
            # There may have been no room for it until now.
            resolve_incidents(self.node, tx, Resolve(plan.document.split_id))

    def not_joined(self, wanted: Join, error: EbxmlError) -> None:
        """The parts are no document, for a reason that its sender is told."""
        with self.node.transition() as tx:
            refuse_join(self.node, tx, wanted.sender, wanted.split_id, error)

    def transmission_over(self, ended: Transmission, reply: Reply | None = None) -> None:
        """Take the transport's word on an attempt, and what came back with it."""
        # It is over even when the store cannot take note of it: its timer brings it up again.
        self.node.in_flight.discard(ended.message_id)
        with self.node.transition() as tx:
            if reply is not None:
                receive_reply(self.node, tx, reply, ended)
            else:
                transmit.transmission_over(self.node, tx, ended)
                if ended.sent:
                    nothing_more(self.node, tx, ended.message_id)

    def answer_left(self, answer: PostAnswer, *, sent: bool, reply: Reply | None = None) -> None:
        """An answer on a connection of its own went out, or did not: then it stays owed
        until the duplicate that will surely come, or the next start.

        A question may be answered where it was asked: `reply` is what came back.
        """
        if reply is not None:
            with self.node.transition() as tx:
                receive_aside(self.node, tx, reply, answer.address)
        if not sent or not answer.message_id:
            return
        with self.node.transition() as tx:
            tx.answer_left(answer.sender, answer.message_id)

    def onward_over(self, post: PostOn, ended: Transmission, reply: Reply | None = None) -> None:
        """Take what the next hop said of a message whose connection waits here."""
        with self.node.transition() as tx:
            receive_onward(self.node, tx, post, ended, reply)

    def relay(self, awaited: Awaited, said: Sequence[Relay]) -> Answer:
        """What goes back on a connection that waited for the next hop; nothing said: it did
        not speak in time."""
        with self.node.transition() as tx:
            return relay(self.node, tx, awaited, said)

    def tick(self) -> None:
        """Do what time has made due: expiries, attempts, notices, questions, retention."""
        node = self.node
        retention.watch(node)
        node.ticked_at = node.now()
        look_again(node)
        transmit.expire_due(node)
        transmit.transmit_due(node)
        looks_at_gaps = node.ticked_at >= node.gaps_due_at
        give_up_gaps(node)
        if looks_at_gaps:
            # What could not be put together for want of room is tried again.
            node.apart(lambda tx: gathering.begin_all(node, tx))
            close_what_is_over(node)
        if looks_at_gaps and not node.in_doubt:
            give_up_incomplete(node)
        if node.repost_after is not None:
            node.apart(lambda tx: repost_answers(node, tx))
        while node.acks_waiting and node.acks_waiting[0][0] <= node.ticked_at:
            node.apart(lambda tx: acknowledge_next(node, tx))
        questions, node.status_questions = node.status_questions, []
        for message_id in questions:
            # Where nobody can be asked (rm-0.78 has no such question) it stays unknown.
            with contextlib.suppress(InvalidValue, AgreementProblem), node.transition() as tx:
                ask_status(node, tx, message_id)
        self._retain()

    def _retain(self) -> None:
        """Clear away what nobody needs any more, when it is time for that."""
        node = self.node
        due = node.refusals.due_at
        if due is not None and node.now() >= due:
            with node.transition() as tx:
                node.refusals.write(tx, node.now())
        if node.now() >= node.clean_due_at:
            retention.clean_spool(node)
        if not node.in_doubt and node.now() >= node.sweep_due_at:
            with node.transition() as tx:
                retention.sweep(node, tx)

    def ping(self, cpa_id: str) -> str:
        """Ask whether the partner's handler is there; a `Ponged` of that id says yes."""
        with self.node.transition():
            return ping(self.node, agreement_called(self.node, cpa_id))

    def ask_status(self, message_id: str, cpa_id: str | None = None) -> str:
        """Ask the receiver of a message what became of it, or, where it is unknown here, the
        partner of that agreement; returns the CPAId that its `StatusTold` has."""
        with self.node.transition() as tx:
            if cpa_id is not None:
                agreement = agreement_called(self.node, cpa_id)
                if ask_for_unknown(self.node, tx, agreement, message_id):
                    return agreement.cpa_id
            operate.find_outgoing(tx, message_id)
            ask_status(self.node, tx, message_id)
        return ""

    def is_called(self, channel: str) -> bool:
        """Whether the operator is called for a channel now."""
        with self.node.store.reader() as reader:
            return any(incident.channel == channel for incident in reader.incidents())

    def trouble(self, problem: StoreProblem, message_id: str | None = None) -> None:
        """Call the operator for something that the store cannot do, once."""
        with self.node.transition() as tx:
            release.call_operator(self.node, tx, problem, message_id)

    def hand_over(
        self,
        limit: int,
        lease: Duration,
        room: deliver.Room | None = None,
        *,
        one_by_one: bool = False,
    ) -> list[GivenMessage]:
        """Hand messages to the application; to be believed only after the commit. `one_by_one`:
        of each channel one, and the next when that is confirmed."""
        return [given.taken for given in self._hand_over(limit, lease, room, one_by_one)]

    def take(self, limit: int, lease: Duration) -> list[StoredIncoming]:
        """The same for an application that looks at nothing but where a message stands."""
        return [given.stored for given in self._hand_over(limit, lease)]

    def _hand_over(
        self,
        limit: int,
        lease: Duration,
        room: deliver.Room | None = None,
        one_by_one: bool = False,
    ) -> list[deliver.Given]:
        with self.node.transition() as tx:
            return deliver.hand_over(
                self.node,
                tx,
                limit,
                lease,
                room,
                one_by_one=one_by_one,
                is_over=lambda stored: close_if_alone(self.node, tx, stored),
            )

    def still_offered(self, sender: str, message_id: str) -> bool:
        """Whether the application may be called once more with a message that it refused: not
        when somebody confirmed it, nor when nobody waits for its response any more."""
        with self.node.transition() as tx:
            stored = tx.incoming(sender, message_id)
            if stored is None or stored.incoming.state is not IncomingState.HANDED_OVER:
                return False
            return not close_if_alone(self.node, tx, stored)

    def confirm(
        self,
        sender: str,
        message_id: str,
        responses: Sequence[Submission] = (),
        by: str | None = None,
    ) -> bool:
        """The application has the message; its answers are submitted in the same transition,
        and only with the first confirmation. `by`: the person who says so in its place."""
        with self.node.transition() as tx:
            stored = tx.incoming(sender, message_id)
            first = deliver.confirm(self.node, tx, sender, message_id, by)
            if first and stored is not None:
                respond(self.node, tx, stored, responses)
            return first

    def refused(self, sender: str, message_id: str, reason: str) -> bool:
        """The application will not take a message that it was offered again and again; False
        when it waits for the application no more."""
        with self.node.store.reader() as reader:
            called = any(incident.message_id == message_id for incident in reader.incidents())
        with self.node.transition() as tx:
            stored = tx.incoming(sender, message_id)
            if stored is None or stored.incoming.state is not IncomingState.HANDED_OVER:
                return False
            if not called:
                problem = (
                    f"the application does not take it: {reason[:200]}; mend the application: the "
                    "message is offered to it until it takes it; what it can never take is given "
                    f"up with `oncewire abandon {message_id}`"
                )
                open_incident(self.node, tx, Raise(problem, message_id), stored.incoming)
            return True

    def notices(self, limit: int) -> list[Notice]:
        """What the application has to be told of, the oldest message first."""
        with self.node.transition() as tx:
            return notices.owed(tx, limit)

    def owes(self, notice_id: str) -> bool:
        """Whether a notice is still to be told."""
        with self.node.transition() as tx:
            return notices.find_owed(tx, notice_id) is not None

    def confirm_notice(self, notice_id: str) -> bool:
        """The application took the notice of a failure; False when it is owed no more."""
        with self.node.transition() as tx:
            return notices.take(self.node, tx, notice_id)

    def notice_refused(self, notice_id: str, reason: str) -> bool:
        """The application will not take a notice that it was told again and again; False when
        it is owed no more."""
        with self.node.transition() as tx:
            return notices.refuse(self.node, tx, notice_id, reason)

    def reply_to(self, awaited: Awaited) -> Answer | None:
        """What goes back on a connection that waits for a response; None: nothing yet."""
        with self.node.transition() as tx:
            return reply_to(self.node, tx, awaited)

    def overdue(self, awaited: Awaited) -> Answer:
        """A connection cannot wait for its response any longer."""
        with self.node.transition() as tx:
            return overdue(self.node, tx, awaited)

    def left_alone(self, awaited: Awaited) -> None:
        """A connection that waited for its response has gone."""
        with self.node.transition() as tx:
            left_alone(self.node, tx, awaited)

    def resume(self, *, message_id: str | None = None, channel: str | None = None) -> None:
        """The operator resolved the trouble of a message or a channel."""
        with self.node.transition() as tx:
            if channel is not None:
                operate.resume_channel(self.node, tx, channel)
            elif message_id is not None and not resume_stranded(self.node, tx, message_id):
                operate.resume_message(self.node, tx, message_id)

    def pause(self, channel: str, reason: str) -> None:
        """Stop sending on a channel."""
        with self.node.transition() as tx:
            operate.pause_channel(self.node, tx, channel, reason)

    def abandon(self, message_id: str, by: str | None = None) -> None:
        """Give a message up, by the word of that person."""
        with self.node.transition() as tx:
            if not abandon_stranded(self.node, tx, message_id, by):
                operate.abandon_message(self.node, tx, message_id, by)

    def hold(self, message_id: str, *, held: bool) -> None:
        """Put a message under legal hold, or lift it."""
        with self.node.transition() as tx:
            operate.hold_message(tx, message_id, held=held)

    def accept_clock(self) -> None:
        """The operator says that the machine's clock is right, however it was set."""
        with self.node.transition() as tx:
            retention.accept(self.node, tx)

    def restart(self, channel: str) -> None:
        """Restart the numbering of a channel."""
        with self.node.transition() as tx:
            operate.restart_channel(self.node, tx, channel)


__all__ = ["Accepted", "Answer", "Engine", "Notice", "Source", "Submission", "Transmission"]
