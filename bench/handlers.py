"""Handlers beside each other on PostgreSQL: `python -m bench.handlers`.

Two parties exchange documents, each with one, two and three handlers on one schema of one server
that writes to the disk, behind HAProxy; then two parties on SQLite do the same. By turns with each
of them runs its limit: two clients of the same server, one for each party, that do as many commits
and round trips as its handlers did, with rows of the same bytes, and nothing else. Told are
messages a second and the processor time of a message: the handlers', and the server's.

`--kept N` measures growth instead: two parties that hold N messages each, by turns with two that
hold a thousand.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.drivers import SCHEMA, with_psycopg
from oncewire.entry.files import read_text, write_new
from oncewire.entry.party.partners import with_values
from oncewire.entry.running.assemble import RECORD
from oncewire.lab.bench import growth
from oncewire.lab.bench.exchange import RECEIVER, SENDER, SIDE, Child, Task, make_pair
from oncewire.lab.bench.figures import Configuration
from oncewire.lab.demo.stores import PostgresServer
from oncewire.lab.demo.ways import free_port
from oncewire.store.postgresql.connection import connect
from tests.handler.processes.balancer import Balancer

CONFIGURATION = Configuration(taken=True)
ENVELOPE = 2_752
"""Bytes around a document, as in the limit of an exchange."""
TICKS = os.sysconf("SC_CLK_TCK")


# --- the server -------------------------------------------------------------------------------


class DiskServer(PostgresServer):
    """A server whose files are on the disk."""

    def new_schema(self) -> str:
        """The address of a schema that nothing is in."""
        name = f"s{uuid.uuid4().hex}"
        self.ask(f"CREATE SCHEMA {name}")
        return self.url(name)


@contextlib.contextmanager
def open_server() -> Iterator[DiskServer]:
    """Start one in a folder that goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-postgres-") as name:
        # The account that runs the server must reach its files.
        Path(name).chmod(0o755)
        server = DiskServer(Path(name) / "server")
        try:
            yield server
        finally:
            server.close()


def server_seconds() -> float:
    """Processor time of all processes of servers that run now, and of those that ended."""
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name, _, fields = (folder / "stat").read_text().partition("(")[2].rpartition(") ")
            if name == "postgres":
                ticks += sum(map(int, fields.split()[11:15]))
    return ticks / TICKS


def commits(url: str) -> int:
    """Transactions that the server has committed so far."""
    with connect(url) as connection:
        connection.execute("SELECT pg_stat_clear_snapshot()")
        found = connection.execute("SELECT sum(xact_commit)::bigint FROM pg_stat_database")
        return int(str((found.fetchone() or (0,))[0]))


