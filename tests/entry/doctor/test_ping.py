"""What a Ping asks for, and how patient `doctor` is with partners and with its own machine."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

import pytest

from oncewire.agreement.toml import read_toml
from oncewire.entry.doctor.ping import Reached, ping
from oncewire.entry.party.agreements import Kept
from oncewire.entry.party.settings import Settings, load
from oncewire.handler.world import RealWorld
from oncewire.message.instant import SECOND
from tests.handler.network import Network, agreement_text
from tests.ports import free_port
from tests.transport.exchange import listening


@dataclass
class Endpoint:
    """Partners' handlers behind one port, told apart by their paths."""

    # How many requests of each path get no answer, and after how long the others get theirs.
    silent: int = 0
    slow: float = 0.0
    date: str = ""
    bodies: list[bytes] = field(default_factory=list)
    paths: list[bytes] = field(default_factory=list)
    at_once: int = 0
    most: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            (length,) = (
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            )
            self.bodies.append(await reader.readexactly(length))
            path = head.split(b" ")[1]
            self.paths.append(path)
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            if self.paths.count(path) > self.silent:
                await asyncio.sleep(self.slow)
                dated = f"Date: {self.date}\r\n" if self.date else ""
                writer.write(f"HTTP/1.1 204 No Content\r\n{dated}\r\n".encode())
                await writer.drain()
            else:
                await reader.read()
            self.at_once -= 1
        writer.close()


def partner(port: int, number: int = 1, extra: str = "") -> Kept:
    name = f"partner{number}"
    text = agreement_text("acme", name, "ebms2", extra).replace("alpha-beta", f"acme-{name}")
    text = text.replace(f"http://{name}/msh", f"http://127.0.0.1:{port}/{name}")
    return Kept(Path(f"{name}.toml"), read_toml(text))


@pytest.fixture
def settings(parties: Path) -> Settings:
    return load(parties / "acme", environ={}).settings


@pytest.mark.requirement("SYNC-13")
@pytest.mark.parametrize("mode", ["none", "mshSignalsOnly"])
async def test_a_ping_asks_for_a_synchronous_reply_only_where_it_was_agreed(
    mode: str, settings: Settings
) -> None:
    endpoint = Endpoint()
    async with listening(endpoint.serve) as port:
        kept = partner(port, extra=f'[sync]\nmode = "{mode}"\n')
        (echo,) = await ping(settings, [kept])
    assert echo.reached is Reached.TAKEN
    (body,) = endpoint.bodies
    assert (b"SyncReply" in body) == (mode != "none")


@pytest.mark.requirement("SYNC-13")
def test_neither_does_a_message_nor_a_question_of_our_handler() -> None:
    pair = Network.pair("ebms2")
    sent = pair.send()
    pair.alpha.ping("alpha-beta")
    pair.alpha.ask_status(sent.message_id)
    pair.settle("alpha")
    seen = [crossing.parcel.body for crossing in pair.line]
    for word in (b"Ping", b"StatusRequest", b"order 1"):
        assert any(word in body for body in seen), word
    assert not any(b"SyncReply" in body for body in seen)


async def test_partners_are_not_all_asked_at_once(settings: Settings) -> None:
    """A machine that is busy with one of them is late for the others, and would blame them."""

    endpoint = Endpoint(slow=0.05)
    async with listening(endpoint.serve) as port:
        found = await ping(settings, [partner(port, number) for number in range(40)])
    assert {echo.reached for echo in found} == {Reached.TAKEN}
    assert endpoint.most <= 8


async def test_who_did_not_answer_is_asked_once_more_and_has_longer(settings: Settings) -> None:
    endpoint = Endpoint(silent=1, slow=0.7)
    async with listening(endpoint.serve) as port:
        (echo,) = await ping(settings, [partner(port)], timeout=0.5)
    assert echo.reached is Reached.TAKEN
    assert len(endpoint.paths) == 2
    (gone,) = await ping(settings, [partner(free_port())], timeout=0.5)
    assert gone.reached is Reached.UNREACHABLE


async def test_the_date_of_an_answer_tells_its_clock(settings: Settings) -> None:
    """A Ping that is answered elsewhere still shows which time it is over there."""

    late = RealWorld().now() // SECOND - 3600
    endpoint = Endpoint(date=formatdate(late, usegmt=True))
    async with listening(endpoint.serve) as port:
        (echo,) = await ping(settings, [partner(port)])
    assert echo.skew is not None
    assert abs(echo.skew + 3600 * SECOND) < 20 * SECOND
