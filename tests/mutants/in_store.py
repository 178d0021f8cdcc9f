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
        "oncewire.store.transition.turns:TransactionManager.commit",
        "self._abandon()\nraise",
        "raise",
        requirement="STO-1",
        tests=(f"{_TURNS}::test_every_nth_commit_fails_and_nothing_of_it_stays_in_memory",),
    ),
    Mutant(
        "what another process wrote is not noticed",
        "oncewire.store.transition.turns:TransactionManager._look",
        "if work.backend.changed_elsewhere():\n    work.clear()\nelif work.full:\n    work.rest()",
        "if not work.backend:\n    work.clear()\nelif work.full:\n    work.rest()",
        tests=(f"{_TURNS}::test_whoever_else_writes_is_noticed",),
    ),
    Mutant(
        "a list is what happens to be in memory",
        "oncewire.store.transition.work:UnitOfWork.fill_outgoing",
        "if not self.complete or index == 'responses':\n"
        "    start = (after,) if after else None\n"
        "    self._fill(index, bounds, limit, self.outgoing, self._load_sent, start)",
        "if index == 'responses':\n"
        "    start = (after,) if after else None\n"
        "    self._fill(index, bounds, limit, self.outgoing, self._load_sent, start)",
        tests=(_OUTGOING,),
    ),
    Mutant(
        "all that is live counts as held although it does not fit",
        "oncewire.store.transition.work:UnitOfWork._bound",
        "self.complete = False\noldest = next(iter(self.outgoing.rows))",
        "oldest = next(iter(self.outgoing.rows))",
        tests=(f"{_TURNS}::test_what_does_not_fit_is_read_back",),
    ),
    Mutant(
        "an undone row is taken for one that is not there",
        "oncewire.store.transition.tables:Table.restore",
        "if old is UNKNOWN:\n    self.forget(key)\nelse:\n    self._set(key, old)",
        "self._set(key, None if old is UNKNOWN else old)",
        tests=(f"{_TURNS}::test_damaged_terms_stay_damaged_where_their_mending_is_undone",),
    ),
    Mutant(
        "numbers of an undone transition are lost",
        "oncewire.store.transition.work:UnitOfWork._take_back",
        "self.counters = dict(counters)",
        "del counters",
        tests=(f"{_TRANSITIONS}::test_an_exception_undoes_exactly_its_transition",),
    ),
    Mutant(
        "one value that cannot be kept fails the whole turn",
        "oncewire.store.sql.writing:RowCheck.check",
        "if numbers and (max(numbers) > _LARGEST or min(numbers) < -_LARGEST):\n"
        "    raise cannot_be_kept('a number is too large')\n"
        "text = ''.join(texts)",
        "text = ''",
        tests=(f"{_SQLITE}::test_a_value_that_cannot_be_kept_undoes_its_transition_only",),
    ),
    Mutant(
        "a step over many rows does not see what the turn did before it",
        "oncewire.store.transition.work:UnitOfWork.step_over",
        "if not self._stepped:\n"
        "    changes, rows, _ = self._begun\n"
        "    mine = {(table, key): table.rows[key] for table, key, _, _ in self.log[changes:]}\n"
        "    journal, counters = (self.journal[rows:], self.counters)\n"
        "    self._take_back()\n"
        "    self.write()\n"
        "    self.backend.begin_steps()\n"
        "    self._stepped = True\n"
        "    for (table, key), row in mine.items():\n"
        "        table.put(key, row)\n"
        "    self.journal, self.counters = (journal, counters)\n"
        "self.write()",
        "if not self._stepped:\n"
        "    changes, rows, _ = self._begun\n"
        "    mine = {(table, key): table.rows[key] for table, key, _, _ in self.log[changes:]}\n"
        "    journal, counters = (self.journal[rows:], self.counters)\n"
        "    self._take_back()\n"
        "    self.write()\n"
        "    self.backend.begin_steps()\n"
        "    self._stepped = True\n"
        "    for (table, key), row in mine.items():\n"
        "        table.put(key, row)\n"
        "    self.journal, self.counters = (journal, counters)",
        tests=("tests/store/test_keeping.py",),
    ),
    Mutant(
        "a step over many rows outlives its transition",
        "oncewire.store.sqlite.session:SqliteSession.undo_steps",
        "self.run('ROLLBACK TO steps')\nself.run('RELEASE steps')",
        "self.run('RELEASE steps')",
        tests=(f"{_TURNS}::test_a_sweep_is_undone_alone",),
    ),
    Mutant(
        "an older copy of the store is taken for the store",
        "oncewire.store.sql.origin:compare",
        "found.journal < known.journal",
        "found.journal < 0",
        tests=(f"{_MARK}::test_a_store_that_is_replaced_while_it_is_open_is_not_gone_on_with",),
    ),
    Mutant(
        "an empty store is taken for a new one where there was another",
        "oncewire.entry.party.store:open_store",
        "SqliteStore(path, node=node, spool=spool, known=known, note=note)",
        "SqliteStore(path, node=node, spool=spool, known=None, note=note)",
        requirement="STO-1",
        tests=(f"{_RECORD}::test_a_store_without_content_is_no_new_party",),
    ),
    Mutant(
        "two histories of one store are one",
        "oncewire.store.sql.origin:compare",
        "head != known.head",
        "head == known.store_id",
        tests=(f"{_MARK}::test_the_chain_tells_two_histories_of_one_store_apart",),
    ),
    Mutant(
        "what is not committed is noted of a store",
        "oncewire.store.sqlite.store:SqliteStore._mark",
        "self._note is None or self._connection is None or self._connection.in_transaction",
        "self._note is None or self._connection is None",
        tests=(f"{_MARK}::test_what_was_never_committed_is_not_noted",),
    ),
    Mutant(
        "a backup does not know its own store",
        "oncewire.entry.running.backup:take_backup",
        "put_record(half, mark)",
        "put_record(half, type(mark)(mark.store_id, mark.journal + 1, mark.head))",
        tests=(f"{_RECORD}::test_a_restore_by_the_product_is_accepted_and_its_lost_end_is_not",),
    ),
)
