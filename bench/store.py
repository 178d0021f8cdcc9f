"""How many transitions a second the store takes, and what of it is SQLite itself.

    python -m bench.store [messages]

A message's life is three transitions on each side: submit, send, acknowledge; receive,
hand over, confirm. Each writes its state and its journal rows. The same run also inserts
bare rows of the same size through apsw, with and without a random key, so that a figure
can be compared between machines by its ratio.
"""

from __future__ import annotations

import hashlib
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import apsw

from oncewire.journal.row import Row
from oncewire.message.envelope import MessageKind
from oncewire.message.instant import seconds
from oncewire.protocol.incoming import Incoming
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.states import IncomingState, OutgoingState
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
        stored = tx.outgoing(message_id)
        assert stored is not None
        due = at + seconds(60)
        sent = replace(
            stored.outgoing, attempts=1, attempts_here=1, first_sent_at=at, last_sent_at=at,
            next_attempt_at=due,
        )  # fmt: skip
        tx.save_outgoing(sent)
        tx.journal([_row("sent", message_id, at)])

    def acknowledge(tx: Transaction) -> None:
        stored = tx.outgoing(message_id)
        assert stored is not None
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
        stored = tx.incoming("buyer", message_id)
        assert stored is not None
        tx.save_incoming(stored.incoming.handed_over(at + seconds(60)))
        tx.journal([_row("handed_over", message_id, at)])

    def confirm(tx: Transaction) -> None:
        stored = tx.incoming("buyer", message_id)
        assert stored is not None
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
    """The same for one bare insert of the same bytes per transaction step."""
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


def main(count: int, folder: Path) -> None:
    """Print the table."""
    print(f"seed {SEED}, {count} messages of 2.5 KB, SQLite {apsw.sqlite_lib_version()}")
    print(f"{'':44}{'per second':>12}{'CPU us each':>13}")

    def show(what: str, measured: tuple[float, float]) -> None:
        print(f"{what:44}{measured[0]:12,.0f}{measured[1]:13.0f}")

    keyed: dict[int, tuple[float, float]] = {}
    for group in (1, 64):
        short = count if group > 1 else max(count // 10, 100)
        show(f"bare insert, {group} per commit", bare(folder, short * 6, group, keyed=False))
        keyed[group] = bare(folder, short * 6, group, keyed=True)
        show(f"bare insert with random key, {group} per commit", keyed[group])
        store = SqliteStore.open(folder / f"store-{group}.db", node="buyer")
        measured = lives(store, short, group)
        store.close()
        show(f"sqlite transition, {group} per commit", measured)
        ratio = measured[0] / keyed[group][0]
        print(f"{'  ratio to the bare insert with random key':44}{ratio:12.2f}")
    show("memory transition, 64 per commit", lives(MemoryStore(), count, 64))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="bench-store-") as name:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000, Path(name))
