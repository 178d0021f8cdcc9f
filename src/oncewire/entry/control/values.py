"""Values on the control socket: how the arguments and the results of verbs are written as JSON,
and as bytes beside it where they carry payloads. A type is known by its annotation in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from inspect import BoundArguments
from typing import Any

from oncewire.entry.control.language import ControlFrame, unreadable
from oncewire.entry.control.verb import Verb
from oncewire.entry.control.verbs import MEANINGS, Status
from oncewire.entry.delivery.received_message import (
    ReceivedMessage,
    content,
    message_from,
    notice_facts,
    notice_from,
)
from oncewire.errors import InvalidValue
from oncewire.handler.sending.submit import Accepted, Submission
from oncewire.journal.outcome import Outcome
from oncewire.message.ids import Service
from oncewire.message.payload import Payload
from oncewire.message.status import MessageStatus, StatusResponse

Parts = list[bytes]


@dataclass(frozen=True, slots=True)
class ValueForm:
    """How values of one type travel; payloads are put behind the parts, and taken from before."""

    write: Callable[[Any, Parts], Any]
    read: Callable[[Any, Parts], Any]


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
            given.arguments[argument.name] = _within_bounds(argument.name, value)
    if parts:
        raise unreadable(f"{len(parts)} payloads that the arguments do not name")
    return given


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


def _within_bounds(name: str, value: Any) -> Any:
    meaning = MEANINGS[name]
    if meaning.least is not None:
        value = max(meaning.least, value)
    return value if meaning.most is None else min(meaning.most, value)


# --- forms -------------------------------------------------------------------------------------


def _plain(*kinds: type) -> ValueForm:
    """What JSON has as it is. `True` is no number, and an empty text says nothing."""

    def read(value: Any, _parts: Parts) -> Any:
        if type(value) not in kinds or value == "":
            raise TypeError(repr(value)[:32])
        return value

    return ValueForm(lambda value, _parts: value, read)


def _or_none(form: ValueForm) -> ValueForm:
    return ValueForm(
        lambda value, parts: None if value is None else form.write(value, parts),
        lambda value, parts: None if value is None else form.read(value, parts),
    )


def _list_of(form: ValueForm) -> ValueForm:
    return ValueForm(
        lambda values, parts: [form.write(value, parts) for value in values],
        lambda values, parts: [form.read(value, parts) for value in list(values)],
    )


def _write_submission(submission: Submission, parts: Parts) -> dict[str, Any]:
    parts += [content(payload) for payload in submission.payloads]
    return {
        "cpa_id": submission.cpa_id,
        "service": submission.service.value,
        "service_type": submission.service.type,
        "action": submission.action,
        "payloads": [[payload.content_id, payload.media_type] for payload in submission.payloads],
        "conversation_id": submission.conversation_id,
        "message_id": submission.message_id,
        "ref_to_message_id": submission.ref_to_message_id,
        "time_to_live": submission.time_to_live,
        "best_effort": submission.best_effort,
    }


def _read_submission(facts: Mapping[str, Any], parts: Parts) -> Submission:
    rest = dict(facts)
    payloads = tuple(
        Payload.of(content_id, media_type, parts.pop(0))
        for content_id, media_type in rest.pop("payloads")
    )
    service = Service(rest.pop("service"), rest.pop("service_type"))
    return Submission(service=service, payloads=payloads, **rest)


def _write_message(message: ReceivedMessage, parts: Parts) -> dict[str, Any]:
    parts += [content(payload) for payload in message.payloads]
    return message.facts()


def _read_message(facts: Mapping[str, Any], parts: Parts) -> ReceivedMessage:
    contents = [parts.pop(0) for _ in facts["payloads"]]
    return message_from(facts, contents)


_STATUS = {each.name for each in fields(Status)}

_WORD = ValueForm(
    lambda outcome, _parts: outcome.value,
    lambda word, _parts: Outcome(word),
)
_NOTICE = ValueForm(
    lambda notice, _parts: notice_facts(notice),
    lambda facts, _parts: notice_from(facts),
)
_RESPONSE = ValueForm(
    lambda said, _parts: [said.ref_to_message_id, said.status.value, said.timestamp],
    lambda said, _parts: StatusResponse(said[0], MessageStatus(said[1]), said[2]),
)

FORMS: dict[str, ValueForm] = {
    "None": ValueForm(lambda _value, _parts: None, lambda _value, _parts: None),
    "str": _plain(str),
    "str | None": _or_none(_plain(str)),
    "int": _plain(int),
    "float": _plain(int, float),
    "bool": _plain(bool),
    "Submission": ValueForm(_write_submission, _read_submission),
    "Accepted": ValueForm(
        lambda accepted, _parts: asdict(accepted), lambda facts, _parts: Accepted(**facts)
    ),
    "Outcome | None": _or_none(_WORD),
    "list[ReceivedMessage]": _list_of(ValueForm(_write_message, _read_message)),
    "list[Notice]": _list_of(_NOTICE),
    "StatusResponse | None": _or_none(_RESPONSE),
    "Status": ValueForm(
        lambda status, _parts: asdict(status),
        lambda facts, _parts: Status(**{key: facts[key] for key in facts if key in _STATUS}),
    ),
}
"""Every type that a verb takes or returns, under its annotation."""
