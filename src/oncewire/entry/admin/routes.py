"""Routes of the admin port: what each needs and does, and who may call it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from oncewire.entry.admin import openapi
from oncewire.entry.admin.problems import Refused
from oncewire.entry.admin.tokens import Token
from oncewire.entry.control.verb import Permission
from oncewire.entry.party.settings import Settings

Answer = Callable[[Request, Token], Awaitable[Response]]

NOBODY = Token("", frozenset(), "")
"""Who calls a route that is open."""


@dataclass(frozen=True, slots=True)
class Served:
    """One route: what it needs, what it does, and what the OpenAPI page says of it."""

    method: str
    path: str
    permission: Permission | None
    answer: Answer
    operation: openapi.Operation
    # A page of the console: a browser's session stands for a token, and errors are pages.
    page: bool = False


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


def check_role(caller: Token, served: Served) -> None:
    """Refuse a token that has not the role of a route."""
    if served.permission is not None and not caller.may(served.permission):
        raise no_role(caller, served.permission)


def no_role(caller: Token, permission: Permission) -> Refused:
    """What is told to a caller without a role."""
    return Refused(
        403,
        "role",
        f"{caller.name} does not have the role {permission.value}",
        f"use a token that has it, or `oncewire console --role {permission.value}`",
    )


def route_of(served: Served) -> Route:
    """How Starlette knows the path of a route."""

    async def nothing(request: Request) -> Response:  # noqa: ARG001
        return Response()

    # An id may hold what a path is divided by.
    path = served.path.replace("{message_id}", "{message_id:path}")
    return Route(path, nothing, methods=[served.method])


def as_json(value: Any) -> bytes:
    """A value as JSON, whatever its texts hold."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def answered(value: Any, status: int = 200) -> Response:
    """The answer that holds a result."""
    return Response(as_json({"result": value}), status, media_type="application/json")
