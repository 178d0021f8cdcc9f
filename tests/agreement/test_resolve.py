"""A message is resolved to its agreement, binding and channel, or to the error it earns."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from oncewire.agreement.agreement import Agreement, Agreements, Direction
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.agreement.resolve import channel_of, resolve, resolve_under, service_called
from oncewire.errors import (
    AgreementProblem,
    EbxmlError,
    Inconsistent,
    SoapFault,
    ValueNotRecognized,
)
from oncewire.message.envelope import (
    Acknowledgment,
    AckRequested,
    Message,
    MessageKind,
    RoutingHeader,
    SequenceNumber,
)
from oncewire.message.form import Dialect
from oncewire.message.ids import Party, PartyId, Service
from oncewire.message.instant import DAY, MINUTE
from tests.agreement import samples
from tests.agreement.readings import outbound, read_views
from tests.agreement.samples import ALPHA, BETA, HUB, NOW

SERVICE, ACTION = Service("osb:afleveren:1.1$1.0", "urn:osb:services"), "afleveren"
OIN = "urn:osb:oin"


def _refused(agreements: Agreements | list[Agreement], message: Message) -> EbxmlError:
    with pytest.raises(EbxmlError) as caught:
        resolve(agreements, message, receiving=True, now=NOW)
    assert caught.value.severity == "Error"
    assert caught.value.remedy
    return caught.value


# --- unknown agreement -------------------------------------------------------------------------


def test_an_unknown_agreement_is_an_error_by_default() -> None:
    error = _refused([samples.agreement()], samples.message(cpa_id="other"))
    assert isinstance(error, ValueNotRecognized)
    assert error.location == "//Header/MessageHeader/CPAId"


def test_an_unknown_agreement_is_a_fault_where_the_partner_agreed_so() -> None:
    known = samples.agreement(rest='[wire]\nunknown_cpa = "fault"\n')
    with pytest.raises(SoapFault) as caught:
        resolve([known], samples.message(cpa_id="other"), receiving=True, now=NOW)
    assert caught.value.faultcode == "Client"
    # A stranger is answered as the handler itself is set up.
    stranger = samples.message(cpa_id="other", from_party=Party.of("urn:ex:stranger"))
    assert _refused([known], stranger).code == "ValueNotRecognized"
    everyone = Agreements([], form=known.form)
    with pytest.raises(SoapFault):
        resolve(everyone, stranger, receiving=True, now=NOW)


def test_what_we_send_ourselves_is_never_answered_with_a_fault() -> None:
    known = samples.agreement(rest='[wire]\nunknown_cpa = "fault"\n')
    with pytest.raises(ValueNotRecognized):
        resolve([known], samples.message(cpa_id="other"), receiving=False, now=NOW)


@pytest.mark.parametrize("top", ['also_known_as = ["S1001A1630"]', "any_cpa_id = true"])
def test_a_directorys_key_finds_the_agreement(top: str) -> None:
    known = samples.agreement("nhs-express", top=top)
    found = resolve([known], samples.message(cpa_id="S1001A1630"), receiving=True, now=NOW)
    assert found.agreement is known


def test_one_cpa_id_may_serve_two_partners() -> None:
    first = samples.agreement()
    second = replace(first, partner=replace(first.partner, party=Party.of("gamma", "urn:ex:org")))
    both = Agreements([first, second])
    assert len(both.by_cpa_id("alpha-beta-1")) == 2
    gamma = samples.message(from_party=Party.of("gamma", "urn:ex:org"))
    assert resolve(both, gamma, receiving=True, now=NOW).agreement is second
    assert resolve(both, samples.message(), receiving=True, now=NOW).agreement is first


def test_twins_are_refused() -> None:
    known = samples.agreement()
    with pytest.raises(AgreementProblem, match="same parties"):
        Agreements([known, known])
    with pytest.raises(AgreementProblem, match="called x"):
        Agreements([replace(known, cpa_id="a", also_known_as=("x",)), replace(known, cpa_id="x")])


def test_the_collection_is_searched_by_parties() -> None:
    known = samples.agreement()
    everything = Agreements([known])
    assert list(everything) == [known]
    assert len(everything) == 1
    assert everything.between(BETA, ALPHA) == (known,)
    assert everything.between(ALPHA, BETA) == ()


# --- parties, roles, service, action -----------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "location"),
    [
        ({"to_party": Party.of("beta", "type")}, "//Header/MessageHeader/To/PartyId"),
        ({"to_party": Party.of("beta")}, "//Header/MessageHeader/To/PartyId"),
        ({"to_party": Party.of("other", "urn:ex:org")}, "//Header/MessageHeader/To/PartyId"),
        ({"from_party": Party.of("alpha", "type")}, "//Header/MessageHeader/From/PartyId"),
        ({"from_party": BETA}, "//Header/MessageHeader/From/PartyId"),
        ({"from_party": BETA, "to_party": ALPHA}, "//Header/MessageHeader/From/PartyId"),
    ],
)
def test_a_party_that_is_not_of_the_agreement_is_inconsistent(
    header: dict[str, Party], location: str
) -> None:
    error = _refused([samples.agreement()], samples.message(**header))
    assert isinstance(error, Inconsistent)
    assert error.location == location


def test_one_common_id_is_enough_unless_another_contradicts() -> None:
    known = samples.agreement()
    more = Party((PartyId("alpha", "urn:ex:org"), PartyId("77", "DUNS")))
    assert resolve([known], samples.message(from_party=more), receiving=True, now=NOW)
    liar = Party((PartyId("alpha", "urn:ex:org"), PartyId("gamma", "urn:ex:org")))
    assert _refused([known], samples.message(from_party=liar)).code == "Inconsistent"


def _listed(words: str = "") -> Agreement:
    return samples.agreement(
        top="listed_only = true",
        rest=f"""{words}
        [[actions]]
        service = "urn:ex:orders"
        action = "PlaceOrder"
        direction = "receive"
        role = "Seller"
        partner_role = "Buyer"
        [actions.delivery]
        retries = 5
        [[actions]]
        service = "urn:ex:orders"
        action = "Confirm"
        direction = "send"
        [[actions]]
        service = "anything"
        service_type = "urn:ex:services"
        """,
    )


def test_the_binding_of_service_and_action_counts() -> None:
    found = resolve([_listed()], samples.message(), receiving=True, now=NOW)
    assert found.terms.retries == 5
    assert found.binding is not None
    assert found.binding.action == "PlaceOrder"


@pytest.mark.parametrize(
    ("header", "location"),
    [
        ({"service": Service("urn:ex:other")}, "//Header/MessageHeader/Service"),
        ({"service": Service("anything", "urn:ex:wrong")}, "//Header/MessageHeader/Service"),
        ({"service": None, "action": None}, "//Header/MessageHeader/Service"),
        ({"action": "Unknown"}, "//Header/MessageHeader/Action"),
        # Agreed, but only in the other direction.
        ({"action": "Confirm"}, "//Header/MessageHeader/Action"),
    ],
)
def test_an_unknown_service_or_action_is_not_recognized(
    header: dict[str, Any], location: str
) -> None:
    error = _refused([_listed()], samples.message(**header))
    assert isinstance(error, ValueNotRecognized)
    assert error.location == location


@pytest.mark.parametrize(
    ("header", "location"),
    [
        ({"from_party": structs.replace(ALPHA, role="Seller")}, "//Header/MessageHeader/From/Role"),
        ({"to_party": structs.replace(BETA, role="Buyer")}, "//Header/MessageHeader/To/Role"),
    ],
)
@pytest.mark.parametrize("policy", ["a", "b", "c", "d"])
def test_another_role_is_weighed_as_agreed(
    header: dict[str, Any], location: str, policy: str
) -> None:
    """As every other value of the header that contradicts the agreement (CPA-9..12)."""
    words = f'[delivery]\nheader_conflict = "{policy}"'
    known = [_listed(words)]
    if policy == "d":
        error = _refused(known, samples.message(**header))
        assert isinstance(error, Inconsistent)
        assert error.location == location
        return
    found = resolve(known, samples.message(**header), receiving=True, now=NOW)
    assert found.binding is not None
    assert found.binding.from_role == "Buyer"
    told = [(warning.code, warning.location) for warning in found.warnings]
    assert told == ([] if policy == "a" else [("Inconsistent", location)])


def test_roles_services_and_types_that_fit_pass() -> None:
    known = [_listed()]
    for header in (
        {
            "from_party": structs.replace(ALPHA, role="Buyer"),
            "to_party": structs.replace(BETA, role="Seller"),
        },
        {"service": Service("anything", "urn:ex:services"), "action": "Whatever"},
        {"service": Service("anything"), "action": "Whatever"},
        {"service": Service("urn:ex:orders", "anyURI")},
    ):
        assert resolve(known, samples.message(**header), receiving=True, now=NOW)


def test_a_service_without_its_type_is_not_guessed(corpus: Path) -> None:
    xml = (corpus / "ebms-core/cpa/cpa-cv-https.xml").read_bytes()
    view = read_cpa(xml, own="Consumer")
    with pytest.raises(ValueNotRecognized):
        outbound(view, Service("EchoService$1.0"), "EchoRequest")
    assert outbound(view, Service("EchoService$1.0", "urn:cv:rm:services"), "EchoRequest")


@pytest.mark.parametrize("spelling", ["{0.value}", "{0}", "{0.spelled}"])
def test_every_spelling_of_a_service_finds_the_agreed_one(corpus: Path, spelling: str) -> None:
    """As people type it, as listings of messages print it, as agreements print it."""
    stub = (corpus / "ebms-core/cpa/cpaStubEBF.rm.http.unsigned.sync.xml").read_bytes()
    for view in read_views(stub):
        sent = [one for one in view.actions if one.direction is Direction.SEND]
        assert sent
        for binding in sent:
            assert binding.service is not None
            word = spelling.format(binding.service)
            assert service_called(view, word) == binding.service
            assert outbound(view, Service(word), binding.action).binding is binding


def test_what_is_received_is_not_respelled() -> None:
    """A header without the type is somebody else's mistake, and told apart from one with it."""
    text = """
        [[actions]]
        service = "orders"
        service_type = "urn:ex"
        """
    known = Agreements([samples.agreement("ebms2", text, top="listed_only = true")])
    odd = samples.message(service=Service("urn:ex:orders"))
    with pytest.raises(ValueNotRecognized):
        resolve(known, odd, receiving=True, now=NOW)


