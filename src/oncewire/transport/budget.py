"""Budgets: what strangers, one address, one partner and all together may take of this machine.

A peer that proved to be a partner stays known for a while, by its address or by its TLS
certificate. Every other peer is a stranger. All strangers share one budget, so that they cannot use
up that of the partners, however many they are. A request over budget waits a moment, and is then
told when to come back (429 where its own budget is used up, 503 where that of all is).

This module only counts. It knows neither sockets nor HTTP, so that every transport can use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import ipaddress
import logging
import math
import types
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic, thread_time
from typing import Any, Protocol, TypeVar, runtime_checkable

from oncewire.errors import TransportProblem
from oncewire.transport.contract import Peer, Reply

WINDOW = 60.0
"""Seconds over which processor time and refused requests are counted."""

ADDRESSES_MAX = 4096
"""Addresses that are remembered; the one that was quiet the longest is forgotten first."""

REST_FOR_EACH = 3.0
"""Seconds of rest for each second of a processor that strangers took: partners have most of it."""

REST_LEAST = 0.002
"""Seconds of rest that are worth a timer; what is shorter adds up."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """The budgets, each with its reason."""

    # Requests of strangers that are worked on at once, in all and from one address: each costs
    # some hundred kilobytes of buffers before a byte of it is read.
    strangers: int = 64
    per_address: int = 16
    # Requests of partners at once, in all and from one: more than any of ours sends.
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
    # Seconds of a processor in each minute that refused requests of one partner, known by its
    # certificate, may cost. Requests of partners that are taken have no such limit.
    processor_refused: float = 15.0
    # Refused requests in each minute, from one address.
    refusals: int = 600
    # How long a partner stays known.
    known_for: float = 3600.0


class OverBudget(TransportProblem):
    """A request is over one of its budgets; the transport answers with `status`."""

    def __init__(self, status: int, problem: str, retry_after: float) -> None:
        super().__init__(problem, remedy="come back later")
        self.status = status
        self.retry_after = max(1, math.ceil(retry_after))


class _Bucket:
    """An amount that drains over `WINDOW`."""

    __slots__ = ("_at", "_level")

    def __init__(self) -> None:
        self._level = 0.0
        self._at = 0.0

    def add(self, amount: float, limit: float, now: float) -> None:
        self._level = self._now(limit, now) + amount
        self._at = now

    def over(self, limit: float, now: float) -> float:
        """Seconds until there is room again; 0: there is room now."""
        beyond = self._now(limit, now) - limit
        return 0.0 if beyond < 0 else max(1.0, beyond * WINDOW / limit if limit else WINDOW)

    def _now(self, limit: float, now: float) -> float:
        return max(0.0, self._level - (now - self._at) * limit / WINDOW)


class _Address:
    """What one address, or the holder of one certificate, has taken."""

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
    """What all strangers, or all partners, have taken together."""

    places: int
    each: int
    spool: int
    spool_each: int
    open: int = 0
    spooled: int = 0
    # Who waits for a place, in the order in which they came.
    waiting: dict[asyncio.Future[None], _Address] = field(default_factory=dict)


class Budgets:
    """Which peers are known as partners, and what each peer has taken."""

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
        # Strangers who wait for their turn, and when the next of them has it.
        self._line = asyncio.Lock()
        self._free_at = -math.inf
        self.held = 0

    def is_known(self, peer: Peer) -> bool:
        """Whether the peer's address is a partner's, or TLS has accepted its certificate."""
        if peer.certificate is not None:
            return True
        found = self._addresses.get(address_of(peer))
        return found is not None and found.known_until > self._clock()

    def meet(self, peer: Peer) -> None:
        """Note that the peer proved to be a partner: its address is known from now on."""
        self._at(Peer(peer.address)).known_until = self._clock() + self.limits.known_for

    def refused(self, peer: Peer, seconds: float = 0.0) -> None:
        """Count a refused request of the peer, and the processor time that it took."""
        address, now = self._at(peer), self._clock()
        address.refused.add(1.0, self._refusals(known=self.is_known(peer)), now)
        if peer.certificate is not None:
            # An address may be that of others too, and they would answer for it.
            address.wasted.add(seconds, self.limits.processor_refused, now)

    def note(self, peer: Peer, reply: Reply, visit: Visit) -> None:
        """Remember a peer that proved to be a partner; count one whose request was refused."""
        if reply.known:
            self.meet(peer)
        elif reply.refused:
            self.refused(peer, visit.spent)

    async def enter(self, peer: Peer) -> Visit:
        """Let a request in, at once or after a wait; OverBudget where there is no room in time."""
        address, known = self._at(peer), self.is_known(peer)
        group = self._partners if known else self._strangers
        now = self._clock()
        wait = address.refused.over(self._refusals(known=known), now)
        if wait:
            raise OverBudget(429, "too many requests from here were refused", wait)
        wait = address.wasted.over(self.limits.processor_refused, now)
        if wait:
            raise OverBudget(429, "requests that were refused from here cost too much", wait)
        if not known:
            self._check_processor(address, now)
        if _has_place(address, group):
            _take_place(address, group)
        else:
            await self._wait(address, group)
        return Visit(self, address, group)

    def _refusals(self, *, known: bool) -> float:
        """Refused requests that a peer may make; more for partners, which can share an address."""
        return self.limits.refusals * (10.0 if known else 1.0)

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
        """A request has ended: admit the next one that waits."""
        address.open -= 1
        group.open -= 1
        for turn, waiting in group.waiting.items():
            # A request that has just given up removes itself from the line.
            if not turn.done() and _has_place(waiting, group):
                del group.waiting[turn]
                _take_place(waiting, group)
                turn.set_result(None)
                return

    def hold(self, count: int) -> bool:
        """Count bytes in memory; False: they are more than the budget."""
        self.held += count
        return self.held <= self.limits.memory

    def spend(self, address: _Address, seconds: float, *, stranger: bool) -> None:
        """Count processor time."""
        now = self._clock()
        address.processor.add(seconds, self.limits.processor_per_address, now)
        if stranger:
            self._processor.add(seconds, self.limits.processor, now)
            self._free_at = max(self._free_at, now) + seconds * REST_FOR_EACH
            self._check_processor(address, now)

    def charge(self, peer: Peer, seconds: float) -> None:
        """Count processor time that a peer cost outside of a request, or for one that has ended:
        it counts against the peer's next request."""
        with contextlib.suppress(OverBudget):
            self.spend(self._at(peer), seconds, stranger=not self.is_known(peer))

    async def turn(self, peer: Peer) -> None:
        """Wait until more may be done for a peer. A partner need not wait. A stranger waits until
        its address is within its share, and then in one line with all other strangers."""
        if self.is_known(peer):
            return
        own, limits, now = self._at(peer).processor, self.limits, self._clock
        while wait := own.over(limits.processor_per_address, now()):
            await asyncio.sleep(wait)
        async with self._line:
            while wait := self._processor.over(limits.processor, now()):
                await asyncio.sleep(wait)
            if (wait := self._free_at - now()) > REST_LEAST:
                await asyncio.sleep(wait)

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
        """End the request and give back what it took."""
        self._budgets.hold(-self._held)
        self._address.spooled -= self._spooled
        self._group.spooled -= self._spooled
        self._held = self._spooled = 0
        self._budgets.left(self._address, self._group)


