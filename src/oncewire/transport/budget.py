"""Budgets: what strangers, one address, one partner and all together may take of this machine.

Whoever proved to be a partner is known for a while, by the address it came from or by its TLS
certificate. Everybody else is a stranger, and all strangers together share what is set apart for
them: however many they are, the partners' part is not theirs. Who asks for more than there is waits
a moment, and is then told when to come back (429 for his own budget, 503 for that of all).

This is bookkeeping alone. It knows neither sockets nor HTTP, so that what lies beneath may change.
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
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass, field
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
        # Strangers who wait for their turn, and when the next of them has it.
        self._line = asyncio.Lock()
        self._free_at = -math.inf
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
        address.refused.add(1.0, self._refusals(known=self.is_known(peer)), now)
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
        self._check(address, known=known)
        if _has_place(address, group):
            _take_place(address, group)
        else:
            await self._wait(address, group)
        return Visit(self, address, group)

    def _check(self, address: _Address, *, known: bool) -> None:
        now = self._clock()
        wait = address.refused.over(self._refusals(known=known), now)
        if wait:
            raise OverBudget(429, "too many requests from here were refused", wait)
        wait = address.wasted.over(self.limits.processor_refused, now)
        if wait:
            raise OverBudget(429, "requests that were refused from here cost too much", wait)
        if not known:
            self._check_processor(address, now)

    def _refusals(self, *, known: bool) -> float:
        """A partner may be wrong more often: many can come from one address."""
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
            self._free_at = max(self._free_at, now) + seconds * REST_FOR_EACH
            self._check_processor(address, now)

    def charge(self, peer: Peer, seconds: float) -> None:
        """Count time of a processor that somebody cost beside his requests, or for one that is
        over: it counts against whatever comes next."""
        with contextlib.suppress(OverBudget):
            self.spend(self._at(peer), seconds, stranger=not self.is_known(peer))

    async def turn(self, peer: Peer) -> None:
        """Wait until more may be done for somebody. A partner need not; a stranger waits while
        his address has had its share, and then behind all others, who rest between two turns."""
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
        """The request is over."""
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
    """Do some work for somebody: what each step of it costs is spent, and the next one waits for
    its turn, if it must."""
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

    Whoever can write there is nobody's guest here, so there is nobody to turn away; the reader
    itself takes its time. After each parcel that was refused it rests, for longer than that took:
    partners elsewhere have most of the processor, however many forgeries lie there.
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
        """What became of a parcel; None: it was none."""
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


# Lag: how far the event loop is behind, and how many strangers come in while it is.
#
# Each step of a request waits for its turn in the loop, behind whatever everybody else wants of
# it. So when the loop is late, a partner's message is late by ten times that; and most of what a
# stranger costs is his connection, before there is a request that a budget could count. While the
# loop is late, strangers are sent away as they come, all but a few: one of them may be a partner
# who is not known yet, and the machine may be slow for other reasons than these.


BEAT = 0.05
"""Seconds between two looks."""

FEW = 20.0
"""Strangers that come in each second however late it is."""


class Lag:
    """Looks at the clock again and again; the looks that come late tell."""

    def __init__(self, late: float) -> None:
        # Seconds beyond its time after which a look says that the loop is late.
        self._bound = late
        self._beat: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._late = 0.0
        self._few = FEW
        self._counted_at = 0.0

    def start(self) -> None:
        """Begin to look."""
        self._counted_at = asyncio.get_running_loop().time()
        self._wait()

    def stop(self) -> None:
        """Look no more."""
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
        """A look came so late. One that came in time does not mean that the next one will."""
        self._late = max(late, self._late / 2)

    @property
    def is_late(self) -> bool:
        """Whether whoever waits for the loop waits too long."""
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
# Strangers are sent away all day long, and nobody need get up for that: a line of the log tells of
# them. A partner that is sent away is one whose documents wait, so whoever looks after the handler
# is called.


log = logging.getLogger("oncewire.transport.listener")

AGAIN = 60.0
"""Seconds until the same is told again, with how often it came meanwhile."""

PROBLEMS_MAX = 64

Call = Callable[[str], None]
"""Hears why partners are sent away."""


@runtime_checkable
class TurnsAway(Protocol):
    """A transport whose listener may send partners away."""

    def on_turned_away(self, call: Call) -> None:
        """Have somebody called when it does."""


class Seldom:
    """What strangers can cause at will, told at most once a minute."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told: dict[object, tuple[float, int]] = {}

    def again(self, what: object) -> int | None:
        """It happened once more. How often it was not told since the last time; None: it is not
        told this time either."""
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
    """Counts them, and tells of each reason at most once a minute."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._seldom = Seldom(now)
        # Who is called for partners; nobody: the log alone tells of them.
        self.call: Call | None = None

    def count(self, peer: Peer, problem: str, *, known: bool) -> None:
        """One more was sent away."""
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


# Handshakes: connections that never came to be, told of once for each address and hour.
#
# Who cannot agree with us on TLS never gets to say who he is. It may be a partner whose
# certificate has run out, so somebody should hear of it; it may be a scanner, so he should not
# hear of it often.


HOUR = 3600.0

HANDSHAKE_ADDRESSES_MAX = 256
"""Addresses that are told apart; those that come after them in an hour are told of as one."""

_OTHERS = "others"


@dataclass(slots=True)
class _Told:
    at: float
    since: int = 0


class Handshakes:
    """Counts those that failed."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told: dict[str, _Told] = {}

    def failed(self, peer: Peer, error: BaseException) -> None:
        """One more came to nothing."""
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
    """What OpenSSL calls it, or what kind of error it was; nothing of what the peer sent."""
    # Not every error that has these types has been through OpenSSL, and only that fills them in.
    refused = getattr(error, "verify_message", "")
    if refused:
        return f"its certificate is not accepted: {refused}"[:200]
    reason = str(getattr(error, "reason", None) or type(error).__name__)
    return reason.lower().replace("_", " ")[:200]
