"""Signed acknowledgements that prove receipt: kept as they came, as long as the message."""

from __future__ import annotations

import pytest

from oncewire.errors import UnknownMessage
from oncewire.message.instant import DAY
from oncewire.store.contract import Store
from oncewire.store.records import SpoolSlice, StoredParcel, StoredReceipt
from tests.store.backends import Backend
from tests.store.samples import DELIVERED, add, everything, parcel, sent, undone

SPOOLED = "a" * 64


def _receipt(name: str, body: bytes = b"signed") -> StoredReceipt:
    return StoredReceipt(name, 5, parcel(body))


def _kept(store: Store, message_id: str = "a") -> StoredReceipt | None:
    with store.reader() as reader:
        return reader.receipt(message_id)


def test_what_proved_the_receipt_survives_a_crash_and_goes_with_its_message(
    backend: Backend,
) -> None:
    store = backend.store
    with store.transition() as transaction:
        add(transaction, sent("a", state=DELIVERED))
        transaction.keep_receipt("a", _receipt("of the hub"))
    store.commit()
    with store.transition() as transaction:
        transaction.keep_receipt("a", _receipt("of the end", b"the other one"))
    store.commit()
    store = backend.crash()
    assert _kept(store) == _receipt("of the end", b"the other one")
    assert _kept(store, "b") is None
    with store.transition() as transaction:
        assert transaction.sweep(10 * DAY, 10) == 1
    store.commit()
    assert _kept(store) is None
    with store.transition() as transaction:
        add(transaction, sent("a"))
    store.commit()
    assert _kept(store) is None


def test_it_is_undone_with_its_transition_and_needs_its_message(store: Store) -> None:
    with store.transition() as transaction:
        add(transaction, sent("a"))
    store.commit()
    before = everything(store)
    with undone(store) as transaction:
        transaction.keep_receipt("a", _receipt("r"))
    store.commit()
    assert everything(store) == before
    with store.transition() as transaction, pytest.raises(UnknownMessage):
        transaction.keep_receipt("b", _receipt("r"))


def test_the_files_that_it_is_made_of_stay(store: Store) -> None:
    large = StoredParcel("text/xml", (), (b"head", SpoolSlice(SPOOLED, 0, 7)))
    with store.transition() as transaction:
        add(transaction, sent("a"))
        transaction.keep_receipt("a", StoredReceipt("r", 5, large))
    store.commit()
    with store.reader() as reader:
        assert reader.spooled() == {SPOOLED}
        assert reader.receipt("a") == StoredReceipt("r", 5, large)
