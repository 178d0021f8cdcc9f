"""The view that was accepted is stored, and hand-over gives it without parsing anything."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from oncewire.errors import StoreProblem
from oncewire.handler import encryption as spooled_module
from oncewire.handler.delivering import view as accepted_module
from oncewire.handler.delivering import view as view_module
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.delivering.view import View, accepted, read_view, write_view
from oncewire.message.envelope import (
    Compression,
    DeliverySemantics,
    Error,
    ErrorList,
    Header,
    Message,
    MessageKind,
    Payload,
    Reference,
    Severity,
    Split,
)
from oncewire.message.form import AckRequest, Dialect, SyncReplyMode
from oncewire.message.ids import Party, PartyId, Service
from oncewire.message.instant import SECOND
from oncewire.store.records import SpoolSlice, StoredIncoming, StoredParcel
from oncewire.store.spool_contract import Spool
from oncewire.wire.parcel import Parcel, PartPlace
from tests.handler.damage import Scene, document
from tests.handler.network import Network
from tests.handler.test_signed import signed_pair

FULL = View(
    Message(
        Dialect.MS_09X,
        MessageKind.ACKNOWLEDGMENT,
        Header(
            Party((PartyId("a", "t"), PartyId("urn:b")), "buyer"),
            Party((PartyId("urn:c"),)),
            "cpa",
            "talk",
            Service("s", "type"),
            "act",
            "id@x",
            -5,
            "ref@x",
            7,
            DeliverySemantics.ONCE_AND_ONLY_ONCE,
            True,
            AckRequest.SIGNED,
            SyncReplyMode.RESPONSE_ONLY,
            True,
            Split("split", 2, 3),
            (("en", "wörds \u2028"),),
            (b"<x>\xff\x00</x>",),
        ),
        error_list=ErrorList((Error("Code", Severity.WARNING, "where", "what", "context", 3),)),
        manifest=(
            Reference(
                "cid:one",
                "role",
                "id",
                (("schema", None), ("other", "1")),
                (("de", "Wort"),),
                Compression("gzip", 9),
                (b"<y/>",),
            ),
            Reference("mid:other"),
        ),
        payloads=(
            Payload("one", "text/plain", 3, "d" * 64, None, None, "gzip", (("X-A", "ä"),)),
            Payload("two", "a/b", 0, "e" * 64),
        ),
    ),
    (PartPlace(1, 4, "base64"), PartPlace(9, 0)),
)
"""No field that an application sees has its default, so that none can be mixed up."""


def test_every_value_comes_back() -> None:
    assert read_view(write_view(FULL)) == FULL


@pytest.mark.parametrize(
    ("names", "kind", "left_out"),
    [
        (view_module.HEADER, Header, ()),
        (view_module.REFERENCE, Reference, ()),
        (view_module.ERROR, Error, ()),
        (view_module.PAYLOAD, Payload, ("data", "spooled")),
    ],
)
def test_no_field_is_forgotten(
    names: tuple[str, ...], kind: type[Struct], left_out: tuple[str, ...]
) -> None:
    found = [name for name in kind.__struct_fields__ if name not in left_out]
    assert list(names) == found


def changed(place: int) -> Callable[[bytes], bytes]:
    return lambda view: view[:place] + bytes([view[place] ^ 1]) + view[place + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "nothing left": lambda view: b"",
    "half of it": lambda view: view[: len(view) // 2],
    "its digest": changed(3),
    # Neither the Manifest nor the place of a part is in the identity of a message.
    "its values": lambda view: view.replace(b"cid:", b"cib:"),
    "another format": lambda view: rewritten(view, b"[1,", b"[2,"),
    "values of another kind": lambda view: rewritten(view, b"[1,", b'["1",'),
    "one value less": lambda view: rewritten(view, b"[1,", b"["),
    "another size": lambda view: rewritten(view, b",7,", b",8,"),
    "another place": lambda view: rewritten(view, b'"]]]', b'x"]]]'),
}


def rewritten(view: bytes, old: bytes, new: bytes) -> bytes:
    """A view that was written so, by whatever mistake."""
    text = view[32:].replace(old, new, 1)
    return view_module.hashlib.sha256(text).digest() + text


def stored_in(pair: Network, number: int) -> StoredIncoming:
    with pair.beta.context.store.transition() as tx:
        stored = tx.incoming("urn:test:alpha", f"order-{number}@alpha")
    assert stored is not None
    return stored


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_view_says_nothing(damage: str) -> None:
    pair = Network.pair()
    pair.send()
    stored = stored_in(pair, 1)
    assert stored.view is not None
    assert accepted(pair.beta.context, stored).payloads[0].data == b"order 1"
    damaged = DAMAGES[damage](stored.view)
    assert damaged != stored.view
    with pytest.raises(StoreProblem):
        accepted(pair.beta.context, replace(stored, view=damaged))


def test_the_view_of_another_message_is_not_given_for_this_one() -> None:
    pair = Network.pair()
    pair.send(1)
    pair.send(2)
    first, second = stored_in(pair, 1), stored_in(pair, 2)
    mixed = replace(first, view=second.view)
    with pytest.raises(StoreProblem, match="no longer say"):
        accepted(pair.beta.context, mixed)
    with pytest.raises(StoreProblem, match="no longer say"):
        accepted(pair.beta.context, replace(mixed, parcel=second.parcel))


def test_what_is_withheld_for_its_view_goes_on_when_it_is_put_back(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "ebms2")
    for number in (1, 2):
        scene.send(number)
    with sqlite3.connect(tmp_path / "beta.db") as connection:
        (view,) = connection.execute("SELECT view FROM incoming_bytes WHERE row = 1").fetchone()
        connection.execute("UPDATE incoming_bytes SET view = x'00' WHERE row = 1")
    scene.take()
    assert [one[0] for one in scene.given] == ["order-2@alpha"]
    ((message_id, _, reason),) = scene.incidents("beta")
    assert message_id == "order-1@alpha"
    assert "what was accepted of the message is damaged" in reason
    with sqlite3.connect(tmp_path / "beta.db") as connection:
        connection.execute("UPDATE incoming_bytes SET view = ? WHERE row = 1", (view,))
    scene.take()
    assert [one[0] for one in scene.given] == ["order-2@alpha", "order-1@alpha"]
    assert scene.incidents("beta") == []
    assert scene.pair.verify(healed=False).clean
    scene.close()


# --- nothing is parsed ---


def take(pair: Network) -> list[GivenMessage]:
    return pair.beta.hand_over(10, 30 * SECOND)


@pytest.fixture
def no_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the bytes are parsed")

    monkeypatch.setattr(accepted_module.codec, "read", refuse)
    monkeypatch.setattr(accepted_module, "whole_parcel", refuse)


@pytest.mark.parametrize("profile", ["ebms2", "window", "phinms", "ms-0.9x", "rm-0.78"])
def test_hand_over_parses_nothing(profile: str, request: pytest.FixtureRequest) -> None:
    """Two parts: the drafts put those into a container of their own."""
    pair = Network.pair(profile)
    parts = (Payload.of("one", "text/plain", b"first"), Payload.of("two", "a/b", b"second"))
    pair.send(payloads=parts, conversation_id=None, message_id=None)
    request.getfixturevalue("no_parsing")
    (taken,) = take(pair)
    assert [one.data for one in taken.payloads] == [b"first", b"second"]


def test_what_was_signed_is_given_without_parsing(request: pytest.FixtureRequest) -> None:
    pair = signed_pair()
    pair.send(1)
    request.getfixturevalue("no_parsing")
    assert [one.payloads[0].data for one in take(pair)] == [b"order 1"]


def test_what_is_encrypted_is_read_again() -> None:
    pair = signed_pair(encrypt=True)
    pair.send(1)
    assert stored_in(pair, 1).view is None
    assert [one.payloads[0].data for one in take(pair)] == [b"order 1"]


def lost(pair: Network) -> Parcel:
    """A message that the network lost."""
    pair.lose_request = lambda post: True
    pair.send(1)
    return replace(pair.sent("order-1@alpha"), headers=(("SOAPAction", '"ebXML"'),))


def test_a_part_is_decoded_as_it_travelled(request: pytest.FixtureRequest) -> None:
    pair = Network.pair()
    parcel = lost(pair)
    head, sep, rest = parcel.body.rpartition(b"\r\n\r\norder 1")
    assert sep
    coded = head + b"\r\nContent-Transfer-Encoding: base64\r\n\r\nb3JkZXIg\r\nMQ==" + rest
    pair.deliver("beta", replace(parcel, body=coded.replace(b": binary\r\n", b": base64\r\n")))
    request.getfixturevalue("no_parsing")
    (taken,) = take(pair)
    assert taken.payloads[0].data == b"order 1"


def test_of_a_large_body_only_the_part_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, "ebms2")
    scene.send(3)
    cut: list[int] = []
    real = spooled_module.body_slice

    def counted(spool: Spool, stored: StoredParcel, offset: int, length: int) -> bytes:
        assert all(isinstance(part, SpoolSlice) for part in stored.body)
        cut.append(length)
        return real(spool, stored, offset, length)

    monkeypatch.setattr(accepted_module, "body_slice", counted)
    monkeypatch.setattr(accepted_module, "whole_parcel", lambda *_: pytest.fail("all of it"))
    scene.take()
    assert scene.given == [("order-3@alpha", document(3))]
    # Whoever wants a large one reads it from its file.
    assert cut == []
    scene.close()


def test_a_slice_is_the_same_wherever_the_body_lies(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "ebms2")
    spool = scene.pair.beta.context.store.spool
    name, _ = spool.put([b"..456789.."])
    body = StoredParcel("a/b", (), (b"0123", SpoolSlice(name, 2, 6), b"abc"))
    for begin in range(15):
        for length in range(15):
            found = spooled_module.body_slice(spool, body, begin, length)
            assert found == b"0123456789abc"[begin : begin + length]
    scene.close()
