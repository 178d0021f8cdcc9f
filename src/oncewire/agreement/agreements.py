"""Agreements: all agreements of one handler, and which of them a message belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from oncewire.agreement.agreement import Agreement, PartyTerms
from oncewire.errors import (
    AgreementProblem,
    EbxmlError,
    Inconsistent,
    SoapFault,
    ValueNotRecognized,
)
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.form import Form, UnknownCpa
from oncewire.message.ids import Party, Service

CPA_ID = "//Header/MessageHeader/CPAId"
FROM = "//Header/MessageHeader/From/PartyId"
TO = "//Header/MessageHeader/To/PartyId"


@dataclass(frozen=True, slots=True)
class Found:
    """The agreement of a message, and whether we are only a hop on its way."""

    agreement: Agreement
    at_hop: bool = False


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Certificates that are no longer trusted, under any agreement."""

    certificates: frozenset[bytes]
    # Revocation lists, and the authorities that may have signed them; all DER.
    lists: tuple[bytes, ...]
    issuers: tuple[bytes, ...]


def withdrawn_in(agreements: Iterable[Agreement]) -> Withdrawn:
    """The certificates that those agreements declare as no longer trusted."""
    secured = [binding.security for agreement in agreements for binding in agreement.bindings()]
    return Withdrawn(
        frozenset(der for security in secured for der in security.revoked),
        tuple(
            dict.fromkeys(
                der for each_security in secured for der in each_security.revocation_lists
            )
        ),
        tuple(
            dict.fromkeys(der for each_security in secured for der in each_security.trust_anchors)
        ),
    )


class Agreements:
    """An unchanging collection; `form` says how messages under no agreement are answered."""

    def __init__(self, agreements: Iterable[Agreement] = (), *, form: Form | None = None) -> None:
        self._all = tuple(agreements)
        self.form = form or Form()
        self._by_id: dict[str, list[Agreement]] = {}
        for agreement in self._all:
            for name in dict.fromkeys((agreement.cpa_id, *agreement.also_known_as)):
                self._refuse_twin(name, agreement)
                self._by_id.setdefault(name, []).append(agreement)

    def _refuse_twin(self, name: str, new: Agreement) -> None:
        for old in self._by_id.get(name, ()):
            if old.own.party.shares_id_with(new.own.party) and old.partner.party.shares_id_with(
                new.partner.party
            ):
                raise AgreementProblem(
                    f"two agreements are called {name} and have the same parties",
                    key="cpa_id",
                    remedy="remove one of them, or give it another cpa_id",
                )

    def __iter__(self) -> Iterator[Agreement]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def withdrawn(self) -> Withdrawn:
        """Whom we have ceased to trust. An agreement that ends or changes leaves what is under
        way alone; a certificate that is revoked in any of them counts for nothing at once."""
        return withdrawn_in(self._all)

    def by_cpa_id(self, cpa_id: str) -> tuple[Agreement, ...]:
        """The agreements of that name; two partners may use one name, as PHINMS' `self`."""
        return tuple(self._by_id.get(cpa_id, ()))

    def between(self, own: Party, partner: Party) -> tuple[Agreement, ...]:
        """The agreements between two parties, by whatever name."""
        return tuple(
            agreement
            for agreement in self._all
            if agreement.own.is_named_by(own) and agreement.partner.is_named_by(partner)
        )

    def toward(self, party: Party, service: Service | None = None) -> Agreement | None:
        """The agreement under which a hop passes messages on to that party: who is the party or
        has it behind itself; else who takes the service; else who takes everything."""
        hops = [agreement for agreement in self._all if agreement.forwards]
        name = "" if service is None else str(service)
        for agreement in hops:
            if agreement.partner.reaches(party):
                return agreement
        for agreement in hops:
            if name in agreement.partner.behind_services:
                return agreement
        return next((agreement for agreement in hops if agreement.partner.behind_all), None)

    def find(self, message: Message, *, receiving: bool) -> Found:
        """The agreement a message is sent or received under, or the error it earns."""
        candidates = self.by_cpa_id(message.header.cpa_id)
        for agreement in candidates:
            if _fits(agreement, message, receiving=receiving):
                return Found(agreement)
        loose = self._by_parties(message, receiving=receiving)
        if loose is not None:
            return loose
        if candidates:
            raise _wrong_party(candidates, message, receiving=receiving)
        raise self._unknown(message, receiving=receiving)

    def _by_parties(self, message: Message, *, receiving: bool) -> Found | None:
        """Where the CPAId is a directory's key (NHS, PHINMS), or we are a hop (HOP-5)."""
        for agreement in self._all:
            if agreement.any_cpa_id and _fits(agreement, message, receiving=receiving):
                return Found(agreement)
        sender, receiver = message.header.from_party, message.header.to_party
        hops = [agreement for agreement in self._all if agreement.forwards]
        onward = self.toward(receiver, message.header.service)
        near = (agreement for agreement in hops if _comes_from(agreement, sender, message))
        # A party that no agreement names lies behind a partner with `behind_all`.
        far = (each for each in hops if each.partner.leads_on and each is not onward)
        before = next(near, None) or next(far, None)
        if before is not None and receiving and _is_ours(before.own, receiver, message):
            # A neighbour's signal about its own hop: no one is behind it.
            return Found(before, at_hop=True)
        if before is None or onward is None or before is onward:
            return None
        return Found(before if receiving else onward, at_hop=True)

    def _unknown(self, message: Message, *, receiving: bool) -> EbxmlError | SoapFault:
        header = message.header
        form = self.form
        for agreement in self._all:
            # A partner we know is answered in the way agreed with it.
            if agreement.partner.is_named_by(header.from_party):
                form = agreement.form
                break
        problem = f"there is no agreement {header.cpa_id}"
        remedy = "use the CPAId of the agreement, or install it"
        if receiving and form.unknown_cpa is UnknownCpa.FAULT:
            return SoapFault("Client", problem, remedy=remedy)
        return ValueNotRecognized(problem, location=CPA_ID, remedy=remedy)