@types.coroutine
def in_steps(
    work: Coroutine[Any, Any, T],
    spend: Callable[[float], None],
    turn: Callable[[], Awaitable[None]] | None = None,
) -> Generator[Any, Any, T]:
    """Do work for a peer step by step: count the processor time of each step, and wait for the
    turn of the next one where there is a `turn`."""
    go_on: Callable[[Any], Any] = work.send
    given = None
    while True:
        began = thread_time()
        try:
            awaited = go_on(given)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            go_on, given = work.send, None
            spend(thread_time() - began)
        try:
            given = yield awaited
            if turn is not None:
                yield from turn().__await__()
        except BaseException as error:  # noqa: BLE001  (it is the work's)
            go_on, given = work.throw, error


class ReaderShare:
    """What parcels may cost that others leave where we look for them: a mailbox, a folder on a
    server, a stream of a broker.

    Those who write there hold no connection to us that could be turned away, so the reader slows
    itself down. After each refused parcel it rests, for longer than that parcel took: partners
    elsewhere have most of the processor, however many forgeries lie there.
    """

    # Seconds of rest after a refusal, beside those for what it took. So there are as many in a
    # minute as one address has over HTTP (`BudgetLimits.refusals`).
    REST = 0.1
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
        """Count the outcome of a parcel; None: the bytes were no parcel."""
        if reply is not None and reply.known:
            self.known = True
        elif reply is None or reply.refused:
            self.known = False
            rest = min(self.REST + visit.spent * REST_FOR_EACH, self.REST_MAX)
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
    """The account that a request counts against: that of its TLS certificate, from whatever
    address it comes; without a certificate, that of its address."""
    if peer.certificate is None:
        return address_of(peer)
    return f"certificate {hashlib.sha256(peer.certificate).hexdigest()}"


