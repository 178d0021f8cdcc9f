"""Every CPA of the corpus loads, from both parties' side, with the values its index states."""

import base64
import copy
from pathlib import Path

import pytest
from lxml import etree

from oncewire.agreement.agreement import (
    Agreement,
    Direction,
    EndpointType,
    Origin,
    Requested,
    address_of,
)
from oncewire.agreement.certificates import facts, fingerprint
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.errors import AgreementProblem
from oncewire.message.envelope import Actor, MessageKind
from oncewire.message.form import SyncReplyMode
from oncewire.message.ids import Party, PartyId, Service
from oncewire.message.instant import parse_duration, parse_instant
from oncewire.protocol.terms import FlowMode, OnExhausted, Scope
from oncewire.wire.security.certificates import der_of
from tests.agreement.readings import outbound, party_ids, read_views
from tests.wire.security.keys import alpha

RSA_SHA1 = "http://www.w3.org/2000/09/xmldsig#rsa-sha1"
RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
AES_CBC = "http://www.w3.org/2001/04/xmlenc#aes256-cbc"

# file: sync, ack, signed ack, duplicates, (retries, interval, persist), order, sign, encrypt.
# Sets hold what its different channels say. Taken from the corpus' own index.
STATED: dict[str, tuple[object, ...]] = {
    "ebms-core/cpa/cpa-cv-https.xml": (
        {"none"}, {"always", "never"}, {"never"}, {"always", "never"}, ("5", "PT5M", "PT30M"),
        False, RSA_SHA1, AES_CBC,
    ),
    "ebms-core/cpa/cpaStubEBF.be.https.signed.sync.xml": (
        {"signalsAndResponse"}, {"never"}, {"never"}, {"never"}, None, False, RSA_SHA1, None,
    ),
    "ebms-core/cpa/cpaStubEBF.rm.http.signed-sha256.xml": (
        {"none"}, {"always", "never"}, {"never"}, {"always", "never"}, ("5", "PT5M", "PT30M"),
        False, RSA_SHA256, None,
    ),
    "ebms-core/cpa/cpaStubEBF.rm.http.unsigned.sync.xml": (
        {"signalsAndResponse"}, {"always", "never"}, {"never"}, {"always", "never"},
        ("5", "PT5M", "PT30M"), False, None, None,
    ),
    "ebms-core/cpa/cpaStubEBF.rm.https.signed-sha256.xml": (
        {"none"}, {"always", "never"}, {"never"}, {"always", "never"}, ("5", "PT5M", "PT30M"),
        False, RSA_SHA256, None,
    ),
    "ebms-core/cpa/cpaStubEBF.rm.https.signed.encrypted.xml": (
        {"none"}, {"always", "never"}, {"never"}, {"always", "never"}, ("5", "PT5M", "PT30M"),
        False, RSA_SHA1, AES_CBC,
    ),
    "hermes/cpa/ebIOT-CPAT1-2.I3T.CECID.xml": (
        {"none"}, {"never"}, {"never"}, {"never"}, None, False, None, None,
    ),
    "hermes/cpa/ebIOT-CPAT1-4-I.CECID.I3T.xml": (
        {"none"}, {"always"}, {"never"}, {"always"}, ("1", "P10D", "PT10M"), False, None, None,
    ),
    "hermes/cpa/ebIOT-CPAT1-4-I.I3T.CECID.xml": (
        {"none"}, {"always"}, {"never"}, {"always"}, ("1", "P10D", "PT10M"), False, None, None,
    ),
    "hermes/cpa/ebIOT-CPAT1-4.CECID.I3T.xml": (
        {"none"}, {"never"}, {"never"}, {"never"}, None, False, None, None,
    ),
    "hermes/cpa/ebIOT-CPAT1-4.I3T.CECID.xml": (
        {"none"}, {"never"}, {"never"}, {"never"}, None, False, None, None,
    ),
    "hermes/cpa/ebIOT-CPAT1.CECID.I3T.xml": (
        {"none"}, {"never"}, {"never"}, {"never"}, None, False, None, None,
    ),
    "hermes/cpa/ebIOT-CPAT2-2-1.I3T.CECID.xml": (
        {"mshSignalsOnly"}, {"always"}, {"never"}, {"never"}, ("5", "PT60S", "PT10M"),
        False, None, None,
    ),
    "hermes/cpa/ebIOT-CPAT2-2-2.CECID.I3T.xml": (
        {"mshSignalsOnly", "none"}, {"always", "never"}, {"never"}, {"never"},
        ("5", "PT60S", "PT10M"), False, None, None,
    ),
    "hermes/cpa/ebIOT-CPAT3-3.I3T.CECID.xml": (
        {"none"}, {"never"}, {"never"}, {"never"}, None, False, None, None,
    ),
    "hermes/cpa/ebIOT-CPAT4-2.CECID.I3T.xml": (
        {"none"}, {"never"}, {"never"}, {"never"}, None, False, RSA_SHA1, None,
    ),
    "hermes/cpa/ebIOT-CPAT4-2.I3T.CECID.xml": (
        {"none"}, {"never"}, {"never"}, {"never"}, None, False, RSA_SHA1, None,
    ),
    "hermes/cpa/ebIOT-CPAT5-1-4.CECID.I3T.xml": (
        {"none"}, {"always"}, {"never"}, {"never"}, ("5", "PT60S", "PT10M"), False, None, None,
    ),
    "hermes/cpa/ebIOT-CPAT5-3.I3T.CECID.xml": (
        {"none"}, {"always"}, {"never"}, {"always"}, ("5", "PT60S", "PT10M"), False, None, None,
    ),
    "hermes/cpa/ebIOT-CPAT5-4.CECID.I3T.xml": (
        {"none"}, {"always"}, {"never"}, {"always"}, ("5", "PT120S", "PT10M"), True, None, None,
    ),
    "hermes/cpa/ebIOT-CPAT5.I3T.CECID.xml": (
        {"none"}, {"always"}, {"never"}, {"never"}, ("5", "PT60S", "PT10M"), False, None, None,
    ),
    "nav-ebxml-processor/cpa/nav-qass-31162_multipleChannels_and_multiple_endpoints.xml": (
        {"none", "signalsAndResponse"}, {"always", "never"}, {"always", "never"},
        {"always", "never"}, ("4", "PT240M", "P2D"), False, RSA_SHA256, None,
    ),
    "nav-ebxml-processor/cpa/nav-qass-35065.xml": (
        {"none", "signalsAndResponse"}, {"always", "never"}, {"perMessage", "never"},
        {"perMessage", "never"}, ("4", "PT720M", "P4D"), False, RSA_SHA256, None,
    ),
}  # fmt: skip


