"""Every key of an agreement: its name in TOML, its kind, what it sets, and what it means.

Profiles, TOML files and imported CPAs all speak in these keys, `agreement show` prints
them, and an unknown key is answered with the nearest known one. A key's target names the
value it fills: `terms.retries` is the field `retries` of `Terms`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oncewire.agreement.agreement import (
    ActionBinding,
    Agreement,
    Business,
    Endpoint,
    Origin,
    Protection,
    Requested,
    Rules,
    Value,
    Via,
)
from oncewire.agreement.certificates import fingerprint, read_certificates, to_pem
from oncewire.errors import AgreementProblem
from oncewire.message import kinds
from oncewire.message.document_path import DocumentPath
from oncewire.message.envelope import Actor
from oncewire.message.form import (
    AckRequest,
    Base64Check,
    Dialect,
    EncryptionSyntax,
    Extension,
    Form,
    PartsForm,
    ReliableMessagingMethod,
    Security,
    SecurityOrder,
    SoapActionCheck,
    SyncReplyMode,
    UnknownCpa,
    UnknownRef,
    Validation,
)
from oncewire.message.ids import PartyId
from oncewire.message.instant import MINUTE, SECOND, Duration, format_duration, format_instant
from oncewire.message.kinds import (
    NamedKey,
    choice,
    did_you_mean,
    kind,
    listed,
    optional,
    read_duration,
    read_text,
    read_whole,
    wrong,
)
from oncewire.protocol.sequence import NAMED_RANGES, SequenceRange
from oncewire.protocol.terms import (
    AckBundling,
    DuplicateAnswer,
    FlowMode,
    HeaderConflict,
    HopMode,
    NoResponse,
    OnExhausted,
    OnGap,
    ReceiptProvided,
    ResetRule,
    RetryCount,
    Scope,
    SyncBundle,
    SyncRetries,
    Terms,
)

# Kinds of values that only agreements have, beside those of every file (`message/kinds.py`).


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


def _read_path(raw: object) -> DocumentPath:
    return DocumentPath(read_text(raw))


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
    lambda raw: frozenset(listed(raw, EXTENSION.read, "a list of extensions")),
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
PATHS = kind(
    "a list of paths such as //order/@id",
    lambda raw: listed(raw, _read_path, "a list of paths"),
    lambda paths: [path.text for path in paths],
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


PARTS: dict[str, type[Any]] = {
    "terms": Terms,
    "rules": Rules,
    "form": Form,
    "security": Security,
    "business": Business,
}


@dataclass(frozen=True, slots=True)
class Key(NamedKey):
    """One key of an agreement: `target` is part.field, `says` one sentence."""

    target: str
    says: str
    # Which of the five parts it fills, and the field there: the two words of the target.
    part: str = dataclasses.field(init=False, repr=False)
    field: str = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Taken apart once: every reading and writing of an agreement asks for all of them."""
        part, _, field = self.target.partition(".")
        object.__setattr__(self, "part", part)
        object.__setattr__(self, "field", field)

    def refusal(self, problem: str, remedy: str) -> AgreementProblem:
        """An error that `agreement check` can show beside the key."""
        return AgreementProblem(problem, key=self.name, remedy=remedy)


_ACTOR = choice(Actor, {"toPartyMSH": Actor.TO_PARTY_MSH, "nextMSH": Actor.NEXT_MSH})

