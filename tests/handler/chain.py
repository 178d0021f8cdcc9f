"""A buyer, hubs and a seller as engines, and the hand that carries parcels between them."""

from __future__ import annotations

from dataclasses import dataclass, field

from oncewire.agreement.agreement import Agreements
from oncewire.handler.actions import Notice, Post, PostAnswer, Source, StatusTold, Submission
from oncewire.handler.context import HandlerContext
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.sending.answer import Answer
from oncewire.handler.sending.transmit import Transmission
from oncewire.journal.row import Row
from oncewire.lab.simulation.options import Options
from oncewire.message.ids import Service
from oncewire.message.instant import HOUR
from oncewire.message.payload import Payload
from oncewire.protocol.states import OutgoingState
from oncewire.store.contract import Store
from oncewire.store.memory.store import MemoryStore
from oncewire.wire.parcel import Parcel
from tests.handler.pair import TestWorld
from tests.simulation.given import CPA_ID, agreements_of, names

AT_WEB = Source("http", can_answer=True)

FLOWS = {"ebms2": "unrestricted", "ms-0.9x": "unrestricted", "window": "window",
         "rm-0.78": "stop-and-wait"}  # fmt: skip


def options(profile: str = "ms-0.9x", **more: object) -> Options:
    """A world of that profile, with its usual flow."""
    usual = {"flow": FLOWS[profile], "persist_duration": HOUR}
    return Options(profile=profile, **(usual | more))  # type: ignore[arg-type]


@dataclass
class Chain:
    """What each node lets go is carried at once, or kept in `posts` while `carrying` is off."""

    options: Options
    carrying: bool = True
    posts: list[tuple[str, Post | PostAnswer]] = field(default_factory=list)
    # (from, to, the bytes) of everything that was carried.
    carried: list[tuple[str, str, Parcel]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    # (by whom it was heard, what a receiver said became of a message)
    told: list[tuple[str, StatusTold]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engines: dict[str, Engine] = {}
        for name in names(self.options):
            self.start(name, Agreements(agreements_of(name, self.options)))

    def start(self, name: str, agreements: Agreements, store: Store | None = None) -> Engine:
        """A process of that node begins, over an old store if there is one."""
        old = self.engines.get(name)
        world = old.context.world if old is not None else TestWorld(name)
        kept = store or (old.context.store if old is not None else MemoryStore(name))
        engine = self.engines[name] = Engine(HandlerContext(name, kept, agreements, world))
        engine.start()
        self.settle(name)
        return engine

    def restart(self, name: str, *without: str) -> Engine:
        """The process dies and comes back, without the agreements that name one of these."""
        found = agreements_of(name, self.options)
        left = [one for one in found if not any(word in one.cpa_id for word in without)]
        return self.start(name, Agreements(left))

    def send(self, number: int = 0, **more: object) -> str:
        order = Submission(
            CPA_ID,
            Service("urn:sim:orders"),
            "PlaceOrder",
            (Payload.of(f"order-{number}", "text/plain", f"order {number}".encode()),),
            conversation_id="year",
            message_id=f"order-{number}@buyer",
            **more,  # type: ignore[arg-type]
        )
        accepted = self.engines["buyer"].submit(order)
        self.settle("buyer")
        return accepted.message_id

    def settle(self, name: str) -> None:
        """Commit, and carry what may leave; then what that caused."""
        for action in self.engines[name].commit():
            if isinstance(action, Notice):
                self.notices.append(action)
            elif isinstance(action, StatusTold):
                self.told.append((name, action))
            elif isinstance(action, Post | PostAnswer):
                if self.carrying:
                    self.carry(name, action)
                else:
                    self.posts.append((name, action))

    def carry(self, name: str, action: Post | PostAnswer) -> Answer:
        """One parcel to its receiver, and what comes back on its connection."""
        engine, to = self.engines[name], action.address.split("/")[2]
        parcel = whole_parcel(engine.context, action.parcel)
        self.carried.append((name, to, parcel))
        answer = self.deliver(to, parcel)
        back = answer.parcel
        reply = None if back is None else whole_parcel(self.engines[to].context, back)
        if isinstance(action, Post):
            sent = Transmission(action.message_id, action.attempt, sent=True)
            engine.transmission_over(sent, reply)
        else:
            engine.answer_left(action, sent=True, reply=reply)
        self.settle(name)
        return answer

    def deliver(self, name: str, parcel: Parcel) -> Answer:
        answer = self.engines[name].receive(parcel, AT_WEB)
        self.settle(name)
        return answer

    def pass_time(self, duration: int) -> None:
        for name, engine in list(self.engines.items()):
            assert isinstance(engine.context.world, TestWorld)
            engine.context.world.time += duration
            engine.tick()
            self.settle(name)

    def state(self, message_id: str, name: str = "buyer") -> OutgoingState | None:
        with self.engines[name].context.store.transition() as tx:
            stored = tx.outgoing(message_id)
        return None if stored is None else stored.outgoing.state

    def rows(self, name: str, message_id: str | None = None) -> list[Row]:
        with self.engines[name].context.store.reader() as reader:
            rows = reader.journal_since(0, 100_000)
        return [row for row in rows if message_id in (None, row.message_id)]

    def kinds(self, name: str, message_id: str) -> list[str]:
        return [row.kind for row in self.rows(name, message_id)]
