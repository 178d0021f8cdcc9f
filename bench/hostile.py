"""A thousand hostile connections, and two partners who go on exchanging messages.

    python -m bench.hostile [seconds per phase] [connections] [seed]
    python -m bench.hostile ways [seconds per phase] [way ...]

Three processes: beta, whom everybody talks to; alpha, its partner, who sends signed orders at a
steady rate and waits for each acknowledgement; and the strangers. First these aim at a sink that
takes whatever they send, then at beta: they share this machine's cores with the partners either
way, so the ratio of the two p99s is what being aimed at costs. Bounded in time; loopback only.

With `ways` beta has another way in beside HTTP, and strangers use that one: its mail server, a
mailbox, a folder over SFTP or FTP, a subject at a NATS server. Quiet phases, in which the server
is there and the strangers aim at a sink or leave nothing, take turns with loud ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from oncewire.entry.party.folder import KeyKind, make_keys
from oncewire.handler.actions import Submission
from oncewire.handler.context import Keys
from oncewire.handler.runtime.handler import Handler
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.protocol.states import OutgoingState
from oncewire.transport.broker.transport import BrokerAccount, BrokerTransport
from oncewire.transport.contract import Transport
from oncewire.transport.files.ftp import ftp_transport
from oncewire.transport.files.sftp import sftp_transport
from oncewire.transport.smtp.listener import ListenerSettings
from oncewire.transport.smtp.relay import MailTls
from oncewire.transport.smtp.transport import MailboxSettings, SmtpTransport
from tests.handler.running import serving
from tests.ports import free_port
from tests.transport.file_servers import ftp_settings, sftp_settings

RATE = 10.0
"""Orders of alpha in a second."""
SETTLE = 3.0
"""Seconds of strangers before anything is measured."""


def keys(folder: Path, own: str) -> Keys:
    """The key pair that was made for this run."""
    key = load_pem_private_key((folder / f"{own}.key").read_bytes(), None)
    certificate = x509.load_pem_x509_certificate((folder / f"{own}.crt").read_bytes())
    return Keys(certificate, key)  # type: ignore[arg-type]


def terms(folder: Path, partner: str) -> str:
    """Signed both ways, acknowledged on the connection."""
    escaped = (folder / f"{partner}.crt").read_text().replace("\n", "\\n")
    return (
        '[delivery]\ntimeout = "PT5S"\nretry_interval = "PT2S"\nretries = 20\n'
        '[sync]\nmode = "mshSignalsOnly"\n[security]\nsign = true\nrequire_signature = true\n'
        'signature_algorithm = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256"\n'
        f'partner_certificates = ["{escaped}"]\n'
    )


@contextlib.asynccontextmanager
async def party(
    folder: Path,
    own: str,
    partner: str,
    ports: dict[str, int],
    others: dict[str, Transport] | None = None,
) -> AsyncIterator[Handler]:
    """One of the two, in this process."""
    extra = terms(folder, partner)
    (folder / own).mkdir()
    async with serving(
        folder / own, own, partner, ports, extra=extra, keys=keys(folder, own), others=others
    ) as handler:
        yield handler


# --- beta, and the sink ------------------------------------------------------------------------


def other_way(way: str, where: dict[str, Any]) -> dict[str, Transport]:
    """What beta has beside HTTP."""
    port = where.get("port", 0)
    inbox = {"inbox": f"{way}://127.0.0.1:{port}/beta", "every": 1.0}
    if way == "mail":
        return {"smtp": SmtpTransport(listener=ListenerSettings("beta@beta.test", port=port))}
    if way == "imap":
        box = MailboxSettings("127.0.0.1", "beta", "word", port, MailTls.NONE, every=1.0)
        return {"smtp": SmtpTransport(mailbox=box)}
    if way == "sftp":
        return {"sftp": sftp_transport(**sftp_settings(Path(where["known"]), **inbox))}
    if way == "ftp":
        return {"ftp": ftp_transport(**ftp_settings(**inbox))}
    if way == "nats":
        monitor = f"http://127.0.0.1:{where['monitor']}"
        broker = BrokerAccount(f"nats://127.0.0.1:{port}", monitor, "oncewire.beta", max_deliver=3)
        return {"broker": BrokerTransport(broker)}
    return {}


async def _beta(folder: Path, ports: dict[str, int], others: dict[str, Transport]) -> None:
    """Take what arrives until standard input ends, then say what came."""
    async with party(folder, "beta", "alpha", ports, others) as handler:
        print("ready", flush=True)
        taken = 0
        ended = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
        while not ended.done():
            for one in await handler.take(64):
                await handler.confirm(one.sender, one.message_id)
                taken += 1
            await asyncio.sleep(0.05)
    print(json.dumps({"taken": taken, "rss_mb": _peak_mb()}), flush=True)


async def _mail_sink(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say yes to every command, and listen to every mail."""
    writer.write(b"220 sink\r\n")
    while line := await reader.readline():
        writer.write(b"354 go on\r\n" if line == b"DATA\r\n" else b"250 yes\r\n")
        last = b""
        while line == b"DATA\r\n" and not last.endswith(b"\r\n.\r\n"):
            piece = await reader.read(65_536)
            if not piece:
                return
            last = last[-5:] + piece
        if last:
            writer.write(b"250 yes\r\n")


