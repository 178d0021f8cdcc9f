"""A CPA is read in every form it has had, and nothing hostile gets through the reader."""

import base64
import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.agreement.agreement import Direction, EndpointType, Requested
from oncewire.agreement.cppa.document import SIZE_MAX
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.agreement.resolve import find_binding
from oncewire.errors import AgreementProblem
from oncewire.message.envelope import Actor, MessageKind
from oncewire.message.form import EncryptionSyntax, ReliableMessagingMethod, SyncReplyMode
from oncewire.message.ids import Service
from oncewire.message.instant import DAY, MINUTE, SECOND
from oncewire.protocol.terms import ReceiptProvided, Scope
from tests.agreement import samples
from tests.agreement.readings import outbound, read_views

NS_2_0 = "http://www.oasis-open.org/committees/ebxml-cppa/schema/cpp-cpa-2_0.xsd"

PARTY = """
 <PartyInfo partyName="{name}" defaultMshChannelId="{name}-main">
  <PartyId type="urn:ex:org">{id}</PartyId>
  {override}
  <CollaborationRole><Role name="{name}Role"/>
   <ServiceBinding><Service>urn:ex:orders</Service>{actions}</ServiceBinding>
  </CollaborationRole>
  <DeliveryChannel channelId="{name}-main" transportId="{name}-t" docExchangeId="{name}-d">
   <MessagingCharacteristics {characteristics}/>
  </DeliveryChannel>
  <DeliveryChannel channelId="{name}-mail" transportId="{name}-m" docExchangeId="{name}-d">
   <MessagingCharacteristics {characteristics}/>
  </DeliveryChannel>
  <Transport transportId="{name}-t">
   <TransportSender><TransportProtocol>HTTP</TransportProtocol></TransportSender>
   <TransportReceiver><TransportProtocol>HTTP</TransportProtocol>
    <Endpoint uri="https://{id}.example/msh"/></TransportReceiver>
  </Transport>
  <Transport transportId="{name}-m">
   <TransportSender><TransportProtocol>SMTP</TransportProtocol></TransportSender>
   <TransportReceiver><TransportProtocol>SMTP</TransportProtocol>
    <Endpoint uri="mailto:{id}@example" type="allPurpose"/></TransportReceiver>
  </Transport>
  <DocExchange docExchangeId="{name}-d">
   <ebXMLSenderBinding version="2.0">{reliable}</ebXMLSenderBinding>
   <ebXMLReceiverBinding version="2.0">{reliable}</ebXMLReceiverBinding>
  </DocExchange>
 </PartyInfo>"""

RELIABLE = """<ReliableMessaging><Retries>2</Retries><RetryInterval>PT30S</RetryInterval>
 <MessageOrderSemantics>NotGuaranteed</MessageOrderSemantics></ReliableMessaging>
 <PersistDuration>P1D</PersistDuration>"""

ACTIONS = {
    "Alpha": """<CanSend><ThisPartyActionBinding id="a1" action="Place">
       <ChannelId>Alpha-main</ChannelId></ThisPartyActionBinding></CanSend>""",
    "Beta": """<CanReceive><ThisPartyActionBinding id="b1" action="Place">
       <ChannelId>Beta-main</ChannelId></ThisPartyActionBinding></CanReceive>""",
}


def cpa(
    *,
    characteristics: str = 'ackRequested="always"',
    reliable: str = RELIABLE,
    actions: dict[str, str] | None = None,
    override: str = "",
    head: str = "",
) -> str:
    """A small CPA 2.0 between Alpha and Beta."""
    chosen = actions or ACTIONS
    parties = "".join(
        PARTY.format(
            name=name,
            id=name.lower(),
            characteristics=characteristics,
            reliable=reliable,
            actions=chosen.get(name, ""),
            override=override.format(name=name),
        )
        for name in ("Alpha", "Beta")
    )
    return (
        f'{head}<CollaborationProtocolAgreement xmlns="{NS_2_0}" cpaid="a-b" version="2_0">'
        f'<Status value="signed"/>{parties}</CollaborationProtocolAgreement>'
    )


@pytest.mark.requirement("CPA-3", "CPA-6")
def test_the_small_cpa_is_what_it_says() -> None:
    view = read_cpa(cpa(), own="Alpha")
    way = outbound(view, Service("urn:ex:orders"), "Place")
    assert view.status == "signed"
    assert (view.start, view.end) == (None, None)
    assert (way.terms.retries, way.terms.retry_interval) == (2, 30 * SECOND)
    assert way.terms.persist_duration == DAY
    assert way.addresses == (("http", "https://beta.example/msh"),)


