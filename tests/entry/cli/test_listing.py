"""Which message is meant by a part of its id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.agreement.agreement import Agreements
from oncewire.entry.cli.finding import find_id
from oncewire.errors import InvalidValue, UnknownMessage
from oncewire.handler.context import HandlerContext
from oncewire.handler.world import RealWorld
from oncewire.protocol.notes import Note, PassedOn
from oncewire.store.contract import Reader
from oncewire.store.memory.store import MemoryStore
from oncewire.store.sqlite.store import SqliteStore
from tests.entry.terminal import run_json
from tests.store.samples import add, prepare, row, sent


@pytest.fixture
def reader() -> Iterator[Reader]:
    """One message was sent, two were refused."""
    store = MemoryStore("acme")
    prepare(store)
    with store.transition() as transaction:
        add(transaction, sent("m-17@acme"))
        transaction.journal([row("refused", "m-18@globex"), row("refused", "m-19@globex")])
    store.commit()
    with store.reader() as reader:
        yield reader


@pytest.mark.parametrize("wanted", ["m-18@globex", "18", "-18@"])
def test_a_refused_message_is_found_by_any_part_of_its_id(reader: Reader, wanted: str) -> None:
    assert find_id(reader, wanted) == "m-18@globex"


def test_a_part_is_unique_among_those_that_were_refused_too(reader: Reader) -> None:
    assert find_id(reader, "17") == "m-17@acme"
    with pytest.raises(InvalidValue, match="2 messages have 'globex' in their id"):
        find_id(reader, "globex")
    with pytest.raises(InvalidValue, match="3 messages have 'm-1' in their id"):
        find_id(reader, "m-1")


def test_an_empty_id_means_no_message_even_where_there_is_only_one() -> None:
    store = MemoryStore("acme")
    prepare(store)
    with store.transition() as transaction:
        add(transaction, sent("m-17@acme"))
    store.commit()
    with store.reader() as reader, pytest.raises(InvalidValue, match="the MessageId is empty"):
        find_id(reader, "")


def test_who_finds_nothing_hears_that_an_old_message_needs_its_whole_id(reader: Reader) -> None:
    with pytest.raises(UnknownMessage, match="there is no message 20") as caught:
        find_id(reader, "20")
    assert "the newest 20,000" in caught.value.remedy


def test_a_hub_shows_how_often_it_passed_a_message_on(pair: Path) -> None:
    store = SqliteStore(pair / "acme" / "data" / "oncewire.db", node="acme")
    node = HandlerContext("acme", store, Agreements([]), RealWorld())
    with node.transition() as tx:
        for _ in range(7):
            node.write(tx, [Note(PassedOn(), "order@buyer")], peer="seller", hop=2)
    store.commit()
    store.close()
    shown = run_json("show", "order@buyer")
    assert shown["attempts"] == 7
    (hop,) = shown["trail"]
    assert (hop["node"], hop["to"], hop["attempts"]) == ("acme", "seller", 7)
    told = run_json("why", "order@buyer")
    assert told["why"].startswith("Passed on 7 times, and nothing promised")
    assert len(told["ladder"]) == 7
