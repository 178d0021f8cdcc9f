"""Routes of the admin port: what each needs and does, who may call it, and the page of OpenAPI 3.1
that tells all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from oncewire import __version__
from oncewire.entry.admin.form import (
    IDEMPOTENCY,
    KEY_MAX,
    MESSAGES,
    TakenMessage,
    VerbForm,
    from_query,
)
from oncewire.entry.admin.requests import MEDIA_TYPE, SCHEMA, Refused, parameters
from oncewire.entry.admin.tokens import Token
from oncewire.entry.control.language import line_of
from oncewire.entry.control.values import FORMS
from oncewire.entry.control.verb import Argument, Permission
from oncewire.entry.control.verbs import MEANINGS, TABLE
from oncewire.entry.messages.submitting import SendOptions
from oncewire.entry.party.settings import Settings

TYPES: dict[str, Any] = {
    verb.returns: list[TakenMessage] if verb.returns == MESSAGES else FORMS[verb.returns].kind  # type: ignore[valid-type]
    for verb in TABLE.values()
}
"""What the results of verbs are in Python, by their annotation."""

_KINDS: dict[str, dict[str, Any]] = {
    "str": {"type": "string", "minLength": 1, "maxLength": 4096},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
}

Operation = dict[str, Any]
_REF = "#/components/schemas/{name}"

MESSAGE_ID: Operation = {
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
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_REF)
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
            "schemas": {**schemas, "Problem": SCHEMA},
            "responses": {
                "Problem": {
                    "description": "What is wrong, and what to do next (RFC 9457).",
                    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def verb_operation(form: VerbForm) -> Operation:
    """The OpenAPI operation of a verb."""
    verb = form.verb
    summary, _, more = verb.help.partition("\n")
    (result,), _ = msgspec.json.schema_components([TYPES[verb.returns]], ref_template=_REF)
    said: Operation = {
        "operationId": verb.name,
        "summary": summary,
        "description": more.strip(),
        "parameters": [MESSAGE_ID] if form.about_message else [],
        "responses": {"200": _result_of(result, "Done.")},
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


def _result_of(schema: Any, says: str) -> Operation:
    """The answer that holds a result."""
    body = {"type": "object", "required": ["result"], "properties": {"result": schema}}
    return {"description": says, "content": {"application/json": {"schema": body}}}


def _schema(argument: Argument) -> dict[str, Any]:
    """The JSON schema of an argument."""
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
    schema = {**_KINDS[kind], **more}
    return {"name": name, "in": "query", "required": False, "description": says, "schema": schema}


def in_path(name: str, kind: str = "string") -> Operation:
    """A part of the path that is no MessageId."""
    return {"name": name, "in": "path", "required": True, "schema": {"type": kind}}


JSON: Operation = {"application/json": {}}
TEXT: Operation = {"text/plain": {"type": "string"}}
BYTES: Operation = {"type": "string", "format": "binary"}


def operation(
    name: str,
    summary: str,
    media_types: Mapping[str, Any],
    *parameters: Operation,
    takes: Mapping[str, Any] | None = None,
) -> Operation:
    """The OpenAPI operation of any other route, with the media types that it answers and
    `takes`."""
    content = {each: {"schema": schema} for each, schema in media_types.items()}
    said: Operation = {
        "operationId": name,
        "summary": summary,
        "parameters": list(parameters),
        "responses": {"200": {"description": summary, "content": content}},
    }
    if takes is not None:
        body = {each: {"schema": schema} for each, schema in takes.items()}
        said["requestBody"] = {"required": True, "content": body}
    return said


def upload_operation() -> Operation:
    """The OpenAPI operation that submits documents."""
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
    said = operation(
        "send",
        "Hand documents in: they are stored when this answers, and sent from then on.",
        {},
        query("to", "The partner's name or PartyId."),
        query("cpa_id", "Or the CPAId of the agreement."),
        query("file_name", "What the document is called."),
        *options,
        key,
        takes={"application/octet-stream": BYTES, "multipart/mixed": BYTES},
    )
    said["requestBody"] |= {
        "description": "One document, whose media type is the Content-Type; several as "
        "multipart/mixed.",
        "required": False,
    }
    ids = {"message_id": {"type": "string"}, "conversation_id": {"type": "string"}}
    schema = {"type": "object", "required": list(ids), "properties": ids}
    said["responses"] = {"201": _result_of(schema, "Stored.")}
    return said


def payload_operation() -> Operation:
    """The OpenAPI operation that fetches a document of a message."""
    said = operation(
        "payload",
        "A document of a message that was sent or received; Range is understood.",
        # It has the media type that it was given.
        {"*/*": {}},
        MESSAGE_ID,
        in_path("number", "integer"),
        query("sender", "Whose message it is, where two partners used one id."),
    )
    said["responses"]["206"] = {"description": "A range of it.", "content": {"*/*": {"schema": {}}}}
    return said


# --- what is served ------------------------------------------------------------------------------

Answer = Callable[[Request, Token], Awaitable[Response]]

F = TypeVar("F", bound=Callable[..., Any])

NOBODY = Token("", frozenset(), "")
"""The caller of an open route."""


@dataclass(frozen=True, slots=True)
class Served:
    """One route: what it needs, what it does, and what the OpenAPI page says of it."""

    method: str
    path: str
    permission: Permission | None
    answer: Answer
    operation: Operation
    # A page of the console: a browser's session stands for a token, and errors are pages.
    page: bool = False


class Table:
    """The routes of a class, each written above the method that answers it."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, Permission | None, Callable[..., Any], Operation]] = []

    def route(
        self, method: str, path: str, permission: Permission | None, said: Operation
    ) -> Callable[[F], F]:
        """A route whose method makes the response of a request and its caller."""

        def add(answer: F) -> F:
            self._rows.append((method, path, permission, answer, said))
            return answer

        return add

    def result(self, path: str, name: str, summary: str, *places: str) -> Callable[[F], F]:
        """A route for those who may look, which answers what its method returns, by the places of
        its path."""

        def add(told: F) -> F:
            async def answer(owner: Any, request: Request, _caller: Token) -> Response:
                parameters(request, set())
                return answered(await told(owner, **request.path_params))

            said = operation(name, summary, JSON, *map(in_path, places))
            self._rows.append(("GET", path, Permission.LOOK, answer, said))
            return told

        return add

    def of(self, owner: object) -> tuple[Served, ...]:
        """The routes, answered by an object of that class."""
        return tuple(
            Served(method, path, permission, partial(answer, owner), said)
            for method, path, permission, answer, said in self._rows
        )


