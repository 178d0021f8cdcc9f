"""Moulds: the bounded table of what was learned, and which of it an envelope is tried with.

A mould is learned of what a partner sent and the handler believed, and each partner has a few
places of his own: no stranger takes one, and no partner another's. Poisoning it is impossible by
construction, for a mould says what the full reader says or nothing (`mould`).
"""

from __future__ import annotations

from oncewire.message import Payload
from oncewire.message.form import Validation
from oncewire.wire.differential.mould import Mould, learned
from oncewire.wire.header import HeaderReading
from oncewire.wire.limits import Limits
from oncewire.wire.received import Received

MOULDS_MAX = 4096
"""Of all partners together; each has up to `ENVELOPE_MAX` bytes."""

OWNER_MAX = 16
"""Of one partner: his requests, his answers, and the acknowledgements of both, a few times over."""

# From the first party to the agreement's name: whose message it is, in every dialect.
_PARTIES, _AGREEMENT = b"PartyI", b"PAId"
_MARK_MAX = 2048

_Mark = tuple[bytes, str | None, Validation]


class Moulds:
    """What was learned so far. Reading changes nothing but counts, so any thread may read; learn
    in one thread alone."""

    def __init__(self, most: int = MOULDS_MAX, of_one: int = OWNER_MAX) -> None:
        self._most = most
        self._of_one = of_one
        # Tuples, which are exchanged whole: whoever reads meanwhile sees the one or the other.
        self._by_mark: dict[_Mark, tuple[Mould, ...]] = {}
        self._owned: dict[str, dict[Mould, _Mark]] = {}
        # Of each partner: how many messages of his could have been learned from.
        self._offered: dict[str, int] = {}
        # How many headers were read by a mould, and how many had to be parsed.
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return sum(map(len, self._owned.values()))

    def read(
        self,
        envelope: bytes,
        charset: str | None,
        limits: Limits,
        validation: Validation,
        payloads: tuple[Payload, ...] = (),
    ) -> HeaderReading | None:
        """What the full reader would say of the envelope; None where it must be asked."""
        for mould in self._by_mark.get((_mark_of(envelope), charset, validation), ()):
            reading = mould.read(envelope, limits, payloads)
            if reading is not None:
                self.hits += 1
                mould.used = self.hits
                return reading
        self.misses += 1
        return None

    def learn(
        self,
        received: Received,
        owner: str,
        limits: Limits,
        validation: Validation = Validation.REPORT,
    ) -> None:
        """Learn of a message that was read and that `owner` has proved to be his own."""
        if not received.moulded:
            self.learn_of(received.envelope, received.charset, owner, limits, validation)

    def learn_of(
        self,
        envelope: bytes,
        charset: str | None,
        owner: str,
        limits: Limits,
        validation: Validation,
    ) -> None:
        """The same of an envelope that no mould has read.

        Making a mould costs some full readings. So it is done for the first, the second, the
        fourth envelope and so on: who never sends alike costs little.
        """
        offered = self._offered[owner] = self._offered.get(owner, 0) + 1
        if offered & (offered - 1):
            return
        mould = learned(envelope, charset, limits, validation)
        mark = _mark_of(envelope), charset, validation
        # What differs must not be what it is found by.
        if mould is None or not mark[0] or not mould.holds(mark[0]):
            return
        owned = self._owned.setdefault(owner, {})
        if len(owned) >= self._of_one:
            self._forget(owner, min(owned, key=_last_used))
        elif len(self) >= self._most:
            self._forget_oldest()
        mould.used = self.hits
        self._owned.setdefault(owner, {})[mould] = mark
        self._by_mark[mark] = (*self._by_mark.get(mark, ()), mould)

    def _forget_oldest(self) -> None:
        everyone = ((owner, mould) for owner, owned in self._owned.items() for mould in owned)
        self._forget(*min(everyone, key=lambda each: _last_used(each[1])))

    def _forget(self, owner: str, mould: Mould) -> None:
        mark = self._owned[owner].pop(mould)
        if not self._owned[owner]:
            del self._owned[owner]
        left = tuple(other for other in self._by_mark[mark] if other is not mould)
        if left:
            self._by_mark[mark] = left
        else:
            del self._by_mark[mark]


def _last_used(mould: Mould) -> int:
    return mould.used


def _mark_of(envelope: bytes) -> bytes:
    """The bytes of an envelope that say whose it is; empty where they are not found."""
    begin = envelope.find(_PARTIES)
    end = envelope.find(_AGREEMENT, begin, begin + _MARK_MAX) if begin >= 0 else -1
    return envelope[begin:end] if end >= 0 else b""
