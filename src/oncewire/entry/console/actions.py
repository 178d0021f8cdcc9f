"""Actions: what can be done from a page, and what came of it.

What a button did is told once, on the page that follows it and to the browser that pressed it: by
an address alone nothing can be said to have happened. A test of a partner takes a while, so it goes
on while pages show how far it is. A form is read within bounds of size and time, and taken from the
session's own pages.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from email import message_from_bytes
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import parse_qsl

from msgspec import Struct

from oncewire.entry.party.folder import FILE_MAX
from oncewire.errors import InvalidValue, NotAllowed, NotHere, OncewireError

if TYPE_CHECKING:
    from email.message import Message

    from starlette.requests import Request

    from oncewire.entry.console.sign_in import Session
    from oncewire.message.instant import Instant

T = TypeVar("T")

KEPT_MAX = 200
"""Outcomes that wait for their page, forms and tests that are remembered."""

FILES_MAX = 20
"""Files of partners that wait for an answer, of at most a few hundred KB each."""


@dataclass(frozen=True, slots=True)
class Action:
    """A button: its verb, the arguments that its form gives, and those that are fixed."""

    verb: str
    asks: tuple[str, ...]
    fixed: dict[str, Any]
    done: str
    # What is said where the verb answers with False.
    not_done: str = ""


ACTIONS = {
    "resend": Action("resend", ("message_id",), {}, "It is sent again, under the same MessageId."),
    "resume": Action("resume", ("message_id",), {}, "It is tried now, and its retries start anew."),
    "resume-channel": Action("resume", ("channel",), {}, "The channel goes on."),
    "resume-partner": Action("resume", ("partner",), {}, "All that waits for it is sent now."),
    "abandon": Action("abandon", ("message_id",), {}, "It is given up."),
    "hold": Action(
        "hold", ("message_id",), {"held": True}, "It is under legal hold: retention leaves it."
    ),
    "release": Action("hold", ("message_id",), {"held": False}, "The legal hold is lifted."),
    "pause": Action("pause", ("channel", "reason"), {}, "The channel is suspended."),
    "accept-clock": Action("accept_clock", (), {}, "The clock is accepted."),
    "ping": Action("ping", ("partner",), {}, "It answered.", "It did not answer in time."),
}
"""The actions of pages, by the word of their button."""


class Outcomes:
    """Results of actions, kept until the next page shows them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], str] = OrderedDict()

    def keep(self, session: str, said: str) -> str:
        """Keep a sentence for the next page of a session; returns the word that leads to it."""
        word = secrets.token_urlsafe(9)
        self._kept[session, word] = said
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return word

    def take(self, session: str, word: str) -> str:
        """Take the sentence of a word; empty where there is none, or it was taken."""
        return self._kept.pop((session, word), "")


class Once:
    """What forms did, by the word that each of them has: one that is sent twice does it once, and
    is answered as the first time. What was refused may be tried again."""

    def __init__(self) -> None:
        self._done: OrderedDict[tuple[str, str], asyncio.Task[Any]] = OrderedDict()

    async def do(
        self, session: str, word: str, act: Callable[[], Coroutine[Any, Any, T]]
    ) -> tuple[T, bool]:
        """What came of the form of a session, and whether it had been sent before."""
        if not word:
            raise NotAllowed(
                "the form has no word of its own", remedy="go back and load the page anew"
            )
        known = self._done.get((session, word))
        if known is None:
            # It goes on where the browser does not wait for it.
            task = self._done[session, word] = asyncio.create_task(act())
            while len(self._done) > KEPT_MAX:
                self._done.popitem(last=False)
        else:
            task = known
        try:
            return await asyncio.shield(task), known is not None
        except OncewireError:
            self._done.pop((session, word), None)
            raise


