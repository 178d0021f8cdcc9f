"""The stage: parties as processes, the network between them, and the verdict over what they did.

A test builds a `Stage`, starts, kills and restarts parties, waits until everything is
settled, and asks for the verdict: both journals joined and judged, and the applications' own
ledgers, which know nothing of journals.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from oncewire.journal.check import JournalReport, check_journal
from oncewire.journal.row import Row
from tests.handler.processes.party import Settings, document, open_readers, order_id
from tests.handler.processes.proxy import Luck, Proxy, Wires
from tests.parts import ROOT
from tests.ports import free_port

PATIENCE = 60.0
"""Seconds without a sign of life after which something hangs, even on a busy machine."""

OPEN = ("out.waiting", "out.outstanding", "out.suspended", "in.held", "in.ready", "in.handed_over")
"""What is not settled yet, as the store counts it."""


class Run:
    """One life of a process, from its start to its end."""

    def __init__(self, settings: Settings, changed: threading.Condition) -> None:
        self.settings = settings
        self.pid: int | None = None
        # The exit status; minus the signal's number when a signal ended it.
        self.code: int | None = None
        self.started = False
        self.state: dict[str, object] = {}
        self._changed = changed

    def heard(self, words: dict[str, object]) -> None:
        """The process, or the nursery for it, said something."""
        event = words["event"]
        if event == "born":
            self.pid = int(str(words["pid"]))
        elif event == "ended":
            self.code = int(str(words["code"]))
        elif event == "started":
            self.started = True
        elif event == "state":
            self.state = words

    @property
    def counts(self) -> dict[str, int]:
        """How many messages are in which state, as last heard."""
        counts = self.state.get("counts", {})
        assert isinstance(counts, dict)
        return counts

    @property
    def settled(self) -> bool:
        """Whether every order is submitted and nothing is under way here, as last heard."""
        if self.state.get("submitted") != self.settings.orders:
            return False
        return not any(self.counts.get(name) for name in OPEN)

    def wait(self, what: str, happened: Callable[[], bool]) -> None:
        """Wait until something is so; fail when the process ends before, or nothing moves."""
        with self._changed:
            last, since = self.state, time.monotonic()
            while not happened():
                if self.state is not last:
                    last, since = self.state, time.monotonic()
                if self.code is not None or time.monotonic() - since > PATIENCE:
                    raise AssertionError(self._trouble(what))
                self._changed.wait(1.0)

    def _trouble(self, what: str) -> str:
        log = Path(self.settings.folder) / f"{self.settings.name}.log"
        said = log.read_text()[-3000:] if log.exists() else ""
        end = "hangs" if self.code is None else f"ended with {self.code}"
        return f"{self.settings.name} {end} before: {what}; {self.state}\n{said}"

    def wait_for_end(self) -> int:
        """Its exit status."""
        self.wait("the end", lambda: self.code is not None)
        assert self.code is not None
        return self.code

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.wait("its birth", lambda: self.pid is not None)
        if self.code is None:
            assert self.pid is not None
            os.kill(self.pid, number)


class Nursery:
    """The process that forks parties, seen from the test."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.handler.processes.nursery"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.changed = threading.Condition()
        self._runs: dict[int, Run] = {}
        self._numbers = itertools.count(1)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = json.loads(line)
            with self.changed:
                self._runs[words["run"]].heard(words)
                self.changed.notify_all()

    def start(self, settings: Settings) -> Run:
        """Start a party."""
        with self.changed:
            settings = replace(settings, run=next(self._numbers))
            run = self._runs[settings.run] = Run(settings, self.changed)
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(asdict(settings)) + "\n")
            self._process.stdin.flush()
        return run

    def end(self) -> None:
        """End it, and with it every party."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._thread.join(10)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the journals and the ledgers say once everything is over."""

    report: JournalReport
    rows: list[Row]
    # What each application wrote into its own book, by party.
    ledgers: dict[str, list[dict[str, object]]]

    def count(self, kind: str, node: str | None = None) -> int:
        """How many rows of a kind there are."""
        return sum(row.kind == kind and node in (None, row.node) for row in self.rows)

    def assert_clean(self) -> None:
        """No promise is broken, and nothing is left that nobody could judge."""
        broken = [f"{one.predicate} {one.sentence}" for one in self.report.violations]
        assert not broken, broken[:10]
        assert not self.report.quarantined, self.report.quarantined[:10]

    def assert_once(self, sender: str, receiver: str, orders: int, size: int = 40) -> int:
        """Every order reached the application once; returns how many may be given it again.

        A message is given again only where a crash left open whether the application has it,
        and then it says so.
        """
        self.assert_clean()
        expected = {order_id(sender, number): number for number in range(orders)}
        confirmed = Counter(
            row.message_id or ""
            for row in self.rows
            if row.kind == "confirmed" and row.node == receiver and row.message_id in expected
        )
        assert confirmed == Counter(dict.fromkeys(expected, 1)), _odd(confirmed, expected)
        seen: set[str] = set()
        for entry in self.ledgers[receiver]:
            message_id = str(entry["id"])
            assert message_id not in seen or entry["redelivered"], entry
            seen.add(message_id)
            data = document(expected[message_id], size)
            assert entry["digest"] == hashlib.sha256(data).hexdigest(), entry
        assert seen == {*expected}
        return sum(entry["redelivered"] is True for entry in self.ledgers[receiver])

    def assert_answered(self, sender: str, orders: int) -> None:
        """Every order has one response, and whoever ordered has it once."""
        self.assert_clean()
        answered = Counter(
            row.ref_to or "" for row in self.rows if row.kind == "confirmed" and row.node == sender
        )
        expected = {order_id(sender, number): number for number in range(orders)}
        assert answered == Counter(dict.fromkeys(expected, 1)), _odd(answered, expected)

    def assert_in_order(self, receiver: str) -> None:
        """The application saw the orders as they were submitted. A batch is submitted at once, and
        what a store that was away refused of it is submitted again after the rest."""
        seen = dict.fromkeys(str(entry["id"]) for entry in self.ledgers[receiver])
        submitted = [row.message_id for row in self.rows if row.kind == "submitted"]
        assert list(seen) == list(dict.fromkeys(name for name in submitted if name in seen))


