"""Builds an Agreement from its pieces, so that a TOML file and a CPA end in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from oncewire.agreement.agreement import (
    ORDERED_WINDOW,
    ActionBinding,
    Agreement,
    Business,
    Direction,
    Endpoint,
    Origin,
    PartyTerms,
    Requested,
    Rules,
    Value,
    Via,
)
from oncewire.agreement.certificates import fingerprint
from oncewire.agreement.keys import BY_TARGET, KEYS, default_of
from oncewire.errors import AgreementProblem, InvalidValue
from oncewire.message.envelope import Actor
from oncewire.message.form import AckRequest, Form, ReliableMessagingMethod, Security
from oncewire.message.ids import Service
from oncewire.message.instant import Instant
from oncewire.message.kinds import did_you_mean
from oncewire.protocol.terms import FlowMode, OnExhausted, Terms

# Composes the parts of a binding from layers of values: defaults, profile, CPA, file.
#
# A later layer wins, key by key. What no layer says is either the default of its field or follows
# from another value by a rule of the catalogue; both are recorded as defaults, the second with the
# rule's name, so that `agreement show` can tell.


Layer = Mapping[str, Value]

TRANSPORT_METHOD = "urn:oncewire:reliableMessaging:transport"
"""Stands for the Transport method in reliableMessagingMethodsSupported (RM-7)."""


DERIVED = (
    "delivery.transports",
    "delivery.timeout",
    "delivery.reliable",
    "delivery.methods_supported",
    "delivery.on_exhausted",
    "sequence.numbered",
    "flow.mode",
    "flow.window",
)
"""Keys that follow from others where no layer says them (`_derive`)."""


@dataclass(frozen=True, slots=True)
class Whole:
    """All five parts of a binding, and every value with its origin."""

    terms: Terms
    rules: Rules
    form: Form
    security: Security
    business: Business
    values: tuple[Value, ...]


def layer(values: Mapping[str, object], origin: Origin, where: str = "") -> dict[str, Value]:
    """Checked values of one origin. The keys must be known; their kinds check the rest."""
    return {name: Value(name, KEYS[name].read(raw), origin, where) for name, raw in values.items()}


def merge(*layers: Layer) -> dict[str, Value]:
    """One layer: where several speak, the last one counts."""
    merged: dict[str, Value] = {}
    for each_layer in layers:
        merged.update(each_layer)
    return merged


def compose(said: Layer, transports: tuple[str, ...] = ()) -> Whole:
    """The parts that the values make; `transports` are those the receiver has addresses on."""
    values = dict(said)
    _derive(values, transports)
    parts: dict[str, dict[str, Any]] = {
        "terms": _acknowledgements(values),
        "rules": {},
        "form": {},
        "security": {},
        "business": {},
    }
    for value in values.values():
        key = KEYS[value.key]
        parts[key.part][key.field] = value.value
    try:
        terms = Terms(**parts["terms"])
    except InvalidValue as error:
        blamed = BY_TARGET.get(f"terms.{error.problem.partition(' ')[0]}")
        raise AgreementProblem(
            error.problem, key=("" if blamed is None else blamed.name), remedy=error.remedy
        ) from None
    # Every key in its order, with the field's default where no layer speaks.
    return Whole(
        terms=terms,
        rules=Rules(**parts["rules"]),
        form=Form(**parts["form"]),
        security=Security(**parts["security"]),
        business=Business(**parts["business"]),
        values=tuple({**_unsaid(), **values}.values()),
    )


@cache
def _unsaid() -> Layer:
    """Every key in its order, with the field's default."""
    return {name: Value(name, default_of(key), Origin.DEFAULT) for name, key in KEYS.items()}


def _said(values: Layer, name: str) -> Any:
    value = values.get(name)
    return default_of(KEYS[name]) if value is None else value.value