@pytest.mark.parametrize(
    ("stated", "reliable", "rule"),
    [
        ('ackRequested="always"', True, Requested.ALWAYS),
        ('ackRequested="never"', False, Requested.NEVER),
        ('ackRequested="perMessage"', True, Requested.PER_MESSAGE),
        ("", True, Requested.PER_MESSAGE),
    ],
)
def test_what_is_not_stated_has_the_schemas_default(
    stated: str, reliable: bool, rule: Requested
) -> None:
    binding = read_cpa(cpa(characteristics=stated), own="Alpha").actions[0]
    assert binding.rules.ack is rule
    assert binding.terms.reliable is reliable
    assert binding.terms.sync_mode is SyncReplyMode.NONE


def test_per_message_without_a_reliable_binding_sends_plainly() -> None:
    view = read_cpa(cpa(characteristics="", reliable=""), own="Alpha")
    assert not view.actions[0].terms.reliable


def test_the_actor_next_msh_asks_the_hop() -> None:
    stated = 'ackRequested="always" actor="urn:oasis:names:tc:ebxml-msg:actor:nextMSH"'
    binding = read_cpa(cpa(characteristics=stated), own="Alpha").actions[0]
    assert binding.rules.actor is Actor.NEXT_MSH
    assert binding.terms.ack_requested.value == "None"
    assert binding.terms.hop_ack_requested.value == "Unsigned"


@pytest.mark.requirement("CPA-16")
def test_several_channels_of_an_action_are_alternative_transports() -> None:
    def both(name: str, kind: str) -> str:
        return (
            f'<{kind}><ThisPartyActionBinding id="{name}1" action="Place">'
            f"<ChannelId>{name}-main</ChannelId><ChannelId>{name}-mail</ChannelId>"
            f"</ThisPartyActionBinding></{kind}>"
        )

    actions = {"Alpha": both("Alpha", "CanSend"), "Beta": both("Beta", "CanReceive")}
    way = outbound(read_cpa(cpa(actions=actions), own="Alpha"), Service("urn:ex:orders"), "Place")
    assert way.terms.transports == ("http", "smtp")
    assert way.addresses == (
        ("http", "https://beta.example/msh"),
        ("smtp", "mailto:beta@example"),
    )


def test_an_override_moves_one_signal_to_another_channel() -> None:
    override = '<OverrideMshActionBinding action="MessageError" channelId="{name}-mail"/>'
    view = read_cpa(cpa(override=override), own="Alpha")
    assert outbound(view, kind=MessageKind.ERROR).terms.transports == ("smtp",)
    assert outbound(view, kind=MessageKind.ACKNOWLEDGMENT).terms.transports == ("http",)
    received = view.signal_binding(Direction.RECEIVE, MessageKind.ERROR)
    assert received.endpoints[0].address == "mailto:alpha@example"


def test_a_nested_reply_is_a_binding_too() -> None:
    nested = """<CanSend><ThisPartyActionBinding id="a1" action="Ask"><ChannelId>Alpha-main
      </ChannelId></ThisPartyActionBinding>
      <CanReceive><ThisPartyActionBinding id="a2" action="Answer"><ChannelId>Alpha-main
      </ChannelId></ThisPartyActionBinding></CanReceive></CanSend>"""
    view = read_cpa(cpa(actions={"Alpha": nested}), own="Alpha")
    assert {(one.direction, one.action) for one in view.actions} == {
        (Direction.SEND, "Ask"),
        (Direction.RECEIVE, "Answer"),
    }


def test_an_action_listed_under_two_processes_counts_once() -> None:
    twice = {name: text * 2 for name, text in ACTIONS.items()}
    assert len(read_cpa(cpa(actions=twice), own="Alpha").actions) == 1


def test_the_receiver_says_how_long_it_remembers() -> None:
    xml = cpa()
    parts = xml.split("<ebXMLReceiverBinding")
    assert len(parts) == 3
    longer = parts[2].replace("P1D", "P7D", 1)
    view = read_cpa("<ebXMLReceiverBinding".join([*parts[:2], longer]), own="Alpha")
    assert view.actions[0].terms.persist_duration == 7 * DAY


