"""Fifty hostile clients at the admin port, and a partner who goes on sending.

    python -m bench.admin [seconds per phase] [clients] [rounds]

acme serves with an admin port, globex sends to it at a steady rate and waits for each
acknowledgement. The clients aim at a sink, then at the admin port, in turns: they share this
machine's cores with the partners either way, so the ratio of the two p99s is what being aimed at
costs. Bounded in time; loopback only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import oncewire
from oncewire.entry.party.folder import KeyKind, make_party, read_card
from oncewire.entry.party.partners import PartnerOptions, add_partner
from oncewire.entry.party.settings import load
from oncewire.handler.world import RealWorld
from tests.ports import free_port

RATE = 10.0
"""Messages of the partner in a second."""
PACE = 0.05
"""Seconds between two requests of one client: fifty make a thousand in a second."""
GOOD = 1.5

_GET = b"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n"
REQUESTS = (
    _GET % (b"/status", b"127.0.0.1"),
    _GET % (b"/journal?after=0&limit=100000", b"127.0.0.1"),
    _GET % (b"/status", b"evil.example"),
    _GET % (b"/messages/" + b"%2e%2e%2f" * 400 + b"/wait", b"127.0.0.1"),
    _GET % (b"/?" + b"x=1&" * 4000, b"127.0.0.1"),
    b"POST /messages?to=globex HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ow_guess\r\n"
    b"Content-Length: 100000000\r\n\r\n" + bytes(60_000),
    b"\x16\x03\x01\x02\x00\x01 no HTTP at all\r\n\r\n",
    b"GET /livez HT",
)


async def _client(port: int, number: int, until: float, told: Counter[str]) -> None:
    request = REQUESTS[number % len(REQUESTS)]
    while time.monotonic() < until:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(request)
                async with asyncio.timeout(12):
                    line = await reader.readline()
                told[line[9:12].decode("ascii", "replace") or "closed"] += 1
            finally:
                writer.close()
        await asyncio.sleep(PACE)


async def _clients(port: int, count: int, seconds: float) -> None:
    told: Counter[str] = Counter()
    until = time.monotonic() + seconds
    await asyncio.gather(*(_client(port, number, until, told) for number in range(count)))
    print(json.dumps(told), flush=True)


async def _sink(port: int) -> None:
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(65536)
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", port)
    await server.serve_forever()


def _parties(folder: Path) -> None:
    for name in ("acme", "globex"):
        make_party(
            folder / name, name, now=RealWorld().now(), port=free_port(), key_kind=KeyKind.EC
        )
    for own, partner in (("acme", "globex"), ("globex", "acme")):
        settings = load(folder / own, environ={}).settings
        add_partner(settings, read_card(folder / partner), PartnerOptions())


async def _exchange(party: oncewire.OpenParty, seconds: float) -> list[float]:
    async def one() -> float:
        began = time.perf_counter()
        sent = await party.send("acme", b"<order/>", media_type="application/xml")
        await party.wait(sent.message_id, 60)
        return time.perf_counter() - began

    tasks, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        tasks.append(asyncio.ensure_future(one()))
        await asyncio.sleep(1 / RATE)
    return sorted(await asyncio.gather(*tasks))


def _at(share: float, took: list[float]) -> float:
    return took[min(len(took) - 1, int(share * len(took)))] * 1000


async def measure(seconds: float, count: int, rounds: int) -> int:
    """Print the figures; 1 where the partner waits too long."""
    own = [sys.executable, "-m", "bench.admin"]
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as ending:
        folder, port, sink = Path(place), free_port(), free_port()
        _parties(folder)
        command = [sys.executable, "-m", "oncewire", "serve", "-c", str(folder / "acme"), "--json"]
        acme = subprocess.Popen(
            [*command, "--set", f"admin.port={port}"], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        ending.callback(acme.wait)
        ending.callback(acme.terminate)
        assert acme.stdout is not None
        acme.stdout.readline()
        sinking = subprocess.Popen([*own, "sink", str(sink)])
        ending.callback(sinking.kill)
        took: dict[str, list[float]] = {"sink": [], "admin": []}
        async with oncewire.open_party(folder / "globex") as party:
            await _exchange(party, 3)
            for _ in range(rounds):
                for name, where in (("sink", sink), ("admin", port)):
                    clients = subprocess.Popen(
                        [*own, "clients", str(where), str(count), str(seconds + 2)],
                        stdout=subprocess.PIPE,
                    )
                    await asyncio.sleep(1.5)
                    took[name] += await _exchange(party, seconds)
                    told, _ = await asyncio.to_thread(clients.communicate)
                    print(name, told.decode().strip(), flush=True)
    figures = {name: sorted(delays) for name, delays in took.items()}
    for name, delays in figures.items():
        print(f"{name}: {len(delays)} messages, p50 {_at(0.5, delays):.1f} ms, "
              f"p99 {_at(0.99, delays):.1f} ms")  # fmt: skip
    ratio = _at(0.99, figures["admin"]) / _at(0.99, figures["sink"])
    print(f"p99 ratio {ratio:.2f} (at most {GOOD})")
    return int(ratio > GOOD)


def main(arguments: list[str]) -> int:
    """Run it, or one of its processes."""
    if arguments[:1] == ["sink"]:
        asyncio.run(_sink(int(arguments[1])))
        return 0
    if arguments[:1] == ["clients"]:
        asyncio.run(_clients(int(arguments[1]), int(arguments[2]), float(arguments[3])))
        return 0
    seconds, count, rounds = (*map(int, arguments), *(15, 50, 4)[len(arguments) :])
    return asyncio.run(measure(seconds, count, rounds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
