"""Deliberate bugs. Each replaces one piece of the product and must be caught by the checker.

A mutant names the module, the text it replaces and what it puts there, the promise that
must be seen broken, and a world in which the bug shows. When the product changes so that
the text is gone, the suite says so: the mutant has to be written anew, not dropped.
"""

# The replaced text is the product's own, as long as its lines are.
# ruff: noqa: E501

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
_ENGINE = "oncewire.handler.engine"
_FAILURES = "oncewire.handler.failures"
_ARRIVE = "oncewire.handler.arriving.arrive"
_DELIVER = "oncewire.handler.delivering.deliver"
_PERFORM = "oncewire.handler.perform"
_NOTICES = "oncewire.handler.delivering.notices"
_SAID = "tests/protocol/test_answers.py"
_TAKEN_BACK = "tests/handler/test_taken_back.py"

MUTANTS: tuple[Mutant, ...] = (
    # --- durability ---
    Mutant(
        "acknowledge before the commit",
        _ENGINE,
        "                node.store.commit()\n",
        "                node.commits = getattr(node, 'commits', 0) + 1\n"
        "                if node.commits % 3 == 0:\n"
        "                    node.store.commit()\n",
        ("S3", "S4", "S1"),
        CRASHING,
        "STO-1",
    ),
    Mutant(
        "act although the commit failed",
        _ENGINE,
        "            node.actions = []\n            raise\n",
        "            actions, node.actions = node.actions, []\n            return actions\n",
        ("S1", "S2", "S3", "S4"),
        "messages=60,disk_full=0.1",
        "RM-13",
    ),
    Mutant(
        "remember duplicates only until the next restart",
        _ARRIVE,
        "        sender = facts.from_party\n",
        "        sender = facts.from_party + self.node.boot\n",
        ("S2", "S6", "S8"),
        CRASHING,
        "STO-4",
    ),
    Mutant(
        "journal an arrival but do not store it",
        _ARRIVE,
        "        tx.add_incoming(stored)\n        self._journal_received(stored)\n",
        "        self._journal_received(stored)\n",
        ("S2", "S4", "S6", "S7", "S8"),
        PLAIN,
        "RM-18",
    ),
    Mutant(
        "forget that the application confirmed",
        _DELIVER,
        "    tx.save_incoming(confirmed)\n",
        "",
        ("S2",),
        PLAIN,
        "DUP-2",
    ),
    Mutant(
        "forget that a message was handed over",
        _DELIVER,
        "        tx.save_incoming(incoming)\n    except (StoreFull",
        "    except (StoreFull",
        ("S2",),
        PLAIN,
        "DUP-2",
    ),
    Mutant(
        "hide that a hand-over is a repeat",
        _DELIVER,
        "    what = HandedOver(redelivered=again, lease_expired=again and late, split_id=split_id)\n",
        "    what = HandedOver(lease_expired=again and late, split_id=split_id)\n",
        ("S2",),
        CRASHING,
        "STO-3",
    ),
    Mutant(
        "believe damaged bytes",
        "oncewire.handler.sealing.content_digest",
        "    return base64.b64encode(hashlib.sha256(parcel.body).digest()).decode() == stated",
        "    return True",
        ("S1", "S4", "S9"),
        "messages=60,corrupt=0.3",
    ),
    Mutant(
        "give the application other bytes than were verified",
        "oncewire.handler.delivering.deliver",
        "        message = accepted(node, stored)\n",
        "        message = accepted(node, stored)\n"
        "        message = replace(message, payloads=tuple(\n"
        "            replace(one, data=(one.data or b'') + b' ') for one in message.payloads))\n",
        ("S15",),
        PLAIN,
        "RM-9",
    ),
    Mutant(
        "acknowledge before the commit, behind a hub that passes on",
        _ENGINE,
        "                node.store.commit()\n",
        "                node.commits = getattr(node, 'commits', 0) + 1\n"
        "                if node.commits % 3 == 0:\n"
        "                    node.store.commit()\n",
        ("S3",),
        f"messages=60,crash=0.05,{PASSING_ON}",
        "STO-1",
    ),
    # --- retries ---
    Mutant(
        "never resend",
        _ATTEMPTS,
        "        next_attempt_at=now + wait if terms.runs_protocol else None,\n",
        "        next_attempt_at=None,\n",
        ("S4", "L1"),
        PLAIN + PATIENT,
        "RTY-18",
    ),
    Mutant(
        "resend too early",
        _ATTEMPTS,
        "    wait = terms.timeout if first else terms.retry_interval\n",
        "    wait = terms.retry_interval // 5\n",
        ("S11",),
        PLAIN,
        "RTY-1",
    ),
    Mutant(
        "one retry too many",
        _ATTEMPTS,
        "    if outgoing.attempts_here > terms.resends:\n",
        "    if outgoing.attempts_here > terms.resends + 1:\n",
        ("S11",),
        GIVING_UP,
        "RTY-3",
    ),
    Mutant(
        "give up one retry early",
        _ATTEMPTS,
        "    if outgoing.attempts_here > terms.resends:\n",
        "    if outgoing.attempts_here > max(terms.resends - 1, 0):\n",
        ("S11",),
        FAILING,
        "RTY-18",
    ),
    Mutant(
        "resume without zeroing the counter",
        _OPERATING,
        "        attempts_here=0,\n",
        "        attempts_here=outgoing.attempts_here,\n",
        ("S4", "L1", "S11"),
        "messages=30,retries=1,loss=0.6",
        "RTY-13",
    ),
    Mutant(
        "resend under a new MessageId",
        _PERFORM,
        "    relieve(node, tx, effect.message_id)\n",
        "    if effect.attempt > 1:\n"
        "        old, new = effect.message_id.encode(), f'{effect.attempt}{effect.message_id}'.encode()\n"
        "        parcel = StoredParcel(parcel.content_type, (),\n"
        "            tuple(p.replace(old, new) for p in parcel.body))\n"
        "    relieve(node, tx, effect.message_id)\n",
        ("S1",),
        PLAIN,
        "DUP-3",
    ),
    Mutant(
        "send on after TimeToLive",
        "oncewire.protocol.states",
        "        if self.expires_at is not None:\n            ends.append(self.expires_at)\n",
        "",
        ("S11",),
        SHORT_LIVED,
        "HDR-9",
    ),
    Mutant(
        "send on after persistDuration",
        "oncewire.protocol.states",
        "            ends.append(self.first_sent_at + terms.persist_duration)\n",
        "            pass\n",
        ("S11",),
        FORGETFUL,
        "RTY-17",
    ),
    Mutant(
        "keep the number of an acknowledged message",
        _ANSWERS,
        "    return go_on(delivered, channel, terms, effects, Fate.SETTLED)\n",
        "    return SenderStep(delivered, channel, effects)\n",
        ("S4", "L1"),
        PLAIN,
        "SW-5",
    ),
    Mutant(
        "leave a failed number unsettled",
        _SETTLING,
        "    effects = (*effects, Raise(reason, failed.message_id))\n    return go_on(failed, channel, terms, effects, Fate.GIVEN_UP)\n",
        "    return SenderStep(failed, channel, effects)\n",
        ("S4", "L1"),
        "messages=30,retries=1,loss=0.6,agreement='[delivery]\\non_exhausted=\"fail_message\"\\n'",
        "RTY-16",
    ),
    # --- outcomes ---
    Mutant(
        "call unknown not delivered",
        "oncewire.protocol.states",
        "        return OutgoingState.UNKNOWN if self.transmitted else OutgoingState.NOT_DELIVERED\n",
        "        return OutgoingState.NOT_DELIVERED\n",
        ("S5",),
        FAILING,
        "RM-2",
    ),
    Mutant(
        "fail without telling the From Party",
        "oncewire.protocol.states",
        "            notice_owed=True,\n",
        "            notice_owed=False,\n",
        ("S4",),
        FAILING,
        "RTY-14",
    ),
    Mutant(
        "call a failure told before the application took the notice",
        _FAILURES,
        "            node.actions.append(notices.notice_of(stored.outgoing))\n",
        "            node.actions.append(notices.notice_of(stored.outgoing))\n"
        "            with node.transition() as tx:\n"
        "                notices.take(node, tx, notices.notice_of(stored.outgoing).notice_id)\n",
        ("told",),
        FAILING,
        "RTY-14",
    ),
    Mutant(
        "forget that the application took a notice",
        _NOTICES,
        "    no_more_owed(tx, stored.outgoing)\n    write_notified(node, tx, stored)\n",
        "    write_notified(node, tx, stored)\n",
        ("told",),
        FAILING,
        "RTY-14",
    ),
    Mutant(
        "send a notice about a notice",
        _NOTICES,
        "    return owes_failure_notice(stored.facts.kind, reliable=terms.reliable)\n",
        "    return terms.reliable\n",
        ("told",),
        "messages=30,hops=4,retries=1,loss=0.6,abandon=1.0,"
        "agreement='[delivery]\\non_exhausted=\"fail_message\"\\n'",
        "ERR-8",
    ),
    Mutant(
        "a hub's stored acknowledgement outlives its own report of failure",
        _ANSWERS,
        "    if proof is Proof.HOP and outgoing.taken_back:\n",
        "    if False:\n",
        requirement="HOP-9",
        tests=(
            f"{_SAID}::test_a_hubs_word_after_its_failure_means_what_it_means_before_it",
            f"{_SAID}::test_no_hub_settles_what_it_has_taken_back",
        ),
    ),
    Mutant(
        "numbers per transport stand beside a change of transport",
        "oncewire.protocol.terms",
        "    if terms.numbered and terms.scope is Scope.TRIPLE and len",
        "    if terms.ordered and terms.scope is Scope.TRIPLE and len",
        requirement="SEQ-1",
        tests=(
            "tests/protocol/test_terms.py::test_impossible_terms_are_refused_and_say_what_to_do",
        ),
    ),
    Mutant(
        "let a hub take back what the To Party itself acknowledged",
        _ANSWERS,
        "        if outgoing.proved_by is not Proof.HOP:\n            return SenderStep",
        "        if False:\n            return SenderStep",
        requirement="HOP-9",
        tests=(
            f"{_TAKEN_BACK}::test_a_hubs_report_comes_too_late_after_the_to_partys_own_word",
            f"{_TAKEN_BACK}::test_hubs_that_give_up_early_take_nothing_back_that_the_seller_said",
        ),
    ),
    Mutant(
        "believe the failure report of a stranger",
        "oncewire.handler.answering.signals",
        "    if stored is None or not is_receiver(agreement, stored):\n",
        "    if stored is None:\n",
        requirement="ERR-5",
        tests=(f"{_TAKEN_BACK}::test_a_partner_who_never_saw_the_message_changes_nothing",),
    ),
    Mutant(
        "believe a partner behind the same hub",
        "oncewire.handler.route",
        "    return agreement.via is None or relayed or stored.facts.cpa_id in names\n",
        "    return True\n",
        requirement="ERR-5",
        tests=(f"{_TAKEN_BACK}::test_a_partner_behind_the_same_hub_is_not_on_the_messages_way",),
    ),
    Mutant(
        "restart a numbering whenever somebody asks",
        "oncewire.handler.upkeep.operate",
        "    tx.save_sending_channel(channel.restart(terms))\n",
        "    tx.save_sending_channel(channel.end_epoch())\n",
        requirement="SEQ-4",
        tests=(
            "tests/handler/upkeep/test_operate.py::test_no_restart_while_a_number_is_unsettled",
        ),
    ),
    Mutant(
        "lose a hub's failure report",
        _FAILURES,
        "            report_failure(node, tx, stored)\n",
        "            pass\n",
        ("S4", "S12"),
        "messages=30,hops=2,retries=1,loss=0.6,"
        "agreement='[delivery]\\non_exhausted=\"fail_message\"\\n'",
        "HOP-9",
    ),
    Mutant(
        "hear no acknowledgement, and say so",
        _ANSWERS,
        "    late = outgoing.late if known else outgoing.state in FINAL_OUTGOING\n",
        "    return SenderStep(outgoing, channel)\n    late = False\n",
        ("L3",),
        f"messages=5,retries=2,abandon=1.0,{CALM}",
        "RM-14",
    ),
    # --- windows and numbers ---
    Mutant(
        "window one too wide",
        _SENDING,
        "        return max(0, terms.window_size - self.span(terms))\n",
        "        return max(0, terms.window_size + 1 - self.span(terms))\n",
        ("S8",),
        "messages=60,window=2,loss=0.4",
        "SW-4",
    ),
    Mutant(
        "wrap-around compared as plain integers",
        "oncewire.protocol.sequence",
        "        return (end - start) % self.size\n",
        "        return max(end - start, 0)\n",
        ("S4", "S6", "S7", "S8", "L1"),
        WRAPPING,
        "SEQ-12",
    ),
    Mutant(
        "give one number twice",
        _SENDING,
        "next_number=terms.numbers.after(number),\n",
        "next_number=terms.numbers.after(number, channel.used % 7 > 0),\n",
        ("S4", "S8", "L1"),
        PLAIN,
        "SEQ-1",
    ),
    Mutant(
        "slide past an unacknowledged number",
        _SENDING,
        "        while first in settled:\n",
        "        first, settled = terms.numbers.after(number), set()\n        while first in settled:\n",
        ("S4", "S8", "L1"),
        "messages=60,window=4,loss=0.4",
        "SW-5",
    ),
    Mutant(
        "hand over early messages at once",
        _ARRIVE,
        "            IncomingEvent.ARRIVED, IncomingState.HELD if judgement.held else to\n",
        "            IncomingEvent.ARRIVED, to\n",
        ("S6", "S7"),
        "messages=60,loss=0.4",
        "SW-10",
    ),
    Mutant(
        "release everything that is held",
        _RECEIVING,
        "        while number in held or outrun > 0:\n",
        "        while held:\n            number = next(iter(held))\n",
        ("S4", "S6", "S7"),
        "messages=60,loss=0.4",
        "SW-10",
    ),
    Mutant(
        "never release what was held",
        "oncewire.handler.arriving.release",
        "                _release_one(node, tx, held)\n",
        "                pass\n",
        ("S4", "S7"),
        "messages=60,loss=0.4",
        "SW-10",
    ),
    Mutant(
        "restart on a late copy of a Reset message",
        _RECEIVER,
        "    if known is not None:\n        return _judge_known",
        "    if known is not None and arrival.sequence and str(arrival.sequence.status) == 'Reset':\n"
        "        again = judge(arrival, None, channel, terms, now)\n"
        "        return TurnedAway(Error('Unknown'), again.channel, again.effects)\n"
        "    if known is not None:\n        return _judge_known",
        ("S2", "S4", "S6", "S7", "S8", "L1"),
        "messages=40,duplicate=0.5",
        "SEQ-15",
    ),
    Mutant(
        "let a refused number block the channel",
        _RECEIVER,
        "    if channel is None or sequence is None:\n",
        "    if True:\n",
        ("S4", "L1", "S7"),
        SHORT_LIVED + PATIENT,
    ),
    Mutant(
        "skip a number without a word",
        _RECEIVER,
        '    return [\n        _skip(key, epoch, entry.number, entry.message_id, "refused")\n'
        "        for entry in entries\n        if entry.refused\n    ]\n",
        "    return []\n",
        ("S7",),
        SHORT_LIVED,
    ),
    Mutant(
        "abandon a number and go on as if nothing happened",
        _SENDING,
        "        return self.settle(number, terms).end_epoch()\n",
        "        return self.settle(number, terms)\n",
        ("S4", "S7", "S8", "L1"),
        GIVING_UP,
        "SEQ-14",
    ),
    Mutant(
        "restart without saying Reset",
        _SENDING,
        "        return SequenceStatus.RESET if self.used < marked else SequenceStatus.CONTINUE\n",
        "        return SequenceStatus.CONTINUE\n",
        ("S4", "S7", "S8", "L1"),
        GIVING_UP,
        "SEQ-14",
    ),
    Mutant(
        "drop what the old epoch held",
        _RECEIVING,
        "        return fresh, tuple(released), skipped\n",
        "        return fresh, (), skipped\n",
        ("S4", "S7"),
        "messages=80,retries=1,loss=0.5,abandon=1.0",
    ),
    Mutant(
        "send the whole window of a new epoch at once",
        _SENDING,
        "        opens = begins and terms.numbered\n",
        "        opens = False\n",
        tests=("tests/protocol/test_epochs.py::test_the_opener_travels_alone",),
    ),
    # --- answers ---
    Mutant(
        "treat a copy as a refusal",
        _RECEIVER,
        "        return Duplicate(channel)\n",
        '        return TurnedAway(Error("Unknown"), channel)\n',
        ("S5", "S2", "S4", "S9", "S10"),
        "messages=60,duplicate=0.5",
        "DUP-4",
    ),
    Mutant(
        "acknowledge what was refused",
        _ARRIVE,
        "        answer = answer_error(node, self.message, self.agreement, (error,), plan)\n"
        "        terms",
        "        answer = self._acknowledge(ack_owed(self.message, self.resolution.terms,"
        " final=self.final), plan)\n        terms",
        ("S3", "S4", "S5"),
        "messages=60,loss=0.3,reorder=0.7,abandon=1.0,"
        "agreement='[delivery]\\ntime_to_live=\"PT10S\"\\n'",
        "ACK-1",
    ),
    # --- hubs ---
    Mutant(
        "acknowledge at the hub and forward nothing",
        _ARRIVE,
        "            self._midway.send_on(stored, self.ahead, kept_open=relays)\n",
        "            pass\n",
        ("S4", "S12"),
        HUB,
        "HOP-8",
    ),
    Mutant(
        "change the message on its way",
        "oncewire.handler.sealing.seal",
        "    spliced = splice.next_hop(envelope, hop, route.form)\n",
        "    spliced = splice.next_hop(envelope, hop, route.form).replace(b'PlaceOrder', b'Cancel')\n",
        ("S1", "S4", "S9"),
        HUB,
        "RM-9",
    ),
    Mutant(
        "a hub that loses its place in the onward stream",
        "oncewire.handler.hub.next_hop",
        "    channel = None\n    if key is not None:\n"
        "        channel = tx.sending_channel(key) or SendingChannel.open(key, route.terms)\n",
        "    channel = None\n    if key is not None:\n"
        "        channel = SendingChannel.open(key, route.terms)\n",
        ("S4", "S6", "S7", "S8", "L1"),
        HUB,
        "HOP-1",
    ),
    Mutant(
        "a hub that leaves out what it held, and goes on",
        "oncewire.handler.arriving.release",
        "        go_on(node, tx, held)\n        return\n",
        "        if held.incoming.number % 3:\n            go_on(node, tx, held)\n        return\n",
        ("S6", "S7"),
        "messages=60,hops=2,loss=0.4",
        "HOP-1",
    ),
    Mutant(
        "come back before the Transient Error allows",
        _ATTEMPTS,
        "    until = max(way.paused_until, 0 if channel is None else channel.paused_until)\n",
        "    until = 0\n",
        requirement="RTY-8",
        tests=("tests/handler/test_pause.py",),
    ),
)