def test_a_service_that_is_not_listed_is_free_unless_only_listed_ones_are_allowed() -> None:
    free = replace(_listed(), listed_only=False)
    other = samples.message(service=Service("urn:ex:other"))
    assert resolve([free], other, receiving=True, now=NOW).binding is free.receiving


def test_signals_need_no_service_of_the_agreement() -> None:
    ack = structs.replace(
        samples.message(service=Service("urn:oasis:names:tc:ebxml-msg:service"), action="Pong"),
        kind=MessageKind.PONG,
    )
    found = resolve([_listed()], ack, receiving=True, now=NOW)
    assert not found.terms.reliable
    assert found.channel is None


# --- periods and lifetimes ---------------------------------------------------------------------


def test_outside_its_period_an_agreement_is_not_in_force() -> None:
    known = samples.agreement(top="start = 2026-01-01\nend = 2027-01-01")
    message = samples.message()
    assert resolve([known], message, receiving=True, now=NOW)
    for now in (NOW - 200 * DAY, NOW + 300 * DAY):
        for receiving in (True, False):
            turned = message if receiving else samples.message(from_party=BETA, to_party=ALPHA)
            with pytest.raises(Inconsistent) as caught:
                resolve([known], turned, receiving=receiving, now=now)
            assert caught.value.location == "//Header/MessageHeader/CPAId"


