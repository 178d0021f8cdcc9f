"""The ladder of a message as a drawing: a lane for each handler, an arrow for each thing that went
between them, a dot for what happened at one of them.

The journal of this party tells its own rungs. Those of others are drawn where their journals are at
hand; otherwise a lane says that it is not known, and arrows to it end in a question.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from oncewire.entry.messages.story import Story, StoryStep
from oncewire.journal import trace
from oncewire.journal.row import Row
from oncewire.message.instant import SECOND, Instant
from oncewire.protocol import notes

DRAWN_MAX = 120
"""Rungs that are drawn; the list tells all of them."""

STEP, TOP, LANE = 34, 64, 320
MARGINS, TEXTS = (400, 310), (54, 42)
"""Beside the outer lanes of two, and of more: the room, and the letters that fit into it."""

_SENT = {trace.SENT, trace.PASSED_ON}
_ANSWERED = {trace.ACKNOWLEDGED, trace.REJECTED, trace.WARNED, trace.TRANSIENT, trace.IGNORED}

_TONES = {
    trace.ACKNOWLEDGED: "good", trace.CONFIRMED: "good", trace.ACK_SENT: "good",
    trace.RECEIVED: "good", trace.JOINED: "good",
    trace.DUPLICATE: "odd", trace.WARNED: "odd", trace.WARNING_SENT: "odd",
    trace.SUSPENDED: "odd", trace.IGNORED: "odd", trace.TRANSIENT: "odd", trace.EXPIRED: "odd",
    trace.EXHAUSTED: "odd", trace.INCIDENT: "odd",
    trace.SEND_FAILED: "bad", trace.REFUSED: "bad", trace.REJECTED: "bad", trace.FAILED: "bad",
    trace.ABANDONED: "bad",
}  # fmt: skip


class Lane(Struct, frozen=True):
    """One handler: its name, where it stands, and whether its journal was read."""

    name: str
    x: int
    known: bool


class Rung(Struct, frozen=True):
    """One step: its place, its words, and on which side of its lane they stand."""

    y: int
    x: int
    text_x: int
    anchor: str
    text: str
    whole: str
    offset: str
    tone: str


class Arrow(Struct, frozen=True):
    """What went from one lane to another. `end`: there (it is known to have come), late (it
    came, and which attempt it was of is a guess), lost, or unknown."""

    x1: int
    y1: int
    x2: int
    y2: int
    tone: str
    end: str


class Ladder(Struct, frozen=True):
    """The drawing."""

    width: int
    height: int
    lanes: tuple[Lane, ...]
    rungs: tuple[Rung, ...]
    arrows: tuple[Arrow, ...]
    left_out: int


def tone_of(kind: str) -> str:
    """How a step looks."""
    return _TONES.get(kind, "calm")


def draw(story: Story) -> Ladder:
    """The drawing of a story."""
    steps = story.steps[:DRAWN_MAX]
    lanes = _lanes(steps, story.elsewhere)
    places = {lane.name: lane.x for lane in lanes}
    last, crowded = lanes[-1].x if lanes else 0, len(lanes) > 2
    began = steps[0].at if steps else 0
    rungs, room = [], TEXTS[crowded]
    for number, step in enumerate(steps):
        x = places[step.node]
        left = x == lanes[0].x
        rungs.append(
            Rung(
                TOP + STEP * number,
                x,
                x - 14 if left else x + 14,
                "end" if left else "start",
                step.what if len(step.what) <= room else f"{step.what[: room - 1]}…",
                step.what,
                f"+{(step.at - began) / 1e6:.3f} s",
                tone_of(step.kind),
            )
        )
    width = last + MARGINS[crowded]
    return Ladder(
        width,
        TOP + STEP * len(steps) + 8,
        lanes,
        tuple(rungs),
        tuple(_arrows(steps, lanes)),
        len(story.steps) - len(steps),
    )


def _lanes(steps: Sequence[StoryStep], elsewhere: Sequence[str]) -> tuple[Lane, ...]:
    """The handlers from the sender on: those that tell, then those that are only spoken of."""
    told = list(dict.fromkeys(step.node for step in steps))
    spoken = dict.fromkeys(step.peer for step in steps if step.peer and step.peer not in told)
    senders = [step.node for step in steps if step.kind in _SENT or step.kind == trace.SUBMITTED]
    names = told if told and told[0] in senders else [*spoken, *told]
    names = list(dict.fromkeys([*names, *spoken]))
    known = {*told, *elsewhere}
    margin = MARGINS[len(names) > 2]
    return tuple(
        Lane(name, margin + LANE * place, name in known) for place, name in enumerate(names)
    )


def _arrows(steps: Sequence[StoryStep], lanes: Sequence[Lane]) -> list[Arrow]:
    places = {lane.name: lane.x for lane in lanes}
    known = {lane.name for lane in lanes if lane.known}
    failed = {(step.node, _attempt(step)) for step in steps if step.kind == trace.SEND_FAILED}
    left: dict[int, bool] = {
        at: (step.node, _attempt(step)) in failed and step.kind == trace.SENT
        for at, step in enumerate(steps)
        if step.direction == "out" and step.peer in places and step.kind != trace.FORWARDED
    }
    found: list[Arrow] = []
    came: set[int] = set()
    for at, step in enumerate(steps):
        if step.direction != "in" or step.peer not in places:
            continue
        origin = _origin(steps, at, left, came)
        x2, y2, tone = places[step.node], TOP + STEP * at, tone_of(step.kind)
        if origin is None:
            # What is told of it here proves that it came, from wherever.
            found.append(Arrow(places[step.peer], y2 - STEP // 2, x2, y2, tone, "there"))
            continue
        # A copy that no attempt of its own explains was late, or repeated on the way.
        sure = not left[origin] and origin not in came
        y1 = TOP + STEP * origin
        came.add(origin)
        end = "there" if sure else "late"
        found.append(Arrow(places[steps[origin].node], y1, x2, y2, tone, end))
    tried = [at for at in left if steps[at].kind in _SENT]
    for at, in_vain in left.items():
        step = steps[at]
        x1, y1, x2 = places[step.node], TOP + STEP * at, places[step.peer]
        if at in came:
            continue
        # What nothing was tried after may be on its way still.
        if in_vain or (step.peer in known and any(later > at for later in tried)):
            found.append(Arrow(x1, y1, (x1 + x2) // 2, y1 + STEP // 2, tone_of(step.kind), "lost"))
        else:
            found.append(Arrow(x1, y1, x2, y1 + STEP // 2, tone_of(step.kind), "unknown"))
    return found


def _origin(
    steps: Sequence[StoryStep], at: int, left: Mapping[int, bool], came: Collection[int]
) -> int | None:
    """The step of the other handler that an arrival is of: an answer by its id; a message by the
    latest attempt that did not fail and did not come yet, else the latest there is."""
    step = steps[at]
    before = [
        place
        for place in left
        if place < at and steps[place].node == step.peer and steps[place].peer == step.node
    ]
    if step.kind in _ANSWERED:
        same = [place for place in before if steps[place].ref_to == step.ref_to]
        return next((place for place in same if steps[place].kind not in _SENT), None)
    sent = [place for place in before if steps[place].kind in _SENT]
    free = [place for place in sent if place not in came]
    good = [place for place in free if not left[place]]
    return max(good, default=max(free, default=max(sent, default=None)))


def _attempt(step: StoryStep) -> str:
    """The number of an attempt, as its words have it: `attempt 2 over http`."""
    words = step.what.split()
    return words[1] if len(words) > 1 and words[0] == "attempt" else ""


# Pulse: what the last minutes of the journal say, second by second, for plots and counts.
#
# The journal is read onwards from where it was read last, so that a page costs what is new. Whoever
# comes after a long time gets the newest rows only: their number is bounded, and so is what is
# remembered of them.


SECONDS = 300
"""Seconds that are kept."""

ROWS_MAX = 5_000
"""Rows that are read at once; what is older is skipped."""

REMEMBERED = 20_000
"""Messages whose submission is remembered until they are acknowledged."""

Journal = Callable[[int, int], Awaitable[list[Row]]]


class Beat(Struct):
    """What happened in one second."""

    second: int
    # Messages by their first attempt, and all attempts.
    sent: int = 0
    attempts: int = 0
    # By the receiver; what a hub or a reliable transport acknowledged is taken over.
    acknowledged: int = 0
    taken_over: int = 0
    received: int = 0
    confirmed: int = 0
    duplicates: int = 0
    failed: int = 0


_COUNTED = {
    trace.RECEIVED: "received",
    trace.CONFIRMED: "confirmed",
    trace.DUPLICATE: "duplicates",
    trace.SEND_FAILED: "failed",
}


class Pulse:
    """The last minutes of one party."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._position = 0
        self._beats: deque[Beat] = deque()
        # (second, microseconds from submission to acknowledgement), newest last.
        self._waits: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)
        self._begun: OrderedDict[str, Instant] = OrderedDict()
        self._reading = asyncio.Lock()

    async def read(self, newest: int) -> None:
        """Read on to the newest row of the journal."""
        async with self._reading:
            after = max(self._position, newest - ROWS_MAX)
            if newest > after:
                for row in await self._journal(after, ROWS_MAX):
                    self._take(row)
                    self._position = row.seq

    def _take(self, row: Row) -> None:
        second = row.at // SECOND
        if not self._beats or self._beats[-1].second < second:
            self._beats.append(Beat(second))
            while self._beats[0].second < second - SECONDS:
                self._beats.popleft()
        beat = self._beats[-1]
        name = _COUNTED.get(row.kind)
        if name is not None:
            setattr(beat, name, getattr(beat, name) + 1)
        elif row.kind == trace.ACKNOWLEDGED:
            final = notes.Acknowledged.read(row.detail).final
            beat.acknowledged += final
            beat.taken_over += not final
        elif row.kind == trace.SENT:
            beat.attempts += 1
            beat.sent += (row.attempt or 1) == 1
        if row.message_id is None:
            return
        if row.kind == trace.SUBMITTED:
            self._begun[row.message_id] = row.at
            if len(self._begun) > REMEMBERED:
                self._begun.popitem(last=False)
        elif row.kind == trace.ACKNOWLEDGED:
            begun = self._begun.pop(row.message_id, None)
            if begun is not None:
                self._waits.append((second, row.at - begun))

    def totals(self, now: Instant) -> dict[str, Any]:
        """Counts of the last minutes, and how long acknowledgements took."""
        first = now // SECOND - SECONDS
        beats = [beat for beat in self._beats if beat.second >= first]
        found: dict[str, Any] = {
            name: sum(getattr(beat, name) for beat in beats)
            for name in Beat.__struct_fields__
            if name != "second"
        }
        waits = sorted(wait for second, wait in self._waits if second >= first)
        for share in (50, 95, 99):
            found[f"p{share}"] = waits[(len(waits) - 1) * share // 100] if waits else None
        return found

    def lines(self, now: Instant) -> dict[str, list[float | None]]:
        """The plots: one value for each second."""
        last = now // SECOND
        seconds = range(last - SECONDS + 1, last + 1)
        beats = {beat.second: beat for beat in self._beats}
        slowest: dict[int, int] = {}
        for second, wait in self._waits:
            slowest[second] = max(wait, slowest.get(second, 0))
        empty = Beat(0)
        found: dict[str, list[float | None]] = {"seconds": list(map(float, seconds))}
        for name in ("sent", "acknowledged", "received", "duplicates", "failed"):
            found[name] = [float(getattr(beats.get(each, empty), name)) for each in seconds]
        found["slowest_ms"] = [
            slowest[each] / 1000 if each in slowest else None for each in seconds
        ]
        return found
