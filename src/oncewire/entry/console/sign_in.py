"""Sign-in to the console: links that are used once, and the sessions that they become.

`oncewire console` makes a link; the process of the admin port lets it be used once, within
minutes, and keeps the session of the browser that used it. Of both only hashes are kept, in a file
that only its owner can read, so that a session outlives a restart of the handler. A session has
roles as a token has: `read` always, others if the link was made with them.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from oncewire.entry.control.verb import Permission
from oncewire.entry.files import PRIVATE, locked, read_text, version_of, write_new
from oncewire.errors import InvalidValue
from oncewire.message.instant import Duration, Instant

NAME_MAX = 64
KEPT_MAX = 1_000
"""Links and sessions that are kept; beyond it the oldest are dropped."""


class Pass(Struct, frozen=True):
    """A link or a session, without its secret: whose it is, in which roles, and until when."""

    name: str
    roles: tuple[str, ...]
    until: Instant


class _Kept(Struct):
    """The file: links and sessions by the hashes of their secrets."""

    links: dict[str, Pass] = {}
    sessions: dict[str, Pass] = {}


class Session(Struct, frozen=True):
    """A browser that is signed in: whose it is, its roles, and the word that its forms carry."""

    name: str
    roles: frozenset[Permission]
    hash: str
    csrf: str
    until: Instant

    def may(self, role: str) -> bool:
        """Whether it has that role."""
        return role in self.roles


class SignIns:
    """The links and sessions of a party."""

    def __init__(self, path: Path, link_for: Duration, session_for: Duration) -> None:
        self._path, self._link_for, self._session_for = path, link_for, session_for
        self._seen: tuple[int, ...] | None = None
        self._kept = _Kept()

    def add_link(self, name: str, roles: Iterable[Permission], now: Instant) -> str:
        """Make a link; returns its secret, which is kept nowhere."""
        if not name.isprintable() or not 0 < len(name) <= NAME_MAX:
            raise InvalidValue(
                f"the name {name[:NAME_MAX]!r} cannot be used",
                remedy=f"use up to {NAME_MAX} printable characters",
            )
        secret = secrets.token_urlsafe(32)
        given = tuple(sorted({Permission.LOOK, *roles}))
        with self._changed(now) as kept:
            kept.links[_hash(secret)] = Pass(name, given, now + self._link_for)
        return secret

    def use_link(self, secret: str, now: Instant) -> tuple[str, Pass] | None:
        """Turn a link into a session, whose secret is returned; None: it is not known, was used or
        is too old."""
        if _hash(secret) not in self._read().links:
            return None
        with self._changed(now) as kept:
            found = kept.links.pop(_hash(secret), None)
            if found is None:
                return None
            session = secrets.token_urlsafe(32)
            granted = Pass(found.name, found.roles, now + self._session_for)
            kept.sessions[_hash(session)] = granted
            return session, granted

    def session(self, secret: str, now: Instant) -> Session | None:
        """The session with that secret, if it is not over."""
        hashed = _hash(secret)
        found = self._read().sessions.get(hashed)
        if found is None or found.until <= now:
            return None
        # Whoever reads the word in a page cannot make the cookie of it.
        csrf = hmac.new(secret.encode(), b"csrf", "sha256").hexdigest()
        roles = frozenset(map(Permission, found.roles))
        return Session(found.name, roles, hashed, csrf, found.until)

    def end(self, session: Session, now: Instant) -> None:
        """End a session."""
        with self._changed(now) as kept:
            kept.sessions.pop(session.hash, None)

    def lasts(self, session: Session, now: Instant) -> bool:
        """Whether a session was not ended and is not over."""
        return session.until > now and session.hash in self._read().sessions

    def _read(self) -> _Kept:
        """The file as it is now."""
        version = version_of(self._path)
        if version is None:
            return _Kept()
        if version != self._seen:
            try:
                self._kept = msgspec.json.decode(read_text(self._path, "sign-ins"), type=_Kept)
            except msgspec.DecodeError as error:
                raise InvalidValue(
                    f"{self._path} holds no sign-ins: {error}",
                    remedy="remove it: every browser signs in anew",
                ) from None
            self._seen = version
        return self._kept

    @contextmanager
    def _changed(self, now: Instant) -> Iterator[_Kept]:
        """The file to change: no other process changes it meanwhile."""
        with locked(self._path):
            self._seen = None
            kept = self._read()
            left = _Kept(_lasting(kept.links, now), _lasting(kept.sessions, now))
            yield left
            text = json.dumps(msgspec.to_builtins(left), indent=1) + "\n"
            write_new(self._path, text, PRIVATE, replace=True)


def _lasting(passes: dict[str, Pass], now: Instant) -> dict[str, Pass]:
    left = sorted(passes.items(), key=lambda each: each[1].until, reverse=True)
    return {hashed: each for hashed, each in left[: KEPT_MAX - 1] if each.until > now}


def _hash(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
