"""What a CPA's channels and actions say, in the keys of an agreement, as CPPA 2.0 has them."""

from __future__ import annotations

from oncewire.agreement.agreement import TRANSPORTS, Direction, Origin, Value
from oncewire.agreement.compose import TRANSPORT_METHOD, layer
from oncewire.agreement.cppa.channel import Channel, Exchange
from oncewire.agreement.cppa.document import CpaAction, CpaDocument, CpaParty
from oncewire.errors import AgreementProblem

# Attribute of MessagingCharacteristics to key, and what its absence means (the schema's
# own defaults).
_CHARACTERISTICS = (
    ("syncReplyMode", "sync.mode", "none"),
    ("ackRequested", "ack.request", "perMessage"),
    ("ackSignatureRequested", "ack.signature", "perMessage"),
    ("duplicateElimination", "duplicate.elimination", "perMessage"),
    ("actor", "ack.actor", None),
)
# Parameters of the drafts, wherever their CPA puts them; both names of the list (C35).
_DRAFT_PARAMETERS = (
    ("Timeout", "delivery.timeout"),
    ("timeout", "delivery.timeout"),
    ("timeToLive", "delivery.time_to_live"),
    ("TimeToLive", "delivery.time_to_live"),
    ("mshTimeAccuracy", "delivery.time_accuracy"),
    ("DeliveryReceiptProvided", "delivery.receipt_provided"),
    ("deliveryReceiptProvided", "delivery.receipt_provided"),
)
_METHOD_LISTS = ("reliableMessagingMethodsSupported", "reliableMessagingSupported")
_BUSINESS = (
    ("isNonRepudiationRequired", "business.non_repudiation"),
    ("isNonRepudiationReceiptRequired", "business.non_repudiation_of_receipt"),
    ("isConfidential", "business.confidential"),
    ("isAuthenticated", "business.authenticated"),
    ("isTamperProof", "business.tamper_proof"),
    ("isAuthorizationRequired", "business.authorization_required"),
    ("isIntelligibleCheckRequired", "business.intelligible_check"),
    ("timeToAcknowledgeReceipt", "business.time_to_acknowledge_receipt"),
    ("timeToAcknowledgeAcceptance", "business.time_to_acknowledge_acceptance"),
    ("timeToPerform", "business.time_to_perform"),
    ("retryCount", "business.retry_count"),
)
# v0-078 says AtMostOnce for the reliable way (C1).
_SEMANTICS = {"OnceAndOnlyOnce": True, "AtMostOnce": True, "BestEffort": False,
              "Unspecified": False}  # fmt: skip
_XMLDSIG, _MORE = "http://www.w3.org/2000/09/xmldsig#", "http://www.w3.org/2001/04/xmldsig-more#"
_XMLENC = "http://www.w3.org/2001/04/xmlenc#"
_ALGORITHMS = {
    "sha1": f"{_XMLDSIG}sha1",
    "sha256": f"{_XMLENC}sha256",
    "sha512": f"{_XMLENC}sha512",
    "rsa-sha1": f"{_XMLDSIG}rsa-sha1",
    "rsa-sha256": f"{_MORE}rsa-sha256",
    "rsa-sha512": f"{_MORE}rsa-sha512",
    "aes128-cbc": f"{_XMLENC}aes128-cbc",
    "aes256-cbc": f"{_XMLENC}aes256-cbc",
    "tripledes-cbc": f"{_XMLENC}tripledes-cbc",
}
_SMIME = {"S/MIME", "SMIME"}
_XML_ENCRYPTION = {"XMLENC", "XMLENCRYPTION", "HTTP://WWW.W3.ORG/2001/04/XMLENC#"}


def channel_values(sender: Channel, receiver: Channel | None) -> list[dict[str, Value]]:
    """The sender's characteristics and retries, and how long the receiver remembers."""
    layers = [
        layer(_characteristics(sender), Origin.CPA, f"DeliveryChannel {sender.channel_id}"),
        layer(_reliable(sender), Origin.CPA, f"DocExchange {sender.exchange_id}"),
    ]
    if receiver is not None and "PersistDuration" in receiver.receiver.reliable:
        kept = {"delivery.persist_duration": receiver.receiver.reliable["PersistDuration"]}
        layers.append(layer(kept, Origin.CPA, f"DocExchange {receiver.exchange_id}"))
    return layers


