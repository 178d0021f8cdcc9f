"""For every key of an agreement a case in which another value of it is another behaviour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from oncewire.agreement.agreement import TRANSPORTS
from oncewire.handler.context import Keys
from tests.agreement.cppa.test_cppa import cpa
from tests.handler import scenes
from tests.handler.network import Network
from tests.handler.scenes import Said, fingerprint, identity, paper, stripped

DRAFT: Said = {"profile": "ms-0.9x"}
WINDOW: Said = {"profile": "window"}
BY_TRANSPORT = b'<RoutingHeader reliableMessagingMethod="Transport">'
NUMBERED: Said = {"sequence.numbered": True}
SYNC: Said = {"sync.mode": "signalsAndResponse", "duplicate.elimination": "always"}
OTHERS = tuple(way for way in TRANSPORTS if way != "http")
MAIL: Said = {"own.smtp": "mailto:own@test", "partner.smtp": "mailto:partner@test"}


@dataclass(frozen=True)
class Case:
    """One key, another value for it, and where that shows."""

    key: str
    value: Any
    scene: Callable[[Network], None] = scenes.exchange
    # What is agreed besides, on both sides, and on one of them alone.
    base: Said = field(default_factory=dict)
    alpha: Said = field(default_factory=dict)
    beta: Said = field(default_factory=dict)
    # Whose agreement has the other value.
    at: tuple[str, ...] = ("alpha", "beta")
    stage: Callable[..., Network] | None = None

    @property
    def change(self) -> Said:
        """The other value, where the agreement has it; an action's stands in its entry."""
        name = "actions" if self.key.startswith("actions.") else self.key
        return {name: self.value}

    def play(self, change: Said) -> list[str]:
        make = self.stage or plain
        said = {
            name: [self.base, own, change if name in self.at else {}]
            for name, own in (("alpha", self.alpha), ("beta", self.beta), ("hub", {}))
        }
        stage = make(said)
        self.scene(stage)
        return fingerprint(stage)


def plain(said: dict[str, list[Said]]) -> Network:
    """alpha and beta, and nobody between them."""
    return scenes.stage(
        {
            "alpha": [paper("alpha", "beta", *said["alpha"])],
            "beta": [paper("beta", "alpha", *said["beta"])],
        }
    )


def through_hub(said: dict[str, list[Said]]) -> Network:
    """alpha and beta, and a hub that passes on what they send."""
    uri = "http://hub/msh"
    via: Said = {"via.party_id": "urn:test:hub", "via.uri": uri, "via.http": uri}
    return scenes.stage(
        {
            "alpha": [paper("alpha", "beta", via, *said["alpha"])],
            "beta": [paper("beta", "alpha", via, *said["beta"])],
            "hub": [
                paper("hub", name, {"cpa_id": f"hub-{name}", "forwards": True}, *said["hub"])
                for name in ("alpha", "beta")
            ],
        }
    )


def beyond_a_gate(said: dict[str, list[Said]]) -> Network:
    """The hub knows beta only as somebody behind a gate, whose address beta has."""
    uri = "http://beta/msh"
    gate: Said = {"cpa_id": "hub-gate", "forwards": True, "partner.uri": uri, "partner.http": uri}
    hub: Said = {"via.party_id": "urn:test:hub", "via.http": "http://hub/msh"}
    return scenes.stage(
        {
            "alpha": [paper("alpha", "beta", hub, *said["alpha"])],
            "beta": [paper("beta", "alpha", hub, *said["beta"])],
            "hub": [
                paper("hub", "alpha", {"cpa_id": "hub-alpha", "forwards": True}),
                paper("hub", "gate", gate, *said["hub"]),
            ],
        }
    )


def pem(name: str) -> str:
    return identity(name).certificate_pem.decode()


