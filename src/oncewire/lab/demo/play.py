"""The demo: a buyer and a seller, a network that misbehaves, a kill -9, and the verdict.

Two real processes (`oncewire serve`) talk through chaos proxies. Nothing here is
special to the demo but the network: the same commands, files and timers as in real use, only
faster timers. It ends by itself, and what it says at the end is what the checker finds in both
journals and what lies in the seller's directory.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.entry.cli.config import link_to
from oncewire.entry.control.client import Remote
from oncewire.entry.control.verb import Permission
from oncewire.entry.control.verbs import user_name
from oncewire.entry.doctor.judging import Verdict, journal_rows, judge
from oncewire.entry.files import PRIVATE, make_folder, read_text, write_new
from oncewire.entry.party.folder import KeyKind, card_of, make_party, read_card
from oncewire.entry.party.partners import PartnerOptions, add_partner, change_file
from oncewire.entry.party.settings import PREFIX, Settings, is_installed, load
from oncewire.entry.party.store import reading, socket_path
from oncewire.errors import NotAllowed, NotHere, OncewireError, TransportProblem
from oncewire.handler.actions import Submission
from oncewire.handler.world import RealWorld
from oncewire.journal.row import Row
from oncewire.lab.demo.stores import DemoStores
from oncewire.lab.demo.ways import FAIR, STORM, ChaosProxy, Weather, free_port, way_called
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.message.kinds import quoted
from oncewire.protocol.notes import Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncewire.pipeline.jobs import Done
    from oncewire.pipeline.reports.reconcile import Reconciliation


# The demo with a hub: buyer and seller agree with each other, and reach each other through it.

HUB = "hub"
# The seller signs for each order, so that the buyer has proof of more than the hub's word.
_PROVEN = {"ack.request": '"always"', "ack.signature": '"always"', "ack.hop_request": '"Signed"'}

# The hub stores each order, answers for it, and says so to the handler it has it from.
_HOP = {"hop.mode": '"store_and_forward"', "ack.hop_request": '"Unsigned"'}


def agree_through_hub(
    settings: Mapping[str, Settings], ends: tuple[str, str], cpa_id: str, terms: dict[str, str]
) -> None:
    """Write every agreement: of the ends with each other, and of each with the hub."""
    hub = card_of(settings[HUB])
    for own, partner in (ends, ends[::-1]):
        options = PartnerOptions("window", cpa_id, sign=True)
        added = add_partner(settings[own], card_of(settings[partner]), options)
        # The certificate is all that is wanted of the hub: what it signs itself is believed.
        behind = add_partner(settings[own], hub, PartnerOptions("window", f"{own}-hub", sign=True))
        behind.agreement.unlink()
        believed = ", ".join(quoted(f"../keys/partners/{name}.crt") for name in (partner, HUB))
        way = {"via.party_id": quoted(hub.party_id), "via.http": quoted(hub.url)}
        trusted = {"security.partner_certificates": f"[{believed}]"}
        change_file(added.agreement, terms | _HOP | _PROVEN | way | trusted, PRIVATE)
        near = PartnerOptions("window", f"{own}-hub", sign=True)
        hop = add_partner(settings[HUB], card_of(settings[own]), near)
        change_file(hop.agreement, terms | _HOP, PRIVATE)
        text = read_text(hop.agreement, "agreement")
        write_new(hop.agreement, f"forwards = true\n{text}", PRIVATE, replace=True)


def is_quiet(settings: Settings) -> bool:
    """Whether nothing that a party sends, for itself or for others, is still under way."""
    with reading(settings) as reader:
        counts = reader.counts()
    return not counts["out.waiting"] and not counts["out.outstanding"]


BUYER, SELLER = "buyer", "seller"
CPA_ID = "buyer-seller"
SERVICE = Service("urn:oncewire:demo:orders")
MARK = ".oncewire-demo"
SENDING_SECONDS = 8.0
DOWN_SECONDS = 1.0
LOOK_EVERY = 0.2
START_SECONDS = 120.0
"""How long a handler may take to start on a busy machine; one that ends is noticed at once."""
CUT_SECONDS = 10.0
CHAOS = "chaos"
"""The file by which the demo is told to break something."""
LARGE, LARGE_BYTES = 5, 800_000
"""The number of the order that is large, and how large: brokers take a megabyte at most."""
# Timers short enough to watch, and retries enough that no storm exhausts them.
_TERMS = {
    "delivery.timeout": '"PT1S"',
    "delivery.retry_interval": '"PT1S"',
    "delivery.retries": "500",
    "delivery.persist_duration": '"PT1H"',
    "flow.window": "32",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What the demo does."""

    folder: Path
    messages: int = 200
    seed: int = 1
    weather: Weather = STORM
    kill: bool = True
    # Seconds after which it ends, whatever was reached.
    limit: float = 60.0
    # By which way the orders travel.
    transport: str = "http"
    # Through a hub, which then is the one that is killed.
    hub: bool = False
    # It goes on when everything is settled, with an order now and then, until it is stopped.
    keep: bool = False
    # Where every party keeps its messages. Whoever made the plan closes them after the last reader.
    kept_in: DemoStores = field(default_factory=DemoStores)

    @property
    def names(self) -> tuple[str, ...]:
        """The parties, in the order in which they are started."""
        return (SELLER, HUB, BUYER) if self.hub else (SELLER, BUYER)

    @property
    def victim(self) -> str:
        """The party that is killed."""
        return HUB if self.hub else SELLER


