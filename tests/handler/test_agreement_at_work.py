"""What the agreement decides and what the header decides, shown by handlers that run under it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncewire.agreement.cppa.reader import read_cpa
from oncewire.errors import AgreementProblem
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.instant import SECOND
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network
from tests.handler.test_exchange import OTHER
from tests.handler.test_recovery_at_work import attempts, let_pass
from tests.handler.wiretap import find


def draft(pair: Network, **more: object) -> Parcel:
    """alpha's message as it was stored; nothing has arrived yet."""
    pair.lose_request = lambda post: True
    pair.send(**more)
    return pair.sent("order-1@alpha")


def changed(parcel: Parcel, old: bytes, new: bytes) -> Parcel:
    """The same parcel with other words in it."""
    assert old in parcel.body
    return Parcel(parcel.content_type, parcel.body.replace(old, new))


def answered(pair: Network, parcel: Parcel) -> Message:
    """What beta answers to a parcel."""
    before = len(pair.to("alpha"))
    pair.deliver("beta", parcel)
    return pair.to("alpha")[before].message


@pytest.mark.requirement("CPA-1", "HDR-9")
def test_a_lifetime_is_set_by_the_agreement_and_by_the_message() -> None:
    pair = Network.pair("ms-0.9x", '[delivery]\ntime_to_live = "PT100S"\n')
    pair.send(1)
    pair.send(2, time_to_live=7 * SECOND)
    lives = [
        (one.message.header.time_to_live or 0) - one.message.header.timestamp
        for one in pair.to("beta")
    ]
    assert lives == [100 * SECOND, 7 * SECOND]


@pytest.mark.requirement("CPA-1", "CPA-8", "RM-5")
@pytest.mark.parametrize(("agreed", "reliable"), [("true", True), ("false", False)])
def test_where_the_header_is_silent_the_agreement_governs(agreed: str, reliable: bool) -> None:
    pair = Network.pair("ms-0.9x")
    parcel = draft(pair)
    pair.agree("beta", "ms-0.9x", f"[delivery]\nreliable = {agreed}\n")
    silent = changed(
        parcel,
        b'<QualityOfServiceInfo deliverySemantics="OnceAndOnlyOnce" '
        b'deliveryReceiptRequested="Unsigned"/>',
        b"",
    )
    pair.deliver("beta", silent)
    assert bool(pair.to("alpha")) is reliable
    assert pair.take() == ["order-1@alpha"]


@pytest.mark.requirement("CPA-2")
def test_what_is_asked_of_the_hop_is_read_from_the_header_alone() -> None:
    """beta's agreement says that hops are asked; the second message asks for nothing."""
    pair = Network.pair("ms-0.9x", '[ack]\nhop_request = "Unsigned"\n')
    asking = draft(pair)
    assert b'ackRequested="Unsigned"' in asking.body
    asked = answered(pair, changed(asking, b' deliveryReceiptRequested="Unsigned"', b""))
    assert len(asked.acknowledgments) == 1
    other = Network.pair("ms-0.9x", '[ack]\nhop_request = "Unsigned"\n')
    silent = changed(
        changed(draft(other), b' deliveryReceiptRequested="Unsigned"', b""),
        b' ackRequested="Unsigned"',
        b"",
    )
    assert answered(other, silent).acknowledgments == ()


@pytest.mark.requirement("CPA-3", "CPA-4")
def test_times_and_retries_are_the_agreements_and_no_header_has_them() -> None:
    law = "[delivery]\ntimeout = 7\nretry_interval = 11\nretries = 2\n"
    pair = Network.pair("ms-0.9x", law, lose_answer=lambda count: True)
    pair.send()
    let_pass(pair, 60)
    assert attempts(pair) == [0, 7, 18]
    header = pair.to("beta")[0].envelope
    for absent in ("Timeout", "Retries", "RetryInterval", "persistDuration", "PersistDuration"):
        assert find(header, absent) is None


@pytest.mark.requirement("CPA-4")
@pytest.mark.parametrize("wrong", ["timeout = -1", "retries = 1.5", 'retry_interval = "soon"'])
def test_times_and_counts_that_are_none_are_refused(wrong: str) -> None:
    with pytest.raises(AgreementProblem) as refused:
        Network.pair("ms-0.9x", f"[delivery]\n{wrong}\n")
    assert wrong.split()[0] in str(refused.value)


@pytest.mark.requirement("CPA-6", "RTY-17")
def test_persist_duration_is_a_duration_and_ends_the_resends() -> None:
    law = '[delivery]\ntimeout = 10\nretry_interval = 10\nretries = 90\npersist_duration = "PT1M"\n'
    pair = Network.pair("ms-0.9x", law, lose_answer=lambda count: True)
    pair.send()
    let_pass(pair, 200)
    assert attempts(pair) == [0, 10, 20, 30, 40, 50]