@pytest.mark.requirement("RM-17")
def test_what_was_accepted_under_an_agreement_is_placed_there_after_its_end() -> None:
    known = samples.agreement(top="end = 2020-01-01")
    found = resolve_under(known, samples.message(), receiving=True, accepted_at=7)
    assert (found.agreement, found.accepted_at) == (known, 7)
    assert (
        found.terms
        == resolve([samples.agreement()], samples.message(), receiving=True, now=NOW).terms
    )
    for wrong, location in (
        (samples.message(from_party=BETA), "//Header/MessageHeader/From/PartyId"),
        (samples.message(cpa_id="another"), "//Header/MessageHeader/CPAId"),
    ):
        with pytest.raises(Inconsistent) as caught:
            resolve_under(known, wrong, receiving=True, accepted_at=7)
        assert caught.value.location == location
    hub = samples.agreement(top="forwards = true")
    behind = samples.message(to_party=Party.of("urn:ex:gamma"), cpa_id="another")
    assert resolve_under(hub, behind, receiving=True, accepted_at=7).at_hop


@pytest.mark.requirement("CPA-1", "CPA-8", "HDR-9")
def test_a_lifetime_is_the_headers_or_else_the_agreements() -> None:
    known = samples.agreement(rest="[delivery]\ntime_to_live = 60\n")
    silent = resolve([known], samples.message(), receiving=True, now=NOW)
    assert silent.expires_at == NOW + MINUTE
    stated = samples.message(time_to_live=NOW + DAY)
    assert resolve([known], stated, receiving=True, now=NOW).expires_at == NOW + DAY
    # A lifetime of one message never becomes terms of its own.
    assert resolve([known], stated, receiving=True, now=NOW).terms == silent.terms
    none = resolve([samples.agreement()], samples.message(), receiving=True, now=NOW)
    assert none.expires_at is None


