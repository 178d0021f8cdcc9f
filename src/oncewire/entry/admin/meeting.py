"""How partners meet over HTTP: our invitation and card, the files that partners send, our own key.

A partner's file is sent twice. The first call answers what it would change, and writes nothing:
people compare the fingerprint by another way. The second call names the digest of the file that
was answered for, and writes what that answer said. Whose call it was is in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from oncewire.entry.admin.requests import (
    FORMS,
    Refused,
    flag,
    json_body,
    parameters,
    whole_body,
)
from oncewire.entry.admin.routes import BYTES, JSON, Table, answered, operation, query
from oncewire.entry.admin.tokens import Token
from oncewire.entry.control.verb import Permission
from oncewire.entry.party import invitation
from oncewire.entry.party.folder import CARD_ENDING, FILE_MAX, KeyFiles, card_of, describe_keys
from oncewire.entry.party.invitation import Considered, consider
from oncewire.entry.party.partners import (
    PartnerOptions,
    make_next_keys,
    next_files,
    switch_keys,
)
from oncewire.entry.party.settings import Settings
from oncewire.errors import InvalidValue, NotAllowed, NotHere, OncewireError
from oncewire.handler.world import RealWorld
from oncewire.message.file_name import disposition

logger = logging.getLogger("oncewire.admin")

T = TypeVar("T")

TOML = "application/toml"


def _schema(kind: type[Struct]) -> dict[str, Any]:
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
            takes={"application/json": _schema(Invited)},
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
        if kind in FORMS:
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
        keys, path = self._settings.keys, self._settings.path
        certificate, key = next_files(self._settings)
        made = describe_keys(certificate, key) if certificate.is_file() else None
        return {
            **_pair(describe_keys(path(keys.certificate), path(keys.key))),
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
            takes={"application/json": _schema(Switched)},
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
