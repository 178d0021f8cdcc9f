"""An agreement written as a CPA: it comes back as it was, and means the same to the partner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lxml import etree
from msgspec import structs

from oncewire.agreement.agreement import USUAL_ACTION, USUAL_SERVICE, Agreement, Direction
from oncewire.agreement.certificates import to_pem
from oncewire.agreement.compose import PROFILES
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.agreement.cppa.writer import write_cpa
from oncewire.agreement.toml import read_toml, write_toml
from oncewire.errors import AgreementProblem
from oncewire.message.instant import SECOND, parse_duration
from oncewire.wire.security.certificates import der_of
from tests.agreement import samples
from tests.agreement.cppa.cpa_rules import all_of, problems, said, schema
from tests.agreement.cppa.test_corpus_cpas import STATED
from tests.agreement.readings import read_views
from tests.agreement.toml.test_writing import _lines, _some
from tests.examples import examples
from tests.wire.security.keys import alpha


def ordered(agreement: Agreement) -> Agreement:
    """A CPA lists actions by who sends them, and says nothing of routing."""
    actions = sorted(agreement.actions, key=lambda one: one.direction is Direction.RECEIVE)
    return replace(
        agreement,
        actions=tuple(actions),
        via=None,
        forwards=False,
        own=replace(agreement.own, behind=()),
        partner=replace(agreement.partner, behind=()),
        not_offered=(),
    )


ACTIONS = """
[[actions]]
direction = "receive"
[actions.delivery]
retries = 1
[[actions]]
service = "urn:ex:orders"
action = "Place"
role = "Seller"
partner_role = "Buyer"
http = {request = "https://alpha.example/r", error = "https://alpha.example/e"}
[[actions]]
direction = "send"
service = "confirmations"
service_type = "urn:ex:services"
action = "Confirm"
role = "Seller"
partner_role = "Buyer"
[actions.sync]
mode = "mshSignalsOnly"
"""


def sample(profile: str, actions: str = "", top: str = "") -> Agreement:
    """A small agreement whose parties have roles: a CPA has to name them."""
    agreement = samples.agreement(profile, actions, top=top)
    own, partner = agreement.own, agreement.partner
    return replace(
        agreement,
        own=replace(own, party=structs.replace(own.party, role="Seller")),
        partner=replace(partner, party=structs.replace(partner.party, role="Buyer")),
    )


@pytest.mark.parametrize("actions", ["", ACTIONS])
@pytest.mark.parametrize("profile", PROFILES)
def test_toml_cpa_toml_keeps_every_term(profile: str, actions: str) -> None:
    agreement = sample(profile, actions, top='start = 2026-01-01\nalso_known_as = ["x"]')
    xml = write_cpa(agreement)
    again = read_cpa(xml, own=0)
    assert again == ordered(agreement)
    assert read_toml(write_toml(again)) == ordered(agreement)


@pytest.mark.long
@settings(max_examples=examples(60))
@given(
    st.sampled_from(sorted(PROFILES)), _some(), _some(), _some(),
    st.sampled_from(["agreed", "proposed", "signed"]),
    st.none() | st.integers(1, 4_000_000_000).map(lambda second: second * SECOND),
)  # fmt: skip
def test_any_agreement_comes_back_from_its_cpa(
    profile: str,
    whole: dict[str, str],
    direction: dict[str, str],
    action: dict[str, str],
    status: str,
    end: int | None,
) -> None:
    text = samples.toml(
        profile,
        f'[[actions]]\ndirection = "receive"\n{_lines(direction)}'
        '[[actions]]\nservice = "urn:ex:orders"\naction = "Place"\nrole = "Seller"\n'
        f'partner_role = "Buyer"\n{_lines(action)}',
        top=_lines(whole) + f'status = "{status}"\n',
    )
    try:
        agreement = replace(read_toml(text), end=end)
    except AgreementProblem:
        assume(False)
    again = read_cpa(write_cpa(agreement), own=0)
    assert again == ordered(agreement)
    assert read_toml(write_toml(again)) == ordered(agreement)


@pytest.mark.parametrize("actions", ["", ACTIONS])
@pytest.mark.parametrize("profile", PROFILES)
def test_the_partner_reads_the_same_terms(profile: str, actions: str) -> None:
    """What we send is what it receives, under the same terms; what we sign it asks for."""
    ours, theirs = read_views(write_cpa(sample(profile, actions)))
    assert (theirs.own, theirs.partner) == (ours.partner, ours.own)
    assert theirs.sending.terms == ours.receiving.terms
    assert theirs.receiving.terms == ours.sending.terms
    assert theirs.receiving.security.require_signature is ours.sending.security.sign
    assert {one.terms for one in theirs.actions} == {one.terms for one in ours.actions}
    assert theirs.form == ours.form


@pytest.mark.parametrize("name", STATED)
def test_a_cpa_of_the_corpus_comes_back(corpus: Path, name: str) -> None:
    for view in read_views((corpus / name).read_bytes()):
        assert read_cpa(write_cpa(view), own=0) == ordered(view)


@pytest.mark.parametrize("profile", PROFILES)
def test_others_take_it(corpus: Path, profile: str) -> None:
    """By the schema of CPPA 2.0, and by what ebms-core reads: everything on both sides."""
    for actions in ("", ACTIONS):
        xml = write_cpa(sample(profile, actions))
        schema(corpus).assertValid(etree.fromstring(xml))
        assert problems(xml) == []


@pytest.mark.parametrize("name", STATED)
def test_others_take_what_is_written_of_a_cpa(corpus: Path, name: str) -> None:
    """No attribute of the first CPA is lost, whichever party writes it anew."""
    source = (corpus / name).read_bytes()
    for view in read_views(source):
        xml = write_cpa(replace(view, status="agreed"))
        schema(corpus).assertValid(etree.fromstring(xml))
        assert problems(xml) == []
        made, stated = characteristics(xml), characteristics(source)
        assert made.keys() == stated.keys()
        for action, words in stated.items():
            # What the first one leaves out has the value that its absence means.
            assert words.items() <= made[action].items(), action


def characteristics(xml: bytes) -> dict[tuple[object, ...], dict[str, object]]:
    """What every action of every party asks for, by party, role, Service and action."""
    found: dict[tuple[object, ...], dict[str, object]] = {}
    for party in all_of(etree.fromstring(xml), "PartyInfo"):
        for role in all_of(party, "CollaborationRole"):
            (service,), (name,) = all_of(role, "Service"), all_of(role, "Role")
            for can in (*all_of(role, "CanSend"), *all_of(role, "CanReceive")):
                this = all_of(can, "ThisPartyActionBinding")[0]
                words = all_of(this, "BusinessTransactionCharacteristics")[0].attrib
                key = (all_of(party, "PartyId")[0].text, said(name, "name"), service.text,
                       said(service, "type"), said(this, "action"), can.tag)  # fmt: skip
                # An action that is listed under two processes counts once.
                found.setdefault(key, {str(word): value(text) for word, text in words.items()})
    return found


def value(text: object) -> object:
    """A duration by how long it is: P180M and P5580D are the same here."""
    word = str(text).strip()
    return parse_duration(word) if word.startswith("P") else word


def test_it_says_what_messages_carry() -> None:
    """Without a list of actions, what `send` carries; without roles there is no CPA."""
    for profile in ("ebms2", "ms-0.9x", "rm-0.78"):
        root = etree.fromstring(write_cpa(sample(profile)))
        assert {element.text for element in all_of(root, "Service")} == {USUAL_SERVICE.value}
        assert {said(one, "action") for one in all_of(root, "ThisPartyActionBinding")} == {
            USUAL_ACTION
        }
        assert {said(one, "name") for one in all_of(root, "Role")} == {"Seller", "Buyer"}
        assert len(all_of(root, "CanSend")) == len(all_of(root, "CanReceive")) == 2
        with pytest.raises(AgreementProblem) as refused:
            write_cpa(samples.agreement(profile))
        assert refused.value.key == "own.role"
        assert "role = " in refused.value.remedy


@pytest.mark.parametrize("missing", ["action", "role", "partner_role"])
def test_what_an_entry_leaves_open_is_named(missing: str) -> None:
    lines = [line for line in ACTIONS.splitlines() if not line.startswith(f"{missing} = ")]
    with pytest.raises(AgreementProblem) as refused:
        write_cpa(samples.agreement("ebms2", "\n".join(lines)))
    assert refused.value.key == f"actions.{missing}"
    assert "urn:ex:orders" in refused.value.problem


def test_signed_and_encrypted_messages_are_said_to_be_so() -> None:
    """Whatever the business says: others sign and encrypt by these two words."""
    pem = to_pem(der_of(alpha().certificate))
    text = (
        "[security]\nsign = true\nrequire_signature = true\nencrypt = true\n"
        f"partner_certificates = ['''{pem}''']\n"
        f"partner_encryption_certificates = ['''{pem}''']\n"
    )
    agreement = sample("ebms2", text)
    known = replace(agreement.own, signing_certificates=(der_of(alpha().certificate),))
    root = etree.fromstring(write_cpa(replace(agreement, own=known)))
    for one in all_of(root, "BusinessTransactionCharacteristics"):
        assert said(one, "isNonRepudiationRequired") == "true"
        assert said(one, "isConfidential") == "persistent"
    for exchange in all_of(root, "DocExchange"):
        for name in ("SenderNonRepudiation", "ReceiverNonRepudiation", "ReceiverDigitalEnvelope"):
            assert all_of(exchange, name), name


def test_what_cppa_can_say_stands_in_its_own_elements() -> None:
    """Whoever changes the CPA's own words changes what holds."""
    text = '[delivery]\nretries = 7\n[ack]\nrequest = "always"\n'
    xml = write_cpa(sample("cpa", text)).decode()
    assert "<tns:Retries>7</tns:Retries>" in xml
    assert "retries =" not in xml
    changed = xml.replace("<tns:Retries>7</tns:Retries>", "<tns:Retries>9</tns:Retries>")
    assert read_cpa(changed, own=0).sending.terms.retries == 9


def test_a_comment_that_cannot_be_read_is_named() -> None:
    xml = write_cpa(sample("rm-0.78")).decode()
    broken = xml.replace("profile = ", "profile ")
    with pytest.raises(AgreementProblem, match="Comment for Oncewire cannot be read"):
        read_cpa(broken, own=0)
    later = xml.replace("[terms.first.", "[terms.first.newer]\nkey = 1\n[terms.first.", 1)
    with pytest.raises(AgreementProblem, match="no key"):
        read_cpa(later, own=0)
