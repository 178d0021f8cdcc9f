"""The form of verbs over HTTP: method, path and JSON of each, derived from its definition.

The server, the OpenAPI page and the Python client all ask here, so that they cannot differ. A verb
that only looks is a GET with its arguments in the query; any other is a POST with a JSON object.
Where one message is meant, its id stands in the path. `by` is never an argument: it is the name of
the token. An answer is `{"result": ...}`, in the words of the control socket.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import quote

from msgspec import UNSET, Struct, UnsetType, defstruct

from oncewire.entry.control.values import FORMS
from oncewire.entry.control.verb import Argument, Permission, Verb
from oncewire.entry.control.verbs import TABLE
from oncewire.entry.delivery.received_message import ReceivedMessage
from oncewire.errors import InvalidValue
from oncewire.message.payload import Content

UPLOADS = "/messages"
"""Where documents are handed in: `send` in the words of `SendOptions`, its documents the body."""

IDEMPOTENCY = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
KEY_MAX = 255

MESSAGES = "list[ReceivedMessage]"
"""The type of result that carries documents."""


@dataclass(frozen=True, slots=True)
class VerbForm:
    """The HTTP form of a verb."""

    verb: Verb[..., Any]

    @property
    def reads(self) -> bool:
        """Whether it is a GET."""
        return self.verb.permission is Permission.LOOK

    @property
    def method(self) -> str:
        """The method of HTTP."""
        return "GET" if self.reads else "POST"

    @property
    def about_message(self) -> bool:
        """Whether the id of a message stands in its path."""
        return any(
            argument.name == "message_id" and argument.required for argument in self.verb.arguments
        )

    @property
    def path(self) -> str:
        """Its path, with `{message_id}` where that stands."""
        word = self.verb.name.replace("_", "-")
        return f"{UPLOADS}/{{message_id}}/{word}" if self.about_message else f"/{word}"

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """What the caller gives beside the path."""
        left = {"by", "message_id"} if self.about_message else {"by"}
        return tuple(argument for argument in self.verb.arguments if argument.name not in left)

    @property
    def signed(self) -> bool:
        """Whether the token's name goes along. Who confirms by a token is the application itself,
        while `by` of a confirmation is a person in its place."""
        names = {argument.name for argument in self.verb.arguments}
        return "by" in names and self.verb.name != "confirm"

    @property
    def waits(self) -> bool:
        """Whether it may wait for something."""
        return any(argument.name == "timeout" for argument in self.verb.arguments)

    def filled(self, message_id: str) -> str:
        """The path for a message."""
        return self.path.replace("{message_id}", quote(message_id, safe=""))


VERB_FORMS = tuple(VerbForm(verb) for verb in TABLE.values() if verb.name != "send")
"""Every verb but `send`, whose documents are a body of their own."""


BY_NAME = {each.verb.name: each for each in VERB_FORMS}


def from_query(argument: Argument, texts: Sequence[str]) -> Any:
    """An argument as a query has it: a text, or several where a list is wanted."""
    kind = argument.type.removesuffix(" | None")
    if kind.startswith(("list", "tuple")):
        return list(texts)
    if len(texts) > 1:
        raise InvalidValue(f"{argument.name} is given {len(texts)} times", remedy="give it once")
    text = texts[0]
    try:
        return _QUERY.get(kind, str)(text)
    except (ValueError, KeyError):
        raise InvalidValue(
            f"{argument.name} is no {kind}: {text[:32]!r}", remedy=f"give {argument.name} as {kind}"
        ) from None


_QUERY: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "bool": {"true": True, "false": False}.__getitem__,
}


# --- messages that were taken --------------------------------------------------------------------


class TakenPayload(Struct, frozen=True):
    """A document of a message that was taken: small ones come along, all can be fetched."""

    content_id: str
    media_type: str
    file_name: str
    size: int
    sha256: str
    href: str
    data: str | UnsetType = UNSET


TakenMessage = defstruct(
    "TakenMessage",
    [
        (each.name, tuple[TakenPayload, ...] if each.name == "payloads" else _kind)
        for each in fields(ReceivedMessage)
        for _kind in [{"bool": bool, "str": str}.get(str(each.type), tuple[str, ...])]
    ],
)
"""A `ReceivedMessage` as JSON has it."""


def payload_path(message_id: str, number: int, sender: str = "") -> str:
    """Where a document of a message is fetched; `sender`: whose message it is, if it arrived."""
    asked = f"?sender={quote(sender, safe='')}" if sender else ""
    return f"{UPLOADS}/{quote(message_id, safe='')}/payloads/{number}{asked}"


def write_result(verb: Verb[..., Any], result: Any) -> Any:
    """A result as JSON has it."""
    parts: list[bytes | Content] = []
    written = FORMS[verb.returns].write(result, parts)
    if verb.returns != MESSAGES:
        return written
    for message in written:
        for number, payload in enumerate(message["payloads"], 1):
            payload["href"] = payload_path(message["message_id"], number, message["sender"])
            if payload.pop("lies", None) is None:
                part = parts.pop(0)
                payload["data"] = b64encode(part if isinstance(part, bytes) else b"").decode()
    return written


def read_result(
    verb: Verb[..., Any], written: Any, fetched: Mapping[str, Content] | None = None
) -> Any:
    """The result that an answer tells; `fetched`: documents that did not come along, by `href`."""
    parts: list[bytes | Content] = []
    for message in written if verb.returns == MESSAGES else ():
        for payload in message["payloads"]:
            href, data = payload.pop("href"), payload.pop("data", None)
            parts.append((fetched or {})[href] if data is None else b64decode(data))
    return FORMS[verb.returns].read(written, parts)
