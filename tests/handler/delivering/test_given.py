"""What an application is given is what was accepted: verified, opened, and not a byte else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncewire.agreement.agreement import Agreements
from oncewire.handler.context import HandlerContext
from oncewire.handler.delivering import deliver
from oncewire.handler.delivering import view as accepted_module
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.encryption import body_slice, whole_parcel
from oncewire.handler.receiving import arrive
from oncewire.message.envelope import Message, Payload
from oncewire.message.instant import SECOND
from oncewire.store.records import StoredIncoming, StoredParcel
from oncewire.store.spool_contract import Spool
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network, Stores
from tests.handler.test_signed import signed_pair

LEASE = 30 * SECOND


@pytest.fixture(autouse=True, params=["view", "bytes"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored beside the bytes: the view, or nothing, as by versions before it."""
    if request.param == "bytes":
        monkeypatch.setattr(arrive, "view_of", lambda *_: None)


def take(pair: Network, limit: int = 100) -> list[GivenMessage]:
    taken = pair.beta.hand_over(limit, LEASE)
    pair.settle("beta")
    return taken


def incidents(pair: Network) -> list[str]:
    return [one.reason for one in pair.incidents("beta")]


def with_a_part_nobody_signed(parcel: Parcel) -> Parcel:
    mark = parcel.content_type.partition('boundary="')[2].partition('"')[0]
    extra = f"--{mark}\r\nContent-ID: <evil@x>\r\nContent-Type: text/plain\r\n\r\nevil\r\n"
    end = f"--{mark}--".encode()
    assert parcel.body.count(end) == 1
    return Parcel(parcel.content_type, parcel.body.replace(end, extra.encode() + end))


def test_a_part_that_nobody_signed_is_given_to_nobody() -> None:
    pair = signed_pair()
    pair.lose_request = lambda post: True
    sent = pair.send()
    pair.deliver("beta", with_a_part_nobody_signed(pair.sent(sent.message_id)))
    (taken,) = take(pair)
    assert [payload.data for payload in taken.payloads] == [b"order 1"]
    pair.beta.confirm(taken.sender, taken.message_id)
    pair.settle("beta")
    assert pair.verify(healed=False).clean


def test_the_journal_has_the_digest_of_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the promise can be seen broken: a digest copied from the arrival would always fit."""
    pair = Network.pair()
    pair.send()

    def altered(node: HandlerContext, stored: StoredIncoming) -> Message:
        message = accepted_module.accepted(node, stored)
        # The stated digest stays: only the bytes can tell.
        payload = replace(message.payloads[0], data=b"order 7")
        return replace(message, payloads=(payload,))

    monkeypatch.setattr(deliver, "accepted", altered)
    (taken,) = take(pair)
    pair.beta.confirm(taken.sender, taken.message_id)
    pair.settle("beta")
    (found,) = pair.verify().violations
    assert (found.predicate, found.kind, found.node) == ("S15", "altered", "beta")


def rotten(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """The stored bytes of these orders change."""

    def read(node: HandlerContext, stored: StoredParcel) -> Parcel:
        parcel = whole_parcel(node, stored)
        for number in numbers:
            parcel = replace(parcel, body=parcel.body.replace(b"order %d" % number, b"order 7"))
        return parcel

    def cut(spool: Spool, stored: StoredParcel, offset: int, length: int) -> bytes:
        found = body_slice(spool, stored, offset, length)
        for number in numbers:
            found = found.replace(b"order %d" % number, b"order 7")
        return found

    monkeypatch.setattr(accepted_module, "whole_parcel", read)
    monkeypatch.setattr(accepted_module, "body_slice", cut)


def test_changed_bytes_are_given_to_nobody_and_delay_nobody(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Network.pair(store=stores)
    pair.send_all((1, 2, 3))
    rotten(monkeypatch, 1, 2)
    # One at a time: the two that wait must not use up the places of the third.
    assert [one.message_id for one in take(pair, 1)] == ["order-3@alpha"]
    assert take(pair, 1) == []
    first = incidents(pair)[0]
    assert "order-1@alpha no longer say what was accepted" in first
    assert pair.kinds("beta").count("incident") == 2
    pair.beta.confirm("urn:test:alpha", "order-3@alpha")
    pair.settle("beta")
    monkeypatch.undo()
    for taken in take(pair):
        pair.beta.confirm(taken.sender, taken.message_id)
    pair.settle("beta")
    assert incidents(pair) == []
    assert pair.verify().clean
    pair.close()


def test_what_follows_on_its_channel_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Network.pair("window")
    pair.send_all((1, 2, 3))
    rotten(monkeypatch, 2)
    assert [one.message_id for one in take(pair)] == ["order-1@alpha"]
    monkeypatch.undo()
    assert [one.message_id for one in take(pair)] == ["order-2@alpha", "order-3@alpha"]
    assert pair.verify(healed=False).clean


def test_payloads_are_opened_by_the_agreement_they_came_under() -> None:
    """It may be gone before the application comes, which must not get the cipher text."""
    pair = signed_pair(encrypt=True)
    sent = pair.send()
    pair.beta.context.agreements = Agreements([])
    (taken,) = take(pair)
    assert (taken.message_id, taken.payloads[0].data) == (sent.message_id, b"order 1")
    assert incidents(pair) == []


def test_closed_payloads_wait_for_the_key_that_opens_them() -> None:
    pair = signed_pair(encrypt=True)
    sent = pair.send()
    key, pair.beta.context.keys = pair.beta.context.keys, None
    assert take(pair) == []
    assert len(incidents(pair)) == 1
    pair.beta.context.keys = key
    (taken,) = take(pair)
    assert (taken.message_id, taken.payloads[0].data) == (sent.message_id, b"order 1")


def test_a_signed_document_keeps_the_name_that_its_sender_gave_it() -> None:
    """No signature covers it, and none covers the media type; whatever else stands beside a part
    is left out."""
    pair = signed_pair()
    named = Payload.of("doc", "text/plain", b"it", "katalog 2026.txt")
    named = replace(named, mime_headers=(*named.mime_headers, ("X-Other", "of nobody")))
    pair.send(payloads=(named,), message_id="m@alpha", conversation_id=None)
    (given,) = take(pair)
    assert given.payloads[0].file_name == "katalog 2026.txt"
    assert [name for name, _ in given.payloads[0].mime_headers] == ["Content-Disposition"]
