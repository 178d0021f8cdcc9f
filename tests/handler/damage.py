"""Damage: what can happen to a stored message behind the handler's back, generated.

Two parties on SQLite with a spool exchanged orders. Then one row, one value or one file of one
side is changed, as bad disks and careless hands do, and the side is started again. What an
operator finds named in an incident is given up or resumed; everything else must go on.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from oncewire.errors import OncewireError, StoreDamaged, StoreProblem
from oncewire.handler.actions import Post, PostAnswer, Source
from oncewire.handler.runtime.handler import check_files
from oncewire.handler.sending.answer import Answer
from oncewire.handler.sending.transmit import Transmission, set_aside
from oncewire.handler.spool_reading import SPOOL_ABOVE
from oncewire.message.instant import SECOND
from oncewire.store.records import SpoolSlice, StoredParcel
from oncewire.store.sqlite.store import SqliteStore
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network

LARGE = 1_200_000
"""Such a document does not fit into a row and lies in the spool."""

ORDERS = 4
VICTIM, FRESH, LAST = 2, 9, 10
SPOOLED = (3, 7)

# Every table that holds something of a message, and how its victim's row is found. Tables that
# the whole store stands on (node, counter, schema) are no message's.
ROWS = {
    "message": "message_id = 'order-{n}@alpha'",
    "incoming": "message = (SELECT id FROM message WHERE message_id = 'order-{n}@alpha')",
    "incoming_bytes": (
        "row = (SELECT row FROM incoming JOIN message ON message.id = incoming.message "
        "WHERE message_id = 'order-{n}@alpha')"
    ),
    "outgoing": "message = (SELECT id FROM message WHERE message_id = 'order-{n}@alpha')",
    "outgoing_bytes": (
        "position = (SELECT position FROM outgoing JOIN message ON message.id = outgoing.message "
        "WHERE message_id = 'order-{n}@alpha')"
    ),
    "terms": "1",
    "agreement": "1",
    "receiving_channel": "1",
    "sending_channel": "1",
    "journal_row": "message = (SELECT id FROM message WHERE message_id = 'order-{n}@alpha')",
}
SIDES = {
    "beta": ("message", "incoming", "incoming_bytes", "terms", "agreement", "receiving_channel",
             "journal_row"),
    "alpha": ("message", "outgoing", "outgoing_bytes", "terms", "agreement", "sending_channel",
              "journal_row"),
}  # fmt: skip
VALUES = {
    "TEXT": ("'garbage'", "''", "substr({c}, 1, length({c}) / 2)", "NULL"),
    "INTEGER": ("-1", "4611686018427387904", "NULL"),
    "BLOB": ("x''", "x'00ff'", "substr({c}, 1, length({c}) / 2)", "NULL"),
}
FILES = ("gone", "empty", "cut", "flipped")

# Values that read well and say something else: nobody can tell, but nobody else may be harmed.
LIES = {
    "position", "row", "number", "epoch", "channel", "expected", "passed", "next_number",
    "first_unsettled", "sender", "message", "newest_stamp", "previous_stamp", "last_stamp",
    "furthest", "widest", "used", "key", "state", "suspended", "paused_until", "ending", "alone",
    "terms_id", "agreement_id", "next_attempt_at", "due_at", "deadline", "expires_at",
    "notice_owed", "lease_until", "hand_overs", "id", "keep_until", "answer_owed", "settled",
    "held", "message_id", "entered",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Damage:
    """One change to what one side has stored."""

    side: str
    table: str
    column: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"{self.side} {self.table}.{self.column or 'row'} {self.value or 'deleted'}"

    @property
    def lies(self) -> bool:
        """Whether a damaged value may pass for a true one that changes the order of things."""
        return self.column in LIES

    @property
    def vanishes(self) -> bool:
        """Whether the store has nothing left that names the message."""
        return not self.column and self.table not in ("terms", "agreement", "journal_row")

    def do(self, folder: Path, number: int) -> bool:
        """Damage the store; False when there is nothing to damage there."""
        if self.table == "spool":
            return self._spool(folder)
        with sqlite3.connect(folder / f"{self.side}.db") as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            where = ROWS[self.table].format(n=number)
            if self.value == "NULL" and self.column in ("row", "position", "seq", "id"):
                # SQLite itself allows no such row.
                return False
            if not self.column:
                done = connection.execute(f"DELETE FROM {self.table} WHERE {where}")
            else:
                value = self.value.format(c=self.column)
                done = connection.execute(
                    f"UPDATE OR IGNORE {self.table} SET {self.column} = {value} WHERE {where}"
                )
            connection.commit()
        connection.close()
        return done.rowcount > 0

    def _spool(self, folder: Path) -> bool:
        for file in (folder / f"{self.side}.db.spool").iterdir():
            data = file.read_bytes()
            middle = len(data) // 2
            flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
            file.write_bytes({"cut": data[:middle], "flipped": flipped}.get(self.value, b""))
            if self.value == "gone":
                file.unlink()
        return True


def corpus(base: Path) -> Iterator[Damage]:
    """Every kind of damage to every column of every table, every row gone, every file."""
    for side, tables in SIDES.items():
        yield from (Damage(side, "spool", "file", value) for value in FILES)
        connection = sqlite3.connect(base / f"{side}.db")
        for table in tables:
            yield Damage(side, table)
            for _, column, kind, needed, _, _ in connection.execute(f"PRAGMA table_info({table})"):
                for value in VALUES[kind]:
                    if not (needed and value == "NULL"):
                        yield Damage(side, table, column, value)
        connection.close()


class SpoolingPair(Network):
    """Large bodies that arrive are spooled, as the door of a handler does it."""

    def deliver(self, name: str, parcel: Parcel, *_: object, **__: object) -> Answer:
        engine, stored = self.engines[name], None
        if len(parcel.body) > SPOOL_ABOVE:
            spooled, length = engine.context.store.spool.put([parcel.body])
            slices = (SpoolSlice(spooled, 0, length),)
            stored = StoredParcel(parcel.content_type, parcel.headers, slices)
        try:
            answer = engine.receive(parcel, Source("http", can_answer=True), stored)
        except StoreProblem as problem:
            engine.trouble(problem)
            self.settle(name)
            raise
        self.settle(name)
        return answer

    def carry(self, name: str, post: Post | PostAnswer) -> Answer | None:
        """As the real one does: what has changed stays, who is sent away comes back."""
        if isinstance(post, PostAnswer):
            return super().carry(name, post)
        engine = self.engines[name]
        lost = Transmission(post.message_id, post.attempt, sent=False, reason="503")
        try:
            check_files(engine.context.store.spool, post.parcel)
        except StoreDamaged as problem:
            engine.transmission_over(lost)
            set_aside(engine.context, post.message_id, problem)
            self.settle(name)
            return None
        try:
            return super().carry(name, post)
        except StoreDamaged:
            engine.transmission_over(lost)
            self.settle(name)
            return None


class Scene:
    """The two parties on stores in a folder."""

    def __init__(self, folder: Path, profile: str) -> None:
        self.folder, self.profile, self.away = folder, profile, False
        self.given: list[tuple[str, bytes]] = []
        self.copies: list[Parcel] = []
        extra = '[delivery]\ntimeout = "PT5S"\nretry_interval = "PT5S"\nretries = 50\n'
        extra += "[flow]\nwindow = 3\n" if profile == "window" else ""
        self.pair = SpoolingPair.pair(
            profile, extra, lose_request=lambda post: self.away, hears=False, store=self.open
        )

    def open(self, name: str) -> SqliteStore:
        return SqliteStore(self.folder / f"{name}.db", node=name)

    def send(self, number: int) -> None:
        self.pair.send(number, document(number))

    def take(self) -> None:
        """The application comes until there is nothing more for it."""
        beta = self.pair.beta
        while found := beta.hand_over(100, 30 * SECOND):
            self.pair.settle("beta")
            for taken in found:
                assert taken.payloads[0].data is not None
                self.given.append((taken.message_id, taken.payloads[0].data))
                beta.confirm(taken.sender, taken.message_id)
            self.pair.settle("beta")
        self.pair.settle("beta")

    def incidents(self, side: str) -> list[tuple[str | None, str | None, str]]:
        with self.pair.engines[side].context.store.reader() as reader:
            return [(one.message_id, one.channel, one.reason) for one in reader.incidents()]

    def look(self, side: str) -> None:
        """What people and pages ask for works, whatever is damaged."""
        with self.pair.engines[side].context.store.reader() as reader:
            reader.counts(), reader.channels(), reader.incidents(), reader.spooled()
            reader.journal_since(0, 1000)
            for sent in reader.outgoing_list():
                reader.outgoing(sent.outgoing.message_id)
            for received in reader.incoming_list():
                reader.incoming(received.incoming.message_id)

    def operate(self, side: str) -> set[str]:
        """The operator does what each incident says; returns what was given up."""
        engine, given_up = self.pair.engines[side], set()
        for message_id, channel, _ in self.incidents(side):
            try:
                if message_id is not None:
                    engine.abandon(message_id)
                    given_up.add(message_id)
                elif channel is not None:
                    engine.resume(channel=channel)
            except StoreProblem:
                raise
            except OncewireError:
                # It can be read again, or it is over.
                pass
            self.pair.settle(side)
        return given_up

    def pass_minutes(self, minutes: int) -> None:
        for _ in range(minutes * 6):
            self.pair.pass_time(10 * SECOND)

    def close(self) -> None:
        self.pair.close()


def document(number: int) -> bytes:
    text = f"order {number} ".encode()
    return text.ljust(LARGE, b".") if number in SPOOLED else text


def make_base(folder: Path, profile: str) -> None:
    """Orders 1 to 4 wait for beta's application; 5 to 8 are on alpha's hands."""
    scene = Scene(folder, profile)
    for number in range(1, ORDERS + 1):
        scene.send(number)
    scene.away = True
    for number in range(ORDERS + 1, 2 * ORDERS + 1):
        scene.send(number)
    scene.close()


def damaged_scene(base: Path, folder: Path, profile: str, damage: Damage) -> Scene | None:
    """The parties started on a copy of the base with that damage; None: nothing to damage."""
    shutil.copytree(base, folder)
    number = VICTIM if damage.side == "beta" else ORDERS + VICTIM
    if not damage.do(folder, number):
        return None
    return Scene(folder, profile)
