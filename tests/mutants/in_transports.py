"""Deliberate bugs of the ways to travel: mail, files, a broker, and the change between them."""

# The replaced text is the product's own, as long as its lines are.

from __future__ import annotations

from tests.mutants.mutant import Mutant

_OTHERS = "tests/handler/test_other_transports.py"
_FALLBACK = "tests/handler/test_fallback.py"
_DELEGATED = "tests/handler/test_delegated.py"
_THERE_AND_BACK = (
    f"{_FALLBACK}::test_the_next_transport_is_taken_and_the_first_again_when_a_probe_gets_through"
)
_AWAY = f"{_DELEGATED}::test_a_receiver_that_is_away_is_waited_for_also_by_a_sender_that_restarts"
_READERS = "tests/transport/test_two_readers.py"
_NAMES = "tests/transport/test_hostile_names.py"
_SMTP = "tests/transport/test_smtp_contract.py"
_BROKER = "tests/transport/test_broker_contract.py"
_CONFIDED = "tests/handler/test_confided.py"
_MAILBOX = "tests/transport/test_mailbox.py"
_HOSTILE_FILES = "tests/transport/test_hostile_files.py"
_HOSTILE_BROKER = "tests/transport/test_hostile_broker.py"
_HOSTILE_MAIL = "tests/transport/test_hostile_mail.py"
_HOSTILE_MAILBOX = "tests/transport/test_hostile_mailbox.py"
_SWEEPING = "tests/transport/test_sweeping.py"
_FAULTS = "tests/transport/test_server_faults.py"
_FILES = "tests/transport/test_file_transport.py"
_RECOVERY = "tests/handler/test_recovery_at_work.py"

