"""Tokens of the admin port: who may call, and in which roles.

A token is 256 random bits, shown once. What is kept is its SHA-256, in a file that only its owner
can read: a guess costs as much as guessing the token, so a slow hash would protect nothing.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from oncewire.entry.control.verb import Permission
from oncewire.entry.files import PRIVATE, locked, read_text, version_of, write_new
from oncewire.errors import InvalidValue, NotAllowed, NotHere
from oncewire.message.ids import check_id

MARK = "ow_"
"""How a token begins, so that a person who finds one in a file knows what it is."""

NAME_MAX = 64


class Token(Struct, frozen=True):
    """One token, without the secret: its name, its roles and the hash it is known by."""

    name: str
    roles: frozenset[Permission]
    hash: str

    def may(self, permission: Permission) -> bool:
        """Whether it has that role."""
        return permission in self.roles


class TokenFile:
    """The tokens of a party. The file is looked at with every question, so that a token which is
    removed is refused from that moment on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] | None = None
        self._known: dict[str, Token] = {}

    def tokens(self) -> list[Token]:
        """All tokens, by name."""
        return sorted(self._read().values(), key=lambda token: token.name)

    def find(self, secret: str) -> Token | None:
        """The token with that secret."""
        return self._read().get(_hash(secret))

    def add(self, name: str, roles: Iterable[Permission]) -> str:
        """Make a token; returns its secret, which is kept nowhere."""
        check_id(name, "the token's name")
        if len(name) > NAME_MAX or not name.isprintable() or " " in name:
            raise InvalidValue(
                f"the token's name {name[:NAME_MAX]!r} cannot be used",
                remedy=f"use up to {NAME_MAX} printable characters without spaces",
            )
        given = frozenset(roles)
        if not given:
            raise InvalidValue(
                "the token has no role", remedy=f"give --role: {', '.join(Permission)}"
            )
        secret = MARK + secrets.token_urlsafe(32)
        with locked(self._path):
            known = self.tokens()
            if any(token.name == name for token in known):
                raise NotAllowed(
                    f"there is a token {name} already",
                    remedy=f"choose another name, or `oncewire token remove {name}` first",
                )
            self._write([*known, Token(name, given, _hash(secret))])
        return secret

    def remove(self, name: str) -> None:
        """Forget a token: who has it is refused from now on."""
        with locked(self._path):
            known = self.tokens()
            left = [token for token in known if token.name != name]
            if len(left) == len(known):
                there = ", ".join(token.name for token in known) or "none"
                raise NotHere(
                    f"there is no token {name[:NAME_MAX]!r}", remedy=f"there are: {there}"
                )
            self._write(left)

    def _read(self) -> dict[str, Token]:
        """The tokens by hash, as the file says now."""
        version = version_of(self._path)
        if version is None:
            self._seen, self._known = None, {}
        elif version != self._seen:
            self._known, self._seen = self._parsed(), version
        return self._known

    def _parsed(self) -> dict[str, Token]:
        try:
            said = json.loads(read_text(self._path, "tokens"))
            tokens = [
                Token(name, frozenset(map(Permission, each["roles"])), str(each["sha256"]))
                for name, each in said.items()
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidValue(
                f"{self._path} holds no tokens: {error}",
                remedy="put it back from a backup, or remove it and make the tokens anew",
            ) from None
        return {token.hash: token for token in tokens}

    def _write(self, tokens: Iterable[Token]) -> None:
        said = {
            token.name: {"roles": sorted(token.roles), "sha256": token.hash} for token in tokens
        }
        write_new(self._path, json.dumps(said, indent=1) + "\n", PRIVATE, replace=True)


def _hash(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
