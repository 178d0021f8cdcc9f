"""Stores that an earlier version wrote: they open, say what they said, and go on."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from oncewire.journal.identity import links
from oncewire.journal.row import COLUMNS, Row
from oncewire.message.instant import MINUTE
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.protocol.terms import Terms
from tests.handler.network import START
from tests.store.kept_store import DOCUMENT, NAMES, WAYS, Partners, live

KEPT = Path(__file__).with_name("kept")
STARTED_AGAIN = START + 5 * MINUTE

CONTENT = {
    "alpha": "0b8c829cad8a3773",
    "beta": "1635cf8e062d1f3e",
}
"""Digests of every row of every table, and of the columns with their order and types, after the
messages of `live`. A change here is a change of what stores hold: it needs a migration or a word
in the changelog."""


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A folder with copies of the kept stores."""
    for name in NAMES:
        content = gzip.decompress((KEPT / f"{name}.db.gz").read_bytes())
        (tmp_path / f"{name}.db").write_bytes(content)
    # The document whose parts are still to be sent; the spool names files by their digest.
    spool = tmp_path / "alpha.db.spool"
    spool.mkdir()
    (spool / hashlib.sha256(DOCUMENT).hexdigest()).write_bytes(DOCUMENT)
    return tmp_path


def tables(path: Path) -> dict[str, Any]:
    """Every table: its columns with their types, and its rows."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    names = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
    found: dict[str, Any] = {}
    for (name,) in connection.execute(names).fetchall():
        columns = connection.execute(f"PRAGMA table_xinfo('{name}')").fetchall()
        rows = sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
        found[name] = [columns, rows]
    connection.close()
    # Drawn at random when the store is made.
    found["node"][1] = [row[:3] for row in found["node"][1]]
    return found


def digest(path: Path) -> str:
    text = json.dumps(tables(path), sort_keys=True, default=bytes.hex)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def journal(path: Path) -> list[Row]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    rows = [Row(*row) for row in connection.execute(f"SELECT {', '.join(COLUMNS)} FROM journal")]
    heads = [head for (head,) in connection.execute("SELECT since FROM journal_row ORDER BY seq")]
    heads.append(connection.execute("SELECT head FROM counter").get)
    connection.close()
    assert heads == links(heads[0], rows)
    return rows


def test_the_same_messages_are_kept_in_the_same_bytes(tmp_path: Path) -> None:
    live(tmp_path).close()
    assert {name: digest(tmp_path / f"{name}.db") for name in NAMES} == CONTENT


def test_what_was_kept_is_what_was_written_before_the_search_index(kept: Path) -> None:
    """Version 13 wrote them: opening them goes through every migration since."""
    earlier = {"alpha": "e0454b352b43e8db", "beta": "409d9d0ba1c5cbd5"}
    assert {name: digest(kept / f"{name}.db") for name in NAMES} == earlier
    for name in NAMES:
        assert len(journal(kept / f"{name}.db")) > 50


def test_every_value_of_a_kept_store_is_read(kept: Path) -> None:
    pair = Partners(kept, time=STARTED_AGAIN, ids=1_000)
    with pair.alpha.context.store.reader() as reader:
        sent = {stored.outgoing.message_id: stored for stored in reader.outgoing_list()}
        assert sent["ebms2-1@alpha"].outgoing.state is OutgoingState.DELIVERED
        assert sent["ordered-lost@alpha"].outgoing.state is OutgoingState.SUSPENDED
        assert sent["ordered-behind@alpha"].outgoing.state is OutgoingState.WAITING
        assert [stored.damage for stored in sent.values() if stored.damage] == []
        (incident,) = reader.incidents()
        assert incident.message_id == "ordered-lost@alpha"
        for stored in sent.values():
            terms = reader.terms(stored.outgoing.terms_id)
            assert terms is not None
            assert terms.terms_id == stored.outgoing.terms_id
            assert Terms.from_dict(terms.as_dict()) == terms
        assert len(reader.channels()[0]) == 4
    with pair.beta.context.store.reader() as reader:
        states = {stored.incoming.message_id: stored.incoming.state
                  for stored in reader.incoming_list()}  # fmt: skip
        assert states["ebms2-1@alpha"] is IncomingState.CONFIRMED
        assert list(states.values()).count(IncomingState.READY) == 6
        (whole,) = reader.incoming("parts-whole@alpha")
        assert whole.parcel is not None
        document = reader.document("urn:test:alpha", "parts-whole@alpha")
        assert document is not None
        assert document.size == len(DOCUMENT)
    pair.close()


def test_a_kept_store_goes_on(kept: Path) -> None:
    pair = Partners(kept, time=STARTED_AGAIN, ids=1_000)
    pair.pass_time(5 * MINUTE)
    pair.alpha.resume(message_id="ordered-lost@alpha")
    pair.settle("alpha")
    for _ in range(3):
        pair.pass_time(5 * MINUTE)
    for way in WAYS:
        pair.order(way, f"{way}-4")
    taken = pair.take()
    lost = ["ebms2-lost", "ordered-lost", "ordered-behind", "parts-cut"]
    later = [f"{way}-{number}" for way in WAYS for number in (3, 4)]
    assert sorted(taken) == sorted(f"{name}@alpha" for name in (*lost, *later))
    with pair.alpha.context.store.reader() as reader:
        assert reader.incidents() == []
        states = {stored.outgoing.state for stored in reader.outgoing_list()}
        assert states == {OutgoingState.DELIVERED}
    report = pair.verify()
    assert report.clean, report
    pair.close()
    for name in NAMES:
        journal(kept / f"{name}.db")
