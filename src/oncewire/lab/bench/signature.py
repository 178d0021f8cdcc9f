"""Signature: a signed envelope made and verified, against the bare operation of the key.

Both start from bytes and do the whole work: parse, the standard's transforms, digests, signature
value; verifying also checks the certificate and the places of all blocks. The limit is a bare lxml
parse and the key's operation, which nothing can do without. `python -m bench.signature` compares
with xmlsec, where that is installed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from lxml import etree

from oncewire.entry.party.keys import KeyKind, make_keys
from oncewire.errors import InvalidValue
from oncewire.handler.world import RealWorld
from oncewire.lab.bench.child import Works, by_turns
from oncewire.lab.bench.codec import order
from oncewire.lab.bench.figures import Figure, Outcome, Plan
from oncewire.message.form import Dialect, Form
from oncewire.wire import codec
from oncewire.wire.security import algorithms, signature
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signature import SigningChoice

KINDS = {"ecdsa-sha256": KeyKind.EC, "rsa-sha256": KeyKind.RSA}
"""The first is what `oncewire init` makes."""

PART = "order-1@alpha.example"
CONTENT = b"<line>7 boxes</line>" * 102


def works_of(name: str, folder: Path) -> Works:
    """Signing and verifying with one kind of key, and what neither can do without."""
    now = RealWorld().now()
    files = make_keys(folder, name, now=now, kind=KINDS[name])
    key = load_pem_private_key(files.key.read_bytes(), None)
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise InvalidValue("a key of the benchmark is neither RSA nor EC")
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    unsigned = codec.write_envelope(order(Dialect.EBMS2), Form(Dialect.EBMS2))
    choice, trust = SigningChoice(name), Trust((certificate,))
    bare = etree.XMLParser(resolve_entities=False, no_network=True)

    def sign() -> bytes:
        digests = [PartDigests.of(PART, CONTENT, "sha256")]
        return signature.sign(unsigned, digests, key, certificate, choice).envelope

    signed, octets = sign(), b"x" * 1000
    value = algorithms.sign_octets(key, name, octets)

    def verify() -> None:
        digests = [PartDigests.of(PART, CONTENT, "sha256")]
        signature.verify_signature(signed, digests, trust, now)

    def bare_sign() -> None:
        etree.fromstring(unsigned, bare)
        algorithms.sign_octets(key, name, octets)

    def bare_verify() -> None:
        etree.fromstring(signed, bare)
        algorithms.verify_octets(certificate, name, octets, value, 0)

    return {
        "verify": verify,
        "verify, limit": bare_verify,
        "sign": sign,
        "sign, limit": bare_sign,
    }


def run(plan: Plan) -> Outcome:
    """Both kinds of keys."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as folder:
        for name in KINDS:
            rounds = by_turns(works_of(name, Path(folder)), plan.seconds * 2, plan.repeats)
            for what in ("verify", "sign"):
                times = [found[what] for found in rounds]
                limits = [found[f"{what}, limit"] for found in rounds]
                figures.append(Figure.of_times(f"{what} {name}", times, limits))
    return Outcome(
        "signature", "messages", "a bare lxml parse and the key's operation", tuple(figures)
    )
