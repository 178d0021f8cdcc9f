"""Reports: what other handlers say of our messages, believed or ignored: errors and notices."""

from __future__ import annotations

import logging

from msgspec import Struct
from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement, sender_of
from oncewire.handler.actions import Warned
from oncewire.handler.context import HandlerContext, is_told
from oncewire.handler.facts import MESSAGE, word_for
from oncewire.handler.perform import journal_received, load_channel, perform
from oncewire.handler.route import agreement_of_hop, is_receiver, peer_label
from oncewire.journal.identity import identity_digest
from oncewire.message.envelope import Error, ErrorClass, Message, MessageKind, Severity, is_trial
from oncewire.protocol import notes
from oncewire.protocol.notes import TEXT_MAX, Ignored, Note, Refused
from oncewire.protocol.sender import error_arrived, warning_arrived
from oncewire.protocol.states import Proof
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredIncoming, StoredOutgoing

# Ignored: what was said about a message, and changed nothing, leaves a trace.
#
# A signal may prove nothing, come from a party that has no say, or say too little. Its sender may
# be waiting all the same, and operators find the reason here: a log line, and a row of
# the message it is about, which `why` shows. Anybody can send such signals, so rows and lines are
# written for the first of them, the second, the fourth and so on: each says how many there were.


logger = logging.getLogger("oncewire.handler")


class Claim(Struct, frozen=True):
    """What was claimed, in a word, and why it does not count."""

    kind: str
    code: str
    problem: str
    # Who says so, as far as anybody can tell.
    peer: str | None = None
    # The signal's own MessageId, if it has one.
    signal_id: str | None = None
    transport: str | None = None

    @classmethod
    def of(cls, message: Message, agreement: Agreement, code: str, problem: str) -> Claim:
        """The claim of the agreement's partner, who proved to be the one who makes it."""
        header = message.header
        peer = str(sender_of(agreement, header.from_party))
        return cls(word_for(message.kind), code, problem, peer, header.message_id)


def ignore(context: HandlerContext, tx: Transaction, claim: Claim, about: str | None) -> None:
    """Take note of a claim about a message of ours, or about one that is unknown here."""
    known = about is not None and tx.outgoing(about) is not None
    # Names that a stranger may choose count for nothing here: he could choose many.
    name = f"about {about}" if known else f"{claim.kind} {claim.code}"
    count = context.state.ignored.count(name, context.now())
    if not is_told(count):
        return
    said = {"claim": claim.kind, "code": claim.code, "problem": claim.problem[:TEXT_MAX]}
    logger.warning(
        "a signal was ignored",
        extra={**said, "message_id": about, "peer": claim.peer, "count": count},
    )
    if known:
        what = Ignored(claim.kind, claim.code, claim.problem, count)
        note = Note(what, about, claim.signal_id, transport=claim.transport)
    else:
        signal = None if claim.kind == MESSAGE else claim.kind
        refused = Refused(claim.code, problem=claim.problem, signal=signal)
        note = Note(refused, claim.signal_id, about, transport=claim.transport)
    context.write(tx, [note], peer=claim.peer)


def ignore_unbacked(
    context: HandlerContext,
    tx: Transaction,
    agreement: Agreement,
    written: Message,
    believed: Message,
) -> None:
    """Take note of acknowledgements that a message carries and its signature does not cover."""
    backed = {ack.ref_to_message_id for ack in believed.acknowledgments}
    for ack in written.acknowledgments:
        if ack.ref_to_message_id not in backed:
            problem = "it lies outside the signature of the message that carries it"
            claim = Claim.of(written, agreement, "SecurityFailure", problem)
            ignore(context, tx, replace(claim, kind="acknowledgement"), ack.ref_to_message_id)


def ignore_stray(
    context: HandlerContext,
    tx: Transaction,
    message: Message,
    agreement: Agreement,
    reference: str,
    stored: StoredOutgoing | None,
) -> None:
    """Take note of a signal about a message that was not sent to its partner."""
    if message.kind is MessageKind.NORMAL:
        return
    problem = "no such message was sent" if stored is None else "it was not sent to this partner"
    ignore(context, tx, Claim.of(message, agreement, "ValueNotRecognized", problem), reference)


def whose_word(message: Message, stored: StoredOutgoing, agreement: Agreement) -> Proof:
    """Whether the To Party's own handler speaks, or a hub on the way: the Acknowledgment names
    who gave it, or else the header does (ACK-18)."""
    party, to_party = message.header.from_party, stored.facts.to_party
    for ack in message.acknowledgments:
        if ack.ref_to_message_id == stored.outgoing.message_id and ack.from_party is not None:
            party = ack.from_party
    if to_party in {str(party_id) for party_id in party.ids}:
        return Proof.TO_PARTY
    partner = agreement.partner
    ours = to_party in {str(party_id) for party_id in partner.party.ids}
    named = ours and (partner.is_named_by(party) or partner.handles(party))
    return Proof.TO_PARTY if named else Proof.HOP


