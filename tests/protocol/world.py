"""A model world around one ordered channel: a sender, a receiver and a network that misbehaves.

The protocol's own functions decide everything; this file only performs their effects the way a
handler does, and does to the network whatever a seed says: copies and answers are lost, doubled,
reordered, and kept back until long after their epoch is over. Operators resume and abandon when
they like. `run` makes trouble, heals the network, lets the operators resolve every incident, and
then checks what must hold; `Broken` carries the seed that replays it.

What the world assumes, because the product promises it elsewhere: the receiver remembers every
MessageId for as long as a copy may be under way (persistDuration), and a message's bytes, so also
its number, status and timestamp, never change after the first attempt.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from oncewire.errors import Inconsistent, NotAllowed, SecurityFailure, TransientError
from oncewire.message.envelope import Error, SequenceNumber
from oncewire.message.instant import SECOND
from oncewire.protocol import notes as fx
from oncewire.protocol import receiver, sender
from oncewire.protocol.receiver import (
    Arrival,
    First,
    Judgement,
    Refused,
    TurnedAway,
)
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sender import SenderStep
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import FINAL_OUTGOING, Outgoing, OutgoingState
from oncewire.protocol.terms import OnExhausted, Terms
from tests.protocol.customs import Customs, draw_customs

CHANNEL = "a>b"
HEALING_ROUNDS = 400
"""Far more than any healthy world needs; whoever is not done by then never will be."""


class Broken(AssertionError):
    """A promise was broken; the message names it, and `seed` replays the run."""


@dataclass
class Letter:
    """One message of the world: its state at the sender, and what will befall it."""

    outgoing: Outgoing
    index: int
    # ok, refused (by the application's rules), unsafe (its signature never holds), doubtful
    # (its signature holds on some copies only), hub (an intermediary refuses some copies).
    fate: str = "ok"
    stamp: int | None = None
    abandoned: bool = False
    notified: bool = False
    forgotten: bool = False
    # How often an operator was called about it; after a few times they stop resuming.
    incidents: int = 0


@dataclass
class Delivered:
    """What the receiver's application saw, and the skips that explain the gaps."""

    order: list[str] = field(default_factory=list)
    last: int = -1
    # Per epoch of the receiver: numbers handed over or skipped, in that order.
    numbers: dict[int, list[int]] = field(default_factory=dict)


def skips_of(effects: tuple[fx.Effect, ...]) -> list[tuple[int, int]]:
    """(epoch, number) of every journaled skip."""
    skips = []
    for effect in effects:
        if isinstance(effect, fx.Note) and effect.kind == "skipped":
            assert effect.epoch is not None
            assert effect.number is not None
            skips.append((effect.epoch, effect.number))
    return skips