def _views(corpus: Path, name: str) -> tuple[Agreement, Agreement]:
    return read_views((corpus / name).read_bytes())


def _stub(corpus: Path, name: str) -> Agreement:
    return read_cpa((corpus / "ebms-core" / "cpa" / name).read_bytes(), own="Overheid")


def test_the_table_names_every_cpa_of_the_corpus(corpus: Path) -> None:
    found = {
        str(path.relative_to(corpus))
        for path in corpus.glob("*/cpa/*.xml")
        if b"CollaborationProtocolAgreement" in path.read_bytes()
    }
    assert found - {"phinms-phineas/cpa/loopback.xml"} == set(STATED)


@pytest.mark.requirement("CPA-3", "CPA-4", "CPA-5", "CPA-6", "CPA-17")
@pytest.mark.parametrize("name", STATED)
def test_a_cpa_has_the_values_its_index_states(corpus: Path, name: str) -> None:
    sync, acks, signed, duplicates, retrying, ordered, signs, encrypts = STATED[name]
    for view in _views(corpus, name):
        bindings = list(view.bindings())
        assert {one.terms.sync_mode.value for one in bindings} == sync
        assert {one.rules.ack.value for one in bindings} == acks
        assert {one.rules.ack_signature.value for one in bindings} == signed
        assert {one.rules.duplicate_elimination.value for one in bindings} == duplicates
        assert any(one.terms.ordered for one in bindings) is ordered
        reliable = [one.terms for one in bindings if one.terms.reliable]
        assert bool(reliable) is (retrying is not None)
        if isinstance(retrying, tuple):
            count, interval, persist = retrying
            for terms in reliable:
                assert terms.retries == int(count)
                assert terms.retry_interval == parse_duration(interval)
                assert terms.timeout == parse_duration(interval)
                assert terms.persist_duration == parse_duration(persist)
        secured = [one.security for one in view.actions]
        signing = {one.signature_algorithm for one in secured if one.sign or one.require_signature}
        assert signing == ({signs} if signs else set())
        hidden = {one.encryption_algorithm for one in secured if one.encrypt}
        assert hidden == ({encrypts} if encrypts else set())


