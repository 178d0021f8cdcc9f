"""Mutants of the door and of bodies on their way in; tests over sockets must notice them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LISTENER = "oncewire.transport.listener"
_SERVER = "oncewire.transport.http.server"
_HEAD = "oncewire.transport.http.head"
_BODY = "oncewire.transport.http.head"
_CONNECTION = "oncewire.transport.http.server"
_POOL = "oncewire.transport.http.pool"
_BUDGET = "oncewire.transport.budget"
_INTAKE = "oncewire.handler.receiving.inbound"
_INBOUND = "oncewire.handler.receiving.inbound"
_EXPECTED = "oncewire.handler.receiving.inbound"
_DOOR = "oncewire.handler.runtime.door"
_REFUSALS = "oncewire.handler.context"
_RECEIVE = "oncewire.handler.receiving.receive"
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
        f"{_HEAD}:_request_framing",
        "if 'content-length' in headers:\n"
        "    raise BadHead('a body has either a length or chunks')",
        "pass",
        tests=(f"{_HEADS}::test_what_could_be_read_in_two_ways_is_refused",),
    ),
    Mutant(
        "a chunk's line may end with a line feed alone",
        f"{_BODY}:_line",
        "if end == 0 or buffer[end - 1] != 13:\n"
        "    raise BadBody('a line does not end with CR LF')",
        "if end == 0:\n    raise BadBody('a line does not end with CR LF')",
        tests=(f"{_HEADS}::test_chunks_that_are_none_are_refused",),
    ),
    Mutant(
        "an answer that nobody asked for waits for the next request",
        f"{_POOL}:ClientConnection._finish",
        "self._buffer or self._ends_with_connection(head) or (not head.keeps_alive)",
        "self._ends_with_connection(head) or not head.keeps_alive",
        tests=(f"{_PIPELINED}::test_an_answer_that_nobody_asked_for_is_nobodys",),
    ),
    Mutant(
        "who sends ahead is read without end",
        f"{_CONNECTION}:ServerConnection._set_reading",
        "len(self._buffer) > HELD_MAX or (request is not None and request.body.full)",
        "request is not None and request.body.full",
        tests=(f"{_PIPELINED}::test_who_sends_ahead_without_end_waits",),
    ),
    Mutant(
        "answers are piled up for whoever does not read them",
        f"{_CONNECTION}:ServerConnection._begin",
        "transport is None or transport.is_closing() or (not self._writable) or (not self._buffer)",
        "transport is None or transport.is_closing() or (not self._buffer)",
        tests=(f"{_PIPELINED}::test_whoever_does_not_read_his_answers_gets_no_more_of_them",),
    ),
    Mutant(
        "the connection ends with the answer, whatever is still on its way",
        f"{_CONNECTION}:ServerConnection._leave",
        "if heard:\n    transport.close()\n    return",
        "if heard or transport:\n    transport.close()\n    return",
        tests=(f"{_PIPELINED}::test_an_answer_before_the_end_of_a_body_is_not_lost",),
    ),
    Mutant(
        "a connection that has ended keeps its place",
        f"{_CONNECTION}:ServerConnection.connection_lost",
        "self._buffer = bytearray()\nself._lost(self)",
        "self._buffer = bytearray()",
        tests=(
            f"{_EDGE}::test_a_connection_that_asks_while_it_is_thrown_out_gives_its_place_back",
        ),
    ),
    Mutant(
        "a partner finds every place taken by strangers at work",
        f"{_LISTENER}:Listener._room",
        "return self._throw_out() or (known and self._throw_out_stranger())",
        "return self._throw_out()",
        tests=(f"{_EDGE}::test_a_partner_comes_in_when_strangers_have_every_place",),
    ),
    Mutant(
        "one address takes every place",
        f"{_LISTENER}:Listener._room",
        "if not known and self._from[place] >= self._limits.per_address:\n"
        "    return self._throw_out(place)",
        "if False:\n    return self._throw_out(place)",
        tests=(f"{_EDGE}::test_one_address_does_not_take_every_place",),
    ),
    Mutant(
        "a body that broke keeps the error, and all that came of it",
        f"{_SERVER}:_Body.__anext__",
        "raise BrokenBody(*self.broken)",
        "self._why = BrokenBody(*self.broken)\nraise self._why",
        tests=(f"{_EDGE}::test_what_came_of_an_aborted_body_is_freed_at_once",),
    ),
    Mutant(
        "what came quickly earns hours of dripping",
        f"{_LISTENER}:Patience.came",
        "self._credit = min(self._credit + earned, self._limits.body_grace)",
        "self._credit = self._credit + earned",
        tests=(f"{_EDGE}::test_a_body_that_was_quick_at_first_may_not_drip_for_hours",),
    ),
    Mutant(
        "refused requests are not counted",
        f"{_BUDGET}:Budgets.note",
        "if reply.refused:\n    self.refused(peer, visit.spent)",
        "if reply.refused:\n    pass",
        tests=(f"{_EDGE}::test_who_is_refused_too_often_is_told_to_come_back",),
    ),
    Mutant(
        "what a request took of the budgets is never given back",
        f"{_BUDGET}:Visit.leave",
        "self._address.spooled -= self._spooled",
        "pass",
        tests=(
            f"{_BUDGETS}::test_the_disk_is_shared",
            f"{_EDGE}::test_what_the_handler_may_not_take_is_answered_by_the_endpoint",
        ),
    ),
    Mutant(
        "strangers work in the partners' places",
        f"{_BUDGET}:Budgets.enter",
        "group = self._partners if known else self._strangers",
        "group = self._strangers",
        tests=(f"{_BUDGETS}::test_one_address_waits_while_another_comes_in",),
    ),
    Mutant(
        "a stranger costs what processor time he likes",
        f"{_BUDGET}:Budgets._check_processor",
        "wait = self._processor.over(self.limits.processor, now)",
        "wait = 0.0",
        tests=(f"{_BUDGETS}::test_a_processor_is_not_a_strangers_alone",),
    ),
    Mutant(
        "who gives up as he is let in keeps the place",
        f"{_BUDGET}:Budgets._wait",
        "if group.waiting.pop(turn, None) is None:\n    self.left(address, group)",
        "if group.waiting.pop(turn, None) is None:\n    pass",
        tests=(f"{_BUDGETS}::test_who_waits_comes_in_when_another_leaves",),
    ),
    Mutant(
        "a large body is held until it is whole",
        f"{_INBOUND}:take_in",
        "size > (SPOOL_ABOVE if roomy else READ_AT_ONCE)",
        "size > context.body_max",
        tests=(f"{_LARGE}::test_a_large_body_goes_to_the_disk_and_none_of_it_stays_in_memory",),
    ),
    Mutant(
        "a stranger's body is heard to its end",
        f"{_INBOUND}:_Streaming._hear",
        "if self._intake.over:\n    break",
        "pass",
        tests=(f"{_LARGE}::test_whom_nobody_knows_is_refused_by_his_header",),
    ),
    Mutant(
        "a full disk is told to a sender of a large body when he has sent another batch",
        f"{_INBOUND}:_Streaming._hear",
        "if feeding is not None and feeding.done():\n    feeding.result()",
        "pass",
        tests=(f"{_SPOOLING}::test_a_batch_that_has_no_place_ends_the_body",),
    ),
    Mutant(
        "a large body is piled up while the disk is slow",
        f"{_INBOUND}:_Streaming._hear",
        "if feeding is not None:\n"
        "    await feeding\n"
        "feeding = asyncio.ensure_future(self._feed(pieces))",
        "feeding = asyncio.ensure_future(self._feed(pieces))",
        tests=(f"{_SPOOLING}::test_while_a_batch_is_taken_the_next_is_heard",),
    ),
    Mutant(
        "nobody is asked whether a large message is expected",
        f"{_EXPECTED}:expected",
        "return Expected() if _is_about_known(tx, message) else Expected(error)",
        "return Expected()",
        tests=(f"{_LARGE}::test_whom_nobody_knows_is_refused_by_his_header",),
    ),
    Mutant(
        "the agreed size holds for nobody on his way in",
        f"{_INBOUND}:_Streaming._feed",
        "if expected.max_size is not None:\n    self._intake.limit_payloads(expected.max_size)",
        "if expected.max_size is not None:\n    pass",
        tests=(f"{_LARGE}::test_more_than_the_agreed_size_is_refused_on_its_way",),
    ),
    Mutant(
        "a stranger whose body is not heard is told that it was damaged",
        f"{_INTAKE}:Intake.over",
        "return self.fault is not None and self._stated is None",
        "return self.fault is not None",
        tests=(f"{_LARGE}::test_whom_nobody_knows_is_refused_by_his_header",),
    ),
    Mutant(
        "a large body is read in the event loop",
        "oncewire.handler.spool_reading:ReadingRoom.do",
        "doing = asyncio.get_running_loop().run_in_executor(self._pool, measured)",
        "doing = asyncio.get_running_loop().create_future()\ndoing.set_result(measured())",
        tests=(f"{_LARGE}::test_the_loop_goes_on_while_a_body_of_almost_boundaries_is_read",),
    ),
    Mutant(
        "who leaves while his body is spooled leaves a file",
        f"{_INTAKE}:Intake._working",
        "if self._abandoned:\n    self.abandon()",
        "pass",
        tests=(f"{_SPOOLING}::test_who_leaves_while_his_body_is_spooled_leaves_nothing",),
    ),
    Mutant(
        "the file of a refused message stays",
        f"{_SPOOL}:FileSpool.give_back",
        "with contextlib.suppress(OSError):\n    self._removal.remove(self._directory / name)",
        "with contextlib.suppress(OSError):\n    pass",
        tests=(f"{_FILES}::test_what_is_given_back_is_gone_at_once",),
    ),
    Mutant(
        "a cleaning waits for every large file",
        f"{_SPOOL}:FileSpool._remove",
        "if self._removal.has_room(path.stat().st_size):\n    self._removal.remove(path)",
        "if self._removal is not None:\n    self._removal.remove(path)",
        tests=("tests/store/test_removal.py::test_whoever_cleans_waits_for_no_large_file",),
    ),
    Mutant(
        "a file that is removed is cut under its reader",
        "oncewire.store.spool:_shrink",
        "if found.st_nlink > 0 or not _is_alone(handle):\n    return",
        "if found.st_nlink > 0:\n    return",
        tests=("tests/store/test_removal.py::test_to_whoever_reads_it_a_file_stays_whole",),
    ),
    Mutant(
        "a file is cut that has another name",
        "oncewire.store.spool:_shrink",
        "if found.st_nlink > 0 or not _is_alone(handle):\n    return",
        "if not _is_alone(handle):\n    return",
        tests=("tests/store/test_removal.py::test_a_file_with_another_name_stays_whole_under_it",),
    ),
    Mutant(
        "what the disk refused of a large file is forgotten",
        "oncewire.store.spool:Behind.settle",
        "_by_others.seconds = getattr(_by_others, 'seconds', 0.0) + under_way.result()",
        "under_way.exception()",
        tests=(f"{_FILES}::test_a_disk_that_is_full_says_so_as_a_large_file_goes_there",),
    ),
    Mutant(
        "what is worked one behind costs nobody anything",
        "oncewire.store.spool:Behind.settle",
        "_by_others.seconds = getattr(_by_others, 'seconds', 0.0) + under_way.result()",
        "under_way.result()",
        tests=("tests/store/test_behind.py",),
    ),
    Mutant(
        "the loop waits for the disk of one who leaves",
        "oncewire.handler.receiving.inbound:_Streaming.take",
        "await asyncio.shield(asyncio.to_thread(intake.abandon))",
        "intake.abandon()",
        tests=(f"{_SPOOLING}::test_nobody_waits_for_the_disk_of_one_who",),
    ),
    Mutant(
        "a file that somebody kept goes with one who was refused",
        f"{_SPOOL}:FileSpool.let_go",
        "self._made.discard(name)\nself._count_down(name)",
        "self._count_down(name)",
        tests=(f"{_FILES}::test_what_anybody_kept_stays_when_others_give_it_back",),
    ),
    Mutant(
        "every refused post has a row of the journal",
        f"{_REFUSALS}:Refusals.may_journal",
        "begin + JOURNALED_EVERY > now",
        "begin > now",
        tests=(f"{_COUNTED}::test_the_journal_has_room_again_after_a_while",),
    ),
    Mutant(
        "whom no agreement names is journaled",
        f"{_RECEIVE}:_journal_refused",
        "if not _names_agreement(context, known) or not context.state.refusals.may_journal(now):\n    return",
        "if not context.state.refusals.may_journal(now):\n    return",
        tests=(
            "tests/handler/receiving/test_conform.py::test_who_says_neither_who_he_is_nor_under_what_gets_a_fault",
        ),
    ),
    Mutant(
        "refusals of strangers are counted nowhere",
        f"{_RECEIVE}:_journal_refused",
        "now = context.now()\n"
        "context.state.refusals.count(code, source.address, error.problem, known.message_id, now)",
        "now = context.now()",
        tests=(
            "tests/handler/receiving/test_conform.py::test_who_says_neither_who_he_is_nor_under_what_gets_a_fault",
        ),
    ),
    Mutant(
        "the table of refusals grows with their addresses",
        "oncewire.store.sql.backend",
        "f\"INSERT INTO refusal ({REFUSAL.text}) SELECT ?1, CASE WHEN EXISTS (SELECT 1 FROM refusal WHERE code = ?1 AND address = ?2) OR (SELECT count(*) FROM refusal) < ?8 THEN ?2 ELSE '' END, ?3, ?4, ?5, ?6, ?7 WHERE true ON CONFLICT (code, address) DO UPDATE SET count = refusal.count + excluded.count, last_at = excluded.last_at, problem = excluded.problem, message_id = excluded.message_id\"",
        "f\"INSERT INTO refusal ({REFUSAL.text}) SELECT ?1, CASE WHEN EXISTS (SELECT 1 FROM refusal WHERE code = ?1 AND address = ?2) OR (SELECT 0) < ?8 THEN ?2 ELSE '' END, ?3, ?4, ?5, ?6, ?7 WHERE true ON CONFLICT (code, address) DO UPDATE SET count = refusal.count + excluded.count, last_at = excluded.last_at, problem = excluded.problem, message_id = excluded.message_id\"",
        tests=(f"{_KEPT}::test_however_many_addresses_the_table_stays_small",),
    ),
    Mutant(
        "any number of namespaces may be in force",
        f"{_LIMITS}:_Counting.start",
        "if namespaces[-1] > limits.header_namespaces:\n"
        "    raise _past('an element has too many namespaces', 'header_namespaces', limits)",
        "if False:\n"
        "    raise _past('an element has too many namespaces', 'header_namespaces', limits)",
        tests=("tests/wire/test_limits.py::test_beyond_a_limit_is_refused_and_the_limit_is_named",),
    ),
    Mutant(
        "each id is compared with each",
        f"{_WRAPPING}:_check_ids",
        "text in given",
        "text in tuple(given)[-100:]",
        tests=("tests/wire/security/test_signature.py::test_ids_are_checked_in_one_look_each",),
    ),
    Mutant(
        "count no steps of canonicalization",
        f"{_LIMITS}:_Counting.start",
        "if self._steps > limits.header_canonical:\n"
        "    raise _past('many namespaces hold for many elements', 'header_canonical', limits)",
        "if False:\n"
        "    raise _past('many namespaces hold for many elements', 'header_canonical', limits)",
        tests=("tests/wire/test_limits.py::test_beyond_a_limit_is_refused_and_the_limit_is_named",),
    ),
    Mutant(
        "a body holds as many messages as it likes",
        "oncewire.wire.codec:unbundle",
        "if len(parts) > limits.bundled:\n"
        "    many = beyond(f'{len(parts)} messages come as one body', 'bundled', limits.bundled, mime=True)\n"
        "    raise ReadFault((many,))",
        "if not parts:\n"
        "    many = beyond(f'{len(parts)} messages come as one body', 'bundled', limits.bundled, mime=True)\n"
        "    raise ReadFault((many,))",
        tests=("tests/wire/test_limits.py::test_messages_in_one_body_are_counted",),
    ),
    Mutant(
        "a turn takes as long as its verbs like",
        "oncewire.handler.runtime.commit_loop:CommitLoop._works",
        "monotonic() < began + seconds",
        "seconds > 0",
        tests=(
            "tests/handler/runtime/test_shell.py::test_a_turn_that_takes_long_lets_others_in_between",
        ),
    ),
    Mutant(
        "take what comes from somebody who is over his budget",
        f"{_DOOR}:Door._receive.receive",
        "nonlocal known\nallowance.spend(0.0)",
        "nonlocal known",
        tests=(
            "tests/handler/test_turned_away.py::test_who_is_over_his_budget_when_his_turn_comes_is_told_so",
        ),
    ),
    Mutant(
        "read a long reply in the loop",
        "oncewire.handler.receiving.inbound:hear",
        "if len(parcel.body) <= READ_AT_ONCE:\n    return heard(parcel, context.limits, context.caches.templates.envelopes)",
        "if parcel.body:\n    return heard(parcel, context.limits, context.caches.templates.envelopes)",
        tests=(
            "tests/handler/receiving/test_heard.py::test_a_large_reply_is_read_beside_the_loop",
        ),
    ),
    Mutant(
        "keep the connections of whom we trust no more",
        f"{_SERVER}:HttpServer.renew",
        "self._listener.renew(context, afresh=bool(gone))",
        "self._listener.renew(context, afresh=False)",
        tests=(
            "tests/transport/test_http_tls.py::test_a_certificate_that_is_trusted_no_more_opens_nothing",
        ),
    ),
    Mutant(
        "a partner has a share at each of its addresses",
        f"{_BUDGET}:_account",
        "peer.certificate is None",
        "peer is not None",
        tests=(f"{_BUDGETS}::test_a_partner_has_one_share_wherever_it_comes_from",),
    ),
    Mutant(
        "send partners away and tell nobody",
        "oncewire.transport.budget:TurnedAway.count",
        "if not known:\n"
        "    log.warning('strangers are sent away for a while', extra=facts)\n"
        "    return",
        "if facts:\n"
        "    log.warning('strangers are sent away for a while', extra=facts)\n"
        "    return",
        tests=(
            "tests/transport/test_turned_away.py::test_each_reason_is_told_once_and_then_counted",
        ),
    ),
)