SIGNATURE = """<{side}NonRepudiation><NonRepudiationProtocol>x</NonRepudiationProtocol>
 <HashFunction>http://www.w3.org/2001/04/xmlenc#sha256</HashFunction>
 <SignatureAlgorithm w3c="urn:w3c:algorithm">text</SignatureAlgorithm>
 {reference}</{side}NonRepudiation>"""
ENVELOPE = """<{side}DigitalEnvelope><DigitalEnvelopeProtocol>{protocol}</DigitalEnvelopeProtocol>
 <EncryptionAlgorithm>urn:cipher</EncryptionAlgorithm></{side}DigitalEnvelope>"""


def _secured(business: str, protocol: str = "XMLENC") -> str:
    xml = cpa()
    for side in ("Sender", "Receiver"):
        reference = {
            "Sender": '<SigningCertificateRef certId="end"/>',
            "Receiver": '<SigningSecurityDetailsRef securityId="trust"/>',
        }[side]
        extra = SIGNATURE.format(side=side, reference=reference)
        extra += ENVELOPE.format(side=side, protocol=protocol)
        xml = xml.replace(f"</ebXML{side}Binding>", f"{extra}</ebXML{side}Binding>")
    certificates = "".join(
        f'<Certificate certId="{name}"><KeyInfo><X509Data><X509Certificate>'
        f"{base64.b64encode(der).decode()}</X509Certificate></X509Data></KeyInfo></Certificate>"
        for name, der in (("end", b"0end"), ("authority", b"0authority"))
    )
    trust = (
        '<SecurityDetails securityId="trust"><TrustAnchors><AnchorCertificateRef certId="end"/>'
        '<AnchorCertificateRef certId="authority"/></TrustAnchors></SecurityDetails>'
    )
    xml = xml.replace("<DeliveryChannel", certificates + trust + "<DeliveryChannel", 1)
    second = xml.rindex("<CollaborationRole>")
    xml = xml[:second] + certificates + trust + xml[second:]
    return xml.replace(
        "<ChannelId>", f"<BusinessTransactionCharacteristics {business}/><ChannelId>"
    )


@pytest.mark.parametrize(
    ("business", "signed", "encrypted"),
    [
        ("", True, True),
        ('isNonRepudiationRequired="true" isConfidential="persistent"', True, True),
        ('isNonRepudiationRequired="1" isConfidential="transient-and-persistent"', True, True),
        ('isNonRepudiationRequired="false" isConfidential="transient"', False, False),
        ('isNonRepudiationRequired="0" isConfidential="none"', False, False),
    ],
)
def test_the_action_decides_whether_the_bindings_security_is_used(
    business: str, signed: bool, encrypted: bool
) -> None:
    security = read_cpa(_secured(business), own="Alpha").actions[0].security
    assert (security.sign, security.encrypt) == (signed, encrypted)
    assert security.signature_algorithm == "urn:w3c:algorithm"
    assert security.encryption_algorithm == "urn:cipher"


def test_trust_anchors_are_authorities_and_not_our_own_certificate() -> None:
    received = read_cpa(_secured(""), own="Beta").actions[0].security
    assert received.require_signature
    assert received.trust_anchors == (b"0authority",)
    assert received.partner_certificates == (b"0end",)


def test_another_envelope_or_password_is_said() -> None:
    xml = _secured("", "PGP").replace(
        "<TransportSender>",
        "<TransportSender><AccessAuthentication>basic</AccessAuthentication>",
    )
    keys = [key for key, _ in read_cpa(xml, own="Alpha").not_offered]
    assert keys.count("security.encrypt") == 1
    assert "partner.client_certificates" in keys


def test_envelopes_of_smime_are_read() -> None:
    found = read_cpa(_secured("", "S/MIME"), own="Alpha")
    assert "security.encrypt" not in [key for key, _ in found.not_offered]
    assert found.actions[0].security.encryption_syntax is EncryptionSyntax.SMIME


def test_an_action_without_a_channel_uses_the_default_one() -> None:
    bare = {
        name: text.replace(f"<ChannelId>{name}-main</ChannelId>", "")
        for name, text in ACTIONS.items()
    }
    way = outbound(read_cpa(cpa(actions=bare), own="Alpha"), Service("urn:ex:orders"), "Place")
    assert way.terms.retries == 2
    assert way.addresses == (("http", "https://beta.example/msh"),)


