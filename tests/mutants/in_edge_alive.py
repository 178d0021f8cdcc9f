"""Bugs in what keeps a handler alive: damage, supervision, recovery, backups and defaults."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_POISON = "tests/handler/receiving/test_poison.py"
_SUPERVISOR = "tests/handler/runtime/test_supervisor.py"
_RESTART = "tests/handler/test_restart.py"
_BACKUP = "tests/entry/running/test_backup.py"
_SECURE = "tests/entry/test_secure.py"
_ITSELF = "tests/entry/party/test_itself.py"

DAMAGE: tuple[Mutant, ...] = (
    Mutant(
        "hold a stream without order behind a damaged message",
        "oncewire.handler.delivering.deliver:hand_over",
        "if channel is not None and _is_ordered(context, tx, stored):\n    blocked.add(channel)",
        "if channel is not None:\n    blocked.add(channel)",
        tests=(f"{_POISON}::test_where_no_order_is_agreed_a_numbered_stream_goes_on",),
    ),
    Mutant(
        "say that it was handed over before it was read",
        "oncewire.handler.delivering.deliver:_give",
        "stored = tx.incoming(incoming.sender, incoming.message_id) or listed",
        "tx.save_incoming(incoming)\n"
        "stored = tx.incoming(incoming.sender, incoming.message_id) or listed",
        tests=(f"{_POISON}::test_the_incident_names_the_message_and_the_next_verb",),
    ),
    Mutant(
        "look for nothing that no list can find",
        "oncewire.handler.runtime.engine:Engine._take_up",
        "(lambda tx: release.survey(context, tx), lambda tx: deliver.recover_hand_overs(context, tx), lambda tx: take_up_waiting(context, tx), lambda tx: context.state.failed.extend(left_untold(context, tx)), lambda tx: gathering.begin_all(context, tx), lambda tx: retention.end_all_answers(context, tx), lambda tx: repost_answers(context, tx), lambda tx: transmit.take_up_delegated(context, tx), lambda tx: resume_stranded_hops(context, tx))",
        "(lambda tx: deliver.recover_hand_overs(context, tx), lambda tx: take_up_waiting(context, tx), lambda tx: context.state.failed.extend(left_untold(context, tx)), lambda tx: gathering.begin_all(context, tx), lambda tx: retention.end_all_answers(context, tx), lambda tx: repost_answers(context, tx), lambda tx: transmit.take_up_delegated(context, tx), lambda tx: resume_stranded_hops(context, tx))",
        tests=(f"{_POISON}::test_a_state_that_no_list_can_find_is_found_at_the_start",),
    ),
    Mutant(
        "name no message whose row cannot be read",
        "oncewire.handler.sending.transmit:set_aside",
        "with context.transition() as tx:\n    open_incident(context, tx, raised)",
        "pass",
        tests=(f"{_POISON}::test_a_damaged_row_of_a_sender_is_named_and_can_be_given_up",),
    ),
    Mutant(
        "give up nothing that cannot be read",
        "oncewire.handler.receiving.release:find_to_end",
        "tx.mend(message_id)\nreturn tx.outgoing(message_id)",
        "raise",
        tests=(f"{_POISON}::test_a_damaged_row_of_a_sender_is_named_and_can_be_given_up",),
    ),
    Mutant(
        "let the next epoch overtake what the last one held",
        "oncewire.handler.receiving.release:release_old",
        "old += 1",
        "return 0",
        tests=(f"{_POISON}::test_a_damaged_row_of_a_sender_is_named_and_can_be_given_up",),
    ),
    Mutant(
        "send bytes that have changed",
        "oncewire.handler.perform:_post",
        "if parcel is not None:\n    check_kept(parcel, effect.message_id)",
        "pass",
        tests=(f"{_POISON}::test_changed_bytes_are_not_sent",),
    ),
    Mutant(
        "send a file of the spool that has changed",
        "oncewire.handler.spool_reading:check_file",
        "if spool.name_of(_pieces(spool, name, heard)) != name:\n"
        "    raise StoreDamaged(f'the spool file {name} has changed', remedy='put it back from a backup, or give its message up with `oncewire abandon`')",
        "if not spool.name_of(_pieces(spool, name, heard)):\n"
        "    raise StoreDamaged(f'the spool file {name} has changed', remedy='put it back from a backup, or give its message up with `oncewire abandon`')",
        tests=(f"{_POISON}::test_a_file_of_the_spool_that_changed_is_not_sent",),
    ),
    Mutant(
        "answer with bytes that have changed",
        "oncewire.handler.content_digest:with_whole_answer",
        "return replace(stored, answer=None)",
        "return stored",
        tests=(f"{_POISON}::test_an_answer_whose_bytes_changed_is_given_anew",),
    ),
    Mutant(
        "believe terms that say something else",
        "oncewire.store.sql.rows:read_terms",
        "if terms.terms_id != terms_id:\n"
        "    raise _damaged_terms(terms_id, 'they say something else than when they were kept')",
        "if not terms_id:\n"
        "    raise _damaged_terms(terms_id, 'they say something else than when they were kept')",
        tests=(f"{_POISON}::test_damaged_terms_are_mended_by_the_next_message_under_them",),
    ),
    Mutant(
        "lose the agreement with its damaged copy",
        "oncewire.handler.context:HandlerContext._still_agreed",
        "for agreement in self.agreements:\n"
        "    text = write_whole(agreement)\n"
        "    if _agreement_id(text) == agreement_id:\n"
        "        self.caches.kept[agreement_id] = agreement\n"
        "        return agreement",
        "for agreement in ():\n"
        "    text = write_whole(agreement)\n"
        "    if _agreement_id(text) == agreement_id:\n"
        "        self.caches.kept[agreement_id] = agreement\n"
        "        return agreement",
        tests=(
            f"{_POISON}::test_a_kept_agreement_that_is_damaged_is_the_one_of_today_if_that_is_the_same",
        ),
    ),
    Mutant(
        "read every waiting body at a start",
        "oncewire.store.transition.transaction:WorkTransaction._listed",
        "return [row(key).stored for _, key in keys]",
        "return [self._whole(row(key)) for _, key in keys]",
        tests=(f"{_RESTART}::test_a_restart_loads_no_body",),
    ),
    Mutant(
        "post every answer that is owed at once",
        "oncewire.handler.receiving.receive:repost_answers",
        "context.state.repost_after = owed[-1].row if len(owed) == REPOSTED else None",
        "context.state.repost_after = None",
        tests=(f"{_RESTART}::test_answers_that_are_owed_are_posted_a_number_at_a_time",),
    ),
)

SUPERVISION: tuple[Mutant, ...] = (
    Mutant(
        "let a task end unnoticed",
        "oncewire.handler.runtime.commit_loop:Supervisor.ended",
        "problem is not None and (not self._failed.is_set())",
        "problem is None and self._failed.is_set()",
        tests=(f"{_SUPERVISOR}::test_a_verb_that_runs_out_of_memory_ends_the_handler",),
    ),
    Mutant(
        "let callers wait for a turn that never comes",
        "oncewire.handler.runtime.commit_loop:CommitLoop.turn",
        "self._fail(begun, problem)\nraise",
        "raise",
        tests=(f"{_SUPERVISOR}::test_nobody_waits_for_a_turn_that_never_comes",),
    ),
    Mutant(
        "go on after the memory ran out",
        "oncewire.handler.runtime.commit_loop:CommitLoop._attempt",
        "if isinstance(problem, MemoryError):\n    raise",
        "if problem is None:\n    raise",
        tests=(f"{_SUPERVISOR}::test_a_verb_that_runs_out_of_memory_ends_the_handler",),
    ),
    Mutant(
        "call a handler running that takes no turns",
        "oncewire.entry.control.client:LocalHandler.condition",
        "lag = await self.handler.supervisor.probe(PROBE)",
        "lag = 0.0",
        tests=(f"{_SUPERVISOR}::test_a_handler_that_takes_no_turns_is_not_called_running",),
    ),
    Mutant(
        "log every sender that is sent away",
        "oncewire.handler.runtime.commit_loop:Outages.say",
        "now - at < AGAIN",
        "now - at < 0",
        tests=(f"{_SUPERVISOR}::test_an_outage_is_told_at_once_and_then_once_a_minute",),
    ),
    Mutant(
        "let documents go under the agreement with itself",
        "oncewire.entry.party.partners:agreement_with_itself",
        "replace(agreement, actions=(), listed_only=True)",
        "replace(agreement, actions=())",
        tests=(f"{_ITSELF}::test_no_document_goes_under_it",),
    ),
)

KEEPING: tuple[Mutant, ...] = (
    Mutant(
        "back up files of the spool unread",
        "oncewire.entry.running.backup:check_backup",
        "listed.get(f'data/spool/{name}') != name",
        "f'data/spool/{name}' not in listed",
        tests=(f"{_BACKUP}::test_a_damaged_file_of_the_spool_is_told_by_the_backup",),
    ),
    Mutant(
        "trust a backup without reading it",
        "oncewire.entry.running.backup:check_backup",
        "if not path.is_file() or _digest(path) != digest:\n"
        "    raise _broken(f'{path} is missing or has changed')",
        "if not path.is_file():\n    raise _broken(f'{path} is missing or has changed')",
        tests=(f"{_BACKUP}::test_a_backup_that_is_not_whole_is_told",),
    ),
    Mutant(
        "leave half-written files in the inbox",
        "oncewire.entry.delivery.directory:Directory.__init__",
        "self.folder = make_folder(folder)\nclear_folder(self.folder)",
        "self.folder = make_folder(folder)",
        tests=(f"{_BACKUP}::test_what_a_killed_process_had_begun_to_write_goes",),
    ),
    Mutant(
        "agree on no signatures unless asked",
        "oncewire.entry.cli.partners:add",
        "PartnerOptions(profile, cpa_id, sign or not insecure, ordered, insecure, tuple(transport or ()), role, partner_role)",
        "PartnerOptions(profile, cpa_id, sign, ordered, insecure, tuple(transport or ()), role, partner_role)",
        tests=(f"{_SECURE}::test_init_and_partner_add_agree_on_tls_and_signatures",),
    ),
    Mutant(
        "listen without TLS unless asked",
        "oncewire.entry.cli.partners:init",
        "not insecure",
        "False",
        tests=(f"{_SECURE}::test_a_partner_that_is_added_is_known_at_once",),
    ),
    Mutant(
        "take a partner without TLS",
        "oncewire.entry.party.partners:plan_partner",
        "if not options.insecure and (not side_card.url.startswith('https://')):\n"
        "    raise InvalidValue(f'{side} listens without TLS, at {side_card.url}', remedy='make the party anew without --insecure, or set http.tls and http.client_certificates; or say --insecure, where the agreement begins')",
        "if not side_card.url:\n"
        "    raise InvalidValue(f'{side} listens without TLS, at {side_card.url}', remedy='make the party anew without --insecure, or set http.tls and http.client_certificates; or say --insecure, where the agreement begins')",
        tests=(f"{_SECURE}::test_without_tls_nobody_is_a_partner_by_accident",),
    ),
    Mutant(
        "believe a card whose fingerprint is another's",
        "oncewire.entry.party.folder:card_from",
        "told and told != card.fingerprint",
        "told and (not card.fingerprint)",
        tests=(f"{_SECURE}::test_a_card_tells_a_fingerprint_that_must_be_its_certificate_s",),
    ),
    Mutant(
        "use a secret that others can read",
        "oncewire.entry.party.settings:load",
        "secrets and file.stat().st_mode & 63",
        "secrets and (not file.exists())",
        tests=(f"{_SECURE}::test_a_secret_that_others_can_read_is_refused",),
    ),
    Mutant(
        "agree on nothing new until the next start",
        "oncewire.entry.running.serving:Reloading._take_over",
        "context.agreements = in_force(self._settings, kept)",
        "in_force(self._settings, kept)",
        tests=(f"{_SECURE}::test_a_partner_that_is_added_is_known_at_once",),
    ),
    Mutant(
        "drop the old certificate when the new one comes",
        "oncewire.entry.party.partners:roll_over",
        "write_new(path, ''.join((to_pem(der) for der in (*known, *fresh))), replace=True)",
        "write_new(path, ''.join((to_pem(der) for der in fresh)), replace=True)",
        tests=(f"{_SECURE}::test_a_key_follows_another_while_both_are_valid",),
    ),
)

IN_EDGE_ALIVE: tuple[Mutant, ...] = (*DAMAGE, *SUPERVISION, *KEEPING)
