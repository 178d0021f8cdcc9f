"""Values on the control socket: how the arguments and the results of verbs are written as JSON,
and as bytes beside it where they carry payloads. A type is known by its annotation in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import BoundArguments
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from oncewire.entry.control.language import ControlFrame, Part, unreadable
from oncewire.entry.control.verb import Verb
from oncewire.entry.control.verbs import MEANINGS, Status
from oncewire.entry.delivery.received_message import (
    ReceivedMessage,
    content,
    message_from,
    notice_facts,
    notice_from,
)
from oncewire.entry.messages.listing import MessagePage
from oncewire.entry.messages.outlook import Trouble
from oncewire.entry.messages.story import MessageDetails, Story
from oncewire.entry.watching.snapshot import ChannelView, Overview, Readiness
from oncewire.errors import InvalidValue, NotHere
from oncewire.handler.actions import Accepted, Notice, Submission, is_no
from oncewire.handler.delivering.view import JoinedContent, PartContent
from oncewire.handler.runtime.trying import Tried
from oncewire.message.envelope import Payload, StatusResponse
from oncewire.message.file_name import disposition
from oncewire.message.ids import Service, check_text
from oncewire.message.payload import Content, DistantPayload
from oncewire.protocol.states import Outcome

# Arguments: what a verb may be given, checked in one place for every way to ask it.
#
# A program calls a verb with whatever it has, and another process writes whatever it likes into
# the control socket. Both come through here, so both hear the same: the argument that is wrong,
# and what it should be. What a Submission holds checks itself, where it is made.


TEXT_MAX = 4096
"""The longest text that a verb takes: ids are shorter, and a reason needs no more."""


def checked(verb: Verb[..., Any], given: BoundArguments) -> BoundArguments:
    """The arguments as the verb takes them; InvalidValue names the one that is wrong."""
    for argument in verb.arguments:
        if argument.name in given.arguments:
            value = given.arguments[argument.name]
            optional = argument.type.endswith(" | None")
            if not (optional and value is None):
                check = CHECKS[argument.type.removesuffix(" | None")]
                given.arguments[argument.name] = check(argument.name, value)
    return given


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise is_no(name, "str", value, "give it as a text that is not empty")
    return check_text(value, name, TEXT_MAX)


def _whole(name: str, value: Any) -> int:
    # To Python a truth is a number.
    if not isinstance(value, int) or isinstance(value, bool):
        raise is_no(name, "int", value, "give it as a whole number")
    least = MEANINGS[name].least
    if least is not None and value < least:
        # Its writer means something by it: all, or none. Here it has no meaning.
        raise InvalidValue(f"{name} is {value}", remedy=f"give a whole number, {least} or more")
    return int(_within_bounds(name, value))


def _number(name: str, value: Any) -> float:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if not known or (isinstance(value, float) and math.isnan(value)):
        raise is_no(name, "float", value, "give it as a number")
    return _within_bounds(name, value)


def _truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise is_no(name, "bool", value, "say true or false")
    return value


def _submission(name: str, value: Any) -> Submission:
    if not isinstance(value, Submission):
        raise is_no(name, "Submission", value, "give an oncewire.Submission")
    return value


def _within_bounds(name: str, value: float) -> float:
    meaning = MEANINGS[name]
    if meaning.least is not None:
        value = max(meaning.least, value)
    return value if meaning.most is None else min(meaning.most, value)


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "str": _text,
    "int": _whole,
    "float": _number,
    "bool": _truth,
    "Submission": _submission,
}
"""What is checked of each type that an argument may have, under its annotation."""


Parts = list[Part]


@dataclass(frozen=True, slots=True)
class ValueForm:
    """How values of one type travel; payloads are put behind the parts, and taken from before."""

    write: Callable[[Any, Parts], Any]
    read: Callable[[Any, Parts], Any]
    kind: Any = None
    """The type as JSON has it."""


# --- requests and answers ----------------------------------------------------------------------


def request_frame(verb: Verb[..., Any], given: BoundArguments) -> ControlFrame:
    """A call as a request."""
    parts: Parts = []
    arguments = {
        argument.name: FORMS[argument.type].write(given.arguments[argument.name], parts)
        for argument in verb.arguments
        if argument.name in given.arguments
    }
    return ControlFrame({"verb": verb.name, "arguments": arguments}, tuple(parts))


def read_request(verb: Verb[..., Any], frame: ControlFrame) -> BoundArguments:
    """The call that a request asks for; InvalidValue names the argument that is wrong."""
    found = frame.values.get("arguments", {})
    if not isinstance(found, dict):
        raise unreadable("the arguments are no object")
    given, parts = verb.bind(found), list(frame.parts)
    for argument in verb.arguments:
        if argument.name in found:
            value = _read(argument.type, found[argument.name], parts, argument.name)
            given.arguments[argument.name] = value
    if parts:
        raise unreadable(f"{len(parts)} payloads that the arguments do not name")
    return checked(verb, given)


def answer_frame(verb: Verb[..., Any], result: Any) -> ControlFrame:
    """A result as an answer."""
    parts: Parts = []
    written = FORMS[verb.returns].write(result, parts)
    return ControlFrame({"ok": True, "result": written}, tuple(parts))


def read_answer(verb: Verb[..., Any], frame: ControlFrame) -> Any:
    """The result that an answer tells."""
    return _read(verb.returns, frame.values.get("result"), list(frame.parts), "the answer")


def _read(kind: str, value: Any, parts: Parts, name: str) -> Any:
    try:
        return FORMS[kind].read(value, parts)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InvalidValue):
            raise
        raise unreadable(f"{name} is no {kind}: {str(error)[:100]}") from None


# --- forms -------------------------------------------------------------------------------------


def _plain(kind: Any) -> ValueForm:
    """What JSON has as it is; `checked` says what it may be."""
    return ValueForm(lambda value, _parts: value, lambda value, _parts: value, kind)


def _record(kind: Any) -> ValueForm:
    """A record, as JSON has it."""
    return ValueForm(
        lambda value, _parts: msgspec.to_builtins(value),
        lambda facts, _parts: msgspec.convert(facts, kind),
        kind,
    )


def _list_of(form: ValueForm, kind: Any) -> ValueForm:
    return ValueForm(
        lambda values, parts: [form.write(value, parts) for value in values],
        lambda values, parts: [form.read(value, parts) for value in list(values)],
        kind,
    )


def _write_submission(submission: Submission, parts: Parts) -> dict[str, Any]:
    parts += [
        (payload if isinstance(payload, DistantPayload) else content(payload))
        for payload in submission.payloads
    ]
    named = [
        [payload.content_id, payload.media_type, payload.file_name]
        for payload in submission.payloads
    ]
    service = {"service": submission.service.value, "service_type": submission.service.type}
    return {**msgspec.structs.asdict(submission), **service, "payloads": named}


_SUBMISSION = {*Submission.__struct_fields__} | {"service_type"}


def _read_submission(facts: Any, parts: Parts) -> Submission:
    if not isinstance(facts, dict):
        raise TypeError(repr(facts)[:32])
    for name in facts:
        if name not in _SUBMISSION:
            raise unreadable(f"a submission has no field {name[:32]!r}")
    for name in ("cpa_id", "service", "action"):
        if name not in facts:
            raise InvalidValue(f"submission: {name} is missing", remedy=f"give {name}")
    rest = dict(facts)
    payloads = tuple(_read_payload(named, parts) for named in _list(rest.pop("payloads", [])))
    service = Service(rest.pop("service"), rest.pop("service_type", None))
    return Submission(service=service, payloads=payloads, **rest)


def _read_payload(named: Any, parts: Parts) -> Payload:
    if not isinstance(named, list) or len(named) not in (2, 3):
        raise InvalidValue(
            f"payloads names {repr(named)[:32]}",
            remedy="name each payload by a list of its Content-ID, its media type and, if it has "
            "one, its file's name",
        )
    content_id, media_type, called = (*named, "")[:3]
    if not isinstance(called, str):
        raise InvalidValue(
            f"the file's name of a payload is {repr(called)[:32]}", remedy="give it as a text"
        )
    if not parts:
        raise unreadable(f"no bytes came for the payload {repr(named[0])[:64]}")
    part = parts.pop(0)
    if isinstance(part, bytes):
        return Payload.of(content_id, media_type, part, called)
    return DistantPayload(
        content_id, media_type, 0, "", content=part, mime_headers=disposition(called)
    )


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidValue(
            f"payloads is {repr(value)[:32]}", remedy="give a list with an entry for each payload"
        )
    return value


def _write_message(message: ReceivedMessage, parts: Parts) -> dict[str, Any]:
    facts = message.facts()
    for payload, described in zip(message.payloads, facts["payloads"], strict=True):
        lies = _place_of(payload)
        if lies is None:
            parts.append(content(payload))
        else:
            # Who may ask may read the file too.
            described["lies"] = lies
    return facts


def _place_of(payload: Payload) -> list[Any] | None:
    """Where a payload lies that does not come along."""
    if not isinstance(payload, DistantPayload):
        return None
    lies = payload.content
    if isinstance(lies, JoinedContent):
        every = [_place(piece) for piece in lies.pieces]
        return None if None in every else every
    return _place(lies) if isinstance(lies, PartContent) else None


def _place(lies: PartContent) -> list[Any] | None:
    return None if lies.path is None else [str(lies.path), lies.offset, lies.length, lies.encoding]


def _read_message(facts: Mapping[str, Any], parts: Parts) -> ReceivedMessage:
    contents: list[bytes | Content] = []
    for described in facts["payloads"]:
        lies = described.pop("lies", None)
        if lies is None:
            contents.append(parts.pop(0))
        elif isinstance(lies[0], list):
            contents.append(JoinedContent(tuple(_content_at(*each) for each in lies)))
        else:
            contents.append(_content_at(*lies))
    return message_from(facts, contents)


def _content_at(path: str, offset: int, length: int, encoding: str) -> PartContent:
    return PartContent(partial(_opened, Path(path)), offset, length, encoding, Path(path))


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise NotHere(
            f"the document's file {path} cannot be opened: {error.strerror}",
            remedy="read a document before its message is removed, as a user who may",
        ) from None


_MESSAGE = ValueForm(_write_message, _read_message)
_NOTICE = ValueForm(
    lambda notice, _parts: notice_facts(notice), lambda facts, _parts: notice_from(facts)
)

FORMS: dict[str, ValueForm] = {
    "None": _plain(None),
    "str": _plain(str),
    "str | None": _plain(str | None),
    "int": _plain(int),
    "float": _plain(float),
    "bool": _plain(bool),
    "Submission": ValueForm(_write_submission, _read_submission),
    "Accepted": _record(Accepted),
    "Outcome | None": _record(Outcome | None),
    "list[ReceivedMessage]": _list_of(_MESSAGE, list[ReceivedMessage]),
    "list[Notice]": _list_of(_NOTICE, list[Notice]),
    "StatusResponse | None": _record(StatusResponse | None),
    "MessagePage": _record(MessagePage),
    "Readiness": _record(Readiness),
    "MessageDetails": _record(MessageDetails),
    "Overview": _record(Overview),
    "Story": _record(Story),
    "list[ChannelView]": _record(list[ChannelView]),
    "list[Trouble]": _record(list[Trouble]),
    "list[Tried]": _record(list[Tried]),
    "Status": _record(Status),
}
"""Every type that a verb takes or returns, under its annotation."""
