"""Small agreements and messages that the tests of this package start from."""

from typing import Any

from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.toml import read_toml
from oncewire.message.envelope import (
    AckRequested,
    Actor,
    Header,
    Message,
    MessageKind,
    RoutingHeader,
    SequenceNumber,
)
from oncewire.message.form import AckRequest, Dialect
from oncewire.message.ids import Party, Service
from oncewire.message.instant import DAY, parse_instant

NOW = parse_instant("2026-06-01T12:00:00Z")[0]

ALPHA = Party.of("alpha", "urn:ex:org")
BETA = Party.of("beta", "urn:ex:org")
HUB = Party.of("hub", "urn:ex:org")

HEAD = """
cpa_id = "alpha-beta-1"
profile = "{profile}"
{top}
[own]
party_id = "beta"
type = "urn:ex:org"
http = "https://beta.example/msh"
{own}
[partner]
party_id = "alpha"
type = "urn:ex:org"
client_certificates = ["{fingerprint}"]
http = "https://alpha.example/msh"
{partner}
"""

FINGERPRINT = "ab" * 32


def toml(
    profile: str = "ebms2", rest: str = "", *, top: str = "", own: str = "", partner: str = ""
) -> str:
    """An agreement of beta (us) with alpha: the profile, and whatever the test adds."""
    head = HEAD.format(profile=profile, top=top, own=own, partner=partner, fingerprint=FINGERPRINT)
    return head + rest


def agreement(
    profile: str = "ebms2", rest: str = "", *, top: str = "", own: str = "", partner: str = ""
) -> Agreement:
    """The same, read."""
    return read_toml(toml(profile, rest, top=top, own=own, partner=partner))


def message(dialect: Dialect = Dialect.EBMS2, **header: Any) -> Message:
    """A message from alpha to us; keywords replace values of its header."""
    values: dict[str, Any] = {
        "from_party": ALPHA,
        "to_party": BETA,
        "cpa_id": "alpha-beta-1",
        "conversation_id": "conv-77",
        "service": Service("urn:ex:orders"),
        "action": "PlaceOrder",
        "message_id": "m-1@alpha.example",
        "timestamp": NOW,
    }
    return Message(dialect, MessageKind.NORMAL, Header(**(values | header)))


def asking(
    ack: AckRequest = AckRequest.UNSIGNED, actor: Actor = Actor.TO_PARTY_MSH, **header: Any
) -> Message:
    """An ebMS 2.0 message that asks one handler for an acknowledgement."""
    request = AckRequested(actor, signed=ack is AckRequest.SIGNED)
    return replace(message(**header), ack_requested=(request,))


def draft_message(
    *, hop_ack: AckRequest = AckRequest.NONE, number: SequenceNumber | None = None, **header: Any
) -> Message:
    """A 0.9x message from alpha to us, with its one RoutingHeader."""
    hop = RoutingHeader(
        sender_uri="https://alpha.example/msh",
        receiver_uri="https://beta.example/msh",
        timestamp=NOW,
        ack_requested=hop_ack,
        sequence=number,
    )
    return replace(message(Dialect.MS_09X, **header), routing=(hop,))


LATER = NOW + 400 * DAY