OLD = """<CollaborationProtocolAgreement
  xmlns="http://www.ebxml.org/namespaces/tradePartner" cpaid="old" version="1.0">
 <Status value="agreed"/>
 {parties}
</CollaborationProtocolAgreement>"""

OLD_PARTY = """<PartyInfo><PartyId type="DUNS">{id}</PartyId>
 <CollaborationRole><Role name="r"/>
  <ServiceBinding channelId="c"><Service>urn:ex:orders</Service>
   <Override action="Fast" channelId="c2"/></ServiceBinding></CollaborationRole>
 <DeliveryChannel channelId="c" transportId="t" docExchangeId="d">
  <Characteristics syncReplyMode="AcksOnly" mshTimeAccuracy="02:30"/></DeliveryChannel>
 <DeliveryChannel channelId="c2" transportId="t" docExchangeId="d2">
  <Characteristics syncReplyMode="none"/></DeliveryChannel>
 <Transport transportId="t"><Endpoint uri="http://{id}.example/msh"/></Transport>
 <DocExchange docExchangeId="d"><ebXMLBinding version="0.98b">
  <ReliableMessaging deliverySemantics="OnceAndOnlyOnce" messageOrderSemantics="Guaranteed"
    {methods}="http://www.ebxml.org/namespaces/reliableMessaging Transport">
   <Timeout>45</Timeout><Retries>5</Retries><RetryInterval>30</RetryInterval>
   <PersistDuration>PT1H</PersistDuration><timeToLive>PT30M</timeToLive>
   <DeliveryReceiptProvided>Unsigned</DeliveryReceiptProvided>
  </ReliableMessaging></ebXMLBinding></DocExchange>
 <DocExchange docExchangeId="d2"><ebXMLBinding version="0.98b">
  <ReliableMessaging deliverySemantics="BestEffort"/></ebXMLBinding></DocExchange>
</PartyInfo>"""


@pytest.mark.requirement("CPA-1", "CPA-3", "CPA-4", "CPA-7", "CPA-13", "CPA-15", "CPA-17", "HDR-9")
@pytest.mark.parametrize(
    "methods", ["reliableMessagingMethodsSupported", "reliableMessagingSupported"]
)
def test_the_drafts_parameters_are_read_from_their_own_places(methods: str) -> None:
    parties = "".join(OLD_PARTY.format(id=one, methods=methods) for one in ("one", "two"))
    view = read_cpa(OLD.format(parties=parties), own="one")
    assert view.profile == "ms-0.9x"
    terms = outbound(view, Service("urn:ex:orders"), "Place").terms
    assert terms.sync_mode is SyncReplyMode.MSH_SIGNALS_ONLY
    assert terms.time_accuracy == 2 * MINUTE + 30 * SECOND
    assert (terms.timeout, terms.retries, terms.retry_interval) == (45 * SECOND, 5, 30 * SECOND)
    assert (terms.persist_duration, terms.time_to_live) == (60 * MINUTE, 30 * MINUTE)
    assert terms.receipt_provided is ReceiptProvided.UNSIGNED
    assert terms.ordered
    assert terms.scope is Scope.PAIR
    rules = find_binding(view, Direction.SEND, samples.message()).rules
    assert rules.supports(ReliableMessagingMethod.EBXML)
    assert rules.supports(ReliableMessagingMethod.TRANSPORT)
    fast = outbound(view, Service("urn:ex:orders"), "Fast").terms
    assert not fast.reliable
    assert fast.sync_mode is SyncReplyMode.NONE


