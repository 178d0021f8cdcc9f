"""Mutants of the judge itself: a checker that excuses too much, or accuses the innocent."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PREDICATES = "oncewire.journal.predicates"
_JOURNAL = ("tests/journal",)

IN_PREDICATES: tuple[Mutant, ...] = (
    Mutant(
        "once suspended always excused",
        f"{_PREDICATES}.context",
        "                self.suspended.discard((row.node, row.channel))\n",
        "                pass\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "one suspended message excuses all",
        f"{_PREDICATES}.context",
        "(channel is not None and (trace.node, channel) in self.suspended)",
        "bool(self.suspended)",
        tests=_JOURNAL,
    ),
    Mutant(
        "only the first pause is checked",
        f"{_PREDICATES}.retry",
        "for row in trace.kinds.get(TRANSIENT, ())]\n",
        "for row in trace.kinds.get(TRANSIENT, ())[:1]]\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "the pause of a channel is checked for its own message alone",
        f"{_PREDICATES}.sending",
        "        paused = row.at < self._paused_until and row.message_id != self._paused_by\n",
        "        paused = False\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "a later pause does not count while an earlier one lasts",
        f"{_PREDICATES}.sending",
        "                if until > self._paused_until:\n",
        "                if not self._paused_until:\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "one lifted pause lifts every later one",
        f"{_PREDICATES}.context",
        "        return any(since < seq < row.seq for seq in lifted)\n",
        "        return any(seq < row.seq for seq in lifted)\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "a resume at any time excuses a send after the end",
        f"{_PREDICATES}.retry",
        "end < row.seq and not trace.between(RESUMED, end, row.seq) for end in ends",
        "end < row.seq and RESUMED not in trace.kinds for end in ends",
        tests=_JOURNAL,
    ),
    Mutant(
        "only the last deadline counts",
        f"{_PREDICATES}.retry",
        "    latest = sends[-1]\n",
        "    latest = sends[0]\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "anybody's store proves an acknowledgement",
        f"{_PREDICATES}.durability",
        "        here = [trace for trace in subject.traces if trace.node in homes]\n",
        "        here = list(subject.traces)\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "a hub that passed a message on is asked for it",
        f"{_PREDICATES}.durability",
        "        if not passed:\n",
        "        if True:\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "an epoch is over when the next one begins, slow application or not",
        f"{_PREDICATES}.receiving",
        "            if not self._epochs[number].waiting or len(self._epochs) > EPOCHS_MAX:\n",
        "            if True:\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "the numbers that a hub forwards are not looked at",
        f"{_PREDICATES}.channel",
        "RECEIVING = frozenset({RECEIVED, SKIPPED, HANDED_OVER, FORWARDED})\n",
        "RECEIVING = frozenset({RECEIVED, SKIPPED, HANDED_OVER})\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "a copy that was discarded proves that nothing arrived",
        f"{_PREDICATES}.honesty",
        'detail.SendFailed.read(row.detail).outcome == "refused"',
        'detail.SendFailed.read(row.detail).outcome != "unknown"',
        tests=_JOURNAL,
    ),
    Mutant(
        "a hub may take back the To Party's word",
        f"{_PREDICATES}.taken_back",
        "            if row.seq < failed.seq and detail.Acknowledged.read(row.detail).final:\n",
        "            if False:\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "what is written down as told was told",
        f"{_PREDICATES}.told",
        "        if row.message_id not in known:\n",
        "        if False:\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "any word that it was given again excuses it",
        f"{_PREDICATES}.once",
        "    return said.redelivered and (said.lease_expired or said.given_back)\n",
        "    return said.redelivered\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "given and verified are compared by the first hand-over",
        f"{_PREDICATES}.given",
        "        for row in trace.kinds.get(HANDED_OVER, ()):\n",
        "        for row in trace.kinds.get(HANDED_OVER, ())[:1]:\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "a calm world may tell of failures",
        f"{_PREDICATES}.calm",
        "            if alarm in trace.kinds and not subject.has(ViolationKind.WRONG_OUTCOME):\n",
        "            if False:\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "who was told once of one failure was told of all",
        f"{_PREDICATES}.told",
        "    return len(trace.kinds[NOTIFIED]) > len(trace.kinds.get(FAILED, ())) > 0\n",
        "    return False\n",
        tests=_JOURNAL,
    ),
    Mutant(
        "a hub's acknowledgement settles what the To Party has to",
        f"{_PREDICATES}.acknowledgment",
        "            if said.final:\n",
        "            if True:\n",
        tests=_JOURNAL,
    ),
)
