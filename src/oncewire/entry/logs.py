"""Structured logs: one JSON object per line, with the message's id and without its content.

Callers pass facts as `extra={"message_id": ...}`. A payload never belongs there: bytes are
written as their length, long texts are cut, and whatever looks like a secret is blanked, in facts
and in sentences alike.
"""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from oncewire.errors import InvalidValue

LEVELS = ("debug", "info", "warning", "error")
LINE_MAX = 4096
TEXT_MAX = 1024
BLANK = "[redacted]"

_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|credential|authorization|_key$", re.IGNORECASE
)
# Each with the words that stay.
_SECRET_TEXT: tuple[tuple[re.Pattern[str], str], ...] = (
    # A private key in PEM, whole or cut off.
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END[^\n]*|\Z)", re.DOTALL), BLANK),
    # user:password@ in a URL.
    (re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"), BLANK),
    (re.compile(r"((?:bearer|basic) )[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1{BLANK}"),
    (
        re.compile(
            r"((?:password|passwd|secret|token|api_?key)\s*[=:]\s*)[^\s,;&]+", re.IGNORECASE
        ),
        rf"\1{BLANK}",
    ),
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# What a LogRecord has of its own; everything else came in `extra`.
_OWN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def clean_text(text: str, limit: int = TEXT_MAX) -> str:
    """The text without secrets, control characters and excess length."""
    for pattern, kept in _SECRET_TEXT:
        text = pattern.sub(kept, text)
    text = _CONTROL.sub(" ", text)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def clean(name: str, value: Any) -> Any:
    """A fact as it may stand in a log."""
    if _SECRET_NAME.search(name):
        return BLANK
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes"
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(key)[:64]: clean(str(key), item) for key, item in list(value.items())[:32]}
    if isinstance(value, list | tuple | set | frozenset):
        return [clean(name, item) for item in list(value)[:32]]
    return clean_text(str(value))


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller passed in `extra`, cleaned."""
    return {
        name: clean(name, value)
        for name, value in vars(record).items()
        if name not in _OWN and not name.startswith("_")
    }


class JsonLines(logging.Formatter):
    """One line of JSON per record."""

    def format(self, record: logging.LogRecord) -> str:
        """`at`, `level`, `logger`, `event`, then the facts."""
        line: dict[str, Any] = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": clean_text(record.getMessage()),
        }
        line |= {name: value for name, value in facts_of(record).items() if name not in line}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = clean_text(repr(record.exc_info[1]))
            line["trace"] = clean_text(self.formatException(record.exc_info), 2048)
        text = json.dumps(line, ensure_ascii=False, default=str)
        if len(text) <= LINE_MAX:
            return text
        # Too many facts: keep what identifies the line, say what was left out.
        kept = ("at", "level", "logger", "event", "message_id", "error")
        short = {name: line[name] for name in kept if name in line} | {"cut": len(text)}
        return json.dumps(short, ensure_ascii=False, default=str)[:LINE_MAX]


class PlainLines(logging.Formatter):
    """The same for a person who watches: time, level, sentence, facts."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; an error's trace follows it."""
        facts = " ".join(f"{name}={value}" for name, value in facts_of(record).items())
        event = clean_text(record.getMessage())
        line = f"{_at(record)[11:23]} {record.levelname.lower():7} {event} {facts}".rstrip()
        if record.exc_info and record.exc_info[1] is not None:
            line += "\n" + clean_text(self.formatException(record.exc_info), 4096)
        return line[:LINE_MAX]


class Printed(io.TextIOBase):
    """Standard output of a process whose log is JSON: each line that is printed is one of the
    log, so that all of it can be read."""

    def __init__(self) -> None:
        self._begun = ""
        self._logger = logging.getLogger("oncewire.printed")

    def write(self, text: str, /) -> int:
        """What is printed; a line is logged when it is whole."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._logger.info("%s", line)
        return len(text)


def _at(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond:06d}Z"


ROTATE_BYTES, ROTATED = 20 * 1024 * 1024, 5
"""A log file that has grown to this size becomes FILE.1, and so on; so many of them are kept."""


def start_logging(level: str = "info", form: str = "json", file: Path | None = None) -> None:
    """Send everything the package logs to stderr or to a file; called once, by a command."""
    if level.lower() not in LEVELS:
        raise InvalidValue(
            f"log.level {level!r} is not known", remedy="use one of " + ", ".join(LEVELS)
        )
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        try:
            handler = RotatingFileHandler(
                file, maxBytes=ROTATE_BYTES, backupCount=ROTATED, encoding="utf-8"
            )
        except OSError as error:
            raise InvalidValue(
                f"log.file {file} cannot be opened: {error.strerror}",
                remedy="name a file in a folder that exists and that you may write to",
            ) from None
    handler.setFormatter(PlainLines() if form == "text" else JsonLines())
    # A line that cannot be written must not end what it tells of: the error of a closed stream
    # would come out of the call that logs.
    logging.raiseExceptions = False
    root = logging.getLogger("oncewire")
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(level.upper())
    root.propagate = False


@contextmanager
def only_errors() -> Iterator[None]:
    """For a handler that runs inside a command: the command's report tells what became of its
    messages, so only what it cannot tell is logged, unless logs were asked for already."""
    root = logging.getLogger("oncewire")
    if any(not isinstance(each_handler, logging.NullHandler) for each_handler in root.handlers):
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainLines())
    handler.setLevel(logging.ERROR)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
