"""How pages are written: the templates, and how values look in them.

Everything that a template shows is escaped, and what cannot be seen (control characters, marks
that turn the direction of a line) is shown as its number, so that no id, file name or error text
can run or disguise anything.
"""

from __future__ import annotations

import re
import secrets
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from oncewire.entry.files import number_of, size_of
from oncewire.errors import InvalidValue
from oncewire.journal.history import in_words
from oncewire.message.instant import DAY, HOUR, MINUTE, SECOND, Instant, moment
from oncewire.message.kinds import read_duration

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