def _characteristics(channel: Channel) -> dict[str, object]:
    stated = channel.characteristics
    found: dict[str, object] = {}
    for name, key, absent in _CHARACTERISTICS:
        value = stated.get(name, absent if channel.is_2_0 else None)
        if value is not None:
            found[key] = value
    for name, key in _DRAFT_PARAMETERS:
        if name in stated:
            found[key] = stated[name]
    return found


def _reliable(channel: Channel) -> dict[str, object]:
    exchange = channel.sender
    stated = exchange.reliable
    found: dict[str, object] = {}
    for name, key in (
        ("Retries", "delivery.retries"),
        ("RetryInterval", "delivery.retry_interval"),
        ("PersistDuration", "delivery.persist_duration"),
        *_DRAFT_PARAMETERS,
    ):
        if name in stated:
            found[key] = stated[name]
    for name in _METHOD_LISTS:
        if name in stated:
            found["delivery.methods_supported"] = [
                TRANSPORT_METHOD if uri == "Transport" else uri for uri in stated[name].split()
            ]
    if "deliverySemantics" in stated:
        found["delivery.reliable"] = _semantics(stated["deliverySemantics"])
    acked = channel.characteristics.get("ackRequested", "perMessage")
    if channel.is_2_0 and acked == "perMessage":
        # The header decides; what we ask for ourselves follows from the binding.
        found["delivery.reliable"] = exchange.has_reliable
    # Order is kept by numbers, and only reliable messages have them (C3); what a CPA guarantees
    # without them, `not_offered` names.
    if _guaranteed(exchange) and found.get("delivery.reliable", acked != "never"):
        found["sequence.ordered"] = True
    return found


def _semantics(word: str) -> bool:
    if word not in _SEMANTICS:
        raise AgreementProblem(
            f"deliverySemantics {word[:64]!r} is not known",
            key="delivery.reliable",
            remedy="OnceAndOnlyOnce or BestEffort",
        )
    return _SEMANTICS[word]


def _guaranteed(exchange: Exchange) -> bool:
    stated = exchange.reliable
    order = stated.get("MessageOrderSemantics") or stated.get("messageOrderSemantics")
    return order == "Guaranteed"


def action_values(action: CpaAction) -> dict[str, object]:
    """BusinessTransactionCharacteristics in our keys."""
    return {key: action.business[name] for name, key in _BUSINESS if name in action.business}


# --- security ----------------------------------------------------------------------------------


def security_values(
    direction: Direction,
    own: CpaParty,
    partner: CpaParty,
    sender: Channel | None,
    receiver: Channel | None,
    action: CpaAction | None,
) -> dict[str, Value]:
    """What is signed and encrypted, how, and with whose certificates.

    Signals are not signed by themselves: a signed acknowledgement is asked for message by
    message, and a partner that sends plain ones must not be refused.
    """
    found: dict[str, object] = {}
    if sender is not None:
        signs = action is not None and _signs(sender.sender, action)
        key = "security.sign" if direction is Direction.SEND else "security.require_signature"
        found[key] = signs
        if sender.sender.signature_algorithm:
            found["security.signature_algorithm"] = _uri(sender.sender.signature_algorithm)
        if sender.sender.hash_function:
            found["security.digest_algorithm"] = _uri(sender.sender.hash_function)
        named = (sender.sender.signature_algorithm or "") + (sender.sender.hash_function or "")
        # Not taken from anybody by default; here both parties signed that they use it.
        if "sha1" in named.lower():
            found["security.allow_sha1"] = True
        algorithm = _envelope(sender, receiver)
        found["security.encrypt"] = (
            action is not None and algorithm is not None and _encrypts(action)
        )
        if algorithm is not None and (_is_smime(sender) or _is_smime(receiver)):
            # Its envelopes name what they were closed with; ours are of AES-256.
            found["security.encryption_syntax"] = "smime"
        elif algorithm is not None:
            found["security.encryption_algorithm"] = _uri(algorithm)
            # A CPA has no word for the key transport. XML Encryption of its time asks of every
            # handler that it reads both.
            found["security.allow_rsa_1_5"] = True
    found |= _certificates(direction, own, partner, sender, receiver)
    where = f"DocExchange {sender.exchange_id}" if sender is not None else "PartyInfo"
    return layer({key: value for key, value in found.items() if value != []}, Origin.CPA, where)


