"""A stage: handlers in one process whose every visible deed is written down, to be compared.

What is written down is what somebody outside could see: the bytes and addresses of what travels,
what goes back on a connection, what an application is given and told, which timers are set, and
the rows of the journal. The agreement itself is left out of it (the rows that quote the terms, and
their ids), so that two recordings differ only where the handlers did something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.errors import OncewireError
from oncewire.handler.actions import Action, Post, PostAnswer, Source, Submission
from oncewire.handler.context import HandlerContext, Keys
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.sending.answer import Answer
from oncewire.handler.sending.transmit import Transmission
from oncewire.message.ids import Service
from oncewire.message.instant import SECOND, Duration
from oncewire.message.payload import Payload
from oncewire.store.memory.store import MemoryStore
from oncewire.wire.parcel import Parcel
from tests.handler.pair import START, TestWorld

Said = dict[str, Any]
"""What an agreement says: dotted keys, and values as TOML has them."""

# Made anew whenever a payload is encrypted, and with it what is computed from its bytes.
_CHANCE = re.compile(r"(CipherValue>|sha-256=:|=_)[A-Za-z0-9+/=\s]{16,}")


def toml(value: Any) -> str:
    """A TOML literal; tables are written inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def paper(own: str, partner: str, *layers: Said) -> str:
    """The agreement of one party with another; a later layer says more, None takes back."""
    said: Said = {"cpa_id": "alpha-beta"}
    for side, name in (("own", own), ("partner", partner)):
        uri = f"http://{name}/msh"
        said |= {f"{side}.party_id": f"urn:test:{name}", f"{side}.uri": uri, f"{side}.http": uri}
    for layer in layers:
        said |= layer
    tables: dict[str, Any] = {}
    for key, value in said.items():
        section, _, name = key.rpartition(".")
        if value is not None:
            (tables.setdefault(section, {}) if section else tables)[name] = value
    return "\n".join(f"{name} = {toml(value)}" for name, value in tables.items())


