"""Learned: the bounded table of what is known of signed envelopes, each partner's and our own.

Of a partner only what its signature proved is learned, and it has a few places of its own: nobody
else can take them. What is learned there helps with nobody else's messages. Poisoning it is
impossible by construction, for every signature is checked all the same (`known`).
"""

from __future__ import annotations

from collections.abc import Sequence

from oncewire.errors import SecurityFailure
from oncewire.wire.security import signature
from oncewire.wire.security.algorithms import SAFE, AlgorithmPolicy
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.known import Known, known_of
from oncewire.wire.security.layouts import Layouts
from oncewire.wire.security.places import Places
from oncewire.wire.security.references import PartDigests, SignedReference
from oncewire.wire.security.signature import Covered, Parts, Verified
from oncewire.wire.security.stencil import Perforated, perforated

OWN = ""
"""Whose our own envelopes are; no partner is called that."""


class Learned:
    """What one handler has learned of the signatures it checks, and of those it makes."""

    def __init__(self) -> None:
        self._known: Places[Known] = Places()
        self.layouts = Layouts()
        # How many signatures were checked without a tree, and how many with one.
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._known)

    def verify(
        self,
        owner: str,
        envelope: bytes,
        parts: Parts,
        trust: Trust,
        now: int,
        policy: AlgorithmPolicy = SAFE,
    ) -> Verified:
        """What the signature proves of its `owner`, as `signature.verify_signature` says it.

        The digests of the parts may be asked for twice.
        """
        document = perforated(envelope)
        known = self._known.find(owner, document)
        if known is not None:
            found = known.verify(document.holes, parts, trust, now, policy)
            if found is not None:
                self.hits += 1
                return found
        self.misses += 1
        verified = signature.verify_signature(envelope, parts, trust, now, policy)
        if self._known.is_due(owner):
            self._learn(owner, envelope, document, verified)
        return verified

    def references(self, owner: str, envelope: bytes) -> tuple[SignedReference, ...] | None:
        """What the signature on an envelope says of each thing that it covers, believed or not;
        None where that has to be read."""
        document = perforated(envelope)
        known = self._known.find(owner, document)
        return None if known is None else known.references(document.holes)

    def learn_own(self, envelope: bytes) -> None:
        """Learn of an envelope that we signed, which nobody has to verify."""
        if not self._known.is_due(OWN):
            return
        try:
            covered = signature.covered(envelope, _as_signed)
        except SecurityFailure:
            return
        self._learn(OWN, envelope, perforated(envelope), covered)

    def _learn(self, owner: str, envelope: bytes, document: Perforated, truth: Covered) -> None:
        known = known_of(envelope, document, truth)
        if known is not None:
            self._known.keep(owner, document, known)


def _as_signed(signed: Sequence[SignedReference]) -> list[PartDigests]:
    return [
        PartDigests(each.content_id, {each.digest_name: each.digest})
        for each in signed
        if each.content_id is not None
    ]
