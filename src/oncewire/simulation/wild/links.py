"""Links: what happens to bytes between two nodes, transfer by transfer, as the plan has it."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from oncewire.message.instant import MILLISECOND, Duration, Instant
from oncewire.simulation.clock import START, Clock
from oncewire.simulation.wild.plan import Cut, Event, Harm, Mishap

LATENCY: Duration = 20 * MILLISECOND
HTTP = "http"

Arrive = Callable[[bytes], None]
Turned = Callable[[int], None]
"""Told after how many seconds to come back, instead of arriving."""


class Links:
    """Every direction of every link counts its transfers; a mishap knows its own by number."""

    def __init__(self, clock: Clock, seed: int, events: Iterable[Event]) -> None:
        self._clock, self._seed = clock, seed
        self._mishaps: dict[tuple[str, str, int], Mishap] = {}
        self._cuts: list[Cut] = []
        for event in events:
            if isinstance(event, Mishap):
                self._mishaps[event.sender, event.receiver, event.nth] = event
            elif isinstance(event, Cut):
                self._cuts.append(event)
        self._carried: Counter[tuple[str, str]] = Counter()
        self.happened: Counter[str] = Counter()
        self.healed = False

    def refuses(self, one: str, other: str, transport: str) -> bool:
        """Whether no connection of that kind can be made between two nodes now."""
        return self._is_cut(one, other, transport, silent=False)

    def is_open(self, one: str, other: str, transport: str) -> bool:
        """Whether anything would pass between two nodes now."""
        return not any(self._cuts_now(one, other, transport))

    def _cuts_now(self, one: str, other: str, transport: str) -> Iterator[Cut]:
        now: Instant = self._clock.now - START
        for cut in self._cuts:
            if (
                {cut.one, cut.other} == {one, other}
                and cut.transport in ("", transport)
                and cut.at <= now < cut.at + cut.lasts
                and not self.healed
            ):
                yield cut

    def _is_cut(self, one: str, other: str, transport: str, *, silent: bool) -> bool:
        for cut in self._cuts_now(one, other, transport):
            if cut.silent is silent:
                self.happened["silent cut" if silent else "cut"] += 1
                if cut.transport:
                    self.happened["transport failed"] += 1
                return True
        return False

    def carry(
        self,
        sender: str,
        receiver: str,
        body: bytes,
        arrive: Arrive,
        turned: Turned | None = None,
        *,
        transport: str = HTTP,
    ) -> None:
        """Let the bytes arrive later: whole or damaged, once, twice or never."""
        self._carried[sender, receiver] += 1
        nth = self._carried[sender, receiver]
        mishap = None if self.healed else self._mishaps.get((sender, receiver, nth))
        if self._is_cut(sender, receiver, transport, silent=True):
            return
        delay = LATENCY + self._jitter(sender, receiver, nth)
        if mishap is None or (mishap.harm is Harm.BUSY and turned is None):
            self._clock.after(delay, lambda: arrive(body))
            return
        self.happened[mishap.harm.value] += 1
        if mishap.harm is Harm.LOSE:
            return
        if mishap.harm is Harm.BUSY and turned is not None:
            self._clock.after(delay, lambda: turned(mishap.by))
            return
        if mishap.harm is Harm.DAMAGE:
            body = _damaged(body, mishap.by)
        if mishap.harm is Harm.DELAY:
            delay += mishap.by
        self._clock.after(delay, lambda: arrive(body))
        if mishap.harm is Harm.REPEAT:
            self._clock.after(delay + mishap.by, lambda: arrive(body))

    def _jitter(self, sender: str, receiver: str, nth: int) -> Duration:
        """Up to once more the usual time; whatever else is in the plan, the same."""
        return zlib.crc32(f"{self._seed} {sender} {receiver} {nth}".encode()) % LATENCY


def _damaged(body: bytes, where: int) -> bytes:
    if not body:
        return body
    place = where % len(body)
    return body[:place] + bytes((body[place] ^ (1 << where % 8),)) + body[place + 1 :]
