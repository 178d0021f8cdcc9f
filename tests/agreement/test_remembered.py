"""What is remembered under an agreement is what would be worked out anew."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import product

import pytest
from msgspec.structs import replace

from oncewire.agreement import rules
from oncewire.agreement.resolve import Resolution, resolve
from oncewire.agreement.rules import Remembered
from oncewire.errors import EbxmlError
from oncewire.message.envelope import AckRequested, Actor, Message, SequenceNumber
from oncewire.message.form import AckRequest, SyncReplyMode
from tests.agreement import samples
from tests.agreement.samples import NOW


def _asking(message: Message, wishes: tuple[object, ...]) -> Message:
    ack, duplicates, receipt, sync, role, number = wishes
    header = replace(
        message.header,
        duplicate_elimination=duplicates,
        delivery_receipt_requested=receipt,
        sync_reply=sync,
        from_party=replace(message.header.from_party, role=role),
    )
    asked = () if ack is None else (AckRequested(Actor.TO_PARTY_MSH, bool(ack)),)
    order = SequenceNumber(3) if number else None
    return replace(message, header=header, ack_requested=asked, order=order)


WISHES = list(
    product(
        (None, True, False),
        (True, False),
        (None, AckRequest.SIGNED),
        (None, SyncReplyMode.MSH_SIGNALS_ONLY),
        (None, "Buyer"),
        (True, False),
    )
)


def _found(agreement: object, message: Message) -> Resolution | str:
    try:
        return resolve([agreement], message, receiving=True, now=NOW)  # type: ignore[list-item]
    except EbxmlError as error:
        return f"{error.code} {error.problem}"


@pytest.mark.parametrize("policy", "abcd")
def test_a_header_means_the_same_whatever_came_before_it(policy: str) -> None:
    said = f'[delivery]\nheader_conflict = "{policy}"\n'
    known = samples.agreement("ebms2", said)
    messages = [_asking(samples.message(), wishes) for wishes in WISHES]
    for message in (*messages, *reversed(messages)):
        # Another object of the same agreement remembers nothing.
        assert _found(known, message) == _found(samples.agreement("ebms2", said), message)


def test_it_is_known_by_the_very_object() -> None:
    values: Remembered[list[int], str] = Remembered()
    one, like_it = [1], [1]
    assert values.keep(one, "key", "value") == "value"
    assert values.get(one, "key") == "value"
    assert values.get(one, "other") is None
    assert values.get(like_it, "key") is None


def test_nobody_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "OBJECTS_MAX", 3)
    monkeypatch.setattr(rules, "KEYS_MAX", 3)
    values: Remembered[list[int], int] = Remembered()
    for each in range(10):
        one = [each]
        for key in range(10):
            values.keep(one, key, key)
            assert values.get(one, key) == key
    held = values._known
    assert len(held) <= 3
    assert all(len(found) <= 3 for _, found in held.values())


def test_handlers_of_several_threads_may_remember_at_once() -> None:
    """Each open party has a thread of its own, and this table is one for all of them."""

    class ClearedMeanwhile(dict[int, tuple[object, dict[Hashable, int]]]):
        def __setitem__(self, key: int, value: tuple[object, dict[Hashable, int]]) -> None:
            super().__setitem__(key, value)
            self.clear()

    table: Remembered[object, int] = Remembered()
    table._known = ClearedMeanwhile()
    assert table.keep(table, "key", 1) == 1
    assert table.get(table, "key") is None