@dataclass(slots=True)
class Progress:
    """The live counters, from the two journals and the two proxies."""

    messages: int
    phase: str = "setting up"
    seconds: float = 0.0
    submitted: int = 0
    resends: int = 0
    acknowledged: int = 0
    duplicates: int = 0
    delivered: int = 0
    network: Counter[str] = field(default_factory=Counter)

    def take(self, row: Row) -> None:
        """Count one more journal row."""
        self.submitted += row.kind == Kind.SUBMITTED
        self.resends += row.kind == Kind.SENT and (row.attempt or 0) > 1
        self.acknowledged += row.kind == Kind.ACKNOWLEDGED
        self.duplicates += row.kind == Kind.DUPLICATE
        self.delivered += row.kind == Kind.CONFIRMED


@dataclass(frozen=True, slots=True)
class DemoResult:
    """How the demo ended."""

    plan: Plan
    verdict: Verdict
    # Orders that lie in the seller's directory, each with the content it was sent with.
    files: int
    killed: bool
    network: Counter[str]
    seconds: float
    # Whether everything was settled within the limit.
    settled: bool
    # Where each party's messages are: files, or addresses of databases.
    stores: tuple[str | Path, ...]

    @property
    def good(self) -> bool:
        """Whether every order arrived once, no promise was broken, and the crash happened."""
        wanted, totals = self.plan.messages, self.verdict.totals
        return (
            self.settled
            and self.verdict.clean
            and totals.sent == wanted == totals.delivered_once == self.files
            and self.killed == self.plan.kill
        )


Watch = Callable[[Progress], None]


