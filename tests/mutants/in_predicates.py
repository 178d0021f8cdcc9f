"""Mutants of the judge itself: a checker that excuses too much, or accuses the innocent."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PREDICATES = "oncewire.journal.predicates"
_DAMAGED = "tests/journal/test_damage.py::test_a_damage_is_told_and_nothing_else_is"
_JOURNAL = ("tests/journal",)

_SURVEY = "oncewire.journal.check"

IN_PREDICATES: tuple[Mutant, ...] = (
    Mutant(
        "a document that nobody submitted may arrive",
        "oncewire.journal.predicates.message:DocumentFold._take",
        "if 1 in node.submitted and None not in node.submitted:\n"
        "    sentence = 'Its parts were submitted and it arrived, but it was never submitted.'\n"
        "    self._note(node, ViolationKind.INVENTED, sentence)",
        "if False:\n"
        "    sentence = 'Its parts were submitted and it arrived, but it was never submitted.'\n"
        "    self._note(node, ViolationKind.INVENTED, sentence)",
        tests=("tests/journal/test_broken_channels.py",),
    ),
    Mutant(
        "any hole excuses everything",
        f"{f'{_PREDICATES}.context'}:Hole.touches",
        "min(self.before, self.after) <= until and since <= max(self.before, self.after)",
        "True or since <= max(self.before, self.after)",
        tests=_JOURNAL,
    ),
    Mutant(
        "what is missing is held against the messages",
        f"{f'{_PREDICATES}.message'}:_without_doubt",
        "not doubted and (not subject.has_hole())",
        "not doubted",
        tests=(f"{_DAMAGED}[an_acknowledgement_is_gone (window)]",),
    ),
    Mutant(
        "a row that was set aside is held against its message",
        f"{f'{_PREDICATES}.message'}:find_violations",
        "doubted = subject.message_id in context.doubted",
        "doubted = False",
        tests=_JOURNAL,
    ),
    Mutant(
        "a channel does not take up behind a hole",
        f"{f'{_PREDICATES}.channel'}:ChannelFold.feed",
        "self._sending.take_up()\nself._receiving.take_up()",
        "self._sending.take_up()",
        tests=_JOURNAL,
    ),
    Mutant(
        "a sender's numbers do not go on behind a hole",
        f"{f'{_PREDICATES}.channel'}:ChannelFold.feed",
        "self._sending.take_up()\nself._receiving.take_up()",
        "self._receiving.take_up()",
        tests=_JOURNAL,
    ),
    Mutant(
        "terms are believed by their id",
        f"{f'{_PREDICATES}.context'}:Context._take_terms",
        "terms_digest(row.detail) != terms_id",
        "False",
        tests=_JOURNAL,
    ),
    Mutant(
        "any acknowledgement will do",
        f"{f'{_PREDICATES}.sender'}:_judge_given",
        "if has_it and row.ref_to not in given:\n"
        "    subject.found(ViolationKind.UNMATCHED_ACK, trace.node, f'The acknowledgement {row.ref_to} was accepted, which {row.peer} never gave.')",
        "if False:\n"
        "    subject.found(ViolationKind.UNMATCHED_ACK, trace.node, f'The acknowledgement {row.ref_to} was accepted, which {row.peer} never gave.')",
        tests=(f"{_DAMAGED}[an_acknowledgement_nobody_gave (window)]",),
    ),
    Mutant(
        "an id may be forgotten a moment too early",
        f"{f'{_PREDICATES}.receiver'}:_judge_memory",
        "elapsed(before, row) <= terms.persist_duration",
        "elapsed(before, row) < terms.persist_duration",
        tests=_JOURNAL,
    ),
    Mutant(
        "the copy is judged instead of the original",
        f"{_SURVEY}:copies",
        "max(names, key=lambda node: (ends.get(node, (0, 0))[0], _reversed(node)))",
        "min(names, key=lambda node: (ends.get(node, (0, 0))[0], _reversed(node)))",
        tests=_JOURNAL,
    ),
    Mutant(
        "whatever is missing at the end is lost",
        "oncewire.journal.check:told_once",
        "if found.kind in MISSING and found.node in cut_off:\n    continue",
        "if False:\n    continue",
        tests=_JOURNAL,
    ),
    Mutant(
        "a row needs no columns",
        "oncewire.journal.row:problem_of",
        "if row[position] is None:\n    return f'a row {kind!r} lacks its {Row._fields[position]}'",
        "if False:\n    return f'a row {kind!r} lacks its {Row._fields[position]}'",
        tests=_JOURNAL,
    ),
    Mutant(
        "once suspended always excused",
        f"{f'{_PREDICATES}.context'}:Context._take_decision",
        "if kind == SUSPENDED:\n"
        "    self.suspended.add((row.node, row.channel))\n"
        "else:\n"
        "    self.suspended.discard((row.node, row.channel))",
        "if kind == SUSPENDED:\n    self.suspended.add((row.node, row.channel))\nelse:\n    pass",
        tests=_JOURNAL,
    ),
    Mutant(
        "an open incident excuses for ever",
        f"{f'{_PREDICATES}.receiver'}:_judge_receiver",
        "trace.called or (received is not None and subject.context.is_held_up(received))",
        "'incident' in trace.kinds or (received is not None and subject.context.is_held_up(received))",
        tests=_JOURNAL,
    ),
    Mutant(
        "an incident of a stream excuses for ever",
        f"{f'{_PREDICATES}.receiving_channel'}:ReceivingChannelFold.call",
        "if row.kind == INCIDENT:\n"
        "    self._called.add(row.message_id)\n"
        "else:\n"
        "    self._called.discard(row.message_id)",
        "if row.kind == INCIDENT:\n    self._called.add(row.message_id)\nelse:\n    pass",
        tests=_JOURNAL,
    ),
    Mutant(
        "one message's incident excuses its whole stream",
        f"{f'{_PREDICATES}.receiving_channel'}:ReceivingChannelFold._close",
        "row.message_id in self._called or context.is_held_up(row)",
        "self._called or context.is_held_up(row)",
        tests=_JOURNAL,
    ),
    Mutant(
        "what stands before a message that cannot go on is excused with it",
        f"{f'{_PREDICATES}.context'}:_stands_before",
        "0 < numbers.distance(first, second) <= numbers.size // 2",
        "first != second",
        tests=_JOURNAL,
    ),
    Mutant(
        "what was resolved still holds up those behind it",
        f"{f'{_PREDICATES}.context'}:Context._take_decision",
        "if kind in (RESOLVED, ABANDONED):\n"
        "    self.withheld.pop((row.node, row.message_id), None)",
        "if kind in (RESOLVED, ABANDONED):\n    pass",
        tests=_JOURNAL,
    ),
    Mutant(
        "one suspended message excuses all",
        f"{f'{_PREDICATES}.context'}:Context.waits_for_operator",
        "trace.suspended or (channel is not None and (trace.node, channel) in self.suspended)",
        "trace.suspended or bool(self.suspended)",
        tests=_JOURNAL,
    ),
    Mutant(
        "only the first pause is checked",
        f"{f'{_PREDICATES}.sender'}:_judge_ends",
        "marks: list[tuple[int, Row | None, Instant]] = [*((row.seq, row, 0) for row in sends), *((row.seq, None, ALWAYS) for row in _ends(trace, terms)), *((row.seq, None, 0) for row in trace.kinds.get(RESUMED, ())), *((row.seq, None, max(1, notes.Transient.read(row.detail).until)) for row in trace.kinds.get(TRANSIENT, ()))]",
        "marks: list[tuple[int, Row | None, Instant]] = [*((row.seq, row, 0) for row in sends), *((row.seq, None, ALWAYS) for row in _ends(trace, terms)), *((row.seq, None, 0) for row in trace.kinds.get(RESUMED, ())), *((row.seq, None, max(1, notes.Transient.read(row.detail).until)) for row in trace.kinds.get(TRANSIENT, ())[:1])]",
        tests=_JOURNAL,
    ),
    Mutant(
        "the pause of a channel is checked for its own message alone",
        f"{f'{_PREDICATES}.channel'}:SendingChannelFold._sent",
        "paused = row.at < self._paused_until and row.message_id != self._paused_by",
        "paused = False",
        tests=_JOURNAL,
    ),
    Mutant(
        "a later pause does not count while an earlier one lasts",
        f"{f'{_PREDICATES}.channel'}:SendingChannelFold.take",
        "if until > self._paused_until:\n"
        "    self._paused_until, self._paused_by = (until, row.message_id)\n"
        "    self._paused_at = row.seq",
        "if not self._paused_until:\n"
        "    self._paused_until, self._paused_by = (until, row.message_id)\n"
        "    self._paused_at = row.seq",
        tests=_JOURNAL,
    ),
    Mutant(
        "one lifted pause lifts every later one",
        f"{f'{_PREDICATES}.context'}:Context.is_lifted",
        "since < seq < row.seq",
        "seq < row.seq",
        tests=_JOURNAL,
    ),
    Mutant(
        "a resume at any time excuses a send after the end",
        f"{f'{_PREDICATES}.sender'}:_judge_ends",
        "quiet_until == ALWAYS",
        "quiet_until == ALWAYS and RESUMED not in trace.kinds",
        tests=_JOURNAL,
    ),
    Mutant(
        "only the last deadline counts",
        f"{f'{_PREDICATES}.sender'}:_judge_deadlines",
        "sends[-1]",
        "sends[0]",
        tests=_JOURNAL,
    ),
    Mutant(
        "anybody's store proves an acknowledgement",
        f"{f'{_PREDICATES}.receiver'}:_without_it",
        "here = [trace for trace in subject.traces if trace.node in homes]",
        "here = list(subject.traces)",
        tests=_JOURNAL,
    ),
    Mutant(
        "a hub that passed a message on is asked for it",
        f"{f'{_PREDICATES}.receiver'}:_without_it",
        "if not passed:\n    return peer",
        "if True:\n    return peer",
        tests=_JOURNAL,
    ),
    Mutant(
        "an epoch is over when the next one begins, slow application or not",
        f"{f'{_PREDICATES}.receiving_channel'}:ReceivingChannelFold._close_old",
        "if not self._epochs[number].waiting or len(self._epochs) > EPOCHS_MAX:\n"
        "    self._close(self._epochs.pop(number), context, ended=True)",
        "if True:\n    self._close(self._epochs.pop(number), context, ended=True)",
        tests=_JOURNAL,
    ),
    Mutant(
        "the numbers that a hub forwards are not looked at",
        f"{_PREDICATES}.channel",
        "{RECEIVED, SKIPPED, HANDED_OVER, FORWARDED}",
        "{RECEIVED, SKIPPED, HANDED_OVER}",
        tests=_JOURNAL,
    ),
    Mutant(
        "a copy that was discarded proves that nothing arrived",
        f"{f'{_PREDICATES}.sender'}:_transmitted",
        "notes.SendFailed.read(row.detail).outcome == 'refused'",
        "notes.SendFailed.read(row.detail).outcome != 'unknown'",
        tests=_JOURNAL,
    ),
    Mutant(
        "a hub may take back the To Party's word",
        f"{f'{_PREDICATES}.sender'}:judge_taken_back",
        "if row.seq < failed.seq and notes.Acknowledged.read(row.detail).final:\n"
        "    subject.found(ViolationKind.TAKEN_BACK, trace.node, 'It was set to failed although the To Party itself had acknowledged it.')\n"
        "    break",
        "if False:\n"
        "    subject.found(ViolationKind.TAKEN_BACK, trace.node, 'It was set to failed although the To Party itself had acknowledged it.')\n"
        "    break",
        tests=_JOURNAL,
    ),
    Mutant(
        "what is written down as told was told",
        f"{f'{_PREDICATES}.sender'}:untold",
        "if row.message_id not in known:\n"
        "    yield Violation('told', ViolationKind.UNTOLD.value, row.message_id, row.channel, row.node, 'It is recorded as told, but its application never took the notice.')",
        "if False:\n"
        "    yield Violation('told', ViolationKind.UNTOLD.value, row.message_id, row.channel, row.node, 'It is recorded as told, but its application never took the notice.')",
        tests=_JOURNAL,
    ),
    Mutant(
        "any word that it was given again excuses it",
        f"{f'{_PREDICATES}.receiver'}:_excused",
        "return said.redelivered and (said.lease_expired or said.given_back)",
        "return said.redelivered",
        tests=_JOURNAL,
    ),
    Mutant(
        "given and verified are compared by the first hand-over",
        f"{f'{_PREDICATES}.receiver'}:judge_given",
        "for row in trace.kinds.get(HANDED_OVER, ()):\n"
        "    if row.digest is not None and row.digest not in verified:\n"
        "        subject.found(ViolationKind.ALTERED, trace.node, 'The application was given other content than was split.' if joined else 'The application was given other content than was received and verified.')\n"
        "        return",
        "for row in trace.kinds.get(HANDED_OVER, ())[:1]:\n"
        "    if row.digest is not None and row.digest not in verified:\n"
        "        subject.found(ViolationKind.ALTERED, trace.node, 'The application was given other content than was split.' if joined else 'The application was given other content than was received and verified.')\n"
        "        return",
        tests=_JOURNAL,
    ),
    Mutant(
        "a calm world may tell of failures",
        f"{f'{_PREDICATES}.receiver'}:judge_calm",
        "if alarm in trace.kinds and (not subject.has(ViolationKind.WRONG_OUTCOME)):\n"
        "    subject.found(ViolationKind.WRONG_OUTCOME, trace.node, f'Nothing went wrong in this world, and it has a row {alarm!r}.')",
        "if False:\n"
        "    subject.found(ViolationKind.WRONG_OUTCOME, trace.node, f'Nothing went wrong in this world, and it has a row {alarm!r}.')",
        tests=_JOURNAL,
    ),
    Mutant(
        "who was told once of one failure was told of all",
        f"{f'{_PREDICATES}.sender'}:_told_too_often",
        "return len(trace.kinds[NOTIFIED]) > len(trace.kinds.get(FAILED, ())) > 0",
        "return False",
        tests=_JOURNAL,
    ),
    Mutant(
        "a hub's acknowledgement settles what the To Party has to",
        f"{f'{_PREDICATES}.sender'}:judge_acknowledgments",
        "if said.final:\n    settled = row",
        "if True:\n    settled = row",
        tests=_JOURNAL,
    ),
    Mutant(
        "a notice may get lost if it was sent with best effort",
        f"{f'{_PREDICATES}.receiver'}:_judge_notice",
        "owed = last is not None and last.kind == SEND_FAILED",
        "owed = False",
        tests=("tests/journal/test_broken_messages.py",),
    ),
    Mutant(
        "a notice may get lost at a hub that it passes",
        f"{f'{_PREDICATES}.receiver'}:_judge_notice",
        "owed = PASSED_ON in trace.kinds",
        "owed = False",
        tests=("tests/journal/test_broken_messages.py",),
    ),
)
