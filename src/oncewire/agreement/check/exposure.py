"""What an outsider could do to messages under an agreement: forge, read, deny."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from oncewire.agreement.agreement import TRANSPORTS, ActionBinding, Agreement, Direction
from oncewire.agreement.certificates import facts
from oncewire.agreement.check import Danger, Severity, danger, error, hint
from oncewire.errors import AgreementProblem
from oncewire.message.form import AckRequest
from oncewire.message.instant import DAY, Duration, Instant, format_instant

EXPIRING_SOON: Duration = 30 * DAY
"""A certificate is exchanged by two companies' people: a month is not much."""


def recognition(agreement: Agreement) -> Iterator[Danger]:
    """Without a signature and a client certificate anyone can send as the partner."""
    signed = any(
        binding.security.require_signature
        for binding in agreement.bindings()
        if binding.direction is Direction.RECEIVE
    )
    if not signed and not agreement.partner.client_certificates:
        yield danger(
            "partner.client_certificates",
            "nothing proves that a message comes from the partner",
            "require signatures, or name the partner's TLS client certificate",
        )
    if not signed and agreement.partner.client_certificates:
        # Where the partner is known by its certificate alone, what comes without one is refused.
        via = agreement.via
        ends = via.endpoints if via is not None and via.endpoints else agreement.partner.endpoints
        if any(
            endpoint.transport == "http" and not _has_tls(endpoint.address) for endpoint in ends
        ):
            yield danger(
                "partner.http",
                "the partner is known by a TLS certificate, but replies come over plain http",
                "give an https address, or require signatures: such replies are ignored",
            )
        if any(endpoint.transport != "http" for endpoint in ends):
            yield danger(
                "partner.client_certificates",
                "the partner is known by a TLS certificate, which only http shows",
                "require signatures: what comes another way is refused",
            )


def unprotected_ways(agreement: Agreement, binding: ActionBinding) -> Iterator[Danger]:
    """What the business wants protected on the way (CPPA 2.0 BusinessTransactionCharacteristics,
    `transient`) against connections without TLS: that is what keeps others from reading and
    changing, and what shows who is there."""
    business, via = binding.business, agreement.via
    ends = binding.endpoints
    if binding.direction is Direction.SEND and via is not None and via.endpoints:
        ends = via.endpoints
    plain = [end for end in ends if end.transport == "http" and not _has_tls(end.address)]
    for key, wanted in (
        ("business.confidential", business.confidential),
        ("business.authenticated", business.authenticated),
        ("business.tamper_proof", business.tamper_proof),
    ):
        if wanted.transient and plain:
            yield danger(
                key,
                f"the business asks for it on the way, but {plain[0].address} has no TLS",
                "use https",
            )


def _has_tls(address: str) -> bool:
    return address.lower().startswith("https:")


def signatures(binding: ActionBinding) -> Iterator[Danger]:
    """What is asked to be provable or secret against what is signed and encrypted."""
    security, business, terms = binding.security, binding.business, binding.terms
    signed = security.sign or security.require_signature
    signed_acks = AckRequest.SIGNED in (terms.ack_requested, terms.hop_ack_requested)
    if business.non_repudiation and not signed:
        yield danger(
            "security.sign",
            "the business asks for non-repudiation, but messages are not signed",
            "sign them, and require signatures of the partner",
        )
    if business.non_repudiation_of_receipt and not signed_acks:
        yield danger(
            "ack.signature",
            "the business asks for non-repudiation of receipt, but acknowledgements are unsigned",
            "set ack.signature to always",
        )
    if business.confidential.persistent and not security.encrypt:
        yield danger(
            "security.encrypt",
            "the business asks for confidential documents, but payloads are not encrypted",
            "set security.encrypt to true",
        )
    if business.tamper_proof.persistent and not signed:
        yield danger(
            "security.sign",
            "the business asks for tamper-proof documents, but messages are not signed",
            "sign them, and require signatures of the partner",
        )
    if business.authenticated.persistent and not signed:
        yield danger(
            "security.require_signature",
            "the business asks that a document proves its sender, but messages are not signed",
            "require signatures of the partner, and sign ours",
        )
    if signed or signed_acks:
        yield from _sha1(binding)
    security = binding.security
    received = binding.direction is Direction.RECEIVE
    if received and security.require_signature and not security.partner_certificates:
        # An authority vouches for many: only a certificate of the partner's says which of them
        # it is, and lets the next one of that subject be believed.
        yield error(
            "security.partner_certificates",
            "signatures are required, but no certificate of the partner is known",
            "add the partner's certificate"
            + ("; an authority alone does not name the partner" if security.trust_anchors else ""),
        )
    if not received and security.encrypt and not security.partner_encryption_certificates:
        yield error(
            "security.partner_encryption_certificates",
            "payloads are encrypted, but not for any certificate of the partner",
            "add the partner's encryption certificate",
        )


