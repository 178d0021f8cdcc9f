"""Deliberate bugs of the store's turns: what is held in memory, undone, and written at once."""

# The replaced text is the product's own, as long as its lines are.

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TURNS = "tests/store/test_turns.py"
_TRANSITIONS = "tests/store/test_transitions.py"
_OUTGOING = "tests/store/test_outgoing.py"
_SQLITE = "tests/store/test_sqlite.py"
_MARK = "tests/store/test_mark.py"
_RECORD = "tests/entry/running/test_store_record.py"

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
        "oncewire.store.sqlite.backend",
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
        "oncewire.store.sqlite.loading",
        '        self.run("ROLLBACK TO steps")\n',
        "",
        tests=(f"{_TURNS}::test_a_sweep_is_undone_alone",),
    ),
    Mutant(
        "an older copy of the store is taken for the store",
        "oncewire.store.sqlite.connection",
        "    if found.journal < known.journal:\n",
        "    if found.journal < 0:\n",
        tests=(f"{_MARK}::test_a_store_that_is_replaced_while_it_is_open_is_not_gone_on_with",),
    ),
    Mutant(
        "an empty store is taken for a new one where there was another",
        "oncewire.entry.running.assemble",
        "            known=read_record(settings),\n",
        "            known=None,\n",
        requirement="STO-1",
        tests=(f"{_RECORD}::test_a_store_without_content_is_no_new_party",),
    ),
    Mutant(
        "two histories of one store are one",
        "oncewire.store.sqlite.connection",
        "    if head and known.head and head != known.head:\n",
        "    if head and known.head and head == known.store_id:\n",
        tests=(f"{_MARK}::test_the_chain_tells_two_histories_of_one_store_apart",),
    ),
    Mutant(
        "what is not committed is noted of a store",
        "oncewire.store.sqlite.store",
        " or self._connection.in_transaction:\n",
        ":\n",
        tests=(f"{_MARK}::test_what_was_never_committed_is_not_noted",),
    ),
    Mutant(
        "a backup does not know its own store",
        "oncewire.entry.running.backup",
        "        put_record(half, mark)\n",
        "        put_record(half, type(mark)(mark.store_id, mark.journal + 1, mark.head))\n",
        tests=(f"{_RECORD}::test_a_restore_by_the_product_is_accepted_and_its_lost_end_is_not",),
    ),
)