@pytest.mark.parametrize("name", STATED)
def test_the_two_views_mirror_each_other(corpus: Path, name: str) -> None:
    first, second = _views(corpus, name)
    assert first.cpa_id == second.cpa_id
    assert first.own == second.partner
    assert first.partner == second.own
    sent = {(one.service, one.action): one for one in first.actions if _sends(one.direction)}
    taken = {(one.service, one.action): one for one in second.actions if not _sends(one.direction)}
    assert set(sent) == set(taken)
    for key, binding in sent.items():
        assert binding.terms == taken[key].terms
        assert binding.rules == taken[key].rules
        assert binding.security.sign == taken[key].security.require_signature
        assert (binding.from_role, binding.to_role) == (taken[key].from_role, taken[key].to_role)


def _sends(direction: Direction) -> bool:
    return direction is Direction.SEND


@pytest.mark.parametrize("name", STATED)
def test_every_value_says_where_it_came_from(corpus: Path, name: str) -> None:
    view = _views(corpus, name)[0]
    for binding in view.bindings():
        known = {value.key: value for value in binding.values}
        assert known["ack.request"].origin is Origin.CPA
        assert known["ack.request"].where.startswith("DeliveryChannel ")
        assert known["delivery.header_conflict"].origin is Origin.PROFILE
        assert known["wire.validation"].origin is Origin.DEFAULT


def test_services_and_actions_have_their_own_terms(corpus: Path) -> None:
    view = read_cpa((corpus / "ebms-core/cpa/cpa-cv-https.xml").read_bytes(), own="Consumer")
    assert view.cpa_id == "CPAID_EchoService-1-0"
    assert view.listed_only
    expected = {
        "urn:cv:be:services": (False, False, False),
        "urn:cv:be:signed:services": (False, True, False),
        "urn:cv:be:encrypted:services": (False, True, True),
        "urn:cv:rm:services": (True, False, False),
        "urn:cv:rm:signed:services": (True, True, False),
        "urn:cv:rm:encrypted:services": (True, True, True),
    }
    for kind, (reliable, signed, encrypted) in expected.items():
        way = outbound(view, Service("EchoService$1.0", kind), "EchoRequest")
        assert (way.terms.reliable, way.security.sign, way.security.encrypt) == (
            reliable, signed, encrypted,
        )  # fmt: skip
        assert way.addresses == (("http", "https://localhost:8888/ebms"),)
        assert (way.binding.from_role, way.binding.to_role) == (
            "Consumer", "ComplianceVoorziening",
        )  # fmt: skip
        # An algorithm is taken over only where its own channel names it.
        assert ("sha1" in way.security.signature_algorithm) is signed


def test_certificates_come_from_the_partner(corpus: Path) -> None:
    name = "cpaStubEBF.rm.https.signed.encrypted.xml"
    view = _stub(corpus, name)
    der = (corpus / "ebms-core/certs/localhost.crt").read_bytes()
    received = next(one for one in view.actions if one.direction is Direction.RECEIVE)
    sent = next(one for one in view.actions if one.direction is Direction.SEND)
    assert received.security.require_signature
    assert received.security.partner_certificates == (der,)
    assert sent.security.partner_encryption_certificates == (der,)
    assert view.partner.client_certificates == (fingerprint(der),)
    known = facts(received.security.partner_certificates[0])
    assert known is not None
    assert known.subject.startswith("CN=localhost")
    # SHA-1 is used only because this CPA says so.
    assert received.security.allow_sha1
    assert not _stub(corpus, "cpaStubEBF.rm.https.signed-sha256.xml").actions[0].security.allow_sha1


def test_signals_are_not_signed_unless_asked(corpus: Path) -> None:
    view = _stub(corpus, "cpaStubEBF.rm.https.signed-sha256.xml")
    assert not view.sending.security.sign
    assert not view.receiving.security.require_signature
    way = outbound(view, kind=MessageKind.ACKNOWLEDGMENT)
    assert not way.terms.reliable
    assert way.addresses == (("http", "https://localhost:8888/ebms"),)


def test_the_validity_of_a_cpa(corpus: Path) -> None:
    view = _stub(corpus, "cpaStubEBF.rm.http.signed-sha256.xml")
    assert view.status == "agreed"
    assert view.start == parse_instant("2011-01-01T00:00:00Z")[0]
    assert view.end == parse_instant("2031-01-01T00:00:00Z")[0]
    assert view.in_force(parse_instant("2030-12-31T23:59:59Z")[0])
    assert not view.in_force(parse_instant("2031-01-01T00:00:00Z")[0])
    assert not view.in_force(parse_instant("2010-12-31T23:59:59Z")[0])


