"""Bugs that handlers once had, put back one by one: wild worlds must find each of them.

`python -m tests.mutants.put_back` prints for each bug which promise its first bad world broke,
and the seed of that world. No test names what to look at: chance chooses the worlds, and the
checker or the world itself has to notice.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tests.mutants.collection import ALL
from tests.mutants.mutant import Mutant

SEEDS = 2_000

_ACKNOWLEDGING = "oncewire.protocol.receiver"
_REPLY = "oncewire.handler.sending.respond"


@dataclass(frozen=True, slots=True)
class PutBack:
    """One bug as it once was: what it did, and the change that brings it back."""

    what: str
    mutant: Mutant

    @classmethod
    def named(cls, what: str, name: str) -> PutBack:
        """By a mutant that the suite has anyway."""
        return cls(what, next(mutant for mutant in ALL if mutant.name == name))

    @classmethod
    def change(cls, what: str, place: str, old: str, new: str) -> PutBack:
        """By a change of its own."""
        return cls(what, Mutant(what, place, old, new))


PUT_BACK: tuple[PutBack, ...] = (
    PutBack.named(
        "B1 a hub that passes on loses every acknowledgement",
        "forget where a message came from that was passed on",
    ),
    PutBack.named(
        "B2 a copy is judged by today's agreement",
        "a copy is judged by today's agreement",
    ),
    PutBack.named(
        "B2 after the end nothing that answers is believed",
        "after the end nothing that answers is believed",
    ),
    PutBack.named(
        "B3 one message's trouble stops all timers",
        "one message's trouble is everybody's",
    ),
    PutBack.named(
        "B4 a hub's late word undoes the To Party's",
        "let a hub take back what the To Party itself acknowledged",
    ),
    PutBack.named(
        "B4 any partner's word undoes it",
        "believe the failure report of a stranger",
    ),
    PutBack.named("B5 notices about notices", "send a notice about a notice"),
    PutBack.named(
        "B6 told before the application took it",
        "call a failure told before the application took the notice",
    ),
    PutBack.named(
        "B7 a hub drops what it held when the way on is gone",
        "drop a held message whose way on is gone",
    ),
    PutBack.change(
        "B8 a copy gets the latest response, whatever was agreed",
        f"{_ACKNOWLEDGING}:answer_duplicate",
        "if terms.duplicate_answer is DuplicateAnswer.MOST_RECENT and responded:\n"
        "    return DuplicateReply.LATEST_RESPONSE",
        "if responded:\n    return DuplicateReply.LATEST_RESPONSE",
    ),
    PutBack.named("B9 a clock that was set is believed", "a clock that was set is believed"),
    PutBack.named(
        "B9 timers stay where they were",
        "timers stay where they were when the time moves",
    ),
    PutBack.named("B9 a pause may last for ever", "a pause may last for ever"),
    PutBack.change(
        "B10 a message without an address is called sent",
        "oncewire.handler.perform:way_to",
        "closed = frozenset(terms.transports).difference(addresses)",
        "closed: frozenset[str] = frozenset()",
    ),
    PutBack.change(
        "B11 a held request survives its connection",
        f"{_REPLY}:take_up_waiting",
        "(*tx.ready(FOR_EVER, 10_000), *tx.held(10_000))",
        "tx.ready(FOR_EVER, 10_000)",
    ),
    PutBack.change(
        "B11 a closed request leaves a gap",
        f"{_REPLY}:_close",
        "follow(context, tx, *close_number(stored.incoming, channel))",
        "pass",
    ),
    PutBack.named(
        "B12 another document under a used id is thrown away",
        "another document under a used id is taken for the first",
    ),
    PutBack.named(
        "B13 a narrowed range wedges the channel",
        "the numbers go on in another range than they began in",
    ),
    PutBack.change(
        "B14 a hub without a key raises",
        "oncewire.handler.receiving.agreement_match:check_signing",
        "if owed.signed and not can_sign(context, agreement):\n"
        "    raise Inconsistent('a signed acknowledgement is asked for, and there is no key to sign with as agreed', location='//Header/AckRequested/@signed', remedy='ask for an unsigned one, or agree on signatures')",
        "if False:\n"
        "    raise Inconsistent('a signed acknowledgement is asked for, and there is no key to sign with as agreed', location='//Header/AckRequested/@signed', remedy='ask for an unsigned one, or agree on signatures')",
    ),
    PutBack.change(
        "B15 a warning is dropped where no acknowledgement is owed",
        "oncewire.handler.receiving.arrive:Arriving._answer_at_once",
        "told = self.resolution.warnings",
        "told: tuple[Error, ...] = ()",
    ),
    PutBack.named(
        "K1 two epochs before a slow hand-over are a gap",
        "an epoch is over when the next one begins, slow application or not",
    ),
    PutBack.named(
        "K2 a hub that passes on is asked for the message",
        "a hub that passed a message on is asked for it",
    ),
    PutBack.named(
        "K3 the checker contradicts the engine on refused numbers",
        "a copy that was discarded proves that nothing arrived",
    ),
)


def found(put_back: PutBack, seeds: range = range(SEEDS)) -> str | None:
    """Bring the bug back into this process, which must not know the product yet, and look."""
    from tests.mutants.run import Infect

    sys.meta_path.insert(0, Infect(put_back.mutant))
    from oncewire.lab.simulation.draw import draw
    from oncewire.lab.simulation.world import run

    for seed in seeds:
        for violation in run(draw(seed)).violations:
            return f"{violation.predicate} {violation.kind} (seed {seed})"
    return None


def main(words: Sequence[str]) -> int:
    """Look for each, or for those whose first word is given; 1 when one was not found."""
    from tests.mutants.hatchery import in_a_child

    missed = 0
    for put_back in PUT_BACK:
        if words and put_back.what.split()[0] not in words:
            continue
        said = in_a_child(partial(found, put_back))
        missed += said["caught"] is None
        print(f"{put_back.what}: {said['caught'] or said['problem'] or 'NOT FOUND'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
