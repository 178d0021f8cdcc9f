"""Two engines and the hand that carries parcels between them, so that a test decides the luck."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

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
from oncewire.handler.context import HandlerContext
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.runtime.upkeep import join_at_once
from oncewire.handler.sending.answer import Answer
from oncewire.handler.sending.transmit import Transmission
from oncewire.journal.check import JournalReport, check_journal
from oncewire.message.ids import Service
from oncewire.message.instant import SECOND, Duration
from oncewire.message.payload import Payload
from oncewire.store.contract import Store
from oncewire.store.memory.store import MemoryStore
from oncewire.wire.parcel import Parcel

START = 1_767_225_600_000_000


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
    """The agreement of a text: nobody can change one, so every pair with that text has it."""
    return read_toml(text)


class TestWorld:
    """Time that stands still until a test moves it."""

    __test__ = False

    def __init__(self, name: str) -> None:
        self.name, self.time, self.ids = name, START, 0

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
class Pair:
    """alpha sends to beta. `lose_request` and `lose_answer` say what the network drops."""

    profile: str = "ebms2"
    extra: str = ""
    lose_request: Callable[[int], bool] = lambda attempt: False
    lose_answer: Callable[[int], bool] = lambda attempt: False
    notices: list[Notice] = field(default_factory=list)
    # Whether the applications come for their notices.
    hears: bool = True
    settled: list[Settled] = field(default_factory=list)
    ponged: list[Ponged] = field(default_factory=list)
    told: list[StatusTold] = field(default_factory=list)
    # How each party's store is opened.
    store: Callable[[str], Store] = MemoryStore
    # Bodies of every acknowledgement or other answer that beta let go, in order.
    answers: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engines: dict[str, Engine] = {}
        for name in ("alpha", "beta"):
            self._start(name, self.store(name), TestWorld(name))

    def _start(self, own: str, store: Store, world: TestWorld) -> None:
        partner = "beta" if own == "alpha" else "alpha"
        agreement = agreement_of(agreement_text(own, partner, self.profile, self.extra))
        self.engines[own] = Engine(HandlerContext(own, store, Agreements([agreement]), world))
        self.engines[own].start()
        self.settle(own)

    def crash(self, name: str) -> None:
        """The process dies with everything it has not committed, and is started again."""
        node = self.engines[name].context
        store = node.store
        store.close()
        assert isinstance(node.world, TestWorld)
        self._start(name, store if isinstance(store, MemoryStore) else self.store(name), node.world)

    def close(self) -> None:
        for engine in self.engines.values():
            engine.context.store.close()

    @property
    def alpha(self) -> Engine:
        return self.engines["alpha"]

    @property
    def beta(self) -> Engine:
        return self.engines["beta"]

    def send(self, number: int = 1, data: bytes | None = None, **more: object) -> Accepted:
        """alpha's application hands in an order, with these bytes or a few of its own."""
        document = f"order {number}".encode() if data is None else data
        submission = Submission(
            "alpha-beta",
            Service("urn:test:orders"),
            "New",
            (Payload.of(f"order-{number}", "text/plain", document),),
            conversation_id="talk",
            message_id=f"order-{number}@alpha",
            **more,  # type: ignore[arg-type]
        )
        accepted = self.alpha.submit(submission)
        self.settle("alpha")
        return accepted

    def pass_time(self, duration: Duration = 60 * SECOND) -> None:
        """Let time pass on both sides, and do what becomes due."""
        for name, engine in self.engines.items():
            world = engine.context.world
            assert isinstance(world, TestWorld)
            world.time += duration
            engine.tick()
            self.settle(name)

    def settle(self, name: str) -> None:
        """Commit, and carry what may leave; then what that caused, until all is quiet."""
        for action in self.engines[name].commit():
            self._carry(name, action)
        self._hear(name)

    def _hear(self, name: str) -> None:
        """The application takes the notices of failures, and says so."""
        engine = self.engines[name]
        while found := engine.notices(100) if self.hears else []:
            for notice in found:
                self.notices.append(notice)
                engine.confirm_notice(notice.notice_id)
            for action in engine.commit():
                self._carry(name, action)

    def _carry(self, name: str, action: Action) -> None:
        engine = self.engines[name]
        if isinstance(action, Settled):
            self.settled.append(action)
        elif isinstance(action, Ponged):
            self.ponged.append(action)
        elif isinstance(action, StatusTold):
            self.told.append(action)
        elif isinstance(action, Join):
            join_at_once(engine, action)
            self.settle(name)
        elif isinstance(action, Post):
            self._post(name, engine, action)
        elif isinstance(action, PostAnswer):
            parcel = whole_parcel(engine.context, action.parcel)
            self.answers.append(parcel.body)
            if self.lose_answer(len(self.answers)):
                return
            receiver = _host(action.address)
            back = self.deliver(receiver, parcel).parcel
            reply = None if back is None else whole_parcel(self.engines[receiver].context, back)
            engine.answer_left(action, sent=True, reply=reply)
            self.settle(name)

    def _post(self, name: str, engine: Engine, post: Post) -> None:
        ended = Transmission(post.message_id, post.attempt, sent=True)
        lost = Transmission(post.message_id, post.attempt, sent=False, reason="lost")
        if self.lose_request(post.attempt):
            engine.transmission_over(lost)
            self.settle(name)
            return
        answer = self.deliver(_host(post.address), whole_parcel(engine.context, post.parcel))
        reply = None
        if answer.parcel is not None:
            reply = whole_parcel(engine.context, answer.parcel)
            self.answers.append(reply.body)
            if self.lose_answer(len(self.answers)):
                engine.transmission_over(lost)
                self.settle(name)
                return
        engine.transmission_over(ended, reply)
        self.settle(name)

    def deliver(self, name: str, parcel: Parcel) -> Answer:
        """Hand a parcel to a node; its answer counts only after its commit."""
        answer = self.engines[name].receive(parcel, Source("http", can_answer=True))
        self.settle(name)
        return answer

    def take(self) -> list[str]:
        """The application at beta takes and confirms what is ready."""
        taken = self.beta.take(100, 30 * SECOND)
        self.settle("beta")
        for stored in taken:
            self.beta.confirm(stored.incoming.sender, stored.incoming.message_id)
        self.settle("beta")
        return [stored.incoming.message_id for stored in taken]

    def verify(self, *, healed: bool = True) -> JournalReport:
        rows = []
        for engine in self.engines.values():
            with engine.context.store.reader() as reader:
                rows += reader.journal_since(0, 1_000_000)
        return check_journal(rows, healed=healed)

    def kinds(self, name: str) -> list[str]:
        """What one node journaled, in order."""
        with self.engines[name].context.store.reader() as reader:
            return [row.kind for row in reader.journal_since(0, 1_000_000)]


def _host(address: str) -> str:
    return address.split("/")[2]
