"""Deliberate bugs of the store's turns: what is held in memory, undone, and written at once."""

# The replaced text is the product's own, as long as its lines are.

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TURNS = "tests/store/test_turns.py"
_TRANSITIONS = "tests/store/test_transitions.py"
_OUTGOING = "tests/store/test_outgoing.py"
_SQLITE = "tests/store/test_sqlite.py"

IN_STORE: tuple[Mutant, ...] = (
    Mutant(
        "what a failed commit held stays in memory",
        "oncewire.store.transition.turns",
        "                self._abandon()\n                raise\n",
        "                raise\n",
        requirement="STO-1",
        tests=(f"{_TURNS}::test_every_nth_commit_fails_and_nothing_of_it_stays_in_memory",),
    ),
    Mutant(
        "what another process wrote is not noticed",
        "oncewire.store.transition.turns",
        "            elif work.backend.changed_elsewhere():\n",
        "            elif not work.backend:\n",
        tests=(f"{_TURNS}::test_whoever_else_writes_is_noticed",),
    ),
    Mutant(
        "a list is what happens to be in memory",
        "oncewire.store.transition.work",
        '        if not self.complete or index == "responses":\n',
        '        if index == "responses":\n',
        tests=(_OUTGOING,),
    ),
    Mutant(
        "all that is live counts as held although it does not fit",
        "oncewire.store.transition.work",
        "        while len(self.outgoing.rows) > LIVE_MAX:\n            self.complete = False\n",
        "        while len(self.outgoing.rows) > LIVE_MAX:\n",
        tests=(f"{_TURNS}::test_what_does_not_fit_is_read_back",),
    ),
    Mutant(
        "an undone row is taken for one that is not there",
        "oncewire.store.transition.tables",
        "        if old is UNKNOWN:\n            self.forget(key)\n        else:\n"
        "            self._set(key, old)\n",
        "        self._set(key, None if old is UNKNOWN else old)\n",
        tests=(f"{_TURNS}::test_damaged_terms_stay_damaged_where_their_mending_is_undone",),
    ),
    Mutant(
        "numbers of an undone transition are lost",
        "oncewire.store.transition.work",
        "        self.counters = dict(counters)\n",
        "        del counters\n",
        tests=(f"{_TRANSITIONS}::test_an_exception_undoes_exactly_its_transition",),
    ),
    Mutant(
        "one value that cannot be kept fails the whole turn",
        "oncewire.store.sqlite.checking",
        "            _check_sizes(texts, numbers)\n            # Whom",
        "            # Whom",
        tests=(f"{_SQLITE}::test_a_value_that_cannot_be_kept_undoes_its_transition_only",),
    ),
    Mutant(
        "a step over many rows does not see what the turn did before it",
        "oncewire.store.transition.work",
        "            self.journal, self.counters = journal, counters\n        self.write()\n",
        "            self.journal, self.counters = journal, counters\n",
        tests=("tests/store/test_keeping.py",),
    ),
    Mutant(
        "a step over many rows outlives its transition",
        "oncewire.store.sqlite.statements",
        '        self.run("ROLLBACK TO steps")\n',
        "",
        tests=(f"{_TURNS}::test_a_sweep_is_undone_alone",),
    ),
)
