"""Profiles: named sets of agreement values, as data.

An agreement names one and overrides a handful. The values follow the "Settle as" column
of the catalogue's conflicts (C1-C42) and the communities' own rules; where a profile
extends another, it says only what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from oncewire.agreement.agreement import Origin, Value
from oncewire.agreement.compose import layer, merge
from oncewire.errors import AgreementProblem
from oncewire.message.key import did_you_mean


@dataclass(frozen=True, slots=True)
class Profile:
    """One named set; `says` is its sentence for people."""

    name: str
    says: str
    extends: str | None = None
    values: Mapping[str, object] = field(default_factory=dict, hash=False)


_EBMS2 = {
    "wire.dialect": "ebms2",
    # CPPA's rule (C17, C38): perMessage leaves it to the header, anything else is binding.
    "delivery.header_conflict": "d",
    "ack.request": "perMessage",
    "ack.signature": "perMessage",
    "duplicate.elimination": "perMessage",
    "sync.request": "always",
    # SYNC-14 is the sync paper's; NHS Spine's own replies ask for a synchronous reply.
    "sync.replies": True,
    "sync.retries": "same_message",
    "sequence.scope": "conversation",
    "sequence.reset": "first-message",
    # A repeat of an unreliable message is passed on (C40).
    "best_effort.filter": False,
}

_DRAFT = {
    "wire.dialect": "ms-0.9x",
    # The header wins (CPA-9), and where it is silent the agreement's value holds (CPA-8).
    "delivery.header_conflict": "a",
    "ack.request": "whenStated",
    "ack.signature": "whenStated",
    "ack.hop": "whenStated",
    "duplicate.elimination": "whenStated",
    "sync.request": "whenStated",
    # Another attempt is a new conversation (SYNC-18).
    "sync.retries": "none",
    # The slides count between sender and receiver (C6), and any message of the first window may be
    # the first to arrive (SEQ-15).
    "sequence.scope": "pair",
    "sequence.reset": "first-window",
    # A hub answers for a hop exactly where its message asks for that (HOP-6).
    "hop.mode": "by_request",
    # At most once, too, while the id is remembered (DUP-11).
    "best_effort.filter": True,
}

_RM_078 = {
    "wire.dialect": "rm-0.78",
    # Every reliable message has a number of its sender, receiver and transport (SEQ-1, SEQ-2).
    "sequence.numbered": True,
    "sequence.ordered": True,
    "sequence.range": "rm-0.78",
    "sequence.scope": "triple",
    # A number out of turn is thrown away with an error (SEQ-9), and a 1 begins anew without any
    # word for it (SEQ-8): so only one message may be under way (C3).
    "sequence.on_gap": "reject",
    "sequence.reset": "silent",
    "flow.mode": "stop-and-wait",
    # An acknowledgement is a message of its own (ACK-7), made again for each repeat (DUP-4).
    "duplicate.answer": "fresh_ack",
    "ack.bundling": "standalone",
    # One count for whatever went wrong (RTY-11), and at its end nothing more goes there (RTY-12).
    "delivery.retries_counted": "total",
    "delivery.on_exhausted": "suspend_channel",
    # A router begins the next hop when the one before is complete (HOP-1).
    "hop.mode": "store_and_forward",
}

_CPA = {
    # Whoever exchanged a CPA is held to ebMS 2.0's own words: SOAPAction (Appendix B.2), and what
    # a message names must be there.
    "wire.soap_action_check": "strict",
    "wire.unknown_cpa": "fault",
    "wire.unknown_ref": "error",
    # Where the CPA does not say how long is tried: a partner may be away for a night (RTY-18).
    "delivery.retries": 288,
    "delivery.retry_interval": "PT5M",
    "delivery.persist_duration": "P2D",
}

_OSB_BE = {
    "ack.request": "never",
    "ack.signature": "never",
    "ack.hop": "never",
    "ack.bundling": "standalone",
    "duplicate.elimination": "never",
    "hop.mode": "transparent",
    "wire.soap_action_check": "strict",
}

_OSB_RM = {
    "ack.request": "always",
    "duplicate.elimination": "always",
    "delivery.retries": 8,
    "delivery.retry_interval": "PT3H",
    # The community's own default; `agreement check` says why it is too short (DRV-4).
    "delivery.persist_duration": "P1D",
}

_SIGNED = {
    "security.sign": True,
    "security.require_signature": True,
    "business.non_repudiation": True,
}

_ENCRYPTED = {
    "security.encrypt": True,
    "security.encryption_algorithm": "http://www.w3.org/2001/04/xmlenc#aes256-cbc",
    "business.confidential": "transient-and-persistent",
}

_NHS_EXPRESS = {
    "ack.request": "never",
    "ack.signature": "never",
    "duplicate.elimination": "never",
    "wire.soap_action": "{service}/{action}",
    # Messages of Spine have quotation marks in their base64.
    "wire.base64": "lenient",
    # The codes of Spine's own fault list that mean "try again"; every other is final.
    "delivery.retry_faults": ["200", "206", "208"],
    "payload.max_size": 5_000_000,
}

_NHS_RELIABLE = {
    "ack.request": "always",
    "duplicate.elimination": "always",
    "delivery.retries": 2,
    "delivery.retry_interval": "PT1M",
    "delivery.persist_duration": "PT5M",
}

_NHS_FRAGMENTS = {
    # Joined by the handlers, without the application's word in between (docs/documents.md).
    "payload.parts": "mid",
    "payload.compress": "gzip",
}

_NORWAY_SMTP = {
    **_SIGNED,
    "delivery.transports": ["smtp"],
    "ack.request": "always",
    "ack.signature": "always",
    "duplicate.elimination": "always",
    "delivery.retries": 4,
    "delivery.retry_interval": "PT240M",
    "delivery.persist_duration": "P2D",
    "business.non_repudiation_of_receipt": True,
    # With security.encrypt, which needs the partner's certificate.
    "security.encryption_syntax": "smime",
}

_NORWAY_HTTP = {
    **_SIGNED,
    "delivery.transports": ["http"],
    "ack.request": "never",
    "ack.signature": "never",
    "duplicate.elimination": "never",
    "sync.mode": "signalsAndResponse",
}

_PHINMS = {
    "ack.request": "always",
    "ack.signature": "never",
    "sync.mode": "signalsAndResponse",
    # PHINMS answers in the HTTP response without ever being asked by a SyncReply.
    "sync.request": "whenStated",
}

_ALL = (
    Profile("ebms2", "OASIS ebMS 2.0, as real partners speak it.", None, _EBMS2),
    Profile("cpa", "ebMS 2.0 to the letter, as handlers that exchange CPAs keep it.", "ebms2",
            _CPA),
    Profile("ms-0.9x", "The 0.9x header document with the DB chapter's rules.", None, _DRAFT),
    Profile("ms-0.9x-typed", "The same with typed acknowledgements (CBF chapter).", "ms-0.9x",
            {"ack.typed": True}),
    Profile("window", "0.9x with a sliding window of 8 and delivery in order (slides).", "ms-0.9x",
            {"sequence.ordered": True, "flow.mode": "window", "flow.window": 8}),
    Profile("rm-0.78", "v0-078: one message at a time, numbered per transport.", "ms-0.9x",
            _RM_078),
    Profile("fujitsu-2000", "The prototype of September 2000: v0-078, stop and wait.", "rm-0.78"),
    Profile("fujitsu-window", "The slides' proposal: 0.9x with a sliding window.", "window"),
    Profile("digikoppeling-osb-be", "Dutch government, best effort.", "ebms2", _OSB_BE),
    Profile("digikoppeling-osb-be-s", "Dutch government, best effort, signed.",
            "digikoppeling-osb-be", _SIGNED),
    Profile("digikoppeling-osb-be-e", "Dutch government, best effort, signed and encrypted.",
            "digikoppeling-osb-be-s", _ENCRYPTED),
    Profile("digikoppeling-osb-rm", "Dutch government, reliable.", "digikoppeling-osb-be",
            _OSB_RM),
    Profile("digikoppeling-osb-rm-s", "Dutch government, reliable, signed.",
            "digikoppeling-osb-rm", _SIGNED),
    Profile("digikoppeling-osb-rm-e", "Dutch government, reliable, signed and encrypted.",
            "digikoppeling-osb-rm-s", _ENCRYPTED),
    Profile("nhs-express", "NHS Spine, asynchronous express: no acknowledgement.", "ebms2",
            _NHS_EXPRESS),
    Profile("nhs-async-reliable", "NHS Spine, asynchronous reliable: acknowledged in the reply.",
            "nhs-express", {**_NHS_RELIABLE, "sync.mode": "mshSignalsOnly"}),
    Profile("nhs-forward-reliable", "NHS Spine as intermediary: the next handler acknowledges.",
            "nhs-express", {**_NHS_RELIABLE, "ack.actor": "nextMSH"}),
    Profile("nhs-fragments", "NHS Spine, forward reliable: large documents in fragments.",
            "nhs-forward-reliable", _NHS_FRAGMENTS),
    Profile("norway-smtp", "Norwegian health over mail, signed acknowledgements.", "ebms2",
            _NORWAY_SMTP),
    Profile("norway-http-sync", "Norwegian health over HTTP, answered at once.", "ebms2",
            _NORWAY_HTTP),
    Profile("phinms", "CDC PHINMS: acknowledged in the HTTP response.", "ebms2", _PHINMS),
)  # fmt: skip

PROFILES: dict[str, Profile] = {profile.name: profile for profile in _ALL}


def profile_values(name: str) -> dict[str, Value]:
    """Every value of a profile, each with the name of the profile that set it."""
    profile = PROFILES.get(name)
    if profile is None:
        raise AgreementProblem(
            f"there is no profile {name[:128]!r}",
            key="profile",
            remedy=did_you_mean(name, PROFILES, "choose one of " + ", ".join(PROFILES)),
        )
    return dict(_values(profile))


@cache
def _values(profile: Profile) -> dict[str, Value]:
    """Profiles never change, so each is checked once."""
    own = layer(profile.values, Origin.PROFILE, profile.name)
    return merge(_values(PROFILES[profile.extends]), own) if profile.extends else own
