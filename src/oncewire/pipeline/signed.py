"""A version's file, signed: who vouches for the heads and directories that it names.

The signature stands beside the file, over its very bytes. With it a version can be kept and handed
on: whoever has the signer's certificate knows that nobody has changed it since.
"""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.errors import JournalProblem
from oncewire.pipeline.files import write_forced
from oncewire.pipeline.lake import SIGNATURE, Lake
from oncewire.pipeline.storage import VERSIONS
from oncewire.pipeline.version import Version

if TYPE_CHECKING:
    from cryptography import x509

    from oncewire.wire.security.algorithms import SigningKey

_PREFIX = b"oncewire version 1\n"
"""Says what is signed, so that no signature of another kind of bytes can stand for it."""


def sign_version(lake: Lake, version: Version, key: SigningKey) -> Path:
    """Sign a version that is published; returns where the signature is."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    from oncewire.wire.security.algorithms import sign_octets

    algorithm = "rsa-sha256" if isinstance(key, rsa.RSAPrivateKey) else "ecdsa-sha256"
    file = _file(lake, version)
    value = sign_octets(key, algorithm, _PREFIX + file.read_bytes())
    said = {"algorithm": algorithm, "signature": base64.b64encode(value).decode()}
    beside = file.with_suffix(SIGNATURE)
    write_forced(beside, json.dumps(said) + "\n")
    lake.storage.keep(f"{VERSIONS}/{beside.name}")
    return beside


def is_signed_by(lake: Lake, version: Version, certificate: x509.Certificate) -> bool:
    """Whether the holder of a certificate signed the version as it is; JournalProblem if nobody
    did."""
    from oncewire.wire.security.algorithms import SAFE, verify_octets

    file = _file(lake, version)
    beside = file.with_suffix(SIGNATURE)
    lake.storage.bring(f"{VERSIONS}/{beside.name}")
    try:
        said = json.loads(beside.read_text(encoding="utf-8"))
        algorithm, value = str(said["algorithm"]), base64.b64decode(said["signature"])
    except FileNotFoundError:
        raise JournalProblem(
            f"version {version.number} of {lake.name} is not signed",
            remedy="sign it with `oncewire pipeline sign --lake LAKE --config PARTY`",
        ) from None
    except (OSError, ValueError, KeyError, TypeError, binascii.Error) as error:
        raise JournalProblem(
            f"{beside} is no signature: {error}", remedy="sign the version again"
        ) from None
    SAFE.check_signature(algorithm)
    octets = _PREFIX + file.read_bytes()
    return verify_octets(certificate, algorithm, octets, value, SAFE.min_rsa_bits)


def _file(lake: Lake, version: Version) -> Path:
    return lake.root / VERSIONS / f"{version.number:08d}.json"
