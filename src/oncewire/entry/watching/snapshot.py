"""Snapshot: what a watcher sees of a running handler at one moment.

It is taken in one step of the handler's loop, which copies what is in memory and reads a bounded
number of rows; everything that takes longer (certificates, the files of the spool) is done by
whoever asks, in a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.certificates import facts
from oncewire.errors import HandlerFailed
from oncewire.handler.contacts import Contact
from oncewire.handler.route import peer_label
from oncewire.message.instant import SECOND, Duration, Instant
from oncewire.protocol.states import OutgoingState
from oncewire.store.records import Incident, Space, Unsettled
from oncewire.transport.budget import TurnsAway, Unserved

if TYPE_CHECKING:
    from oncewire.handler.runtime.handler import Handler

LOOKED_AT = 500
"""Unsettled messages of each state that a snapshot reads, those first that wait the longest."""

PATIENCE = 4.0
"""Seconds within which a handler that lives takes a turn."""


class PartnerSeen(Struct, frozen=True, kw_only=True):
    """One partner, as its agreements and this process know it."""

    # The label of its handler, and the PartyId by which commands find it.
    peer: str
    party_id: str
    contact: Contact
    retry_interval: Duration
    # The fullest window of its channels, and how many messages a window holds.
    window_used: int
    window_size: int
    # When the message was submitted that waits the longest for its outcome; None: none waits.
    oldest_at: Instant | None
    # None: it has none that is known here, or an agreement without an end.
    certificate_ends: Instant | None
    agreement_ends: Instant | None
    # Whether messages go to the partner itself, and not to a hub.
    direct: bool

    def is_silent(self, now: Instant, intervals: int) -> bool:
        """Whether nothing was heard of it for so many retry intervals, while attempts failed."""
        since = self.contact.silent_since
        return bool(since) and now - since >= max(intervals * self.retry_interval, SECOND)


class Snapshot(Struct, frozen=True, kw_only=True):
    """A handler that takes turns, at one moment."""

    party: str
    at: Instant
    # Which run of the handler it is.
    boot: str
    # Seconds: how late the loop was in the last minute, and how long a commit takes.
    lag: float
    commit: float
    in_flight: int
    clock_in_doubt: bool
    # The newest row of the journal.
    journal: int
    incidents: Sequence[Incident]
    # Messages that the application is offered and refuses.
    refused: int
    # Messages of strangers, or not as agreed, that were refused.
    strangers: int
    unserved: Counter[Unserved]
    partners: Sequence[PartnerSeen]
    # When our own certificate runs out; None: we have none.
    certificate_ends: Instant | None
    space: Space


class _Copied(Struct, frozen=True):
    """What the step in the handler's loop brings."""

    at: Instant
    in_doubt: bool
    agreements: Iterable[Agreement]
    contacts: dict[str, Contact]
    unsettled: Sequence[Unsettled]
    incidents: Sequence[Incident]
    journal: int
    refused: int
    unserved: Counter[Unserved]


def snapshot(handler: Handler, patience: float = PATIENCE) -> Snapshot:
    """See how a handler does; from any thread but that of its loop.

    HandlerFailed where it has failed or does not run, TimeoutError where it takes no turn.
    """
    loop = handler.event_loop
    if handler.loop.failed is not None:
        raise handler.loop.failed
    if loop is None or loop.is_closed():
        raise HandlerFailed("the handler does not run", remedy="start `oncewire serve`")
    copying = asyncio.run_coroutine_threadsafe(
        handler.loop.do("look", lambda: _copied(handler)), loop
    )
    try:
        copied = copying.result(patience)
    except TimeoutError:
        copying.cancel()
        raise TimeoutError(f"it has taken no turn for {patience:g} seconds") from None
    return _made(handler, copied)


def look(handler: Handler) -> Snapshot:
    """The same in the thread of the handler's loop, between two of its turns."""
    return _made(handler, handler.loop.look(lambda: _copied(handler)))


def _copied(handler: Handler) -> _Copied:
    context = handler.engine.context
    with context.store.reader() as reader:
        unsettled = reader.oldest_unsettled(LOOKED_AT)
        incidents, journal = reader.incidents(), reader.last_seq()
    unserved: Counter[Unserved] = Counter()
    for transport in handler.transports.values():
        if isinstance(transport, TurnsAway):
            unserved.update(transport.unserved())
    contacts = {
        peer: replace(contact, outcomes=contact.outcomes.copy(), unsent={})
        for peer, contact in context.state.contacts.all()
    }
    return _Copied(
        context.now(),
        context.in_doubt,
        context.agreements,
        contacts,
        unsettled,
        incidents,
        journal,
        len(handler.refusals()),
        unserved,
    )


def _made(handler: Handler, copied: _Copied) -> Snapshot:
    context = handler.engine.context
    keys = context.keys
    return Snapshot(
        party=context.name,
        at=copied.at,
        boot=context.boot,
        lag=handler.supervisor.lag,
        commit=context.store.durable_seconds,
        in_flight=len(context.state.in_flight),
        clock_in_doubt=copied.in_doubt,
        journal=copied.journal,
        incidents=copied.incidents,
        refused=copied.refused,
        strangers=context.state.refusals.total,
        unserved=copied.unserved,
        partners=list(_partners(copied)),
        certificate_ends=None
        if keys is None
        else int(keys.certificate.not_valid_after_utc.timestamp()) * SECOND,
        space=context.store.space(),
    )


def _partners(copied: _Copied) -> Iterable[PartnerSeen]:
    """One for each handler that agreements lead to, but for our own."""
    oldest: dict[str, Instant] = {}
    windows: Counter[tuple[str, str]] = Counter()
    for one in copied.unsettled:
        oldest[one.peer] = min(one.submitted_at, oldest.get(one.peer, one.submitted_at))
        if one.channel is not None and one.state is OutgoingState.OUTSTANDING:
            windows[one.peer, one.channel] += 1
    fullest: dict[str, int] = {}
    for (peer, _), used in windows.items():
        fullest[peer] = max(used, fullest.get(peer, 0))
    agreed: dict[str, list[Agreement]] = {}
    for agreement in copied.agreements:
        if agreement.own.party.ids != agreement.partner.party.ids:
            agreed.setdefault(peer_label(agreement), []).append(agreement)
    for peer, deals in agreed.items():
        terms = deals[0].sending.terms
        ends = [deal.end for deal in deals if deal.end is not None]
        shown = [end for deal in deals if (end := _certificate_end(deal)) is not None]
        yield PartnerSeen(
            peer=peer,
            party_id=deals[0].partner.party.ids[0].value,
            contact=copied.contacts.get(peer) or Contact(),
            retry_interval=terms.retry_interval,
            window_used=fullest.get(peer, 0),
            window_size=terms.window_size,
            oldest_at=oldest.get(peer),
            certificate_ends=min(shown, default=None),
            # One that was agreed anew may overlap the one before.
            agreement_ends=None if len(ends) < len(deals) else max(ends),
            direct=all(deal.via is None for deal in deals),
        )


def _certificate_end(agreement: Agreement) -> Instant | None:
    """When the partner cannot prove any more who it is. During a roll-over two are valid at once,
    and the older one may run out."""
    partner = agreement.partner
    signs = agreement.receiving.security.partner_certificates
    kinds = (partner.certificates, partner.signing_certificates, signs)
    lasts = [max(filter(None, map(_not_after, ders)), default=None) for ders in kinds]
    return min((last for last in lasts if last is not None), default=None)


@lru_cache(maxsize=4096)
def _not_after(der: bytes) -> Instant | None:
    known = facts(der)
    return None if known is None else known.not_after
