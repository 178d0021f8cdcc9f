"""Budgets: what strangers, one address, one partner and all together may take of this machine.

Whoever proved to be a partner is known for a while, by the address it came from or by its TLS
certificate. Everybody else is a stranger, and all strangers together share what is set apart for
them: however many they are, the partners' part is not theirs. Who asks for more than there is waits
a moment, and is then told when to come back (429 for his own budget, 503 for that of all).

This is bookkeeping alone. It knows neither sockets nor HTTP, so that what lies beneath may change.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from oncewire.errors import TransportProblem
from oncewire.transport.contract import Peer, Reply

WINDOW = 60.0
"""Seconds over which processor time and refused requests are counted."""

ADDRESSES_MAX = 4096
"""Addresses that are remembered; the one that was quiet the longest is forgotten first."""


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """The budgets, each with its reason."""

    # Requests of strangers that are worked on at once, in all and from one address: each costs
    # some hundred kilobytes of buffers before a byte of it is read.
    strangers: int = 64
    per_address: int = 16
    # The same for partners: more than any of ours sends at once.
    partners: int = 512
    per_partner: int = 256
    # How long a request may wait for its turn.
    patience: float = 5.0
    # Bytes of bodies in memory, in all; beyond that even small bodies go to the disk.
    memory: int = 64 * 1024**2
    # Bytes of bodies on the disk that are not stored yet. Strangers may claim half of it, because
    # a header is believed before its signature is checked.
    spool: int = 4 * 1024**3
    # Seconds of a processor in each minute that strangers may cost, in all and from one address.
    processor: float = 6.0
    processor_per_address: float = 3.0
    # The same for one partner, known by its certificate, of requests that were refused: what is
    # taken from partners may cost what it costs.
    processor_refused: float = 15.0
    # Refused requests in each minute, from one address.
    refusals: int = 600
    # How long a partner stays known.
    known_for: float = 3600.0


class OverBudget(TransportProblem):
    """Somebody wants more than there is; the transport answers with `status`."""

    def __init__(self, status: int, problem: str, retry_after: float) -> None:
        super().__init__(problem, remedy="come back later")
        self.status = status
        self.retry_after = max(1, math.ceil(retry_after))


class _Bucket:
    """An amount that runs out over `WINDOW`."""

    __slots__ = ("_at", "_level")

    def __init__(self) -> None:
        self._level = 0.0
        self._at = 0.0

    def add(self, amount: float, limit: float, now: float) -> None:
        self._level = self._now(limit, now) + amount
        self._at = now

    def over(self, limit: float, now: float) -> float:
        """Seconds until there is room again; 0: there is."""
        beyond = self._now(limit, now) - limit
        return 0.0 if beyond < 0 else max(1.0, beyond * WINDOW / limit if limit else WINDOW)

    def _now(self, limit: float, now: float) -> float:
        return max(0.0, self._level - (now - self._at) * limit / WINDOW)


class _Address:
    """What came from one address, or with one certificate."""

    __slots__ = ("known_until", "open", "processor", "refused", "spooled", "wasted")

    def __init__(self) -> None:
        self.open = 0
        self.spooled = 0
        self.processor = _Bucket()
        self.refused = _Bucket()
        self.wasted = _Bucket()
        self.known_until = -math.inf


@dataclass(slots=True)
class _Group:
    """Strangers, or partners, together."""

    places: int
    each: int
    spool: int
    spool_each: int
    open: int = 0
    spooled: int = 0
    # Who waits for a place, in the order in which they came.
    waiting: dict[asyncio.Future[None], _Address] = field(default_factory=dict)


class Budgets:
    """Who is known, and what everybody has taken."""

    def __init__(
        self, limits: BudgetLimits | None = None, clock: Callable[[], float] | None = None
    ) -> None:
        self.limits = limits or BudgetLimits()
        self._clock = clock or monotonic
        half = self.limits.spool // 2
        self._strangers = _Group(self.limits.strangers, self.limits.per_address, half, half // 2)
        self._partners = _Group(
            self.limits.partners, self.limits.per_partner, self.limits.spool, self.limits.spool
        )
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._processor = _Bucket()
        self.held = 0

    def is_known(self, peer: Peer) -> bool:
        """Whether a partner comes from there, or shows a certificate that TLS has accepted."""
        if peer.certificate is not None:
            return True
        found = self._addresses.get(address_of(peer))
        return found is not None and found.known_until > self._clock()

    def meet(self, peer: Peer) -> None:
        """A partner proved to be there; its next connection is known by its address alone."""
        self._at(Peer(peer.address)).known_until = self._clock() + self.limits.known_for

    def refused(self, peer: Peer, seconds: float = 0.0) -> None:
        """A request from there was refused, after so many seconds of a processor."""
        address, now = self._at(peer), self._clock()
        address.refused.add(1.0, self._refusals(peer), now)
        if peer.certificate is not None:
            # An address may be that of others too, and they would answer for it.
            address.wasted.add(seconds, self.limits.processor_refused, now)

    def note(self, peer: Peer, reply: Reply, visit: Visit) -> None:
        """Who proved to be a partner is known from now on; who was refused is counted."""
        if reply.known:
            self.meet(peer)
        elif reply.refused:
            self.refused(peer, visit.spent)

    async def enter(self, peer: Peer) -> Visit:
        """Let a request in, at once or when it is its turn; OverBudget where it is not."""
        address, known = self._at(peer), self.is_known(peer)
        group = self._partners if known else self._strangers
        self._check(peer, address, known=known)
        if _has_place(address, group):
            _take_place(address, group)
        else:
            await self._wait(address, group)
        return Visit(self, address, group)

    def _check(self, peer: Peer, address: _Address, *, known: bool) -> None:
        now = self._clock()
        wait = address.refused.over(self._refusals(peer), now)
        if wait:
            raise OverBudget(429, "too many requests from here were refused", wait)
        wait = address.wasted.over(self.limits.processor_refused, now)
        if wait:
            raise OverBudget(429, "requests that were refused from here cost too much", wait)
        if not known:
            self._check_processor(address, now)

    def _refusals(self, peer: Peer) -> float:
        """A partner may be wrong more often: many can come from one address."""
        return self.limits.refusals * (10.0 if self.is_known(peer) else 1.0)

    async def _wait(self, address: _Address, group: _Group) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group.waiting[turn] = address
        try:
            async with asyncio.timeout(self.limits.patience):
                await turn
        except BaseException as gone:
            if group.waiting.pop(turn, None) is None:
                # A place was kept for it in the very moment it left.
                self.left(address, group)
            if isinstance(gone, TimeoutError):
                own = address.open >= group.each
                problem = "too many requests at once"
                raise OverBudget(429 if own else 503, problem, self.limits.patience) from None
            raise

    def left(self, address: _Address, group: _Group) -> None:
        """A request is over: somebody who waits may come in."""
        address.open -= 1
        group.open -= 1
        for turn, waiting in group.waiting.items():
            # Who has just given up takes himself out of the line in his own turn.
            if not turn.done() and _has_place(waiting, group):
                del group.waiting[turn]
                _take_place(waiting, group)
                turn.set_result(None)
                return

    def hold(self, count: int) -> bool:
        """Count bytes in memory; False: more than there should be."""
        self.held += count
        return self.held <= self.limits.memory

    def spend(self, address: _Address, seconds: float, *, stranger: bool) -> None:
        """Count time of a processor."""
        now = self._clock()
        address.processor.add(seconds, self.limits.processor_per_address, now)
        if stranger:
            self._processor.add(seconds, self.limits.processor, now)
            self._check_processor(address, now)

    def _check_processor(self, address: _Address, now: float) -> None:
        wait = address.processor.over(self.limits.processor_per_address, now)
        if wait:
            raise OverBudget(429, "requests from here cost too much", wait)
        wait = self._processor.over(self.limits.processor, now)
        if wait:
            raise OverBudget(503, "this endpoint is busy", wait)

    def is_stranger(self, group: _Group) -> bool:
        """Whether a request came in as a stranger's."""
        return group is self._strangers

    def _at(self, peer: Peer) -> _Address:
        name = _account(peer)
        found = self._addresses.get(name)
        if found is None:
            found = self._addresses[name] = _Address()
            self._forget()
        self._addresses.move_to_end(name)
        return found

    def _forget(self) -> None:
        for name in list(self._addresses)[:-1]:
            if len(self._addresses) <= ADDRESSES_MAX:
                return
            if not self._addresses[name].open:
                del self._addresses[name]