# --- channels ----------------------------------------------------------------------------------


def _numbered(scope: str, more: str = "") -> Agreement:
    rest = f'[sequence]\nordered = true\nscope = "{scope}"\n{more}'
    return samples.agreement("ms-0.9x", rest)


@pytest.mark.parametrize(
    ("scope", "received", "sent"),
    [
        ("pair", "alpha>beta", "beta>alpha"),
        ("triple", "alpha>beta/http", "beta>alpha/http"),
        ("conversation", "alpha>beta#conv-77", "beta>alpha#conv-77"),
    ],
)
def test_the_channel_is_named_by_its_scope(scope: str, received: str, sent: str) -> None:
    known = _numbered(scope)
    arrived = samples.draft_message(number=SequenceNumber(4))
    assert resolve([known], arrived, receiving=True, now=NOW).channel == received
    ours = samples.draft_message(number=SequenceNumber(4), from_party=BETA, to_party=ALPHA)
    assert resolve([known], ours, receiving=False, now=NOW).channel == sent
    service = Service("urn:ex:orders")
    assert outbound(known, service, "PlaceOrder", conversation_id="conv-77").channel == sent


@pytest.mark.requirement("SEQ-1")
def test_the_transport_a_message_came_by_is_part_of_a_triple() -> None:
    known = _numbered("triple")
    arrived = samples.draft_message(number=SequenceNumber(4))
    by_mail = resolve([known], arrived, receiving=True, now=NOW, transport="smtp")
    assert by_mail.channel == "alpha>beta/smtp"


def test_no_number_no_channel() -> None:
    found = resolve([samples.agreement()], samples.message(), receiving=True, now=NOW)
    assert found.channel is None
    assert outbound(samples.agreement()).channel is None


def test_a_conversation_is_needed_to_name_its_channel() -> None:
    known = _numbered("conversation")
    assert outbound(known, Service("urn:ex:orders"), "PlaceOrder").channel is None
    with pytest.raises(AgreementProblem):
        channel_of(known, known.sending.terms, Direction.SEND, None, None)


def test_ids_cannot_forge_another_channels_name() -> None:
    known = _numbered("pair")
    names = set()
    for own, other in (("a>b", "c"), ("a", "b>c"), ("a%3Eb", "c"), ("a", "b#c")):
        odd = replace(
            known,
            own=replace(known.own, party=Party.of(own, "t")),
            partner=replace(known.partner, party=Party.of(other, "t")),
        )
        names.add(channel_of(odd, odd.sending.terms, Direction.SEND, None, None))
    assert len(names) == 4


