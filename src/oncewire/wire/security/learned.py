"""Learned: the bounded table of what is known of signed envelopes, each partner's.

Of a partner only what its signature proved is learned, and it has a few places of its own: nobody
else can take them. What is learned there helps with nobody else's messages. Poisoning it is
impossible by construction, for every signature is checked all the same (`known`).
"""

from __future__ import annotations

from oncewire.wire.security import signature
from oncewire.wire.security.algorithms import SAFE, AlgorithmPolicy
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.known import Known, known_of
from oncewire.wire.security.layouts import Layouts
from oncewire.wire.security.pattern import DOCUMENT_MAX, Perforated, perforated
from oncewire.wire.security.places import Places
from oncewire.wire.security.references import SignedReference
from oncewire.wire.security.signature import Covered, Parts, Verified

LATEST = 256
"""Envelopes whose references are remembered: as many as may be under way."""


class Learned:
    """What one handler has learned of the signatures it checks, and of those it makes."""

    def __init__(self) -> None:
        self._known: Places[Known] = Places()
        self._latest: dict[bytes, tuple[SignedReference, ...]] = {}
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
        if len(envelope) > DOCUMENT_MAX:
            # Nothing is learned of it, and nobody has proved yet that it is worth a look.
            return signature.verify_signature(envelope, parts, trust, now, policy)
        document = perforated(envelope)
        known = self._known.find(owner, document)
        if known is not None:
            found = known.verify(document.holes, parts, trust, now, policy)
            if found is not None:
                self.hits += 1
                self.remember(envelope, found.references)
                return found
        self.misses += 1
        verified = signature.verify_signature(envelope, parts, trust, now, policy)
        if self._known.is_due(owner):
            self._learn(owner, envelope, document, verified)
        self.remember(envelope, verified.references)
        return verified

    def remember(self, envelope: bytes, references: tuple[SignedReference, ...]) -> None:
        """What an envelope signs, ours or a partner's, will soon be asked for once more."""
        if len(envelope) > DOCUMENT_MAX:
            return
        if len(self._latest) >= LATEST:
            self._latest.pop(next(iter(self._latest)))
        self._latest[envelope] = references

    def references(self, envelope: bytes) -> tuple[SignedReference, ...] | None:
        """What the signature on an envelope says of each thing that it covers; None where that has
        to be read."""
        return self._latest.get(envelope)

    def _learn(self, owner: str, envelope: bytes, document: Perforated, truth: Covered) -> None:
        known = known_of(envelope, document, truth)
        if known is not None:
            self._known.keep(owner, document, known)
