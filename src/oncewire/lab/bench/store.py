"""Store: how many transitions a second it takes, against the bytes alone and one fsync a commit.

A message's life is three transitions on each side: submit, send, acknowledge; receive, hand over,
confirm. Each writes its state and its journal rows. The limit appends as many bytes to a file and
calls fdatasync as often. The same run inserts bare rows of that size through apsw, with and without
a random key: what SQLite itself takes of the difference.
"""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import apsw
from msgspec.structs import replace

from oncewire.errors import StoreProblem
from oncewire.journal.row import Row
from oncewire.lab.bench.figures import Figure, Outcome, Plan
from oncewire.message.envelope import MessageKind
from oncewire.message.instant import seconds
from oncewire.protocol.states import Incoming, IncomingState, Outgoing, OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Store, Transaction
from oncewire.store.memory.store import MemoryStore
from oncewire.store.records import (
    MessageFacts,
    StoredAnswer,
    StoredIncoming,
    StoredOutgoing,
    StoredParcel,
)
from oncewire.store.sqlite.store import SqliteStore

SEED = 1
TERMS = Terms()
TERMS_ID = TERMS.terms_id
BODY = random.Random(SEED).randbytes(2_500)
ACK = BODY[:1_200]
DIGEST = hashlib.sha256(BODY).hexdigest()
BOOT = str(uuid.UUID(int=random.Random(SEED).getrandbits(128)))
FACTS = MessageFacts(
    "cpa", "talk", "buyer", "seller", "orders", "order", 1, None, MessageKind.NORMAL, DIGEST, 2_500
)
Step = Callable[[Transaction], object]
T = TypeVar("T")


def _there(found: T | None) -> T:
    if found is None:
        raise StoreProblem("the store does not give back what it was given")
    return found


def _row(kind: str, message_id: str, at: int) -> Row:
    return Row(
        0, at, at, BOOT, "buyer", kind, message_id, None, TERMS_ID, None, None, None, 1, 1,
        "seller", "http", DIGEST, 2_500, None,
    )  # fmt: skip


def sending(message_id: str, at: int) -> Iterator[Step]:
    """Submit, send, acknowledge."""

    def submit(tx: Transaction) -> None:
        outgoing = Outgoing(
            message_id, TERMS_ID, at, state=OutgoingState.OUTSTANDING, next_attempt_at=at
        )
        parcel = StoredParcel("text/xml", (("SOAPAction", '"ebXML"'),), (BODY,))
        tx.add_outgoing(StoredOutgoing(outgoing, FACTS, "seller"), parcel=parcel, draft=None)
        tx.journal([_row("submitted", message_id, at)])

    def send(tx: Transaction) -> None:
        stored = _there(tx.outgoing(message_id))
        due = at + seconds(60)
        sent = replace(
            stored.outgoing, attempts=1, attempts_here=1, first_sent_at=at, last_sent_at=at,
            next_attempt_at=due,
        )  # fmt: skip
        tx.save_outgoing(sent)
        tx.journal([_row("sent", message_id, at)])

    def acknowledge(tx: Transaction) -> None:
        stored = _there(tx.outgoing(message_id))
        done = replace(stored.outgoing, state=OutgoingState.DELIVERED, next_attempt_at=None)
        tx.save_outgoing(done)
        tx.journal([_row("acknowledged", message_id, at)])

    yield from (submit, send, acknowledge)


def receiving(message_id: str, at: int) -> Iterator[Step]:
    """Receive and answer, hand over, confirm."""

    def receive(tx: Transaction) -> None:
        incoming = Incoming("buyer", message_id, DIGEST, TERMS_ID, at, IncomingState.READY)
        parcel = StoredParcel("text/xml", (("SOAPAction", '"ebXML"'),), (BODY,))
        reply = StoredParcel("text/xml", (("SOAPAction", '"ebXML"'),), (ACK,))
        answer = StoredAnswer(f"ack-{message_id}", MessageKind.ACKNOWLEDGMENT, reply)
        tx.add_incoming(StoredIncoming(incoming, FACTS, "buyer", "http", parcel, answer))
        tx.journal([_row("received", message_id, at), _row("ack_sent", message_id, at)])

    def hand_over(tx: Transaction) -> None:
        stored = _there(tx.incoming("buyer", message_id))
        tx.save_incoming(stored.incoming.handed_over(at + seconds(60)))
        tx.journal([_row("handed_over", message_id, at)])

    def confirm(tx: Transaction) -> None:
        stored = _there(tx.incoming("buyer", message_id))
        tx.save_incoming(stored.incoming.confirmed(at))
        tx.journal([_row("confirmed", message_id, at)])

    yield from (receive, hand_over, confirm)