def acknowledged(message: Message) -> list[str]:
    """The messages that this one says have arrived."""
    if message.kind is MessageKind.ERROR or message.failed:
        # A report is no acknowledgement, not even one that only warns.
        return []
    references = [ack.ref_to_message_id for ack in message.acknowledgments]
    if message.header.ref_to_message_id is not None:
        references.append(message.header.ref_to_message_id)
    return list(dict.fromkeys(references))


# Reports and trials: a report of the failure of a message of ours, and what the handler itself
# takes of messages that are stored like any other.


def receive_errors(
    context: HandlerContext, tx: Transaction, message: Message, agreement: Agreement
) -> None:
    """Feed every error of a report to the message it names (ERR-1).

    The To Party's handler may refuse, and any handler on the way may report that it could not
    deliver (ERR-5); of anybody else's word only the journal takes note.
    """
    reference = message.header.ref_to_message_id
    if message.error_list is None or reference is None:
        return
    stored = tx.outgoing(reference)
    if stored is None or not is_receiver(agreement, stored):
        ignore_stray(context, tx, message, agreement, reference, stored)
        return
    if stored.outgoing.resumes and _is_repeat(context, message, stored, agreement):
        repeated = "it repeats a report that was heard before"
        ignore(context, tx, Claim.of(message, agreement, "DeliveryFailure", repeated), reference)
        return
    for error in _told_together(message.error_list.errors):
        stored = tx.outgoing(reference)
        if stored is None:
            return
        terms = context.terms_of(tx, stored.outgoing.terms_id)
        channel = load_channel(tx, stored.outgoing)
        error_id = message.header.message_id
        if reference in acknowledged(message):
            # What acknowledges a message does not take that back in the same breath.
            step = warning_arrived(stored.outgoing, channel, error=error, error_id=error_id)
        else:
            step = error_arrived(
                stored.outgoing,
                channel,
                terms,
                context.now(),
                error=error,
                error_id=error_id,
                by=peer_label(agreement),
            )
        if any(
            isinstance(effect, Note) and isinstance(effect.what, notes.Warned)
            for effect in step.effects
        ):
            context.state.actions.append(Warned(reference, error.code, error.description))
        perform(context, tx, stored, channel, step, terms)


def _is_repeat(
    context: HandlerContext, message: Message, stored: StoredOutgoing, agreement: Agreement
) -> bool:
    """Whether a hub's report has failed the message before. Since then the operator may have sent
    it again, of which that report says nothing; the To Party answers each copy with its first word,
    and means the copy."""
    if whose_word(message, stored, agreement) is Proof.TO_PARTY:
        return False
    with context.store.reader() as reader:
        rows = reader.journal_of(stored.outgoing.message_id)
    heard = message.header.message_id
    return any(row.kind == notes.Kind.REJECTED and row.ref_to == heard for row in rows)


def _told_together(errors: tuple[Error, ...]) -> tuple[Error, ...]:
    """The errors with those that end the message in one: it ends once, for all its reasons."""
    fatal = [
        error
        for error in errors
        if error.error_class is ErrorClass.MESSAGING and error.severity is Severity.ERROR
    ]
    if len(fatal) < 2:
        return errors
    # A DeliveryFailure can take an acknowledgement back, so it must keep its name.
    lead = next((error for error in fatal if error.code == "DeliveryFailure"), fatal[0])
    others = "; ".join(f"{error.code}: {error.description}" for error in fatal if error is not lead)
    whole = replace(lead, description=f"{lead.description}; {others}"[:1024])
    return (*(error for error in errors if error not in fatal), whole)


def is_for_us(message_id: str, kind: MessageKind) -> bool:
    """Whether a stored message is for the handler: no application is given it."""
    return kind is MessageKind.ERROR or is_trial(message_id)


def take_it(
    context: HandlerContext, tx: Transaction, message: Message, stored: StoredIncoming
) -> None:
    """Take a message that is for the handler itself, a failure notice or a trial, at once."""
    if message.kind is MessageKind.ERROR:
        # A reliable failure notice (ERR-5..9). It is read under the agreement that it was accepted
        # under: where that is gone, another that leads to the same hub says nothing of whom the
        # message was sent to.
        agreement = context.agreement_kept(tx, stored.agreement_id)
        agreement = agreement or agreement_of_hop(context, tx, stored)
        if agreement is not None:
            receive_errors(context, tx, message, agreement)
    now = context.now()
    done = stored.incoming.handed_over(now).confirmed(now)
    tx.save_incoming(done)
    digest = identity_digest(message)
    for what in (notes.HandedOver(), notes.Confirmed()):
        journal_received(context, tx, stored, what, done, digest)
