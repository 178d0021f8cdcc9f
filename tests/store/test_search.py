"""Finding messages: by any part of their ids, by what is in them, by whom they are for and when."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from oncewire.journal.row import Row
from oncewire.message.instant import DAY, HOUR
from oncewire.protocol.notes import Kind
from oncewire.protocol.states import Proof
from oncewire.store.contract import Reader, Store
from oncewire.store.records import Word
from oncewire.store.search import ID_SEARCHED, Mark, Place, Search, Tally, kept_words
from oncewire.store.sql import search_index
from oncewire.store.sqlite.store import SqliteStore
from tests.store.backends import Backend, SqliteBackend
from tests.store.samples import CONFIRMED, DELIVERED, OUTSTANDING, add, parcel, prepare, received
from tests.store.samples import sent as sent_message

SEED = 28
UUID = "c0ffee12-9a3b-4d5e-8f70-123456789abc"


def _sent(store: Store, message_id: str, words: tuple[Word, ...] = (), **changes: Any) -> None:
    state = {"state": DELIVERED} | {
        name: changes.pop(name) for name in ("state", "submitted_at") if name in changes
    }
    stored = sent_message(message_id, **state)
    stored = replace(stored, facts=replace(stored.facts, **changes))
    with store.transition() as tx:
        tx.add_outgoing(stored, parcel=parcel(), draft=None, words=words)
    store.commit()


def _arrived(store: Store, message_id: str, words: tuple[Word, ...] = (), **state: Any) -> None:
    with store.transition() as tx:
        tx.add_incoming(received(message_id, **state), words)
    store.commit()


def _ids(reader: Reader, **search: Any) -> list[str]:
    """What is found on both sides, sent ones first, by pages of two."""
    found: list[str] = []
    place: Place | None = None
    while True:
        sent = reader.find_sent(Search(**search), 2, place)
        found += [stored.outgoing.message_id for stored in sent.messages]
        place = sent.after
        if place is None:
            break
    while True:
        arrived = reader.find_received(Search(**search), 2, place)
        found += [stored.incoming.message_id for stored in arrived.messages]
        place = arrived.after
        if place is None:
            return found


@pytest.fixture(params=[1, 1024], ids=["filed", "not filed yet"])
def store(
    request: pytest.FixtureRequest, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> Store:
    """Each search is answered from the index, and from what is not in it yet."""
    monkeypatch.setattr(search_index, "FILED_AT_ONCE", request.param)
    return backend.store


def test_any_eight_characters_of_an_id_find_it(store: Store) -> None:
    _sent(store, f"{UUID}@acme.example")
    _sent(store, f"{UUID[::-1]}@acme.example")
    _arrived(store, f"x{UUID}")
    chance = random.Random(SEED)
    with store.reader() as reader:
        for _ in range(20):
            start = chance.randrange(len(UUID) - 8 + 1)
            part = UUID[start : start + chance.randint(8, 20)]
            assert _ids(reader, text=part) == [f"{UUID}@acme.example", f"x{UUID}"], part
        assert _ids(reader, text=UUID + "@acme.ex") == [f"{UUID}@acme.example"]
        assert _ids(reader, text="c0f") == [f"{UUID}@acme.example"]
        assert _ids(reader, text="0ffee1") == []
        # What names the handler is in every id of it.
        assert _ids(reader, text="acme.example") == []


def test_hostile_ids_are_texts_like_any(store: Store) -> None:
    ids = [
        "%_%_%_%_%_%",
        "'; DROP TABLE message; --",
        "\u202egnp.drow\U0001f4a3\U0001f4a3\U0001f4a3",
        "@@@@@@@@@@@@",
        "a" * 250 + "Zebra777" + "b" * 100_000,
        "[abc]*?{1,2}",
    ]
    for name in ids:
        _sent(store, name)
    with store.reader() as reader:
        for name in ids:
            assert _ids(reader, text=name) == [name]
            assert _ids(reader, text=name[:3]) == [one for one in ids if one.startswith(name[:3])]
        assert _ids(reader, text="%%%%%%%%%") == []
        assert _ids(reader, text="________") == []
        assert _ids(reader, text="Zebra777") == [ids[4]]
        assert _ids(reader, text="b" * 100) == []
        assert ID_SEARCHED == 256


def test_words_find_the_message_that_has_them(store: Store) -> None:
    _sent(store, "one", (Word("", "orders.csv"), Word("//order/@id", "4711")))
    _sent(store, "two", (Word("", "4711"),))
    _arrived(store, "three", (Word("/order/id", "4711"), Word("/order/id", "4712")))
    with store.reader() as reader:
        assert _ids(reader, text="4711") == ["two", "one", "three"]
        assert _ids(reader, value="4711") == ["one", "three"]
        assert _ids(reader, value="4712") == ["three"]
        assert _ids(reader, file_name="4711") == ["two"]
        assert _ids(reader, file_name="orders.csv", value="4711") == ["one"]
        assert _ids(reader, value="471") == []


def test_what_a_hub_alone_vouches_for_is_found_and_counted_apart(store: Store) -> None:
    for number, proof in enumerate((Proof.HOP, Proof.TO_PARTY, Proof.HOP)):
        stored = sent_message(f"order-{number}", state=DELIVERED, proved_by=proof)
        with store.transition() as tx:
            tx.add_outgoing(stored, parcel=parcel(), draft=None)
        store.commit()
    _sent(store, "order-3", state=OUTSTANDING)
    with store.reader() as reader:
        counted = {"taken_over": 2, "delivered": 1, "outstanding": 1}
        assert reader.count_sent(Search(), 1000) == Tally(counted)
        assert _ids(reader, states=("taken_over",)) == ["order-2", "order-0"]
        assert _ids(reader, states=("delivered",)) == ["order-1"]
        both = Search(states=("delivered", "taken_over"))
        assert reader.count_sent(both, 1000) == Tally({"taken_over": 2, "delivered": 1})


def test_words_are_bounded() -> None:
    words = [Word("/a", str(number)) for number in range(1_000_000)]
    assert kept_words(words) == tuple(words[:32])
    odd = (Word("/a", "x" * 201), Word("/a", ""), Word("/a", "\0"), Word("/a", "\ud800"))
    assert kept_words((*odd, Word("/a", "x"), Word("/a", "x"))) == (Word("/a", "x"),)


def test_every_filter_narrows(store: Store) -> None:
    for number in range(6):
        _sent(
            store,
            f"message-{number}",
            submitted_at=number * HOUR,
            state=OUTSTANDING if number % 2 else DELIVERED,
            to_party="globex" if number < 3 else "initech",
            conversation_id=f"talk-{number // 2}",
            action="Order" if number else "Invoice",
            service="urn:services:orders" if number < 5 else "urn:services:bills",
        )
    with store.reader() as reader:
        everything = [f"message-{number}" for number in reversed(range(6))]
        assert _ids(reader) == everything
        assert _ids(reader, partners=("globex",)) == everything[3:]
        assert _ids(reader, partners=("globex", "initech")) == everything
        assert _ids(reader, partners=("globex",), since=HOUR, until=2 * HOUR) == ["message-1"]
        assert _ids(reader, since=4 * HOUR) == everything[:2]
        assert _ids(reader, since=4 * HOUR, until=HOUR) == []
        assert _ids(reader, states=("outstanding",)) == everything[0::2]
        assert _ids(reader, states=("outstanding", "delivered"), until=HOUR) == ["message-0"]
        assert _ids(reader, conversation_id="talk-1") == ["message-3", "message-2"]
        assert _ids(reader, text="talk-1", states=("delivered",)) == ["message-2"]
        assert _ids(reader, action="Invoice") == ["message-0"]
        assert _ids(reader, service="urn:services:bills") == ["message-5"]
        assert _ids(reader, text="message-", action="Order") == everything[:5]
        assert _ids(reader, text="message-", partners=("nobody",)) == []


def test_what_retention_removes_is_not_found(backend: Backend, store: Store) -> None:
    for number in range(4):
        words = (Word("/id", f"order {number}"),)
        _sent(store, f"{number}-{UUID}", words, submitted_at=number)
        _arrived(store, f"{number}-{UUID}", words, state=CONFIRMED, received_at=number)
    with store.transition() as tx:
        assert tx.sweep(2 * DAY, 7) == 7
    store.commit()
    with store.reader() as reader:
        assert _ids(reader, text="c0ffee12") == [f"3-{UUID}"]
        assert _ids(reader, text="order 0") == _ids(reader, conversation_id="other") == []
        assert _ids(reader, value="order 3") == [f"3-{UUID}"]
    if isinstance(backend, SqliteBackend):
        connection = apsw.Connection(str(backend.path), flags=apsw.SQLITE_OPEN_READONLY)
        for table in ("outgoing_term", "outgoing_word"):
            assert connection.execute(f"SELECT count(*) FROM {table}").get == 0, table
        assert connection.execute("SELECT count(*) FROM incoming_word").get == 1


def _many(path: Path, count: int) -> SqliteStore:
    """A store with so many messages: two partners, an hour apart."""
    store = SqliteStore(path, node="node")
    prepare(store)
    chance = random.Random(SEED)
    for number in range(count):
        name = f"{chance.getrandbits(128):032x}@acme.example"
        stored = sent_message(name, state=DELIVERED, submitted_at=number * HOUR)
        party = "globex" if number % 2 else "initech"
        stored = replace(stored, facts=replace(stored.facts, to_party=party))
        with store.transition() as tx:
            words = (Word("//order/@id", f"order {number}"),)
            tx.add_outgoing(stored, parcel=parcel(), draft=None, words=words)
        if number % 500 == 499:
            store.commit()
    store.commit()
    return store


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, SqliteStore]]:
    """A small store and one of twenty times its size."""
    folder = tmp_path_factory.mktemp("sizes")
    made = {count: _many(folder / f"{count}.db", count) for count in (1_500, 30_000)}
    yield made
    for store in made.values():
        store.close()


def _steps(store: SqliteStore, search: Search, **page: Any) -> tuple[int, int]:
    """How many messages are found, and the steps that SQLite takes for it."""
    steps = 0

    def count(event: dict[str, Any]) -> None:
        nonlocal steps
        steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    with store.reader() as reader:
        connection = reader._run.args[0]  # type: ignore[attr-defined]
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
        found = reader.find_sent(search, page.get("limit", 50))
        connection.trace_v2(0, None)
    return len(found.messages), steps


@pytest.mark.parametrize(
    "what", ["id", "partner and day", "value", "state", "conversation", "none"]
)
def test_more_messages_are_no_more_work(sizes: dict[int, SqliteStore], what: str) -> None:
    work = {}
    for count, store in sizes.items():
        with store.reader() as reader:
            (last,) = reader.outgoing_list(limit=1, before=count // 2 + 1)
        middle = last.outgoing.submitted_at
        search = {
            "id": Search(text=last.outgoing.message_id[7:16]),
            "partner and day": Search(partners=("globex",), since=middle, until=middle + DAY),
            "value": Search(value=f"order {count // 2}"),
            "state": Search(states=("outstanding",)),
            "conversation": Search(conversation_id="of nobody"),
            "none": Search(text="of nobody"),
        }[what]
        work[count] = _steps(store, search)
    (few, small), (many, large) = work.values()
    assert few == many == {"id": 1, "partner and day": 12, "value": 1}.get(what, 0)
    assert large < 2 * small + 2_000, work


def test_what_is_common_is_found_in_bounded_pages(sizes: dict[int, SqliteStore]) -> None:
    store = sizes[30_000]
    found, steps = _steps(store, Search(conversation_id="talk"), limit=10)
    assert found == 10
    assert steps < 400_000
    with store.reader() as reader:
        # Nothing of the newest 20,000 is meant: the next page goes on behind them.
        rare = Search(action="Never")
        first = reader.find_sent(rare, 10)
        assert first.messages == ()
        assert first.after is not None
        assert reader.find_sent(rare, 10, first.after).after is None


def test_an_earlier_store_is_filed_a_batch_at_a_time(tmp_path: Path) -> None:
    _many(tmp_path / "a.db", 3_000).close()
    connection = apsw.Connection(str(tmp_path / "a.db"))
    connection.execute("DELETE FROM outgoing_term; UPDATE counter SET outgoing_filed = 0")
    connection.close()
    store = SqliteStore(tmp_path / "a.db")
    try:
        for batches in range(4):
            with store.reader() as reader:
                (first,) = reader.outgoing_list(limit=1, before=2)
                part = first.outgoing.message_id[5:14]
                assert _ids(reader, text=part) == [first.outgoing.message_id]
            with store.transition() as tx:
                assert tx.index() is (batches < 2)
            store.commit()
        connection = apsw.Connection(str(tmp_path / "a.db"), flags=apsw.SQLITE_OPEN_READONLY)
        assert connection.execute("SELECT outgoing_filed FROM counter").get == 2_048
        connection.close()
    finally:
        store.close()


def test_a_search_of_nothing_in_a_new_store(store: Store) -> None:
    with store.reader() as reader:
        assert _ids(reader, text="whatever it is") == _ids(reader) == []


def test_an_added_message_can_be_undone(store: Store) -> None:
    with pytest.raises(RuntimeError), store.transition() as tx:  # noqa: PT012
        add(tx, sent_message(UUID))
        raise RuntimeError
    _sent(store, "other")
    with store.reader() as reader:
        assert _ids(reader, text="c0ffee12") == []


def _row(message_id: str, kind: Kind, at: int) -> Row:
    return Row(0, at, 0, "boot", "node", kind.value, message_id, detail="{}")


def test_what_came_or_went_twice_is_found_counted_and_bounded(backend: Backend) -> None:
    store = backend.store
    _sent(store, "once@acme")
    _sent(store, "twice@acme", state=OUTSTANDING)
    with store.transition() as tx:
        stored = tx.outgoing("twice@acme")
        assert stored is not None
        tx.save_outgoing(replace(stored.outgoing, attempts=2))
        tx.journal(_row("copied@globex", Kind.DUPLICATE, at) for at in range(50))
        tx.journal([_row("single@globex", Kind.RECEIVED, 7)])
    _arrived(store, "copied@globex")
    _arrived(store, "single@globex")
    with store.reader() as reader:
        assert _ids(reader, again=True) == ["twice@acme", "copied@globex"]
        assert reader.count_sent(Search(), 100).states == {"delivered": 1, "outstanding": 1}
        assert reader.count_sent(Search(again=True), 100) == Tally({"outstanding": 1})
        assert reader.count_received(Search(again=True), 100).states == {"ready": 1}
        rows, between = reader.journal_ends("copied@globex", 3)
        assert ([row.at for row in rows], between) == ([0, 1, 2, 47, 48, 49], 44)
        assert reader.journal_ends("single@globex", 3)[1] == 0
        assert reader.journal_ends("nothing", 3) == ([], 0)
        assert reader.journal_marks("copied@globex") == {"duplicate": Mark(50, 0, 49)}