def test_semantics_nobody_knows_are_refused() -> None:
    parties = "".join(
        OLD_PARTY.format(id=one, methods="m").replace("BestEffort", "Perhaps")
        for one in ("one", "two")
    )
    with pytest.raises(AgreementProblem, match="Perhaps"):
        read_cpa(OLD.format(parties=parties), own="one")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda xml: xml.replace("Alpha-d", "none-d", 1), None),
        (lambda xml: xml.replace(">Alpha-main<", ">gone<"), "no DeliveryChannel 'gone'"),
        (lambda xml: xml.replace("<Retries>2", "<Retries>many"), "delivery.retries"),
        (lambda xml: xml.replace("PT30S", "half a minute"), "delivery.retry_interval"),
        (lambda xml: xml.replace('"always"', '"sometimes"'), "ack.request"),
        (lambda xml: xml.replace("<Status", "<Start>soon</Start><Status"), "Start"),
        (lambda xml: xml.replace('cpaid="a-b"', ""), "cpa_id"),
        (lambda xml: xml.replace(">alpha<", f">{'a' * 300}<"), "300 characters"),
        (lambda xml: xml.replace("CollaborationProtocolAgreement", "CollaborationProtocolProfile"),
         "root element"),
        (lambda xml: xml.replace("</PartyInfo>", "</PartyInfo><PartyInfo/>", 1), "3 PartyInfo"),
        (lambda xml: xml[:-10], "not well-formed"),
        (lambda xml: "", "not well-formed"),
        (lambda xml: xml.replace("urn:ex:orders", " "), "names no Service"),
        (lambda xml: xml.replace("<DocExchange", '<Certificate certId="c"><KeyInfo><X509Data>'
         "<X509Certificate>!!!</X509Certificate></X509Data></KeyInfo></Certificate><DocExchange"),
         "Certificate c"),
    ],
)  # fmt: skip
def test_a_spoilt_cpa_says_what_is_wrong(spoil: Callable[[str], str], words: str | None) -> None:
    spoilt = spoil(cpa())
    if words is None:
        assert read_views(spoilt)
        return
    with pytest.raises(AgreementProblem, match=words) as caught:
        read_cpa(spoilt, own=0)
    assert caught.value.remedy


def test_a_doctype_is_refused_whatever_it_says() -> None:
    for head in (
        "<!DOCTYPE x>",
        '<!DOCTYPE x [<!ENTITY e "boom">]>',
        '<!DOCTYPE x SYSTEM "file:///etc/passwd">',
        '<!DOCTYPE x [<!ENTITY a "1"><!ENTITY b "&a;&a;&a;&a;">]>',
    ):
        with pytest.raises(AgreementProblem, match=r"DOCTYPE|well-formed"):
            read_cpa(cpa(head=head), own=0)


def test_an_entity_is_never_read_from_a_file() -> None:
    head = '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hostname">]>'
    with pytest.raises(AgreementProblem) as caught:
        read_cpa(cpa(head=head, override="&e;"), own=0)
    assert "DOCTYPE" in caught.value.problem or "well-formed" in caught.value.problem


def test_a_file_too_large_or_too_deep_is_refused() -> None:
    with pytest.raises(AgreementProblem, match="more than"):
        read_cpa(b" " * (SIZE_MAX + 1), own=0)
    with pytest.raises(AgreementProblem, match="well-formed"):
        read_cpa("<a>" * 5000 + "</a>" * 5000, own=0)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_the_declared_encoding_of_bytes_is_obeyed(encoding: str) -> None:
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    xml = cpa(head=head).replace('partyName="Alpha"', 'partyName="Älpha"').encode(encoding)
    assert read_cpa(xml, own="Älpha").own.name == "Älpha"


def test_text_with_a_declaration_is_taken_as_it_is() -> None:
    head = '<?xml version="1.0" encoding="utf-16"?>'
    assert read_cpa(cpa(head=head), own="Alpha").cpa_id == "a-b"


def test_order_without_acknowledgements_cannot_be_kept_and_is_said() -> None:
    view = read_cpa(
        cpa(
            characteristics='ackRequested="never"',
            reliable=RELIABLE.replace("NotGuaranteed", "Guaranteed"),
        ),
        own="Alpha",
    )
    assert not view.actions[0].terms.ordered
    assert any(key == "sequence.ordered" for key, _ in view.not_offered)


def test_a_transport_we_do_not_have_is_said() -> None:
    view = read_cpa(cpa().replace(">SMTP<", ">IIOP<"), own="Alpha")
    assert ("delivery.transports", "the transport iiop is not offered") in view.not_offered


def test_an_endpoint_without_a_type_is_for_all_purposes() -> None:
    view = read_cpa(cpa(), own="Alpha")
    assert view.partner.endpoints[0].type is EndpointType.ALL_PURPOSE


@pytest.mark.long
@given(st.text(max_size=400) | st.binary(max_size=400))
def test_anything_else_is_an_agreement_problem(junk: str | bytes) -> None:
    with pytest.raises(AgreementProblem):
        read_cpa(junk, own=0)


@given(st.data())
def test_a_cpa_with_flipped_characters_never_raises_anything_else(data: st.DataObject) -> None:
    xml = list(cpa())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(xml) - 1))
        xml[at] = data.draw(st.sampled_from('<>"/& aP0\x00é'))
    with contextlib.suppress(AgreementProblem):
        read_views("".join(xml))
