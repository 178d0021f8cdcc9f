"""One transition on what a turn has in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oncewire.errors import StoreDamaged
from oncewire.journal.row import Row
from oncewire.protocol.terms import Terms
from oncewire.store.schedule import id_of
from oncewire.store.transition.keeping import KeepingSteps
from oncewire.store.transition.work import Work


class WorkTransaction(KeepingSteps):
    """See `contract.Transaction`, whose docstrings hold here."""

    __slots__ = ()

    def __init__(self, work: Work) -> None:
        self._work = work

    def expect(self, message_ids: Sequence[str]) -> None:
        work = self._work
        work.load_outgoing(message_ids)
        work.load_incoming(message_ids)
        work.load_removed(message_ids)

    # --- journal, terms and agreements ---

    def journal(self, rows: Iterable[Row]) -> None:
        work = self._work
        number = work.counters["journal"]
        for row in rows:
            number += 1
            work.journal.append((number, *row[1:]))
        work.counters["journal"] = number

    def remember_terms(self, terms: Terms) -> bool:
        terms_id = id_of(terms)
        try:
            known = self.terms(terms_id) is not None
        except StoreDamaged:
            # They are mended, but they are not new.
            self._work.terms.put(terms_id, terms)
            return False
        if not known:
            self._work.terms.put(terms_id, terms)
        return not known

    def remember_agreement(self, agreement_id: str, content: str) -> bool:
        if self.agreement(agreement_id) is not None:
            return False
        self._work.agreements.put(agreement_id, content)
        return True

    def mend_agreement(self, agreement_id: str, content: str) -> None:
        if self.agreement(agreement_id) is not None:
            self._work.agreements.put(agreement_id, content)
