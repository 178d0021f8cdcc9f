"""What a real handler writes into its acknowledgements and errors, read from the line itself."""

from __future__ import annotations

import pytest

from oncewire.handler.actions import Source
from oncewire.handler.encryption import whole_parcel
from oncewire.message.envelope import DeliverySemantics, MessageKind
from oncewire.wire.parcel import Parcel
from tests.handler.network import Crossing, Network
from tests.handler.wiretap import find, names


def exchange(profile: str, extra: str = "") -> tuple[Crossing, Crossing]:
    """One reliable message, and the acknowledgement that came back as a message of its own."""
    pair = Network.pair(profile, extra)
    pair.send()
    (request,) = pair.to("beta")
    (answer,) = pair.to("alpha")
    assert pair.take() == ["order-1@alpha"]
    assert pair.verify().clean
    return request, answer


def refusal(profile: str) -> tuple[Crossing, Crossing]:
    """A message whose time to live is over when it arrives, and the error it is answered with."""
    pair = Network.pair(profile, lose_request=lambda post: post.attempt == 1)
    pair.send(time_to_live=1_000_000)
    late = next(iter(_sent(pair)))
    pair.beta.context.world.time += 3_600_000_000  # type: ignore[attr-defined]
    pair.deliver("beta", late)
    (request,) = pair.to("beta")
    (answer,) = pair.to("alpha")
    return request, answer


def _sent(pair: Network) -> list[Parcel]:
    return [pair.sent("order-1@alpha")]


@pytest.mark.requirement("ACK-4", "ACK-12")
@pytest.mark.parametrize(
    ("profile", "sender", "receiver"),
    [("rm-0.78", "SenderID", "ReceiverID"), ("ms-0.9x", "SenderURI", "ReceiverURI")],
)
@pytest.mark.parametrize("signal", [exchange, refusal], ids=["acknowledgement", "error"])
def test_a_signal_goes_back_between_the_ends_of_the_hop(
    profile: str, sender: str, receiver: str, signal: object
) -> None:
    request, answer = signal(profile)  # type: ignore[operator]
    asked, answered = request.envelope, answer.envelope
    for end, hop_end in (("From", receiver), ("To", sender)):
        party = find(answered, "Header", end, "PartyId")
        came = find(asked, "RoutingHeader", hop_end)
        assert party is not None
        assert came is not None
        assert party.text == came.text


@pytest.mark.requirement("TRN-1", "TRN-2")
@pytest.mark.parametrize("profile", ["rm-0.78", "ms-0.9x", "ebms2"])
@pytest.mark.parametrize("signal", [exchange, refusal], ids=["acknowledgement", "error"])
def test_the_response_to_a_post_is_empty(profile: str, signal: object) -> None:
    """Acknowledgements and errors come back as a POST of their own."""
    request, answer = signal(profile)  # type: ignore[operator]
    assert request.reply is None
    assert answer.reply is None
    assert answer.to == "alpha"


@pytest.mark.requirement("ACK-3", "ACK-5", "ERR-3")
@pytest.mark.parametrize("profile", ["rm-0.78", "ms-0.9x", "ebms2"])
@pytest.mark.parametrize("signal", [exchange, refusal], ids=["acknowledgement", "error"])
def test_a_signal_names_its_message_agreement_and_conversation(
    profile: str, signal: object
) -> None:
    request, answer = signal(profile)  # type: ignore[operator]
    asked, answered = request.message.header, answer.message.header
    assert answered.ref_to_message_id == asked.message_id
    assert answered.cpa_id == asked.cpa_id
    assert answered.conversation_id == asked.conversation_id


@pytest.mark.requirement("ACK-6", "ACK-7")
@pytest.mark.parametrize(
    ("signal", "word"), [(exchange, "Acknowledgement"), (refusal, "Error")], ids=["ack", "error"]
)
def test_a_signal_of_v0_078_has_its_type_and_no_service_action_or_payload(
    signal: object, word: str
) -> None:
    _, answer = signal("rm-0.78")  # type: ignore[operator]
    assert answer.envelope.get("MessageType") == word
    for absent in ("ServiceInterface", "Action", "Manifest"):
        assert find(answer.envelope, absent) is None
    assert answer.message.payloads == ()


@pytest.mark.requirement("ACK-8", "RM-6")
@pytest.mark.parametrize(
    ("profile", "element", "word"),
    [
        ("rm-0.78", "ReliableMessagingInfo", "Unspecified"),
        ("ms-0.9x", "QualityOfServiceInfo", "BestEffort"),
    ],
)
def test_an_acknowledgement_is_itself_not_reliable(profile: str, element: str, word: str) -> None:
    _, answer = exchange(profile)
    quality = find(answer.envelope, element)
    assert quality is not None
    assert list(quality.attrib.values()) == [word]
    assert answer.message.sequence is None
    assert answer.message.header.semantics is DeliverySemantics.BEST_EFFORT


