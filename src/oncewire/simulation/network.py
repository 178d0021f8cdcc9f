"""The simulated network: loses, repeats, delays, reorders, corrupts and cuts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from oncewire.message.instant import MILLISECOND, SECOND, Duration
from oncewire.simulation.clock import Clock
from oncewire.simulation.options import Options

LATENCY: Duration = 20 * MILLISECOND
SLOW: Duration = 20 * SECOND
"""How late a reordered copy may be: later than several retries, so that stragglers are common."""
CUT: Duration = 30 * SECOND


@dataclass(slots=True)
class Network:
    """What happens to bytes between two nodes. `healed` ends every fault."""

    clock: Clock
    options: Options
    faults: Counter[str]
    healed: bool = False
    _cut_until: dict[frozenset[str], int] = field(default_factory=dict)

    def is_cut(self, one: str, other: str) -> bool:
        """Whether nothing passes between two nodes now; a cut may begin here."""
        if self.healed:
            return False
        link = frozenset((one, other))
        if self._cut_until.get(link, 0) > self.clock.now:
            return True
        if self.clock.happens(self.options.partition):
            self.faults["partition"] += 1
            length = self.clock.chance.randrange(CUT)
            self._cut_until[link] = self.clock.now + length
            return True
        return False

    def carry(self, body: bytes, arrive: Callable[[bytes], None]) -> bool:
        """Let the bytes arrive later, once, more than once or never; False: never."""
        copies = 1
        if not self.healed:
            if self.clock.happens(self.options.loss):
                self.faults["loss"] += 1
                copies = 0
            if self.clock.happens(self.options.duplicate):
                self.faults["duplicate"] += 1
                copies += 1
        for _ in range(copies):
            arriving = self._corrupted(body)
            self.clock.after(self._delay(), lambda data=arriving: arrive(data))  # type: ignore[misc]
        return copies > 0

    def _delay(self) -> Duration:
        delay = LATENCY + self.clock.chance.randrange(LATENCY)
        if not self.healed and self.clock.happens(self.options.reorder):
            self.faults["reorder"] += 1
            delay += self.clock.chance.randrange(SLOW)
        return delay

    def _corrupted(self, body: bytes) -> bytes:
        if self.healed or not body or not self.clock.happens(self.options.corrupt):
            return body
        self.faults["corrupt"] += 1
        position = self.clock.chance.randrange(len(body))
        flipped = body[position] ^ (1 << self.clock.chance.randrange(8))
        return body[:position] + bytes((flipped,)) + body[position + 1 :]