_ALL = (
    # --- delivery
    Key("delivery.reliable", kinds.BOOL, "terms.reliable",
        "Whether messages are acknowledged, retried and kept, or sent once and forgotten."),
    Key("delivery.method", choice(ReliableMessagingMethod), "terms.method",
        "Who makes it reliable: this protocol, or the transport."),
    Key("delivery.methods_supported", kinds.NAMES, "rules.methods_supported",
        "URIs of the reliable messaging methods both sides have."),
    Key("delivery.timeout", kinds.DURATION, "terms.timeout",
        "Wait for an acknowledgement before the first resend."),
    Key("delivery.retries", kinds.COUNT, "terms.retries", "How often a message is resent."),
    Key("delivery.retry_interval", kinds.DURATION, "terms.retry_interval",
        "Wait between two resends."),
    Key("delivery.retries_counted", choice(RetryCount), "terms.retries_counted",
        "Whether retries count for each transport or in all."),
    Key("delivery.persist_duration", kinds.DURATION, "terms.persist_duration",
        "How long messages and ids are kept; nothing is resent after it."),
    Key("delivery.time_to_live", optional(kinds.DURATION), "terms.time_to_live",
        "Lifetime of a message that is submitted without one."),
    Key("delivery.time_accuracy", ACCURACY, "terms.time_accuracy",
        "How exact the receiver's clock is when it judges a lifetime (mm:ss)."),
    Key("delivery.transports", kinds.NAMES, "terms.transports",
        "Ways to send, in the order they are tried."),
    Key("delivery.retry_faults", kinds.NAMES, "rules.retry_faults",
        "Codes of a SOAP Fault or its detail after which to resend; any other ends the message."),
    Key("delivery.on_exhausted", choice(OnExhausted), "terms.on_exhausted",
        "After the last retry: fail the message, or suspend the channel."),
    Key("delivery.header_conflict", choice(HeaderConflict), "terms.header_conflict",
        "Header against agreement: a header, b header and warn, c agreement and warn, d refuse."),
    Key("delivery.receipt_provided", choice(ReceiptProvided), "terms.receipt_provided",
        "Which delivery receipts the receiver can give."),
    Key("delivery.keep", kinds.DURATION, "terms.keep",
        "How much longer than persist_duration messages are kept, for the law or the business."),
    # --- acknowledgements
    Key("ack.request", REQUESTED, "rules.ack",
        "Whether messages ask for an acknowledgement."),
    Key("ack.signature", REQUESTED, "rules.ack_signature",
        "Whether the acknowledgement asked for is a signed one."),
    Key("ack.actor", _ACTOR, "rules.actor", "Who acknowledges: toPartyMSH or nextMSH."),
    Key("ack.hop", REQUESTED, "rules.hop_ack",
        "Whether messages may ask the next handler for an acknowledgement too."),
    Key("ack.hop_request", choice(AckRequest), "terms.hop_ack_requested",
        "What our messages ask of the next handler."),
    Key("ack.typed", kinds.BOOL, "form.ack_typed",
        "Whether acknowledgements carry their type."),
    Key("ack.bundling", choice(AckBundling), "terms.ack_bundling",
        "Whether an acknowledgement may ride on a response."),
    Key("ack.wait", kinds.DURATION, "terms.ack_wait",
        "How long it may wait for one; under piggyback, PT0S means half of the Timeout."),
    # --- duplicates
    Key("duplicate.elimination", REQUESTED, "rules.duplicate_elimination",
        "Whether messages ask that copies are dropped."),
    Key("duplicate.answer", choice(DuplicateAnswer), "terms.duplicate_answer",
        "Which stored answer a copy gets."),
    Key("duplicate.no_response", choice(NoResponse), "terms.duplicate_no_response",
        "What a copy gets when no answer is stored."),
    Key("best_effort.filter", kinds.BOOL, "terms.best_effort_filter",
        "Whether copies of unreliable messages are dropped while they are remembered."),
    # --- numbers
    Key("sequence.numbered", kinds.BOOL, "terms.numbered",
        "Whether messages carry sequence numbers."),
    Key("sequence.ordered", kinds.BOOL, "terms.ordered",
        "Whether messages are delivered in order."),
    Key("sequence.range", RANGE, "terms.numbers", "Which numbers there are."),
    Key("sequence.scope", choice(Scope), "terms.scope", "What one numbered stream is."),
    Key("sequence.on_gap", choice(OnGap), "terms.on_gap",
        "Whether a number that comes too early is refused or kept."),
    Key("sequence.reset", choice(ResetRule), "terms.reset",
        "How a restart of the numbers is announced."),
    Key("flow.mode", choice(FlowMode), "terms.flow",
        "How it is bounded how many messages are unacknowledged at once."),
    Key("flow.window", kinds.WINDOW, "terms.window",
        "How many messages may be unacknowledged at once under flow.mode window; the same on "
        "both sides."),
    # --- synchronous replies
    Key("sync.mode", SYNC_MODE, "terms.sync_mode",
        "What comes back on the same connection."),
    Key("sync.request", REQUESTED, "rules.sync",
        "Whether messages must ask for that themselves."),
    Key("sync.replies", kinds.BOOL, "rules.sync_replies",
        "Whether a message that answers another may ask for that too."),
    Key("sync.retries", choice(SyncRetries), "terms.sync_retries",
        "Whether a synchronous request is resent."),
    Key("sync.timeout", kinds.DURATION, "terms.sync_timeout",
        "How long this hop keeps the connection open."),
    Key("sync.bundle", choice(SyncBundle), "terms.sync_bundle",
        "How two replies share one connection."),
    Key("hop.mode", choice(HopMode), "terms.hop_mode",
        "What an intermediary's acknowledgement means."),
    # --- payloads
    Key("payload.max_size", optional(kinds.SIZE), "terms.max_size",
        "Largest payload in bytes, if there is a bound; a larger document travels in parts, "
        "under ebMS 2.0 where wire.extensions has split."),
    Key("payload.compress", optional(kinds.TEXT), "terms.compress_encoding",
        "How documents above max_size are compressed: gzip, deflate or zstd."),
    Key("payload.parts", choice(PartsForm), "form.parts",
        "How a document above max_size travels: split into parts, or as NHS Spine's fragments."),
    Key("payload.fragment_action", kinds.TEXT, "form.fragment_action",
        "The Action of messages that carry a fragment of a document."),
    Key("payload.max_document", optional(kinds.SIZE), "terms.max_document",
        "Bytes of one document in parts, decompressed too; none: as many as the handler takes."),
    Key("payload.max_parts", optional(kinds.WINDOW), "terms.max_parts",
        "Parts of one document; none: as many as the handler takes."),
    Key("payload.max_ratio", optional(kinds.WINDOW), "terms.max_ratio",
        "How many times its compressed size a document may have; none: as the handler takes it."),
    Key("payload.quota", optional(kinds.SIZE), "terms.quota",
        "Bytes of documents of the partner that may wait for their other parts at once."),
    Key("payload.index", PATHS, "rules.index",
        "Values in documents that `oncewire find` finds their messages by: XPaths of names such as "
        "//order/@id, or JSON Pointers; an affair of ours alone."),
    # --- the wire
    Key("wire.dialect", choice(Dialect), "form.dialect", "Which of the three wire formats."),
    Key("wire.soap_action", kinds.TEXT, "form.soap_action",
        "SOAPAction we send; {service} and {action} are filled in."),
    Key("wire.soap_action_check", choice(SoapActionCheck), "form.soap_action_check",
        "Whether another SOAPAction is refused."),
    Key("wire.validation", choice(Validation), "form.validation",
        "What a header that breaks the official schema leads to."),
    Key("wire.base64", choice(Base64Check), "form.base64",
        "Whether characters that do not belong into base64 are damage, or are skipped."),
    Key("wire.unknown_cpa", choice(UnknownCpa), "form.unknown_cpa",
        "How a message under an unknown agreement is answered."),
    Key("wire.unknown_ref", choice(UnknownRef), "form.unknown_ref",
        "What an unknown RefToMessageId leads to."),
    Key("wire.extensions", EXTENSIONS, "form.extensions",
        "Features of the drafts that ebMS 2.0 lacks and both sides have."),
    # --- security
    Key("security.sign", kinds.BOOL, "security.sign", "Whether we sign what we send."),
    Key("security.require_signature", kinds.BOOL, "security.require_signature",
        "Whether an unsigned message of the partner is refused."),
    Key("security.encrypt", kinds.BOOL, "security.encrypt", "Whether payloads are encrypted."),
    Key("security.signature_algorithm", kinds.TEXT, "security.signature_algorithm",
        "How signatures are made."),
    Key("security.digest_algorithm", kinds.TEXT, "security.digest_algorithm",
        "How digests are made."),
    Key("security.canonicalization", kinds.TEXT, "security.canonicalization",
        "How XML is made canonical before it is signed."),
    Key("security.encryption_syntax", choice(EncryptionSyntax), "security.encryption_syntax",
        "Whether an encrypted payload is XML Encryption, or S/MIME with AES-256."),
    Key("security.encryption_algorithm", kinds.TEXT, "security.encryption_algorithm",
        "How payloads are encrypted."),
    Key("security.key_transport", kinds.TEXT, "security.key_transport",
        "How the payload key is encrypted."),
    Key("security.order", choice(SecurityOrder), "security.order",
        "Whether we sign payloads before we encrypt them, or after; both are read."),
    Key("security.allow_rsa_1_5", kinds.BOOL, "security.allow_rsa_1_5",
        "Whether payload keys that were encrypted with rsa-1_5 are read, as older handlers write "
        "them."),
    Key("security.allow_sha1", kinds.BOOL, "security.allow_sha1",
        "Whether SHA-1 signatures, which can be forged today, are accepted and made."),
    Key("security.partner_certificates", CERTIFICATES, "security.partner_certificates",
        "Certificates of which the partner signs with one."),
    Key("security.partner_encryption_certificates", CERTIFICATES,
        "security.partner_encryption_certificates",
        "Certificates with which we encrypt for the partner."),
    Key("security.trust_anchors", CERTIFICATES, "security.trust_anchors",
        "Authorities whose certificates are believed."),
    Key("security.revocation_lists", REVOCATION_LISTS, "security.revocation_lists",
        "Lists of certificates that their authorities have revoked."),
    Key("security.revoked", CERTIFICATES, "security.revoked",
        "Certificates that are believed no more, not even for what is under way."),
    # --- the business
    Key("business.non_repudiation", kinds.BOOL, "business.non_repudiation",
        "Whether the sender must not be able to deny a message."),
    Key("business.non_repudiation_of_receipt", kinds.BOOL,
        "business.non_repudiation_of_receipt",
        "Whether the receiver must not be able to deny the receipt."),
    Key("business.confidential", choice(Protection), "business.confidential",
        "Where a document is secret: on the way, in itself, both or nowhere."),
    Key("business.authenticated", choice(Protection), "business.authenticated",
        "Where its sender is proved: on the way, in the document, both or nowhere."),
    Key("business.tamper_proof", choice(Protection), "business.tamper_proof",
        "Where a change is noticed: on the way, in the document, both or nowhere."),
    Key("business.authorization_required", kinds.BOOL, "business.authorization_required",
        "Whether the application checks that the sender may send such a document."),
    Key("business.intelligible_check", kinds.BOOL, "business.intelligible_check",
        "Whether the application checks a document before its business signal acknowledges it."),
    Key("business.time_to_acknowledge_receipt", optional(kinds.DURATION),
        "business.time_to_acknowledge_receipt",
        "How soon a business signal acknowledges that a document was received."),
    Key("business.time_to_acknowledge_acceptance", optional(kinds.DURATION),
        "business.time_to_acknowledge_acceptance",
        "How soon a business signal acknowledges that a document was accepted."),
    Key("business.time_to_perform", optional(kinds.DURATION), "business.time_to_perform",
        "How long the business process may take."),
    Key("business.retry_count", optional(kinds.COUNT), "business.retry_count",
        "How often the business process may start again."),
)  # fmt: skip