def with_keys(said: dict[str, list[Said]], signer: str = "alpha") -> Network:
    """alpha and beta with a key each, and each with the other's certificate."""
    known = {
        "alpha": {"security.partner_certificates": [pem("beta")]},
        "beta": {"security.partner_certificates": [pem("alpha")]},
    }
    return scenes.stage(
        {
            "alpha": [paper("alpha", "beta", known["alpha"], *said["alpha"])],
            "beta": [paper("beta", "alpha", known["beta"], *said["beta"])],
        },
        {
            name: Keys(identity(who).certificate, identity(who).key)
            for name, who in (("alpha", signer), ("beta", "beta"))
        },
    )


def with_issued_key(said: dict[str, list[Said]]) -> Network:
    """alpha signs with its next certificate, which the authority of its last one has issued."""
    said["beta"].insert(0, {"security.partner_certificates": [pem("gamma")]})
    return with_keys(said, "gamma's next")


@cache
def revocation_list() -> str:
    """What the authority has revoked: gamma's next certificate."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    revoked = x509.RevokedCertificateBuilder(
        identity("gamma's next").certificate.serial_number, start
    )
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(identity("authority").certificate.subject)
        .last_update(start)
        .next_update(start + timedelta(days=300))
        .add_revoked_certificate(revoked.build())
    )
    made = builder.sign(identity("authority").key, hashes.SHA256())
    return made.public_bytes(Encoding.PEM).decode()


def by_cpa(said: dict[str, list[Said]]) -> Network:
    """alpha and beta under a CPA that both import."""
    text = cpa().replace('cpaid="a-b"', 'cpaid="alpha-beta"').replace("https:", "http:")
    files = {
        "asking.xml": text.encode(),
        "plain.xml": text.replace("always", "never").encode(),
    }
    papers = {}
    for name in ("alpha", "beta"):
        file = said[name][-1].get("cpa", "asking.xml")
        papers[name] = [f'cpa = "{file}"\nown = {{party_id = "{name}", type = "urn:ex:org"}}']
    return scenes.stage(papers, load=files.__getitem__)


SIGNED: Said = {"security.sign": True, "security.require_signature": True}
CLOSED: Said = {"security.encrypt": True}
SHA1 = "http://www.w3.org/2000/09/xmldsig#"

CASES = [
    # --- delivery
    Case("delivery.reliable", False, base=DRAFT),
    Case("delivery.method", "Transport", base=DRAFT),
    Case("delivery.methods_supported", ["urn:test:another"], base=DRAFT, at=("beta",),
         scene=stripped(b"<RoutingHeader>", BY_TRANSPORT)),
    Case("delivery.timeout", 7, scenes.silence),
    Case("delivery.retries", 1, scenes.silence),
    Case("delivery.retry_interval", 17, scenes.silence, base={"delivery.timeout": 60}),
    Case("delivery.retries_counted", "total", scenes.unreachable, base=MAIL),
    Case("delivery.persist_duration", "PT2M", scenes.silence),
    Case("delivery.time_to_live", "PT100S"),
    Case("delivery.time_accuracy", "05:00", scenes.late, at=("beta",)),
    Case("delivery.transports", ["smtp", "http"], base=MAIL),
    Case("delivery.retry_faults", ["Client"], scenes.faults),
    Case("delivery.on_exhausted", "suspend_channel", scenes.silence),
    Case("delivery.header_conflict", "b", stripped(b"<eb:DuplicateElimination/>"),
         base={"duplicate.elimination": "always"}, at=("beta",)),
    Case("delivery.receipt_provided", "None", base=DRAFT, at=("beta",)),
    Case("delivery.keep", "P60D"),
    # --- acknowledgements
    Case("ack.request", "never"),
    Case("ack.signature", "always"),
    Case("ack.actor", "nextMSH"),
    Case("ack.hop", "never", alpha={"ack.hop_request": "Unsigned"}, at=("beta",)),
    Case("ack.hop_request", "Unsigned"),
    Case("ack.typed", True, base=DRAFT),
    Case("ack.bundling", "piggyback", scenes.conversation),
    Case("ack.wait", 5, scenes.conversation, base={"ack.bundling": "piggyback"}),
    # --- duplicates
    Case("duplicate.elimination", "never"),
    Case("duplicate.answer", "most_recent", scenes.copies),
    Case("duplicate.no_response", "ignore", scenes.early_copies,
         base={"ack.bundling": "piggyback"}),
    Case("best_effort.filter", True, scenes.beside),
    # --- numbers
    Case("sequence.numbered", True),
    Case("sequence.ordered", True),
    Case("sequence.range", "rm-0.78", base=WINDOW),
    Case("sequence.scope", "conversation", base=WINDOW),
    Case("sequence.on_gap", "reject", scenes.gap, base={**NUMBERED, "flow.window": 4},
         alpha={"flow.mode": "window"}, beta={"flow.mode": "stop-and-wait"}, at=("beta",)),
    Case("sequence.reset", "first-message", scenes.gap, base=WINDOW),
    Case("flow.mode", "stop-and-wait", scenes.burst, base=WINDOW),
    Case("flow.window", 2, scenes.burst, base=WINDOW),
    # --- synchronous replies
    Case("sync.mode", "signalsAndResponse", scenes.question),
    Case("sync.request", "perMessage", stripped(b"<eb:SyncReply"), base=SYNC, at=("beta",)),
    Case("sync.replies", False, scenes.strange_reference,
         base={"sync.mode": "mshSignalsOnly", "sync.request": "whenStated"}),
    Case("sync.retries", "none", scenes.question_unheard, base=SYNC),
    Case("sync.timeout", 10, scenes.question, base=SYNC),
    Case("sync.bundle", "concatenated", scenes.question,
         base={**SYNC, "ack.bundling": "standalone"}),
    Case("hop.mode", "store_and_forward", base=DRAFT, at=("hub",), stage=through_hub),
    # --- payloads and the wire
    Case("payload.index", ["//order/@id"], scenes.looked_for),
    Case("payload.max_size", 1_000, scenes.large),
    Case("payload.parts", "mid", scenes.large, base={"payload.max_size": 1_000}),
    *(Case(f"payload.{name}", value, scenes.large,
           base={"payload.max_size": 1_000, "wire.dialect": "ms-0.9x"}, at=("beta",))
      for name, value in (("max_document", 1_500), ("max_parts", 1), ("quota", 500))),
    Case("payload.max_ratio", 2, scenes.swelling,
         base={"payload.max_size": 1_000, "payload.compress": "gzip",
               "wire.extensions": ["split", "compression"]}),
    Case("payload.fragment_action", "Fragment", scenes.large,
         base={"payload.max_size": 1_000, "payload.parts": "mid"}),
    Case("wire.dialect", "ms-0.9x"),
    Case("wire.soap_action", "{service}/{action}"),
    Case("wire.soap_action_check", "strict", scenes.strange_action),
    Case("wire.validation", "enforce", scenes.broken_header),
    Case("wire.base64", "lenient", scenes.odd_base64),
    Case("wire.unknown_cpa", "fault", scenes.strange_cpa, at=("beta",)),
    Case("wire.unknown_ref", "error", scenes.strange_reference),
    Case("wire.extensions", ["hop_sequence"], base={**NUMBERED, "sequence.scope": "pair"}),
    # --- security
    Case("security.sign", True, stage=with_keys),
    Case("security.require_signature", True, at=("beta",), stage=with_keys),
    Case("security.encrypt", True, stage=with_keys),
    Case("security.signature_algorithm", "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512",
         base=SIGNED, stage=with_keys),
    Case("security.digest_algorithm", "http://www.w3.org/2001/04/xmlenc#sha512",
         base=SIGNED, stage=with_keys),
    Case("security.canonicalization", "http://www.w3.org/2001/10/xml-exc-c14n#",
         base=SIGNED, stage=with_keys),
    Case("security.encryption_syntax", "smime", base=CLOSED, stage=with_keys),
    Case("security.encryption_algorithm", "http://www.w3.org/2009/xmlenc11#aes128-gcm",
         base=CLOSED, stage=with_keys),
    Case("security.key_transport", "http://www.w3.org/2009/xmlenc11#rsa-oaep",
         base=CLOSED, stage=with_keys),
    Case("security.order", "encrypt_first", base={**SIGNED, **CLOSED}, stage=with_keys),
    Case("security.allow_rsa_1_5", True, base={**SIGNED, **CLOSED}, at=("beta",),
         alpha={"security.key_transport": "http://www.w3.org/2001/04/xmlenc#rsa-1_5"},
         stage=with_keys),
    Case("security.allow_sha1", True, stage=with_keys, at=("beta",),
         alpha={"security.allow_sha1": True},
         base={**SIGNED, "security.signature_algorithm": SHA1 + "rsa-sha1",
               "security.digest_algorithm": SHA1 + "sha1"}),
    Case("security.partner_certificates", [pem("delta")], base=SIGNED, at=("beta",),
         stage=with_keys),
    Case("security.partner_encryption_certificates", [pem("delta")], base=CLOSED, at=("alpha",),
         stage=with_keys),
    Case("security.trust_anchors", [pem("authority")], base=SIGNED, at=("beta",),
         stage=with_issued_key),
    Case("security.revocation_lists", [revocation_list()], base=SIGNED, at=("beta",),
         beta={"security.trust_anchors": [pem("authority")]}, stage=with_issued_key),
    Case("security.revoked", [pem("alpha")], base=SIGNED, at=("beta",), stage=with_keys),
    # --- the business
    Case("business.non_repudiation_of_receipt", True, stage=with_keys),
    # --- the agreement as a whole
    Case("cpa_id", "alpha-zeta", at=("beta",)),
    Case("profile", "ms-0.9x"),
    Case("cpa", "plain.xml", scenes.place, stage=by_cpa),
    Case("also_known_as", ["alpha-zeta"], scenes.strange_cpa, at=("beta",)),
    Case("any_cpa_id", True, scenes.strange_cpa, at=("beta",)),
    Case("listed_only", True),
    Case("start", "2027-01-01T00:00:00Z"),
    Case("end", "2025-01-01T00:00:00Z"),
    Case("forwards", False, at=("hub",), stage=through_hub),
    # --- the two parties
    Case("own.party_id", "urn:test:other", at=("alpha",)),
    Case("own.type", "urn:test:kind", at=("alpha",)),
    Case("own.role", "Buyer", at=("alpha",)),
    Case("own.uri", "http://alpha/other", base=DRAFT, at=("alpha",)),
    Case("own.http", "http://alpha/other", base={**DRAFT, "own.uri": None}, at=("alpha",)),
    Case("partner.party_id", "urn:test:other", at=("alpha",)),
    Case("partner.type", "urn:test:kind", at=("alpha",)),
    Case("partner.role", "Seller", at=("alpha",)),
    Case("partner.uri", "http://beta/other", base=DRAFT, at=("alpha",)),
    Case("partner.client_certificates", [pem("delta")], scenes.with_certificate, at=("beta",)),
    Case("partner.behind", ["urn:test:beta"], at=("hub",), stage=beyond_a_gate),
    Case("partner.behind_services", ["urn:test:orders"], at=("hub",), stage=beyond_a_gate),
    Case("partner.behind_all", True, at=("hub",), stage=beyond_a_gate),
    *(Case("partner.http", address, scenes.copies, at=("alpha", "beta"))
      for address in ("http://elsewhere/msh", {"request": "http://alpha/in"},
                      {"response": "http://alpha/answers", "request": "http://beta/msh"},
                      {"error": "http://alpha/errors", "allPurpose": "http://beta/msh"})),
    *(Case(f"partner.{name}", f"{name}:to@test", scenes.unreachable)
      for name in OTHERS),
    # --- a hub on the way
    Case("via.party_id", "urn:test:another", base=DRAFT, at=("alpha",), stage=through_hub),
    Case("via.type", "urn:test:kind", base={"profile": "rm-0.78"}, at=("alpha",),
         stage=through_hub),
    Case("via.uri", "http://hub/other", base=DRAFT, at=("alpha",), stage=through_hub),
    Case("via.http", "http://elsewhere/msh", at=("alpha",), stage=through_hub),
    *(Case(f"via.{name}", f"{name}:to@test", scenes.unreachable, at=("alpha",), stage=through_hub)
      for name in OTHERS),
]  # fmt: skip

# One entry for one action, and what else it says.
BILLS: Said = {"service": "urn:test:bills", "action": "Pay", "delivery": {"time_to_live": "PT5M"}}


def _entry_case(
    name: str, value: Any, at: tuple[str, ...] = ("alpha", "beta"), **base: Any
) -> Case:
    """A case of a key in [[actions]]."""
    before = BILLS | base
    after = before | {name: value}
    roles: Said = {"own.role": "Buyer", "partner.role": "Seller"}
    return Case(
        f"actions.{name}",
        [after],
        scenes.other_service,
        base={"actions": [before]},
        alpha=roles if at == ("beta",) else {},
        at=at,
    )


CASES += [
    _entry_case("direction", "receive"),
    _entry_case("service", "urn:test:others"),
    _entry_case("service_type", "urn:test:another-kind"),
    _entry_case("action", "Repay"),
    _entry_case("role", "Payer", ("alpha",)),
    _entry_case("role", "Payer", ("beta",)),
    _entry_case("partner_role", "Payer", ("alpha",)),
    _entry_case("partner_role", "Payer", ("beta",)),
    _entry_case("http", "http://beta/bills", ("alpha",)),
    *(_entry_case(name, f"{name}:to@test", ("alpha",)) for name in OTHERS),
]


@dataclass(frozen=True)
class Judged:
    """A key that no handler acts on, and which key the check names when it has this value."""

    key: str
    value: Any
    names: str
    base: Said = field(default_factory=dict)


VIA: Said = {"via.party_id": "urn:test:hub", "via.http": "https://hub/msh"}

ODD_CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"

JUDGED = [
    Judged("status", "proposed", "status"),
    Judged("payload.compress", "gzip", "payload.compress"),
    Judged("business.non_repudiation", True, "security.sign"),
    Judged("business.confidential", "persistent", "security.encrypt"),
    Judged("business.authenticated", "persistent", "security.require_signature"),
    Judged("business.tamper_proof", "persistent", "security.sign"),
    *(Judged(f"business.{name}", value, f"business.{name}") for name, value in (
        ("authorization_required", True),
        ("intelligible_check", True),
        ("time_to_acknowledge_receipt", "PT2H"),
        ("time_to_acknowledge_acceptance", "P1D"),
    )),
    Judged("business.time_to_perform", "P1D", "business.time_to_perform"),
    Judged("business.retry_count", 3, "business.retry_count"),
    Judged("own.client_certificates", ["ab" * 32], "own.client_certificates"),
    *(Judged(f"{side}.{name}", [ODD_CERTIFICATE], f"{side}.{name}")
      for side in ("own", "partner") for name in ("certificates", "signing_certificates")),
    Judged("own.behind", ["urn:test:gamma"], "own.behind"),
    Judged("own.behind_services", ["urn:test:orders"], "own.behind_services"),
    Judged("own.behind_all", True, "own.behind_all"),
    Judged("via.timeout", 100, "delivery.timeout",
           {**VIA, "via.retries": 0, "via.retry_interval": 1}),
    Judged("via.retries", 100, "delivery.timeout", {**VIA, "via.retry_interval": 60}),
    Judged("via.retry_interval", 100, "delivery.timeout", {**VIA, "via.retries": 3}),
    Judged("via.sync_timeout", 100, "sync.timeout", {**VIA, "sync.mode": "mshSignalsOnly"}),
    *(Judged(f"own.{name}", f"{name}:own@test", "delivery.transports")
      for name in OTHERS),
]  # fmt: skip

SHOWN = ("own.name", "partner.name")
"""Names for people: `agreement show` prints them, and that is all they are for."""