class Visit:
    """One request's allowance; see `contract.Allowance`. It is given back by `leave`."""

    __slots__ = ("_address", "_budgets", "_group", "_held", "_spooled", "spent")

    def __init__(self, budgets: Budgets, address: _Address, group: _Group) -> None:
        self._budgets, self._address, self._group = budgets, address, group
        self._held = self._spooled = 0
        # Seconds of a processor so far.
        self.spent = 0.0

    @property
    def is_strangers(self) -> bool:
        """See `contract.Allowance`."""
        return self._budgets.is_stranger(self._group)

    def hold(self, count: int) -> bool:
        """See `contract.Allowance`."""
        self._held += count
        return self._budgets.hold(count)

    def spool(self, count: int) -> None:
        """See `contract.Allowance`."""
        address, group = self._address, self._group
        self._spooled += count
        address.spooled += count
        group.spooled += count
        if address.spooled > group.spool_each:
            raise OverBudget(429, "too much comes from here at once", WINDOW)
        if group.spooled > group.spool:
            raise OverBudget(503, "too much comes at once", WINDOW)

    def spend(self, seconds: float) -> None:
        """See `contract.Allowance`."""
        self.spent += seconds
        self._budgets.spend(self._address, seconds, stranger=self.is_strangers)

    def leave(self) -> None:
        """The request is over."""
        self._budgets.hold(-self._held)
        self._address.spooled -= self._spooled
        self._group.spooled -= self._spooled
        self._held = self._spooled = 0
        self._budgets.left(self._address, self._group)