def hosts_of(settings: Settings) -> frozenset[str]:
    """The names under which the port is reached, with its number and without."""
    port = settings.admin.port
    names = {"localhost", "127.0.0.1", "[::1]", *settings.admin.names}
    host = settings.admin.host
    names.add(f"[{host}]" if ":" in host else host)
    return frozenset(name for each in map(str.lower, names) for name in (each, f"{each}:{port}"))


def netloc(origin: str) -> str:
    """The host and port of an origin; empty: it is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def check_role(caller: Token, permission: Permission | None) -> None:
    """Refuse a token that does not have a role."""
    if permission is not None and not caller.may(permission):
        raise Refused(
            403,
            "role",
            f"{caller.name} does not have the role {permission.value}",
            f"use a token that has it, or `oncewire console --role {permission.value}`",
        )


def route_of(served: Served) -> Route:
    """The route as Starlette matches it."""

    async def nothing(request: Request) -> Response:  # noqa: ARG001
        return Response()

    # An id may hold what a path is divided by.
    path = served.path.replace("{message_id}", "{message_id:path}")
    return Route(path, nothing, methods=[served.method])


def answered(value: Any, status: int = 200) -> Response:
    """The answer that holds a result."""
    return Response(line_of({"result": value}), status, media_type="application/json")


def query_of(request: Request, asked: VerbForm) -> dict[str, Any]:
    """The arguments of a verb in a query; what is not an argument is left for `bind` to refuse."""
    known = {argument.name: argument for argument in asked.verb.arguments}
    return {
        name: from_query(known[name], texts) if name in known else texts
        for name in request.query_params
        for texts in [request.query_params.getlist(name)]
    }