def address_of(peer: Peer) -> str:
    """The address under which a peer is counted; for IPv6 the network of one subscriber."""
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


# Lag: how far the event loop is behind, and how many strangers come in while it is.
#
# Each step of a request waits for its turn in the loop, behind whatever everybody else wants of
# it. So when the loop is late, a partner's message is late by ten times that; and most of what a
# stranger costs is his connection, before there is a request that a budget could count. While the
# loop is late, strangers are sent away as they come, all but a few: one of them may be a partner
# who is not known yet, and the machine may be slow for other reasons than these.


BEAT = 0.05
"""Seconds between two looks at the event loop."""

FEW = 20.0
"""Strangers that are let in each second, however late the event loop is."""


class Lag:
    """Measures how late the event loop is, by the delay of a steady timer."""

    def __init__(self, late: float) -> None:
        # Seconds beyond its time after which a look says that the loop is late.
        self._bound = late
        self._beat: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._late = 0.0
        self._few = FEW
        self._counted_at = 0.0

    def start(self) -> None:
        """Start the timer."""
        self._counted_at = asyncio.get_running_loop().time()
        self._wait()

    def stop(self) -> None:
        """Stop the timer."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + BEAT
        self._beat = loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self.saw(asyncio.get_running_loop().time() - self._due)
        self._wait()

    def saw(self, late: float) -> None:
        """Note how late a look at the loop came. After a late one the figure only halves with each
        look in time: the next one may be late again."""
        self._late = max(late, self._late / 2)

    @property
    def is_late(self) -> bool:
        """Whether the event loop is so far behind that its work waits too long."""
        return self._late > self._bound

    def takes_stranger(self, now: float) -> bool:
        """Whether one more stranger may come in now."""
        self._few = min(FEW, self._few + max(0.0, now - self._counted_at) * FEW)
        self._counted_at = now
        if self._few >= 1.0:
            self._few -= 1.0
            return True
        return not self.is_late


# Turned away: who was told to come back later, and why, said once and then now and then.
#
# Strangers are sent away all day long, which a line of the log tells. The documents of a partner
# that is sent away wait, so the operator is called.


log = logging.getLogger("oncewire.transport.listener")

AGAIN = 60.0
"""Seconds until the same problem is logged again, with the number of repeats meanwhile."""

PROBLEMS_MAX = 64

Call = Callable[[str], None]
"""Called with the reason why partners are sent away."""


class Unserved(StrEnum):
    """Why a peer was not served."""

    TOLD_TO_WAIT = "told_to_wait"  # it is over its own budget: 429
    BUSY = "busy"  # all are over theirs together: 503
    SLOW = "slow"  # its request did not come in time: 408, or no more words
    HANDSHAKE = "handshake"  # the TLS handshake failed


@runtime_checkable
class TurnsAway(Protocol):
    """A transport whose listener may send partners away."""

    def on_turned_away(self, call: Call) -> None:
        """Set what is called when it does."""

    def unserved(self) -> Counter[Unserved]:
        """How many were not served since it was made."""


class Seldom:
    """Limits log lines that strangers can cause at will to one a minute for each kind."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told: dict[object, tuple[float, int]] = {}

    def again(self, what: object) -> int | None:
        """Count one more of its kind. Returns how many were not told since the last line; None:
        this one is not told either."""
        now = self._now()
        at, repeats = self._told.get(what, (now - AGAIN, 0))
        if now - at < AGAIN:
            self._told[what] = at, repeats + 1
            return None
        if len(self._told) >= PROBLEMS_MAX:
            self._told.clear()
        self._told[what] = now, 0
        return repeats


