"""An answer that has no address is told to somebody, once for each partner."""

from __future__ import annotations

import pytest

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.errors import AgreementProblem
from oncewire.protocol.notes import Kind
from tests.handler.network import Network, agreement_text


def unheard() -> Network:
    """beta acknowledges on a connection of its own, and knows no address of alpha's for that."""
    pair = Network.pair("ebms2", '[sync]\nmode = "none"\n')
    text = agreement_text("beta", "alpha", "ebms2", '[sync]\nmode = "none"\n')
    there = read_toml(text.replace('http = "http://alpha/msh"\n', ""))
    pair.beta.context.agreements = Agreements([there])
    return pair


def incidents(pair: Network) -> list[tuple[str | None, str]]:
    return [(incident.channel, incident.reason) for incident in pair.incidents("beta")]


def test_an_acknowledgement_that_has_no_address_calls_the_operator_once() -> None:
    pair = unheard()
    pair.send_all((1, 2, 3))
    assert pair.answers == []
    ((channel, reason),) = incidents(pair)
    assert channel == "handler answers to urn:test:alpha"
    assert "acknowledgement for urn:test:alpha could not leave" in reason
    assert pair.kinds("beta").count(Kind.INCIDENT) == 1
    # What arrived is there all the same.
    assert len(pair.take()) == 3


def test_the_operator_says_that_it_is_over_and_is_called_again_if_it_is_not() -> None:
    pair = unheard()
    pair.send(1)
    pair.beta.resume(channel="handler answers to urn:test:alpha")
    pair.settle("beta")
    assert incidents(pair) == []
    pair.send(2)
    assert len(incidents(pair)) == 1


def test_who_asks_hears_at_once_that_nobody_can_be_asked() -> None:
    pair = unheard()
    with pytest.raises(AgreementProblem, match="urn:test:alpha has no address to ask at"):
        pair.beta.ping("alpha-beta")
    pair.settle("beta")
    assert incidents(pair) == []
    assert not pair.beta.context.state.pings
