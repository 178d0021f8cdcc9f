"""Kinds of values that only agreements have, beside those of every file (`message/kinds.py`)."""

from __future__ import annotations

import re

from oncewire.agreement.agreement import Requested
from oncewire.agreement.certificates import fingerprint, read_certificates, to_pem
from oncewire.message.form import Extension
from oncewire.message.header import SyncReplyMode
from oncewire.message.instant import MINUTE, SECOND, Duration, format_duration
from oncewire.message.kinds import choice, kind, listed, read_duration, read_whole, wrong
from oncewire.protocol.sequence import NAMED_RANGES, SequenceRange

_ACCURACY = re.compile(r"(\d{1,4}):([0-5]\d)\Z", re.ASCII)


def _read_accuracy(raw: object) -> Duration:
    """mshTimeAccuracy is written mm:ss (CPA-15); a duration is taken as well."""
    if isinstance(raw, str):
        match = _ACCURACY.match(raw.strip())
        if match is not None:
            return int(match.group(1)) * MINUTE + int(match.group(2)) * SECOND
    return read_duration(raw)


def _read_range(raw: object) -> SequenceRange:
    names = ", ".join(sorted(NAMED_RANGES))
    looks = f"a sequence range: one of {names}, or [first, last]"
    if isinstance(raw, str) and raw in NAMED_RANGES:
        return NAMED_RANGES[raw]
    if isinstance(raw, list | tuple) and len(raw) == 2:
        first, last = (read_whole(item, 0, 4_294_967_295) for item in raw)
        return SequenceRange(first, last)
    raise wrong(raw, looks)


def _write_range(numbers: SequenceRange) -> object:
    for name, known in NAMED_RANGES.items():
        if known == numbers:
            return name
    return [numbers.first, numbers.last]


def _read_extensions(raw: object) -> frozenset[Extension]:
    return frozenset(listed(raw, EXTENSION.read, "a list of extensions"))


def _read_ders(raw: object) -> tuple[bytes, ...]:
    found = listed(raw, read_certificates, "a list of certificates")
    return tuple(dict.fromkeys(der for several in found for der in several))


def _show_ders(ders: tuple[bytes, ...]) -> str:
    return ", ".join(f"sha256:{fingerprint(der)[:16]}" for der in ders) or "none"


ACCURACY = kind("mm:ss, or a duration such as PT30S", _read_accuracy, format_duration)
RANGE = kind("the name of a sequence range, or [first, last]", _read_range, _write_range)
EXTENSION = choice(Extension)
EXTENSIONS = kind(
    "a list of " + ", ".join(extension.value for extension in Extension),
    _read_extensions,
    lambda chosen: sorted(item.value for item in chosen),
)
CERTIFICATES = kind(
    "a certificate file or PEM text, or a list of them",
    _read_ders,
    lambda ders: [to_pem(der) for der in ders],
    _show_ders,
)
REVOCATION_LISTS = kind(
    "a revocation list file or PEM text, or a list of them",
    _read_ders,
    lambda ders: [to_pem(der, "X509 CRL") for der in ders],
    _show_ders,
)
REQUESTED = choice(Requested, {True: Requested.ALWAYS, False: Requested.NEVER})
SYNC_MODE = choice(
    SyncReplyMode,
    # The sync paper's three words, and v0.91's False (C31).
    {
        "AcksOnly": SyncReplyMode.MSH_SIGNALS_ONLY,
        "ResponseOnly": SyncReplyMode.RESPONSE_ONLY,
        "AcksAndResponse": SyncReplyMode.SIGNALS_AND_RESPONSE,
        False: SyncReplyMode.NONE,
    },
)
