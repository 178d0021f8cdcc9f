"""A glance at a body: which messages it seems to name."""

from __future__ import annotations

import pytest

from oncewire.handler.encryption import whole_parcel
from oncewire.wire.codec import FAR, NAMES_MAX, named_in
from tests.handler.network import Network


@pytest.mark.parametrize("profile", ["ebms2", "window", "rm-0.78"])
def test_every_dialect_is_glanced_at(profile: str) -> None:
    pair = Network.pair(profile, lose_request=lambda post: True)
    pair.send(1)
    with pair.alpha.context.store.transition() as tx:
        parcel = tx.outgoing_parcel("order-1@alpha")
    assert parcel is not None
    assert "order-1@alpha" in named_in(whole_parcel(pair.alpha.context, parcel).body)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"", ()),
        (b"\x00\xff MessageId>", ()),
        (b"<a:MessageId> x@y </a:MessageId><RefToMessageId>z</RefToMessageId>", ("x@y", "z")),
        (b"<MessageId>x</MessageId>" * 3, ("x",)),
        (b"<MessageId>x&amp;y</MessageId>", ()),
        (b"<MessageId>" + b"x" * 201 + b"</MessageId>", ()),
        (b"<MessageId>\xff</MessageId>", ("\ufffd",)),
        (b" " * FAR + b"<MessageId>x</MessageId>", ()),
    ],
)
def test_what_is_no_id_is_left_out(body: bytes, names: tuple[str, ...]) -> None:
    assert named_in(body) == names


def test_a_flood_of_names_ends() -> None:
    body = b"".join(b"<MessageId>%d</MessageId>" % number for number in range(1_000))
    assert len(named_in(body)) == NAMES_MAX
