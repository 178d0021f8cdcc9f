"""Deliberate bugs of waiting: clocks, pauses, and messages that cannot go on."""

# The replaced text is the product's own, as long as its lines are.

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CLOCK = "tests/handler/upkeep/test_clock.py"
_RETAIN = "tests/handler/upkeep/test_retain.py"
_PAUSE = "tests/handler/test_pause.py"
_TROUBLE = "tests/handler/test_trouble.py"

IN_TIME: tuple[Mutant, ...] = (
    Mutant(
        "a clock that was set is believed",
        "oncewire.handler.world",
        "        return abs(self.ahead) > (CORRECTION if state.told else self._room)\n",
        "        return False\n",
        requirement="RTY-18",
        tests=(f"{_CLOCK}::test_two_days_ahead_for_three_seconds_fail_nothing",),
    ),
    Mutant(
        "timers stay where they were when the time moves",
        "oncewire.handler.context",
        "        tx.shift_timers(self.timeline.ahead)\n",
        "",
        requirement="RTY-2",
        tests=(f"{_CLOCK}::test_a_small_step_is_followed",),
    ),
    Mutant(
        "what is due expires although the time is in doubt",
        "oncewire.handler.sending.transmit",
        "        expired = [] if node.in_doubt else tx.expired(",
        "        expired = tx.expired(",
        requirement="HDR-9",
        tests=(f"{_CLOCK}::test_no_verdict_of_expiry_while_the_clock_is_in_doubt",),
    ),
    Mutant(
        "retention goes on although the time is in doubt",
        "oncewire.handler.engine",
        "        if not node.in_doubt and node.now() >= node.sweep_due_at:\n",
        "        if node.now() >= node.sweep_due_at:\n",
        requirement="STO-7",
        tests=(f"{_RETAIN}::test_nothing_is_removed_while_the_clock_is_in_doubt",),
    ),
    Mutant(
        "a start gives answers up although the time is in doubt",
        "oncewire.handler.upkeep.retention",
        "    while not node.in_doubt and end_answers(node, tx) == BATCH:\n",
        "    while end_answers(node, tx) == BATCH:\n",
        requirement="STO-7",
        tests=(f"{_CLOCK}::test_a_start_in_doubt_gives_no_answer_up_that_is_owed",),
    ),
    Mutant(
        "a gap is given up although the time is in doubt",
        "oncewire.handler.arriving.release",
        "    if node.in_doubt:\n        return\n",
        "",
        requirement="SW-10",
        tests=(f"{_CLOCK}::test_no_gap_is_given_up_while_the_clock_is_in_doubt",),
    ),
    Mutant(
        "a document is given up although the time is in doubt",
        "oncewire.handler.engine",
        "        if looks_at_gaps and not node.in_doubt:\n",
        "        if looks_at_gaps:\n",
        requirement="BIG-6",
        tests=(f"{_CLOCK}::test_no_document_is_given_up_while_the_clock_is_in_doubt",),
    ),
    Mutant(
        "what waits for its place expires although the time is in doubt",
        "oncewire.handler.sending.transmit",
        "        elif not node.in_doubt:\n",
        "        else:\n",
        requirement="HDR-9",
        tests=(
            (
                f"{_CLOCK}::"
                "test_what_waits_for_its_place_does_not_expire_while_the_clock_is_in_doubt"
            ),
        ),
    ),
    Mutant(
        "any incident of a stream is the clock's",
        "oncewire.handler.upkeep.retention",
        "            incident.message_id is None and incident.channel is None\n",
        "            incident.message_id is None\n",
        tests=(f"{_CLOCK}::test_an_incident_of_something_else_is_not_taken_for_the_clocks",),
    ),
    Mutant(
        "a restart believes any clock",
        "oncewire.handler.world",
        "            state = replace(state, origin=last.at - last.mono)\n",
        "            pass\n",
        requirement="RTY-1",
        tests=(f"{_CLOCK}::test_a_restart_changes_nothing_of_that",),
    ),
    Mutant(
        "a lifetime counts from the last timestamp",
        "oncewire.handler.sending.submit",
        "_quality(submission, terms, now, at_most_once",
        "_quality(submission, terms, stamp, at_most_once",
        requirement="HDR-9",
        tests=(f"{_CLOCK}::test_a_lifetime_counts_from_now_whatever_the_stream_was_stamped_with",),
    ),
    Mutant(
        "a pause is for the channel of its message alone",
        "oncewire.handler.perform",
        "    return Way(0 if receiver is None else receiver.paused_until, closed, left)\n",
        "    return Way(0, closed)\n",
        requirement="RTY-8",
        tests=(
            f"{_PAUSE}::test_nothing_unnumbered_goes_to_a_busy_receiver",
            f"{_PAUSE}::test_every_channel_to_the_receiver_stands_and_goes_on_in_order",
        ),
    ),
    Mutant(
        "a pause may last for ever",
        "oncewire.protocol.sender",
        "    if now + seconds(asked) <= longest:\n",
        "    if asked >= 0:\n",
        requirement="RTY-17",
        tests=(f"{_PAUSE}::test_no_answer_stops_a_receiver_for_longer_than_the_terms_allow",),
    ),
    Mutant(
        "one message's trouble is everybody's",
        "oncewire.handler.sending.transmit",
        "        set_aside(node, message_id, problem)\n",
        "        raise problem\n",
        requirement="RTY-18",
        tests=(f"{_TROUBLE}::test_a_message_without_an_address_was_never_transmitted",),
    ),
    Mutant(
        "a message that cannot enter undoes the one before it",
        "oncewire.handler.sending.transmit",
        "    if next_one:\n        set_aside(",
        "    if not next_one:\n        set_aside(",
        requirement="RTY-18",
        tests=(f"{_TROUBLE}::test_a_waiting_message_whose_agreement_changed_delays_nobody",),
    ),
    Mutant(
        "what an undone step decided leaves all the same",
        "oncewire.handler.context",
        "            del self.actions[kept:], self.status_questions[questions:]\n",
        "",
        requirement="RM-11",
        tests=(f"{_TROUBLE}::test_what_an_undone_step_decided_does_not_leave",),
    ),
)
