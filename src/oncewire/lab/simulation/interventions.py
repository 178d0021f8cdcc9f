"""Interventions: what operators do about incidents, agreements and messages; false reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from oncewire.agreement.agreement import Agreement
from oncewire.errors import InvalidValue, OncewireError
from oncewire.handler.actions import Source
from oncewire.handler.perform import WAY
from oncewire.handler.sending.answer import signal_route
from oncewire.lab.simulation.application import document_of, submission_of
from oncewire.lab.simulation.papers import Paper, contradiction, cpa_id_of, is_readable, papers_of
from oncewire.lab.simulation.plan import (
    BUYER,
    Change,
    Claim,
    Deed,
    Ending,
    Meddling,
    Order,
    Tale,
    Turn,
)
from oncewire.message.envelope import DeliverySemantics, Error, MessageKind, Severity
from oncewire.protocol.terms import Scope
from oncewire.wire import codec
from oncewire.wire.answers import Envelope, error_message_for
from oncewire.wire.parcel import PartialHeader

if TYPE_CHECKING:
    from oncewire.lab.simulation.machine import Machine, Surroundings

PROBED = 12
"""How often an operator leaves a failed transport to the probes before resuming it."""


class Operator:
    """Meets every open incident of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._met: Counter[tuple[str | None, str | None]] = Counter()

    def meet(self) -> None:
        """Resume what can go on, abandon what cannot."""
        with self._machine.store.reader() as reader:
            incidents = reader.incidents()
        for incident in incidents:
            self._resolve(incident.message_id, incident.channel)

    def _resolve(self, message_id: str | None, channel: str | None) -> None:
        machine, engine = self._machine, self._machine.engine
        self._met[message_id, channel] += 1
        if (channel or "").startswith(WAY) and self._met[message_id, channel] <= PROBED:
            # The handler probes a transport that failed, and takes it up again by itself.
            return
        tired = self._met[message_id, channel] > machine.setting.patience
        if message_id is not None and tired:
            self._abandon(message_id)
        elif channel is not None:
            with machine.store.reader() as reader:
                sending = reader.sending_channel(channel) if tired else None
            if sending is not None and sending.suspended_by is not None:
                self._abandon(sending.suspended_by)
            else:
                self._do("resume", lambda: engine.resume(channel=channel))
        elif message_id is None:
            # The incident is about the clock; operators accept it once it is right.
            if machine.world.offset == 0:
                machine.accept_clock()
        elif self._do("resume", lambda: engine.resume(message_id=message_id)) is Ending.RAISED:
            # Too late to send again under its id (C37): what is left is to give it up. What the
            # application refuses cannot be sent again either.
            self._abandon(message_id)
        machine.ledger.happened["incident met"] += 1

    def _abandon(self, message_id: str) -> None:
        machine, engine = self._machine, self._machine.engine
        machine.ledger.abandoned.add((machine.name, message_id))
        self._do("abandon", lambda: engine.abandon(message_id, f"operator of {machine.name}"))

    def _do(self, what: str, verb: Callable[[], object]) -> Ending:
        return self._machine.turn(f"operate {what}", verb, (OncewireError,))


# --- agreements ---------------------------------------------------------------------------------


def change(world: Surroundings, event: Change) -> None:
    """The sides of a change take their new paper and start again with it."""
    world.ledger.happened[f"agreement {event.turn.value}"] += 1
    for side in event.sides:
        machine = world.machine(side)
        paper = machine.papers.get(event.cpa_id)
        if paper is None:
            continue
        if event.turn is Turn.REPLACED:
            amended = paper.amended(event.said)
            # Two changes may contradict each other; then the second is not made.
            paper = amended if is_readable(amended) else paper
        elif event.turn is Turn.ENDED:
            paper = replace(paper, end=world.clock.now)
        elif event.turn is Turn.LISTED:
            paper = replace(paper, listed=True)
        elif event.turn is Turn.UNADDRESSED:
            paper = replace(paper, unaddressed=True)
        machine.papers[event.cpa_id] = None if event.turn is Turn.REMOVED else paper
        machine.restart()


def mend(world: Surroundings, cpa_id: str, sides: tuple[str, ...]) -> None:
    """Put the first papers back."""
    for side in sides:
        machine = world.machine(side)
        first = {paper.cpa_id: paper for paper in papers_of(world.plan.setting, side)}
        if machine.papers.get(cpa_id) != first[cpa_id]:
            machine.papers[cpa_id] = first[cpa_id]
            machine.restart()


def mend_all(world: Surroundings) -> None:
    """Put the first papers back where the two sides of an agreement differ, where both have come to
    contradict themselves, one after the other, or where a hub has none."""
    for cpa_id in sorted(
        {cpa_id for each_machine in world.machines for cpa_id in each_machine.papers}
    ):
        sides = [each_machine for each_machine in world.machines if cpa_id in each_machine.papers]
        papers = [each_machine.papers[cpa_id] for each_machine in sides]
        hub = any(each_machine.name in world.plan.setting.way for each_machine in sides)
        if (
            len({_content(each_paper) for each_paper in papers}) > 1
            or (hub and not all(map(is_usable, papers)))
            or any(paper is not None and contradiction(paper.agreement) for paper in papers)
        ):
            mend(world, cpa_id, tuple(each_machine.name for each_machine in sides))
    for machine in world.machines:
        for cpa_id, paper in list(machine.papers.items()):
            if paper is not None and paper.via is not None:
                _mend_first_hop(world, machine, paper, cpa_id)


