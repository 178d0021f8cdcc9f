"""A partner is known by where it sent something new from; what was recorded shows nothing."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
from msgspec import structs

from oncewire.handler.context import Keys
from oncewire.handler.runtime.handler import Handler
from oncewire.message.instant import DAY
from oncewire.transport.contract import Peer
from oncewire.transport.http.server import HttpServer
from oncewire.transport.http.transport import HttpTransport
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network, options
from tests.handler.running import free_port, order, serving, stored_bytes
from tests.handler.test_identity import of_alpha
from tests.handler.test_signed import pem, signed_pair
from tests.wire.security.keys import alpha, mallory


def test_a_message_shows_where_its_sender_is_and_its_copies_do_not() -> None:
    pair = signed_pair()
    parcel = of_alpha(pair)
    assert pair.deliver("beta", parcel).partner_is_there
    again = pair.deliver("beta", parcel)
    assert again.parcel is not None or again.status == 204
    assert not again.partner_is_there
    assert len(pair.take()) == 1
    assert not pair.deliver("beta", parcel).partner_is_there


def test_a_copy_of_what_was_removed_or_refused_shows_nothing() -> None:
    pair = signed_pair()
    parcel = of_alpha(pair)
    pair.deliver("beta", parcel)
    pair.take()
    pair.pass_time(400 * DAY)
    assert not pair.deliver("beta", parcel).partner_is_there
    forged = Parcel(parcel.content_type, parcel.body.replace(b"order", b"ordeR"), ())
    assert not pair.deliver("beta", forged).partner_is_there


@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x", "rm-0.78"])
def test_what_a_hub_takes_for_others_shows_where_its_sender_is(profile: str) -> None:
    chain = Network.chain(options(profile, hops=2), carrying=False)
    chain.send(0)
    (parcel,) = chain.left("buyer")
    assert chain.deliver("hub1", parcel).partner_is_there
    assert not chain.deliver("hub1", parcel).partner_is_there


def test_an_acknowledgement_shows_where_its_sender_is_once() -> None:
    pair = signed_pair()
    pair.carrying = False
    pair.send()
    pair.carry(*pair.kept[0])
    (ack,) = pair.left("beta")
    assert pair.deliver("alpha", ack).partner_is_there
    assert not pair.deliver("alpha", ack).partner_is_there


def test_a_status_shows_where_its_sender_is_though_its_header_refers_to_nothing() -> None:
    pair = Network.pair("ms-0.9x", carrying=False)
    order = pair.send().message_id
    pair.alpha.ask_status(order)
    pair.settle("alpha")
    for parcel in pair.left("alpha"):
        pair.deliver("beta", parcel)
    told = next(one for one in pair.left_messages("beta") if one.status_response is not None)
    bare = structs.replace(told, header=structs.replace(told.header, ref_to_message_id=None))
    parcel = codec.write(bare, next(iter(pair.alpha.context.agreements)).form)
    assert pair.deliver("alpha", parcel).partner_is_there
    assert not pair.deliver("alpha", parcel).partner_is_there


def test_a_question_anybody_may_have_recorded() -> None:
    pair = signed_pair()
    pair.carrying = False
    pair.alpha.ping("alpha-beta")
    pair.settle("alpha")
    (ping,) = pair.left("alpha")
    for _ in range(2):
        assert not pair.deliver("beta", ping).partner_is_there


def test_without_proof_the_first_word_counts_and_its_copies_do_not() -> None:
    pair = Network.pair("ebms2")
    parcel = of_alpha(pair)
    assert pair.deliver("beta", parcel).partner_is_there
    assert not pair.deliver("beta", parcel).partner_is_there


# --- with sockets ------------------------------------------------------------------------------


def server_of(handler: Handler) -> HttpServer:
    transport = handler._carrier._transports["http"]
    assert isinstance(transport, HttpTransport)
    assert transport._server is not None
    return transport._server


async def from_address(address: str, port: int, parcel: Parcel) -> int:
    connector = aiohttp.TCPConnector(local_addr=(address, 0))
    headers = {"Content-Type": parcel.content_type, **dict(parcel.headers)}
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(f"http://127.0.0.1:{port}/msh", data=parcel.body, headers=headers) as reply,
    ):
        return reply.status


@pytest.mark.long
async def test_who_sends_a_recorded_message_stays_a_stranger(tmp_path: Path) -> None:
    people = {"alpha": alpha("rsa"), "beta": mallory("rsa")}
    ports = {"alpha": free_port(), "beta": free_port()}

    def terms(partner: str) -> str:
        certificate = pem(people[partner].certificate).replace("\n", "\\n")
        return (
            "[security]\nsign = true\nrequire_signature = true\n"
            f'partner_certificates = ["{certificate}"]\n'
        )

    def keys(own: str) -> Keys:
        return Keys(people[own].certificate, people[own].key)

    async with serving(
        tmp_path, "alpha", "beta", ports, extra=terms("beta"), keys=keys("alpha")
    ) as sender:
        accepted = await sender.send(order(1))
        parcel = stored_bytes(sender, accepted.message_id)
    async with serving(
        tmp_path, "beta", "alpha", ports, extra=terms("alpha"), keys=keys("beta")
    ) as handler:
        budgets = server_of(handler)._budgets
        assert await from_address("127.0.0.2", ports["beta"], parcel) < 300
        assert budgets.is_known(Peer("127.0.0.2"))
        assert await from_address("127.0.0.3", ports["beta"], parcel) < 300
        assert not budgets.is_known(Peer("127.0.0.3"))
