"""The OpenAPI 3.1 page of the admin port, made from the definitions that its routes are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import msgspec

from oncewire import __version__
from oncewire.entry.admin import problems
from oncewire.entry.admin.form import IDEMPOTENCY, KEY_MAX, MESSAGES, TakenMessage, VerbForm
from oncewire.entry.control.verb import Argument, Permission
from oncewire.entry.control.verbs import MEANINGS, Status
from oncewire.entry.messages.details import MessageDetails
from oncewire.entry.messages.listing import MessagePage
from oncewire.entry.messages.outlook import Trouble
from oncewire.entry.messages.story import Story
from oncewire.entry.messages.submitting import SendOptions
from oncewire.entry.watching.channels import ChannelView
from oncewire.entry.watching.overview import Overview, Readiness
from oncewire.handler.actions import Accepted, Notice
from oncewire.handler.runtime.trying import Tried
from oncewire.journal.outcome import Outcome
from oncewire.message.envelope import StatusResponse

TYPES: dict[str, Any] = {
    "None": None,
    "str": str,
    "list[str]": list[str],
    "int": int,
    "bool": bool,
    "Accepted": Accepted,
    "Outcome | None": Outcome | None,
    MESSAGES: list[TakenMessage],  # type: ignore[valid-type]
    "list[Notice]": list[Notice],
    "StatusResponse | None": StatusResponse | None,
    "list[Tried]": list[Tried],
    "Status": Status,
    "MessagePage": MessagePage,
    "Story": Story,
    "MessageDetails": MessageDetails,
    "list[Trouble]": list[Trouble],
    "list[ChannelView]": list[ChannelView],
    "Overview": Overview,
    "Readiness": Readiness,
}
"""What the results of verbs are in Python, by their annotation."""

_KINDS: dict[str, dict[str, Any]] = {
    "str": {"type": "string", "minLength": 1, "maxLength": 4096},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
}

Operation = dict[str, Any]

_MESSAGE_ID: Operation = {
    "name": "message_id",
    "in": "path",
    "required": True,
    "description": MEANINGS["message_id"].help,
    "schema": _KINDS["str"],
}
"""The message that a path is about."""


def page(operations: Iterable[tuple[str, str, Permission | None, Operation]]) -> dict[str, Any]:
    """The whole page, of (path, method, permission, operation)."""
    paths: dict[str, dict[str, Operation]] = {}
    for path, method, permission, operation in operations:
        said = dict(operation)
        said["x-permission"] = "open" if permission is None else permission.value
        said["security"] = [] if permission is None else [{"token": []}]
        said.setdefault("responses", {})["default"] = {"$ref": "#/components/responses/Problem"}
        paths.setdefault(path, {})[method.lower()] = said
    kinds = [kind for kind in TYPES.values() if kind is not None]
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Oncewire",
            "version": __version__,
            "description": "The verbs of a party over HTTP. `x-permission` is the role that a "
            "token needs.",
        },
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Problem": problems.SCHEMA},
            "responses": {
                "Problem": {
                    "description": "What is wrong, and what to do next (RFC 9457).",
                    "content": {
                        problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}
                    },
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def verb_operation(form: VerbForm) -> Operation:
    """What is said of a verb."""
    verb = form.verb
    summary, _, more = verb.help.partition("\n")
    said: Operation = {
        "operationId": verb.name,
        "summary": summary,
        "description": more.strip(),
        "parameters": [_MESSAGE_ID] if form.about_message else [],
        "responses": {"200": _answer(verb.returns)},
    }
    if form.reads:
        said["parameters"] += [
            {
                "name": argument.name,
                "in": "query",
                "required": argument.required,
                "description": MEANINGS[argument.name].help,
                "schema": _schema(argument),
            }
            for argument in form.arguments
        ]
    elif form.arguments:
        schema = {
            "type": "object",
            "properties": {argument.name: _schema(argument) for argument in form.arguments},
            "required": [argument.name for argument in form.arguments if argument.required],
            "additionalProperties": False,
        }
        said["requestBody"] = {
            "required": any(argument.required for argument in form.arguments),
            "content": {"application/json": {"schema": schema}},
        }
    return said


def _answer(returns: str) -> Operation:
    """The answer of a verb that returns this."""
    kind = TYPES[returns]
    (schema,), _ = msgspec.json.schema_components(
        [kind], ref_template="#/components/schemas/{name}"
    )
    body = {"type": "object", "required": ["result"], "properties": {"result": schema}}
    return {"description": "Done.", "content": {"application/json": {"schema": body}}}


def _schema(argument: Argument) -> dict[str, Any]:
    """What is said of an argument."""
    meaning = MEANINGS[argument.name]
    kind = argument.type.removesuffix(" | None")
    said: dict[str, Any] = {"description": meaning.help}
    if kind.startswith(("list", "tuple")):
        said |= {"type": "array", "items": _KINDS["str"]}
    else:
        said |= _KINDS.get(kind, {})
    if meaning.least is not None and "type" in said:
        said["minimum"] = meaning.least
    if argument.default is not None and not argument.required:
        said["default"] = argument.default
    return said


def query(name: str, says: str, kind: str = "str", **more: Any) -> Operation:
    """A parameter of the query that is no argument of a verb."""
    return {
        "name": name,
        "in": "query",
        "required": False,
        "description": says,
        "schema": {**_KINDS[kind], **more},
    }


def stream_operation(
    name: str, summary: str, media_types: Mapping[str, Any], *parameters: Operation
) -> Operation:
    """What is said of an answer that is no result of a verb."""
    content = {each: {"schema": schema} for each, schema in media_types.items()}
    return {
        "operationId": name,
        "summary": summary,
        "parameters": list(parameters),
        "responses": {"200": {"description": summary, "content": content}},
    }


def upload_operation() -> Operation:
    """What is said of handing documents in."""
    body = {"schema": {"type": "string", "format": "binary"}}
    key = {
        "name": IDEMPOTENCY,
        "in": "header",
        "required": False,
        "description": "The same key with the same content is sent once, and answered the same.",
        "schema": {"type": "string", "minLength": 1, "maxLength": KEY_MAX, "pattern": "^[!-~]+$"},
    }
    options = [
        query(each.name, "See SendOptions.", "bool" if each.type == "bool" else "str")
        for each in fields(SendOptions)
    ]
    said = stream_operation(
        "send",
        "Hand documents in: they are stored when this answers, and sent from then on.",
        {},
        query("to", "The partner's name or PartyId."),
        query("cpa_id", "Or the CPAId of the agreement."),
        query("file_name", "What the document is called."),
        *options,
        key,
    )
    said["requestBody"] = {
        "description": "One document, whose media type is the Content-Type; several as "
        "multipart/mixed.",
        "required": False,
        "content": {"application/octet-stream": body, "multipart/mixed": body},
    }
    schema = {
        "type": "object",
        "required": ["message_id", "conversation_id"],
        "properties": {"message_id": {"type": "string"}, "conversation_id": {"type": "string"}},
    }
    result = {"type": "object", "required": ["result"], "properties": {"result": schema}}
    said["responses"] = {
        "201": {"description": "Stored.", "content": {"application/json": {"schema": result}}}
    }
    return said


def evidence_operation() -> Operation:
    """What is said of the evidence of a message."""
    zipped = {"application/zip": {"type": "string", "format": "binary"}}
    says = "What proves that a message was sent and received, for others to check."
    return stream_operation("evidence", says, zipped, _MESSAGE_ID)


def payload_operation() -> Operation:
    """What is said of a document of a message."""
    said = stream_operation(
        "payload",
        "A document of a message that was sent or received; Range is understood.",
        {"application/octet-stream": {"type": "string", "format": "binary"}},
        _MESSAGE_ID,
        {"name": "number", "in": "path", "required": True, "schema": {"type": "integer"}},
        query("sender", "Whose message it is, where two partners used one id."),
    )
    # It has the media type that it was given.
    said["responses"]["200"]["content"] = {"*/*": {"schema": {}}}
    said["responses"]["206"] = {"description": "A range of it.", "content": {"*/*": {"schema": {}}}}
    return said
