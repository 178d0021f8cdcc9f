"""Mutants of sequence numbers and windows that tests with real handlers must notice."""

# The replaced text is the product's own, as long as its lines are.
# ruff: noqa: E501

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SENDING = "oncewire.protocol.sending"
_RECEIVING = "oncewire.protocol.receiving"
_RECEIVER = "oncewire.protocol.receiver"
_SEQUENCE = "oncewire.protocol.sequence"
_BLOCKS = "oncewire.wire.drafts.blocks"

_EPOCHS = "tests/protocol/test_epochs.py"
_NUMBERS = "tests/handler/test_numbers_on_the_wire.py"
_WINDOWS = "tests/handler/test_windows_at_work.py"
_CHANGED = "tests/handler/test_changed_numbers.py"

IN_NUMBERS: tuple[Mutant, ...] = (
    Mutant(
        "all transports to a receiver are one stream",
        "oncewire.agreement.resolve",
        "    if terms.scope is Scope.TRIPLE:\n",
        "    if terms.scope is None:\n",
        requirement="SEQ-1",
        tests=(f"{_NUMBERS}::test_two_transports_to_one_receiver_are_counted_apart",),
    ),
    Mutant(
        "v0-078 has one number less",
        _SEQUENCE,
        "RM_078_RANGE = SequenceRange(1, 4_294_967_295)\n",
        "RM_078_RANGE = SequenceRange(1, 4_294_967_294)\n",
        requirement="SEQ-2",
        tests=(f"{_NUMBERS}::test_after_the_last_number_comes_the_first",),
    ),
    Mutant(
        "the opener of the first epoch ages what came before it",
        _RECEIVING,
        "        opens = self.epoch > 1 and",
        "        opens = self.epoch >= 1 and",
        requirement="SEQ-15",
        tests=(f"{_EPOCHS}::test_a_late_opener_of_the_first_epoch_makes_no_message_too_old",),
    ),
    Mutant(
        "a restart must be younger than the last message",
        _RECEIVING,
        "        return Epoch.NEXT if stamp >= self.newest_stamp else Epoch.OVER\n",
        "        return Epoch.NEXT if stamp > self.newest_stamp else Epoch.OVER\n",
        requirement="SEQ-15",
        tests=(f"{_EPOCHS}::test_a_restart_within_one_tick_of_the_partners_clock_is_a_restart",),
    ),
    Mutant(
        "a message as old as the opener of its epoch is a straggler",
        _RECEIVING,
        "        if stamp < self.oldest_stamp:\n",
        "        if stamp <= self.oldest_stamp:\n",
        requirement="SEQ-15",
        tests=(f"{_EPOCHS}::test_a_restart_within_one_tick_of_the_partners_clock_is_a_restart",),
    ),
    Mutant(
        "a skipped number was not passed",
        _RECEIVING,
        "            expected, passed = kept.numbers.after(expected), passed + 1\n",
        "            expected, passed = kept.numbers.after(expected), passed + (entry is not None)\n",
        requirement="SW-7",
        tests=(f"{_EPOCHS}::test_a_number_that_was_skipped_counts_as_passed",),
    ),
    Mutant(
        "v0-078 counts from zero",
        _SEQUENCE,
        "RM_078_RANGE = SequenceRange(1, 4_294_967_295)\n",
        "RM_078_RANGE = SequenceRange(0, 4_294_967_295)\n",
        requirement="SEQ-3",
        tests=(f"{_NUMBERS}::test_v0_078_counts_from_one_by_one",),
    ),
    Mutant(
        "the number after the previous one is refused",
        _RECEIVING,
        "        if place is Place.FREE:\n",
        "        if ahead == 0 and self.passed > 0:\n            return Fit.OCCUPIED\n        if place is Place.FREE:\n",
        requirement="SEQ-5",
        tests=(f"{_NUMBERS}::test_v0_078_counts_from_one_by_one",),
    ),
    Mutant(
        "a repeated number is refused before its id is known",
        _RECEIVER,
        "    if known is not None:\n        return _judge_known(arrival, known, channel)\n",
        "    if known is not None and arrival.sequence is None:\n        return _judge_known(arrival, known, channel)\n",
        requirement="SEQ-6 DUP-4 RM-17",
        tests=(f"{_NUMBERS}::test_the_same_number_again_is_a_repeat",),
    ),
    Mutant(
        "one after one is always a repeat",
        _RECEIVING,
        "        first = sequence.number == terms.numbers.first\n",
        "        first = sequence.number == terms.numbers.first and self.passed > 1\n",
        requirement="SEQ-7",
        tests=(f"{_NUMBERS}::test_after_number_one_the_id_decides_whether_number_one_is_a_repeat",),
    ),
    Mutant(
        "number one never begins a new series",
        _RECEIVING,
        "        silent = terms.reset is ResetRule.SILENT\n",
        "        silent = False\n",
        requirement="SEQ-8",
        tests=(f"{_NUMBERS}::test_number_one_after_another_number_begins_a_new_series",),
    ),
    Mutant(
        "v0-078 keeps what came too early",
        _RECEIVING,
        "            return Fit.GAP if kept.on_gap is OnGap.REJECT else Fit.BEYOND\n",
        "            return Fit.EARLY\n",
        requirement="SEQ-9",
        tests=(f"{_NUMBERS}::test_any_other_number_is_discarded_with_an_error",),
    ),
    Mutant(
        "an error about a later number ends the earlier ones",
        "oncewire.protocol.sender",
        "    if outgoing.attempts_here > terms.resends:\n",
        "    if outgoing.attempts_here > 0:\n",
        requirement="SEQ-10",
        tests=(f"{_NUMBERS}::test_the_missing_message_is_sent_again_after_the_error",),
    ),
    Mutant(
        "the slides' numbers end a little early",
        _SEQUENCE,
        "SLIDES_RANGE = SequenceRange(0, 99_999_999)\n",
        "SLIDES_RANGE = SequenceRange(0, 99_999_998)\n",
        requirement="SEQ-12",
        tests=(f"{_NUMBERS}::test_after_the_last_number_comes_the_first",),
    ),
    Mutant(
        "any word is a status",
        _BLOCKS,
        "        if status is None:\n            findings.fault(",
        "        if status is None and not word:\n            findings.fault(",
        requirement="SEQ-13",
        tests=(f"{_NUMBERS}::test_a_status_that_is_neither_is_refused",),
    ),
    Mutant(
        "only the first message of an epoch says reset",
        _SENDING,
        "        marked = terms.window_size if terms.reset is ResetRule.FIRST_WINDOW else 1\n",
        "        marked = 1\n",
        requirement="SEQ-14",
        tests=(f"{_NUMBERS}::test_the_whole_first_window_says_reset_and_the_rest_continue",),
    ),
    Mutant(
        "only the first number of a window restarts the receiver",
        _RECEIVING,
        "        marked = first if silent else sequence.status is SequenceStatus.RESET\n",
        "        marked = first\n",
        requirement="SEQ-15",
        tests=(f"{_NUMBERS}::test_any_message_of_the_first_window_begins_the_new_epoch",),
    ),
    Mutant(
        "stop-and-wait lets two messages go",
        "oncewire.protocol.terms",
        "            return STOP_AND_WAIT_WINDOW\n",
        "            return STOP_AND_WAIT_WINDOW + 1\n",
        requirement="SW-1",
        tests=(f"{_WINDOWS}::test_stop_and_wait_has_one_message_under_way",),
    ),
    Mutant(
        "the window has one place more than agreed",
        _SENDING,
        "        return max(0, terms.window_size - self.span(terms))\n",
        "        return max(0, terms.window_size + 1 - self.span(terms))\n",
        requirement="SW-3 SW-4 SW-11",
        tests=(f"{_WINDOWS}::test_the_window_is_filled_and_never_passed",),
    ),
    Mutant(
        "the window counts what is unsettled, not what lies behind the first",
        _SENDING,
        "        return max(0, terms.window_size - self.span(terms))\n",
        "        return max(0, terms.window_size - self.unsettled(terms))\n",
        requirement="SW-5 SW-6",
        tests=(f"{_WINDOWS}::test_the_window_slides_to_the_first_unacknowledged_number",),
    ),
    Mutant(
        "the receiver holds whatever comes early",
        _RECEIVING,
        "            reached = ahead < kept.window_size or not kept.ordered\n",
        "            reached = ahead < 2 * kept.window_size or not kept.ordered\n",
        requirement="SW-9",
        tests=(f"{_WINDOWS}::test_no_more_than_a_window_is_held_and_all_comes_in_order",),
    ),
    Mutant(
        "the duplication window is one number too wide",
        _SEQUENCE,
        "        return self.numbers.after(self.furthest, 1 - self.window)\n",
        "        return self.numbers.after(self.furthest, -self.window)\n",
        requirement="SW-7",
        tests=(
            f"{_CHANGED}::test_a_number_the_window_has_slid_past_is_stale_and_nobody_is_called",
        ),
    ),
    Mutant(
        "the duplication window is one number too narrow",
        _SEQUENCE,
        "        return self.numbers.distance(self.start, number) < self.window\n",
        "        return 0 < self.numbers.distance(self.start, number) < self.window\n",
        requirement="SW-7",
        tests=(
            f"{_CHANGED}::test_a_number_inside_the_window_under_another_id_is_invalid_and_somebody_is_called",
        ),
    ),
    Mutant(
        "the last number of the next window is not new",
        _SEQUENCE,
        "        return 1 <= self.numbers.distance(self.furthest, number) <= self.window\n",
        "        return 1 <= self.numbers.distance(self.furthest, number) < self.window\n",
        requirement="SW-8",
        tests=(
            f"{_CHANGED}::test_the_far_end_of_the_next_window_fits_and_what_lies_beyond_names_the_window",
        ),
    ),
    Mutant(
        "the duplication window ends at the latest arrival",
        _RECEIVING,
        "            furthest=entry.number if further else self.furthest,\n",
        "            furthest=entry.number,\n",
        requirement="SW-8",
        tests=(
            f"{_CHANGED}::test_a_number_that_is_missing_fits_although_it_lies_inside_the_window",
        ),
    ),
    Mutant(
        "what is early is held although no order was agreed",
        _RECEIVING,
        "        if not kept.ordered and not entry.refused:\n",
        "        if False:\n",
        requirement="SW-10",
        tests=(f"{_CHANGED}::test_without_order_nothing_waits_for_a_lost_message",),
    ),
    Mutant(
        "the numbers go on in another range than they began in",
        _SENDING,
        "        goes_on = same and self.next_number in terms.numbers\n",
        "        goes_on = True\n",
        tests=(f"{_CHANGED}::test_a_range_that_changes_while_the_stream_is_idle",),
    ),
    Mutant(
        "what is under way is judged by a range agreed on later",
        _RECEIVING,
        "        numbers = self.numbers or terms.numbers\n",
        "        numbers = terms.numbers\n",
        tests=(f"{_CHANGED}::test_a_range_that_changes_while_messages_are_under_way",),
    ),
)
