"""Fellows: the handlers beside this one on one PostgreSQL, its lease, its claims and its words."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from oncewire.errors import HandlerFailed, StoreGone
from oncewire.store.postgresql.connection import (
    HELD_SECONDS,
    connect,
    disconnect,
    opened,
    schema_of,
    told_as,
)
from oncewire.store.records import Claim, Fellow

if TYPE_CHECKING:
    import psycopg

    from oncewire.store.sql.session import Values

Statement = tuple[str, Sequence[Any]]
Run = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]

RENEWED_EACH = 5
"""A lease is renewed when the fifth part of it has passed."""

MARGIN = 0.2
"""The part of its lease that a handler leaves unused: it does not know how long the server took."""

SAID_MAX = 7000
"""Bytes of one notification; the server takes 8000."""

_REGISTER = (
    "INSERT INTO handler (name, number, host, machine, pid, born, started_at, seen_at, "
    "leased_until) SELECT $1, nextval('handler_number'), $2, $3, $4, $5, t, t, t + $6 "
    "FROM lease_time() AS t"
)
_RENEW = (
    "UPDATE handler SET seen_at = t, leased_until = t + $2, draining = $3 "
    "FROM lease_time() AS t WHERE name = $1"
)
_END = "UPDATE handler SET ended = 1 WHERE name = $1"
_OTHERS = (
    "SELECT name, machine, pid, born, leased_until <= lease_time(), ended FROM handler "
    "WHERE name <> ?"
)
_ELDEST = "SELECT name FROM handler WHERE ended = 0 ORDER BY number LIMIT 1"
_TAKE_OVER = "DELETE FROM handler WHERE name = $1"
_ELSEWHERE = "SELECT handler, kind, sender, message_id FROM claim WHERE handler <> ?"
_CLAIM = (
    "INSERT INTO claim (handler, kind, sender, message_id) "
    "SELECT $1, * FROM json_to_recordset($2::json) AS new (kind text, sender text, message_id text)"
)
_LET_GO = (
    "DELETE FROM claim USING json_to_recordset($2::json) "
    "AS old (kind text, sender text, message_id text) WHERE handler = $1 "
    "AND claim.kind = old.kind AND claim.sender = old.sender AND claim.message_id = old.message_id"
)
_FELLOWS = (
    "SELECT name, host, pid, started_at, seen_at, leased_until, draining, ended, lease_time(), "
    "(SELECT coalesce(json_object_agg(kind, held), '{}')::text FROM (SELECT kind, count(*) AS held "
    "FROM claim WHERE claim.handler = handler.name GROUP BY kind) AS kinds) "
    "FROM handler ORDER BY number"
)


class PostgresFellows:
    """See `contract.Fellows`, whose docstrings hold here.

    `lease` in seconds; 0: a guest, which has neither lease nor claims, and sees those of handlers.
    """

    def __init__(self, url: str, lease: float) -> None:
        self._url, self._lease = url, lease
        self.name = uuid4().hex
        self.machine, self._born = _machine(), _born(os.getpid())
        self._run: Run | None = None
        self.lost: HandlerFailed | None = None
        self.draining, self.others = False, 0
        # What is in the table as ours, and what the next commit puts there.
        self._claimed: frozenset[Claim] = frozenset()
        self._wanted: frozenset[Claim] = frozenset()
        # What others claim, by kind; None: it is to be read.
        self._elsewhere: dict[str, set[tuple[str, str]]] | None = None
        # Handlers that are over, which the commit of the open turn drops.
        self._over: list[str] = []
        self._said: list[tuple[str, ...]] = []
        # By the steady clock: when the lease was asked for last, when it is asked for by the commit
        # that is under way, and since when it never ran out.
        self._asked_at = self._asking_at = self._steady_since = monotonic()
        self._ears: psycopg.Connection[Values] | None = None
        self._channel, self._joined = "", False

    # --- its lease ---

    def join(self, connection: psycopg.Connection[Values]) -> None:
        """Be one of the handlers, from now on; on later connections, go on being one."""
        self._channel = f"oncewire_{schema_of(connection)}"[:63]
        if not self._lease:
            return
        # One that stands still in its turn keeps others from renewing theirs.
        held = int(min(HELD_SECONDS, self._lease / 3) * 1000)
        connection.execute(f"SET idle_in_transaction_session_timeout = '{held}ms'".encode())
        if self._joined:
            return
        self._joined = True
        asked = monotonic()
        who = (socket.gethostname(), self.machine, os.getpid(), self._born)
        connection.execute(_REGISTER, (self.name, *who, int(self._lease * 1_000_000)))
        self._asked_at = self._steady_since = asked

    @property
    def stands(self) -> bool:
        """See `contract.Fellows`."""
        return self.lost is None and monotonic() < self._asked_at + self._lease * (1 - MARGIN)

    @property
    def wants_turn(self) -> bool:
        """See `contract.Fellows`."""
        due = self._asked_at + self._lease / RENEWED_EACH
        is_due = bool(self._lease) and (monotonic() > due or self._wanted != self._claimed)
        return is_due or bool(self._said)

    def leave(self, connection: psycopg.Connection[Values]) -> None:
        """Say that this one is over: others take up what it leaves."""
        if self._lease and self.lost is None:
            connection.execute(_END, (self.name,))
        disconnect(self._ears)
        self._ears = None

    # --- turns ---

    def began(self, run: Run, *, is_member: bool) -> None:
        """A turn begins, in which the handler's row was found or not."""
        self._run = run
        if not is_member and self._lease:
            self.lost = HandlerFailed(
                "another handler has taken over the work of this one, whose lease had run out",
                remedy="start it again; nothing that was stored is lost",
            )
            raise StoreGone(self.lost.problem, remedy=self.lost.remedy)

    def forget(self) -> None:
        """Another handler has committed something."""
        self._elsewhere = None

    def statements(self) -> list[Statement]:
        """What the commit of a turn adds to it."""
        found: list[Statement] = [(_TAKE_OVER, (name,)) for name in self._over]
        if self._lease:
            self._asking_at = monotonic()
            renewal = (self.name, int(self._lease * 1_000_000), self.draining)
            found.append((_RENEW, renewal))
            for statement, claims in (
                (_LET_GO, self._claimed - self._wanted),
                (_CLAIM, self._wanted - self._claimed),
            ):
                if claims:
                    rows = [claim._asdict() for claim in sorted(claims)]
                    found.append((statement, (self.name, json.dumps(rows))))
        for words in _parcelled(self._said):
            said = json.dumps({"by": self.name, "said": words})
            found.append(("SELECT pg_notify($1, $2)", (self._channel, said)))
        return found

    def committed(self) -> None:
        """What the commit added is there."""
        self._claimed, self._said, self._over = self._wanted, [], []
        if monotonic() > self._asked_at + self._lease:
            self._steady_since = self._asking_at
        self._asked_at = self._asking_at

    def undone(self, *, failed: bool) -> None:
        """The turn is undone, or has changed nothing. Where it failed, nothing of it is said."""
        if failed:
            self._said = []
        if self._over:
            self._over, self._elsewhere = [], None

    # --- the contract ---

    @property
    def takes_over(self) -> bool:
        """See `contract.Fellows`."""
        return bool(self._over)

    def hold(self, claims: Mapping[str, Iterable[tuple[str, str]]]) -> None:
        """See `contract.Fellows`."""
        if self._lease:
            self._wanted = frozenset(
                Claim(kind, *key) for kind, keys in claims.items() for key in keys
            )

    def elsewhere(self, kind: str) -> Collection[tuple[str, str]]:
        """See `contract.Fellows`."""
        if self._elsewhere is None and self._run is not None:
            self._elsewhere = {}
            for name, found, sender, message_id in self._run(_ELSEWHERE, (self.name,)):
                if name not in self._over:
                    self._elsewhere.setdefault(found, set()).add((sender, message_id))
        return (self._elsewhere or {}).get(kind, ())

    @property
    def leads(self) -> bool:
        """See `contract.Fellows`."""
        rows = [] if self._run is None else self._run(_ELDEST, ())
        return not rows or rows[0][0] == self.name

    def take_over(self) -> int:
        """See `contract.Fellows`."""
        if not self._lease or self._run is None:
            return 0
        # Whether its own lease has held for that long, and holds still.
        now = monotonic()
        steady = self._steady_since + self._lease <= now <= self._asked_at + self._lease
        rows = self._run(_OTHERS, (self.name,))
        self._over = [
            name
            for name, machine, pid, born, expired, ended in rows
            if ended or (expired and steady) or self._is_dead(machine, pid, born)
        ]
        self.others = len(rows) - len(self._over)
        if self._over:
            self._elsewhere = None
        return len(self._over)

    def _is_dead(self, machine: str, pid: int, born: str) -> bool:
        return bool(machine) and machine == self.machine and _born(pid) != born

    def tell(self, words: Iterable[tuple[str, ...]]) -> None:
        """See `contract.Fellows`."""
        self._said += words

    def listen(self) -> int:
        """See `contract.Fellows`."""
        disconnect(self._ears)
        ears = self._ears = connect(self._url)
        with told_as(self._url):
            ears.execute(f'LISTEN "{self._channel}"'.encode())
        return ears.fileno()

    def heard(self) -> list[tuple[str, ...]]:
        """See `contract.Fellows`."""
        ears, found = self._ears, []
        if ears is None:
            raise StoreGone("this handler does not listen to others")
        with told_as(self._url):
            ears.pgconn.consume_input()
            while (heard := ears.pgconn.notifies()) is not None:
                said = json.loads(heard.extra)
                if said["by"] != self.name:
                    found += [tuple(map(str, words)) for words in said["said"]]
        return found

    def all(self) -> list[Fellow]:
        """See `contract.Fellows`."""
        return fellows_of(self._url)


