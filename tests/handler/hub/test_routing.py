"""Where a hub sends what is not for it: by party, by service, by default; and never in circles."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml, write_toml, write_whole
from oncewire.handler.hub.passing import HOPS_MAX
from oncewire.message.ids import Party, PartyId, Service
from oncewire.protocol.states import OutgoingState
from oncewire.wire import codec
from tests.handler.network import HTTP, Network, options


def neighbour(name: str, **partner: object) -> str:
    lines = "".join(f"{key} = {value}\n" for key, value in partner.items())
    return (
        f'cpa_id = "hub-{name}"\nforwards = true\n'
        '[own]\nparty_id = "urn:sim:hub"\nhttp = "http://hub/msh"\n'
        f'[partner]\nparty_id = "urn:sim:{name}"\nhttp = "http://{name}/msh"\n{lines}'
    )


def party(name: str) -> Party:
    return Party((PartyId(f"urn:sim:{name}"),))


HUB = Agreements(
    [
        read_toml(neighbour("everybody", behind_all="true")),
        read_toml(neighbour("customs", behind_services='["urn:customs"]')),
        read_toml(neighbour("region", behind='["urn:sim:village"]')),
        read_toml(neighbour("city")),
    ]
)


@pytest.mark.requirement("HOP-5")
@pytest.mark.parametrize(
    ("to", "service", "way"),
    [
        ("city", "urn:orders", "city"),
        ("village", "urn:orders", "region"),
        ("village", "urn:customs", "region"),
        ("unheard", "urn:customs", "customs"),
        ("unheard", "urn:orders", "everybody"),
    ],
)
def test_the_way_is_found_by_party_then_by_service_then_by_default(
    to: str, service: str, way: str
) -> None:
    found = HUB.toward(party(to), Service(service))
    assert found is not None
    assert found.cpa_id == f"hub-{way}"


def test_a_hub_without_a_default_knows_no_way_to_strangers() -> None:
    some = Agreements([agreement for agreement in HUB if not agreement.partner.behind_all])
    assert some.toward(party("unheard"), Service("urn:orders")) is None
    assert some.toward(party("unheard"), None) is None


def test_where_it_leads_is_written_down_as_it_was_read() -> None:
    for agreement in HUB:
        assert read_toml(write_toml(agreement)) == agreement
        assert read_toml(write_whole(agreement)).partner == agreement.partner


@pytest.mark.requirement("HOP-5")
@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x", "rm-0.78"])
@pytest.mark.parametrize("key", ["behind_services", "behind_all"])
def test_orders_and_answers_pass_a_hub_that_names_neither_end(profile: str, key: str) -> None:
    chain = Network.chain(options(profile, hops=2))
    hub = chain.engines["hub1"].context
    open_ends = []
    for agreement in hub.agreements:
        partner = agreement.partner
        if partner.party.ids[0].value == "urn:sim:seller":
            said = {"behind_services": ("urn:sim:orders",), "behind_all": True}[key]
            # The seller is known by another name here: only where its messages go is.
            named = replace(
                partner,
                party=Party((PartyId("urn:sim:warehouse"),)),
                **{key: said},  # type: ignore[arg-type]
            )
            agreement = replace(agreement, partner=named)
        open_ends.append(agreement)
    hub.agreements = Agreements(open_ends)
    order = chain.send(0).message_id
    assert chain.state(order) is OutgoingState.DELIVERED
    kinds = {row.kind for row in chain.rows(at="hub1", of=order)}
    assert kinds & {"forwarded", "passed_on"}


@pytest.mark.parametrize("profile", ["ms-0.9x", "rm-0.78"])
def test_what_comes_back_to_a_hub_is_not_sent_on_again(profile: str) -> None:
    chain = Network.chain(options(profile, hops=3))
    chain.send(0)
    onward = next(one for one in chain.between("hub1", "hub2") if b"order 0" in one.body)
    before = len(chain.carried)
    # As if the second hub thought that the way to the seller leads over the first.
    back = next(one for one in chain.between("hub2", "seller") if b"order 0" in one.body)
    for parcel in (onward, back) if profile == "ms-0.9x" else (back,):
        chain.deliver("hub1", parcel)
    assert len(chain.carried) == before, "nothing is sent on"
    refused = chain.rows("refused", at="hub1")
    assert refused
    assert all("circle" in (row.detail or "") for row in refused)


def test_too_many_hops_are_refused() -> None:
    chain = Network.chain(options("ms-0.9x", hops=2))
    chain.send(0)
    first = next(one for one in chain.between("buyer", "hub1") if b"order 0" in one.body)
    message = codec.read(first).message
    hops = tuple(
        structs.replace(
            message.routing[0], sender_uri=f"http://h{number}/", receiver_uri="http://hub1/msh"
        )
        for number in range(HOPS_MAX + 1)
    )
    header = structs.replace(message.header, message_id="travelled@buyer")
    travelled = structs.replace(message, header=header, routing=hops)
    hub = chain.engines["hub1"]
    form = next(iter(hub.context.agreements)).form
    hub.receive(codec.write(travelled, form), HTTP)
    chain.settle("hub1")
    kinds = {row.kind for row in chain.rows(at="hub1", of="travelled@buyer")}
    assert kinds == {"refused"}
