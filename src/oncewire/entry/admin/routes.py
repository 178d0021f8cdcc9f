"""Routes of the admin port: what each needs and does, who may call it, and the page of OpenAPI 3.1
that tells all of them; with those by which partners meet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
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
from oncewire.entry.admin.requests import (
    FORM_TYPES,
    MEDIA_TYPE,
    SCHEMA,
    Refused,
    flag,
    json_body,
    parameters,
    whole_body,
)
from oncewire.entry.admin.tokens import Token
from oncewire.entry.control.language import line_of
from oncewire.entry.control.values import FORMS
from oncewire.entry.control.verb import Argument, Permission
from oncewire.entry.control.verbs import MEANINGS, TABLE
from oncewire.entry.messages.submitting import SendOptions
from oncewire.entry.party import invitation
from oncewire.entry.party.folder import CARD_ENDING, FILE_MAX, KeyFiles, card_of, describe_keys
from oncewire.entry.party.invitation import Considered, consider
from oncewire.entry.party.partners import PartnerOptions, make_next_keys, switch_keys
from oncewire.entry.party.settings import Settings
from oncewire.errors import InvalidValue, NotAllowed, NotHere, OncewireError
from oncewire.handler.world import RealWorld
from oncewire.message.file_name import disposition

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

Answer = Callable[..., Awaitable[Response]]

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
        # Their answers want the object that answers as well.
        self._rows: list[Served] = []

    def route(
        self, method: str, path: str, permission: Permission | None, said: Operation
    ) -> Callable[[F], F]:
        """A route whose method makes the response of a request and its caller."""

        def add(answer: F) -> F:
            self._rows.append(Served(method, path, permission, answer, said))
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
            self._rows.append(Served("GET", path, Permission.LOOK, answer, said))
            return told

        return add

    def of(self, owner: object) -> tuple[Served, ...]:
        """The routes, answered by an object of that class."""
        return tuple(replace(row, answer=partial(row.answer, owner)) for row in self._rows)


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


# How partners meet over HTTP: our invitation and card, the files that partners send, our own
# key.
#
# A partner's file is sent twice. The first call answers what it would change, and writes nothing:
# people compare the fingerprint by another way. The second call names the digest of the file that
# was answered for, and writes what that answer said. Whose call it was is in the log.


logger = logging.getLogger("oncewire.admin")

T = TypeVar("T")

TOML = "application/toml"


def _schema_of(kind: type[Struct]) -> dict[str, Any]:
    """The JSON schema of a record."""
    _, found = msgspec.json.schema_components([kind])
    return dict(found[kind.__name__])


class Invited(Struct, frozen=True, forbid_unknown_fields=True):
    """What to agree, as `oncewire partner invite` is told it."""

    profile: str = "ebms2"
    cpa_id: str = ""
    insecure: bool = False
    sign: bool = False
    ordered: bool = False
    transports: tuple[str, ...] = ()


class Switched(Struct, frozen=True, forbid_unknown_fields=True):
    """Which key is to be used: the next one, by the fingerprint that `/keys` tells."""

    fingerprint: str


OPERATE = Permission.OPERATE
FILE = {TOML: {"type": "string"}}

MEETING = Table()
"""The routes by which partners meet."""


class Meeting:
    """Invitations, partners' files and keys of one party."""

    def __init__(self, settings: Settings, taken_over: Callable[[], Awaitable[None]]) -> None:
        self._settings, self._taken_over = settings, taken_over
        # What one call found to be in order is still so when it writes.
        self._changing = asyncio.Lock()

    # --- invitations and partners' files ---------------------------------------------------------

    @MEETING.route(
        "POST", "/invite", OPERATE,
        operation(
            "invite", "An invitation, to be sent on.", FILE,
            takes={"application/json": _schema_of(Invited)},
        ),
    )  # fmt: skip
    async def _invite(self, request: Request, caller: Token) -> Response:
        parameters(request, set())
        return _attached(*await self.invite(await json_body(request), caller.name))

    async def invite(self, given: dict[str, Any], by: str) -> tuple[str, str]:
        """Make an invitation: the name of its file, and its text."""
        said = _converted(given, Invited)
        signs = said.sign or not said.insecure
        options = PartnerOptions(
            said.profile, said.cpa_id, signs, said.ordered, said.insecure, said.transports
        )
        made = invitation.invite(self._settings, options)
        await asyncio.to_thread(invitation.keep, self._settings, made)
        self._log("an invitation was written", by, invitation=made.id)
        return made.file_name, made.to_toml()

    @MEETING.route(
        "POST", "/accept", OPERATE,
        operation(
            "accept",
            "What a partner's invitation, acceptance or card would change; with its digest: it is "
            "written.",
            JSON,
            query("digest", "SHA-256 of the file that was answered for."),
            query("insecure", "Without TLS or signatures, too.", "bool"),
            query("replace", "An agreement is written anew.", "bool"),
            takes={"application/octet-stream": BYTES},
        ),
    )  # fmt: skip
    async def _accept(self, request: Request, caller: Token) -> Response:
        given = parameters(request, {"digest", "insecure", "replace"})
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in FORM_TYPES:
            raise Refused(415, "media-type", f"a file is not sent as {kind}", "send it as it is")
        data = await whole_body(request, FILE_MAX)
        flags = {name: flag(given, name) for name in ("insecure", "replace")}
        if "digest" not in given:
            return answered(await self.consider(data, **flags))
        return answered(await self.accept(data, given["digest"], caller.name, **flags))

    async def consider(
        self, data: bytes, *, insecure: bool = False, replace: bool = False
    ) -> dict[str, Any]:
        """What a partner's file would change; nothing is written."""
        async with self._changing:
            found = await asyncio.to_thread(self._considered, data, insecure, replace)
        return _told(found, data, written=False)

    async def accept(
        self, data: bytes, digest: str, by: str, *, insecure: bool = False, replace: bool = False
    ) -> dict[str, Any]:
        """Write what a file says, if it is the one with that digest; a handler that runs takes it
        over at once."""
        if digest != sha256(data).hexdigest():
            raise NotAllowed(
                "the file is not the one that was looked at: it has another digest",
                remedy="send it without a digest, compare the fingerprint, and send it again with "
                "the digest that the answer has",
            )

        def write() -> Considered:
            found = self._considered(data, insecure, replace)
            found.write()
            return found

        async with self._changing:
            found = await asyncio.to_thread(write)
        card = found.card
        self._log(f"the {found.kind} of a partner was taken", by,
                  partner=card.name, fingerprint=card.fingerprint, sha256=digest)  # fmt: skip
        await self._tell()
        return _told(found, data, written=True)

    def _considered(self, data: bytes, insecure: bool, replace: bool) -> Considered:
        now = RealWorld().now()
        return consider(self._settings, data, now, insecure=insecure, replace_it=replace)

    @MEETING.route("GET", "/card", OPERATE, operation("card", "Our card, for partners.", FILE))
    async def _card(self, request: Request, _caller: Token) -> Response:
        parameters(request, set())
        return _attached(*await self.card())

    async def card(self) -> tuple[str, str]:
        """Our card: the name of its file, and its text."""
        own = await asyncio.to_thread(card_of, self._settings)
        return own.name + CARD_ENDING, own.to_toml()

    # --- our own key -----------------------------------------------------------------------------

    @MEETING.result("/keys", "keys", "Our certificate, and the next one if it is made.")
    async def keys(self) -> dict[str, Any]:
        """Our certificate, and the next one if it is made."""
        return await asyncio.to_thread(self._described)

    def _described(self) -> dict[str, Any]:
        certificate, key = self._settings.next_key_files
        made = describe_keys(certificate, key) if certificate.is_file() else None
        return {
            **_pair(describe_keys(*self._settings.key_files)),
            "next": None if made is None else _pair(made),
        }

    @MEETING.route(
        "POST", "/keys/next", OPERATE,
        operation("keys_next", "Make the key that follows ours.", JSON),
    )  # fmt: skip
    async def _next_key(self, request: Request, caller: Token) -> Response:
        if await json_body(request):
            raise InvalidValue("nothing is given here", remedy="send no body")
        return answered(await self.next_key(caller.name))

    async def next_key(self, by: str) -> dict[str, Any]:
        """Make the key that follows ours. Nothing changes yet but our card."""
        async with self._changing:
            now = RealWorld().now()
            made = await asyncio.to_thread(make_next_keys, self._settings, now)
        self._log("the next key was made", by, fingerprint=made.fingerprint)
        return _pair(made)

    @MEETING.route(
        "POST", "/keys/switch", OPERATE,
        operation(
            "keys_switch", "Use the next key from now on.", JSON,
            takes={"application/json": _schema_of(Switched)},
        ),
    )  # fmt: skip
    async def _switch_key(self, request: Request, caller: Token) -> Response:
        said = _converted(await json_body(request), Switched)
        return answered(await self.switch_key(said.fingerprint, caller.name))

    async def switch_key(self, fingerprint: str, by: str) -> dict[str, Any]:
        """Use the next key from now on, if it is the one with that fingerprint."""

        def switch() -> KeyFiles:
            following = self._described()["next"]
            if following is None:
                raise NotHere("there is no next key", remedy="make one, and give partners our card")
            if fingerprint != following["fingerprint"]:
                raise NotAllowed(
                    f"the next key has the fingerprint {following['fingerprint']}",
                    remedy="look at it, and whether partners have it, then name that fingerprint",
                )
            return switch_keys(self._settings)

        async with self._changing:
            used = await asyncio.to_thread(switch)
        self._log("the next key is ours now", by, fingerprint=used.fingerprint)
        await self._tell()
        return _pair(used)

    async def _tell(self) -> None:
        """Have the handler read its files at once. One that does not answer looks at them by
        itself, and what was written must be answered: an acceptance is made once."""
        try:
            await self._taken_over()
        except OncewireError as error:
            logger.warning("the handler was not told", extra={"problem": error.problem})

    def _log(self, what: str, by: str, **facts: str) -> None:
        logger.info(what, extra={"by": by, **facts})


def _told(found: Considered, data: bytes, *, written: bool) -> dict[str, Any]:
    """What a file changes, in the words of its answer."""
    facts = {**found.facts(), "digest": sha256(data).hexdigest(), "written": written}
    return facts | ({"file_name": found.file_name, "acceptance": found.reply} if written else {})


def _pair(keys: KeyFiles) -> dict[str, Any]:
    return {"fingerprint": keys.fingerprint, "subject": keys.subject, "ends": keys.not_after}


def _converted(given: dict[str, Any], kind: type[T]) -> T:
    """A JSON object as the values that are asked for."""
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise InvalidValue(str(error)[:200], remedy="/openapi.json says what is asked") from None


def _attached(name: str, text: str) -> Response:
    return Response(text, 200, dict(disposition(name)), TOML)