def _ids(count: int) -> list[str]:
    chance = random.Random(SEED)
    return [f"{uuid.UUID(int=chance.getrandbits(128))}@buyer.example" for _ in range(count)]


def lives(store: Store, count: int, group: int) -> tuple[float, float]:
    """(transitions a second, microseconds of CPU for each) for whole lives of messages."""
    with store.transition() as tx:
        tx.remember_terms(TERMS)
    store.commit()
    done = 0
    started, cpu = time.perf_counter(), time.process_time()
    for at, message_id in enumerate(_ids(count)):
        for life in (sending, receiving):
            for step in life(message_id, at):
                with store.transition() as tx:
                    step(tx)
                done += 1
                if done % group == 0:
                    store.commit()
    store.commit()
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    return done / took, cpu / done * 1e6


def bare(folder: Path, count: int, group: int, *, keyed: bool) -> tuple[float, float]:
    """(inserts a second, microseconds of CPU for each) for one bare insert of the same bytes per
    transaction step."""
    connection = apsw.Connection(str(folder / f"bare-{group}-{keyed}.db"))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "FULL")
    connection.wal_autocheckpoint(4_000)
    unique = "UNIQUE" if keyed else ""
    connection.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT {unique}, body BLOB)")
    cursor = connection.cursor()
    started, cpu = time.perf_counter(), time.process_time()
    for done, name in enumerate(_ids(count), start=1):
        if (done - 1) % group == 0:
            cursor.execute("BEGIN IMMEDIATE")
        cursor.execute("INSERT INTO t (name, body) VALUES (?, ?)", (name, BODY))
        if done % group == 0 or done == count:
            cursor.execute("COMMIT")
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    connection.close()
    return count / took, cpu / count * 1e6


def raw(folder: Path, count: int, group: int) -> float:
    """The bytes of as many transitions appended to a file, with one fdatasync a group; a second."""
    place = os.open(folder / f"raw-{uuid.uuid4()}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        started = time.perf_counter()
        for done in range(1, count + 1):
            os.write(place, BODY)
            if done % group == 0 or done == count:
                os.fdatasync(place)
        return count / (time.perf_counter() - started)
    finally:
        os.close(place)


def _sqlite(folder: Path, count: int, group: int) -> tuple[float, float]:
    store = SqliteStore(folder / "store.db", node="buyer")
    try:
        return lives(store, max(1, count // 6), group)
    finally:
        store.close()


WORKS: dict[str, Callable[[Path, int, int], tuple[float, float]]] = {
    "sqlite transition": _sqlite,
    "bare insert, random key": lambda folder, count, group: bare(folder, count, group, keyed=True),
    "bare insert": lambda folder, count, group: bare(folder, count, group, keyed=False),
    "memory transition": lambda _, count, group: lives(MemoryStore(), max(1, count // 6), group),
}


def measure(what: str, plan: Plan, group: int) -> Figure:
    """One kind of work, by turns with the limit."""
    plan.tell(f"{what}, {group} in a commit")
    # So many that it lasts about as long as was asked for, on a machine as there are many.
    count = max(group, int(plan.seconds * (100 if group == 1 else 1500)))
    rates, limits, costs = [], [], []
    for _ in range(plan.repeats):
        with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as name:
            limits.append(raw(Path(name), count, group))
            rate, cost = WORKS[what](Path(name), count, group)
        rates.append(rate)
        costs.append(cost)
    more = {"us": round(min(costs), 1)}
    return Figure(f"{what}, {group} per commit", tuple(rates), tuple(limits), more)


def run(plan: Plan) -> Outcome:
    """The store on SQLite and in memory, and bare SQLite."""
    figures = [measure(what, plan, group) for group in (64, 1) for what in WORKS]
    return Outcome(
        "store",
        "transitions",
        "the same bytes appended to a file, one fdatasync a commit",
        tuple(figures),
        findings=(f"SQLite {apsw.sqlite_lib_version()}, messages of 2.5 KB, seed {SEED}",),
    )
