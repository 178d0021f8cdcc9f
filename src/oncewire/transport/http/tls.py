"""TLS for HTTP: who we say we are, and whom we believe.

Partners in this field use certificates of a common authority, of their own small authority, or
certificates they signed themselves and exchanged by mail. All three are one list of trusted
certificates here: an authority vouches for what it issued, a partner's own certificate for
itself. A pinned certificate is stricter: the peer must show exactly that one.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from oncewire.errors import TransportProblem


class ClientCertificates(StrEnum):
    """What a server asks of clients."""

    IGNORED = "ignored"
    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Identity:
    """Our certificate (with its chain) and its private key, as PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class ServerTls:
    """How our endpoint speaks TLS."""

    identity: Identity
    client_certificates: ClientCertificates = ClientCertificates.IGNORED
    # PEM text: authorities, or the partners' own certificates.
    trusted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PeerTls:
    """How we speak TLS to one address."""

    # Our certificate, for partners who ask for one.
    identity: Identity | None = None
    # PEM text of authorities or of the partner's own certificate; empty: the system's authorities.
    trusted: tuple[str, ...] = ()
    # PEM text: the peer must show one of exactly these (two may be valid during a roll-over).
    pinned: tuple[str, ...] = ()


def server_context(tls: ServerTls) -> ssl.SSLContext:
    """The context of the endpoint; TransportProblem says which file is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    _present(context, tls.identity)
    if tls.client_certificates is ClientCertificates.IGNORED:
        return context
    if not tls.trusted:
        raise TransportProblem(
            "client certificates are asked for, but no certificate is trusted",
            remedy="name the partners' certificates, or the authority that issued them",
        )
    _believe(context, tls.trusted)
    wanted = tls.client_certificates is ClientCertificates.REQUIRED
    context.verify_mode = ssl.CERT_REQUIRED if wanted else ssl.CERT_OPTIONAL
    return context


def client_context(tls: PeerTls) -> ssl.SSLContext:
    """The context for one address; TransportProblem says which file is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    if tls.identity is not None:
        _present(context, tls.identity)
    if tls.pinned:
        # The very certificate is compared before the first byte, which says more than its name.
        context.check_hostname = False
    if tls.trusted or tls.pinned:
        _believe(context, tls.trusted + tls.pinned)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def pins(tls: PeerTls) -> frozenset[bytes]:
    """The pinned certificates as DER, as a connection shows them."""
    return frozenset(_der(text) for text in tls.pinned)


def _der(text: str) -> bytes:
    """The first certificate of a PEM text; what follows it is the chain."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    inside = text.partition(begin)[2].partition(end)[0]
    try:
        if inside:
            return ssl.PEM_cert_to_DER_cert(f"{begin}{inside}{end}\n")
    except ValueError as error:
        raise TransportProblem(f"a pinned certificate cannot be read: {error}") from error
    raise TransportProblem(
        "a pinned certificate is not in PEM form", remedy=f"it should begin with {begin}"
    )


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Renegotiation lets a peer make us work for free.
    context.options |= ssl.OP_NO_RENEGOTIATION


def _present(context: ssl.SSLContext, identity: Identity) -> None:
    try:
        # An empty password keeps OpenSSL from asking for one on the terminal.
        context.load_cert_chain(identity.certificate, identity.key, password="")
    except (OSError, ssl.SSLError, ValueError) as error:
        raise TransportProblem(
            f"certificate {identity.certificate} with key {identity.key} cannot be used: {error}",
            remedy="both must be readable PEM files that belong together, the key not encrypted",
        ) from error


def _believe(context: ssl.SSLContext, trusted: tuple[str, ...]) -> None:
    # A partner's own certificate is an anchor although it is no authority.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for text in trusted:
        try:
            context.load_verify_locations(cadata=text)
        except (ssl.SSLError, ValueError) as error:
            raise TransportProblem(
                f"a trusted certificate cannot be read: {error}",
                remedy="give certificates as PEM text",
            ) from error