def order(number: int) -> bytes:
    """The document of an order, made from its number alone, so that it can be checked later. One
    of them is large."""
    drawing = "0123456789abcdef" * (LARGE_BYTES // 16) if number == LARGE else ""
    return (
        f'<?xml version="1.0"?>\n<order id="PO-{number:04}">'
        f'<item sku="A-{number % 37}" quantity="{number % 9 + 1}">{drawing}</item></order>\n'
    ).encode()


def break_more(folder: Path) -> None:
    """Tell the demo that goes on in a folder to break something."""
    if not (folder / MARK).is_file():
        raise NotHere(f"there is no demo in {folder}", remedy="start one: `oncewire demo --keep`")
    write_new(folder / CHAOS, "", replace=True)


def order_id(number: int) -> str:
    """The MessageId of an order."""
    return f"PO-{number:04}@{BUYER}"


class Demo:
    """One run."""

    def __init__(self, plan: Plan, watch: Watch) -> None:
        self.plan, self._watch = plan, watch
        self.progress = Progress(plan.messages)
        self._world = RealWorld()
        self._settings: dict[str, Settings] = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._proxies: dict[str, ChaosProxy] = {}
        self._seen = {BUYER: 0, SELLER: 0}
        self._killed = False
        self._broken = 0
        self._way = way_called(plan.transport)
        self._weather = plan.weather if self._way.stormy else FAIR

    async def run(
        self,
        opened: Callable[[str], None] = lambda _link: None,
        settled: Callable[[DemoResult], None] = lambda _result: None,
    ) -> DemoResult:
        """Run the demo, from an empty folder to the verdict. `opened` hears of the link to the
        console. Where the demo goes on, `settled` hears of the verdict."""
        result: DemoResult | None = None
        in_time = False
        try:
            await self._set_up()
            for name in self.plan.names:
                await self._start(name)
            if self._settings[BUYER].admin.port:
                opened(link_to(self._settings[BUYER], list(Permission), user_name()))
            in_time = await self._play()
            if self.plan.keep:
                result = self._judge(in_time)
                await asyncio.to_thread(settled, result)
                with suppress(asyncio.CancelledError):
                    await self._go_on()
        finally:
            await self._stop()
        return result or self._judge(in_time)

    # --- setting up ---

    async def _set_up(self) -> None:
        folder = empty_folder(self.plan.folder)
        await self._way.start(folder, (BUYER, SELLER))
        await asyncio.to_thread(self.plan.kept_in.start, folder, self.plan.names)
        ports = {name: free_port() for name in self.plan.names}
        for name in self.plan.names:
            proxy = ChaosProxy(f"to {name}", ports[name], self.plan.seed, self._weather)
            self._proxies[name] = proxy
            # Partners know the proxy's address: everything passes through the bad network.
            public = f"http://127.0.0.1:{await proxy.start()}/msh"
            now = self._world.now()
            make_party(
                folder / name,
                name,
                now=now,
                port=ports[name],
                store=self.plan.kept_in.url(name),
                key_kind=KeyKind.EC,
            )
            said = {"http.public_url": f'"{public}"', "log.file": '"handler.log"'}
            said |= self._way.settings(name)
            if name == SELLER:
                said["application.way"] = '"directory"'
            if name == BUYER and is_installed("admin"):
                others = ", ".join(
                    quoted(f"../{name}") for name in self.plan.names if name != BUYER
                )
                said |= {
                    "admin.port": str(free_port()),
                    "console.with": f"[{others}]",
                    "console.link_for": quoted("PT1H"),
                    "console.chaos": quoted(f"../{CHAOS}"),
                    "lake.path": quoted(f"../{LAKE}"),
                }
            # A way may have a password in it.
            change_file(folder / name / "oncewire.toml", said, PRIVATE)
            self._settings[name] = load(folder / name, environ={}).settings
        if self.plan.hub:
            agree_through_hub(self._settings, (BUYER, SELLER), CPA_ID, _TERMS)
            return
        for own, partner in ((BUYER, SELLER), (SELLER, BUYER)):
            card = read_card(folder / partner)
            added = add_partner(
                self._settings[own], card, PartnerOptions("window", CPA_ID, sign=True)
            )
            change_file(added.agreement, _TERMS | self._way.terms, PRIVATE)

    async def _start(self, name: str) -> None:
        environ = {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)}
        command = (sys.executable, "-m", "oncewire", "serve", "--json", "-c")
        process = await asyncio.create_subprocess_exec(
            *command,
            str(self._settings[name].folder),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            stdin=asyncio.subprocess.DEVNULL,
            env=environ,
            # Ctrl-C is for the demo, which then stops its processes itself.
            start_new_session=True,
        )
        self._processes[name] = process
        assert process.stdout is not None  # noqa: S101
        try:
            line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
        except TimeoutError:
            line = b""
        if b'"ready"' not in line:
            raise TransportProblem(
                f"the handler of {name} did not start",
                remedy=f"look into {self._settings[name].folder / 'handler.log'}",
            )

    # --- playing ---

    async def _go_on(self) -> None:
        """An order a second, and whatever is broken by the word of somebody."""
        self.progress.phase = "going on"
        chaos = self.plan.folder / CHAOS
        number, breaking = self.plan.messages, asyncio.create_task(asyncio.sleep(0))
        while True:
            # One thing is broken at a time, and orders go on meanwhile.
            if chaos.exists() and breaking.done():
                breaking.result()
                chaos.unlink()
                breaking = asyncio.create_task(self._break_something())
            number += 1
            remote = await Remote.connect(socket_path(self._settings[BUYER]))
            if remote is not None:
                with suppress(OncewireError):
                    await remote.send(submission(number))
                await remote.close()
            await asyncio.sleep(1.0)

    async def _break_something(self) -> None:
        """The network is cut for some seconds, a handler killed, a storm comes; in turns."""
        self._broken += 1
        turn = self._broken % 3
        if turn == 1:
            self._let_be(Weather(lost=1.0))
            await asyncio.sleep(CUT_SECONDS)
            self._let_be(FAIR)
        elif turn == 2:
            await self._kill(self.plan.victim)
        else:
            self._let_be(STORM)

    async def _kill(self, victim: str) -> None:
        """kill -9, and a start."""
        process = self._processes[victim]
        process.send_signal(signal.SIGKILL)
        self._killed = await process.wait() == -signal.SIGKILL
        await asyncio.sleep(DOWN_SECONDS)
        await self._start(victim)

    async def _play(self) -> bool:
        """Send, kill, restart, wait; True when everything is settled in time."""
        began = self._world.mono()
        sending = asyncio.create_task(self._send_all())
        killing = asyncio.create_task(self._kill_half_way())
        try:
            while True:
                self.progress.seconds = (self._world.mono() - began) / 1e6
                self._look()
                if self._way.breaks:
                    # The network is down from a quarter of the orders to three quarters.
                    share = self.progress.delivered / self.plan.messages
                    self._let_be(Weather(lost=1.0) if 0.25 <= share < 0.75 else FAIR)
                for task in (sending, killing):
                    if task.done():
                        task.result()
                if self._is_settled() and sending.done() and killing.done():
                    return True
                if self.progress.seconds > self.plan.limit:
                    return False
                if self.progress.seconds > self.plan.limit * 0.6 and not self._way.breaks:
                    self._let_be(FAIR)
                await asyncio.sleep(LOOK_EVERY)
        finally:
            for task in (sending, killing):
                task.cancel()
            await asyncio.gather(sending, killing, return_exceptions=True)

    async def _send_all(self) -> None:
        self.progress.phase = "sending"
        remote = await Remote.connect(socket_path(self._settings[BUYER]))
        if remote is None:
            raise TransportProblem("the buyer's handler cannot be reached")
        try:
            for number in range(1, self.plan.messages + 1):
                await remote.send(submission(number))
                await asyncio.sleep(SENDING_SECONDS / self.plan.messages)
        finally:
            await remote.close()
        self.progress.phase = "waiting for the last ones"

    async def _kill_half_way(self) -> None:
        """kill -9 the receiver, or the hub, when half is delivered, and start it again."""
        if not self.plan.kill:
            return
        while self.progress.delivered < self.plan.messages // 2:
            await asyncio.sleep(LOOK_EVERY / 4)
        victim = self.plan.victim
        phase, self.progress.phase = self.progress.phase, f"the {victim} was killed with kill -9"
        await self._kill(victim)
        self.progress.phase = phase if phase != "sending" else f"the {victim} is back"

    def _look(self) -> None:
        for name in (BUYER, SELLER):
            with suppress(OncewireError):
                with reading(self._settings[name]) as reader:
                    rows = reader.journal_since(self._seen[name], 100_000)
                for row in rows:
                    self.progress.take(row)
                    self._seen[name] = row.seq
        self.progress.network = self._network()
        self._watch(self.progress)

    def _network(self) -> Counter[str]:
        return sum((proxy.fates for proxy in self._proxies.values()), Counter())

    def _is_settled(self) -> bool:
        wanted = self.plan.messages
        if self.progress.acknowledged < wanted or self.progress.delivered < wanted:
            return False
        # Through a hub each order is acknowledged more than once.
        return not self.plan.hub or all(map(is_quiet, self._settings.values()))

    def _let_be(self, weather: Weather) -> None:
        for proxy in self._proxies.values():
            proxy.weather = weather

    # --- ending ---

    async def _stop(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.terminate()
        for process in self._processes.values():
            try:
                await asyncio.wait_for(process.wait(), 15)
            except TimeoutError:
                process.kill()
                await process.wait()
        for proxy in self._proxies.values():
            await proxy.stop()
        await self._way.stop()

    def _judge(self, settled: bool) -> DemoResult:
        self.progress.phase = "judging both journals"
        self._watch(self.progress)
        parties = [self._settings[name] for name in reversed(self.plan.names)]
        rows = [row for party in parties for row in journal_rows(party)]
        return DemoResult(
            plan=self.plan,
            verdict=judge(rows, ended=True, now=self._world.now()),
            files=count_files(self._settings[SELLER], self.plan.messages),
            killed=self._killed,
            network=self._network(),
            seconds=self.progress.seconds,
            settled=settled,
            stores=tuple(party.store.url or party.path(party.store.path) for party in parties),
        )


def submission(number: int) -> Submission:
    """An order as it is submitted; all of them are one conversation, in order."""
    payload = Payload.of("order@demo", "application/xml", order(number))
    return Submission(
        CPA_ID, SERVICE, "Order", (payload,), conversation_id="demo", message_id=order_id(number)
    )


def count_files(settings: Settings, messages: int) -> int:
    """Orders in the seller's directory whose content is what was sent; each counts once."""
    expected = {
        order_id(number): hashlib.sha256(order(number)).hexdigest()
        for number in range(1, messages + 1)
    }
    found = set()
    folder = settings.path(settings.application.folder)
    for path in folder.glob("*.message.json"):
        facts = json.loads(path.read_text(encoding="utf-8"))
        data = (folder / facts["payloads"][0]["file"]).read_bytes()
        if expected.get(facts["message_id"]) == hashlib.sha256(data).hexdigest():
            found.add(facts["message_id"])
    return len(found)


def empty_folder(folder: Path) -> Path:
    """The demo's folder, made anew; another folder with content is left alone."""
    if folder.exists() and not (folder / MARK).is_file() and any(folder.iterdir()):
        raise NotAllowed(f"{folder} holds other files", remedy="name a new folder for the demo")
    if folder.exists():
        shutil.rmtree(folder)
    make_folder(folder)
    write_new(folder / MARK, "Made by `oncewire demo`; remove the folder whenever you like.\n")
    return folder


# The demo's books: what Spark finds in both parties' stores, ledger and reconciliation.
#
# The same jobs as `oncewire pipeline run` and `oncewire pipeline reconcile`, over the stores as
# the two handlers left them. They know nothing of what the demo itself counted.

LAKE = "lake"
DELIVERED, SENT = "delivered", "sent"


@dataclass(frozen=True, slots=True)
class Books:
    """What the ledger says of every order, and what the two parties say to each other."""

    ledger: Done
    joined: Reconciliation

    def clean(self, messages: int) -> bool:
        """Whether each of so many orders is delivered, and both parties say so of each."""
        done, joined = self.ledger, self.joined
        # A hub's journal also tells of the acknowledgements that it passed on, each a message.
        judged = {verdict: count for verdict, count in done.verdicts.items() if verdict != SENT}
        return (
            judged == {DELIVERED: messages}
            and not done.violations
            and not done.quarantined
            and not joined.disagreements
            and joined.compared == messages
        )


def read_books(
    spark: SparkSession, folder: Path, stores: Sequence[str | Path], tell: Callable[[str], None]
) -> Books:
    """Take both stores into a lake in the demo's folder, judge it, and join the two books."""
    from oncewire.pipeline import jobs
    from oncewire.pipeline.lake.lake import Lake
    from oncewire.pipeline.reports.reconcile import reconcile
    from oncewire.pipeline.sources.journal_source import open_book

    done = jobs.run(spark, Lake((folder / LAKE).resolve()), stores, ended=True, tell=tell)
    # A hub stands between them.
    ours, theirs = open_book(stores[0]), open_book(stores[-1])
    return Books(done, reconcile(spark, ours, theirs, tell=tell))
