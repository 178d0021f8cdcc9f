"""How pages are written: the templates, how values look in them, and a message as a drawing.

Everything that a template shows is escaped, and what cannot be seen (control characters, marks
that turn the direction of a line) is shown as its number, so that no id, file name or error text
can run or disguise anything.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import unicodedata
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import Struct

from oncewire.entry.files import number_of, size_of
from oncewire.entry.messages.story import Story, StoryStep
from oncewire.errors import InvalidValue
from oncewire.journal import trace
from oncewire.journal.history import in_words
from oncewire.journal.row import Row
from oncewire.message.instant import DAY, HOUR, MINUTE, SECOND, Instant, moment
from oncewire.message.kinds import read_duration
from oncewire.protocol import notes

_HERE = Path(__file__).parent

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)

STATIC = {
    path.relative_to(_HERE / "static").as_posix(): path
    for path in sorted((_HERE / "static").rglob("*"))
    if path.suffix in (".js", ".css", ".svg")
}
"""The files that pages load, by name."""

MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

TONES = {
    "delivered": "good", "confirmed": "good", "acknowledged": "good", "sent": "good",
    "received": "good", "forwarded": "good", "good": "good",
    "outstanding": "busy", "waiting": "busy", "ready": "busy", "handed_over": "busy",
    "gathered": "busy", "in_flight": "busy", "pending": "busy",
    "held": "odd", "suspended": "odd", "unknown": "odd", "gap": "odd", "closed": "odd",
    "warning": "odd", "danger": "odd",
    "not_delivered": "bad", "refused": "bad", "bad": "bad", "error": "bad",
}  # fmt: skip
"""How each state looks; the word itself is always shown beside it."""


_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""Default_Ignorable_Code_Point of Unicode, and the empty Braille pattern: what has the category of
a letter or a mark, and is not seen."""

_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def is_seen(letter: str) -> bool:
    """Whether a person can see that a character is there, or it is a plain space."""
    if letter in " \n\t":
        return True
    category = unicodedata.category(letter)
    return category not in _UNSEEN and category != "Zs" and not _IGNORABLE.match(letter)


def plain(value: Any) -> Any:
    """A text in which everything can be seen: what cannot is shown by its number, `\\u{202e}`."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    if value.isascii() and value.isprintable():
        return value
    return "".join(each if is_seen(each) else f"\\u{{{ord(each):x}}}" for each in value)


def ago(then: Instant | None, now: Instant) -> str:
    """How long ago an instant is, in one word."""
    return "" if not then else f"{lasting(max(0, now - then))} ago"


def lasting(duration: int) -> str:
    """A time span as people say it, in one unit."""
    if SECOND <= duration < 10 * SECOND:
        return f"{duration / SECOND:.1f} s"
    for unit, word in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")):
        if duration >= 2 * unit or (unit == SECOND and duration >= SECOND):
            return f"{duration // unit} {word}"
    return f"{duration // 1000} ms"


def duration(value: Any) -> str:
    """What a value of an agreement lasts, as people say it; empty where it is no duration."""
    if not isinstance(value, str) or not value.startswith("P"):
        return ""
    try:
        return lasting(read_duration(value))
    except InvalidValue:
        return ""


def amount(size: int) -> str:
    """A size; of a few bytes, just how many."""
    return f"{size} B" if size < 1000 else size_of(size)


def days_left(then: Instant | None, now: Instant) -> int | None:
    """Whole days until an instant."""
    return None if then is None else (then - now) // DAY


def clock(instant: Instant | None) -> str:
    """The time of day, to the millisecond."""
    return moment(instant)[11:-1]


def day(instant: Instant, later: int = 0) -> str:
    """The day of an instant, or one so many days later, in UTC."""
    return moment(instant + later * DAY)[:10]


def link(path: str, **asked: Any) -> str:
    """A path of the console with a query; what is empty is left out."""
    given = {name: value for name, value in asked.items() if value not in ("", None, False)}
    return f"/console/{path}" + (f"?{urlencode(given)}" if given else "")


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=plain,
    )
    made.filters |= {
        "ago": ago,
        "moment": moment,
        "duration": duration,
        "words": in_words,
        "clock": clock, "lasting": lasting, "size": amount, "count": number_of,
        "tone": lambda state: TONES.get(str(state), "calm"),
        # What a form gives back must be what it was given.
        "whole": escape,
        "combined": lambda some, **others: {**some, **others},
        "word": lambda state: str(state).replace("_", " "),
    }  # fmt: skip
    # The word of one form: what it asks for is done once.
    made.globals |= {"once": lambda: secrets.token_urlsafe(9)}
    made.globals |= {"link": link, "days_left": days_left, "day": day}
    return made


_TEMPLATES = _environment()


def render(template: str, values: Mapping[str, Any]) -> str:
    """A page."""
    return _TEMPLATES.get_template(template).render(values)


# The ladder of a message as a drawing: a lane for each handler, an arrow for each thing that
# went between them, a dot for what happened at one of them.
#
# The journal of this party tells its own rungs. Those of others are drawn where their journals
# are at hand; otherwise a lane says that it is not known, and arrows to it end in a question.


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
