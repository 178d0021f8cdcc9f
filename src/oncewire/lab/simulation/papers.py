"""Papers: the agreements of a world, one paper for each side.

Every agreement is the tables of an agreement file, read as those of any file are, so a world uses
none that a file could not hold.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from oncewire.agreement.agreement import ActionBinding, Agreement, Requested
from oncewire.agreement.check import Severity
from oncewire.agreement.check.dangers import check
from oncewire.agreement.toml import read_tables
from oncewire.errors import AgreementProblem
from oncewire.lab.simulation.plan import BUYER, THIRD, Said, Setting, certificate_pem
from oncewire.message.envelope import Actor
from oncewire.message.form import AckRequest, Dialect, Extension, SyncReplyMode
from oncewire.message.instant import MINUTE, Instant, format_instant
from oncewire.protocol.terms import (
    AckBundling,
    FlowMode,
    HeaderConflict,
    HopMode,
    ReceiptProvided,
    ResetRule,
    Scope,
    SyncRetries,
    Terms,
)

# --- contradictions ---
#
# Agreements that no message can be sent under, though `agreement check` finds no error. A world
# with one of them would show refusals that both parties have agreed on, and nothing else.

PATIENT = 3
"""Retries that bring a message through two hubs that ask to come back later."""

FEW = 8
"""Numbers that a stream between hubs comes round while a message waits elsewhere."""


def contradiction(agreement: Agreement) -> str:
    """Why nothing can be sent under this agreement; empty where it can."""
    binding, dialect = agreement.sending, agreement.form.dialect
    terms = binding.terms
    in_order = terms.numbered and terms.scope is Scope.CONVERSATION
    if terms.synchronous and dialect is Dialect.RM_078:
        return "rm-0.78 has no synchronous replies"
    if terms.numbered and dialect is Dialect.RM_078 and terms.reset is not ResetRule.SILENT:
        return "rm-0.78 has no Status to announce a restart with"
    if in_order and terms.synchronous:
        return "MessageOrder and SyncReply exclude each other, ordered or not"
    if in_order and dialect is not Dialect.EBMS2:
        return "the drafts have no MessageOrder"
    if in_order and not (
        terms.duplicate_elimination and terms.ack_requested is not AckRequest.NONE
    ):
        return "MessageOrder needs once and only once, and the To Party's acknowledgement"
    if in_order and (terms.numbers.first != 0 or terms.reset is not ResetRule.FIRST_MESSAGE):
        return "MessageOrder begins at 0, and only the first number carries Reset"
    return _receipts(binding) or _rules(binding, dialect) or _hop(agreement)


def _receipts(binding: ActionBinding) -> str:
    terms = binding.terms
    if terms.ack_requested is not AckRequest.NONE:
        wanted = ReceiptProvided(terms.ack_requested.value)
        if terms.receipt_provided not in (wanted, ReceiptProvided.BOTH):
            return "the receipt that is asked for is not provided"
    rides = (
        terms.ack_bundling is not AckBundling.STANDALONE
        and terms.sync_retries is SyncRetries.SAME_MESSAGE
    )
    if terms.sync_mode is SyncReplyMode.RESPONSE_ONLY and terms.runs_protocol and not rides:
        return "a response alone leaves no place for the acknowledgement"
    return ""


def _rules(binding: ActionBinding, dialect: Dialect) -> str:
    rules, terms = binding.rules, binding.terms
    refuses = terms.header_conflict is HeaderConflict.REJECT
    hop_asked = terms.hop_ack_requested is not AckRequest.NONE
    if refuses and rules.hop_ack is Requested.NEVER and hop_asked:
        return "the next handler's acknowledgement is asked for and forbidden"
    if refuses and rules.ack is not Requested.WHEN_STATED and _wrong_kind(binding):
        return "acknowledgements are signed always or never, and the other kind is asked for"
    draft = dialect is not Dialect.EBMS2
    if draft and terms.reliable and not terms.duplicate_elimination:
        return "the drafts are reliable only once and only once"
    insisted = rules.duplicate_elimination is Requested.ALWAYS
    if draft and refuses and insisted and not terms.reliable:
        return "the drafts can ask that copies are dropped of reliable messages only"
    signed = AckRequest.SIGNED in (terms.ack_requested, terms.hop_ack_requested)
    if dialect is Dialect.RM_078 and (rules.ack is not Requested.WHEN_STATED or signed):
        return "rm-0.78 cannot state what the To Party's handler is asked for"
    if refuses and rules.ack_signature is Requested.NEVER and signed:
        return "a signed acknowledgement is asked for and forbidden"
    if refuses and rules.ack is Requested.ALWAYS and not terms.runs_protocol:
        return "an acknowledgement is insisted on, and the transport gives none"
    return ""


def _wrong_kind(binding: ActionBinding) -> bool:
    """Whether what we ask for is of another kind than ack.signature allows. For the next
    handler ack.hop_request says it, and no check compares the two."""
    rules, terms = binding.rules, binding.terms
    at_end = rules.actor is Actor.TO_PARTY_MSH
    asked = terms.ack_requested if at_end else terms.hop_ack_requested
    ruled_out = {Requested.ALWAYS: AckRequest.UNSIGNED, Requested.NEVER: AckRequest.SIGNED}
    return ruled_out.get(rules.ack_signature) is asked


def _hop(agreement: Agreement) -> str:
    terms, form = agreement.sending.terms, agreement.form
    if (
        agreement.forwards
        and terms.hop_mode is HopMode.TRANSIENT_UNTIL_FORWARDED
        and form.dialect is Dialect.EBMS2
        and Extension.TRANSIENT_ERROR not in form.extensions
    ):
        return "a hub that asks to come back later needs the extension transient_error"
    # Of two hubs each is a sender to the other, with retries of its own.
    through = agreement.via is not None or (agreement.forwards and agreement.partner.behind)
    if (
        through
        and is_slow(agreement)
        and (terms.retries < PATIENT or (terms.time_to_live or MINUTE) < MINUTE)
    ):
        return "a hub that asks to come back later needs a sender that does so, for a while"
    between = agreement.forwards and bool(agreement.partner.behind)
    if between and is_slow(agreement) and not _outlasts_two(terms):
        return "two hubs that ask to come back later, and senders that stop asking too soon"
    few = terms.numbered and terms.reset is ResetRule.SILENT and terms.numbers.size <= FEW
    if agreement.forwards and is_slow(agreement) and few:
        # v0-078 has no timestamp of the hop, so a message that waited at another handler while the
        # numbers came round looks like one of the round before.
        return "a hub that asks to come back later, and numbers that come round meanwhile"
    if agreement.via is not None and is_slow(agreement) and terms.never_repeated:
        return "a hub that asks to come back later, and a request that is never repeated"
    insists = terms.header_conflict in (HeaderConflict.AGREEMENT_WARN, HeaderConflict.REJECT)
    per_hop = terms.numbered and terms.scope is not Scope.CONVERSATION
    if agreement.via is not None and per_hop and _only_passes(agreement) and insists:
        return "a hub that only passes on gives no numbers, and the receiver insists on them"
    return ""


def _outlasts_two(terms: Terms) -> bool:
    """Whether a sender still asks when its message had to wait for another one between two hubs.

    Where they are sent one at a time, or the other one begins the stream, the hub asks for each
    of the two twice, a Timeout apart; a sender asks for the last time a Timeout and all but one
    of its RetryIntervals after it began.
    """
    alone = not terms.numbered and terms.flow is FlowMode.UNRESTRICTED
    return alone or (terms.retries - 1) * terms.retry_interval > terms.timeout


def _only_passes(agreement: Agreement) -> bool:
    """Whether hubs on the way take nothing upon themselves."""
    terms, dialect = agreement.sending.terms, agreement.form.dialect
    # rm-0.78 has no words for asking the next handler.
    asked = terms.hop_ack_requested is not AckRequest.NONE and dialect is not Dialect.RM_078
    return terms.hop_mode is HopMode.TRANSPARENT or (
        terms.hop_mode is HopMode.BY_REQUEST and not asked
    )


def believes_hubs(agreement: Agreement) -> bool:
    """Whether a sender waits for a hub's own acknowledgement, and for no other.

    A sender that asks for signatures believes nothing without one, so such a hub needs a key:
    without it nothing that is sent through it counts as delivered.
    """
    terms, form = agreement.sending.terms, agreement.form
    if agreement.via is None or _only_passes(agreement):
        return False
    told_apart = form.dialect is Dialect.EBMS2 or form.ack_typed
    return terms.ack_requested is AckRequest.NONE or not told_apart


def is_slow(agreement: Agreement) -> bool:
    """Whether hubs on the way first ask senders to come back later, and acknowledge then."""
    return agreement.sending.terms.hop_mode is HopMode.TRANSIENT_UNTIL_FORWARDED


SERVICE = "urn:sim:orders"
SMTP = "smtp"
ECDSA = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256"


@dataclass(frozen=True, slots=True)
class Paper:
    """One side of one agreement."""

    cpa_id: str
    own: str
    partner: str
    profile: str
    said: Said
    via: str | None = None
    behind: tuple[str, ...] = ()
    signed: bool = False
    end: Instant | None = None
    listed: bool = False
    unaddressed: bool = False

    @property
    def agreement(self) -> Agreement:
        """The agreement it describes; equal papers share one."""
        return _read(self)

    def amended(self, said: Said) -> Paper:
        """A copy of the paper with these values instead."""
        return replace(self, said=tuple({**dict(self.said), **dict(said)}.items()))


def cpa_id_of(partner: str) -> str:
    """How the agreement between the buyer and a partner is called."""
    return f"{BUYER}-{partner}"


def papers_of(setting: Setting, node: str) -> tuple[Paper, ...]:
    """The papers one node has in the beginning."""
    if node in setting.way:
        return _hub_papers(setting, node)
    partners = [end for end in setting.ends if end != BUYER] if node == BUYER else [BUYER]
    return tuple(_end_paper(setting, node, partner) for partner in partners)


def _end_paper(setting: Setting, own: str, partner: str) -> Paper:
    other = partner if own == BUYER else own
    direct = setting.is_direct(other)
    profile, said = setting.profile, setting.said
    if other == THIRD and setting.is_direct(THIRD):
        profile, said = setting.third_profile, setting.third_said
    via = None if direct else setting.way[0 if own == BUYER else -1]
    return Paper(cpa_id_of(other), own, partner, profile, said, via, signed=setting.signed)


def _hub_papers(setting: Setting, hub: str) -> tuple[Paper, ...]:
    way = setting.way
    place = way.index(hub)
    behind = tuple(
        each_end
        for each_end in setting.ends
        if each_end != BUYER and not setting.is_direct(each_end)
    )
    neighbours: list[tuple[str, tuple[str, ...]]] = [(BUYER, ())]
    if place > 0:
        neighbours = [(way[place - 1], (BUYER,))]
    if place + 1 < len(way):
        neighbours.append((way[place + 1], behind))
    else:
        neighbours += [(end, ()) for end in behind]
    said = tuple({**dict(setting.said), **dict(setting.hub_said)}.items())
    return tuple(
        Paper(
            "-".join(sorted((hub, other))),
            hub,
            other,
            setting.profile,
            said,
            behind=beyond,
            signed=setting.signed and setting.hub_keys,
        )
        for other, beyond in neighbours
    )


# --- text ---------------------------------------------------------------------------------------


def _side(paper: Paper, name: str, transports: tuple[str, ...]) -> dict[str, Any]:
    uri = f"http://{name}/msh"
    side: dict[str, Any] = {"party_id": f"urn:sim:{name}", "uri": uri}
    for transport in transports:
        side[transport] = f"{transport}://{name}/msh"
    if name != paper.own and paper.unaddressed:
        return {"party_id": side["party_id"], "uri": uri}
    return side


def tables_of(paper: Paper) -> dict[str, Any]:
    """The tables of the agreement file that a paper stands for."""
    values: dict[str, Any] = {"cpa_id": paper.cpa_id, "profile": paper.profile}
    if paper.own.startswith("hub"):
        values["forwards"] = True
    if paper.listed:
        values["listed_only"] = True
    if paper.end is not None:
        values["end"] = format_instant(paper.end)
    sections: dict[str, dict[str, Any]] = {}
    for key, value in paper.said:
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    transports = tuple(sections.get("delivery", {}).get("transports", ("http",)))
    sections["own"] = _side(paper, paper.own, transports)
    sections["partner"] = _side(paper, paper.partner, transports)
    if paper.behind:
        sections["partner"]["behind"] = [f"urn:sim:{party_name}" for party_name in paper.behind]
    if paper.via is not None:
        sections["via"] = _side(paper, paper.via, transports)
    if paper.signed:
        sections.setdefault("security", {}).update(
            sign=True,
            require_signature=True,
            signature_algorithm=ECDSA,
            partner_certificates=[
                certificate_pem(each_name)
                for each_name in (paper.partner, paper.via)
                if each_name is not None
            ],
        )
    values |= sections
    if paper.listed:
        values["actions"] = [{"service": "urn:sim:other", "action": "Other"}]
    tables: dict[str, Any] = json.loads(json.dumps(values))
    return tables


@lru_cache(maxsize=4096)
def _read(paper: Paper) -> Agreement:
    return read_tables(tables_of(paper))


def is_readable(paper: Paper) -> bool:
    """Whether an agreement can be read, whatever may be wrong with it."""
    try:
        return paper.agreement is not None
    except AgreementProblem:
        return False


def is_sound(paper: Paper) -> bool:
    """Whether an agreement can be read, and messages can be sent under it."""
    if not is_readable(paper):
        return False
    agreement = paper.agreement
    wrong = any(finding.severity is Severity.ERROR for finding in check(agreement))
    return not wrong and not contradiction(agreement)