# --- parties ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parties:
    """The open handlers of two parties."""

    senders: tuple[Child, ...]
    receivers: tuple[Child, ...]

    def push(self, seconds: float, in_flight: int) -> Task:
        """Exchange documents for so many seconds, by all senders at once."""
        share = max(1, in_flight // len(self.senders))
        asked = {"seconds": seconds, "size": CONFIGURATION.size, "in_flight": share}
        with ThreadPoolExecutor(len(self.senders)) as pool:
            pushed = list(pool.map(lambda each: each.ask("push", **asked), self.senders))
        return {
            "messages": sum(each["messages"] for each in pushed),
            "seconds": max(each["seconds"] for each in pushed),
        }

    def processor(self) -> float:
        """Seconds of all handlers."""
        every = (*self.senders, *self.receivers)
        return sum(float(each.ask("spent")["processor"]) for each in every)


def change(folder: Path, **said: str | int) -> None:
    """Write values into the settings of a party."""
    file = folder / "oncewire.toml"
    values = {key.replace("__", "."): json.dumps(value) for key, value in said.items()}
    write_new(file, with_values(read_text(file, "settings"), values), replace=True)
    # It may hold a password.
    file.chmod(0o600)


def make(folder: Path, server: DiskServer | None, handlers: int) -> dict[str, list[Path]]:
    """Make both parties; the folders of the handlers of each, and balancers before them."""
    public = {name: free_port() for name in (SENDER, RECEIVER)}
    ports = make_pair(folder, CONFIGURATION, public if handlers > 1 else None)
    made: dict[str, list[Path]] = {}
    for name in (SENDER, RECEIVER):
        first = folder / name
        if server is not None:
            spool = folder / f"spool-{name}"
            spool.mkdir()
            change(first, store__url=server.new_schema(), store__spool=str(spool))
        made[name], listening = [first], [ports[name]]
        for number in range(2, handlers + 1):
            copy = folder / f"{name}-{number}"
            shutil.copytree(first, copy)
            listening.append(free_port())
            change(copy, http__port=listening[-1])
            made[name].append(copy)
        if handlers > 1:
            (folder / f"{name}.ports").write_text(json.dumps([public[name], listening]))
    return made


@contextlib.contextmanager
def open_parties(folder: Path, made: dict[str, list[Path]]) -> Iterator[Parties]:
    """Start all handlers, and the balancers."""
    with contextlib.ExitStack() as stack:
        for name in made:
            file = folder / f"{name}.ports"
            if file.exists():
                port, listening = json.loads(file.read_text())
                balancer = Balancer(folder / f"{name}.cfg", port, listening)
                stack.callback(balancer.close)
        opened = {
            name: tuple(stack.enter_context(Child(SIDE, each)) for each in folders)
            for name, folders in made.items()
        }
        for receiver in opened[RECEIVER]:
            receiver.ask("take")
        if len(made[SENDER]) > 1:
            # The balancers look for their handlers.
            time.sleep(1)
        yield Parties(opened[SENDER], opened[RECEIVER])


# --- the limit ----------------------------------------------------------------------------------


def turns(url: str, many: int, seconds: float, ended: multiprocessing.Queue[int]) -> None:
    """Store so many messages in each turn, over and over; how many turns there were."""
    turn, count, end = with_psycopg(url, many, b"x" * (ENVELOPE + CONFIGURATION.size)), 0, 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        turn(count * many)
        count += 1
    ended.put(count)


def limit(server: DiskServer, each: float, seconds: float) -> float:
    """Messages a second where nothing is done but `each` commits for a message, by two clients."""
    many = max(1, round(2 / each))
    ended: multiprocessing.Queue[int] = multiprocessing.Queue()
    clients = []
    for _ in (SENDER, RECEIVER):
        url = server.new_schema()
        with connect(url) as connection:
            connection.execute(SCHEMA)
        clients.append(multiprocessing.Process(target=turns, args=(url, many, seconds, ended)))
    began = time.perf_counter()
    for client in clients:
        client.start()
    done = sum(ended.get() for _ in clients)
    for client in clients:
        client.join()
    return done / each / (time.perf_counter() - began)


# --- what is told -------------------------------------------------------------------------------


def measure(server: DiskServer, handlers: int, said: argparse.Namespace) -> dict[str, object]:
    """One number of handlers, by turns with its limit; 0 handlers: a party on SQLite."""
    rates, limits, own, servers = [], [], [], []
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as name:
        folder = Path(name)
        made = make(folder, server if handlers else None, max(1, handlers))
        with open_parties(folder, made) as parties:
            parties.push(said.warming, said.in_flight)
            each = 1.0
            for _ in range(said.repeats):
                before, spent, theirs = commits(server.url()), parties.processor(), server_seconds()
                pushed = parties.push(said.seconds, said.in_flight)
                messages = pushed["messages"]
                rates.append(messages / pushed["seconds"])
                own.append((parties.processor() - spent) / messages * 1e6)
                if handlers:
                    servers.append((server_seconds() - theirs) / messages * 1e6)
                    each = (commits(server.url()) - before) / messages
                    limits.append(limit(server, each, said.seconds))
    found: dict[str, object] = {
        "handlers a party": handlers or "1, SQLite",
        "messages a second": round(median(rates)),
        "us a message, handlers": round(median(own)),
    }
    if handlers:
        found["us a message, server"] = round(median(servers))
        found["commits a message"] = round(each, 2)
        found["limit"] = round(median(limits))
        found["of the limit"] = round(median(rates) / median(limits), 3)
    return found


def multiply(url: str, times: int) -> None:
    """Have everything that a closed store holds so many times, under MessageIds of their own."""
    with connect(url) as connection:
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
    with connect(url) as connection:
        connection.execute("ANALYZE")


def grown(server: DiskServer, said: argparse.Namespace) -> dict[str, object]:
    """Two parties that hold much, by turns with two that hold a thousand messages."""
    with contextlib.ExitStack() as stack:
        folders = [
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncewire-bench-")))
            for _ in range(2)
        ]
        pairs = []
        for folder, kept in zip(folders, (growth.FEW, said.kept), strict=True):
            made = make(folder, server, 1)
            with open_parties(folder, made) as parties:
                sent = 0
                while sent < growth.FEW:
                    sent += parties.push(0.2, said.in_flight)["messages"]
                while parties.receivers[0].ask("spent")["taken"] < sent:
                    time.sleep(0.05)
            if kept > growth.FEW:
                began = time.perf_counter()
                for (party,) in made.values():
                    text = read_text(party / "oncewire.toml", "settings")
                    multiply(text.split('url = "')[1].split('"')[0], kept // sent)
                    (party / RECORD).unlink(missing_ok=True)
                print(f"multiplied in {time.perf_counter() - began:.0f} s", file=sys.stderr)
            pairs.append(stack.enter_context(open_parties(folder, made)))
        rates: list[list[float]] = [[], []]
        for parties in pairs:
            parties.push(said.warming, said.in_flight)
        for _ in range(said.repeats):
            for found, parties in zip(rates, pairs, strict=True):
                pushed = parties.push(said.seconds, said.in_flight)
                found.append(pushed["messages"] / pushed["seconds"])
        few, many = (median(found) for found in rates)
    return {
        "messages kept by each party": said.kept,
        "messages a second": round(many),
        f"with {growth.FEW}": round(few),
        "ratio": round(many / few, 3),
    }


def main() -> None:
    """Print one line of JSON for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--warming", type=float, default=4.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--in-flight", type=int, default=48)
    parser.add_argument("--kept", type=int, default=0)
    said = parser.parse_args()
    with open_server() as server:
        if said.kept:
            print(json.dumps(grown(server, said)), flush=True)
            return
        for handlers in (1, 2, 3, 0):
            print(json.dumps(measure(server, handlers, said)), flush=True)


if __name__ == "__main__":
    main()