KEYS: dict[str, Key] = {key.name: key for key in _ALL}

BY_TARGET: dict[str, Key] = {key.target: key for key in _ALL}


def default_of(key: Key) -> Any:
    """The default of the key's field."""
    return _DEFAULTS[key.target]


def toml_tables(said: Mapping[str, Value], prefix: str = "") -> list[str]:
    """The values as lines of TOML: a table for each section of keys, below the prefix."""
    lines: list[str] = []
    section = ""
    for name, key in KEYS.items():
        if name not in said:
            continue
        part, _, word = name.partition(".")
        if part != section:
            section = part
            lines += ["", f"[{prefix}{section}]"]
        lines.append(f"{word} = {key.kind.literal(said[name].value)}")
    return lines


def unknown_key(name: str, known: Iterable[str]) -> AgreementProblem:
    """The error for an unknown key: it names the nearest one."""
    return AgreementProblem(
        f"there is no key {name[:128]!r}",
        key=name[:128],
        remedy=did_you_mean(name, known, "see `oncewire agreement show`"),
    )


_DEFAULTS = {
    f"{part}.{name}": getattr(kind(), name)
    for part, kind in PARTS.items()
    for name in kind.__struct_fields__
}


# Every value of an agreement and where it came from, as rows for a table or for JSON.