class Shown:
    """Partners' files that were shown to a session and wait for its yes, then the acceptances that
    were made of them. What was not shown cannot be meant."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[str, bytes]] = OrderedDict()

    def keep(self, session: str, digest: str, name: str, data: bytes) -> None:
        """Keep a file under the digest of what was shown."""
        self._kept[session, digest] = name, data
        self._kept.move_to_end((session, digest))
        while len(self._kept) > FILES_MAX:
            self._kept.popitem(last=False)

    def has(self, session: str, digest: str) -> bool:
        """Whether the acceptance of a file was made."""
        return bool(self._kept.get((session, digest), ("", b""))[0])

    def of(self, session: str, digest: str) -> tuple[str, bytes]:
        """The name and the bytes of one."""
        found = self._kept.get((session, digest))
        if found is None:
            raise NotHere(
                "this file was not shown here, or is forgotten",
                remedy="upload it, and compare what the page shows",
            )
        return found


class Trial(Struct):
    """A test of a partner: when it began, what it found, and why it could not be done."""

    began: Instant
    ended: Instant | None = None
    tried: tuple[Any, ...] = ()
    problem: str = ""


class Trials:
    """The last test of each partner."""

    def __init__(self) -> None:
        self._trials: OrderedDict[str, Trial] = OrderedDict()
        self._under_way: set[asyncio.Task[None]] = set()

    def of(self, partner: str) -> Trial | None:
        """The last test of a partner."""
        return self._trials.get(partner)

    def begin(self, partner: str, trying: Coroutine[Any, Any, Any], clock: Any) -> bool:
        """Begin a test; False where one is under way."""
        last = self._trials.get(partner)
        if last is not None and last.ended is None:
            trying.close()
            return False
        trial = self._trials[partner] = Trial(clock())
        self._trials.move_to_end(partner)
        while len(self._trials) > KEPT_MAX:
            self._trials.popitem(last=False)
        task = asyncio.create_task(self._run(trial, trying, clock))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return True

    async def _run(self, trial: Trial, trying: Coroutine[Any, Any, Any], clock: Any) -> None:
        try:
            trial.tried = tuple(await trying)
        except OncewireError as error:
            trial.problem = f"{error.problem}; {error.remedy}" if error.remedy else error.problem
        finally:
            trial.ended = clock()


# --- forms ---


FORM_MAX, FIELDS_MAX = 64 * 1024, 100
FORM_WITHIN = 10.0
"""Seconds in which a form must arrive completely."""

_UNREADABLE = "the form cannot be read"


def check_signed(session: Session, given: Mapping[str, str]) -> None:
    """Refuse a form that is not one of the session's own pages."""
    if not hmac.compare_digest(given.get("csrf", "").encode(), session.csrf.encode()):
        raise NotAllowed("the form is not one of this session", remedy="go back and load the page")


async def fields_of(request: Request) -> list[tuple[str, str]]:
    """The fields of a form, in order; TimeoutError where it comes too slowly."""
    body = await _body(request, "application/x-www-form-urlencoded", FORM_MAX)
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise InvalidValue(_UNREADABLE) from None


async def upload_of(request: Request) -> tuple[dict[str, str], bytes]:
    """The fields of a form, and the file that comes with it as its field `file`."""
    body = await _body(request, "multipart/form-data", FILE_MAX + FORM_MAX)
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode("latin-1")
    found: dict[str, bytes] = {}
    try:
        form = message_from_bytes(head + body)
        parts = form.get_payload() if form.is_multipart() else ()
        for part in cast("list[Message]", parts):
            name = part.get_param("name", header="content-disposition")
            data = part.get_payload(decode=True)
            if not isinstance(name, str) or not isinstance(data, bytes) or name in found:
                raise InvalidValue(_UNREADABLE, remedy="send the form of the page")
            found[name] = data
        data = found.pop("file", b"")
        given = {name: value.decode() for name, value in found.items()}
    except (ValueError, LookupError, TypeError, RecursionError):
        raise InvalidValue(_UNREADABLE, remedy="send the form of the page") from None
    if not data:
        raise InvalidValue("no file was chosen, or it is empty", remedy="choose the partner's file")
    if len(data) > FILE_MAX:
        raise _too_large(FILE_MAX)
    return given, data


async def _body(request: Request, kind: str, limit: int) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0].strip() != kind:
        raise InvalidValue("the body is no form", remedy="send the form of the page")
    body = b""
    # Anybody may send one: no place is kept for long.
    async with asyncio.timeout(FORM_WITHIN):
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise _too_large(limit)
    return body


def _too_large(limit: int) -> InvalidValue:
    return InvalidValue(f"the form has more than {limit} bytes", remedy="choose a smaller file")
