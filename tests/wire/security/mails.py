"""The corpus' signed mails, split by the standard library: these tests are not about MIME."""

import email
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from lxml import etree

from oncewire.wire.security import certificates
from oncewire.wire.security.references import PartDigests
from tests.wire.security import reference_engine


@dataclass(frozen=True)
class SignedMail:
    """Envelope, parts with their digests, and the certificate the sender shows."""

    envelope: bytes
    parts: list[PartDigests]
    certificate: x509.Certificate


def read_mail(corpus: Path, name: str) -> SignedMail:
    mail = email.message_from_bytes((corpus / "nav-smtp-transport" / name).read_bytes())
    leaves = [part for part in mail.walk() if not part.is_multipart()]
    contents = [part.get_payload(decode=True) for part in leaves]
    parts = [
        PartDigests.of(part["Content-Id"], content, "sha256")
        for part, content in zip(leaves[1:], contents[1:], strict=True)
    ]
    signature = reference_engine.signature_of(etree.fromstring(contents[0]))
    (shown,) = map(certificates.from_der, certificates.key_info_ders(signature))
    return SignedMail(contents[0], parts, shown)
