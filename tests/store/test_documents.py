"""How far documents are, on every backend."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncewire.errors import NotAllowed
from oncewire.message.instant import DAY
from oncewire.protocol.documents import DocumentState, SplitDocument
from oncewire.protocol.states import IncomingState
from oncewire.store.contract import Store
from oncewire.store.records import SpoolSlice, StoredIncoming
from tests.store.backends import Backend
from tests.store.samples import READY, TERMS_ID, facts, parcel, received, undone

DOCUMENT = SplitDocument(
    "buyer", "doc", 3, TERMS_ID, 5, done=((1, 1),), size=7, latest_at=6, about=("a", "b")
)
GATHERED, HELD, CLOSED = IncomingState.GATHERED, IncomingState.HELD, IncomingState.CLOSED


def _part(number: int, state: IncomingState = GATHERED) -> StoredIncoming:
    split = facts(split_id="doc", split_number=number, split_total=3)
    return replace(received(f"part{number}", state=state), facts=split)


def test_it_is_what_was_saved_also_after_a_crash(backend: Backend) -> None:
    with backend.store.transition() as tx:
        assert tx.document("buyer", "doc") is None
        tx.save_document(DOCUMENT)
        assert tx.document("buyer", "doc") == DOCUMENT
        assert tx.document("", "doc") is None
    backend.store.commit()
    store = backend.crash()
    later = replace(DOCUMENT.add(3, 9), state=DocumentState.JOINING, channel="c", position=4)
    with store.transition() as tx:
        assert tx.document("buyer", "doc") == DOCUMENT
        tx.save_document(later)
    store.commit()
    with backend.reopen().reader() as reader:
        assert reader.document("buyer", "doc") == later
        assert reader.document("", "doc") is None


def test_a_transition_that_fails_leaves_it_as_it_was(store: Store) -> None:
    with undone(store) as tx:
        tx.save_document(DOCUMENT)
    with store.transition() as tx:
        assert tx.document("buyer", "doc") is None
        with pytest.raises(NotAllowed):
            tx.save_document(replace(DOCUMENT, terms_id="unknown"))


def test_open_ones_are_those_that_are_received_and_neither_whole_nor_given_up(store: Store) -> None:
    with store.transition() as tx:
        tx.save_document(replace(DOCUMENT, split_id="b", begun_at=9))
        tx.save_document(replace(DOCUMENT, split_id="a", begun_at=9))
        tx.save_document(replace(DOCUMENT, sender="", split_id="ours"))
        tx.save_document(replace(DOCUMENT, split_id="whole", state=DocumentState.WHOLE))
    store.commit()
    with store.transition() as tx:
        tx.save_document(DOCUMENT.moved(DocumentState.JOINING))
        assert [document.split_id for document in tx.open_documents()] == ["doc", "a", "b"]
        tx.save_document(replace(DOCUMENT, split_id="a", state=DocumentState.FAILED))
        assert [document.split_id for document in tx.open_documents()] == ["doc", "b"]


def test_what_is_gathered_is_counted_for_each_sender(backend: Backend) -> None:
    store = backend.store
    with store.transition() as tx:
        assert tx.gathered("buyer") == (0, 0)
        tx.save_document(DOCUMENT)
        tx.save_document(replace(DOCUMENT, split_id="b", size=5))
        tx.save_document(replace(DOCUMENT, sender="another", size=100))
        tx.save_document(replace(DOCUMENT, split_id="whole", state=DocumentState.WHOLE))
        assert tx.gathered("buyer") == (2, 12)
    with undone(store) as tx:
        tx.save_document(replace(DOCUMENT, split_id="c"))
        tx.save_document(DOCUMENT.moved(DocumentState.FAILED))
        assert tx.gathered("buyer") == (2, 12)
    store.commit()
    store = backend.crash()
    with store.transition() as tx:
        tx.save_document(replace(DOCUMENT, split_id="b", size=6, state=DocumentState.JOINING))
        tx.save_document(replace(DOCUMENT, split_id="d", size=1))
        assert tx.gathered("buyer") == (3, 14)
        assert tx.gathered("another") == (1, 100)
        tx.save_document(replace(DOCUMENT, split_id="d", state=DocumentState.FAILED))
        assert tx.gathered("buyer") == (2, 13)
    store.commit()
    with store.transition() as tx:
        assert tx.gathered("buyer") == (2, 13)
        tx.sweep(DAY, 100)
        assert tx.gathered("buyer") == (2, 13)


def test_parts_are_listed_by_ordinal_until_they_are_joined(store: Store) -> None:
    with store.transition() as tx:
        for number, state in ((3, HELD), (1, GATHERED), (2, GATHERED)):
            tx.add_incoming(_part(number, state))
        tx.add_incoming(received("other", sender="buyer"))
    store.commit()
    with store.transition() as tx:
        listed = tx.parts("buyer", "doc")
        assert [part.facts.split_number for part in listed] == [1, 2, 3]
        assert all(part.parcel is None for part in listed)
        assert tx.parts("seller", "doc") == []
        tx.save_incoming(replace(listed[0].incoming, state=IncomingState.CONFIRMED))
        assert [part.facts.split_number for part in tx.parts("buyer", "doc")] == [2, 3]
    store.commit()
    with store.transition() as tx:
        assert [part.facts.split_number for part in tx.parts("buyer", "doc")] == [2, 3]


def test_bytes_that_are_forgotten_are_gone_and_their_file_is_nobodys(store: Store) -> None:
    name, size = store.spool.put([b"content of a part"])
    with store.transition() as tx:
        bytes_ = replace(parcel(), body=(SpoolSlice(name, 0, size),))
        tx.add_incoming(replace(_part(1), parcel=bytes_, view=b"view"))
    store.commit()
    with store.reader() as reader:
        assert reader.spooled() == {name}
    with store.transition() as tx:
        (part,) = tx.parts("buyer", "doc")
        tx.save_incoming(replace(part.incoming, state=CLOSED), forget=True)
        kept = tx.incoming("buyer", "part1")
        assert kept is not None
        assert (kept.parcel, kept.view) == (None, None)
    store.commit()
    with store.reader() as reader:
        assert reader.spooled() == set()
        (part,) = reader.incoming("part1")
        assert (part.parcel, part.view) == (None, None)
    store.spool.let_go(name)
    with store.reader() as reader:
        assert store.spool.remove_unreferenced(reader.spooled()) == 1


def test_a_place_that_was_taken_is_kept_for_a_later_message(store: Store) -> None:
    with store.transition() as tx:
        place = tx.take_place()
        tx.add_incoming(received("after", state=READY))
        tx.add_incoming(replace(received("first", state=READY), position=place))
        assert [one.incoming.message_id for one in tx.ready(0, 9)] == ["first", "after"]
    store.commit()
    with store.transition() as tx:
        assert [one.incoming.message_id for one in tx.ready(0, 9)] == ["first", "after"]


def test_the_sweep_forgets_what_is_over_and_old(store: Store) -> None:
    with store.transition() as tx:
        tx.save_document(replace(DOCUMENT, split_id="whole", state=DocumentState.WHOLE))
        tx.save_document(DOCUMENT)
    store.commit()
    for now, left in ((2 * DAY + 5, True), (2 * DAY + 6, False)):
        with store.transition() as tx:
            tx.sweep(now, 10)
            assert (tx.document("buyer", "whole") is not None) is left
            assert tx.document("buyer", "doc") is not None
        store.commit()
