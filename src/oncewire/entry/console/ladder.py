"""The ladder of a message as a drawing: a lane for each handler, an arrow for each thing that went
between them, a dot for what happened at one of them.

The journal of this party tells its own rungs. Those of others are drawn where their journals are at
hand; otherwise a lane says that it is not known, and arrows to it end in a question.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from oncewire.entry.messages.story import Story, StoryStep
from oncewire.journal import trace

DRAWN_MAX = 120
"""Rungs that are drawn; the list tells all of them."""

TEXT_MAX = 54
STEP, TOP, LANE, MARGIN = 34, 64, 320, 400

_SENT = {trace.SENT, trace.FORWARDED, trace.PASSED_ON}
_ARRIVED = {trace.RECEIVED, trace.DUPLICATE, trace.REFUSED}
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
    offset: str
    tone: str


class Arrow(Struct, frozen=True):
    """What went from one lane to another. `end`: there (it is known to have come), lost, or
    unknown."""

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
    last = lanes[-1].x if lanes else 0
    began = steps[0].at if steps else 0
    rungs = []
    for number, step in enumerate(steps):
        x = places[step.node]
        inner = lanes[0].x < x < last
        left = x == lanes[0].x
        rungs.append(
            Rung(
                TOP + STEP * number,
                x,
                x - 14 if left else x + 14,
                "end" if left else "start",
                _cut(step.what, TEXT_MAX - 22 if inner else TEXT_MAX),
                _offset(step.at - began),
                tone_of(step.kind),
            )
        )
    width = last + MARGIN if lanes else 2 * MARGIN
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
    return tuple(
        Lane(name, MARGIN + LANE * place, name in known) for place, name in enumerate(names)
    )


def _arrows(steps: Sequence[StoryStep], lanes: Sequence[Lane]) -> list[Arrow]:
    places = {lane.name: lane.x for lane in lanes}
    known = {lane.name for lane in lanes if lane.known}
    found: list[Arrow] = []
    taken: set[int] = set()
    failed = {(step.node, _attempt(step)) for step in steps if step.kind == trace.SEND_FAILED}
    for at, step in enumerate(steps):
        if step.direction != "out" or step.peer not in places:
            continue
        came = _counterpart(steps, at, step, taken)
        x1, y1, x2 = places[step.node], TOP + STEP * at, places[step.peer]
        tone = tone_of(step.kind)
        if came is not None:
            taken.add(came)
            found.append(Arrow(x1, y1, x2, TOP + STEP * came, tone, "there"))
        elif step.peer in known or (step.node, _attempt(step)) in failed:
            found.append(Arrow(x1, y1, (x1 + x2) // 2, y1 + STEP // 2, tone, "lost"))
        else:
            found.append(Arrow(x1, y1, x2, y1 + STEP // 2, tone, "unknown"))
    for at, step in enumerate(steps):
        if step.direction == "in" and at not in taken and step.peer in places:
            x1, x2, y = places[step.peer], places[step.node], TOP + STEP * at
            # What is told of it here proves that it came, from wherever.
            found.append(Arrow(x1, y - STEP // 2, x2, y, tone_of(step.kind), "there"))
    return found


def _counterpart(
    steps: Sequence[StoryStep], at: int, step: StoryStep, taken: set[int]
) -> int | None:
    """The step at the other handler that shows that this one came there."""
    wanted = _ARRIVED if step.kind in _SENT else _ANSWERED
    for place in range(at + 1, len(steps)):
        other = steps[place]
        if place in taken or other.kind not in wanted or other.node == step.node:
            continue
        if other.node != step.peer:
            continue
        if wanted is _ANSWERED and step.ref_to != other.ref_to:
            continue
        return place
    return None


def _attempt(step: StoryStep) -> str:
    """The number of an attempt, as its words have it: `attempt 2 over http`."""
    words = step.what.split()
    return words[1] if len(words) > 1 and words[0] == "attempt" else ""


def _offset(duration: int) -> str:
    return f"+{duration / 1e6:.3f} s"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
