"""Dangers that only show when two hops are looked at together (gap 11)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.check.finding import Danger, Severity
from oncewire.message.header import AckRequest, SyncReplyMode
from oncewire.message.instant import Duration, format_duration
from oncewire.protocol.terms import HopMode, Terms


def via_dangers(agreement: Agreement) -> Iterator[Danger]:
    """Our hop to a hub against the hub's onward hop, as far as we were told of it (SYNC-20)."""
    via = agreement.via
    if via is None:
        return
    for binding in (agreement.sending, *agreement.actions):
        terms = binding.terms
        if via.longest_retry is not None and _waits_for_the_end(terms):
            yield from _outer_and_inner(terms.timeout, via.longest_retry, via.label)
        if via.sync_timeout is not None and terms.synchronous:
            yield from _connections(terms.sync_timeout, via.sync_timeout, via.label)
        if terms.synchronous and terms.reliable:
            yield Danger(
                Severity.HINT,
                "sync.mode",
                "synchronous replies through a hub suit what is not critical; a broken "
                "connection anywhere ends them",
                "ask for acknowledgements here only where non-repudiation needs them",
            )


def hub_dangers(agreements: Iterable[Agreement]) -> Iterator[tuple[str, Danger]]:
    """We are the hub: each partner that sends to us against each that we send on to."""
    hubs = [agreement for agreement in agreements if agreement.forwards]
    for before in hubs:
        for onward in hubs:
            if before is onward:
                continue
            outer, inner = before.receiving.terms, onward.sending.terms
            name = onward.partner.party.ids[0].value
            found: list[Danger] = []
            if _waits_for_the_end(outer):
                found += _outer_and_inner(outer.timeout, inner.longest_retry, name)
            if SyncReplyMode.NONE not in (outer.sync_mode, inner.sync_mode):
                found += _connections(outer.sync_timeout, inner.sync_timeout, name)
            for danger in found:
                yield before.cpa_id, danger


def _waits_for_the_end(terms: Terms) -> bool:
    """Whether the sender's timer runs until the far end answers, not only the hub."""
    if not terms.runs_protocol:
        return False
    if terms.ack_requested is not AckRequest.NONE:
        return True
    return terms.hop_mode in (HopMode.TRANSPARENT, HopMode.TRANSIENT_UNTIL_FORWARDED)


def _outer_and_inner(outer: Duration, inner: Duration, name: str) -> Iterator[Danger]:
    if outer <= inner:
        yield Danger(
            Severity.DANGER,
            "delivery.timeout",
            f"the sender resends after {format_duration(outer)}, while {name} may still be "
            f"retrying for {format_duration(inner)}; every resend adds to the load",
            f"wait longer than {format_duration(inner)} before the first resend",
        )


def _connections(outer: Duration, inner: Duration, name: str) -> Iterator[Danger]:
    if inner >= outer:
        yield Danger(
            Severity.DANGER,
            "sync.timeout",
            f"the connection is held for {format_duration(outer)}, but the one beyond {name} "
            f"for {format_duration(inner)}; replies come after the sender has left",
            f"hold it longer than {format_duration(inner)}",
        )