def _derive(values: dict[str, Value], transports: tuple[str, ...]) -> None:
    """Fills what follows from other values (C3, C19, C22). An explicit value is never touched."""

    said = partial(_said, values)

    def follow(name: str, value: object, rule: str) -> None:
        values.setdefault(name, Value(name, value, Origin.DEFAULT, rule))

    if transports:
        follow("delivery.transports", transports, "the partner's addresses")
    # CPPA has one interval for every wait; the drafts name the first one apart (RTY-1, C19).
    follow("delivery.timeout", said("delivery.retry_interval"), "equals retry_interval")
    # ebMS 2.0 has no word for reliable but that an acknowledgement is asked for (C1).
    follow(
        "delivery.reliable",
        said("ack.request") is not Requested.NEVER,
        "reliable unless acknowledgements are never asked for",
    )
    if said("delivery.method") is ReliableMessagingMethod.TRANSPORT:
        methods = (*said("delivery.methods_supported"), TRANSPORT_METHOD)
        follow("delivery.methods_supported", methods, "the transport's own method is used")
    if said("sequence.ordered"):
        follow("flow.mode", FlowMode.WINDOW, "order needs a bounded window")
        if said("flow.mode") is FlowMode.WINDOW:
            follow("flow.window", ORDERED_WINDOW, "order needs a bounded window")
        # Going on after a message that was given up would hand over its successors too soon (C22).
        follow(
            "delivery.on_exhausted",
            OnExhausted.SUSPEND_CHANNEL,
            "a skipped number would break the order",
        )
    limited = said("flow.mode") is not FlowMode.UNRESTRICTED
    follow(
        "sequence.numbered", said("sequence.ordered") or limited, "order and windows need numbers"
    )


def _acknowledgements(values: Layer) -> dict[str, Any]:
    """What our sender asks for, as it follows from the rules and the actor."""

    said = partial(_said, values)

    rule, reliable = said("ack.request"), said("delivery.reliable")
    # The outcome of a reliable message is known by an acknowledgement alone: without one each
    # would end as unknown. And who asks for one and does not wait for it would lose messages.
    if reliable and rule is Requested.NEVER:
        raise AgreementProblem(
            "messages are reliable, but never ask for an acknowledgement",
            key="ack.request",
            remedy="set ack.request to always, or delivery.reliable to false",
        )
    if not reliable and rule is Requested.ALWAYS:
        raise AgreementProblem(
            "messages always ask for an acknowledgement, but are not reliable",
            key="delivery.reliable",
            remedy="set delivery.reliable to true, or ack.request to never",
        )
    wish = AckRequest.NONE
    if reliable:
        # Where the header may decide, ours asks for the proof that the business needs.
        signature, proof = said("ack.signature"), said("business.non_repudiation_of_receipt")
        signed = signature is Requested.ALWAYS or (signature is not Requested.NEVER and proof)
        wish = AckRequest.SIGNED if signed else AckRequest.UNSIGNED
    asked: dict[str, Any] = {
        "duplicate_elimination": said("duplicate.elimination") is not Requested.NEVER,
        "ack_requested": wish,
    }
    # Then the next handler takes the responsibility, and the To Party's is not asked for (HOP-8).
    if said("ack.actor") is Actor.NEXT_MSH:
        asked["ack_requested"] = AckRequest.NONE
        asked["hop_ack_requested"] = wish
    return asked


# Profiles: named sets of agreement values, as data.
#
# An agreement names one and overrides a handful. The values follow the "Settle as" column of the
# catalogue's conflicts (C1-C42) and the communities' own rules; where a profile extends another,
# it says only what differs.


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
    # Partners that exchanged a CPA are held to ebMS 2.0's own words: SOAPAction (Appendix B.2), and
    # what a message names must be there.
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
    # Joined by the handlers, without the application's word in between (docs/howto/documents.md).
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


@dataclass(frozen=True, slots=True)
class Entry:
    """What one direction, or one action of it, says beyond the whole agreement."""

    direction: Direction
    said: Layer = field(default_factory=dict)
    service: Service | None = None
    action: str | None = None
    from_role: str | None = None
    to_role: str | None = None
    # None: those of the receiving party.
    endpoints: tuple[Endpoint, ...] | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """An agreement as it was read, before its values are put together."""

    cpa_id: str
    profile: str
    own: PartyTerms
    partner: PartyTerms
    said: Layer = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    # Said last and over everything: a file's own words over the CPA it imports.
    over: Layer = field(default_factory=dict)
    via: Via | None = None
    listed_only: bool = False
    forwards: bool = False
    status: str = "agreed"
    start: Instant | None = None
    end: Instant | None = None
    also_known_as: tuple[str, ...] = ()
    any_cpa_id: bool = False
    not_offered: tuple[tuple[str, str], ...] = ()
    # Actions take over what is said of their whole direction.
    inherit: bool = True
    origin: Origin = Origin.FILE
    where: str = ""


_AS_DRAFTED = (
    "cpa_id", "own", "partner", "listed_only", "profile", "status", "start", "end", "via",
    "forwards", "also_known_as", "any_cpa_id", "not_offered",
)  # fmt: skip
"""What an agreement takes over from its draft as it is."""


