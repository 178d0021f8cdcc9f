"""Where a message goes and as whom it speaks, when one action says otherwise than the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from oncewire.agreement.agreement import Agreement
from oncewire.handler.actions import Submission
from oncewire.handler.route import Route
from oncewire.handler.sending import submit
from oncewire.handler.sending.submit import route_to_send
from oncewire.message.envelope import Header
from oncewire.message.ids import Service
from tests.handler.network import Network, response
from tests.handler.scenes import Said, paper
from tests.handler.scenes import stage as stage_of

ORDERS: Said = {"service": "urn:test:orders", "action": "New"}
ROLES: Said = {"own.role": "Company", "partner.role": "Company"}


def played(alpha: Said, beta: Said | None = None) -> Network:
    """An order goes to beta, whose application responds."""
    stage = stage_of(
        {"alpha": [paper("alpha", "beta", alpha)], "beta": [paper("beta", "alpha", beta or {})]}
    )
    stage.responses = {"order-1@alpha": [response()]}
    stage.send()
    stage.take()
    return stage


def posted(stage: Network, name: str) -> list[str]:
    """The addresses that a handler sent to, in order."""
    return [words[3] for words in stage.record if words[:2] == (name, "posts")]


def header(stage: Network) -> Header:
    """The header of the order as beta got it."""
    return stage.line[0].message.header


def test_an_action_goes_to_its_own_address() -> None:
    stage = played({"actions": [{**ORDERS, "http": "http://beta/orders"}]})
    assert posted(stage, "alpha")[0] == "http://beta/orders"
    other = played({"actions": [{**ORDERS, "action": "Old", "http": "http://beta/orders"}]})
    assert posted(other, "alpha")[0] == "http://beta/msh"


def test_requests_responses_and_signals_have_addresses_of_their_own() -> None:
    """CPPA 2.0 Endpoint/@type; an acknowledgement is a response of the handler."""
    ways = {"request": "http://alpha/in", "response": "http://alpha/back"}
    stage = played({"partner.http": {"request": "http://beta/in"}}, {"partner.http": ways})
    assert posted(stage, "alpha")[0] == "http://beta/in"
    assert posted(stage, "beta") == ["http://alpha/back", "http://alpha/back"]


@pytest.mark.parametrize("whole", [{}, ROLES])
def test_an_action_states_its_own_roles(whole: Said) -> None:
    """ebMS 2.0 §3.1.1.2: the role in which the party sends this message."""
    entry = {**ORDERS, "role": "Buyer", "partner_role": "Seller"}
    stage = played(whole | {"actions": [entry]})
    stated = header(stage)
    assert (stated.from_party.role, stated.to_party.role) == ("Buyer", "Seller")


def test_the_roles_of_the_whole_agreement_choose_among_entries() -> None:
    entries = [
        {**ORDERS, "role": role, "delivery": {"time_to_live": life}}
        for role, life in (("Agent", "PT1M"), ("Company", "PT2M"))
    ]
    stated = header(played(ROLES | {"actions": entries}))
    assert stated.from_party.role == "Company"
    assert stated.time_to_live == stated.timestamp + 120_000_000


@pytest.mark.parametrize(
    "agreed",
    [
        {"service": "urn:test:orders", "service_type": "anyURI"},
        {"service": "orders", "service_type": "urn:test"},
        {"service": "urn:test|orders"},
    ],
)
def test_the_service_that_is_agreed_is_sent_whatever_its_caller_called_it(agreed: Said) -> None:
    """The application says `urn:test:orders`; a partner knows the Service by its type too."""
    stated = header(played({"actions": [{**agreed, "action": "New"}]})).service
    kind, bar, value = str(agreed["service"]).rpartition("|")
    assert stated == Service(value, kind if bar else str(agreed["service_type"]))


def test_a_submission_is_known_again_whatever_its_service_was_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A repeat may spell it otherwise; a store of an earlier version has it as it was called."""
    entry = {"service": "urn:test:orders", "service_type": "anyURI", "action": "New"}
    stage = stage_of({"alpha": [paper("alpha", "beta", {"actions": [entry]})]})
    alpha = stage.engines["alpha"]
    plain = "urn:test:orders"
    words = [Service(plain, "anyURI"), Service(plain), Service(f"anyURI:{plain}")]
    given = [Submission("alpha-beta", word, "New", message_id="order-1@alpha") for word in words]
    assert [alpha.submit(one).repeated for one in given] == [False, True, True]
    later = [structs.replace(one, message_id="order-2@alpha") for one in given]
    with monkeypatch.context() as earlier:

        def unnamed(agreement: Agreement, given: Submission) -> Route:
            route = route_to_send(agreement, given)
            return replace(route, binding=replace(route.binding, service=None))

        earlier.setattr(submit, "route_to_send", unnamed)
        assert not alpha.submit(later[1]).repeated
    assert alpha.submit(later[1]).repeated


def test_a_party_id_with_a_type_is_the_same_name_to_the_judge() -> None:
    """Rows name the partner by the value alone where it is the next handler, and by value and type
    where it is the From Party."""
    typed: Said = {"own.type": "urn:duns", "partner.type": "urn:duns"}
    stage = stage_of(
        {own: [paper(own, to, typed)] for own, to in (("alpha", "beta"), ("beta", "alpha"))}
    )
    stage.send()
    stage.take()
    came, handed = (
        row.peer for row in stage.rows(at="beta") if row.kind in ("received", "handed_over")
    )
    assert (came, handed) == ("urn:test:alpha", "urn:duns:urn:test:alpha")
    assert stage.verify().clean