def test_guaranteed_order_is_numbered_per_conversation(corpus: Path) -> None:
    path = corpus / "hermes/cpa/ebIOT-CPAT5-4.CECID.I3T.xml"
    terms = read_cpa(path.read_bytes(), own="ebIOT:CECID").actions[0].terms
    assert terms.numbered
    assert terms.ordered
    assert terms.scope is Scope.CONVERSATION
    assert terms.flow is FlowMode.WINDOW
    assert terms.on_exhausted is OnExhausted.SUSPEND_CHANNEL


def test_a_response_may_run_under_other_terms_than_its_request(corpus: Path) -> None:
    path = corpus / "hermes/cpa/ebIOT-CPAT2-2-2.CECID.I3T.xml"
    view = read_cpa(path.read_bytes(), own="CECID")
    request, response = view.actions
    assert (request.direction, request.action) == (Direction.SEND, "Request")
    assert (response.direction, response.action) == (Direction.RECEIVE, "Response")
    assert request.terms.sync_mode is SyncReplyMode.MSH_SIGNALS_ONLY
    assert response.terms.sync_mode is SyncReplyMode.NONE
    assert request.terms.reliable
    assert not response.terms.reliable
    # The values of the request's channel do not leak into the response.
    assert response.terms.retries != request.terms.retries


def test_the_norwegian_channels_and_endpoint_types(corpus: Path) -> None:
    name = "nav-qass-31162_multipleChannels_and_multiple_endpoints.xml"
    path = corpus / "nav-ebxml-processor" / "cpa" / name
    view = read_cpa(path.read_bytes(), own="HER:8090595")
    assert view.own.party.ids == (
        PartyId("8090595", "HER"), PartyId("984886136", "orgnummer"), PartyId("984886136", "ENH"),
    )  # fmt: skip
    claim = next(one for one in view.actions if one.action == "Oppgjorskrav")
    # The receiver offers mail and HTTP; the sender's channel is mail.
    assert claim.terms.transports == ("smtp",)
    wanted = {
        EndpointType.REQUEST: "mailto:request@test-es.nav.no",
        EndpointType.RESPONSE: "mailto:response@test-es.nav.no",
        EndpointType.ERROR: "mailto:error@test-es.nav.no",
        EndpointType.ALL_PURPOSE: "mailto:mottak-qass@test-es.nav.no",
    }
    for kind, address in wanted.items():
        assert address_of(claim.endpoints, "smtp", kind) == address
    service = Service("OppgjorsKontroll", "string")
    assert outbound(view, service, "Oppgjorskrav").address("smtp") == wanted[EndpointType.REQUEST]
    reply = outbound(view, service, "Svarmelding", reply=True)
    assert reply.address("smtp") == wanted[EndpointType.RESPONSE]
    errors = outbound(view, kind=MessageKind.ERROR)
    assert errors.address("smtp") == wanted[EndpointType.ERROR]
    # The other side has no request endpoint: all purposes it is.
    other = read_cpa(path.read_bytes(), own="NAV")
    result = outbound(other, service, "Oppgjorsresultat")
    assert result.address("smtp") == "mailto:allPurpose@edi.nhn.no"
    sync = outbound(view, Service("HarBorgerEgenandelFritak", "string"), "EgenandelForesporsel")
    assert sync.terms.transports == ("http",)
    assert sync.terms.sync_mode is SyncReplyMode.SIGNALS_AND_RESPONSE


def test_per_message_leaves_it_to_the_header(corpus: Path) -> None:
    path = corpus / "nav-ebxml-processor/cpa/nav-qass-35065.xml"
    view = read_cpa(path.read_bytes(), own="NAV")
    mail = next(one for one in view.actions if one.terms.transports == ("smtp",))
    assert mail.rules.ack is Requested.ALWAYS
    assert mail.rules.ack_signature is Requested.PER_MESSAGE
    assert mail.rules.duplicate_elimination is Requested.PER_MESSAGE
    assert mail.rules.actor is Actor.TO_PARTY_MSH
    assert mail.business.non_repudiation_of_receipt
    # Where the header may decide, ours asks for the signed proof the business needs.
    assert mail.terms.ack_requested.value == "Signed"


