"""What a header means under an agreement does not depend on the headers before it."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from oncewire.agreement.resolve import Resolution, resolve
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
