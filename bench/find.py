"""How long `oncewire find` looks among few messages and among many: `python -m bench.find`.

Two stores are made by the store's own transitions, one message in two sent and the others received,
a hundred partners, a message a minute. Each kind of search is made for many messages all over the
store, by turns in the small and the large one, and its processor time is told. The second table
is what writing costs: lives of messages by turns with the index, and without it and the orders by
time that serve it alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from oncewire.lab.bench import exchange
from oncewire.lab.bench.figures import Configuration
from oncewire.lab.bench.store import BODY, DIGEST, FACTS, TERMS, TERMS_ID, lives
from oncewire.message.instant import DAY, MINUTE
from oncewire.protocol.states import Incoming, IncomingState, Outgoing, OutgoingState
from oncewire.store.contract import Reader, Store
from oncewire.store.records import StoredIncoming, StoredOutgoing, StoredParcel, Word
from oncewire.store.search import Search
from oncewire.store.sql import search_index
from oncewire.store.sqlite.store import SqliteStore

SEED = 28
PARTNERS = 100
GROUP = 256
PARCEL = StoredParcel("text/xml", (), (BODY[:200],))
ONLY_FOR_SEARCH = ("outgoing_time", "outgoing_partner", "incoming_time", "incoming_partner")
AIM = 3.0


def name_of(number: int) -> str:
    chance = random.Random(SEED * 1_000_003 + number).getrandbits(128)
    text = f"{chance:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}@acme.example"


def partner_of(number: int) -> str:
    return f"urn:partner:{number // 2 % PARTNERS}"


def order_of(number: int) -> str:
    return f"4500{number:08d}"


def add(store: Store, number: int) -> None:
    at, name, words = number * MINUTE, name_of(number), (Word("//order/@id", order_of(number)),)
    facts = replace(FACTS, conversation_id=f"talk {number}")
    with store.transition() as tx:
        if number % 2:
            facts = replace(facts, from_party=partner_of(number))
            state = IncomingState.CONFIRMED
            incoming = Incoming(partner_of(number), name, DIGEST, TERMS_ID, at, state)
            tx.add_incoming(StoredIncoming(incoming, facts, "buyer", "http", PARCEL), words)
        else:
            facts = replace(facts, to_party=partner_of(number))
            outgoing = Outgoing(name, TERMS_ID, at, state=OutgoingState.DELIVERED)
            stored = StoredOutgoing(outgoing, facts, "seller")
            tx.add_outgoing(stored, parcel=PARCEL, draft=None, words=words)


def made(path: Path, count: int) -> SqliteStore:
    """The store with so many messages; one that is there already is used."""
    there = path.exists()
    store = SqliteStore(path, node="buyer")
    if there:
        return store
    with store.transition() as tx:
        tx.remember_terms(TERMS)
    for number in range(count):
        add(store, number)
        if number % GROUP == GROUP - 1:
            store.commit()
        if number % 100_000 == 0:
            print(f"{path.name}: {number:,}", file=sys.stderr)
    store.commit()
    return store


def by_id(number: int) -> Search:
    start = 4 + number % 20
    return Search(text=name_of(number)[start : start + 8])


def by_partner_and_day(number: int) -> Search:
    at = number * MINUTE
    return Search(partners=(partner_of(number),), since=at, until=at + DAY)


def by_value(number: int) -> Search:
    return Search(value=order_of(number))


KINDS: dict[str, Callable[[int], Search]] = {
    "8 characters of an id": by_id,
    "partner and day": by_partner_and_day,
    "value in a document": by_value,
}


def found(reader: Reader, search: Search) -> int:
    sent, received = reader.find_sent(search, 50), reader.find_received(search, 50)
    return len(sent.messages) + len(received.messages)


def searches(small: SqliteStore, large: SqliteStore, counts: tuple[int, int], repeats: int) -> bool:
    chance, good = random.Random(SEED), True
    for kind, search in KINDS.items():
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(repeats):
            for store, count, took in zip((small, large), counts, times, strict=True):
                # Each finds as much: no day is cut short at the end of the store.
                number = chance.randrange(max(1, count - 24 * 60)) if count > 24 * 60 else 0
                number = number or chance.randrange(count)
                with store.reader() as reader:
                    began = time.thread_time()
                    hits = found(reader, search(number))
                    took.append(time.thread_time() - began)
                if not hits:
                    print(f"{kind} {number}: nothing found", file=sys.stderr)
                    return False
        few, many = (statistics.median(took) * 1e3 for took in times)
        worst = max(times[1]) * 1e3
        good = good and many <= AIM * few
        line = {
            "search": kind,
            f"ms_{counts[0]}": round(few, 2),
            f"ms_{counts[1]}": round(many, 2),
            "times": round(many / few, 2),
            "slowest_ms": round(worst, 2),
        }
        print(json.dumps(line))
    return good


def cost(repeats: int, messages: int = 6_000) -> None:
    """Processor time for the life of a message in one store, sent and received, by turns."""
    spent: dict[str, list[float]] = {"without": [], "with": []}
    usual = search_index.FILED_AT_ONCE
    for _ in range(repeats):
        for kind, took in spent.items():
            with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as name:
                store = SqliteStore(Path(name) / "store.db", node="buyer")
                if kind == "without":
                    search_index.FILED_AT_ONCE = 2**62
                    store._connection.execute(  # type: ignore[union-attr]
                        "".join(f"DROP INDEX {index};" for index in ONLY_FOR_SEARCH)
                    )
                took.append(6 * lives(store, messages, 64)[1])
                search_index.FILED_AT_ONCE = usual
                store.close()
    without, with_it = min(spent["without"]), min(spent["with"])
    line = {
        "us_without": round(without, 1),
        "us_with": round(with_it, 1),
        "more_us": round(with_it - without, 1),
    }
    print(json.dumps({"store alone, sent and received": line}))


def exchange_cost(rounds: int, seconds: float = 3.0) -> None:
    """What the index costs a whole exchange: two pairs of handlers by turns, one without it."""
    spent: dict[str, list[float]] = {"without": [], "with": []}
    rates: dict[str, list[float]] = {"without": [], "with": []}
    sides = {"without": "bench._unindexed", "with": exchange.SIDE}
    with contextlib.ExitStack() as stack:
        pairs = {}
        for kind, side in sides.items():
            exchange.SIDE = side  # type: ignore[misc]
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="oncewire-bench-"))
            pairs[kind] = stack.enter_context(exchange.open_pair(Path(folder), Configuration()))
            pairs[kind].push(seconds)
        for turn in range(rounds):
            for kind in sorted(pairs, reverse=bool(turn % 2)):
                before = sum(side["processor"] for side in pairs[kind].spent().values())
                pushed = pairs[kind].push(seconds)
                after = sum(side["processor"] for side in pairs[kind].spent().values())
                spent[kind].append((after - before) / pushed["messages"] * 1e6)
                rates[kind].append(exchange.rate_of(pushed))
    line = {
        "us_without": round(min(spent["without"]), 1),
        "us_with": round(min(spent["with"]), 1),
        "rate_without": round(max(rates["without"])),
        "rate_with": round(max(rates["with"])),
    }
    print(json.dumps({"exchange, both sides": line}))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--few", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="Keep the stores here, and use those there.")
    parser.add_argument("--exchange", type=int, metavar="ROUNDS", help="Only what it costs one.")
    options = parser.parse_args(arguments)
    if options.exchange:
        exchange_cost(options.exchange)
        return 0
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as name:
        folder = options.folder or Path(name)
        counts = (options.few, options.messages)
        small, large = (made(folder / f"{count}.db", count) for count in counts)
        try:
            good = searches(small, large, counts, options.repeats)
        finally:
            small.close()
            large.close()
    cost(5)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
