"""Deliberate bugs of waiting: clocks, pauses, and messages that cannot go on."""

# The replaced text is the product's own, as long as its lines are.

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CLOCK = "tests/handler/runtime/test_clock.py"
_RETAIN = "tests/handler/runtime/test_retain.py"
_PAUSE = "tests/handler/test_pause.py"
_TROUBLE = "tests/handler/test_trouble.py"

IN_TIME: tuple[Mutant, ...] = (
    Mutant(
        "a clock that was set is believed",
        "oncewire.handler.world:Timeline.in_doubt",
        "return abs(self.ahead) > (CORRECTION if state.told else self._room)",
        "return False",
        requirement="RTY-18",
        tests=(f"{_CLOCK}::test_two_days_ahead_for_three_seconds_fail_nothing",),
    ),
    Mutant(
        "timers stay where they were when the time moves",
        "oncewire.handler.context:HandlerContext.follow_clock",
        "if self.store.fellows is None or self.store.fellows.leads:\n"
        "    tx.shift_timers(self.state.timeline.ahead)",
        "pass",
        requirement="RTY-2",
        tests=(f"{_CLOCK}::test_a_small_step_is_followed",),
    ),
    Mutant(
        "what is due expires although the time is in doubt",
        "oncewire.handler.sending.transmit:expire_due",
        "expired = [] if context.in_doubt else tx.expired(context.now(), BATCH + len(context.state.stuck))",
        "expired = tx.expired(context.now(), BATCH + len(context.state.stuck))",
        requirement="HDR-9",
        tests=(f"{_CLOCK}::test_no_verdict_of_expiry_while_the_clock_is_in_doubt",),
    ),
    Mutant(
        "retention goes on although the time is in doubt",
        "oncewire.handler.runtime.engine:Engine.tick",
        "if now >= state.sweep_due_at and (not state.timeline.in_doubt):\n"
        "    with context.transition() as tx:\n"
        "        retention.sweep(context, tx)",
        "if now >= state.sweep_due_at:\n"
        "    with context.transition() as tx:\n"
        "        retention.sweep(context, tx)",
        requirement="STO-7",
        tests=(f"{_RETAIN}::test_nothing_is_removed_while_the_clock_is_in_doubt",),
    ),
    Mutant(
        "a start gives answers up although the time is in doubt",
        "oncewire.handler.runtime.retention:end_all_answers",
        "while not context.in_doubt and end_answers(context, tx) == BATCH:\n    pass",
        "while end_answers(context, tx) == BATCH:\n    pass",
        requirement="STO-7",
        tests=(f"{_CLOCK}::test_a_start_in_doubt_gives_no_answer_up_that_is_owed",),
    ),
    Mutant(
        "a gap is given up although the time is in doubt",
        "oncewire.handler.receiving.release:give_up_gaps",
        "if context.in_doubt:\n    return",
        "pass",
        requirement="SW-10",
        tests=(f"{_CLOCK}::test_no_gap_is_given_up_while_the_clock_is_in_doubt",),
    ),
    Mutant(
        "a document is given up although the time is in doubt",
        "oncewire.handler.runtime.engine:Engine._serve_timers",
        "if looks_at_gaps and (not state.timeline.in_doubt):\n    give_up_incomplete(context)",
        "if looks_at_gaps:\n    give_up_incomplete(context)",
        requirement="BIG-6",
        tests=(f"{_CLOCK}::test_no_document_is_given_up_while_the_clock_is_in_doubt",),
    ),
    Mutant(
        "what waits for its place expires although the time is in doubt",
        "oncewire.handler.sending.transmit:_admit_one.bring_in",
        "if not context.in_doubt:\n"
        "    moved.append(stored)\n"
        "    step = deadline_passed(stored.outgoing, channel, terms, context.now())\n"
        "    perform(context, tx, stored, channel, step, terms)",
        "moved.append(stored)\n"
        "step = deadline_passed(stored.outgoing, channel, terms, context.now())\n"
        "perform(context, tx, stored, channel, step, terms)",
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
        "oncewire.handler.runtime.retention:begin_clock",
        "told = any((incident.message_id is None and incident.channel is None for incident in reader.incidents()))",
        "told = any((incident.message_id is None for incident in reader.incidents()))",
        tests=(f"{_CLOCK}::test_an_incident_of_something_else_is_not_taken_for_the_clocks",),
    ),
    Mutant(
        "a restart believes any clock",
        "oncewire.handler.world:Timeline.begin",
        "state = replace(state, origin=last.at - last.mono)",
        "pass",
        requirement="RTY-1",
        tests=(f"{_CLOCK}::test_a_restart_changes_nothing_of_that",),
    ),
    Mutant(
        "a lifetime counts from the last timestamp",
        "oncewire.handler.sending.submit:_compose",
        "now + lifetime",
        "stamp + lifetime",
        requirement="HDR-9",
        tests=(f"{_CLOCK}::test_a_lifetime_counts_from_now_whatever_the_stream_was_stamped_with",),
    ),
    Mutant(
        "a pause is for the channel of its message alone",
        "oncewire.handler.perform:way_to",
        "Way(0 if receiver is None else receiver.paused_until, closed, left)",
        "Way(0, closed)",
        requirement="RTY-8",
        tests=(
            f"{_PAUSE}::test_nothing_unnumbered_goes_to_a_busy_receiver",
            f"{_PAUSE}::test_every_channel_to_the_receiver_stands_and_goes_on_in_order",
        ),
    ),
    Mutant(
        "a pause may last for ever",
        "oncewire.protocol.sender:_pause",
        "now + seconds(asked) <= longest",
        "asked >= 0",
        requirement="RTY-17",
        tests=(f"{_PAUSE}::test_no_answer_stops_a_receiver_for_longer_than_the_terms_allow",),
    ),
    Mutant(
        "one message's trouble is everybody's",
        "oncewire.handler.sending.transmit:_step",
        "if problem is not None:\n    set_aside(context, message_id, problem)",
        "if problem is not None:\n    raise problem",
        requirement="RTY-18",
        tests=(f"{_TROUBLE}::test_a_message_without_an_address_was_never_transmitted",),
    ),
    Mutant(
        "a message that cannot enter undoes the one before it",
        "oncewire.handler.sending.transmit:_admit_one",
        "if next_one:\n"
        "    set_aside(context, next_one[0].outgoing.message_id, problem)\n"
        "    return True",
        "if not next_one:\n"
        "    set_aside(context, next_one[0].outgoing.message_id, problem)\n"
        "    return True",
        requirement="RTY-18",
        tests=(f"{_TROUBLE}::test_a_waiting_message_whose_agreement_changed_delays_nobody",),
    ),
    Mutant(
        "what an undone step decided leaves all the same",
        "oncewire.handler.context:HandlerContext.transition",
        "del state.actions[kept:], state.status_questions[questions:]",
        "pass",
        requirement="RM-11",
        tests=(f"{_TROUBLE}::test_what_an_undone_step_decided_does_not_leave",),
    ),
)
