"""What is signed is what is seen: stored, journaled, handed over, and not a part besides."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from oncewire.agreement.toml import read_toml
from oncewire.handler.actions import Submission
from oncewire.handler.context import Keys
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.message.instant import SECOND
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from oncewire.wire.security import algorithms
from tests.handler.network import Network
from tests.handler.running import FAST, free_port, journal, order, post, serving, stored_bytes
from tests.handler.test_signed import pem, signed_pair
from tests.handler.test_unproven import KEYS, PEOPLE, rows, signing
from tests.wire.security import documents, parcel_forger, reference_engine
from tests.wire.security import keys as people

ORDER = "order-1@alpha"
PARTS = (
    Payload.of("one@x", "text/plain", b"the first"),
    Payload.of("two@x", "application/xml", b"<the-second/>"),
)


def sent(pair: Network, payloads: tuple[Payload, ...] = PARTS) -> Parcel:
    """A signed message of alpha's that the network lost."""
    pair.lose_request = lambda post: True
    submission = Submission(
        "alpha-beta", Service("urn:test:orders"), "New", payloads, message_id=ORDER
    )
    pair.alpha.submit(submission)
    pair.settle("alpha")
    parcel = pair.sent(ORDER)
    # Whoever changes a body on its way can count its digest anew.
    return structs.replace(parcel, headers=())


def boundary(parcel: Parcel) -> bytes:
    return parcel.content_type.partition('boundary="')[2].partition('"')[0].encode()


def pieces(parcel: Parcel) -> list[bytes]:
    """The parts of a body, each with its headers; the envelope is the first."""
    mark = b"--" + boundary(parcel)
    return [one.strip(b"\r\n") for one in parcel.body.split(mark)[1:-1]]


def rebuilt(parcel: Parcel, parts: list[bytes]) -> Parcel:
    mark = b"--" + boundary(parcel)
    body = b"".join(mark + b"\r\n" + one + b"\r\n" for one in parts) + mark + b"--\r\n"
    return structs.replace(parcel, body=body)


EVIL = b"Content-ID: <evil@x>\r\nContent-Type: text/plain\r\n\r\nevil"
UNNAMED = b"Content-Type: text/plain\r\n\r\nevil"


def _insert(place: int, part: bytes) -> Callable[[Parcel], Parcel]:
    def change(parcel: Parcel) -> Parcel:
        parts = pieces(parcel)
        return rebuilt(parcel, [*parts[:place], part, *parts[place:]])

    return change


def _swap(parcel: Parcel) -> Parcel:
    envelope, *parts = pieces(parcel)
    return rebuilt(parcel, [envelope, *reversed(parts)])


def _headers(parcel: Parcel) -> Parcel:
    envelope, first, *rest = pieces(parcel)
    said = b"Content-Encoding: gzip\r\nX-Evil: yes\r\nContent-Description: evil\r\n" + first
    return rebuilt(parcel, [envelope, said, *rest])


HARMLESS: dict[str, Callable[[Parcel], Parcel]] = {
    "a part before the signed ones": _insert(1, EVIL),
    "a part between them": _insert(2, EVIL),
    "a part behind them": _insert(3, EVIL),
    "a part without Content-ID before": _insert(1, UNNAMED),
    "a part without Content-ID behind": _insert(3, UNNAMED),
    "the parts in another order": _swap,
    "headers of a part": _headers,
}


def seen(taken: GivenMessage) -> tuple[object, ...]:
    """Everything an application can read of a message."""
    return (
        taken.sender,
        taken.message_id,
        taken.header,
        taken.payloads,
        taken.references,
        taken.warnings,
        taken.digest,
    )


def view(pair: Network, parcel: Parcel) -> tuple[object, ...]:
    pair.deliver("beta", parcel)
    (taken,) = pair.beta.hand_over(10, 30 * SECOND)
    pair.settle("beta")
    pair.beta.confirm(taken.sender, taken.message_id)
    pair.settle("beta")
    return seen(taken)