class TurnedAway:
    """Counts peers that were sent away, and tells of each reason at most once a minute."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._seldom = Seldom(now)
        # Called when a partner is sent away; None: only the log tells of it.
        self.call: Call | None = None
        self.counts: Counter[Unserved] = Counter()

    def count(self, peer: Peer, problem: str, *, known: bool, status: int = 503) -> None:
        """Count one peer that was sent away, by its HTTP status or what stands for it."""
        self.counts[Unserved.TOLD_TO_WAIT if status == 429 else Unserved.BUSY] += 1
        repeats = self._seldom.again((known, problem))
        if repeats is None:
            return
        facts = {"problem": problem, "address": address_of(peer), "repeats": repeats}
        if not known:
            log.warning("strangers are sent away for a while", extra=facts)
            return
        log.error("partners are sent away for a while", extra=facts)
        if self.call is not None:
            self.call(f"partners are sent away: {problem}; the last from {address_of(peer)}")


# Handshakes: TLS handshakes that failed, logged once for each address and hour.
#
# A peer whose handshake fails never says who it is. It may be a partner whose certificate has
# expired, so the operator should read of it; it may be a scanner, so he should not read of it
# often.


HOUR = 3600.0

HANDSHAKE_ADDRESSES_MAX = 256
"""Addresses that are counted apart; in an hour with more, the others are counted as one."""

_OTHERS = "others"


@dataclass(slots=True)
class _Told:
    at: float
    since: int = 0


class Handshakes:
    """Counts TLS handshakes that failed."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told: dict[str, _Told] = {}

    def failed(self, peer: Peer, error: BaseException) -> None:
        """Count one failed handshake, and log it if its address has none logged in this hour."""
        now, address = self._now(), address_of(peer)
        if address not in self._told and len(self._told) >= HANDSHAKE_ADDRESSES_MAX:
            self._told = {one: told for one, told in self._told.items() if now - told.at < HOUR}
            if len(self._told) >= HANDSHAKE_ADDRESSES_MAX:
                address = _OTHERS
        told = self._told.get(address)
        if told is not None and now - told.at < HOUR:
            told.since += 1
            return
        self._told[address] = _Told(now)
        repeats = told.since if told is not None else 0
        facts = {"address": address, "problem": _reason(error), "repeats": repeats}
        log.warning("a connection failed before it was made: no TLS with the peer", extra=facts)


def _reason(error: BaseException) -> str:
    """OpenSSL's name of the error, or its type; nothing of what the peer sent."""
    # Not every error that has these types has been through OpenSSL, and only that fills them in.
    refused = getattr(error, "verify_message", "")
    if refused:
        return f"its certificate is not accepted: {refused}"[:200]
    reason = str(getattr(error, "reason", None) or type(error).__name__)
    return reason.lower().replace("_", " ")[:200]