def test_both_handlers_of_a_hop_name_the_channel_alike() -> None:
    via = '[via]\nparty_id = "hub"\ntype = "urn:ex:org"\nhttp = "https://hub.example/msh"\n'
    at_alpha = _turned(_numbered("pair", via))
    at_hub = replace(
        _numbered("pair"), own=replace(_numbered("pair").own, party=HUB), forwards=True
    )
    sent = channel_of(at_alpha, at_alpha.sending.terms, Direction.SEND, None, None)
    taken = channel_of(at_hub, at_hub.receiving.terms, Direction.RECEIVE, None, None)
    assert sent == taken == "alpha>hub"


def _turned(agreement: Agreement) -> Agreement:
    return replace(agreement, own=agreement.partner, partner=agreement.own)


# --- hubs --------------------------------------------------------------------------------------


def _hub() -> Agreements:
    """hub's agreements with its two neighbours; alpha and beta agreed between themselves."""
    base = samples.agreement("ms-0.9x", top="forwards = true")
    with_alpha = replace(
        base, cpa_id="hub-alpha", own=replace(base.own, party=HUB, handler_uri="https://hub/msh")
    )
    with_beta = replace(
        with_alpha,
        cpa_id="hub-beta",
        partner=replace(base.partner, party=BETA, behind=(PartyId("gamma", "urn:ex:org"),)),
    )
    return Agreements([with_alpha, with_beta])


@pytest.mark.requirement("HOP-5")
def test_a_hub_takes_a_message_from_one_neighbour_for_another() -> None:
    hub = _hub()
    message = samples.draft_message(cpa_id="alpha-beta-1")
    taken = resolve(hub, message, receiving=True, now=NOW)
    assert (taken.agreement.cpa_id, taken.at_hop) == ("hub-alpha", True)
    onward = resolve(hub, message, receiving=False, now=NOW)
    assert (onward.agreement.cpa_id, onward.at_hop) == ("hub-beta", True)
    behind = samples.draft_message(to_party=Party.of("gamma", "urn:ex:org"))
    assert resolve(hub, behind, receiving=True, now=NOW).at_hop
    assert hub.toward(behind.header.to_party) is onward.agreement


def test_a_hub_is_no_open_relay() -> None:
    hub = _hub()
    for header in (
        {"to_party": Party.of("stranger", "urn:ex:org")},
        {"from_party": Party.of("stranger", "urn:ex:org")},
        # Back to where it came from.
        {"to_party": ALPHA},
    ):
        assert _refused(hub, samples.draft_message(**header)).code == "ValueNotRecognized"
    alpha, beta = hub
    for closed in (
        [replace(alpha, forwards=False), beta],
        [alpha, replace(beta, forwards=False)],
    ):
        assert _refused(closed, samples.draft_message()).code == "ValueNotRecognized"


def test_a_hub_leaves_the_end_parties_number_alone() -> None:
    hub = _hub()
    ordered = structs.replace(
        samples.draft_message(), order=SequenceNumber(3), ack_requested=(AckRequested(),)
    )
    found = resolve(hub, ordered, receiving=True, now=NOW)
    assert found.channel is None
    numbered = samples.draft_message(number=SequenceNumber(9))
    assert resolve(hub, numbered, receiving=True, now=NOW).channel == "alpha>hub"


def test_acknowledgements_name_handlers_by_their_uri() -> None:
    known = samples.agreement("ms-0.9x")
    ack = Message(
        Dialect.MS_09X,
        MessageKind.ACKNOWLEDGMENT,
        structs.replace(
            samples.message().header,
            from_party=Party.of("https://alpha.example/msh"),
            to_party=Party.of("https://beta.example/msh"),
            ref_to_message_id="m-0",
        ),
        routing=(RoutingHeader("https://alpha.example/msh", "https://beta.example/msh"),),
        acknowledgments=(Acknowledgment(NOW, "m-0"),),
    )
    assert resolve([known], ack, receiving=True, now=NOW).agreement is known
    # A business message must name parties.
    normal = structs.replace(ack, kind=MessageKind.NORMAL)
    assert _refused([known], normal).location == "//Header/MessageHeader/From/PartyId"
    via = '[via]\nparty_id = "urn:hub"\nhttp = "https://hub.example/msh"\n'
    hubbed = samples.agreement("ms-0.9x", via)
    for name in ("https://hub.example/msh", "urn:hub"):
        from_hub = structs.replace(
            ack, header=structs.replace(ack.header, from_party=Party.of(name))
        )
        assert resolve([hubbed], from_hub, receiving=True, now=NOW).agreement is hubbed
    neighbour = structs.replace(
        ack.header, to_party=Party.of("https://hub/msh"), cpa_id="alpha-beta-1"
    )
    found = resolve(_hub(), structs.replace(ack, header=neighbour), receiving=True, now=NOW)
    assert found.agreement.cpa_id == "hub-alpha"