EVERYWHERE = "agreement"
"""The scope of values that hold in both directions."""


@dataclass(frozen=True, slots=True)
class Row:
    """One value: for what it holds, its key, itself in words, its origin and its meaning."""

    scope: str
    key: str
    value: str
    origin: str
    where: str = ""
    says: str = ""

    def as_dict(self) -> dict[str, str]:
        """The row as JSON has it."""
        return asdict(self)


def rows(agreement: Agreement) -> tuple[Row, ...]:
    """All rows: who and when, what holds both ways, then what differs by direction or action.

    Nothing is left out: a value that was not set is there with the origin `default`.
    """
    found = [_fact(value) for value in agreement.values]
    found += [_row(EVERYWHERE, value) for value in agreement.sending.values]
    found += _differing(agreement.receiving, agreement.sending)
    for binding in agreement.actions:
        found += _binding_facts(binding)
        found += _differing(binding, agreement.sending)
    return tuple(found)


def _row(scope: str, value: Value) -> Row:
    key = KEYS[value.key]
    return Row(
        scope=scope,
        key=value.key,
        value=key.kind.show(value.value),
        origin=value.origin.value,
        where=value.where,
        says=key.says,
    )


def _differing(binding: ActionBinding, base: ActionBinding) -> Iterator[Row]:
    known = {value.key: value.value for value in base.values}
    for value in binding.values:
        if known[value.key] != value.value:
            yield _row(binding.label, value)


