"""Requests: what a call says in its query, body and Range, checked before anything is done."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import fields
from typing import Any, BinaryIO

from starlette.requests import Request

from oncewire.entry.admin import form, uploads
from oncewire.entry.admin.problems import Refused
from oncewire.entry.messages.submitting import SendOptions
from oncewire.errors import InvalidValue

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


def parameters(request: Request, known: set[str]) -> dict[str, str]:
    """The query, each name once; InvalidValue names what is not known."""
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known or name in found:
            raise InvalidValue(
                f"{name[:32]!r} is not known here, or given twice",
                remedy=f"give, once each: {', '.join(sorted(known)) or 'nothing'}",
            )
        found[name] = value
    return found


def query_of(request: Request, asked: form.VerbForm) -> dict[str, Any]:
    """The arguments of a verb in a query; what is not an argument is left for `bind` to refuse."""
    known = {argument.name: argument for argument in asked.verb.arguments}
    return {
        name: form.from_query(known[name], texts) if name in known else texts
        for name in request.query_params
        for texts in [request.query_params.getlist(name)]
    }


def send_query(request: Request) -> tuple[dict[str, Any], str]:
    """The options of a submission, and the name of its document."""
    truths = {each.name for each in fields(SendOptions) if each.type == "bool"}
    known = {each.name for each in fields(SendOptions)} | {"to", "cpa_id", "file_name"}
    given: dict[str, Any] = dict(parameters(request, known))
    for name in truths & set(given):
        if given[name] not in ("true", "false"):
            raise InvalidValue(f"{name} is no bool", remedy="say true or false")
        given[name] = given[name] == "true"
    return given, str(given.pop("file_name", ""))


async def json_body(request: Request) -> dict[str, Any]:
    """The JSON object of a request; an empty body is an empty one."""
    body = await uploads.whole_body(request)
    if not body:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refused(
            415, "media-type", "the body is not application/json", "send a JSON object as such"
        )
    try:
        given = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Refused(400, "no-json", "the body is no JSON", "send a JSON object") from None
    if not isinstance(given, dict):
        raise InvalidValue("the body is no object", remedy="send a JSON object")
    return given


def _no_number(word: str) -> None:
    raise ValueError(word)


def whole(given: dict[str, str], name: str, default: int) -> int:
    """A whole number of the query."""
    text = given.get(name, "")
    if name in given and not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidValue(f"{name} is no position: {text[:32]!r}", remedy="give a whole number")
    return int(text) if text else default


def stretch_of(request: Request, size: int, digest: str) -> tuple[int, int]:
    """Where the wanted bytes begin and end; several ranges at once are not served as such."""
    found = _RANGE.fullmatch(request.headers.get("range", ""))
    if found is None or request.headers.get("if-range", f'"{digest}"') != f'"{digest}"':
        return 0, size
    first, last = found.groups()
    if not first and not last:
        return 0, size
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= end:
        raise Refused(
            416, "range", f"the document has {size:,} bytes",
            headers={"Content-Range": f"bytes */{size}"},
        )  # fmt: skip
    return start, end


async def read_file(file: BinaryIO, left: int) -> AsyncIterator[bytes]:
    """So many bytes of a file, which is closed behind them."""
    try:
        while left and (piece := await asyncio.to_thread(file.read, min(left, 256 * 1024))):
            left -= len(piece)
            yield piece
    finally:
        await asyncio.to_thread(file.close)