class Stage:
    """Handlers by name, what the network does to parcels, and the record of all that was seen."""

    def __init__(
        self,
        papers: dict[str, list[str]],
        keys: dict[str, Keys] | None = None,
        load: Callable[[str], bytes] | None = None,
    ) -> None:
        self.record: list[str] = []
        self.lose_request: Callable[[Post], bool] = lambda post: False
        self.lose_answer: Callable[[int], bool] = lambda count: False
        self.change: Callable[[Parcel], Parcel] = lambda parcel: parcel
        self.source = Source("http", can_answer=True)
        # What each application answers to an order, by the order's id.
        self.responses: dict[str, list[Submission]] = {}
        self.parcels: list[tuple[str, Parcel]] = []
        self.engines: dict[str, Engine] = {}
        self._answers = 0
        for name, texts in papers.items():
            agreements = Agreements([read_toml(text, load=load) for text in texts])
            world, own = TestWorld(name), (keys or {}).get(name)
            node = HandlerContext(name, MemoryStore(name), agreements, world, keys=own)
            self.engines[name] = Engine(node)
            self.engines[name].start()
            self.settle(name)

    def note(self, *words: object) -> None:
        self.record.append(" | ".join(map(str, words)))

    # --- what applications do ---

    def send(self, number: int = 1, *, by: str = "alpha", **more: Any) -> None:
        """An application hands in an order; what it is told, if not thanks, is noted."""
        order: Said = {
            "cpa_id": "alpha-beta",
            "service": Service("urn:test:orders"),
            "action": "New",
            "payloads": (Payload.of(f"order-{number}", "text/plain", b"order %d" % number),),
            "conversation_id": "talk",
            "message_id": f"order-{number}@{by}",
        }
        try:
            self.engines[by].submit(Submission(**(order | more)))
        except OncewireError as refused:
            self.note(by, "refuses to send", type(refused).__name__)
        self.settle(by)

    def take(self, name: str = "beta") -> None:
        """The application takes what is ready, and answers what it has an answer to."""
        engine = self.engines[name]
        taken = engine.take(100, 30 * SECOND)
        self.settle(name)
        for stored in taken:
            given = GivenMessage.of(engine.context, stored)
            self.note(name, "is given", given.message_id, [one.data for one in given.payloads])
            responses = self.responses.get(given.message_id, [])
            engine.confirm(given.sender, given.message_id, responses)
        self.settle(name)

    # --- what the network and the clock do ---

    def settle(self, name: str) -> None:
        """Commit, and carry what may leave; then what that caused, until all is quiet."""
        engine = self.engines[name]
        for action in engine.commit():
            self._carry(name, action)
        for notice in engine.notices(100):
            self.note(name, "is told", notice.message_id, notice.severity, notice.outcome.value)
            engine.confirm_notice(notice.notice_id)
            self.settle(name)

    def _carry(self, name: str, action: Action) -> None:
        engine = self.engines[name]
        if not isinstance(action, Post | PostAnswer):
            return
        parcel = whole_parcel(engine.context, action.parcel)
        how: tuple[object, ...] = (action.transport, action.address)
        if isinstance(action, Post):
            how += (action.attempt, action.timeout, engine.context.store.next_wake())
        self.note(name, "posts", *how, sorted(parcel.headers), parcel.body.decode("latin-1"))
        host = action.address.split("/")[2] if "//" in action.address else ""
        lost = host not in self.engines or (
            self.lose_request(action) if isinstance(action, Post) else self._is_lost()
        )
        reply = None if lost else self._reply(host, self.change(parcel))
        if reply is not None:
            lost = self._is_lost()
        if isinstance(action, Post):
            ended = Transmission(action.message_id, action.attempt, sent=not lost, reason="")
            engine.transmission_over(ended, None if lost else reply)
        else:
            engine.answer_left(action, sent=not lost, reply=None if lost else reply)
        self.settle(name)

    def _is_lost(self) -> bool:
        self._answers += 1
        return self.lose_answer(self._answers)

    def _reply(self, name: str, parcel: Parcel) -> Parcel | None:
        """What comes back on the connection, where the application was waited for if it must."""
        answer, engine = self.deliver(name, parcel), self.engines[name]
        awaited = answer.awaited
        if awaited is not None:
            self.note(name, "lets a connection wait for", awaited.patience)
            engine.context.state.replying = {(awaited.sender, awaited.message_id)}
            self.take(name)
            answer = engine.reply_to(awaited) or engine.overdue(awaited)
            engine.context.state.replying = ()
            self.settle(name)
        if answer.parcel is None:
            self.note(name, "answers", answer.status, answer.retry_after)
            return None
        parcel = whole_parcel(engine.context, answer.parcel)
        self.note(name, "answers", answer.status, parcel.body.decode("latin-1"))
        return parcel

    def deliver(self, name: str, parcel: Parcel) -> Answer:
        """Bytes arrive at a handler, from nobody or from somebody else."""
        self.parcels.append((name, parcel))
        answer = self.engines[name].receive(parcel, self.source)
        self.settle(name)
        return answer

    def arrive(self, name: str, parcel: Parcel) -> None:
        """The same, with what the handler says on the connection."""
        self._reply(name, parcel)

    def sent(self, number: int = 1, *, by: str = "alpha") -> Parcel:
        """An order as its sender stored it."""
        engine = self.engines[by]
        with engine.context.store.reader() as reader:
            stored = reader.outgoing_parcel(f"order-{number}@{by}")
        assert stored is not None
        return whole_parcel(engine.context, stored)

    def pass_time(self, *durations: Duration) -> None:
        """Let time pass everywhere, and do what becomes due."""
        for duration in durations:
            for engine in self.engines.values():
                assert isinstance(engine.context.world, TestWorld)
                engine.context.world.time += duration
            for name, engine in self.engines.items():
                engine.tick()
                self.settle(name)

    # --- the record ---

    def fingerprint(self) -> list[str]:
        """All that was seen, and what the stores hold at the end."""
        found = list(self.record)
        for name, engine in self.engines.items():
            with engine.context.store.reader() as reader:
                rows = reader.journal_since(0, 1_000_000)
                found.append(f"{name} keeps {sorted(reader.counts().items())}")
                found += [f"{name} counts {one.code}" for one in reader.refusals()]
            found.append(f"{name} wakes at {engine.context.store.next_wake()}")
            found += [
                f"{name} notes {row.at - START} {row.kind} {row.message_id} {row.attempt} "
                f"{row.sequence_number} {row.transport} {row.peer} {row.detail}"
                for row in rows
                if row.kind != "terms"
            ]
        return [_CHANCE.sub(r"\1...", line) for line in found]