def _binding_facts(binding: ActionBinding) -> Iterator[Row]:
    facts: tuple[tuple[str, object], ...] = (
        ("from_role", binding.from_role),
        ("to_role", binding.to_role),
        ("addresses", binding.endpoints),
    )
    for key, value in facts:
        if value:
            from_cpa = any(value.origin is Origin.CPA for value in binding.values)
            yield Row(
                binding.label,
                key,
                _value_text(value),
                (Origin.CPA if from_cpa else Origin.FILE).value,
            )


def _fact(value: Value) -> Row:
    text = _value_text(value.value)
    if value.key in ("start", "end") and isinstance(value.value, int):
        text = format_instant(value.value)
    return Row(EVERYWHERE, value.key, text, value.origin.value, value.where)


def _value_text(value: Any) -> str:
    if value is None or value == () or value == "":
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(_value_text(item) for item in value)
    if isinstance(value, Endpoint):
        kind = "" if value.type.value == "allPurpose" else f" ({value.type.value})"
        return f"{value.transport} {value.address}{kind}"
    if isinstance(value, Via):
        words = [value.label, *(_value_text(endpoint) for endpoint in value.endpoints)]
        if value.longest_retry is not None:
            words.append(f"gives up after {format_duration(value.longest_retry)}")
        if value.sync_timeout is not None:
            words.append(f"waits {format_duration(value.sync_timeout)} for a synchronous reply")
        return ", ".join(words)
    if isinstance(value, PartyId):
        return value.spelled
    return str(value) if isinstance(value, str | int) else repr(value)
