"""Mutants of the door and of bodies on their way in; tests over sockets must notice them."""

# The replaced text is the product's own, as long as its lines are.
# ruff: noqa: E501

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LISTENER = "oncewire.transport.listener"
_SERVER = "oncewire.transport.http.server"
_HEAD = "oncewire.transport.http.head"
_BODY = "oncewire.transport.http.body"
_CONNECTION = "oncewire.transport.http.connection"
_POOL = "oncewire.transport.http.pool"
_BUDGET = "oncewire.transport.budget"
_INTAKE = "oncewire.handler.arriving.inbound"
_INBOUND = "oncewire.handler.arriving.inbound"
_EXPECTED = "oncewire.handler.arriving.inbound"
_DOOR = "oncewire.handler.loop.door"
_REFUSALS = "oncewire.handler.refusals"
_RECEIVE = "oncewire.handler.arriving.receive"
_SPOOL = "oncewire.store.spool"
_LIMITS = "oncewire.wire.limits"
_WRAPPING = "oncewire.wire.security.wrapping"

_EDGE = "tests/transport/test_http_edge.py"
_HEADS = "tests/transport/test_http_head.py"
_PIPELINED = "tests/transport/test_http_pipelining.py"
_BUDGETS = "tests/transport/test_budget.py"
_LARGE = "tests/handler/test_large.py"
_SPOOLING = "tests/handler/test_spooling.py"
_COUNTED = "tests/handler/test_refusals.py"
_KEPT = "tests/store/test_refusals.py"
_FILES = "tests/store/test_spool.py"