# --- the corpus' own messages ------------------------------------------------------------------


def _corpus_message(**header: Any) -> Message:
    """EbMSMessage.xml of the corpus, as values: reliable, synchronous, no payload."""
    values: dict[str, Any] = {
        "from_party": Party.of("00000000000000000000", OIN, "DIGIPOORT"),
        "to_party": Party.of("00000000000000000001", OIN, "OVERHEID"),
        "cpa_id": "cpaStubEBF.rm.http.unsigned.sync",
        "service": SERVICE,
        "action": ACTION,
        "duplicate_elimination": True,
        "sync_reply_as_agreed": True,
    }
    return samples.asking(**(values | header))


def _unsigned(corpus: Path) -> list[Agreement]:
    path = corpus / "ebms-core/cpa/cpaStubEBF.rm.http.unsigned.sync.xml"
    return [read_cpa(path.read_bytes(), own="Overheid")]


def test_the_peers_own_message_is_accepted(corpus: Path) -> None:
    found = resolve(_unsigned(corpus), _corpus_message(), receiving=True, now=NOW)
    assert found.terms.reliable
    assert found.terms.duplicate_elimination
    assert found.terms.sync_mode.value == "signalsAndResponse"
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("name", "code", "location"),
    [
        ("EbMSMessageInvalidAckRequestedSigned", "Inconsistent", "//Header/AckRequested/@signed"),
        ("EbMSMessageInvalidToPartyType", "Inconsistent", "//Header/MessageHeader/To/PartyId"),
        ("EbMSMessageMissingAckRequested", "Inconsistent", "//Header/AckRequested"),
        ("EbMSMessageMissingDuplicateElimination", "Inconsistent",
         "//Header/MessageHeader/DuplicateElimination"),
    ],
)  # fmt: skip
def test_the_peers_faulty_messages_get_the_answers_of_its_index(
    corpus: Path, name: str, code: str, location: str
) -> None:
    assert (corpus / "ebms-core" / "soap" / f"{name}.xml").is_file()
    index = (corpus / "INDEX.md").read_text(encoding="utf-8")
    line = next(line for line in index.splitlines() if f"/{name}.xml`" in line)
    assert f"errorCode {code}, location {location}," in line
    faulty = {
        "EbMSMessageInvalidAckRequestedSigned": structs.replace(
            _corpus_message(), ack_requested=(AckRequested(signed=True),)
        ),
        "EbMSMessageInvalidToPartyType": _corpus_message(
            to_party=Party.of("00000000000000000001", "type", "OVERHEID")
        ),
        "EbMSMessageMissingAckRequested": structs.replace(_corpus_message(), ack_requested=()),
        "EbMSMessageMissingDuplicateElimination": _corpus_message(duplicate_elimination=False),
    }[name]
    error = _refused(_unsigned(corpus), faulty)
    assert (error.code, error.location) == (code, location)


def test_the_peers_ordered_message_is_put_in_order(corpus: Path) -> None:
    """NotGuaranteed promises nothing; a MessageOrder that comes is kept all the same."""
    xml = (corpus / "ebms-core/cpa/cpaStubEBF.rm.http.signed-sha256.xml").read_bytes()
    view = read_cpa(xml, own="Overheid")
    message = structs.replace(
        _corpus_message(cpa_id=view.cpa_id, sync_reply_as_agreed=False),
        order=SequenceNumber(2),
    )
    found = resolve([view], message, receiving=True, now=NOW)
    assert found.terms.ordered
    assert found.terms.window_size == 100
    assert found.channel == "00000000000000000000>00000000000000000001#conv-77"
