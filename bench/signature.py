"""How our signature compares with xmlsec's own way, on one message and in one run.

    python -m bench.signature [seconds per measurement]

Ours is what `oncewire bench signature` measures, beside the same limit. xmlsec starts from the same
bytes and does the whole work too: parse, transforms, digests, signature value. Ours also checks the
certificate, the places of all blocks and hands back the verified tree.
"""

import sys
import tempfile
from pathlib import Path

from oncewire.lab.bench.codec import CONTENT, KINDS, PART, by_turns, signing_works_of
from oncewire.wire.security import algorithms
from oncewire.wire.security.references import parse
from tests.wire.security import documents, reference_engine


def measure(name: str, seconds: float) -> dict[str, float]:
    """Microseconds of ours, of xmlsec's and of the limit, for each operation."""
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as folder:
        works = dict(signing_works_of(name, Path(folder)))
        key, certificate = (
            (Path(folder) / f"{name}.{kind}").read_bytes() for kind in ("key", "crt")
        )
    signed, parts = works["sign"](), {f"cid:{PART}": CONTENT}
    assert isinstance(signed, bytes)
    template = documents.template(
        documents.XPATH,
        documents.INCLUSIVE,
        signature=algorithms.SIGNATURE_URIS[name],
        parts=tuple(parts),
    )
    head, _, rest = signed.partition(b"<ds:Signature")
    to_fill = head + template.encode() + rest.partition(b"</ds:Signature>")[2]
    if not reference_engine.verifies(signed, certificate, parts):
        raise SystemExit("xmlsec does not verify what we signed: the figures would mean nothing")
    works["verify, xmlsec"] = lambda: reference_engine.verifies(signed, certificate, parts)
    works["sign, xmlsec"] = lambda: reference_engine.sign(to_fill, key, parts)
    works["parse"] = lambda: parse(signed)
    (found,) = by_turns(works, seconds * len(works))
    return found


def main() -> None:
    """Print one line per operation."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    print(f"{'operation':<22}{'ours us':>10}{'xmlsec us':>12}{'xmlsec/ours':>13}{'limit us':>10}")
    for name in KINDS:
        found = measure(name, seconds)
        for what in ("verify", "sign"):
            ours, theirs, limit = (found[f"{what}{of}"] for of in ("", ", xmlsec", ", limit"))
            words = f"{what} {name}"
            print(f"{words:<22}{ours:>10.0f}{theirs:>12.0f}{theirs / ours:>13.1f}{limit:>10.0f}")
        print(f"our parse of the signed envelope: {found['parse']:.0f} us")


if __name__ == "__main__":
    main()