@pytest.mark.parametrize("change", HARMLESS)
def test_the_application_sees_what_was_signed(change: str) -> None:
    pair, other = signed_pair(), signed_pair()
    original = sent(pair)
    altered = HARMLESS[change](sent(other))
    assert altered.body != original.body
    assert view(other, altered) == view(pair, original)
    for one in (pair, other):
        received, given = (
            next(row for row in rows(one, ORDER, "beta") if row.kind == kind)
            for kind in ("received", "handed_over")
        )
        assert received.digest == given.digest
        assert received.size == sum(part.size for part in PARTS)
        assert json.loads(received.detail or "")["signature"] == "verified"
    with other.beta.context.store.reader() as reader:
        (listed,) = reader.incoming_list()
        assert listed.facts.size == sum(part.size for part in PARTS)
    # And whichever comes second is a copy.
    other.deliver("beta", original)
    assert "duplicate" in other.kinds("beta")
    assert other.verify(healed=False).clean


def test_two_parts_of_one_name_are_refused() -> None:
    for place in (1, 2, 3):
        pair = signed_pair()
        twice = b"Content-ID: <one@x>\r\nContent-Type: text/plain\r\n\r\nevil"
        pair.deliver("beta", _insert(place, twice)(sent(pair)))
        assert pair.take() == []
        assert "refused" in pair.kinds("beta")


def signed_as(parcel: Parcel, change: Callable[[bytes], bytes], parts: tuple[str, ...]) -> Parcel:
    """The same message, changed and then signed by alpha over these parts alone."""
    received = codec.read(parcel)
    bare = re.sub(rb"<ds:Signature.*?</ds:Signature>", b"", received.envelope, flags=re.DOTALL)
    covered = {
        f"cid:{one.content_id}": one.data or b""
        for one in received.message.payloads
        if one.content_id in parts
    }
    # Our own signer would not do it.
    empty = documents.template(
        documents.XPATH,
        documents.INCLUSIVE,
        signature=algorithms.SIGNATURE_URIS["rsa-sha256"],
        parts=tuple(covered),
    )
    filled = change(bare).replace(b"</SOAP:Header>", empty.encode() + b"</SOAP:Header>")
    envelope = reference_engine.sign(filled, PEOPLE["alpha"].key_pem, covered)
    head, *rest = pieces(parcel)
    headers = head.partition(b"\r\n\r\n")[0]
    return rebuilt(parcel, [headers + b"\r\n\r\n" + envelope, *rest])


def test_a_part_of_the_manifest_that_is_not_signed_is_refused_by_name() -> None:
    pair = signed_pair()
    pair.deliver("beta", signed_as(sent(pair), lambda envelope: envelope, ("one@x",)))
    assert pair.take() == []
    (refused,) = [row for row in rows(pair, ORDER, "beta") if row.kind == "refused"]
    said = json.loads(refused.detail or "")
    assert (said["code"], said["location"]) == ("SecurityFailure", "cid:two@x")
    assert "is not signed" in said["problem"]


@pytest.mark.parametrize("name", ["Timestamp", "MessageData", "Action", "DuplicateElimination"])
def test_what_stands_twice_under_a_signature_is_refused(name: str) -> None:
    """Whoever reads the second, or the last, would see another message than we."""
    pair = signed_pair()

    def twice(envelope: bytes) -> bytes:
        one = rb"(<eb:%b\b[^>]*?(?:/>|>.*?</eb:%b>))" % ((name.encode(),) * 2)
        changed, count = re.subn(one, rb"\1\1", envelope, count=1, flags=re.DOTALL)
        assert count == 1
        return changed

    pair.deliver("beta", signed_as(sent(pair), twice, ("one@x", "two@x")))
    assert pair.take() == []
    (refused,) = [row for row in rows(pair, ORDER, "beta") if row.kind == "refused"]
    said = json.loads(refused.detail or "")
    assert said["code"] == "Inconsistent"
    assert said["location"].endswith(f"/{name}")


def test_a_signed_part_that_the_manifest_does_not_name_is_its_senders() -> None:
    pair = signed_pair()

    def unnamed(envelope: bytes) -> bytes:
        found = rb'<eb:Reference [^>]*cid:two@x"[^>]*?(/>|>.*?</eb:Reference>)'
        changed, count = re.subn(found, b"", envelope, flags=re.DOTALL)
        assert count == 1
        return changed

    pair.deliver("beta", signed_as(sent(pair), unnamed, ("one@x", "two@x")))
    (taken,) = pair.beta.hand_over(10, 30 * SECOND)
    assert [one.data for one in taken.payloads] == [part.data for part in PARTS]
    assert [one.href for one in taken.references] == ["cid:one@x"]


