"""Forms of pages: read within bounds of size and time, and taken from the session's own pages."""

from __future__ import annotations

import asyncio
import hmac
from email import message_from_bytes
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qsl

from oncewire.entry.party.folder import FILE_MAX
from oncewire.errors import InvalidValue, NotAllowed

if TYPE_CHECKING:
    from email.message import Message

    from starlette.requests import Request

    from oncewire.entry.console.sign_in import Session

FORM_MAX, FIELDS_MAX = 64 * 1024, 100
FORM_WITHIN = 10.0
"""Seconds in which a form has to be there."""

_UNREADABLE = "the form cannot be read"


def there(session: Session | None) -> Session:
    """The session; a page that needs none asks nothing in its name."""
    if session is None:
        raise NotAllowed("no one is signed in", remedy="`oncewire console` makes a link")
    return session


def signed(session: Session | None, given: dict[str, str]) -> Session:
    """The session, if the form is one of its own pages."""
    who = there(session)
    if not hmac.compare_digest(given.get("csrf", "").encode(), who.csrf.encode()):
        raise NotAllowed("the form is not one of this session", remedy="go back and load the page")
    return who


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
