"""Deliberate bugs. Each replaces one piece of the product and must be caught by the checker.

A mutant names the module, the function, the code it replaces and what it puts there, the promise that
must be seen broken, and a world in which the bug shows. When the product changes so that
that code is gone, the suite says so: the mutant has to be written anew, not dropped.
"""

from __future__ import annotations

from tests.mutants.mutant import PLAIN, Mutant

CRASHING = "messages=60,crash=0.05"
HUB = "messages=30,hops=2,crash=0.01"
WRAPPING = "messages=60,window=3,agreement='[sequence]\\nrange=[0,7]\\n'"
# Ids are kept so long that no gap is given up by time alone: what blocks, blocks.
PATIENT = ",persist_duration=12*3600*1_000_000"
GIVING_UP = "messages=60,retries=1,loss=0.4,abandon=0.7" + PATIENT
FAILING = (
    "messages=40,profile='ebms2',flow='unrestricted',retries=1,loss=0.5,abandon=1.0,"
    "agreement='[delivery]\\non_exhausted=\"fail_message\"\\n'"
)
SHORT_LIVED = (
    "messages=60,loss=0.3,reorder=0.5,abandon=1.0,"
    "agreement='[delivery]\\ntime_to_live=\"PT20S\"\\n'"
)
CALM = "loss=0.0,duplicate=0.0,reorder=0.0,corrupt=0.0,crash=0.0,partition=0.0,disk_full=0.0"
PASSING_ON = "hops=2,profile='ebms2',flow='unrestricted',hop_mode='transparent'"
FORGETFUL = "messages=30,loss=0.9,retries=60,agreement='[delivery]\\npersist_duration=\"PT40S\"\\n'"


_SENDING = "oncewire.protocol.sending"
_RECEIVING = "oncewire.protocol.receiving"
_RECEIVER = "oncewire.protocol.receiver"
_ATTEMPTS = "oncewire.protocol.sender"
_ANSWERS = "oncewire.protocol.sender"
_SETTLING = "oncewire.protocol.sending"
_OPERATING = "oncewire.protocol.sender"
_ENGINE = "oncewire.handler.runtime.engine"
_FAILURES = "oncewire.handler.runtime.failures"
_ARRIVE = "oncewire.handler.receiving.arrive"
_DELIVER = "oncewire.handler.delivering.deliver"
_PERFORM = "oncewire.handler.perform"
_NOTICES = "oncewire.handler.delivering.notices"
_SAID = "tests/protocol/test_answers.py"
_TAKEN_BACK = "tests/handler/test_taken_back.py"

