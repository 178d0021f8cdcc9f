"""Handlers beside each other on PostgreSQL: `python -m bench.handlers`.

Two parties exchange documents, each with one, two and three handlers on one schema of one server
that writes to the disk, behind HAProxy; then two parties on SQLite do the same. By turns with each
of them runs its limit: two clients of the same server, one for each party, that do as many commits
and round trips as its handlers did, with rows of the same bytes, and nothing else. Told are
messages a second and the processor time of a message: the handlers', and the server's.
Of each party it tells where its turns spend their time: until the lock is there, with it, and in
the commit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import shutil
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench._turns import TOLD
from bench.drivers import SCHEMA, with_psycopg
from oncewire.entry.files import read_text, write_new
from oncewire.entry.party.partners import with_values
from oncewire.lab.bench.exchange import RECEIVER, SENDER, Child, Task, make_pair
from oncewire.lab.bench.figures import Configuration
from oncewire.lab.demo.stores import PostgresServer
from oncewire.lab.demo.ways import free_port
from oncewire.store.postgresql.connection import connect
from tests.handler.processes.balancer import Balancer

CONFIGURATION = Configuration(taken=True)
ENVELOPE = 2_752
"""Bytes around a document, as in the limit of an exchange."""
TIMED = "bench._turns"
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

    def spent(self) -> dict[str, Counter[str]]:
        """Seconds of the handlers of each party, and their turns."""
        found: dict[str, Counter[str]] = {SENDER: Counter(), RECEIVER: Counter()}
        for name, children in ((SENDER, self.senders), (RECEIVER, self.receivers)):
            for child in children:
                said = child.ask("spent")
                found[name].update({key: said[key] for key in ("processor", *TOLD)})
        return found


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
            name: tuple(stack.enter_context(Child(TIMED, each)) for each in folders)
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
    shares: dict[str, list[dict[str, float]]] = {SENDER: [], RECEIVER: []}
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as name:
        folder = Path(name)
        made = make(folder, server if handlers else None, max(1, handlers))
        with open_parties(folder, made) as parties:
            parties.push(said.warming, said.in_flight)
            each = 1.0
            for _ in range(said.repeats):
                before, spent, theirs = commits(server.url()), parties.spent(), server_seconds()
                pushed = parties.push(said.seconds, said.in_flight)
                messages = pushed["messages"]
                rates.append(messages / pushed["seconds"])
                for party, after in parties.spent().items():
                    after.subtract(spent[party])
                    shares[party].append(each_of(after, messages))
                own.append(sum(found[-1]["processor"] for found in shares.values()) * 1e6)
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
        for party, told in shares.items():
            found[party] = {key: round(median(one[key] for one in told) * 1e6) for key in TOLD[1:]}
            found[party]["messages a turn"] = round(1 / median(one["turns"] for one in told), 1)
    return found


def each_of(spent: Counter[str], messages: int) -> dict[str, float]:
    """What one message took of it."""
    return {name: value / messages for name, value in spent.items()}


def main() -> None:
    """Print one line of JSON for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--warming", type=float, default=4.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--in-flight", type=int, default=48)
    said = parser.parse_args()
    with open_server() as server:
        for handlers in (1, 2, 3, 0):
            print(json.dumps(measure(server, handlers, said)), flush=True)


if __name__ == "__main__":
    main()
