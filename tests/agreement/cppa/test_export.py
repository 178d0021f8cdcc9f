"""An agreement written as a CPA: it comes back as it was, and means the same to the partner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lxml import etree

from oncewire.agreement import PROFILES, Agreement, Direction, read_cpa, read_toml, read_views
from oncewire.agreement.cppa.writer import write_cpa
from oncewire.agreement.toml.writer import write_toml
from oncewire.errors import AgreementProblem
from oncewire.message.instant import SECOND
from tests.agreement import samples
from tests.agreement.cppa.test_corpus_cpas import STATED
from tests.agreement.toml.test_writing import _lines, _some
from tests.examples import examples


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
[actions.sync]
mode = "mshSignalsOnly"
"""


@pytest.mark.parametrize("actions", ["", ACTIONS])
@pytest.mark.parametrize("profile", PROFILES)
def test_toml_cpa_toml_keeps_every_term(profile: str, actions: str) -> None:
    agreement = samples.agreement(profile, actions, top='start = 2026-01-01\nalso_known_as = ["x"]')
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
        f'[[actions]]\nservice = "urn:ex:orders"\naction = "Place"\n{_lines(action)}',
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
    ours, theirs = read_views(write_cpa(samples.agreement(profile, actions)))
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


@pytest.mark.parametrize("profile", ["ebms2", "rm-0.78", "digikoppeling-osb-rm-e"])
def test_it_is_valid_by_the_schema(corpus: Path, profile: str) -> None:
    schema = etree.XMLSchema(etree.parse(corpus / "ebms-core/xsd/cpp-cpa-2_0.xsd"))
    for actions in ("", ACTIONS):
        document = etree.fromstring(write_cpa(samples.agreement(profile, actions)))
        schema.assertValid(document)


def test_what_cppa_can_say_stands_in_its_own_elements() -> None:
    """Whoever changes the CPA's own words changes what holds."""
    text = '[delivery]\nretries = 7\n[ack]\nrequest = "always"\n'
    xml = write_cpa(samples.agreement("cpa", text)).decode()
    assert "<tns:Retries>7</tns:Retries>" in xml
    assert "retries =" not in xml
    changed = xml.replace("<tns:Retries>7</tns:Retries>", "<tns:Retries>9</tns:Retries>")
    assert read_cpa(changed, own=0).sending.terms.retries == 9


def test_a_comment_that_cannot_be_read_is_named() -> None:
    xml = write_cpa(samples.agreement("rm-0.78")).decode()
    broken = xml.replace("profile = ", "profile ")
    with pytest.raises(AgreementProblem, match="Comment for Oncewire cannot be read"):
        read_cpa(broken, own=0)
    later = xml.replace("[terms.first.", "[terms.first.newer]\nkey = 1\n[terms.first.", 1)
    with pytest.raises(AgreementProblem, match="no key"):
        read_cpa(later, own=0)
