"""How a message walks through the code: `python scripts/walks.py [--list] [--json]`.

Two parties are made in a temporary folder and exchange one document; every call that enters a
function of the package is written down by its file. A walk is the sequence of files, neighbours
folded together. Where it comes back to the file it has just left (A, B, A) it turns back: a
reader has to follow it there and back. Calls within a file and returns do not count.

    send      from the Python API's `send` to the first byte for the network
    retry     the timer of a message whose acknowledgement did not come
    arrival   from the body of a request to the answer to it
    take      from the application's `take` to the message in its hands
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import oncewire
from oncewire.entry.party.folder import card_of, make_party, read_card
from oncewire.entry.party.partners import PartnerOptions, add_partner
from oncewire.entry.party.settings import load
from oncewire.entry.running.open_party import open_party
from oncewire.handler.actions import Source
from oncewire.handler.runtime.engine import Engine
from oncewire.message.instant import SECOND
from oncewire.transport.contract import AttemptOutcome, Cargo, OutcomeKind
from oncewire.transport.http.transport import HttpTransport
from oncewire.wire.parcel import Parcel

HOME = Path(oncewire.__file__).parent
NOW = 1_790_000_000 * SECOND


@dataclass(slots=True)
class Walk:
    """The files that one walk visits, in their order."""

    name: str
    files: list[str] = field(default_factory=list)
    calls: int = 0

    def step(self, file: str) -> None:
        self.calls += 1
        if not self.files or self.files[-1] != file:
            self.files.append(file)

    @property
    def turns(self) -> list[tuple[str, str]]:
        """Each place where it comes back: the file it came back to, and the one in between."""
        return [
            (first, between)
            for first, between, last in zip(
                self.files, self.files[1:], self.files[2:], strict=False
            )
            if first == last
        ]


@contextmanager
def walking(walk: Walk) -> Iterator[Walk]:
    """Write down every file of the package that is entered meanwhile, in this thread."""
    prefix = str(HOME) + "/"
    comprehensions = {"<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>", "<module>"}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        ours = code.co_filename.startswith(prefix) and code.co_name not in comprehensions
        if event == "call" and ours:
            walk.step(code.co_filename[len(prefix) :])

    sys.setprofile(note)
    try:
        yield walk
    finally:
        sys.setprofile(None)


@contextmanager
def no_time_passing() -> Iterator[None]:
    """The event loop's clock stands still: no timer of the handler crosses the walk."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    loop.time = lambda: now  # type: ignore[method-assign]
    try:
        yield
    finally:
        del loop.time


PORTS = (28511, 28512)


def two_parties(folder: Path, ports: tuple[int, int]) -> tuple[Path, Path]:
    """Two parties that know each other, over plain HTTP and unsigned: the shortest way there is."""
    made = []
    for name, port in zip(("acme", "globex"), ports, strict=True):
        make_party(folder / name, name, now=NOW, port=port)
        made.append(load(folder / name, environ={}).settings)
    for own, other in (made, made[::-1]):
        card = folder / f"{other.party.name}.card"
        card.write_text(card_of(other).to_toml())
        add_partner(own, read_card(card), PartnerOptions(cpa_id="acme-globex"))
    return folder / "acme", folder / "globex"


async def walk_out(acme: Path) -> tuple[Walk, Walk, list[Parcel]]:
    """The walks of the sender, and the two parcels that it sent."""
    send, retry = Walk("send"), Walk("retry")
    sent: list[Parcel] = []

    async def first_byte(
        _: HttpTransport,
        cargo: Cargo,
        address: str,  # noqa: ARG001
        *,
        timeout: float,  # noqa: ARG001
    ) -> AttemptOutcome:
        sys.setprofile(None)
        body = b"".join([chunk async for chunk in cargo.chunks()])
        sent.append(Parcel(cargo.content_type, body, cargo.headers))
        return AttemptOutcome(OutcomeKind.UNKNOWN, "nobody listens")

    real = HttpTransport.send
    HttpTransport.send = first_byte  # type: ignore[method-assign]
    try:
        async with open_party(acme) as party:
            # The first message reads and writes what every other one finds ready.
            engine: Engine = party._reached.verbs.handler.engine  # type: ignore[attr-defined]  # noqa: SLF001
            first = (await party.send("globex", b"<first/>")).message_id
            await _all_sent(engine, sent, 1)
            with no_time_passing(), walking(send):
                await party.send("globex", b"<order/>", media_type="application/xml")
                while len(sent) < 2:
                    await asyncio.sleep(0)
            await _all_sent(engine, sent, 2)
            # Only the second message is due.
            engine.context.state.in_flight.add(first)
            later = engine.context.now() + 3600 * SECOND
            engine.context.now = lambda: later  # type: ignore[method-assign]
            with walking(retry):
                engine.tick()
    finally:
        HttpTransport.send = real  # type: ignore[method-assign]
    return send, retry, sent


async def _all_sent(engine: Engine, sent: list[Parcel], count: int) -> None:
    """Wait until so many have left, and nothing is left to do about them."""
    while len(sent) < count or engine.context.state.in_flight:
        await asyncio.sleep(0.01)


async def walk_in(globex: Path, first: Parcel, parcel: Parcel) -> tuple[Walk, Walk]:
    """The walks of the receiver, which has got a first message before."""
    arrival, take = Walk("arrival"), Walk("take")
    async with open_party(globex) as party:
        engine: Engine = party._reached.verbs.handler.engine  # type: ignore[attr-defined]  # noqa: SLF001
        engine.receive(first, Source("http", can_answer=True))
        engine.commit()
        await party.take(1)
        with walking(arrival):
            engine.receive(parcel, Source("http", can_answer=True))
            engine.commit()
        with no_time_passing(), walking(take):
            await party.take(1)
    return arrival, take


def walks(ports: tuple[int, int] = PORTS) -> list[Walk]:
    """All of them, by the second message of each: what is read once is read by then."""
    with tempfile.TemporaryDirectory() as folder:
        acme, globex = two_parties(Path(folder), ports)
        send, retry, sent = asyncio.run(walk_out(acme))
        arrival, take = asyncio.run(walk_in(globex, *sent[:2]))
    return [send, retry, arrival, take]


def main() -> None:
    """Print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="every place where a walk turns back")
    parser.add_argument("--json", action="store_true")
    said = parser.parse_args()
    found = walks()
    if said.json:
        counts = {
            walk.name: {
                "files": len(set(walk.files)),
                "calls": walk.calls,
                "turns": len(walk.turns),
            }
            for walk in found
        }
        print(json.dumps(counts))
        return
    print(f"{'walk':<10}{'files':>6}{'calls':>7}{'steps':>7}{'turns':>7}")
    for walk in found:
        files, steps, turns = len(set(walk.files)), len(walk.files), len(walk.turns)
        print(f"{walk.name:<10}{files:>6}{walk.calls:>7}{steps:>7}{turns:>7}")
        if said.list:
            for (home, between), count in Counter(walk.turns).most_common():
                print(f"{count:>12}  {home} -> {between} -> {home}")


if __name__ == "__main__":
    main()
