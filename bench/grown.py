"""Growth on PostgreSQL: `python -m bench.grown`.

Pairs of parties that hold a thousand, a hundred thousand and a million messages each, in schemas of
one server that writes to the disk. A real exchange is multiplied there, row by row, under other
MessageIds. Then all pairs exchange documents by turns, and of each is told how many rows and
entries of indexes the server visits for a message, a `find`, a `status`, and a batch of retention;
`scanned` names the tables that were read from their beginning.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.handlers import DiskServer, Parties, make, open_parties, open_server
from oncewire.entry.files import read_text
from oncewire.entry.party.settings import load
from oncewire.entry.party.store import RECORD, open_store
from oncewire.handler.runtime.retention import BATCH
from oncewire.handler.world import RealWorld
from oncewire.lab.bench import growth
from oncewire.lab.bench.exchange import RECEIVER, SENDER
from oncewire.store.postgresql.connection import connect

SETTLED = 2.5
"""Seconds after which the server has counted what its sessions did."""

SCANNED = 1_000
"""Rows of a table read from its beginning from which on it is named."""

OLD = 500
"""Messages of each party that retention finds."""


def address(party: Path) -> str:
    """The database of a party."""
    return read_text(party / "oncewire.toml", "settings").split('url = "')[1].split('"')[0]


def multiply(url: str, times: int) -> None:
    """Have everything that a closed store holds so many times, under MessageIds of their own."""
    with connect(url) as connection:
        connection.execute("SET synchronous_commit = off")
        spans = {}
        for table, key in growth.KEYS.items():
            found = connection.execute(f"SELECT coalesce(max({key}), 0) FROM {table}").fetchone()
            spans[table] = int(str((found or (0,))[0]))
        for table, numbered in growth.NUMBERED.items():
            described = connection.execute(f"SELECT * FROM {table} LIMIT 0").description or ()
            columns = [column.name for column in described]
            values = growth.copied(columns, numbered, spans)
            connection.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} "
                f"FROM generate_series(1, {times - 1}) AS copy(n) CROSS JOIN {table}"
            )
        for counted, table in growth.COUNTED:
            added = spans[table] * (times - 1)
            connection.execute(f"UPDATE counter SET {counted} = {counted} + {added}")
        connection.execute("ANALYZE")


def visited(server: DiskServer, party: Path) -> tuple[int, dict[str, int]]:
    """Rows read from the beginning of tables and entries of indexes, so far; and the former of
    each table."""
    time.sleep(SETTLED)
    schema = address(party).rpartition("%3D")[2]
    of_schema = f"WHERE schemaname = '{schema}'"
    scans = {
        str(name): int(str(read))
        for name, read in server.ask(
            f"SELECT relname::text, coalesce(seq_tup_read, 0) FROM pg_stat_user_tables {of_schema}"
        )
    }
    ((entries,),) = server.ask(
        f"SELECT coalesce(sum(idx_tup_read), 0)::bigint FROM pg_stat_user_indexes {of_schema}"
    )
    return sum(scans.values()) + int(str(entries)), scans


class Visits:
    """What was visited in one party by what was done between two looks."""

    def __init__(self, server: DiskServer, party: Path) -> None:
        self._server, self._party = server, party
        self._rows, self._scans = visited(server, party)

    def told(self, many: int) -> dict[str, object]:
        """Rows for each of so many, and the tables that were scanned."""
        rows, scans = visited(self._server, self._party)
        more = {name: read - self._scans.get(name, 0) for name, read in scans.items()}
        return {
            "rows": round((rows - self._rows) / many),
            "scanned": {name: read for name, read in more.items() if read > SCANNED},
        }


def hold(server: DiskServer, folder: Path, kept: int, in_flight: int) -> dict[str, list[Path]]:
    """Make two parties that hold about so many messages each."""
    made = make(folder, server, 1)
    with open_parties(folder, made) as parties:
        sent = 0
        while sent < growth.FEW:
            sent += parties.push(0.2, in_flight)["messages"]
        while parties.receivers[0].ask("spent")["taken"] < sent:
            time.sleep(0.05)
    if kept > growth.FEW:
        began = time.perf_counter()
        for (party,) in made.values():
            multiply(address(party), kept // sent)
            (party / RECORD).unlink(missing_ok=True)
        print(f"{kept:,}: multiplied in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return made


def command(folder: Path, *said: str) -> float:
    """Run a command of a party; how many milliseconds it took."""
    began = time.perf_counter()
    asked = [sys.executable, "-m", "oncewire", *said, "-c", str(folder), "--json"]
    # Where no handler runs, some of them say so by their exit code.
    subprocess.run(asked, check=False, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1e3


def looks(server: DiskServer, party: Path) -> dict[str, object]:
    """What commands visit that look at a party whose handler has ended."""
    with connect(address(party)) as connection:
        middle = "SELECT message_id FROM message ORDER BY id OFFSET 700 LIMIT 1"
        ((name,),) = connection.execute(middle).fetchall()
    found: dict[str, object] = {}
    for said in (("find", str(name)[:9]), ("status",), ("outbox",), ("why", str(name))):
        before = Visits(server, party)
        took = command(party, *said)
        found[said[0]] = {"ms": round(took), **before.told(1)}
    return found


def sweeps(server: DiskServer, party: Path) -> dict[str, object]:
    """What a batch of retention visits where some messages are old."""
    with connect(address(party)) as connection:
        for table, key in (("outgoing", "position"), ("incoming", "row")):
            some = f"SELECT {key} FROM {table} ORDER BY {key} LIMIT {OLD}"
            connection.execute(f"UPDATE {table} SET keep_until = 1 WHERE {key} IN ({some})")
    store = open_store(load(party, environ={}).settings)
    try:
        before, batches, gone = Visits(server, party), 0, BATCH
        began = time.thread_time()
        while gone == BATCH:
            with store.transition() as tx:
                gone = tx.sweep(RealWorld().now(), BATCH)
            store.commit()
            batches += 1
        took = (time.thread_time() - began) / batches * 1e3
    finally:
        store.close()
    return {"batches": batches, "ms": round(took, 1), **before.told(batches)}


def exchanges(
    server: DiskServer, pairs: dict[int, tuple[Path, Parties]], said: argparse.Namespace
) -> dict[int, dict[str, object]]:
    """Exchange documents by turns in all pairs: the rates, and what a message visited."""
    rates: dict[int, list[float]] = {kept: [] for kept in pairs}
    told: dict[int, dict[str, object]] = {}
    for _, parties in pairs.values():
        parties.push(said.warming, said.in_flight)
    for kept, (folder, parties) in pairs.items():
        before = {name: Visits(server, folder / name) for name in (SENDER, RECEIVER)}
        messages = parties.push(said.seconds, said.in_flight)["messages"]
        told[kept] = {name: each.told(messages) for name, each in before.items()}
    for _ in range(said.repeats):
        for kept, (_, parties) in pairs.items():
            pushed = parties.push(said.seconds, said.in_flight)
            rates[kept].append(pushed["messages"] / pushed["seconds"])
    for kept, found in rates.items():
        told[kept]["messages a second"] = round(median(found))
    return told


def main() -> None:
    """Print one line of JSON for each number of messages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--warming", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--in-flight", type=int, default=48)
    parser.add_argument("--kept", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    said = parser.parse_args()
    with open_server() as server, contextlib.ExitStack() as stack:
        folders, made = {}, {}
        for kept in said.kept:
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="oncewire-bench-"))
            folders[kept] = Path(name)
            made[kept] = hold(server, folders[kept], kept, said.in_flight)
        with contextlib.ExitStack() as running:
            pairs = {
                kept: (folder, running.enter_context(open_parties(folder, made[kept])))
                for kept, folder in folders.items()
            }
            told = exchanges(server, pairs, said)
        for kept, folder in folders.items():
            told[kept] |= {"kept": kept, "looks": looks(server, folder / SENDER)}
            told[kept]["retention"] = {
                name: sweeps(server, folder / name) for name in (SENDER, RECEIVER)
            }
            print(json.dumps(told[kept]), flush=True)


if __name__ == "__main__":
    main()
