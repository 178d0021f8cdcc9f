"""A handler that is watched: its clock is stepped, and its one partner can be cut off."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from oncewire.agreement.agreement import Agreement, Agreements
from oncewire.entry.running.alerting import Alert
from oncewire.entry.watching.metrics import written
from oncewire.entry.watching.snapshot import Snapshot, look
from oncewire.errors import TransportProblem
from oncewire.handler.actions import Submission
from oncewire.handler.context import HandlerContext, Keys
from oncewire.handler.runtime.handler import Handler
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.message.instant import DAY, SECOND, Duration, Instant
from oncewire.store.sqlite.store import SqliteStore
from oncewire.transport.contract import AttemptOutcome, Cargo, OnDelivery, OutcomeKind
from tests.handler.network import START, TestWorld, agreement_of, agreement_text
from tests.waiting import until

TERMS = '[delivery]\ntimeout = "PT5M"\nretry_interval = "PT5M"\nretries = 9\n'


@dataclass
class Line:
    """A transport that takes everything, or nothing while it is cut."""

    name: str = "http"
    can_answer: bool = True
    cut: bool = False
    carried: int = 0

    async def start(self, on_delivery: OnDelivery) -> None:
        """Nothing comes in."""

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        if self.cut:
            return AttemptOutcome(OutcomeKind.REFUSED, "connection refused")
        self.carried += 1
        return AttemptOutcome(OutcomeKind.SENT)

    probe = send

    async def stop(self) -> None:
        """Nothing is open."""


@dataclass
class Told:
    """A way that remembers what it told; while `down` it tells nothing."""

    name: str = "test"
    alerts: list[Alert] = field(default_factory=list)
    tries: int = 0
    down: bool = False

    async def tell(self, alert: Alert) -> None:
        self.tries += 1
        if self.down:
            raise TransportProblem("it is down")
        self.alerts.append(alert)

    async def close(self) -> None:
        """Nothing is open."""

    @property
    def causes(self) -> list[str]:
        return [cause.kind.value for alert in self.alerts for cause in alert.causes]


def keys(ends: Instant) -> Keys:
    """A key whose certificate ends then."""
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alpha")])

    def at(instant: Instant) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(instant / SECOND, datetime.UTC)

    made = x509.CertificateBuilder(name, name, secret.public_key(), 7, at(START - DAY), at(ends))
    return Keys(made.sign(secret, hashes.SHA256()), secret)


def agreement(partner: str = "beta") -> Agreement:
    """What alpha has with a partner."""
    return agreement_of(agreement_text("alpha", partner, "ebms2", TERMS))


@dataclass
class Watched:
    """The handler with its world."""

    handler: Handler
    world: TestWorld
    line: Line

    async def step(self, duration: Duration) -> Snapshot:
        """Let time pass, do what becomes due, and see how it is."""
        self.world.time += duration
        state = self.handler.engine.context.state
        for _ in range(3):
            await self.handler.loop.do("look", lambda: None)
            await until(lambda: not state.in_flight)
            await asyncio.sleep(0)
        return look(self.handler)

    async def send(self, number: int) -> None:
        document = Payload.of("order", "text/plain", b"order")
        named = f"order-{number}@alpha"
        order = Submission(
            "alpha-beta", Service("urn:orders"), "New", (document,), message_id=named
        )
        await self.handler.send(order)
        await until(lambda: not self.handler.engine.context.state.in_flight)


def value(seen: Snapshot | None, name: str) -> float:
    """What a metric without labels, or the only one of it, says."""
    lines = written(seen).decode().splitlines()
    (line,) = [one for one in lines if one.startswith((f"{name} ", f"{name}{{"))]
    return float(line.rpartition(" ")[2])


@contextlib.asynccontextmanager
async def watched(
    folder: Path, *agreements: Agreement, ends: Instant = START + 400 * DAY
) -> AsyncIterator[Watched]:
    """alpha, whose own certificate ends then."""
    world, line = TestWorld("alpha"), Line()
    store = SqliteStore(folder / "alpha.db", node="alpha")
    deals = Agreements(agreements or (replace(agreement(), end=START + 400 * DAY),))
    context = HandlerContext("alpha", store, deals, world, keys=keys(ends))
    async with Handler(context, {"http": line}) as handler:
        yield Watched(handler, world, line)


class Receiver:
    """A webhook's other end, as bad as the test wants it."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, str], bytes]] = []
        self.bad = ""
        self.hangs = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.calls.append((dict(self.headers), body))
                if receiver.bad == "hangs":
                    receiver.hangs.wait(60)
                if receiver.bad == "redirects":
                    self.send_response(307)
                    self.send_header("Location", "/elsewhere")
                elif receiver.bad == "lies":
                    self.send_response(200)
                    self.send_header("Content-Length", str(10**12))
                else:
                    self.send_response(500 if receiver.bad else 204)
                self.end_headers()

            def log_message(self, *_words: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/alerts"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
