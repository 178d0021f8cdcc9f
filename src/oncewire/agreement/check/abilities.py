"""Abilities: what this handler can do, and what an agreement asks for beyond that.

An agreement may name more than is built: a CPA comes from another vendor's product, and a profile
describes a community as it is. Such an agreement is read, shown and checked like any other. Where
nothing of it could be sent, `serve` and `send` refuse it; where only a part is missing, the check
names that part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from oncewire.agreement.agreement import TRANSPORTS, ActionBinding, Agreement
from oncewire.agreement.check.exposure import unknown_algorithms
from oncewire.agreement.check.finding import Danger, Severity
from oncewire.errors import AgreementProblem


@dataclass(frozen=True, slots=True)
class Abilities:
    """What is there: transports and encodings by name, algorithms by URI."""

    transports: Collection[str]
    algorithms: Collection[str]
    encodings: Collection[str] = ("gzip", "deflate")


def beyond_abilities(binding: ActionBinding, abilities: Abilities) -> Iterator[Danger]:
    """What one direction or action asks for and does not get."""
    yield from unknown_algorithms(binding, abilities.algorithms)
    yield from _transports(binding, abilities)
    terms = binding.terms
    encoding = terms.compress_encoding
    if encoding is not None and encoding not in abilities.encodings:
        yield Danger(
            Severity.ERROR,
            "payload.compress",
            f"{encoding} is not known here, so a document of more than MaxSize is refused",
            f"agree on one of {', '.join(abilities.encodings)}",
        )
    if encoding is not None and terms.max_size is None:
        yield Danger(
            Severity.HINT,
            "payload.compress",
            "nothing is compressed: only what is larger than payload.max_size is",
            "agree on payload.max_size",
        )
    if terms.max_size is not None and (not terms.reliable or terms.synchronous):
        why = "a response on the connection" if terms.synchronous else "no acknowledgements"
        yield Danger(
            Severity.HINT,
            "payload.max_size",
            f"a document of more than {terms.max_size:,} bytes is refused: with {why} nothing is "
            "sent in parts",
            "agree on a size that holds the largest document",
        )
    business = binding.business
    for key, wanted, what in (
        ("authorization_required", business.authorization_required or None, "who may send what"),
        (
            "intelligible_check",
            business.intelligible_check or None,
            "whether a document can be understood",
        ),
        (
            "time_to_acknowledge_receipt",
            business.time_to_acknowledge_receipt,
            "how soon a business signal tells of a receipt",
        ),
        (
            "time_to_acknowledge_acceptance",
            business.time_to_acknowledge_acceptance,
            "how soon a business signal tells of an acceptance",
        ),
        ("time_to_perform", business.time_to_perform, "how long a business process takes"),
        ("retry_count", business.retry_count, "how often a business process is started again"),
    ):
        if wanted is not None:
            yield Danger(
                Severity.HINT,
                f"business.{key}",
                f"no handler watches {what}: that is left to the application",
                "see that the application keeps to it",
            )


def _transports(binding: ActionBinding, abilities: Abilities) -> Iterator[Danger]:
    wanted = binding.terms.transports
    missing = [name for name in wanted if name in TRANSPORTS and name not in abilities.transports]
    if not missing:
        return
    alone = len(missing) == len(wanted)
    names, there = ", ".join(missing), ", ".join(abilities.transports)
    yield Danger(
        Severity.ERROR if alone else Severity.DANGER,
        "delivery.transports",
        f"{names} cannot be used yet" + (", so nothing can be sent" if alone else ""),
        f"agree on {there}, or set {names} up in oncewire.toml"
        + ("" if alone else f"; until then all goes over {there}"),
    )


def refuse_unable(agreement: Agreement, abilities: Abilities) -> None:
    """Refuse an agreement under which nothing could be sent or received."""
    for binding in agreement.bindings():
        if set(binding.terms.transports) & set(abilities.transports):
            return
    wanted = dict.fromkeys(
        transport for binding in agreement.bindings() for transport in binding.terms.transports
    )
    raise AgreementProblem(
        f"agreement {agreement.cpa_id} goes over {', '.join(wanted)}, which cannot be used yet",
        key="delivery.transports",
        remedy=f"agree on {', '.join(abilities.transports)}, or set {', '.join(wanted)} up in "
        "oncewire.toml",
    )
