"""Large stores, made of a small one by SQL, and how much of them the questions of a page visit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from oncewire.entry.messages.listing import Asked, counted_page, list_messages
from oncewire.entry.messages.story import details_of, story_of
from oncewire.entry.party.names import Names
from oncewire.entry.watching.snapshot import channels_of
from oncewire.journal.row import Row
from oncewire.message.instant import DAY, HOUR, moment
from oncewire.protocol.notes import Kind
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import Phase
from oncewire.store.contract import Reader
from oncewire.store.search import Search
from oncewire.store.sqlite.store import SqliteStore
from tests.store.samples import CONFIRMED, received
from tests.store.test_search import _many

SEED_MESSAGES = 2_000
"""Messages of the small store, each an hour after the one before."""
WANTED = 1_000


class _AsWritten(Names):
    """Partners are called by their PartyIds."""

    def parties(self, partner: str) -> tuple[str, ...]:
        return (partner,)


NAMES, BOTH = _AsWritten(), ("out", "in")


def _listed(reader: Reader, now: int, **asked: Any) -> object:
    return list_messages(reader, NAMES, Asked(**asked), BOTH, now)


def _day(reader: Reader, now: int) -> object:
    day = Asked(partner="globex", since=moment(now - DAY)[:10], until=moment(now)[:10])
    return counted_page(reader, NAMES, day, BOTH, now, counted=True)


Question = Callable[[Reader, str, int], object]
QUESTIONS: dict[str, Question] = {
    "now": lambda reader, _, __: (
        reader.oldest_unsettled(500), reader.incidents(), reader.last_seq(),
    ),
    "pulse": lambda reader, _, __: reader.journal_since(max(0, reader.last_seq() - 500), 500),
    "messages": lambda reader, _, now: counted_page(
        reader, NAMES, Asked(), BOTH, now, counted=True
    ),
    "search": lambda reader, wanted, now: _listed(reader, now, text=wanted[3:14]),
    "slow": lambda reader, _, now: _listed(reader, now, slow=True),
    "slowest": lambda reader, _, now: _listed(reader, now, slowest=True),
    "sent twice": lambda reader, _, now: reader.find_received(Search(again=True), 50),
    "a day of a partner": lambda reader, _, now: _day(reader, now),
    "message": lambda reader, wanted, now: (
        details_of(reader, wanted, now, None), story_of(reader, NAMES, wanted, now, None),
    ),
    "channels": lambda reader, _, __: channels_of(reader, 50),
}  # fmt: skip
"""What each page asks of the store, of one message that is wanted, and by which clock."""


def large_store(path: Path, times: int) -> SqliteStore:
    """A store of so many times SEED_MESSAGES sent and received messages and channels."""
    store = _many(path, SEED_MESSAGES)
    with store.reader() as reader:
        kept = list(reversed(reader.outgoing_list(limit=100_000)))
    with store.transition() as tx:
        for number, each in enumerate(kept):
            sent, at = each.outgoing.message_id, each.outgoing.submitted_at
            arrived = f"in-{sent}"
            tx.add_incoming(received(arrived, state=CONFIRMED, received_at=at, confirmed_at=at), ())
            tx.save_sending_channel(SendingChannel(f"c{number}", epoch=1, phase=Phase.RUNNING))
            # An incident is kept when it is over, for those who ask what a message waited for.
            channel = each.outgoing.channel
            tx.open_incident(at, "suspended for want of an answer", f"late-{number}", channel)
            tx.resolve_incidents(at, f"late-{number}", channel)
            rows = [(sent, Kind.SUBMITTED), (sent, Kind.SENT), (sent, Kind.ACKNOWLEDGED)]
            rows += [
                (arrived, Kind.RECEIVED),
                *([] if number % 10 else [(arrived, Kind.DUPLICATE)]),
            ]
            tx.journal(
                Row(0, at, 0, "boot", "node", kind.value, message_id=name,
                    terms_id=each.outgoing.terms_id, peer="globex", digest="d", size=1, detail="{}")
                for name, kind in rows
            )  # fmt: skip
    store.commit()
    store.close()
    _multiply(path, times)
    return SqliteStore(path)


def _multiply(path: Path, times: int) -> None:
    """Copy every row so often, each time with numbers, ids, times and terms of its own."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA synchronous = off; PRAGMA wal_autocheckpoint = 0")
    ids, rows = (
        connection.execute(f"SELECT max({column}) FROM {table}").fetchall()[0][0]
        for column, table in (("id", "message"), ("seq", "journal_row"))
    )
    later, name = f"+ k * {SEED_MESSAGES * HOUR}", "printf('%05x-', k) || "
    apart = f"+ k * {SEED_MESSAGES}"
    changed = {
        "message": {"id": f"id + k * {ids}", "message_id": f"{name}message_id"},
        "sending_channel": {"key": f"{name}key"},
        "journal_row": {"seq": f"seq + k * {rows}", "at": f"at {later}"},
        "incident": {"id": f"id + k * {SEED_MESSAGES}", "opened_at": f"opened_at {later}"},
        "outgoing": {"submitted_at": f"submitted_at {later}"},
        "incoming": {each: f"{each} {later}" for each in ("received_at", "confirmed_at")},
    } | {
        f"{side}_{what}": {}
        for side in ("outgoing", "incoming")
        for what in ("bytes", "word", "term")
    }  # fmt: skip
    with connection:
        connection.execute(
            f"CREATE TEMP TABLE times AS WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 "
            f"FROM n WHERE k < {times - 1}) SELECT k FROM n"
        )
        for table, said in changed.items():
            number = "row" if table.startswith("incoming") else "position"
            moves = {number: f"{number} {apart}", "message": f"message + k * {ids}"}
            moves["slot"] = f"((({number} {apart}) >> 15) << 32) | ((slot + k * 7919) & 0xffffffff)"
            columns = [each[1] for each in connection.execute(f"PRAGMA table_info({table})")]
            if table == "incoming":
                moves["position"] = "position"
            values = ", ".join(said.get(each, moves.get(each, each)) for each in columns)
            connection.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} "
                f"FROM times CROSS JOIN {table}"
            )
        connection.execute(
            f"UPDATE counter SET journal = {rows * times}, outgoing = {SEED_MESSAGES * times}, "
            f"incoming = {SEED_MESSAGES * times}, outgoing_filed = {SEED_MESSAGES * times}, "
            f"incoming_filed = {SEED_MESSAGES * times}"
        )
    connection.close()


def is_bounded(few: int, many: int) -> bool:
    """Whether steps did not grow with the store. A search looks at one more place of the index for
    every 32,768 messages."""
    return 0 < many < 1.5 * few + 4_000


def steps_of(store: SqliteStore, page: str, times: int) -> int:
    """The steps that SQLite takes for the questions of a page."""
    taken: list[int] = []

    def counted(event: dict[str, Any]) -> None:
        taken.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

    now = SEED_MESSAGES * times * HOUR
    with store.reader() as reader:
        (wanted,) = reader.outgoing_list(limit=1, before=WANTED)
        connection = reader._run.args[0]  # type: ignore[attr-defined]
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, counted)
        QUESTIONS[page](reader, wanted.outgoing.message_id, now)
        connection.trace_v2(0, None)
    return sum(taken)