IN_TRANSPORTS: tuple[Mutant, ...] = (
    Mutant(
        "a transport that is left for one partner is left for all",
        "oncewire.handler.perform:way_to",
        "left = frozenset((name for peer, name in context.state.left if peer == stored.peer))",
        "left = frozenset((name for _, name in context.state.left))",
        requirement="RTY-15",
        tests=(
            (
                f"{_FALLBACK}::"
                "test_a_transport_that_fails_to_one_partner_is_still_taken_to_the_others"
            ),
        ),
    ),
    Mutant(
        "mail says yes before the parcel is stored",
        "oncewire.transport.smtp.listener:SmtpListener._ended",
        "_ANSWERS[verdict_of(reply)]",
        "_ANSWERS[Verdict.TAKEN]",
        requirement="TRN-3",
        tests=(f"{_SMTP}::TestSmtp::test_what_is_not_taken_now_comes_again",),
    ),
    Mutant(
        "mail claims that it can answer",
        "oncewire.transport.smtp.listener:MailDoor.take",
        "Delivery(NAME, mail.content_type, mail.headers, mail.body, peer=peer, allowance=allowance)",
        "Delivery(NAME, mail.content_type, mail.headers, mail.body, peer=peer, allowance=allowance, can_answer=True)",
        requirement="TRN-5 SYNC-10",
        tests=(
            f"{_SMTP}::TestSmtp::test_it_says_whether_it_can_answer",
            f"{_OTHERS}::test_a_synchronous_wish_is_answered_later_with_a_warning",
        ),
    ),
    Mutant(
        "a mail that drips keeps its place",
        "oncewire.transport.smtp.listener:MailText._more",
        "async with self._patience.waiting():\n"
        "    piece = (await self._reader.readuntil(_END))[:-3]\n"
        "    self.over = True",
        "if True:\n    piece = (await self._reader.readuntil(_END))[:-3]\n    self.over = True",
        tests=(f"{_HOSTILE_MAIL}::test_a_mail_that_drips_gives_its_place_back",),
    ),
    Mutant(
        "commands of a mail server have no end",
        "oncewire.transport.smtp.listener:MailConnection.push",
        "if self._answers > ANSWERS_MAX:\n"
        "    self._writer.write(b'421 4.7.0 too many commands\\r\\n')\n"
        "    self._writer.close()",
        "if False:\n"
        "    self._writer.write(b'421 4.7.0 too many commands\\r\\n')\n"
        "    self._writer.close()",
        tests=(f"{_HOSTILE_MAIL}::test_who_asks_without_end_is_hung_up_on_and_holds_nobody_up",),
    ),
    Mutant(
        "what comes before it is asked for is a mail",
        "oncewire.transport.smtp.listener:MailConnection.text",
        "self._reader._buffer or self._reader.at_eof()",
        "self._reader.at_eof()",
        tests=(
            f"{_HOSTILE_MAIL}::test_what_comes_before_it_is_asked_for_is_no_mail_and_no_command",
        ),
    ),
    Mutant(
        "a dot that was put before a dot stays in the mail",
        "oncewire.transport.smtp.listener:MailText._plain",
        "text = text[:len(text) - held].replace(b'\\r\\n.', b'\\r\\n')",
        "text = text[:len(text) - held]",
        requirement="TRN-3",
        tests=(f"{_HOSTILE_MAIL}::test_the_text_of_a_mail_is_what_was_sent_however_it_is_cut",),
    ),
    Mutant(
        "a mail may have any size",
        "oncewire.transport.smtp.listener:MailText._more",
        "if self.size > self._most:\n"
        "    self.broken = f'552 5.3.4 a mail may have {self._most} bytes'\n"
        "    return b''",
        "if False:\n"
        "    self.broken = f'552 5.3.4 a mail may have {self._most} bytes'\n"
        "    return b''",
        tests=(
            (
                f"{_HOSTILE_MAIL}::"
                "test_a_mail_that_is_too_large_is_refused_and_one_without_end_is_left"
            ),
        ),
    ),
    Mutant(
        "a mail server knows no partners",
        "oncewire.transport.smtp.listener:SmtpListener._ended",
        "if isinstance(reply, OverBudget):\n"
        "    return self._over(peer, reply)\n"
        "self.budgets.note(peer, reply, visit)",
        "if isinstance(reply, OverBudget):\n    return self._over(peer, reply)",
        tests=(f"{_HOSTILE_MAIL}::test_a_partner_comes_in_when_strangers_have_every_place",),
    ),
    Mutant(
        "a header of a mail may hold a line end",
        "oncewire.transport.contract:_line",
        "not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or len(written) > LINE_MAX",
        "not _NAME.fullmatch(name) or False or len(written) > LINE_MAX",
        requirement="TRN-3",
        tests=(f"{_NAMES}::test_a_few_thousand_of_them",),
    ),
    Mutant(
        "any body is sent as mail as it is",
        "oncewire.transport.smtp.relay:write_mail",
        "as_it_is = is_mail_safe(body)",
        "as_it_is = True",
        requirement="TRN-3",
        tests=(f"{_NAMES}::test_a_body_never_ends_the_mail_and_never_begins_another",),
    ),
    Mutant(
        "a file is removed before its parcel is stored",
        "oncewire.transport.files.transport:FolderReader._take",
        "verdict = Verdict.TAKEN",
        "verdict = Verdict.TAKEN\n"
        "await self._rename(named.claimed_name(file_id, self._reader), named.refused_name(file_id))",
        requirement="TRN-4",
        tests=(f"{_READERS}::test_what_grows_is_taken_when_it_is_whole",),
    ),
    Mutant(
        "a claim is not found again",
        "oncewire.transport.files.remote:claimed_id",
        "return found.group(1) if found is not None and found.group(2) == reader else None",
        "return None",
        requirement="TRN-4",
        tests=(f"{_READERS}::test_what_grows_is_taken_when_it_is_whole",),
    ),
    Mutant(
        "half a file is a parcel",
        "oncewire.transport.files.remote:ParcelBody.__anext__",
        "if self._left > 0:\n    self._trouble = _cut_off()\n    raise self._trouble",
        "pass",
        requirement="TRN-4",
        tests=(f"{_READERS}::test_a_file_that_is_cut_off_is_looked_at_again_and_then_refused",),
    ),
    Mutant(
        "a transport is never left",
        "oncewire.protocol.sender:_exhausted",
        "(note, Leave(name), *step.effects)",
        "(note, *step.effects)",
        requirement="RTY-15 CPA-16",
        tests=(_THERE_AND_BACK,),
    ),
    Mutant(
        "a transport that was left is never taken again",
        "oncewire.handler.sending.transmit:take_again",
        "(way.peer, way.transport) not in context.state.left",
        "way.peer",
        requirement="RTY-15",
        tests=(_THERE_AND_BACK,),
    ),
    Mutant(
        "an answer knows one way only",
        "oncewire.handler.actions:PostAnswer.ways",
        "((self.transport, self.address), *self.others)",
        "((self.transport, self.address),)",
        requirement="DUP-9",
        tests=(f"{_FALLBACK}::test_a_copy_over_another_transport_is_a_copy",),
    ),
    Mutant(
        "retries on one transport count on the next",
        "oncewire.protocol.sender:_on_next_transport",
        "replace(outgoing, transport=outgoing.transport + 1, attempts_here=0)",
        "replace(outgoing, transport=outgoing.transport + 1)",
        requirement="RTY-4 RTY-16",
        tests=(f"{_FALLBACK}::test_when_the_last_transport_fails_too_somebody_is_told",),
    ),
    Mutant(
        "taken by the broker is delivered",
        "oncewire.transport.broker.transport:BrokerTransport.send",
        "reported = await self._until_gone(js, stream, place)",
        "reported = ''",
        requirement="RM-7",
        tests=(f"{_BROKER}::test_taken_by_the_broker_is_not_delivered",),
    ),
    Mutant(
        "a broker that does not sync will do",
        "oncewire.transport.broker.transport:check_server",
        "if not told.get('config', {}).get('sync_always'):\n"
        "    raise TransportProblem('the broker acknowledges before its disk has it', remedy='set sync_interval: always in the jetstream block of its configuration')",
        "if 'config' not in told:\n"
        "    raise TransportProblem('the broker acknowledges before its disk has it', remedy='set sync_interval: always in the jetstream block of its configuration')",
        requirement="RM-7",
        tests=(f"{_BROKER}::test_a_broker_that_answers_before_its_disk_has_it_is_refused",),
    ),
    Mutant(
        "what the broker gave up is delivered",
        "oncewire.transport.broker.transport:BrokerTransport._until_gone",
        "return future.result()",
        "return ''",
        requirement="RM-8",
        tests=(f"{_DELEGATED}::test_what_the_broker_gives_up_is_told_like_any_failure",),
    ),
    Mutant(
        "a restart forgets what the broker was trusted with",
        "oncewire.handler.runtime.engine:Engine._take_up",
        "(lambda tx: release.survey(context, tx), lambda tx: deliver.recover_hand_overs(context, tx), lambda tx: take_up_waiting(context, tx), lambda tx: context.state.failed.extend(left_untold(context, tx)), lambda tx: gathering.begin_all(context, tx), lambda tx: retention.end_all_answers(context, tx), lambda tx: repost_answers(context, tx), lambda tx: transmit.take_up_delegated(context, tx), lambda tx: resume_stranded_hops(context, tx))",
        "(lambda tx: release.survey(context, tx), lambda tx: deliver.recover_hand_overs(context, tx), lambda tx: take_up_waiting(context, tx), lambda tx: context.state.failed.extend(left_untold(context, tx)), lambda tx: gathering.begin_all(context, tx), lambda tx: retention.end_all_answers(context, tx), lambda tx: repost_answers(context, tx), lambda tx: resume_stranded_hops(context, tx))",
        requirement="RM-7",
        tests=(_AWAY,),
    ),
    Mutant(
        "a parcel that went with its stream is delivered",
        "oncewire.transport.broker.transport:BrokerTransport._until_gone",
        "return await self._lost(js, stream)",
        "return ''",
        requirement="RM-7",
        tests=(f"{_FAULTS}::test_a_parcel_that_went_with_its_stream_is_not_delivered",),
    ),
    Mutant(
        "a broker without TLS hears the password",
        "oncewire.transport.broker.transport:_client.Guarded._connect_command",
        "wanted = server is not None and server.uri.scheme == 'tls'",
        "wanted = False",
        requirement="RM-7",
        tests=(f"{_FAULTS}::test_a_broker_that_is_not_the_one_hears_nothing",),
    ),
    Mutant(
        "those who send keep us from reading",
        "oncewire.transport.files.transport:FileTransport.__init__",
        "self._reading = Connections(connect)",
        "self._reading = self._connections",
        requirement="TRN-4",
        tests=(f"{_FILES}::test_a_thousand_that_wait_to_be_sent_keep_nobody_from_reading",),
    ),
    Mutant(
        "a mail is removed from its mailbox before it is stored",
        "oncewire.transport.smtp.transport:MailboxReader._take",
        "pieces = self._parts(box, mail_id, first, limit)",
        "pieces = self._parts(box, mail_id, first, limit)\n"
        "await asyncio.to_thread(box.remove, mail_id)",
        requirement="TRN-3",
        tests=(f"{_MAILBOX}::test_a_mail_is_removed_when_it_is_stored_and_not_before",),
    ),
    Mutant(
        "an envelope of S/MIME is opened whatever its part says",
        "oncewire.handler.encryption:_opened",
        "closed = smime.is_enveloped(payload.media_type) if enveloped else _MARK in data[:_HEAD]",
        "closed, enveloped = (True, smime.is_enveloped(payload.media_type))",
        requirement="TRN-3",
        tests=(f"{_CONFIDED}::test_what_is_not_in_the_agreed_envelope_is_refused",),
    ),
    Mutant(
        "a writer sweeps away what another is writing",
        "oncewire.transport.files.remote:part_of",
        "if found is None or found.group(3) != mark:\n    return None",
        "if found is None:\n    return None",
        requirement="TRN-4",
        tests=(f"{_SWEEPING}::test_only_what_we_began_long_ago_is_removed",),
    ),
    Mutant(
        "a writer sweeps away what it is writing",
        "oncewire.transport.files.transport:Sweeping._is_left",
        "if found is None or found[0] in self._writing:\n    return False",
        "if found is None:\n    return False",
        requirement="TRN-4",
        tests=(
            f"{_SWEEPING}::test_what_a_broken_connection_left_goes_and_what_is_being_written_stays",
        ),
    ),
    Mutant(
        "an envelope of an old handler is not read",
        "oncewire.wire.security.smime",
        "{bytes.fromhex('608648016503040102'): (AES, 16), bytes.fromhex('608648016503040116'): (AES, 24), bytes.fromhex('60864801650304012a'): (AES, 32), bytes.fromhex('2a864886f70d0307'): (TripleDES, 24)}",
        "{bytes.fromhex('608648016503040102'): (AES, 16), bytes.fromhex('608648016503040116'): (AES, 24), bytes.fromhex('60864801650304012a'): (AES, 32)}",
        requirement="TRN-3",
        tests=(
            (
                f"{_CONFIDED}::test_an_envelope_of_an_old_handler_is_read_and_one_of_a_strange_kind_"
                "ends_nothing"
            ),
        ),
    ),
    Mutant(
        "one mail at which a look breaks off keeps the others waiting",
        "oncewire.transport.smtp.transport:ImapBox.wanted",
        "sorted(found, key=lambda mail_id: (mail_id in last, mail_id))",
        "sorted(found)",
        requirement="TRN-3",
        tests=(
            (
                f"{_HOSTILE_MAILBOX}::"
                "test_the_mails_of_others_are_taken_whatever_the_server_says_of_one"
            ),
        ),
    ),
    Mutant(
        "a parcel that takes long to store is handed in again meanwhile",
        "oncewire.transport.broker.transport:BrokerTransport._say_in_work",
        "with contextlib.suppress(Error, OSError):\n    await message.in_progress()",
        "with contextlib.suppress(Error, OSError):\n    pass",
        requirement="RM-7",
        tests=(f"{_BROKER}::test_a_parcel_that_is_worked_on_for_long_is_not_handed_in_again",),
    ),
    Mutant(
        "what was given to a broker before a restart is called not delivered",
        "oncewire.handler.sending.transmit:transmission_over",
        "transmission_failed(stored.outgoing, channel, terms, now, attempt=ended.attempt, certain=ended.certain and ended.message_id not in context.state.taken_up, reason=ended.reason, transport=ended.transport)",
        "transmission_failed(stored.outgoing, channel, terms, now, attempt=ended.attempt, certain=ended.certain, reason=ended.reason, transport=ended.transport)",
        requirement="ERR-9",
        tests=(
            f"{_RECOVERY}::test_whether_a_transport_was_given_it_before_a_restart_nobody_knows",
        ),
    ),
    Mutant(
        "a broker is given a message whose time is over",
        "oncewire.handler.perform:_post",
        "begin_within = time_left - min(SECOND, time_left // 10)",
        "begin_within = None",
        requirement="RTY-17 ERR-9",
        tests=(
            f"{_RECOVERY}::test_a_transport_that_answers_for_a_message_is_given_it_before_its_time_is_over",
        ),
    ),
    Mutant(
        "a reader does not rest after what it refused",
        "oncewire.transport.budget:ReaderShare.note",
        "self._free_at = max(self._free_at, self._clock()) + rest",
        "pass",
        tests=(
            "tests/transport/test_budget.py::test_a_reader_rests_for_longer_than_what_it_refused_took",
        ),
    ),
    Mutant(
        "files of a folder are taken without a rest",
        "oncewire.transport.files.transport:FolderReader.look.some",
        "await self._share.turn()\n"
        "await self._safely(self._each(file_id, on_delivery, claimed=claimed))",
        "await self._safely(self._each(file_id, on_delivery, claimed=claimed))",
        tests=(f"{_HOSTILE_FILES}::test_forged_files_leave_the_processor_to_others",),
    ),
    Mutant(
        "names of a folder are heard without a rest",
        "oncewire.transport.files.remote:Listing.add",
        "if self._told % AT_A_STRETCH == 0:\n"
        "    rest = min((thread_time() - self._began) * REST_FOR_EACH, REST_MAX)\n"
        "    until = self._limit.when()\n"
        "    if until is not None:\n"
        "        self._limit.reschedule(until + rest)\n"
        "    await asyncio.sleep(rest)\n"
        "    self._began = thread_time()",
        "if False:\n"
        "    rest = min((thread_time() - self._began) * REST_FOR_EACH, REST_MAX)\n"
        "    until = self._limit.when()\n"
        "    if until is not None:\n"
        "        self._limit.reschedule(until + rest)\n"
        "    await asyncio.sleep(rest)\n"
        "    self._began = thread_time()",
        tests=(f"{_HOSTILE_FILES}::test_a_folder_full_of_names_leaves_the_processor_to_others",),
    ),
    Mutant(
        "mails are taken without a rest",
        "oncewire.transport.smtp.transport:MailboxReader._take",
        "await self._share.turn()\nverdict = Verdict.REFUSED",
        "verdict = Verdict.REFUSED",
        tests=(f"{_HOSTILE_MAILBOX}::test_forged_mails_leave_the_processor_to_others",),
    ),
    Mutant(
        "a broker may say what it likes",
        "oncewire.transport.broker.transport:_client.Bounded.parse",
        "if in_line and len(self.buf) > LINE_MAX or self.needed > PARCEL_MAX:\n"
        "    raise ProtocolError('nats: the server says more than anybody asked for')",
        "if False:\n    raise ProtocolError('nats: the server says more than anybody asked for')",
        tests=(f"{_HOSTILE_BROKER}::test_a_broker_without_end_is_left",),
    ),
    Mutant(
        "parcels of a broker are taken however large they are together",
        "oncewire.transport.broker.transport:BrokerTransport._take_all",
        "while sum(taking.values()) > _MEMORY:\n"
        "    await asyncio.wait(taking, return_when=asyncio.FIRST_COMPLETED)",
        "while False:\n    await asyncio.wait(taking, return_when=asyncio.FIRST_COMPLETED)",
        tests=(f"{_HOSTILE_BROKER}::test_large_parcels_wait_for_each_other",),
    ),
)
