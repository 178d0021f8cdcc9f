"""How our signature compares with xmlsec's own way, on one message and in one run.

    python -m bench.signature [seconds per measurement]

The message is a request with hop blocks and one part, as the standard's transform wants it. Both
sides start from bytes and do the whole work: parse, transforms, digests, signature value. Ours also
checks the certificate, the places of all blocks and hands back the verified tree. `oncewire bench
signature` has the same against the bare key alone, and needs no xmlsec.
"""

import sys

from oncewire.lab.bench.child import by_turns
from oncewire.wire.security import algorithms, references, signature, signing
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signing import SigningChoice
from tests.wire.security import documents, keys, reference_engine
from tests.wire.security.documents import PART_ID

CONTENT = b"<order>" + b"<line>7 boxes</line>" * 100 + b"</order>"
# Brings the envelope to the 2.5 KB that real ones have.
_MORE = "<x:Trace xmlns:x='urn:ex:trace'>" + "<x:Hop><x:At>hub</x:At></x:Hop>" * 24 + "</x:Trace>"
KINDS = {"rsa-sha256": "rsa", "ecdsa-sha256": "p256"}


def measure(name: str, seconds: float) -> dict[str, list[float]]:
    """Microseconds of ours, of xmlsec's and of the bare key, for each operation."""
    who = keys.alpha(KINDS[name])
    trust = Trust((who.certificate,))
    choice = SigningChoice(name)
    parts = [PartDigests.of(PART_ID, CONTENT, "sha256")]
    unsigned = documents.envelope(documents.HOP_BLOCKS + _MORE)
    template = documents.template(
        documents.XPATH,
        documents.INCLUSIVE,
        signature=algorithms.SIGNATURE_URIS[name],
        parts=(f"cid:{PART_ID}",),
    )
    to_fill = documents.envelope(documents.HOP_BLOCKS + _MORE + template)
    by_uri = {f"cid:{PART_ID}": CONTENT}
    signed = signing.sign(unsigned, parts, who.key, who.certificate, choice).envelope
    if not reference_engine.verifies(signed, who.certificate_pem, by_uri):
        raise SystemExit("xmlsec does not verify what we signed: the figures would mean nothing")

    def ours_verify() -> None:
        digests = [PartDigests.of(PART_ID, CONTENT, "sha256")]
        signature.verify_signature(signed, digests, trust, keys.NOW)

    def ours_sign() -> None:
        digests = [PartDigests.of(PART_ID, CONTENT, "sha256")]
        signing.sign(unsigned, digests, who.key, who.certificate, choice)

    octets = b"x" * 1000
    value = algorithms.sign_octets(who.key, name, octets)
    # The bare key operation comes along: nobody can be faster than that.
    (verify,) = by_turns(
        {
            "ours": ours_verify,
            "xmlsec": lambda: reference_engine.verifies(signed, who.certificate_pem, by_uri),
            "bare": lambda: algorithms.verify_octets(who.certificate, name, octets, value, 0),
        },
        seconds * 3,
    )
    (sign,) = by_turns(
        {
            "ours": ours_sign,
            "xmlsec": lambda: reference_engine.sign(to_fill, who.key_pem, by_uri),
            "bare": lambda: algorithms.sign_octets(who.key, name, octets),
        },
        seconds * 3,
    )
    return {f"verify {name}": list(verify.values()), f"sign {name}": list(sign.values())}


def main() -> None:
    """Print one line per operation."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    envelope = documents.envelope(documents.HOP_BLOCKS + _MORE)
    print(f"envelope of {len(envelope)} bytes, part of {len(CONTENT)} bytes")
    print(
        f"{'operation':<22}{'ours us':>10}{'xmlsec us':>12}{'xmlsec/ours':>13}{'bare key us':>13}"
    )
    for name in KINDS:
        for what, (ours, theirs, bare) in measure(name, seconds).items():
            print(f"{what:<22}{ours:>10.0f}{theirs:>12.0f}{theirs / ours:>13.1f}{bare:>13.0f}")
    (parse,) = by_turns({"parse": lambda: references.parse(envelope)}, seconds)
    print(f"bare lxml parse of the unsigned envelope: {parse['parse']:.0f} us")


if __name__ == "__main__":
    main()