def place_under(agreement: Agreement, message: Message, *, receiving: bool) -> Found:
    """A message under the one agreement it is known to run under, or the error it earns."""
    cpa_id = message.header.cpa_id
    named = agreement.any_cpa_id or cpa_id in (agreement.cpa_id, *agreement.also_known_as)
    if named and _fits(agreement, message, receiving=receiving):
        return Found(agreement)
    if agreement.forwards and _comes_from(agreement, message.header.from_party, message):
        return Found(agreement, at_hop=True)
    if named:
        raise _wrong_party((agreement,), message, receiving=receiving)
    raise Inconsistent(
        f"the message refers to one under agreement {agreement.cpa_id}, and names {cpa_id}",
        location=CPA_ID,
        remedy="name the agreement of the message that is meant",
    )


def _is_ours(side: PartyTerms, party: Party, message: Message) -> bool:
    """Whether the ids mean that side: its party, or in a signal its handler's URI."""
    if side.is_named_by(party):
        return True
    return message.kind is not MessageKind.NORMAL and side.handles(party)


def _comes_from(agreement: Agreement, party: Party, message: Message) -> bool:
    return agreement.partner.reaches(party) or _is_ours(agreement.partner, party, message)


def _fits(agreement: Agreement, message: Message, *, receiving: bool) -> bool:
    sender, receiver = _ends(agreement, receiving=receiving)
    return _matches(agreement, sender, message.header.from_party, message) and _matches(
        agreement, receiver, message.header.to_party, message
    )


def _ends(agreement: Agreement, *, receiving: bool) -> tuple[PartyTerms, PartyTerms]:
    if receiving:
        return agreement.partner, agreement.own
    return agreement.own, agreement.partner


def _matches(agreement: Agreement, side: PartyTerms, party: Party, message: Message) -> bool:
    if _is_ours(side, party, message):
        return True
    if side is agreement.own or agreement.via is None or message.kind is MessageKind.NORMAL:
        return False
    if message.kind is MessageKind.ERROR:
        # Any handler on the way may find that a message cannot be delivered, and says so in
        # its own name (ERR-5, ERR-6); behind the hub there may be some we never heard of.
        return True
    # A hub acknowledges in its own name (ACK-12, HOP-11).
    via = agreement.via
    if via.party is not None and via.party.shares_id_with(party):
        return True
    return any(
        party_id.value in (via.handler_uri, *(end.address for end in via.endpoints))
        for party_id in party.ids
    )


def _wrong_party(
    candidates: tuple[Agreement, ...], message: Message, *, receiving: bool
) -> Inconsistent:
    """The agreement exists, but is between others: name the side that does not fit."""
    header = message.header
    known = [
        agreement
        for agreement in candidates
        if _matches(agreement, _ends(agreement, receiving=receiving)[0], header.from_party, message)
    ]
    if known:
        party, location = header.to_party, TO
    else:
        party, location = header.from_party, FROM
    return Inconsistent(
        f"{party} is not a party of agreement {header.cpa_id} on that side",
        location=location,
        remedy="use the PartyId and its type as the agreement has them",
    )