async def _sink(port: int, way: str = "http") -> None:
    """Take everything, and answer whatever looks like a request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.LimitOverrunError, ValueError):
            if way == "mail":
                await _mail_sink(reader, writer)
            while piece := await reader.read(65_536):
                if piece.startswith(b"POST") and b"\r\n\r\n" in piece:
                    writer.write(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=512)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


def _peak_mb(process: int | str = "self") -> float:
    with open(f"/proc/{process}/status", encoding="ascii") as status:  # noqa: PTH123
        peak = next(line for line in status if line.startswith("VmHWM"))
    return round(int(peak.split()[1]) / 1024, 1)


# --- the measurement ---------------------------------------------------------------------------


class Child:
    """A process of this benchmark that ends when its standard input does."""

    def __init__(self, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def ready(self) -> None:
        if self.said() != "ready":
            raise SystemExit("a process of the benchmark did not start")

    def said(self) -> str:
        """The next line that it says."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def tell(self, word: str) -> None:
        """Have it do something, and wait until that is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        if self.said() != "done":
            raise SystemExit("a process of the benchmark ended")

    def memory_mb(self) -> float:
        """The most memory that it has had."""
        return _peak_mb(self._process.pid)

    def seconds(self) -> float:
        """What it has had of the processors, whoever else wanted them."""
        with open(f"/proc/{self._process.pid}/stat", encoding="ascii") as stat:  # noqa: PTH123
            user, system = stat.read().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def end(self) -> str:
        """What it said last."""
        said, _ = self._process.communicate(timeout=60)
        return said.strip().splitlines()[-1] if said.strip() else "{}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


async def _exchange(handler: Handler, seconds: float) -> list[float]:
    """Send at a steady rate; how long each took until it was known to be delivered."""
    took: list[float] = []

    async def one(number: int) -> None:
        began = time.perf_counter()
        document = b"<order/>" * (4000 if number % 10 == 0 else 100)
        payload = Payload.of(f"order-{number}", "text/xml", document)
        order = Submission("alpha-beta", Service("urn:test:orders"), "New", (payload,))
        accepted = await handler.send(order)
        if await handler.wait(accepted.message_id, 60.0) is OutgoingState.DELIVERED:
            took.append(time.perf_counter() - began)

    began, work = time.perf_counter(), []
    for number in range(int(seconds * RATE)):
        await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
        work.append(asyncio.ensure_future(one(number)))
    await asyncio.gather(*work)
    return took


async def _phase(
    handler: Handler, port: int, count: int, seconds: float, seed: int
) -> dict[str, Any]:
    strangers = Child("bench._strangers", port, count, seconds + SETTLE + 1, seed)
    await asyncio.sleep(SETTLE)
    took = await _exchange(handler, seconds)
    met = json.loads(await asyncio.to_thread(strangers.end))
    return {"sent": int(seconds * RATE), **_delays(took), "strangers": met}


def _delays(took: list[float]) -> dict[str, Any]:
    took = sorted(took)
    return {
        "delivered": len(took),
        "p50_ms": round(1000 * took[len(took) // 2], 1) if took else None,
        "p99_ms": round(1000 * took[int(0.99 * (len(took) - 1))], 1) if took else None,
    }


def _disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


async def measure(seconds: float, count: int, seed: int) -> dict[str, object]:
    """Both phases; ratios within one run."""
    ports = {"alpha": free_port(), "beta": free_port()}
    sink_port = free_port()
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name)
        for own in ports:
            make_keys(folder, own, now=time.time_ns() // 1000, kind=KeyKind.EC)
        beta = Child("bench.hostile", "beta", folder, ports["alpha"], ports["beta"])
        sink = Child("bench.hostile", "sink", sink_port)
        try:
            beta.ready()
            sink.ready()
            async with party(folder, "alpha", "beta", ports) as handler:
                await _exchange(handler, 2.0)
                spent = [beta.seconds()]
                calm = await _phase(handler, sink_port, count, seconds, seed)
                before = _disk(folder / "beta")
                spent.append(beta.seconds())
                aimed = await _phase(handler, ports["beta"], count, seconds, seed)
                spent.append(beta.seconds())
                growth = _disk(folder / "beta") - before
                # What is still under way is taken before anybody counts.
                await asyncio.sleep(1.0)
            found = json.loads(await asyncio.to_thread(beta.end))
        except BaseException:
            beta.kill()
            raise
        finally:
            sink.kill()
    met = sum(aimed["strangers"]["told"].values())
    cost = (spent[2] - spent[1]) - (spent[1] - spent[0])
    sent = int(2.0 * RATE) + calm["sent"] + aimed["sent"]
    return {
        "connections": count,
        "seconds": seconds,
        "seed": seed,
        "beside_a_sink": calm,
        "aimed_at_us": aimed,
        "p99_ratio": round(aimed["p99_ms"] / calm["p99_ms"], 2) if calm["p99_ms"] else None,
        "cpu_ms_per_stranger": round(1000 * cost / met, 3) if met else None,
        "rss_mb": found["rss_mb"],
        "disk_growth_mb": round(growth / 1024**2, 2),
        "lost": sent - found["taken"],
    }


ROUNDS = 3
"""Quiet and loud phases of each way, by turns."""


async def measure_way(way: str, seconds: float) -> dict[str, Any]:
    """The honest partner over HTTP, quiet and loud by turns, while strangers use another way."""
    ports = {"alpha": free_port(), "beta": free_port()}
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name)
        for own in ports:
            make_keys(folder, own, now=time.time_ns() // 1000, kind=KeyKind.EC)
        async with contextlib.AsyncExitStack() as stack:
            if way == "mail":
                where = {"port": free_port(), "sink": free_port()}
                place = Child("bench.hostile", "sink", where["sink"], way)
                stack.callback(place.kill)
                place.ready()
            else:
                place = Child("bench._places", way, folder)
                stack.callback(place.kill)
                where = json.loads(place.said())
            told = (ports["alpha"], ports["beta"], way, json.dumps(where))
            beta = Child("bench.hostile", "beta", folder, *told)
            stack.callback(beta.kill)
            beta.ready()
            handler = await stack.enter_async_context(party(folder, "alpha", "beta", ports))
            await _exchange(handler, 3.0)
            quiet: list[float] = []
            loud: list[float] = []
            spent = {False: 0.0, True: 0.0}
            quiet_memory = beta.memory_mb()
            for _ in range(ROUNDS):
                for is_loud, all_took in ((False, quiet), (True, loud)):
                    before = beta.seconds()
                    took = await _beside(way, where, place, handler, seconds, loud=is_loud)
                    all_took.extend(took)
                    spent[is_loud] += beta.seconds() - before
            await asyncio.sleep(1.0)
            found = json.loads(await asyncio.to_thread(beta.end))
    sent = int(3.0 * RATE) + 2 * ROUNDS * int(seconds * RATE)
    calm, under = _delays(quiet), _delays(loud)
    return {
        "way": way,
        "quiet": calm,
        "loud": under,
        "p99_ratio": round(under["p99_ms"] / calm["p99_ms"], 2),
        "p50_ratio": round(under["p50_ms"] / calm["p50_ms"], 2),
        # Of its processor time; it has all the more to itself the less others want of the machine.
        "cpu_seconds": {"quiet": round(spent[False], 1), "loud": round(spent[True], 1)},
        "rss_mb_quiet": quiet_memory,
        "rss_mb": found["rss_mb"],
        "lost": sent - found["taken"],
    }


async def _beside(
    way: str, where: dict[str, Any], place: Child, handler: Handler, seconds: float, *, loud: bool
) -> list[float]:
    if way == "mail":
        port = where["port"] if loud else where["sink"]
        strangers = Child("bench._strangers", port, 150, seconds + SETTLE + 1, 1, "mail")
        await asyncio.sleep(SETTLE)
        took = await _exchange(handler, seconds)
        await asyncio.to_thread(strangers.end)
        return took
    await asyncio.to_thread(place.tell, "fill" if loud else "clear")
    await asyncio.sleep(SETTLE)
    return await _exchange(handler, seconds)


WAYS = ("mail", "imap", "sftp", "ftp", "nats")


def main(arguments: list[str]) -> int:
    """A role of the benchmark, or the benchmark."""
    if arguments[:1] == ["beta"]:
        folder, alpha_port, beta_port, *more = arguments[1:]
        others = other_way(more[0], json.loads(more[1])) if more else {}
        ports = {"alpha": int(alpha_port), "beta": int(beta_port)}
        asyncio.run(_beta(Path(folder), ports, others))
        return 0
    if arguments[:1] == ["sink"]:
        asyncio.run(_sink(int(arguments[1]), *arguments[2:]))
        return 0
    if arguments[:1] == ["ways"]:
        lost = 0
        for way in arguments[2:] or WAYS:
            told = asyncio.run(measure_way(way, float(arguments[1]) if arguments[1:] else 10.0))
            print(json.dumps(told), flush=True)
            lost += told["lost"]
        return 0 if lost == 0 else 1
    seconds, count, seed = (*map(float, arguments), *(20.0, 1000, 1)[len(arguments) :])
    found = asyncio.run(measure(seconds, int(count), int(seed)))
    print(json.dumps(found, indent=1))
    return 0 if found["lost"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