def _mend_first_hop(world: Surroundings, machine: Machine, paper: Paper, cpa_id: str) -> None:
    """Numbers that count per hop are agreed on between an end and its hub, whatever the two ends
    have changed between themselves; where they differ no message can pass, and all is as it was."""
    hub = world.machine(paper.via or "")
    hop_id = "-".join(sorted((hub.name, machine.name)))
    beside = hub.papers.get(hop_id)
    if beside is None or _numbering(paper) == _numbering(beside):
        return
    mend(world, hop_id, (hub.name,))
    mend(
        world,
        cpa_id,
        tuple(
            each_machine.name for each_machine in world.machines if cpa_id in each_machine.papers
        ),
    )


def _numbering(paper: Paper) -> object:
    terms = paper.agreement.sending.terms
    per_hop = terms.numbered and terms.scope is not Scope.CONVERSATION
    return (terms.scope, terms.numbers) if per_hop else None


def is_usable(paper: Paper | None) -> bool:
    """Whether messages can still be sent under a paper."""
    return paper is not None and not (paper.end or paper.listed or paper.unaddressed)


def _content(paper: Paper | None) -> object:
    """What the two sides of an agreement have to have in common."""
    if paper is None:
        return None
    return tuple(sorted(map(repr, paper.said))), paper.end, paper.listed, paper.unaddressed


# --- deeds and tales ----------------------------------------------------------------------------


def meddle(world: Surroundings, event: Meddling, order: Order) -> None:
    """Do what the event says; the handler may refuse it."""
    machine = world.machine(order.sender)
    engine = machine.engine
    world.ledger.happened[f"operator {event.deed.value}"] += 1
    if event.deed is Deed.ABANDON:
        world.ledger.abandoned.add((machine.name, order.message_id))
    if event.deed is Deed.REUSE:
        _reuse(machine, order)
        return
    with machine.store.reader() as reader:
        stored = reader.outgoing(order.message_id)
    channel = None if stored is None else stored.outgoing.channel
    verbs = {
        Deed.ABANDON: lambda: engine.abandon(order.message_id),
        Deed.RESEND: lambda: engine.resume(message_id=order.message_id),
        Deed.ASK: lambda: engine.ask_status(order.message_id),
    }
    if channel is not None:
        key = channel
        verbs[Deed.PAUSE] = lambda: engine.pause(key, "the operator wants it so")
        verbs[Deed.RESTART] = lambda: engine.restart(key)
    if event.deed in verbs:
        machine.turn(f"operate {event.deed.value}", verbs[event.deed], (OncewireError,))


def _reuse(machine: Machine, order: Order) -> None:
    """Another document of the same length under a known id must not be accepted."""
    with machine.store.reader() as reader:
        known = reader.outgoing(order.message_id) is not None
    if not known or order.size == 0:
        return
    other = document_of(order).swapcase()
    ending = machine.turn(
        "submit", lambda: machine.engine.submit(submission_of(order, other)), (OncewireError,)
    )
    if ending is Ending.DONE:
        sentence = "Another document under its id was accepted, and will never be sent."
        machine.ledger.broke("thrown away", sentence, machine.name, order.message_id)


def claim(world: Surroundings, event: Claim, order: Order) -> None:
    """A partner tells the sender of an order something about it."""
    speaker = order.receiver
    code, severity = "TransientError", Severity.WARNING
    if event.tale is Tale.SLANDER:
        speaker = _stranger(world, order)
        code, severity = "DeliveryFailure", Severity.ERROR
    listener = world.machine(order.sender)
    agreement = _agreement_with(world.machine(speaker), order.sender) if speaker else None
    if agreement is None or not listener.up:
        return
    seconds = event.seconds if event.tale is Tale.PAUSE else None
    # As if the speaker had just refused the order.
    about = PartialHeader(
        dialect=agreement.form.dialect,
        kind=MessageKind.NORMAL,
        from_party=agreement.partner.party,
        to_party=agreement.own.party,
        cpa_id=agreement.cpa_id,
        conversation_id="tales",
        message_id=order.message_id,
        semantics=DeliverySemantics.BEST_EFFORT,
    )
    envelope = Envelope(
        f"tale-{event.order}-{event.at}@{speaker}",
        world.clock.now,
        agreement.form,
        own=agreement.own.party,
        hop=signal_route(agreement, MessageKind.ERROR).hop(world.clock.now),
    )
    error = Error(code, severity, "", "so it is said", min_retry_secs=seconds)
    report = error_message_for(about, (error,), envelope)
    try:
        parcel = codec.write(report, agreement.form)
    except InvalidValue:
        # The wire format cannot express such a claim.
        return
    world.ledger.happened[f"tale {event.tale.value}"] += 1
    source = Source("http", can_answer=True, address=f"http://{speaker}")
    listener.door.arrive(parcel, source, lambda _: None)


def _stranger(world: Surroundings, order: Order) -> str:
    """A partner of the sender that never saw the order. Where nothing is signed, a name that the
    sender does not know may be that of a handler behind its hub."""
    setting = world.plan.setting
    if order.sender != BUYER or not setting.third:
        return ""
    other = next(end for end in setting.ends if end not in (BUYER, order.receiver))
    return other if _agreement_with(world.machine(BUYER), other) is not None else ""


def _agreement_with(machine: Machine, partner: str) -> Agreement | None:
    other = machine.name if partner == BUYER else partner
    paper = machine.papers.get(cpa_id_of(other))
    return None if paper is None or paper.signed else paper.agreement
