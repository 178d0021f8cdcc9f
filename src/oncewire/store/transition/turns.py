"""TransactionManager: transitions one after the other, each undoable alone, one commit for all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType

from oncewire.errors import NotAllowed, StoreFull, StoreGone, StoreProblem
from oncewire.message.instant import Instant
from oncewire.store.contract import Fellows, Transaction
from oncewire.store.transition.backend import FOR_EVER
from oncewire.store.transition.transaction import WorkTransaction
from oncewire.store.transition.work import UnitOfWork

REMEMBERED_COMMITS = 8
"""Number of the last commits that `durable_seconds` goes by."""

MARK_EVERY = 10.0
"""Seconds of work after which the store's mark is noted again."""


class TransactionManager(ABC):
    """The part of `contract.Store` that is the same on every backend."""

    fellows: Fellows | None = None

    def __init__(self) -> None:
        self._open: AbstractContextManager[Transaction] | None = None
        self._work: UnitOfWork | None = None
        # A failure inside a transition lost what was kept before it; commit() has to say so.
        self._lost: StoreProblem | None = None
        # Whether transitions that change nothing keep the turn for the next one.
        self._one_turn = False
        self.durable_seconds = 0.0

    @abstractmethod
    def _begin(self) -> UnitOfWork:
        """A new unit of work with nothing in memory. Raises StoreFull or StoreGone."""

    @abstractmethod
    def _abandon(self) -> None:
        """Undo everything since the last commit, and make sure that it stays undone."""

    @abstractmethod
    def _commit(self, work: UnitOfWork) -> None:
        """Write what changed and make it durable. Raises StoreFull or StoreGone."""

    def _learn_durable(self, seconds: float) -> None:
        """Count how long a commit took."""
        self.durable_seconds += (seconds - self.durable_seconds) / REMEMBERED_COMMITS

    # --- the contract ---

    def pending(self) -> bool:
        """See `contract.Store`."""
        work = self._work
        if work is None or self._lost is not None:
            return self._lost is not None
        takes_over = self.fellows is not None and self.fellows.takes_over
        return bool(work.log or work.journal or work.applied or takes_over)

    def transition(self) -> AbstractContextManager[Transaction]:
        """See `contract.Store`."""
        return _Transition(self)

    @contextmanager
    def one_turn(self) -> Iterator[None]:
        """See `contract.Store`."""
        self._one_turn = True
        try:
            yield
        finally:
            self._one_turn = False
            if self._work is not None and not self.pending():
                self._let_go(self._work)

    def commit(self) -> None:
        """See `contract.Store`."""
        if self._open is not None:
            raise NotAllowed(
                "a transition is open", remedy="leave it before committing what it did"
            )
        lost, self._lost = self._lost, None
        if lost is not None:
            raise lost
        work = self._work
        if work is None and self._wants_turn:
            work = self._begin()
        pending = self.pending()
        if work is not None and (pending or self._wants_turn):
            try:
                if not pending:
                    self._look(turn=True)
                self._commit(work)
            except BaseException:
                # Whatever it was: nothing of it happened, in memory neither.
                self._abandon()
                raise

    def next_wake(self, under_way: Collection[str] = ()) -> Instant | None:
        """See `contract.Store`."""
        work = self._work
        if work is None or not self.pending():
            work = self._look()
        if not work.complete:
            try:
                work.hold_live()
                work.fill_outgoing("due", (FOR_EVER,), 1 + len(under_way))
                work.fill_outgoing("expiring", (FOR_EVER,), 1)
                work.fill_incoming("leases", (FOR_EVER,))
            except (StoreFull, StoreGone) as error:
                self._lose(error, kept=self.pending())
                raise
        return self._earliest(work, under_way)

    def _earliest(self, work: UnitOfWork, under_way: Collection[str]) -> Instant | None:
        """The earliest timer of what is in memory."""
        sent, received = work.outgoing, work.incoming
        due = next((key for key in sent.due.keys if key[-1] not in under_way), None)
        firsts = (due, sent.expiring.first, received.leases.first)
        return min((first[0] for first in firsts if first is not None), default=None)

    @property
    def _wants_turn(self) -> bool:
        return self.fellows is not None and self.fellows.wants_turn

    # --- for its transitions ---

    def enter(self, transition: AbstractContextManager[Transaction]) -> Transaction:
        """Begin a transition."""
        if self._open is not None:
            raise NotAllowed("a transition is open already", remedy="leave it first")
        if self._lost is not None:
            raise self._lost
        work = self._work
        if work is None or not (work.log or work.journal or self.pending()):
            work = self._look(turn=True)
        work.begin()
        self._open = transition
        return WorkTransaction(work)

    def leave(
        self, transition: AbstractContextManager[Transaction], error: BaseException | None
    ) -> None:
        """End a transition: keep what it did, or undo it alone."""
        if self._open is not transition:
            # The process that began it died.
            return
        self._open = None
        work = self._work
        if work is None:
            return
        try:
            # A failure that a step swallowed is raised here.
            failure = work.backend.failure
            if failure is not None:
                raise failure
            if error is None:
                work.keep()
            else:
                work.undo()
        except (StoreFull, StoreGone) as trouble:
            self._lose(trouble, kept=work.kept)
            if trouble is not error:
                raise
        else:
            if not (self._one_turn or work.log or work.journal or self.pending()):
                self._let_go(work)

    def _let_go(self, work: UnitOfWork) -> None:
        """Let others write: nothing is pending."""
        try:
            work.backend.let_go()
        except (StoreFull, StoreGone) as trouble:
            self._lose(trouble, kept=False)
            raise

    def _look(self, *, turn: bool = False) -> UnitOfWork:
        """The unit of work, cleared if another process has written since; `turn`: no other will
        until it is over."""
        work = self._work
        try:
            if work is None:
                work = self._work = self._begin()
            if turn:
                work.backend.begin_turn()
            if work.backend.changed_elsewhere():
                work.clear()
            elif work.full:
                # Turns that only looked left it here.
                work.rest()
            return work
        except (StoreFull, StoreGone) as error:
            self._lose(error, kept=self.pending())
            raise

    def _lose(self, error: StoreFull | StoreGone, *, kept: bool) -> None:
        """Undo everything since the last commit, because the store failed."""
        if kept:
            self._lost = error
        self._abandon()


class _Transition(AbstractContextManager[Transaction]):
    __slots__ = ("_turns",)

    def __init__(self, turns: TransactionManager) -> None:
        self._turns = turns

    def __enter__(self) -> Transaction:
        return self._turns.enter(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._turns.leave(self, error)