MUTANTS: tuple[Mutant, ...] = (
    # --- durability ---
    Mutant(
        "acknowledge before the commit",
        f"{_ENGINE}:Engine.commit",
        "if fellows is None:\n"
        "    context.store.commit()\n"
        "else:\n"
        "    with beside.claimed(context, fellows):\n"
        "        if context.store.pending() or fellows.wants_turn:\n"
        "            context.store.commit()",
        "if context.store.pending():\n"
        "    context.commits = getattr(context, 'commits', 0) + 1\n"
        "    if context.commits % 3 == 0:\n"
        "        context.store.commit()",
        ("S3", "S4", "S1", "journal"),
        CRASHING,
        "STO-1",
    ),
    Mutant(
        "act although the commit failed",
        f"{_ENGINE}:Engine.commit",
        "state.actions = []\nraise",
        "actions, state.actions = (state.actions, [])\nreturn actions",
        ("S1", "S2", "S3", "S4"),
        "messages=60,disk_full=0.1",
        "RM-13",
    ),
    Mutant(
        "remember duplicates only until the next restart",
        f"{_ARRIVE}:Arriving.take",
        "self.facts.from_party",
        "self.facts.from_party + self.context.boot",
        ("S2", "S6", "S8"),
        CRASHING,
        "STO-4",
    ),
    Mutant(
        "journal an arrival but do not store it",
        f"{_ARRIVE}:Arriving._first",
        "tx.add_incoming(stored, words)",
        "pass",
        ("S2", "S4", "S6", "S7", "S8"),
        PLAIN,
        "RM-18",
    ),
    Mutant(
        "forget that the application confirmed",
        f"{_DELIVER}:confirm",
        "if confirmed is stored.incoming:\n    return False\ntx.save_incoming(confirmed)",
        "if confirmed is stored.incoming:\n    return False",
        ("S2",),
        PLAIN,
        "DUP-2",
    ),
    Mutant(
        "forget that a message was handed over",
        f"{_DELIVER}:_give",
        "if fitting is not None:\n"
        "    fitting.check(fitting.room.admit(taken), size)\n"
        "tx.save_incoming(incoming)",
        "if fitting is not None:\n    fitting.check(fitting.room.admit(taken), size)",
        ("S2",),
        PLAIN,
        "DUP-2",
    ),
    Mutant(
        "hide that a hand-over is a repeat",
        f"{_DELIVER}:_give",
        "HandedOver(redelivered=again, lease_expired=again and late, split_id=split_id)",
        "HandedOver(lease_expired=again and late, split_id=split_id)",
        ("S2",),
        CRASHING,
        "STO-3",
    ),
    Mutant(
        "believe damaged bytes",
        "oncewire.handler.content_digest:is_intact",
        "return base64.b64encode(hashlib.sha256(parcel.body).digest()).decode() == stated",
        "return True",
        ("S1", "S4", "S9"),
        "messages=60,corrupt=0.3",
    ),
    Mutant(
        "give the application other bytes than were verified",
        "oncewire.handler.delivering.deliver:GivenMessage.of",
        "message = accepted(context, stored)",
        "message = accepted(context, stored)\n"
        "message = replace(message, payloads=tuple((replace(one, data=(one.data or b'') + b' ') for one in message.payloads)))",
        ("S15",),
        PLAIN,
        "RM-9",
    ),
    Mutant(
        "acknowledge before the commit, behind a hub that passes on",
        f"{_ENGINE}:Engine.commit",
        "if fellows is None:\n"
        "    context.store.commit()\n"
        "else:\n"
        "    with beside.claimed(context, fellows):\n"
        "        if context.store.pending() or fellows.wants_turn:\n"
        "            context.store.commit()",
        "if context.store.pending():\n"
        "    context.commits = getattr(context, 'commits', 0) + 1\n"
        "    if context.commits % 3 == 0:\n"
        "        context.store.commit()",
        ("S3",),
        f"messages=60,crash=0.05,{PASSING_ON}",
        "STO-1",
    ),
    # --- retries ---
    Mutant(
        "never resend",
        f"{_ATTEMPTS}:_transmit",
        "outgoing.moved(OutgoingEvent.ATTEMPT_DUE, to, attempts=outgoing.attempts + 1, attempts_here=outgoing.attempts_here + 1, first_sent_at=now if outgoing.first_sent_at is None else outgoing.first_sent_at, last_sent_at=now, next_attempt_at=now + wait if terms.runs_protocol else None)",
        "outgoing.moved(OutgoingEvent.ATTEMPT_DUE, to, attempts=outgoing.attempts + 1, attempts_here=outgoing.attempts_here + 1, first_sent_at=now if outgoing.first_sent_at is None else outgoing.first_sent_at, last_sent_at=now, next_attempt_at=None)",
        ("S4", "L1"),
        PLAIN + PATIENT,
        "RTY-18",
    ),
    Mutant(
        "resend too early",
        f"{_ATTEMPTS}:_transmit",
        "wait = terms.timeout if first else terms.retry_interval",
        "wait = terms.retry_interval // 5",
        ("S11",),
        PLAIN,
        "RTY-1",
    ),
    Mutant(
        "one retry too many",
        f"{_ATTEMPTS}:attempt_due",
        "outgoing.attempts_here > terms.resends",
        "outgoing.attempts_here > terms.resends + 1",
        ("S11",),
        GIVING_UP,
        "RTY-3",
    ),
    Mutant(
        "give up one retry early",
        f"{_ATTEMPTS}:attempt_due",
        "outgoing.attempts_here > terms.resends",
        "outgoing.attempts_here > max(terms.resends - 1, 0)",
        ("S11",),
        FAILING,
        "RTY-18",
    ),
    Mutant(
        "resume without zeroing the counter",
        f"{_OPERATING}:resume",
        "outgoing.moved(OutgoingEvent.RESUMED, attempts_here=0, transport=0, resumes=outgoing.resumes + 1, next_attempt_at=now, reason='', notice_owed=False)",
        "outgoing.moved(OutgoingEvent.RESUMED, attempts_here=outgoing.attempts_here, transport=0, resumes=outgoing.resumes + 1, next_attempt_at=now, reason='', notice_owed=False)",
        ("S4", "L1", "S11"),
        "messages=30,retries=1,loss=0.6",
        "RTY-13",
    ),
    Mutant(
        "resend under a new MessageId",
        f"{_PERFORM}:_post",
        "if address is None or parcel is None:\n"
        "    raise StoreDamaged(f'message {effect.message_id} has no bytes or no address to be sent with', remedy='restore the store from a backup')",
        "if address is None or parcel is None:\n"
        "    raise StoreDamaged(f'message {effect.message_id} has no bytes or no address to be sent with', remedy='restore the store from a backup')\n"
        "if effect.attempt > 1:\n"
        "    old, new = (effect.message_id.encode(), f'{effect.attempt}{effect.message_id}'.encode())\n"
        "    parcel = StoredParcel(parcel.content_type, (), tuple((p.replace(old, new) for p in parcel.body)))",
        ("S1",),
        PLAIN,
        "DUP-3",
    ),
    Mutant(
        "send on after TimeToLive",
        "oncewire.protocol.states:Outgoing.deadline",
        "if self.expires_at is not None:\n    ends.append(self.expires_at)",
        "pass",
        ("S11",),
        SHORT_LIVED,
        "HDR-9",
    ),
    Mutant(
        "send on after persistDuration",
        "oncewire.protocol.states:Outgoing.deadline",
        "if self.first_sent_at is not None and terms.reliable:\n"
        "    ends.append(self.first_sent_at + terms.persist_duration)",
        "if self.first_sent_at is not None and terms.reliable:\n    pass",
        ("S11",),
        FORGETFUL,
        "RTY-17",
    ),
    Mutant(
        "keep the number of an acknowledged message",
        f"{_ANSWERS}:ack_arrived",
        "go_on(delivered, channel, terms, effects, Fate.SETTLED)",
        "SenderStep(delivered, channel, effects)",
        ("S4", "L1"),
        PLAIN,
        "SW-5",
    ),
    Mutant(
        "leave a failed number unsettled",
        f"{_SETTLING}:fail",
        "effects = (*effects, Raise(reason, failed.message_id))\n"
        "return go_on(failed, channel, terms, effects, Fate.GIVEN_UP)",
        "return SenderStep(failed, channel, effects)",
        ("S4", "L1"),
        "messages=30,retries=1,loss=0.6,agreement='[delivery]\\non_exhausted=\"fail_message\"\\n'",
        "RTY-16",
    ),
    # --- outcomes ---
    Mutant(
        "call unknown not delivered",
        "oncewire.protocol.states:Outgoing.unheard",
        "return OutgoingState.UNKNOWN if self.transmitted else OutgoingState.NOT_DELIVERED",
        "return OutgoingState.NOT_DELIVERED",
        ("S5",),
        FAILING,
        "RM-2",
    ),
    Mutant(
        "fail without telling the From Party",
        "oncewire.protocol.states:Outgoing.failed",
        "self.moved(event, to, next_attempt_at=None, reason=reason, notice_owed=True, failures=self.failures + 1, proved_by=None)",
        "self.moved(event, to, next_attempt_at=None, reason=reason, notice_owed=False, failures=self.failures + 1, proved_by=None)",
        ("S4",),
        FAILING,
        "RTY-14",
    ),
    Mutant(
        "call a failure told before the application took the notice",
        f"{_FAILURES}:tell_failures",
        "if stored.relayed_from is None:\n"
        "    context.state.actions.append(notices.notice_of(stored.outgoing))\n"
        "else:\n"
        "    _report(context, stored)",
        "if stored.relayed_from is None:\n"
        "    context.state.actions.append(notices.notice_of(stored.outgoing))\n"
        "    with context.transition() as tx:\n"
        "        notices.take(context, tx, notices.notice_of(stored.outgoing).notice_id)\n"
        "else:\n"
        "    _report(context, stored)",
        ("told",),
        FAILING,
        "RTY-14",
    ),
    Mutant(
        "forget that the application took a notice",
        f"{_NOTICES}:take",
        "if stored is None:\n    return False\nno_more_owed(tx, stored.outgoing)",
        "if stored is None:\n    return False",
        ("told",),
        FAILING,
        "RTY-14",
    ),
    Mutant(
        "send a notice about a notice",
        f"{_NOTICES}:is_due",
        "return owes_failure_notice(stored.facts.kind, reliable=terms.reliable)",
        "return terms.reliable",
        ("told",),
        "messages=30,hops=4,retries=1,loss=0.6,abandon=1.0,"
        "agreement='[delivery]\\non_exhausted=\"fail_message\"\\n'",
        "ERR-8",
    ),
    Mutant(
        "a hub's stored acknowledgement outlives its own report of failure",
        f"{_ANSWERS}:ack_arrived",
        "if proof is Proof.HOP and outgoing.taken_back:\n"
        "    return _disowned(outgoing, channel, terms, ack_id)",
        "if False:\n    return _disowned(outgoing, channel, terms, ack_id)",
        requirement="HOP-9",
        tests=(
            f"{_SAID}::test_a_hubs_word_after_its_failure_means_what_it_means_before_it",
            f"{_SAID}::test_no_hub_settles_what_it_has_taken_back",
        ),
    ),
    Mutant(
        "numbers per transport stand beside a change of transport",
        "oncewire.protocol.terms:_check_contradictions",
        "terms.numbered and terms.scope is Scope.TRIPLE and (len(terms.transports) > 1)",
        "terms.ordered and terms.scope is Scope.TRIPLE and (len(terms.transports) > 1)",
        requirement="SEQ-1",
        tests=(
            "tests/protocol/test_terms.py::test_impossible_terms_are_refused_and_say_what_to_do",
        ),
    ),
    Mutant(
        "let a hub take back what the To Party itself acknowledged",
        f"{_ANSWERS}:_messaging_error",
        "if outgoing.proved_by is Proof.HOP:\n"
        "    return _taken_back(outgoing, channel, terms, error, note, certain=certain)",
        "if True:\n    return _taken_back(outgoing, channel, terms, error, note, certain=certain)",
        requirement="HOP-9",
        tests=(
            f"{_TAKEN_BACK}::test_a_hubs_report_comes_too_late_after_the_to_partys_own_word",
            f"{_TAKEN_BACK}::test_hubs_that_give_up_early_take_nothing_back_that_the_seller_said",
        ),
    ),
    Mutant(
        "believe the failure report of a stranger",
        "oncewire.handler.receiving.reports:receive_errors",
        "if stored is None or not is_receiver(agreement, stored):\n"
        "    ignore_stray(context, tx, message, agreement, reference, stored)\n"
        "    return",
        "if stored is None:\n"
        "    ignore_stray(context, tx, message, agreement, reference, stored)\n"
        "    return",
        requirement="ERR-5",
        tests=(f"{_TAKEN_BACK}::test_a_partner_who_never_saw_the_message_changes_nothing",),
    ),
    Mutant(
        "believe a partner behind the same hub",
        "oncewire.handler.route:is_receiver",
        "return agreement.via is None or relayed or stored.facts.cpa_id in names",
        "return True",
        requirement="ERR-5",
        tests=(f"{_TAKEN_BACK}::test_a_partner_behind_the_same_hub_is_not_on_the_messages_way",),
    ),
    Mutant(
        "restart a numbering whenever somebody asks",
        "oncewire.handler.runtime.operate:restart_channel",
        "channel.restart(terms)",
        "channel.end_epoch()",
        requirement="SEQ-4",
        tests=(
            "tests/handler/runtime/test_operate.py::test_no_restart_while_a_number_is_unsettled",
        ),
    ),
    Mutant(
        "lose a hub's failure report",
        f"{_FAILURES}:_report",
        "notices.no_more_owed(tx, outgoing)\nreport_failure(context, tx, stored)",
        "notices.no_more_owed(tx, outgoing)\npass",
        ("S4", "S12"),
        "messages=30,hops=2,retries=1,loss=0.6,"
        "agreement='[delivery]\\non_exhausted=\"fail_message\"\\n'",
        "HOP-9",
    ),
    Mutant(
        "hear no acknowledgement, and say so",
        f"{_ANSWERS}:ack_arrived",
        "late = outgoing.late if known else outgoing.state in FINAL_OUTGOING",
        "return SenderStep(outgoing, channel)\nlate = False",
        ("L3",),
        f"messages=5,retries=2,abandon=1.0,{CALM}",
        "RM-14",
    ),
    # --- windows and numbers ---
    Mutant(
        "window one too wide",
        f"{_SENDING}:SendingChannel.places",
        "terms.window_size - self.span(terms)",
        "terms.window_size + 1 - self.span(terms)",
        ("S8",),
        "messages=60,window=2,loss=0.4",
        "SW-4",
    ),
    Mutant(
        "wrap-around compared as plain integers",
        "oncewire.protocol.sequence:SequenceRange.distance",
        "return (end - start) % self.size",
        "return max(end - start, 0)",
        ("S4", "S6", "S7", "S8", "L1"),
        WRAPPING,
        "SEQ-12",
    ),
    Mutant(
        "give one number twice",
        f"{_SENDING}:SendingChannel.enter",
        "terms.numbers.after(number)",
        "terms.numbers.after(number, channel.used % 7 > 0)",
        ("S4", "S8", "L1"),
        PLAIN,
        "SEQ-1",
    ),
    Mutant(
        "slide past an unacknowledged number",
        f"{_SENDING}:SendingChannel.settle",
        "first = self.first_unsettled",
        "first = self.first_unsettled\nfirst, settled = (terms.numbers.after(number), set())",
        ("S4", "S8", "L1"),
        "messages=60,window=4,loss=0.4",
        "SW-5",
    ),
    Mutant(
        "hand over early messages at once",
        f"{_ARRIVE}:Arriving._first",
        "self._incoming(sender, judgement.channel, terms).moved(IncomingEvent.ARRIVED, IncomingState.HELD if judgement.held else to)",
        "self._incoming(sender, judgement.channel, terms).moved(IncomingEvent.ARRIVED, to)",
        ("S6", "S7"),
        "messages=60,loss=0.4",
        "SW-10",
    ),
    Mutant(
        "release everything that is held",
        f"{_RECEIVING}:ReceivingChannel.take",
        "while number in held or outrun > 0:\n"
        "    if number in held:\n"
        "        released.append(held.pop(number))\n"
        "    else:\n"
        "        skipped.append(number)\n"
        "    number, passed, outrun = (kept.numbers.after(number), passed + 1, outrun - 1)",
        "while held:\n"
        "    number = next(iter(held))\n"
        "    if number in held:\n"
        "        released.append(held.pop(number))\n"
        "    else:\n"
        "        skipped.append(number)\n"
        "    number, passed, outrun = (kept.numbers.after(number), passed + 1, outrun - 1)",
        ("S4", "S6", "S7"),
        "messages=60,loss=0.4",
        "SW-10",
    ),
    Mutant(
        "never release what was held",
        "oncewire.handler.receiving.release:release",
        "if held.incoming.state is IncomingState.HELD and held.incoming.channel == key:\n"
        "    _release_one(context, tx, held)",
        "if held.incoming.state is IncomingState.HELD and held.incoming.channel == key:\n    pass",
        ("S4", "S7"),
        "messages=60,loss=0.4",
        "SW-10",
    ),
    Mutant(
        "restart on a late copy of a Reset message",
        f"{_ARRIVE}:Arriving._copy",
        "other = judge_copy(arrival, digest, channel)",
        "from oncewire.protocol.receiver import TurnedAway\n"
        "other = judge_copy(arrival, digest, channel)\n"
        "if arrival.sequence and str(arrival.sequence.status) == 'Reset':\n"
        "    again = judge(arrival, channel, resolution.terms, self.context.now())\n"
        "    other = TurnedAway(Error('Unknown'), again.channel, again.effects)",
        ("S2", "S4", "S6", "S7", "S8", "L1"),
        "messages=40,duplicate=0.5",
        "SEQ-15",
    ),
    Mutant(
        "let a refused number block the channel",
        f"{_RECEIVER}:refuse",
        "if channel is None or sequence is None:\n    return Refused(error, channel)",
        "if True:\n    return Refused(error, channel)",
        tests=("tests/protocol/test_duplication_window.py",),
    ),
    Mutant(
        "skip a number without a word",
        f"{_RECEIVER}:_skips",
        "return [_skip(key, epoch, entry.number, entry.message_id, 'refused') for entry in entries if entry.refused]",
        "return []",
        ("S7",),
        SHORT_LIVED,
    ),
    Mutant(
        "abandon a number and go on as if nothing happened",
        f"{_SENDING}:SendingChannel.abandon",
        "self.settle(number, terms).end_epoch()",
        "self.settle(number, terms)",
        ("S4", "S7", "S8", "L1"),
        GIVING_UP,
        "SEQ-14",
    ),
    Mutant(
        "restart without saying Reset",
        f"{_SENDING}:SendingChannel.status",
        "return SequenceStatus.RESET if self.used < marked else SequenceStatus.CONTINUE",
        "return SequenceStatus.CONTINUE",
        ("S4", "S7", "S8", "L1"),
        GIVING_UP,
        "SEQ-14",
    ),
    Mutant(
        "drop what the old epoch held",
        f"{_RECEIVING}:ReceivingChannel.begin_epoch",
        "(fresh, tuple(released), skipped)",
        "(fresh, (), skipped)",
        ("S4", "S7"),
        "messages=80,retries=1,loss=0.5,abandon=1.0",
    ),
    Mutant(
        "send the whole window of a new epoch at once",
        f"{_SENDING}:SendingChannel.enter",
        "opens = begins and terms.numbered",
        "opens = False",
        tests=("tests/protocol/test_epochs.py::test_the_opener_travels_alone",),
    ),
    # --- answers ---
    Mutant(
        "treat a copy as a refusal",
        f"{_RECEIVER}:judge_copy",
        "return None",
        "return TurnedAway(Error('Unknown'), channel)",
        ("S5", "S2", "S4", "S9", "S10"),
        "messages=60,duplicate=0.5",
        "DUP-4",
    ),
    Mutant(
        "acknowledge what was refused",
        f"{_ARRIVE}:Arriving._refused",
        "answer_error(context, self.message, self.agreement, (error,), plan)",
        "self._acknowledge(ack_owed(self.message, self.resolution.terms, final=self.final), plan)",
        ("S3", "S4", "S5"),
        "messages=60,loss=0.3,reorder=0.7,abandon=1.0,"
        "agreement='[delivery]\\ntime_to_live=\"PT10S\"\\n'",
        "ACK-1",
    ),
    # --- hubs ---
    Mutant(
        "acknowledge at the hub and forward nothing",
        f"{_ARRIVE}:Arriving._first",
        "if self.ahead is not None and (not judgement.held):\n"
        "    self._hub.send_on(stored, self.ahead, kept_open=relays)",
        "if self.ahead is not None and (not judgement.held):\n    pass",
        ("S4", "S12"),
        HUB,
        "HOP-8",
    ),
    Mutant(
        "change the message on its way",
        "oncewire.handler.sending.seal:onward_parcel",
        "splice.next_hop(received.envelope, hop, route.form, received.charset)",
        "splice.next_hop(received.envelope, hop, route.form).replace(b'>Order<', b'>Cancel<')",
        ("S1", "S4", "S9"),
        HUB,
        "RM-9",
    ),
    Mutant(
        "a hub that loses its place in the onward stream",
        "oncewire.handler.hub.next_hop:send_onward",
        "stream_to_number(context, tx, key, route.terms)",
        "replace(tx.sending_channel(key) or stream_to_number(context, tx, key, route.terms), "
        "next_number=route.terms.numbers.first)",
        ("S4", "S6", "S7", "S8", "L1"),
        HUB,
        "HOP-1",
    ),
    Mutant(
        "a hub that leaves out what it held, and goes on",
        "oncewire.handler.receiving.release:_release_one",
        "go_on(context, tx, held)\nreturn",
        "if held.incoming.number % 3:\n    go_on(context, tx, held)\nreturn",
        ("S6", "S7"),
        "messages=60,hops=2,loss=0.4",
        "HOP-1",
    ),
    Mutant(
        "come back before the Transient Error allows",
        f"{_ATTEMPTS}:attempt_due",
        "until = max(way.paused_until, 0 if channel is None else channel.paused_until)",
        "until = 0",
        requirement="RTY-8",
        tests=("tests/handler/test_pause.py",),
    ),
)