def _is_smime(channel: Channel | None) -> bool:
    if channel is None:
        return False
    named = (channel.sender.envelope_protocol, channel.receiver.envelope_protocol)
    return any(protocol is not None and protocol.upper() in _SMIME for protocol in named)


def _uri(algorithm: str) -> str:
    """An algorithm by its URI; many CPAs name it as people do (SHA-1, RSA-SHA256)."""
    name = algorithm.lower().replace("_", "-")
    return _ALGORITHMS.get(name) or _ALGORITHMS.get(name.replace("-", "")) or algorithm


def _signs(exchange: Exchange, action: CpaAction) -> bool:
    """A binding for signatures is needed, and the action must not say otherwise."""
    asked = action.business.get("isNonRepudiationRequired", "true")
    return exchange.has_signature and asked in ("true", "1")


def _encrypts(action: CpaAction) -> bool:
    level = action.business.get("isConfidential", "persistent")
    return level in ("persistent", "transient-and-persistent")


def _envelope(sender: Channel, receiver: Channel | None) -> str | None:
    """The encryption algorithm: the receiver says what it can open."""
    if receiver is not None and receiver.receiver.encryption_algorithm:
        return receiver.receiver.encryption_algorithm
    return sender.sender.encryption_algorithm


def _certificates(
    direction: Direction,
    own: CpaParty,
    partner: CpaParty,
    sender: Channel | None,
    receiver: Channel | None,
) -> dict[str, object]:
    received = direction is Direction.RECEIVE
    signing: list[bytes] = []
    if received and sender is not None and sender.sender.signing_certificate:
        signing += partner.certificates.get(sender.sender.signing_certificate, ())
    if not signing:
        # Signed acknowledgements may come under any of the partner's signing certificates.
        for channel in partner.channels.values():
            signing += partner.certificates.get(channel.sender.signing_certificate or "", ())
    theirs = sender if received else receiver
    secret: list[bytes] = []
    if theirs is not None and theirs.receiver.encryption_certificate:
        secret += partner.certificates.get(theirs.receiver.encryption_certificate, ())
    return {
        "security.partner_certificates": signing,
        "security.partner_encryption_certificates": secret,
        "security.trust_anchors": _anchors(own, receiver if received else sender),
    }


def _anchors(own: CpaParty, channel: Channel | None) -> list[bytes]:
    """Authorities we trust. Many CPAs list their own certificate there, which proves nothing."""
    if channel is None or channel.receiver.signing_security is None:
        return []
    ends = {
        name
        for each_channel in own.channels.values()
        for name in (
            each_channel.client_certificate,
            each_channel.sender.signing_certificate,
            each_channel.receiver.encryption_certificate,
        )
    }
    found: list[bytes] = []
    for name in own.anchors.get(channel.receiver.signing_security, ()):
        if name not in ends:
            found += own.certificates.get(name, ())
    return found


# --- what we do not have -----------------------------------------------------------------------


def not_offered(document: CpaDocument) -> tuple[tuple[str, str], ...]:
    """Things the CPA asks for and this handler does not do, each as (key, sentence)."""
    found: list[tuple[str, str]] = []
    for party in document.parties:
        found += [
            ("delivery.transports", f"the transport {endpoint.transport} is not offered")
            for endpoint in party.endpoints
            if endpoint.transport not in TRANSPORTS
        ]
        for channel in party.channels.values():
            found += _channel_not_offered(channel)
    if any("pkcs7" in encapsulation for encapsulation in document.encapsulations):
        found.append(
            (
                "security.encrypt",
                "payloads travel in S/MIME envelopes, which the application makes and opens",
            )
        )
    return tuple(dict.fromkeys(found))


def _channel_not_offered(channel: Channel) -> list[tuple[str, str]]:
    found = []
    for exchange in (channel.sender, channel.receiver):
        protocol = exchange.envelope_protocol
        if protocol is not None and protocol.upper() not in _XML_ENCRYPTION | _SMIME:
            found.append(
                ("security.encrypt", f"payload encryption by {protocol[:64]} is not offered")
            )
    if channel.access_authentication:
        found.append(
            ("partner.client_certificates", "passwords in HTTP (AccessAuthentication) are not sent")
        )
    if _guaranteed(channel.sender) and channel.characteristics.get("ackRequested") == "never":
        found.append(
            (
                "sequence.ordered",
                f"channel {channel.channel_id} guarantees order and is never acknowledged",
            )
        )
    return found