def fellows_of(url: str) -> list[Fellow]:
    """The handlers of the store there, in order of their beginnings."""
    with opened(url) as connection:
        rows = connection.execute(_FELLOWS).fetchall()
    found = []
    for name, host, pid, started, seen, until, draining, ended, now, claims in rows:
        held = {str(kind): int(count) for kind, count in json.loads(str(claims)).items()}
        fellow = Fellow(
            name=str(name),
            host=str(host),
            pid=int(str(pid)),
            started_at=int(str(started)),
            seen_at=int(str(seen)),
            leased_until=int(str(until)),
            now=int(str(now)),
            draining=bool(draining),
            ended=bool(ended),
            claims=held,
        )
        found.append(fellow)
    return found


def _parcelled(said: list[tuple[str, ...]]) -> list[list[tuple[str, ...]]]:
    """Words as they fit into notifications; equal ones once, and one that fits into none is left
    out: it is found in the store."""
    found: list[list[tuple[str, ...]]] = []
    room = 0
    for words in dict.fromkeys(said):
        size = len(json.dumps(words)) + 2
        if size > SAID_MAX:
            continue
        if size > room:
            found.append([])
            room = SAID_MAX
        found[-1].append(words)
        room -= size
    return found


def _machine() -> str:
    """Where process numbers mean the same processes; empty: that cannot be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _born(pid: int) -> str:
    """When a process began, in ticks of its machine; empty: it is over."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    state, *rest = text.rpartition(")")[2].split()
    return "" if state in "ZX" else rest[18]