class World:
    """One run. Every choice comes from the seed."""

    def __init__(self, seed: int, customs: Customs | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.customs = customs or draw_customs(self.rng)
        self.terms = self.customs.terms
        self.now = 1_000 * SECOND
        self.healed = False
        self.sending = SendingChannel.open(CHANNEL, self.terms)
        self.receiving = ReceivingChannel.open(CHANNEL, self.terms)
        self.letters: dict[str, Letter] = {}
        # Copies and answers under way, and those that hide until later.
        self.copies: list[str] = []
        self.answers: list[tuple[str, Error | None]] = []
        self.hidden: list[str] = []
        self.reports: list[tuple[str, int, bool]] = []
        self.incidents: set[str] = set()
        self.known: dict[str, tuple[str, Error | None]] = {}
        self.places: dict[str, tuple[int, int]] = {}
        self.seen = Delivered()
        self.released = False
        self.log: list[str] = []

    # --- the run ---------------------------------------------------------------------------

    def run(self) -> World:
        """Trouble, healing, and the checks."""
        troubles, chances = self._troubles()
        for trouble in self.rng.choices(troubles, cum_weights=chances, k=self.customs.steps):
            trouble()
            self.check_step()
        self.heal()
        self.check_end()
        return self

    def _troubles(self) -> tuple[list[Callable[[], None]], list[float]]:
        """What may happen next, and the running sum of how likely each is."""
        customs = self.customs
        weights: dict[Callable[[], None], float] = {
            self.submit: 3.0,
            self.deliver_copy: 6.0,
            self.deliver_answer: 4.0,
            self.tick: 4.0,
            self.hide: 1.0,
            self.unhide: 0.7,
            self.report: 1.0,
            self.resolve_incident: 0.7,
            self.abandon_any: 0.3 if customs.abandons else 0.0,
            self.restart: 0.4 if customs.restarts else 0.0,
            self.forget: 0.3 if customs.forgets else 0.0,
            self.release: 0.3 if customs.releases else 0.0,
        }
        return list(weights), list(itertools.accumulate(weights.values()))

    def heal(self) -> None:
        """Everything that still hides arrives, nothing more is lost, every incident is seen to."""
        self.healed = True
        while len(self.letters) < self.customs.messages:
            self.submit()
        for _ in range(HEALING_ROUNDS):
            self.copies += self.hidden
            self.hidden.clear()
            while self.copies or self.answers or self.reports:
                self.rng.choice([self.deliver_copy, self.deliver_answer, self.report])()
                self.check_step()
            if self.incidents:
                self.resolve_incident()
            elif not self.next_timer():
                break
            self.check_step()
        else:
            self.broken("the channel hangs: " + self.describe())
        # Long after the last arrival the receiver stops waiting for numbers that were given up.
        while self.receiving.held:
            self.release()

    # --- the sender ------------------------------------------------------------------------

    def submit(self) -> None:
        """The application hands over one more message."""
        index = len(self.letters)
        if index >= self.customs.messages:
            return
        stamp = None
        if not self.customs.stamped_at_entry:
            # The sender's clock may step back, and its stamps rise all the same, unless it has
            # forgotten the last one: then the clock is all it has.
            step = 0 if self.customs.forgets else self.rng.choice([0, 0, 30 * SECOND])
            self.sending, stamp = self.sending.stamp(self.now - step)
        mortal = self.rng.random() < self.customs.lifetimes
        lifetime = self.rng.randint(1, 60) * SECOND if mortal else None
        outgoing = Outgoing(
            f"m{index}",
            "terms",
            self.now,
            CHANNEL,
            expires_at=None if lifetime is None else self.now + lifetime,
        )
        fate = self.rng.choice(self.customs.fates)
        self.letters[outgoing.message_id] = Letter(outgoing, index, fate, stamp)
        self.note(f"submit {outgoing.message_id} ({fate}, lifetime {lifetime})")
        self.admit()

    def admit(self) -> None:
        """Waiting messages enter in order of submission while there are places."""
        for letter in list(self.letters.values()):
            if letter.outgoing.state is not OutgoingState.WAITING:
                continue
            if self.sending.places(self.terms) < 1:
                return
            if self._deadline_is_over(letter):
                self.perform(letter, sender.deadline_passed(*self._of(letter)))
                continue
            if letter.stamp is None:
                self.sending, letter.stamp = self.sending.stamp(self.now)
            entered = sender.enter_window(*self._of(letter))
            self.perform(letter, entered)
            if self.sending.paused_until <= self.now:
                self.attempt(letter)

    def _deadline_is_over(self, letter: Letter) -> bool:
        deadline = letter.outgoing.deadline(self.terms)
        return deadline is not None and self.now >= deadline

    def _of(self, letter: Letter) -> tuple[Outgoing, SendingChannel, Terms, int]:
        return letter.outgoing, self.sending, self.terms, self.now

    def attempt(self, letter: Letter) -> None:
        self.perform(letter, sender.attempt_due(*self._of(letter)))

    def tick(self) -> None:
        """Time passes, and whatever is due happens, in no particular order."""
        self.now += self.rng.choice([0, 1, 5, 11, 40]) * SECOND
        letters = list(self.letters.values())
        self.rng.shuffle(letters)
        for letter in letters:
            self.run_timers(letter)

    def run_timers(self, letter: Letter) -> None:
        """What the store's `expired` and `due` would find."""
        if self._deadline_is_over(letter) and letter.outgoing.state not in FINAL_OUTGOING:
            self.perform(letter, sender.deadline_passed(*self._of(letter)))
        due = letter.outgoing.next_attempt_at
        if due is not None and due <= self.now and not self.sending.suspended:
            self.attempt(letter)

    def next_timer(self) -> bool:
        """Let time pass to the next timer; False when none runs."""
        due = [
            max(letter.outgoing.next_attempt_at, self.sending.paused_until)
            for letter in self.letters.values()
            if letter.outgoing.next_attempt_at is not None and not self.sending.suspended
        ]
        due += [
            deadline
            for letter in self.letters.values()
            if letter.outgoing.state not in FINAL_OUTGOING
            and (deadline := letter.outgoing.deadline(self.terms)) is not None
        ]
        if not due:
            return False
        self.now = max(self.now, min(due))
        for letter in list(self.letters.values()):
            self.run_timers(letter)
        return True

    def perform(self, letter: Letter, step: SenderStep) -> None:
        """Do what the step asks, as a handler would."""
        letter.outgoing = step.outgoing
        assert step.channel is not None
        self.sending = step.channel
        for effect in step.effects:
            if isinstance(effect, fx.Transmit):
                self.transmit(effect)
            elif isinstance(effect, fx.Notify):
                letter.notified = True
            elif isinstance(effect, fx.Raise):
                self.incidents.add(effect.message_id or "")
            elif isinstance(effect, fx.Resolve):
                self.incidents.discard(effect.message_id or "")
            elif isinstance(effect, fx.AskStatus) and self.has_stored(effect.message_id):
                self.answers.append((effect.message_id, None))
        if any(isinstance(effect, fx.Admit) for effect in step.effects):
            self.admit()

    def has_stored(self, message_id: str) -> bool:
        """What the receiver's answer to a status request says."""
        return message_id in self.known and self.known[message_id][1] is None

    def transmit(self, effect: fx.Transmit) -> None:
        chance = 1.0 if self.healed else self.rng.random()
        self.note(f"transmit {effect.message_id} attempt {effect.attempt}")
        if chance < 0.1:
            # The connection was refused: certainly nothing got across.
            self.reports.append((effect.message_id, effect.attempt, True))
            return
        if chance < 0.2:
            self.reports.append((effect.message_id, effect.attempt, False))
        self.copies.append(effect.message_id)

    def report(self) -> None:
        """The transport says how an attempt ended."""
        if not self.reports:
            return
        message_id, attempt, certain = self.reports.pop(self.rng.randrange(len(self.reports)))
        letter = self.letters[message_id]
        if letter.forgotten:
            return
        step = sender.transmission_failed(
            *self._of(letter), attempt=attempt, certain=certain, reason="down"
        )
        self.perform(letter, step)

    # --- operators -------------------------------------------------------------------------

    def resolve_incident(self) -> None:
        """Somebody sees to one incident: by resuming, or else by abandoning."""
        if not self.incidents:
            return
        message_id = self.rng.choice(sorted(self.incidents))
        letter = self.letters.get(message_id)
        if letter is None:
            self.incidents.discard(message_id)
            return
        letter.incidents += 1
        patience = letter.incidents <= 3
        resumes = patience and (not self.customs.abandons or self.rng.random() < 0.5)
        if not (resumes and self.resume(letter)):
            self.abandon(letter)

    def resume(self, letter: Letter) -> bool:
        """Lift the suspension; every unsettled message starts again (RTY-13)."""
        self.note(f"resume {letter.outgoing.message_id}")
        if self.sending.suspended:
            self.sending = self.sending.resume()
            live = [
                other
                for other in self.letters.values()
                if other.outgoing.state in (OutgoingState.OUTSTANDING, OutgoingState.SUSPENDED)
            ]
            for other in live:
                self.perform(other, sender.resume(*self._of(other)))
                self.run_timers(other)
        else:
            try:
                self.perform(letter, sender.resume(*self._of(letter)))
            except NotAllowed:
                return False
        self.admit()
        return True

    def abandon(self, letter: Letter) -> None:
        """Give the message up; where nothing is left to give up, just close the incident."""
        self.note(f"abandon {letter.outgoing.message_id}")
        try:
            step = sender.abandon(letter.outgoing, self.sending, self.terms)
        except NotAllowed:
            if self.is_unsettled(letter) or letter.outgoing.state not in FINAL_OUTGOING:
                self.broken(f"nobody can resolve {letter}")
        else:
            letter.abandoned = True
            self.perform(letter, step)
        self.incidents.discard(letter.outgoing.message_id)

    def abandon_any(self) -> None:
        live = [x for x in self.letters.values() if x.outgoing.state not in FINAL_OUTGOING]
        if live:
            self.abandon(self.rng.choice(live))

    def restart(self) -> None:
        """The sender restarts its numbering because it feels like it (SEQ-4)."""
        try:
            self.sending = self.sending.restart(self.terms)
        except NotAllowed:
            return
        self.note("restart")
        self.admit()

    def forget(self) -> None:
        """The sender's database is lost while nothing is under way: it begins as at the start.

        The messages that wait are submitted again; answers to forgotten ones find nobody.
        """
        if self.sending.unsettled(self.terms) or self.sending.suspended:
            return
        self.note("forget the numbering")
        self.now += SECOND
        # Only the clock is left to make the next timestamp later than all before it.
        self.now = max(self.now, self.sending.last_stamp + 1)
        self.sending = SendingChannel.open(CHANNEL, self.terms)
        for letter in self.letters.values():
            letter.forgotten = letter.outgoing.state in FINAL_OUTGOING
        self.incidents.clear()
        self.admit()

    # --- the network -----------------------------------------------------------------------

    def hide(self) -> None:
        if self.copies and self.rng.random() < self.customs.hiding * 3:
            self.hidden.append(self.copies.pop(self.rng.randrange(len(self.copies))))

    def unhide(self) -> None:
        if self.hidden:
            self.copies.append(self.hidden.pop(self.rng.randrange(len(self.hidden))))

    def deliver_copy(self) -> None:
        """Any copy under way arrives, is lost, or arrives and stays under way."""
        if not self.copies:
            return
        at = self.rng.randrange(len(self.copies))
        message_id = self.copies[at]
        chance = 1.0 if self.healed else self.rng.random()
        if chance >= self.customs.doubling or self.healed:
            self.copies.pop(at)
        if self.healed or self.rng.random() >= self.customs.loss:
            self.receive(self.letters[message_id])

    def deliver_answer(self) -> None:
        """Any answer under way arrives, is lost, or arrives twice."""
        if not self.answers:
            return
        message_id, error = self.answers.pop(self.rng.randrange(len(self.answers)))
        if not self.healed:
            if self.rng.random() < self.customs.loss:
                return
            if self.rng.random() < self.customs.doubling:
                self.answers.append((message_id, error))
        letter = self.letters[message_id]
        if letter.forgotten:
            return
        self.note(f"answer {message_id}: {error.code if error else 'ack'}")
        if error is None:
            outgoing, channel, terms, _ = self._of(letter)
            self.perform(letter, sender.ack_arrived(outgoing, channel, terms, ack_id="a"))
        else:
            step = sender.error_arrived(*self._of(letter), error=error, error_id="e")
            self.perform(letter, step)

    # --- the receiver ----------------------------------------------------------------------

    def receive(self, letter: Letter) -> None:
        """One copy arrives: judge it, keep what must be kept, answer."""
        arrival = self.arrival(letter)
        trouble = self._turned_away(letter)
        if trouble is not None:
            self.answers.append((arrival.message_id, trouble))
            return
        known = self.known.get(arrival.message_id)
        if known is not None:
            assert receiver.judge_copy(arrival, known[0], self.receiving) is None
            self.note(f"arrives {arrival}: a copy")
            self.answers.append((arrival.message_id, known[1]))
            return
        judged: Judgement
        if letter.fate == "refused":
            fault = Inconsistent("the application's rules refuse it")
            judged = receiver.refuse(arrival, fault, self.receiving, self.terms)
        else:
            judged = receiver.judge(arrival, self.receiving, self.terms, self.now)
        error = judged.error if isinstance(judged, Refused | TurnedAway) else None
        self.note(f"arrives {arrival}: {type(judged).__name__} {error and error.code}")
        self.check_fits(letter, judged)
        if isinstance(judged, First | Refused):
            self.known[arrival.message_id] = (arrival.digest, error)
        if isinstance(judged, First):
            assert judged.channel is not None
            assert arrival.sequence is not None
            self.places[arrival.message_id] = (judged.channel.epoch, arrival.sequence.number)
        self.take(judged)
        self.answers.append((arrival.message_id, error))

    def arrival(self, letter: Letter) -> Arrival:
        outgoing = letter.outgoing
        assert outgoing.number is not None
        assert letter.stamp is not None
        return Arrival(
            outgoing.message_id,
            "digest",
            letter.stamp,
            SequenceNumber(outgoing.number, outgoing.status),
            outgoing.expires_at,
        )

    def _turned_away(self, letter: Letter) -> Error | None:
        """Errors that leave no trace at the receiver."""
        coin = self.rng.random() < 0.5
        if letter.fate == "unsafe" or (letter.fate == "doubtful" and coin):
            return Error.of(SecurityFailure("bad signature"))
        if letter.fate == "hub" and coin:
            # An intermediary's word: it names a code that the To Party would have noted.
            return Error("TimeToLiveExpired")
        if not self.healed and self.rng.random() < self.customs.transients:
            return Error.of(TransientError("full", min_retry_secs=self.rng.choice([None, 3, 30])))
        return None

    def take(self, judged: Judgement) -> None:
        assert judged.channel is not None
        before, self.receiving = self.receiving, judged.channel
        if any(isinstance(effect, fx.Raise) for effect in judged.effects):
            self.incidents.add("")
        deliver = () if isinstance(judged, TurnedAway) else judged.deliver
        self.hand_over(deliver, skips_of(judged.effects))
        if before.epoch != self.receiving.epoch:
            self.note(f"receiver's epoch {self.receiving.epoch}")

    def hand_over(self, deliver: tuple[str, ...], skipped: list[tuple[int, int]]) -> None:
        for message_id in deliver:
            # Strictly rising in submission order: in order, and no message twice.
            if self.letters[message_id].index <= self.seen.last:
                self.broken(f"{message_id} after {self.seen.order}: order or repeat (S2, S6)")
            self.seen.last = self.letters[message_id].index
            self.seen.order.append(message_id)
        places = [self.places[message_id] for message_id in deliver]
        if deliver:
            self.note(f"handed over {deliver}")
        for epoch in sorted({epoch for epoch, _ in [*places, *skipped]}):
            here = {number for at, number in [*places, *skipped] if at == epoch}
            line = self.seen.numbers.setdefault(epoch, [])
            while here:
                number = self.terms.numbers.after(line[-1]) if line else self.terms.numbers.first
                if number not in here:
                    self.broken(f"epoch {epoch}: {here} follow {line} with a silent gap (S7)")
                here.discard(number)
                line.append(number)

    def release(self) -> None:
        """The receiver gives up waiting for what is missing before a held message."""
        if not self.receiving.held:
            return
        self.released = True
        number = self.rng.choice(self.receiving.held).number
        epoch = self.receiving.epoch
        done = receiver.give_up_gap(self.receiving, number, self.terms)
        self.receiving = done.channel
        self.note(f"the receiver stops waiting before {number} of its epoch {epoch}")
        self.hand_over(done.deliver, skips_of(done.effects))

    # --- what must hold --------------------------------------------------------------------

    def is_unsettled(self, letter: Letter) -> bool:
        outgoing = letter.outgoing
        return not letter.forgotten and self.sending.is_unsettled(
            outgoing.epoch, outgoing.number, self.terms
        )

    def check_fits(self, letter: Letter, judged: Judgement) -> None:
        """A number that its sender still works on always fits, or was noted as refused."""
        if self.released or not self.is_unsettled(letter):
            return
        if isinstance(judged, TurnedAway):
            self.broken(f"live {letter} does not fit {self.receiving}: {judged.error}")

    def check_step(self) -> None:
        """Bounds that hold at every moment."""
        window = self.terms.window_size
        if self.sending.span(self.terms) > window:
            self.broken(f"more than {window} numbers under way (S8)")
        if len(self.receiving.held) > window:
            self.broken(f"more than {window} messages held (SW-9)")

    def check_end(self) -> None:
        """After healing: settled, final, told, and handed over once."""
        if self.sending.unsettled(self.terms) or self.sending.suspended:
            self.broken("unsettled: " + self.describe())
        if self.receiving.held:
            self.broken(f"held for ever: {self.receiving}")
        self.check_step()
        for letter in self.letters.values():
            state = letter.outgoing.state
            handed = self.seen.order.count(letter.outgoing.message_id)
            if state not in FINAL_OUTGOING:
                self.broken(f"not final: {letter}")
            if state is OutgoingState.DELIVERED and handed != 1:
                self.broken(f"acknowledged, but handed over {handed} times: {letter}")
            if state is OutgoingState.NOT_DELIVERED and handed and letter.fate in ("ok", "refused"):
                self.broken(f"handed over, but called not delivered: {letter} (S5)")
            if state is not OutgoingState.DELIVERED and not letter.notified:
                self.broken(f"nobody was told: {letter} (S4)")
            if self.is_kind() and state is not OutgoingState.DELIVERED:
                self.broken(f"an innocent message was not delivered: {letter}")

    def is_kind(self) -> bool:
        """Whether nothing in this world justifies losing a message."""
        customs, terms = self.customs, self.terms
        return (
            customs.fates == ("ok",)
            and not customs.abandons
            and not customs.lifetimes
            and not customs.releases
            and terms.persist_duration > 10_000 * SECOND
            and terms.on_exhausted is OnExhausted.SUSPEND_CHANNEL
            and not any(letter.abandoned for letter in self.letters.values())
        )

    def describe(self) -> str:
        open_letters = [
            str(letter)
            for letter in self.letters.values()
            if letter.outgoing.state not in FINAL_OUTGOING or self.is_unsettled(letter)
        ]
        return f"{self.sending} {self.receiving} {self.incidents} " + "; ".join(open_letters[:3])

    def note(self, line: str) -> None:
        self.log.append(line)

    def broken(self, promise: str) -> None:
        story = "\n  ".join(self.log[-40:])
        raise Broken(f"seed {self.seed}: {promise}\n  {story}")