@pytest.mark.requirement("ACK-9")
@pytest.mark.parametrize("profile", ["rm-0.78", "ms-0.9x", "ebms2"])
def test_nothing_answers_an_acknowledgement(profile: str) -> None:
    pair = Network.pair(profile)
    pair.send()
    (answer,) = pair.to("alpha")
    # The same once more, one that names nothing we know, and one that no agreement covers.
    stray = answer.parcel.body.replace(b"order-1@alpha", b"order-9@alpha")
    foreign = answer.parcel.body.replace(b"alpha-beta", b"somebody-else")
    for body in (answer.parcel.body, stray, foreign):
        parcel = Parcel(answer.parcel.content_type, body)
        given = pair.alpha.receive(parcel, Source("http", can_answer=True))
        assert (given.status, given.parcel, pair.alpha.commit()) == (204, None, [])


@pytest.mark.requirement("ACK-10", "ACK-11")
@pytest.mark.parametrize(
    ("profile", "action"), [("ms-0.9x", "Acknowledgment"), ("ms-0.9x-typed", "DeliveryReceipt")]
)
def test_an_acknowledgement_of_2001_has_its_service_and_action(profile: str, action: str) -> None:
    _, answer = exchange(profile)
    service = find(answer.envelope, "Service")
    assert service is not None
    assert service.text == ("http://www.ebxml.org/namespaces/messageService/MessageAcknowledgment")
    found = find(answer.envelope, "Action")
    assert found is not None
    assert found.text == action


@pytest.mark.requirement("ACK-2", "ACK-13", "ACK-15")
def test_a_reliable_message_is_acknowledged_whether_it_asks_or_not() -> None:
    """No element was asked for: the RefToMessageId alone is the acknowledgement."""
    pair = Network.pair("ms-0.9x", lose_request=lambda post: True)
    pair.send()
    (parcel,) = _sent(pair)
    silent = parcel.body.replace(b' deliveryReceiptRequested="Unsigned"', b"")
    assert silent != parcel.body
    pair.deliver("beta", Parcel(parcel.content_type, silent))
    (answer,) = pair.to("alpha")
    assert answer.message.kind is MessageKind.ACKNOWLEDGMENT
    assert find(answer.envelope, "Acknowledgment") is None
    assert [one.message_id for one in pair.settled] == ["order-1@alpha"]
    assert pair.take() == ["order-1@alpha"]


@pytest.mark.requirement("ACK-13")
@pytest.mark.parametrize(
    ("word", "refused"), [("Unsigned", False), ("None", False), ("Perhaps", True)]
)
def test_ack_requested_has_three_words(word: str, refused: bool) -> None:
    pair = Network.pair("ms-0.9x", lose_request=lambda post: True)
    pair.send()
    (parcel,) = _sent(pair)
    asking = f'<RoutingHeader ackRequested="{word}">'.encode()
    body = parcel.body.replace(b"<RoutingHeader>", asking)
    assert body != parcel.body
    pair.deliver("beta", Parcel(parcel.content_type, body))
    (answer,) = pair.to("alpha")
    assert (answer.message.kind is MessageKind.ERROR) is refused
    assert pair.take() == ([] if refused else ["order-1@alpha"])


@pytest.mark.requirement("ACK-17", "ACK-18", "ACK-19")
@pytest.mark.parametrize(
    ("profile", "attributes"),
    [
        ("ms-0.9x", {"signed": "false"}),
        ("ms-0.9x-typed", {"signed": "false", "type": "DeliveryReceipt"}),
    ],
)
def test_the_acknowledgment_element_says_when_and_by_whom(
    profile: str, attributes: dict[str, str]
) -> None:
    _, answer = exchange(profile)
    element = find(answer.envelope, "Acknowledgment")
    assert element is not None
    assert names(element) == ["Timestamp", "From"]
    assert dict(element.attrib) == attributes
    party = find(element, "From", "PartyId")
    assert party is not None
    # Header/From is the end of the hop; this is the party that has the message.
    assert party.text == "urn:test:beta"


@pytest.mark.requirement("ACK-18")
def test_an_acknowledgment_without_from_is_that_of_the_headers_sender() -> None:
    pair = Network.pair("ms-0.9x", lose_answer=lambda count: count == 1)
    pair.send()
    with pair.beta.context.store.transition() as tx:
        (stored,) = tx.incoming_by_id("order-1@alpha")
    assert stored.answer is not None
    parcel = whole_parcel(pair.beta.context, stored.answer.parcel)
    lost = parcel.body
    start, end = lost.index(b"<From>", lost.index(b"<Acknowledgment")), lost.rindex(b"</From>")
    bare = lost[:start] + lost[end + len(b"</From>") :]
    pair.deliver("alpha", Parcel(parcel.content_type, bare))
    assert [one.message_id for one in pair.settled] == ["order-1@alpha"]
    assert pair.verify(healed=False).clean