IN_EDGE_STREAM: tuple[Mutant, ...] = (
    Mutant(
        "a body may have a length and chunks",
        _HEAD,
        '    if "content-length" in headers:\n        raise BadHead("a body has either a length or chunks")\n    if old or',
        "    if old or",
        tests=(f"{_HEADS}::test_what_could_be_read_in_two_ways_is_refused",),
    ),
    Mutant(
        "a chunk's line may end with a line feed alone",
        _BODY,
        "    if end == 0 or buffer[end - 1] != 0x0D:\n",
        "    if end == 0:\n",
        tests=(f"{_HEADS}::test_chunks_that_are_none_are_refused",),
    ),
    Mutant(
        "an answer that nobody asked for waits for the next request",
        _POOL,
        "        if self._buffer or self._ends_with_connection(head) or not head.keeps_alive:\n",
        "        if self._ends_with_connection(head) or not head.keeps_alive:\n",
        tests=(f"{_PIPELINED}::test_an_answer_that_nobody_asked_for_is_nobodys",),
    ),
    Mutant(
        "who sends ahead is read without end",
        _CONNECTION,
        "        full = len(self._buffer) > HELD_MAX or (request is not None and request.body.full)\n",
        "        full = request is not None and request.body.full\n",
        tests=(f"{_PIPELINED}::test_who_sends_ahead_without_end_waits",),
    ),
    Mutant(
        "answers are piled up for whoever does not read them",
        _CONNECTION,
        "        if transport is None or transport.is_closing() or not self._writable or not self._buffer:\n",
        "        if transport is None or transport.is_closing() or not self._buffer:\n",
        tests=(f"{_PIPELINED}::test_whoever_does_not_read_his_answers_gets_no_more_of_them",),
    ),
    Mutant(
        "the connection ends with the answer, whatever is still on its way",
        _CONNECTION,
        "        if heard:\n            transport.close()\n",
        "        if heard or transport:\n            transport.close()\n",
        tests=(f"{_PIPELINED}::test_an_answer_before_the_end_of_a_body_is_not_lost",),
    ),
    Mutant(
        "a connection that has ended keeps its place",
        _CONNECTION,
        "        self._lost(self)\n",
        "",
        tests=(
            f"{_EDGE}::test_a_connection_that_asks_while_it_is_thrown_out_gives_its_place_back",
        ),
    ),
    Mutant(
        "a partner finds every place taken by strangers at work",
        _LISTENER,
        "        return self._throw_out() or (known and self._throw_out_stranger())\n",
        "        return self._throw_out()\n",
        tests=(f"{_EDGE}::test_a_partner_comes_in_when_strangers_have_every_place",),
    ),
    Mutant(
        "one address takes every place",
        _LISTENER,
        "        if not known and self._from[place] >= self._limits.per_address:\n",
        "        if False:\n",
        tests=(f"{_EDGE}::test_one_address_does_not_take_every_place",),
    ),
    Mutant(
        "a body that broke keeps the error, and all that came of it",
        _SERVER,
        "        if self.broken is not None:\n            raise BrokenBody(*self.broken)\n",
        "        if self.broken is not None:\n            self._why = BrokenBody(*self.broken)\n            raise self._why\n",
        tests=(f"{_EDGE}::test_what_came_of_an_aborted_body_is_freed_at_once",),
    ),
    Mutant(
        "what came quickly earns hours of dripping",
        _LISTENER,
        "        self._credit = min(self._credit + earned, self._limits.body_grace)\n",
        "        self._credit = self._credit + earned\n",
        tests=(f"{_EDGE}::test_a_body_that_was_quick_at_first_may_not_drip_for_hours",),
    ),
    Mutant(
        "refused requests are not counted",
        _BUDGET,
        "        elif reply.refused:\n            self.refused(peer, visit.spent)\n",
        "        elif reply.refused:\n            pass\n",
        tests=(f"{_EDGE}::test_who_is_refused_too_often_is_told_to_come_back",),
    ),
    Mutant(
        "what a request took of the budgets is never given back",
        _BUDGET,
        "        self._address.spooled -= self._spooled\n",
        "",
        tests=(
            f"{_BUDGETS}::test_the_disk_is_shared",
            f"{_EDGE}::test_what_the_handler_may_not_take_is_answered_by_the_endpoint",
        ),
    ),
    Mutant(
        "strangers work in the partners' places",
        _BUDGET,
        "        group = self._partners if known else self._strangers\n",
        "        group = self._strangers\n",
        tests=(f"{_BUDGETS}::test_one_address_waits_while_another_comes_in",),
    ),
    Mutant(
        "a stranger costs what processor time he likes",
        _BUDGET,
        "        wait = self._processor.over(self.limits.processor, now)\n",
        "        wait = 0.0\n",
        tests=(f"{_BUDGETS}::test_a_processor_is_not_a_strangers_alone",),
    ),
    Mutant(
        "who gives up as he is let in keeps the place",
        _BUDGET,
        "                # A place was kept for it in the very moment it left.\n                self.left(address, group)\n",
        "                pass\n",
        tests=(f"{_BUDGETS}::test_who_waits_comes_in_when_another_leaves",),
    ),
    Mutant(
        "a large body is held until it is whole",
        _INBOUND,
        "        if size > (SPOOL_ABOVE if roomy else READ_AT_ONCE):\n",
        "        if size > node.body_max:\n",
        tests=(f"{_LARGE}::test_a_large_body_goes_to_the_disk_and_none_of_it_stays_in_memory",),
    ),
    Mutant(
        "a stranger's body is heard to its end",
        _INBOUND,
        "                if self._intake.over:\n                    break\n",
        "",
        tests=(f"{_LARGE}::test_whom_nobody_knows_is_refused_by_his_header",),
    ),
    Mutant(
        "a full disk is told to a sender of a large body when he has sent another batch",
        _INBOUND,
        "                if feeding is not None and feeding.done():\n"
        "                    feeding.result()\n",
        "",
        tests=(f"{_SPOOLING}::test_a_batch_that_has_no_place_ends_the_body",),
    ),
    Mutant(
        "a large body is piled up while the disk is slow",
        _INBOUND,
        "                    if feeding is not None:\n                        await feeding\n",
        "",
        tests=(f"{_SPOOLING}::test_while_a_batch_is_taken_the_next_is_heard",),
    ),
    Mutant(
        "nobody is asked whether a large message is expected",
        _EXPECTED,
        "        return Expected() if _is_about_known(tx, message) else Expected(error)\n",
        "        return Expected()\n",
        tests=(f"{_LARGE}::test_whom_nobody_knows_is_refused_by_his_header",),
    ),
    Mutant(
        "the agreed size holds for nobody on his way in",
        _INBOUND,
        "            self._intake.limit_payloads(expected.max_size)\n",
        "            pass\n",
        tests=(f"{_LARGE}::test_more_than_the_agreed_size_is_refused_on_its_way",),
    ),
    Mutant(
        "a stranger whose body is not heard is told that it was damaged",
        _INTAKE,
        "        return self.fault is not None and self._stated is None\n",
        "        return self.fault is not None\n",
        tests=(f"{_LARGE}::test_whom_nobody_knows_is_refused_by_his_header",),
    ),
    Mutant(
        "a large body is read in the event loop",
        "oncewire.handler.spool_reading",
        "        doing = asyncio.get_running_loop().run_in_executor(self._pool, measured)\n",
        "        doing = asyncio.get_running_loop().create_future()\n        doing.set_result(measured())\n",
        tests=(f"{_LARGE}::test_the_loop_goes_on_while_a_body_of_almost_boundaries_is_read",),
    ),
    Mutant(
        "who leaves while his body is spooled leaves a file",
        _INTAKE,
        "            if self._abandoned:\n                self.abandon()\n",
        "            pass\n",
        tests=(f"{_SPOOLING}::test_who_leaves_while_his_body_is_spooled_leaves_nothing",),
    ),
    Mutant(
        "the file of a refused message stays",
        _SPOOL,
        "                    self._removal.remove(self._directory / name)\n\n    def _count_down",
        "                    pass\n\n    def _count_down",
        tests=(f"{_FILES}::test_what_is_given_back_is_gone_at_once",),
    ),
    Mutant(
        "a cleaning waits for every large file",
        _SPOOL,
        "            if self._removal.has_room(path.stat().st_size):\n",
        "            if self._removal is not None:\n",
        tests=("tests/store/test_removal.py::test_whoever_cleans_waits_for_no_large_file",),
    ),
    Mutant(
        "a file that is removed is cut under its reader",
        "oncewire.store.spool",
        "    if found.st_nlink > 0 or not _is_alone(handle):\n",
        "    if found.st_nlink > 0:\n",
        tests=("tests/store/test_removal.py::test_to_whoever_reads_it_a_file_stays_whole",),
    ),
    Mutant(
        "a file is cut that has another name",
        "oncewire.store.spool",
        "    if found.st_nlink > 0 or not _is_alone(handle):\n",
        "    if not _is_alone(handle):\n",
        tests=("tests/store/test_removal.py::test_a_file_with_another_name_stays_whole_under_it",),
    ),
    Mutant(
        "what the disk refused of a large file is forgotten",
        "oncewire.store.spool",
        '            _by_others.seconds = getattr(_by_others, "seconds", 0.0) + under_way.result()\n',
        "            under_way.exception()\n",
        tests=(f"{_FILES}::test_a_disk_that_is_full_says_so_as_a_large_file_goes_there",),
    ),
    Mutant(
        "what is worked one behind costs nobody anything",
        "oncewire.store.spool",
        '            _by_others.seconds = getattr(_by_others, "seconds", 0.0) + under_way.result()\n',
        "            under_way.result()\n",
        tests=("tests/store/test_behind.py",),
    ),
    Mutant(
        "the loop waits for the disk of one who leaves",
        "oncewire.handler.arriving.inbound",
        "            await asyncio.shield(asyncio.to_thread(intake.abandon))\n",
        "            intake.abandon()\n",
        tests=(f"{_SPOOLING}::test_nobody_waits_for_the_disk_of_one_who",),
    ),
    Mutant(
        "a file that somebody kept goes with one who was refused",
        _SPOOL,
        "            self._made.discard(name)\n            self._count_down(name)\n",
        "            self._count_down(name)\n",
        tests=(f"{_FILES}::test_what_anybody_kept_stays_when_others_give_it_back",),
    ),
    Mutant(
        "every refused post has a row of the journal",
        _REFUSALS,
        "        if begin + JOURNALED_EVERY > now:\n            return False\n",
        "        if begin > now:\n            return False\n",
        tests=(f"{_COUNTED}::test_the_journal_has_room_again_after_a_while",),
    ),
    Mutant(
        "whom no agreement names is journaled",
        _RECEIVE,
        "    if not _names_agreement(node, known) or not node.refusals.may_journal(now):\n",
        "    if not node.refusals.may_journal(now):\n",
        tests=(
            "tests/handler/arriving/test_conform.py::test_who_says_neither_who_he_is_nor_under_what_gets_a_fault",
        ),
    ),
    Mutant(
        "refusals of strangers are counted nowhere",
        _RECEIVE,
        "    node.refusals.count(code, source.address, error.problem, known.message_id, now)\n",
        "",
        tests=(
            "tests/handler/arriving/test_conform.py::test_who_says_neither_who_he_is_nor_under_what_gets_a_fault",
        ),
    ),
    Mutant(
        "the table of refusals grows with their addresses",
        "oncewire.store.sqlite.backend",
        "(SELECT count(*) FROM refusal) < ?8",
        "(SELECT 0) < ?8",
        tests=(f"{_KEPT}::test_however_many_addresses_the_table_stays_small",),
    ),
    Mutant(
        "any number of namespaces may be in force",
        _LIMITS,
        "        if namespaces[-1] > limits.header_namespaces:\n",
        "        if False:\n",
        tests=("tests/wire/test_limits.py::test_beyond_a_limit_is_refused_and_the_limit_is_named",),
    ),
    Mutant(
        "each id is compared with each",
        _WRAPPING,
        "            if text in given:\n",
        "            if text in tuple(given)[-100:]:\n",
        tests=("tests/wire/security/test_signature.py::test_ids_are_checked_in_one_look_each",),
    ),
    Mutant(
        "count no steps of canonicalization",
        _LIMITS,
        "        if self._steps > limits.header_canonical:\n",
        "        if False:\n",
        tests=("tests/wire/test_limits.py::test_beyond_a_limit_is_refused_and_the_limit_is_named",),
    ),
    Mutant(
        "a body holds as many messages as it likes",
        "oncewire.wire.mime.whole",
        "    if len(parts) > limits.bundled:\n",
        "    if not parts:\n",
        tests=("tests/wire/test_limits.py::test_messages_in_one_body_are_counted",),
    ),
    Mutant(
        "a turn takes as long as its verbs like",
        "oncewire.handler.loop.commit_loop",
        "(first or monotonic() < began + seconds)",
        "(first or seconds > 0)",
        tests=(
            "tests/handler/loop/test_shell.py::test_a_turn_that_takes_long_lets_others_in_between",
        ),
    ),
    Mutant(
        "take what comes from somebody who is over his budget",
        _DOOR,
        "            allowance.spend(0.0)\n",
        "",
        tests=(
            "tests/handler/test_turned_away.py::test_who_is_over_his_budget_when_his_turn_comes_is_told_so",
        ),
    ),
    Mutant(
        "read a long reply in the loop",
        "oncewire.handler.arriving.inbound",
        "    if len(parcel.body) <= READ_AT_ONCE:\n",
        "    if parcel.body:\n",
        tests=("tests/handler/arriving/test_heard.py::test_a_large_reply_is_read_beside_the_loop",),
    ),
    Mutant(
        "keep the connections of whom we trust no more",
        _SERVER,
        "        self._listener.renew(context, afresh=bool(gone))\n",
        "        self._listener.renew(context, afresh=False)\n",
        tests=(
            "tests/transport/test_http_tls.py::test_a_certificate_that_is_trusted_no_more_opens_nothing",
        ),
    ),
    Mutant(
        "a partner has a share at each of its addresses",
        _BUDGET,
        "    if peer.certificate is None:\n        return address_of(peer)\n",
        "    if peer is not None:\n        return address_of(peer)\n",
        tests=(f"{_BUDGETS}::test_a_partner_has_one_share_wherever_it_comes_from",),
    ),
    Mutant(
        "send partners away and tell nobody",
        "oncewire.transport.budget",
        '"repeats": repeats}\n        if not known:\n',
        '"repeats": repeats}\n        if facts:\n',
        tests=(
            "tests/transport/test_turned_away.py::test_each_reason_is_told_once_and_then_counted",
        ),
    ),
)