@pytest.mark.requirement("CPA-7", "RM-5")
@pytest.mark.parametrize(
    ("method", "listed", "code"),
    [
        ("ebXML", "http://www.ebxml.org/namespaces/reliableMessaging", None),
        ("Transport", "http://www.ebxml.org/namespaces/reliableMessaging", "NotSupported"),
    ],
)
def test_a_method_that_is_not_listed_is_not_supported(
    method: str, listed: str, code: str | None
) -> None:
    pair = Network.pair("ms-0.9x", f'[delivery]\nmethods_supported = ["{listed}"]\n')
    asking = f'<RoutingHeader reliableMessagingMethod="{method}">'.encode()
    answer = answered(pair, changed(draft(pair), b"<RoutingHeader>", asking))
    errors = answer.error_list.errors if answer.error_list is not None else ()
    assert [one.code for one in errors] == ([] if code is None else [code])
    assert len(pair.take()) == (1 if code is None else 0)


RECEIPT = b'deliveryReceiptRequested="%s"'


@pytest.mark.requirement("CPA-13", "CPA-14")
@pytest.mark.parametrize(
    ("provided", "asked", "given"),
    [
        ("Both", "Unsigned", True),
        ("Unsigned", "Unsigned", True),
        ("Unsigned", "Signed", False),
        ("None", "Unsigned", False),
        ("None", "None", True),
    ],
)
def test_a_receipt_that_is_not_provided_is_refused(provided: str, asked: str, given: bool) -> None:
    pair = Network.pair("ms-0.9x")
    parcel = draft(pair)
    pair.agree("beta", "ms-0.9x", f'[delivery]\nreceipt_provided = "{provided}"\n')
    wish = changed(parcel, RECEIPT % b"Unsigned", RECEIPT % asked.encode())
    answer = answered(pair, wish)
    if given:
        assert answer.kind is MessageKind.ACKNOWLEDGMENT
        return
    assert answer.error_list is not None
    (error,) = answer.error_list.errors
    assert (error.code, error.severity.value) == ("NotSupported", "Error")
    assert pair.take() == []


@pytest.mark.requirement("CPA-15")
@pytest.mark.parametrize(
    ("accuracy", "late", "taken"),
    [("00:00", 1, False), ("00:00", 0, True), ("01:30", 90, True), ("01:30", 91, False)],
)
def test_a_lifetime_is_judged_as_exactly_as_the_clocks_are(
    accuracy: str, late: int, taken: bool
) -> None:
    pair = Network.pair("ms-0.9x", f'[delivery]\ntime_accuracy = "{accuracy}"\n')
    parcel = draft(pair, time_to_live=10 * SECOND)
    pair.beta.context.world.time += (10 + late) * SECOND  # type: ignore[attr-defined]
    answer = answered(pair, parcel)
    assert (answer.kind is MessageKind.ACKNOWLEDGMENT) is taken
    if not taken:
        assert answer.error_list is not None
        assert answer.error_list.errors[0].code == "TimeToLiveExpired"
    assert len(pair.take()) == (1 if taken else 0)


OLD_PARTY = """<PartyInfo><PartyId type="DUNS">{id}</PartyId>
 <CollaborationRole><Role name="r"/>
  <ServiceBinding channelId="c"><Service>urn:test:orders</Service></ServiceBinding>
 </CollaborationRole>
 <DeliveryChannel channelId="c" transportId="t" docExchangeId="d">
  <Characteristics syncReplyMode="{mode}"/></DeliveryChannel>
 <Transport transportId="t"><Endpoint uri="http://{id}/msh"/></Transport>
 <DocExchange docExchangeId="d"><ebXMLBinding version="0.98b">
  <ReliableMessaging deliverySemantics="OnceAndOnlyOnce"><Timeout>45</Timeout>
  </ReliableMessaging></ebXMLBinding></DocExchange></PartyInfo>"""


@pytest.mark.requirement("CPA-17", "SYNC-3")
@pytest.mark.parametrize(("mode", "status"), [("AcksOnly", 200), ("none", 204)])
def test_the_channels_characteristics_say_what_comes_back_at_once(mode: str, status: int) -> None:
    parties = "".join(OLD_PARTY.format(id=one, mode=mode) for one in ("one", "two"))
    document = (
        '<CollaborationProtocolAgreement xmlns="http://www.ebxml.org/namespaces/tradePartner" '
        f'cpaid="old" version="1.0"><Status value="agreed"/>{parties}'
        "</CollaborationProtocolAgreement>"
    )
    sender, receiver = (
        Network.single(read_cpa(document, own=own), at="2026-01-01T00:00:00Z")
        for own in ("one", "two")
    )
    post = sender.submit(replace(OTHER, cpa_id="old"))
    reply = receiver.hand_in(sender.parcel(post))
    assert reply.status == status
    assert len(receiver.take()) == 1


@pytest.mark.parametrize("rule", ["always", "perMessage"])
@pytest.mark.parametrize("profile", ["window", "ms-0.9x", "rm-0.78"])
def test_a_copy_of_a_drafts_message_is_no_second_message(profile: str, rule: str) -> None:
    """The drafts have no DuplicateElimination to state; OnceAndOnlyOnce says it."""
    rest = (
        f'[duplicate]\nelimination = "{rule}"\n'
        '[delivery]\nheader_conflict = "a"\ntimeout = "PT60S"\n'
    )
    pair = Network.pair(profile, rest, lose_answer=lambda answer: answer == 1)
    pair.send()
    assert pair.take() == ["order-1@alpha"]
    pair.pass_time(60 * SECOND)
    assert "duplicate" in pair.kinds("beta")
    assert pair.take() == []
    assert pair.verify().clean