def test_phinms_names_no_party_so_the_caller_does(corpus: Path) -> None:
    xml = (corpus / "phinms-phineas/cpa/loopback.xml").read_bytes()
    with pytest.raises(AgreementProblem, match="no PartyId") as caught:
        read_cpa(xml, own=0)
    assert caught.value.key == "own_party"
    us, them = Party.of("slhw0008", "zz"), Party.of("SLHW0224", "zz")
    view = read_cpa(xml, own=0, own_party=us, partner_party=them)
    assert (view.cpa_id, view.profile, view.status) == ("uri:phmsg-cdc-ssl", "phinms", "proposed")
    assert view.own.party == us
    assert not view.listed_only
    assert view.sending.rules.ack is Requested.ALWAYS
    assert outbound(view, Service("defaultservice", "string"), "defaultaction").addresses == (
        ("http", "http://localhost:4080/phineas/receiver/receivefile"),
    )
    assert view.own.endpoints[0].address == "https://phmsg.cdc.gov/evalebxml/receivefile"


@pytest.fixture
def stub(corpus: Path) -> bytes:
    return (corpus / "ebms-core/cpa/cpaStubEBF.rm.http.unsigned.sync.xml").read_bytes()


@pytest.mark.parametrize(
    "own", ["Logius", "00000000000000000000", "urn:osb:oin:00000000000000000000", 0]
)
def test_our_side_is_named_in_any_of_four_ways(stub: bytes, own: str | int) -> None:
    assert read_cpa(stub, own=own).own.name == "Logius"


@pytest.mark.parametrize("own", ["nobody", "", 2, -1])
def test_a_side_that_is_not_there_is_an_error_that_lists_both(stub: bytes, own: str | int) -> None:
    with pytest.raises(AgreementProblem, match=r"Logius .*Overheid"):
        read_cpa(stub, own=own)


def test_a_caller_can_ask_who_the_parties_are(stub: bytes) -> None:
    assert party_ids(stub) == (
        ("Logius", (PartyId("00000000000000000000", "urn:osb:oin"),)),
        ("Overheid", (PartyId("00000000000000000001", "urn:osb:oin"),)),
    )


def test_algorithms_are_read_as_people_name_them(corpus: Path) -> None:
    text = (corpus / "ebms-core/cpa/cpaStubEBF.rm.http.signed-sha256.xml").read_text()
    text = text.replace(RSA_SHA256, "RSA-SHA256")
    text = text.replace("http://www.w3.org/2001/04/xmlenc#sha256", "SHA-256")
    security = read_cpa(text, own="Overheid").actions[0].security
    assert security.signature_algorithm == RSA_SHA256
    assert security.digest_algorithm == "http://www.w3.org/2001/04/xmlenc#sha256"


@pytest.mark.parametrize("letter", ["a", "b", "c"])
def test_later_editions_of_2_0_are_2_0(corpus: Path, letter: str) -> None:
    text = (corpus / "ebms-core/cpa/cpaStubEBF.rm.http.signed-sha256.xml").read_text()
    found = read_cpa(text.replace("cpp-cpa-2_0.xsd", f"cpp-cpa-2_0{letter}.xsd"), own="Overheid")
    assert (found.profile, found.form.dialect.value) == ("cpa", "ebms2")


def test_authorities_alone_are_the_trust_where_no_certificate_is_named(corpus: Path) -> None:
    """Without them a partner's server would be believed on the word of any public authority."""
    text = (corpus / "ebms-core/cpa/cpaStubEBF.rm.https.signed-sha256.xml").read_bytes()
    root = etree.fromstring(text)
    assert read_cpa(text, own=0).partner.certificates
    for place in ("ServerCertificateRef", "ClientCertificateRef"):
        for element in root.iter(f"{{*}}{place}"):
            element.getparent().remove(element)
    # The only anchor of this CPA is our own certificate, which proves nothing of the partner's.
    assert read_cpa(etree.tostring(root), own=0).partner.certificates == ()
    ours = root.find("{*}PartyInfo")
    authority = copy.deepcopy(ours.find("{*}Certificate"))
    name = next(key for key in authority.attrib if key.endswith("certId"))
    authority.set(name, "authority")
    der = der_of(alpha("rsa").certificate)
    authority.find(".//{*}X509Certificate").text = base64.b64encode(der).decode()
    ours.find("{*}Certificate").addprevious(authority)
    for anchor in ours.iter("{*}AnchorCertificateRef"):
        anchor.set(next(key for key in anchor.attrib if key.endswith("certId")), "authority")
    bare = read_cpa(etree.tostring(root), own=0)
    assert bare.partner.certificates == (der,)
    assert bare.partner.client_certificates == ()