def _sha1(binding: ActionBinding) -> Iterator[Danger]:
    security = binding.security
    names = (security.signature_algorithm, security.digest_algorithm)
    if not any("sha1" in name.lower() for name in names):
        return
    if security.allow_sha1:
        yield danger(
            "security.signature_algorithm",
            "signatures are made with SHA-1, which can be forged today",
            "agree on rsa-sha256",
        )
    else:
        yield error(
            "security.allow_sha1",
            "SHA-1 is named as algorithm, but not allowed",
            "agree on rsa-sha256, or set security.allow_sha1 to true",
        )


def unknown_algorithms(binding: ActionBinding, known: Collection[str]) -> Iterator[Danger]:
    """Algorithms that the agreement names and this handler does not have."""
    security, terms = binding.security, binding.terms
    signs = (
        security.sign
        or security.require_signature
        or AckRequest.SIGNED in (terms.ack_requested, terms.hop_ack_requested)
    )
    for name, used in (
        ("signature_algorithm", signs),
        ("digest_algorithm", signs),
        ("canonicalization", signs),
        ("encryption_algorithm", security.encrypt),
        ("key_transport", security.encrypt),
    ):
        uri = getattr(security, name)
        if used and uri not in known:
            yield error(
                f"security.{name}", f"the algorithm {uri} is not offered", "agree on another one"
            )


def certificates(binding: ActionBinding, now: Instant | None) -> Iterator[Danger]:
    """Certificates that cannot be read, have expired or soon will, or are not valid yet."""
    security = binding.security
    for key, ders in (
        ("security.partner_certificates", security.partner_certificates),
        ("security.partner_encryption_certificates", security.partner_encryption_certificates),
        ("security.trust_anchors", security.trust_anchors),
    ):
        yield from _of_certificates(key, ders, now)


def known_certificates(agreement: Agreement, now: Instant | None) -> Iterator[Danger]:
    """Problems of the certificates that the two parties are known by."""
    for name, side in (("own", agreement.own), ("partner", agreement.partner)):
        yield from _of_certificates(f"{name}.certificates", side.certificates, now)
        key, signing = f"{name}.signing_certificates", side.signing_certificates
        yield from _of_certificates(key, signing, now)


def _of_certificates(key: str, ders: Iterable[bytes], now: Instant | None) -> Iterator[Danger]:
    known = [facts(der) for der in ders]
    if None in known:
        yield error(key, "a certificate cannot be read", "ask the partner for it again")
    good = [cert for cert in known if cert is not None]
    if now is None:
        return
    # During a roll-over two are valid at once: the older one may run out.
    last = max((cert.not_after for cert in good), default=None)
    for cert in good:
        if cert.not_after <= now:
            severity = Severity.ERROR if cert.not_after == last else Severity.HINT
            yield Danger(
                severity,
                key,
                f"the certificate {cert.subject} expired at {format_instant(cert.not_after)}",
                "install the partner's new certificate",
            )
        elif cert.not_after <= now + EXPIRING_SOON and cert.not_after == last:
            yield danger(
                key,
                f"the certificate {cert.subject} expires at {format_instant(cert.not_after)}",
                "ask the partner for its new certificate now",
            )
        if cert.not_before > now:
            yield hint(
                key,
                f"the certificate {cert.subject} is valid from "
                f"{format_instant(cert.not_before)} on",
                "keep the old one until then",
            )


# Abilities: what this handler can do, and what an agreement asks for beyond that.
#
# An agreement may name more than is built: a CPA comes from another vendor's product, and a
# profile describes a community as it is. Such an agreement is read, shown and checked like any
# other. Where nothing of it could be sent, `serve` and `send` refuse it; where only a part is
# missing, the check names that part.