class ReaderShare:
    """What parcels may cost that others leave where we look for them: a mailbox, a folder on a
    server, a stream of a broker.

    Whoever can write there is nobody's guest here, so there is nobody to turn away; the reader
    itself takes its time. After each parcel that was refused it rests, for longer than that took:
    partners elsewhere have most of the processor, however many forgeries lie there.
    """

    # Seconds of rest after a refusal, and for each second of a processor that it took. So there are
    # as many in a minute as one address has over HTTP (`BudgetLimits.refusals`).
    REST = 0.1
    REST_FOR_EACH = 3.0
    REST_MAX = 5.0
    # Bytes of bodies in memory; beyond that even small bodies go to the disk.
    MEMORY = 16 * 1024**2

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or monotonic
        self._free_at = -math.inf
        self.held = 0
        # Whether the last parcel that said whose it is was a partner's.
        self.known = False

    async def turn(self) -> None:
        """Wait until the next parcel may be looked at."""
        wait = self._free_at - self._clock()
        if wait > 0:
            await asyncio.sleep(min(wait, self.REST_MAX))

    def note(self, reply: Reply | None, visit: ReaderVisit) -> None:
        """What became of a parcel; None: it was none."""
        if reply is not None and reply.known:
            self.known = True
        elif reply is None or reply.refused:
            self.known = False
            rest = min(self.REST + visit.spent * self.REST_FOR_EACH, self.REST_MAX)
            self._free_at = max(self._free_at, self._clock()) + rest


class ReaderVisit:
    """The allowance of one parcel that a reader found; see `contract.Allowance`."""

    __slots__ = ("_held", "_share", "is_strangers", "spent")

    def __init__(self, share: ReaderShare) -> None:
        self._share, self._held = share, 0
        self.is_strangers = not share.known
        # Seconds of a processor so far.
        self.spent = 0.0

    def __enter__(self) -> ReaderVisit:
        return self

    def __exit__(self, *_: object) -> None:
        self._share.held -= self._held

    def hold(self, count: int) -> bool:
        """See `contract.Allowance`."""
        self._held += count
        self._share.held += count
        return self._share.held <= ReaderShare.MEMORY

    def spool(self, _count: int) -> None:
        """See `contract.Allowance`. A reader takes a few at once, each as large as is agreed."""

    def spend(self, seconds: float) -> None:
        """See `contract.Allowance`."""
        self.spent += seconds


def _has_place(address: _Address, group: _Group) -> bool:
    return group.open < group.places and address.open < group.each


def _take_place(address: _Address, group: _Group) -> None:
    address.open += 1
    group.open += 1


def _account(peer: Peer) -> str:
    """Whose budgets a request counts against: a certificate's owner has one share wherever he
    comes from, and shares it with nobody who comes from there too."""
    if peer.certificate is None:
        return address_of(peer)
    return f"certificate {hashlib.sha256(peer.certificate).hexdigest()}"


def address_of(peer: Peer) -> str:
    """Where a peer counts: its address, or the network that one holder of IPv6 is given."""
    return _place(peer.address)


@functools.lru_cache(maxsize=ADDRESSES_MAX)
def _place(address: str) -> str:
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv6Address):
        if known.ipv4_mapped is not None:
            return str(known.ipv4_mapped)
        return str(ipaddress.ip_network((known, 64), strict=False))
    return str(known)