def _odd(found: Counter[str], expected: dict[str, int]) -> dict[str, int]:
    """The first ids that are not there exactly once."""
    odd = {one: found[one] for one in {*found, *expected} if found[one] != 1}
    return dict(sorted(odd.items())[:10])


@dataclass
class Stage:
    """Parties by name, and the proxies in front of them."""

    nursery: Nursery
    wires: Wires
    folder: Path
    seed: int = 0
    parties: dict[str, Settings] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    proxies: dict[str, Proxy] = field(default_factory=dict)

    def put_proxy(self, name: str, port: int, luck: Luck) -> int:
        """Put a proxy on a party's public port; returns the port the party itself listens on."""
        inner = free_port()
        proxy = self.proxies[name] = Proxy(f"to {name}", port, inner, self.seed, luck)
        self.wires.open(proxy)
        return inner

    def start(self, name: str, **environment: str) -> Run:
        """Start a party, or start it again."""
        settings = replace(self.parties[name], environment=environment)
        self.runs[name] = self.nursery.start(settings)
        return self.runs[name]

    def start_beside(self, name: str, port: int) -> Run:
        """Start one of several handlers of a party, on a port of its own."""
        key = f"{name} {port}"
        self.runs[key] = self.nursery.start(replace(self.parties[name], listen=port))
        return self.runs[key]

    def start_to_die(self, name: str, point: str, count: int = 1) -> Run:
        """Start a party that kills itself when it has come to a point that many times."""
        mark = self.mark(name)
        mark.unlink(missing_ok=True)
        return self.start(name, ONCEWIRE_KILL_AT=f"{point}:{count}", ONCEWIRE_KILL_MARK=str(mark))

    def mark(self, name: str) -> Path:
        """Where a party leaves word of the point at which it killed itself."""
        return self.folder / f"{name}.mark"

    def assert_died(self, name: str, point: str) -> None:
        """The party reached its point, and it was SIGKILL that ended it."""
        code = self.runs[name].wait_for_end()
        assert self.mark(name).exists(), f"{point} was not reached"
        assert self.mark(name).read_text() == point
        assert code == -signal.SIGKILL

    def kill(self, name: str) -> None:
        """Kill a party wherever it is."""
        self.runs[name].signal(signal.SIGKILL)
        assert self.runs[name].wait_for_end() == -signal.SIGKILL

    def settle(self, receiver: str, orders: int) -> None:
        """Wait until every order is confirmed and nobody has anything under way."""
        arrived = self.runs[receiver]
        arrived.wait(f"{orders} confirmed", lambda: arrived.counts.get("in.confirmed", 0) >= orders)
        for run in self.runs.values():
            run.wait("all settled", lambda run=run: run.settled)  # type: ignore[misc]

    def stop(self) -> None:
        """End every party gracefully, once the network is quiet."""
        patience = time.monotonic() + 10
        while any(proxy.busy for proxy in self.proxies.values()) and time.monotonic() < patience:
            time.sleep(0.02)
        for run in self.runs.values():
            run.signal(signal.SIGTERM)
        codes = {name: run.wait_for_end() for name, run in self.runs.items()}
        assert set(codes.values()) == {0}, codes

    def verdict(self) -> Verdict:
        """Judge what is written; the processes have ended."""
        rows: list[Row] = []
        ledgers: dict[str, list[dict[str, object]]] = {}
        for name in self.parties:
            readers = open_readers(self.folder, name)
            with readers.reader() as reader:
                rows += reader.journal_since(0, 100_000_000)
            readers.close()
            lines = (self.folder / f"{name}.ledger").read_text().splitlines()
            ledgers[name] = [json.loads(line) for line in lines]
        return Verdict(check_journal(rows, healed=True), rows, ledgers)

    def close(self) -> None:
        """Leave nothing running, whatever happened."""
        for run in self.runs.values():
            if run.code is None:
                run.signal(signal.SIGKILL)
        for proxy in self.proxies.values():
            self.wires.close(proxy)
