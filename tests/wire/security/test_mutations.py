"""Whatever arrives, only the package's own errors come out, each with its ebXML code."""

import random
import re
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from oncewire.errors import SecurityFailure
from oncewire.wire.security import signature
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.encryption import (
    DATA_URIS,
    KEY_URIS,
    EncryptionChoice,
    EncryptionPolicy,
    decrypt_part,
    encrypt_part,
)
from tests.wire.security import documents, forger, keys

SEED = 77
_TOKENS = re.compile(rb'<[^>]*>|"[^"]*"|[^<"]+')
_INSERTS = [
    b"<!-- -->", b"<?pi?>", b"<a/>", b"</a>", b"&amp;", b"&x;", b"\x00", b"\xff\xfe", b"<![CDATA[",
    b'xmlns=""', b"]]>", b"AAAA", b"=", b" ", b"\r\n", "é".encode(), b"cid:", b"#", b"-1",
]  # fmt: skip


def _mutate(octets: bytes, rng: random.Random) -> bytes:
    """A few edits on the tokens of the document: drop, repeat, swap, insert, overwrite."""
    tokens = _TOKENS.findall(octets)
    for _ in range(rng.randint(1, 4)):
        if not tokens:
            break
        place, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        edit = rng.randrange(6)
        if edit == 0:
            del tokens[place]
        elif edit == 1:
            tokens.insert(other, tokens[place])
        elif edit == 2:
            tokens[place], tokens[other] = tokens[other], tokens[place]
        elif edit == 3:
            tokens.insert(place, rng.choice(_INSERTS))
        elif edit == 4:
            token = bytearray(tokens[place])
            token[rng.randrange(len(token))] = rng.randrange(256)
            tokens[place] = bytes(token)
        else:
            del tokens[place : place + rng.randint(1, 9)]
    return b"".join(tokens)


def _only_our_errors(
    samples: list[bytes], work: Callable[[bytes], object], count: int, seed: int
) -> int:
    """Run the work on mutants; anything but SecurityFailure stops the test. Counts refusals."""
    rng = random.Random(seed)
    refused = 0
    for number in range(count):
        mutant = _mutate(rng.choice(samples), rng)
        try:
            work(mutant)
        except SecurityFailure as failure:
            said = failure
        except Exception:
            print(f"seed {seed}, mutant {number}: {mutant!r}")
            raise
        else:
            continue
        refused += 1
        # A sentence, not a copy of what a stranger sent.
        assert len(str(said)) < 1_000
    return refused


def _believe(envelope: bytes) -> None:
    """Verify; what is believed must be what the partner wrote."""
    who = keys.alpha().certificate
    anchored = Trust(anchors=(who,), subjects=frozenset({"CN=alpha"}))
    parts = [forger.good_part()]
    for trust in (Trust((who,)), anchored):
        try:
            verified = signature.verify_signature(envelope, parts, trust, keys.NOW, keys.WITH_SHA1)
        except SecurityFailure:
            continue
        assert b"m-1001@alpha.example" in verified.octets
    signature.inspect(envelope, parts)


@pytest.mark.long
@pytest.mark.parametrize("count", [2_000, pytest.param(60_000, marks=pytest.mark.soak)])
def test_mutated_signed_messages(count: int) -> None:
    print(f"seed {SEED}")
    samples = [*forger.good_messages().values(), documents.draft()]
    assert _only_our_errors(samples, _believe, count, SEED) > count // 2


@pytest.mark.parametrize("count", [1_000, pytest.param(20_000, marks=pytest.mark.soak)])
def test_mutated_encrypted_parts(count: int) -> None:
    print(f"seed {SEED}")
    key = keys.alpha("rsa").key
    assert isinstance(key, rsa.RSAPrivateKey)
    everything = EncryptionPolicy(frozenset(DATA_URIS), frozenset(KEY_URIS))
    samples = [
        encrypt_part(
            documents.PART, keys.alpha("rsa").certificate, "a/b", EncryptionChoice(data, wrap)
        )
        for data in ("aes256-gcm", "aes128-cbc")
        for wrap in KEY_URIS
    ]
    refused = _only_our_errors(
        samples, lambda document: decrypt_part(document, key, everything), count, SEED
    )
    assert refused > count // 2
