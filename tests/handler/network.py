"""Engines in memory and the hand that carries parcels between them, so that a test has the luck.

One harness for every test of the handler that needs no event loop and no socket. `Network.pair` is
alpha and beta, `Network.chain` a buyer, hubs and a seller, `Network.single` one handler whose
partners the test plays, and `Network.asking` a pair whose connections the test holds in its hand.
Time stands still until `pass_time`; whatever an engine may do after a commit is done at once, or
kept while `carrying` is off; and everything that can be seen from outside is written down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self, TypeVar
from xml.etree import ElementTree

from oncewire.agreement.agreement import Agreement, Agreements
from oncewire.agreement.toml import read_toml
from oncewire.handler.actions import (
    Accepted,
    Action,
    Join,
    Notice,
    Ponged,
    Post,
    PostAnswer,
    Settled,
    Source,
    StatusTold,
    Submission,
)
from oncewire.handler.context import HandlerContext, Keys
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.runtime.upkeep import join_at_once
from oncewire.handler.sending.answer import Answer, Awaited
from oncewire.handler.sending.transmit import Transmission
from oncewire.journal.check import JournalReport, check_journal
from oncewire.journal.row import Row
from oncewire.lab.simulation.plan import Options
from oncewire.message.envelope import Error, Message, Payload
from oncewire.message.form import Form
from oncewire.message.ids import Service
from oncewire.message.instant import HOUR, SECOND, Duration, parse_instant
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Store
from oncewire.store.memory.store import MemoryStore
from oncewire.store.records import Incident, StoredOutgoing
from oncewire.wire import codec
from oncewire.wire.parcel import Fault, Parcel
from tests.simulation.given import CPA_ID, agreements_of, names
from tests.wire.roots import read_fault

START = 1_767_225_600_000_000
HTTP = Source("http", can_answer=True)
MAIL = Source("smtp")

A = TypeVar("A", bound=Action)

Stores = Callable[[str], Store]
"""Opens the store of a handler by its name."""

FLOWS = {"ebms2": "unrestricted", "ms-0.9x": "unrestricted", "window": "window",
         "rm-0.78": "stop-and-wait"}  # fmt: skip


def agreement_text(
    own: str, partner: str, profile: str, extra: str = "", ports: object = None
) -> str:
    """An agreement between two parties that are called by their names."""

    def side(name: str) -> str:
        host = f"127.0.0.1:{ports[name]}" if isinstance(ports, dict) else name
        uri = f"http://{host}/msh"
        return f'party_id = "urn:test:{name}"\nuri = "{uri}"\nhttp = "{uri}"\n'

    return (
        f'cpa_id = "alpha-beta"\nprofile = "{profile}"\n'
        f"[own]\n{side(own)}[partner]\n{side(partner)}{extra}"
    )


@cache
def agreement_of(text: str) -> Agreement:
    """The agreement of a text: an agreement never changes, so all networks share it."""
    return read_toml(text)


def options(profile: str = "ms-0.9x", **more: object) -> Options:
    """A world of that profile, with its usual flow."""
    usual = {"flow": FLOWS[profile], "persist_duration": HOUR}
    return Options(profile=profile, **(usual | more))  # type: ignore[arg-type]


def response(number: int = 1, of: int = 1, **more: object) -> Submission:
    """Response `number` of beta's application, to order `of` of alpha's."""
    document = Payload.of(f"response-{number}", "text/plain", f"response {number}".encode())
    return Submission(
        "alpha-beta",
        Service("urn:test:orders"),
        "Answer",
        (document,),
        conversation_id="talk",
        message_id=f"response-{number}@beta",
        ref_to_message_id=f"order-{of}@alpha",
        **more,  # type: ignore[arg-type]
    )


class TestWorld:
    """Time that stands still until a test moves it."""

    __test__ = False

    def __init__(self, name: str, time: int = START) -> None:
        self.name, self.time, self.ids = name, time, 0

    def now(self) -> int:
        return self.time

    def mono(self) -> int:
        return self.time - START

    def machine(self) -> str:
        return ""

    def new_id(self) -> str:
        self.ids += 1
        return f"{self.name}-{self.ids}"


@dataclass
class Crossing:
    """One parcel on its way to a handler, and what went back on the same connection."""

    # "": the test itself handed it in.
    sender: str
    to: str
    parcel: Parcel
    reply: Parcel | None = None

    @property
    def message(self) -> Message:
        """What the parcel says."""
        return codec.read(self.parcel).message

    @property
    def envelope(self) -> ElementTree.Element:
        """The header document as it stands on the wire."""
        return ElementTree.fromstring(codec.read(self.parcel).envelope)


@dataclass(frozen=True)
class Reply:
    """What came back on the connection, read."""

    status: int
    # None: an empty body, or a Fault.
    message: Message | None = None
    fault: Fault | None = None
    parcel: Parcel | None = None

    @property
    def errors(self) -> tuple[Error, ...]:
        """The errors of its ErrorList."""
        errors = self.message.error_list if self.message is not None else None
        return errors.errors if errors is not None else ()

    @property
    def error(self) -> tuple[str, str, str]:
        """errorCode, location and severity of the first error."""
        first = self.errors[0]
        return first.code, first.location, first.severity.value


@dataclass
class Network:
    """Engines by name. The first one sends and the last one receives, unless a test says so."""

    agreements: dict[str, Agreements]
    # What the network drops; a Transmission says how the sender learns of it.
    lose_request: Callable[[Post], bool | Transmission] = lambda post: False
    lose_answer: Callable[[int], bool] = lambda count: False
    # What it makes of a parcel on its way.
    change: Callable[[Parcel], Parcel] = lambda parcel: parcel
    # Off: what leaves is kept in `kept`, for the test to carry.
    carrying: bool = True
    # Whether documents whose parts are all there are put together.
    joins: bool = True
    # Whether the applications come for their notices.
    hears: bool = True
    # How the connection of an arriving parcel is seen.
    source: Source = HTTP
    store: Stores = MemoryStore
    clock: Callable[[str], TestWorld] = TestWorld
    keys: Mapping[str, Keys] = field(default_factory=dict)
    # What an order is made of, unless it is said.
    order_of: Mapping[str, Any] = field(default_factory=dict)
    # What an application that is called answers, by the order's id.
    responses: dict[str, list[Submission]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engines: dict[str, Engine] = {}
        # Whatever left an engine after a commit.
        self.actions: list[tuple[str, Action]] = []
        self.kept: list[tuple[str, Post | PostAnswer]] = []
        self.notices: list[Notice] = []
        # Bodies of every acknowledgement or other answer that was let go, in order.
        self.answers: list[bytes] = []
        # Every parcel that reached an engine, in the order of arrival.
        self.line: list[Crossing] = []
        # All that is seen from outside, to be compared: whose, what, and the facts.
        self.record: list[tuple[object, ...]] = []
        for name in self.agreements:
            self.start(name)

    # --- what a network consists of ---

    @classmethod
    def pair(cls, profile: str = "ebms2", extra: str = "", **more: Any) -> Self:
        """alpha sends to beta under one agreement."""
        found = {
            own: Agreements([agreement_of(agreement_text(own, partner, profile, extra))])
            for own, partner in (("alpha", "beta"), ("beta", "alpha"))
        }
        return cls(found, **more)

    @classmethod
    def asking(
        cls, profile: str = "ebms2", extra: str = "", *, called: bool = True, **more: Any
    ) -> Self:
        """alpha asks, and beta's application may be one that is called; the test carries."""
        network = cls.pair(profile, extra, carrying=False, **more)
        network.beta.context.application_called = called
        return network

    @classmethod
    def chain(cls, world: Options, **more: Any) -> Self:
        """A buyer, hubs and a seller."""
        found = {name: Agreements(agreements_of(name, world)) for name in names(world)}
        order = {
            "cpa_id": CPA_ID,
            "service": Service("urn:sim:orders"),
            "action": "PlaceOrder",
            "conversation_id": "year",
        }
        return cls(found, **{"hears": False, "order_of": order, **more})

    @classmethod
    def single(
        cls, *agreements: Agreement, at: str, keys: Keys | None = None, form: Form | None = None
    ) -> Self:
        """One handler, at that moment; the test plays its partners and carries."""
        return cls(
            {"desk": Agreements(agreements, form=form)},
            carrying=False,
            joins=False,
            hears=False,
            clock=lambda name: TestWorld(name, parse_instant(at)[0]),
            keys={} if keys is None else {"desk": keys},
        )

    def start(
        self,
        name: str,
        agreements: Agreements | None = None,
        store: Store | None = None,
        world: TestWorld | None = None,
    ) -> Engine:
        """A process of that node begins; one that ran dies with what it has not committed."""
        old = self.engines.get(name)
        if old is None:
            store, world = store or self.store(name), world or self.clock(name)
        else:
            world = world or self.world(name)
            if store is None:
                store = old.context.store
                store.close()
                store = store if isinstance(store, MemoryStore) else self.store(name)
        if agreements is not None:
            self.agreements[name] = agreements
        found, keys = self.agreements[name], self.keys.get(name)
        engine = Engine(HandlerContext(name, store, found, world, keys=keys))
        self.engines[name] = engine
        engine.start()
        self.settle(name)
        return engine

    def agree(self, name: str, profile: str, extra: str = "") -> Engine:
        """It dies, and comes back under other words between alpha and beta."""
        partner = "beta" if name == "alpha" else "alpha"
        return self.start(
            name, Agreements([agreement_of(agreement_text(name, partner, profile, extra))])
        )

    def crash(self, name: str) -> Engine:
        """The process dies, and is started again."""
        return self.start(name)

    def restart(self, name: str, *without: str) -> Engine:
        """It dies and comes back without the agreements whose CPAId has one of these words."""
        kept = [
            one for one in self.agreements[name] if not any(word in one.cpa_id for word in without)
        ]
        before = self.agreements[name]
        engine = self.start(name, Agreements(kept))
        self.agreements[name] = before
        return engine

    def close(self) -> None:
        for engine in self.engines.values():
            engine.context.store.close()

    @property
    def alpha(self) -> Engine:
        return self.engines["alpha"]

    @property
    def beta(self) -> Engine:
        return self.engines["beta"]

    @property
    def engine(self) -> Engine:
        """The first one, or the only one."""
        return self.engines[self.first]

    @property
    def first(self) -> str:
        return next(iter(self.agreements))

    @property
    def last(self) -> str:
        return next(reversed(self.agreements))

    def world(self, name: str | None = None) -> Any:
        """The clock of a node."""
        return self.engines[name or self.first].context.world

    # --- what applications do ---

    def submission(
        self, number: int = 1, data: bytes | None = None, *, by: str = "", **more: Any
    ) -> Submission:
        """An order, with these bytes or a few of its own."""
        document = f"order {number}".encode() if data is None else data
        usual: dict[str, Any] = {
            "cpa_id": "alpha-beta",
            "service": Service("urn:test:orders"),
            "action": "New",
            "payloads": (Payload.of(f"order-{number}", "text/plain", document),),
            "conversation_id": "talk",
            "message_id": f"order-{number}@{by or self.first}",
        }
        return Submission(**(usual | dict(self.order_of) | more))

    def send(
        self, number: int = 1, data: bytes | None = None, *, by: str = "", **more: Any
    ) -> Accepted:
        """An application hands in an order."""
        accepted = self.engines[by or self.first].submit(
            self.submission(number, data, by=by, **more)
        )
        self.settle(by or self.first)
        return accepted

    def send_all(self, numbers: Iterable[int]) -> None:
        """It hands in several, one after the other."""
        for number in numbers:
            self.send(number)

    def submit(self, submission: Submission, by: str = "") -> Post:
        """It hands in a document of the test; the attempt that leaves."""
        self.engines[by or self.first].submit(submission)
        self.settle(by or self.first)
        return self.posts[-1]

    def order(self, number: int = 1, **more: Any) -> Parcel:
        """An order that is handed in, as its sender stored it."""
        self.send(number, **more)
        return self.sent(number)

    def lease(self, name: str = "") -> list[str]:
        """The application is given what is ready, and does not confirm it yet."""
        taken = self.engines[name or self.last].hand_over(100, 60 * SECOND)
        self.settle(name or self.last)
        return [one.message_id for one in taken]

    def given(self, name: str = "") -> list[GivenMessage]:
        """It takes what is ready, reads it, and confirms it."""
        found: list[GivenMessage] = []
        self._take(name, found.append)
        for one in found:
            data = [each.data for each in one.payloads]
            self.note(name or self.last, "is given", one.message_id, data)
        return found

    def take(self, name: str = "") -> list[str]:
        """It takes what is ready and confirms it; the ids."""
        found: list[str] = []
        self._take(name, lambda one: found.append(one.message_id))
        return found

    def _take(self, name: str, read: Callable[[GivenMessage], None]) -> None:
        name = name or self.last
        taken = self.engines[name].hand_over(100, 30 * SECOND)
        self.settle(name)
        for one in taken:
            read(one)
            answers = self.responses.get(one.message_id, ())
            self.engines[name].confirm(one.sender, one.message_id, answers)
        self.settle(name)

    def confirm(self, number: int, *responses: Submission) -> None:
        """beta's application has an order, and answers."""
        self.beta.confirm("urn:test:alpha", f"order-{number}@alpha", responses)
        self.settle("beta")

    # --- what the network and the clock do ---

    def note(self, *words: object) -> None:
        self.record.append(words)

    def pass_time(self, *durations: Duration) -> None:
        """Let time pass everywhere, by default a minute, and do what becomes due."""
        for duration in durations or (60 * SECOND,):
            for name in self.engines:
                self.world(name).time += duration
            for name in list(self.engines):
                self.engines[name].tick()
                self.settle(name)

    def settle(self, name: str = "") -> None:
        """Commit, and carry what may leave; then what that caused, until all is quiet."""
        name = name or self.first
        engine, more = self.engines[name], True
        while more:
            for action in engine.commit():
                self.actions.append((name, action))
                if isinstance(action, Post | PostAnswer):
                    if self.carrying:
                        self.carry(name, action)
                    else:
                        self.kept.append((name, action))
                elif isinstance(action, Join) and self.joins:
                    self.join(name, action)
                elif isinstance(action, Notice) and not self.hears:
                    self.notices.append(action)
            more = False
            for notice in engine.notices(100) if self.hears else ():
                self.note(name, "is told", notice.message_id, notice.severity, notice.outcome.value)
                self.notices.append(notice)
                engine.confirm_notice(notice.notice_id)
                more = True

    def join(self, name: str, action: Join) -> None:
        """A document whose parts are all there is put together."""
        join_at_once(self.engines[name], action)
        self.settle(name)

    def carry(self, name: str, action: Post | PostAnswer) -> Answer | None:
        """One parcel to its receiver, and what comes back on its connection; None: lost."""
        engine, to = self.engines[name], _host(action.address)
        parcel = whole_parcel(engine.context, action.parcel)
        how: tuple[object, ...] = (action.transport, action.address)
        lost: bool | Transmission
        if isinstance(action, Post):
            how += (action.attempt, action.timeout, engine.context.store.next_wake())
            lost = self.lose_request(action)
        else:
            lost = self._answers(parcel)
        self.note(name, "posts", *how, sorted(parcel.headers), parcel.body)
        answer = reply = None
        if lost or to not in self.engines:
            lost = lost or True
        else:
            answer = self.deliver(to, self.change(parcel), sender=name)
            answer, reply = self._said(to, answer)
            lost = reply is not None and self._answers(reply)
        if isinstance(action, PostAnswer):
            engine.answer_left(action, sent=not lost, reply=None if lost else reply)
        elif lost:
            ended = Transmission(action.message_id, action.attempt, sent=False, reason="lost")
            engine.transmission_over(lost if isinstance(lost, Transmission) else ended)
        else:
            ended = Transmission(action.message_id, action.attempt, sent=True)
            engine.transmission_over(ended, reply)
        self.settle(name)
        return answer

    def _answers(self, parcel: Parcel) -> bool:
        """Whether the next answer is lost."""
        self.answers.append(parcel.body)
        return self.lose_answer(len(self.answers))

    def connect(self, name: str, parcel: Parcel) -> tuple[Answer, Parcel | None]:
        """Bytes arrive from outside; what is said on their connection."""
        return self._said(name, self.deliver(name, parcel))

    def _said(self, name: str, answer: Answer) -> tuple[Answer, Parcel | None]:
        """What is said on a connection, after the application if it must wait for it."""
        engine, awaited = self.engines[name], answer.awaited
        if awaited is not None:
            self.note(name, "lets a connection wait for", awaited.patience)
            self.wait_for(name, awaited)
            self.given(name)
            answer = engine.reply_to(awaited) or engine.overdue(awaited)
            engine.context.state.replying = ()
            self.settle(name)
        if answer.parcel is None:
            self.note(name, "answers", answer.status, answer.retry_after)
            return answer, None
        reply = whole_parcel(engine.context, answer.parcel)
        self.note(name, "answers", answer.status, reply.body)
        return answer, reply

    def deliver(
        self, name: str, parcel: Parcel, source: Source | None = None, sender: str = ""
    ) -> Answer:
        """Hand a parcel to a node; its answer counts only after its commit."""
        crossing = Crossing(sender, name, parcel)
        self.line.append(crossing)
        answer = self.engines[name].receive(parcel, source or self.source)
        self.settle(name)
        if answer.parcel is not None:
            crossing.reply = whole_parcel(self.engines[name].context, answer.parcel)
        return answer

    def hand_in(self, parcel: Parcel, source: Source = HTTP, to: str = "") -> Reply:
        """What the transport gets back for a parcel, read."""
        answer = self.deliver(to or self.last, parcel, source)
        if answer.parcel is None:
            return Reply(answer.status)
        back = self.line[-1].reply
        assert back is not None
        fault = read_fault(back.body)
        message = codec.read(back).message if fault is None else None
        return Reply(answer.status, message, fault, back)

    # --- connections that the test holds in its hand ---

    def wait_for(self, name: str, awaited: Awaited) -> None:
        """The connection of a request stays open for the answer of the application."""
        state = self.engines[name].context.state
        state.replying = {*state.replying, (awaited.sender, awaited.message_id)}

    def arrive(self, parcel: Parcel, source: Source = HTTP, to: str = "") -> Answer:
        """The last node gets the bytes; their connection waits if it must."""
        name = to or self.last
        answer = self.engines[name].receive(parcel, source)
        if answer.awaited is not None:
            self.wait_for(name, answer.awaited)
        self.settle(name)
        return answer

    def ask(self, number: int = 1) -> Awaited:
        """An order arrives at beta, and its connection waits."""
        awaited = self.arrive(self.order(number)).awaited
        assert awaited is not None
        return awaited

    def answered(self, parcel: Parcel, *responses: Submission, number: int = 1) -> Parcel:
        """An order arrives, its connection waits, and beta's application answers on it."""
        awaited = self.arrive(parcel).awaited
        assert awaited is not None
        self.lease()
        self.confirm(number, *responses)
        return self.reply(awaited)

    def reply(self, awaited: Awaited) -> Parcel:
        """What goes back on the connection that waited."""
        answer = self.engines[self.last].reply_to(awaited)
        self.settle(self.last)
        assert answer is not None
        return self.bytes_of(answer)

    def bytes_of(self, answer: Answer) -> Parcel:
        """The parcel of an answer of the last node."""
        assert answer.parcel is not None
        return whole_parcel(self.engines[self.last].context, answer.parcel)

    def hear(self, post: Post | int, reply: Parcel | None, *, sent: bool = True) -> None:
        """An attempt, or the first of an order, ended and this came back; `sent`: with a 2xx."""
        key = (self.id_of(post), 1) if isinstance(post, int) else (post.message_id, post.attempt)
        ended = Transmission(*key, sent=sent, reason="" if sent else "500")
        self.engine.transmission_over(ended, reply)
        self.settle()

    # --- what was seen ---

    def seen(self, kind: type[A], name: str = "") -> list[A]:
        """The actions of one kind, of all or of one node."""
        return [one for own, one in self.actions if isinstance(one, kind) and name in ("", own)]

    @property
    def posts(self) -> list[Post]:
        return self.seen(Post)

    @property
    def posted(self) -> list[PostAnswer]:
        """What left on connections of its own, and is answered by nothing."""
        return self.seen(PostAnswer)

    @property
    def settled(self) -> list[Settled]:
        return self.seen(Settled)

    @property
    def ponged(self) -> list[Ponged]:
        return self.seen(Ponged)

    @property
    def told(self) -> list[StatusTold]:
        return self.seen(StatusTold)

    @property
    def carried(self) -> list[Crossing]:
        """What crossed from one engine to another."""
        return [one for one in self.line if one.sender]

    def to(self, name: str) -> list[Crossing]:
        """What arrived at one node."""
        return [one for one in self.line if one.to == name]

    def between(self, sender: str, receiver: str) -> list[Parcel]:
        """What crossed from one node to another."""
        return [one.parcel for one in self.line if (one.sender, one.to) == (sender, receiver)]

    def parcel(self, action: Post | PostAnswer, by: str = "") -> Parcel:
        """The bytes of an attempt or of an answer."""
        return whole_parcel(self.engines[by or self.first].context, action.parcel)

    def left(self, name: str = "") -> list[Parcel]:
        """All that a node let go on connections of its own, in order."""
        name = name or self.last
        return [
            self.parcel(one, name)
            for own, one in self.actions
            if own == name and isinstance(one, Post | PostAnswer)
        ]

    def left_messages(self, name: str = "") -> list[Message]:
        """The same, read."""
        return [codec.read(parcel).message for parcel in self.left(name)]

    def signals(self) -> list[Message]:
        """The answers that left on connections of their own, read."""
        return [codec.read(self.parcel(one)).message for one in self.posted]

    # --- what the stores hold ---

    def id_of(self, message: int | str, by: str = "") -> str:
        """The id of an order by its number."""
        return f"order-{message}@{by or self.first}" if isinstance(message, int) else message

    def sent(self, message: int | str = 1, *, by: str = "") -> Parcel:
        """A message as its sender stored it."""
        engine = self.engines[by or self.first]
        with engine.context.store.reader() as reader:
            stored = reader.outgoing_parcel(self.id_of(message, by))
        assert stored is not None
        return whole_parcel(engine.context, stored)

    def stored(self, message: int | str = 1, name: str = "") -> StoredOutgoing:
        """What the sender keeps of a message."""
        with self.engines[name or self.first].context.store.transition() as tx:
            found = tx.outgoing(self.id_of(message))
        assert found is not None
        return found

    def terms(self, message: int | str = 1) -> Terms:
        """What a message runs under at its sender."""
        terms_id = self.stored(message).outgoing.terms_id
        with self.engine.context.store.transition() as tx:
            return self.engine.context.terms_of(tx, terms_id)

    def state(self, message: int | str = 1, name: str = "") -> OutgoingState | None:
        """Where a message stands at its sender."""
        with self.engines[name or self.first].context.store.transition() as tx:
            found = tx.outgoing(self.id_of(message))
        return None if found is None else found.outgoing.state

    def arrived(self, message: int | str = 1, sender: str = "urn:test:alpha") -> IncomingState:
        """Where it stands at its receiver."""
        with self.engines[self.last].context.store.transition() as tx:
            found = tx.incoming(sender, self.id_of(message))
        assert found is not None
        return found.incoming.state

    def rows(self, *kinds: str, at: str = "", of: str | None = None) -> list[Row]:
        """What a node journaled: of these kinds, of that message."""
        with self.engines[at or self.first].context.store.reader() as reader:
            rows = reader.journal_since(0, 1_000_000)
        return [
            row for row in rows if (not kinds or row.kind in kinds) and of in (None, row.message_id)
        ]

    def kinds(self, at: str, of: str | None = None) -> list[str]:
        """The kinds of its rows, in order."""
        return [row.kind for row in self.rows(at=at, of=of)]

    @property
    def refused(self) -> int:
        """How many messages the first node refused, with a row of the journal or only counted."""
        counted = sum(one.count for one in self.engine.context.state.refusals.counted)
        return max(counted, len(self.rows("refused")))

    def incidents(self, name: str = "") -> list[Incident]:
        """A node's open incidents."""
        with self.engines[name or self.first].context.store.reader() as reader:
            return list(reader.incidents())

    def reasons(self, name: str = "") -> list[str]:
        """The reasons of its open incidents."""
        return [one.reason for one in self.incidents(name)]

    def verify(self, *, healed: bool = True) -> JournalReport:
        """The verdict over all journals."""
        rows = [row for name in self.engines for row in self.rows(at=name)]
        return check_journal(rows, healed=healed)


def _host(address: str) -> str:
    return address.split("/")[2] if "//" in address else ""