@dataclass(frozen=True, slots=True)
class Abilities:
    """What is there: transports and encodings by name, algorithms by URI."""

    transports: Collection[str]
    algorithms: Collection[str]
    encodings: Collection[str] = ("gzip", "deflate")


def beyond_abilities(binding: ActionBinding, abilities: Abilities) -> Iterator[Danger]:
    """What one direction or action asks for and does not get."""
    yield from unknown_algorithms(binding, abilities.algorithms)
    yield from _transports(binding, abilities)
    terms = binding.terms
    encoding = terms.compress_encoding
    if encoding is not None and encoding not in abilities.encodings:
        yield error(
            "payload.compress",
            f"{encoding} is not known here, so a document of more than MaxSize is refused",
            f"agree on one of {', '.join(abilities.encodings)}",
        )
    if encoding is not None and terms.max_size is None:
        yield hint(
            "payload.compress",
            "nothing is compressed: only what is larger than payload.max_size is",
            "agree on payload.max_size",
        )
    if terms.max_size is not None and (not terms.reliable or terms.synchronous):
        why = "a response on the connection" if terms.synchronous else "no acknowledgements"
        yield hint(
            "payload.max_size",
            f"a document of more than {terms.max_size:,} bytes is refused: with {why} nothing is "
            "sent in parts",
            "agree on a size that holds the largest document",
        )
    business = binding.business
    for key, wanted, what in (
        ("authorization_required", business.authorization_required or None, "who may send what"),
        (
            "intelligible_check",
            business.intelligible_check or None,
            "whether a document can be understood",
        ),
        (
            "time_to_acknowledge_receipt",
            business.time_to_acknowledge_receipt,
            "how soon a business signal tells of a receipt",
        ),
        (
            "time_to_acknowledge_acceptance",
            business.time_to_acknowledge_acceptance,
            "how soon a business signal tells of an acceptance",
        ),
        ("time_to_perform", business.time_to_perform, "how long a business process takes"),
        ("retry_count", business.retry_count, "how often a business process is started again"),
    ):
        if wanted is not None:
            yield hint(
                f"business.{key}",
                f"no handler watches {what}: that is left to the application",
                "see that the application keeps to it",
            )


def _transports(binding: ActionBinding, abilities: Abilities) -> Iterator[Danger]:
    wanted = binding.terms.transports
    missing = [name for name in wanted if name in TRANSPORTS and name not in abilities.transports]
    if not missing:
        return
    alone = len(missing) == len(wanted)
    names, there = ", ".join(missing), ", ".join(abilities.transports)
    yield Danger(
        Severity.ERROR if alone else Severity.DANGER,
        "delivery.transports",
        f"{names} cannot be used yet" + (", so nothing can be sent" if alone else ""),
        f"agree on {there}, or set {names} up in oncewire.toml"
        + ("" if alone else f"; until then all goes over {there}"),
    )


def broken_addresses(agreement: Agreement) -> Iterator[Danger]:
    """Addresses that are no URL: no connection can be made of them."""
    sides = {"own": agreement.own.endpoints, "partner": agreement.partner.endpoints}
    if agreement.via is not None:
        sides["via"] = agreement.via.endpoints
    for side, endpoints in sides.items():
        for endpoint in endpoints:
            try:
                # The port is looked at when it is asked for.
                _ = urlsplit(endpoint.address).port
            except ValueError as wrong:
                yield error(
                    f"{side}.{endpoint.transport}",
                    f"{endpoint.address[:128]!r} is no URL: {wrong}",
                    "write it as https://host:port/path",
                )


def refuse_unable(agreement: Agreement, abilities: Abilities) -> None:
    """Refuse an agreement under which nothing could be sent or received."""
    for broken in broken_addresses(agreement):
        raise AgreementProblem(
            f"{broken.key}: {broken.sentence}", key=broken.key, remedy=broken.fix
        )
    for binding in agreement.bindings():
        if set(binding.terms.transports) & set(abilities.transports):
            return
    wanted = dict.fromkeys(
        transport for binding in agreement.bindings() for transport in binding.terms.transports
    )
    raise AgreementProblem(
        f"agreement {agreement.cpa_id} goes over {', '.join(wanted)}, which cannot be used yet",
        key="delivery.transports",
        remedy=f"agree on {', '.join(abilities.transports)}, or set {', '.join(wanted)} up in "
        "oncewire.toml",
    )