@pytest.mark.parametrize("first", ["altered", "original"])
def test_a_media_type_that_somebody_changed_makes_no_other_message(first: str) -> None:
    """No signature covers it; its sender must not hear that its message was refused."""
    pair = signed_pair()
    original = sent(pair)
    altered = structs.replace(original, body=original.body.replace(b"text/plain", b"text/plaim"))
    assert altered.body != original.body
    both = [altered, original] if first == "altered" else [original, altered]
    for parcel in both:
        pair.deliver("beta", parcel)
    assert pair.take() == [ORDER]
    assert pair.kinds("beta").count("duplicate") == 1
    assert "refused" not in pair.kinds("beta")


def test_a_signature_that_nobody_checked_is_not_called_verified() -> None:
    """Signed for somebody who can check it; to a handler without certificates it says nothing."""
    pair, plain = signed_pair(), Network.pair("ebms2")
    plain.deliver("beta", sent(pair))
    (received,) = [row for row in rows(plain, ORDER, "beta") if row.kind == "received"]
    assert "signature" not in json.loads(received.detail or "")


async def test_a_part_nobody_signed_reaches_nobody_over_sockets(tmp_path: Path) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    extra = {one: FAST + signing(other) for one, other in (("alpha", "beta"), ("beta", "alpha"))}
    async with serving(
        tmp_path, "alpha", "beta", ports, extra=extra["alpha"], keys=KEYS["alpha"]
    ) as sender:
        accepted = await sender.send(order(1))
        altered = _insert(1, EVIL)(stored_bytes(sender, accepted.message_id))
        async with serving(
            tmp_path, "beta", "alpha", ports, extra=extra["beta"], keys=KEYS["beta"]
        ) as receiver:
            await post(ports["beta"], altered.body, altered.content_type)
            await sender.wait(accepted.message_id, 30)
            (taken,) = await receiver.take(10)
            assert [one.data for one in taken.payloads] == [b"order 1"]
            received = [row for row in journal(receiver) if row.kind == "received"]
            assert len(received) == 1


# --- the forger's whole stock, at a handler's door ---------------------------------------------


def door() -> Network:
    """beta's handler, which asks alpha for signatures, at the time of the forger's messages."""
    certificate = pem(people.alpha().certificate).replace("\n", "\\n")
    agreement = read_toml(
        'cpa_id = "alpha-beta-1"\nprofile = "ebms2"\n'
        '[own]\nparty_id = "beta"\ntype = "urn:ex:org"\nhttp = "http://beta/msh"\n'
        '[partner]\nparty_id = [{ value = "urn:alpha" }, '
        '{ value = "123456789", type = "urn:duns" }]\nhttp = "http://alpha/msh"\n'
        "[security]\nsign = true\nrequire_signature = true\n"
        f'partner_certificates = ["{certificate}"]\n'
    )
    ours = people.mallory("rsa")
    return Network.single(
        agreement, at="2026-06-01T00:00:00Z", keys=Keys(ours.certificate, ours.key)
    )


def at_the_door(parcel: Parcel) -> tuple[object, ...] | None:
    """What the application sees of it; None: it is refused, and nobody signs an answer."""
    desk = door()
    reply = desk.hand_in(parcel)
    taken = desk.given()
    if not taken:
        assert reply.parcel is None or b"<ds:Signature" not in reply.parcel.body
        assert desk.posted == []
        return None
    (one,) = taken
    payloads = tuple(structs.replace(payload, media_type="") for payload in one.payloads)
    return (*seen(replace(one, payloads=payloads))[:-1],)


@pytest.mark.long
def test_no_forgery_reaches_an_application_as_anything_but_the_original() -> None:
    good = at_the_door(parcel_forger.goods()["ebms2"])
    assert good is not None
    made = [one for one in parcel_forger.forgeries() if one.how.endswith(", ebms2")]
    wrong = [one.how for one in made if at_the_door(one.parcel) not in (None, good)]
    assert len(made) >= 300
    assert wrong == []