def build(draft: Draft) -> Agreement:
    """The agreement; a contradiction in it is an `AgreementProblem` that names the key."""
    base = merge(profile_values(draft.profile), draft.said)
    defaults = {direction: _default(draft, base, direction) for direction in Direction}
    actions = tuple(
        _binding(draft, merge(base, _direction_values(draft, entry.direction)), entry)
        for entry in draft.entries
        if entry.service is not None
    )
    # Two entries for the same messages would make their terms a matter of luck.
    seen: set[tuple[Any, ...]] = set()
    for binding in actions:
        roles = (binding.from_role, binding.to_role)
        key = (binding.direction, binding.service, binding.action, *roles)
        if key in seen:
            raise AgreementProblem(
                f"there are two entries for {binding.label}",
                key="actions",
                remedy="keep one of them",
            )
        seen.add(key)
    said = merge(base, draft.over).values()
    # What holds for the whole agreement is said of no direction, and follows from no other value.
    form = {KEYS[value.key].field: value.value for value in said if KEYS[value.key].part == "form"}
    try:
        return Agreement(
            sending=defaults[Direction.SEND],
            receiving=defaults[Direction.RECEIVE],
            actions=actions,
            form=Form(**form),
            values=_identity(draft),
            **{name: getattr(draft, name) for name in _AS_DRAFTED},
        )
    except InvalidValue as error:
        raise AgreementProblem(error.problem, key="cpa_id", remedy=error.remedy) from None


def _direction_values(draft: Draft, direction: Direction) -> Layer:
    """What the entry for the whole direction says, if there is one."""
    if not draft.inherit:
        return {}
    return merge(
        *(
            entry.said
            for entry in draft.entries
            if entry.service is None and entry.direction is direction
        )
    )


def _default(draft: Draft, base: Layer, direction: Direction) -> ActionBinding:
    for entry in draft.entries:
        if entry.service is None and entry.direction is direction:
            return _binding(draft, base, entry)
    return _binding(draft, base, Entry(direction))


def _binding(draft: Draft, base: Layer, entry: Entry) -> ActionBinding:
    receiver = draft.partner if entry.direction is Direction.SEND else draft.own
    endpoints = receiver.endpoints if entry.endpoints is None else entry.endpoints
    ways = endpoints
    if entry.direction is Direction.SEND and draft.via is not None and draft.via.endpoints:
        ways = draft.via.endpoints
    transports = tuple(dict.fromkeys(endpoint.transport for endpoint in ways))
    wrong = [name for name in entry.said if KEYS[name].part == "form"]
    if wrong:
        raise AgreementProblem(
            f"{wrong[0]} holds for the whole agreement, not for one action",
            key=wrong[0],
            remedy="move it out of [[actions]]",
        )
    whole = compose(merge(base, entry.said, draft.over), transports)
    return ActionBinding(
        direction=entry.direction,
        terms=whole.terms,
        rules=whole.rules,
        security=whole.security,
        business=whole.business,
        service=entry.service,
        action=entry.action,
        from_role=entry.from_role,
        to_role=entry.to_role,
        endpoints=endpoints,
        values=whole.values,
    )


_TOLD = (
    "via", "status", "start", "end", "listed_only", "forwards", "also_known_as", "any_cpa_id",
)  # fmt: skip


def _identity(draft: Draft) -> tuple[Value, ...]:
    """What is not a policy: who, when and where, for `agreement show`."""
    facts: list[tuple[str, object]] = [("cpa_id", draft.cpa_id), ("profile", draft.profile)]
    for name, side in (("own", draft.own), ("partner", draft.partner)):
        facts += [
            (f"{name}.party_id", tuple(side.party.ids)),
            (f"{name}.name", side.name),
            (f"{name}.uri", side.handler_uri),
            (f"{name}.addresses", side.endpoints),
            (f"{name}.client_certificates", side.client_certificates),
        ]
        for key in ("certificates", "signing_certificates"):
            shown = tuple(f"sha256:{fingerprint(der)[:16]}" for der in getattr(side, key))
            facts.append((f"{name}.{key}", shown))
        for key in ("behind", "behind_services", "behind_all"):
            facts.append((f"{name}.{key}", getattr(side, key)))
    facts += [(name, getattr(draft, name)) for name in _TOLD]
    unsaid: tuple[object, ...] = (None, "", (), False)
    return tuple(
        [
            Value(key, value, Origin.DEFAULT)
            if value in unsaid
            else Value(key, value, draft.origin, draft.where)
            for key, value in facts
        ]
    )
