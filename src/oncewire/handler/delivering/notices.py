"""Notices: who is told that a message failed, and when that counts as told.

A hub tells the From Party with a message, which is stored in the commit of the failure and owed
until it is acknowledged or, where errors are not acknowledged, until its transport took it.
A party tells its own application, and owes it the notice until the application took it: only
that is journaled as `notified`. After a crash it is told again, under the same id.

Of a notice, an error or an acknowledgement that failed only the operator is told (C33).
"""

from __future__ import annotations

from msgspec.structs import replace

from oncewire.errors import UnknownMessage
from oncewire.handler.actions import Notice
from oncewire.handler.context import HandlerContext
from oncewire.handler.perform import open_incident, resolve_incidents
from oncewire.message.envelope import MessageKind, Severity, is_trial
from oncewire.protocol.hops import owes_failure_notice
from oncewire.protocol.notes import Note, Notified, Raise, Resolve
from oncewire.protocol.states import Outcome, Outgoing, OutgoingState
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredOutgoing

_MARK = "#"
_REFUSED = "the application does not take the notice of its failure"


def notice_of(outgoing: Outgoing) -> Notice:
    """What the application is told: Error if the message never left, else Warning (ERR-9)."""
    certain = outgoing.state is OutgoingState.NOT_DELIVERED
    severity = Severity.ERROR if certain else Severity.WARNING
    notice_id = f"{outgoing.message_id}{_MARK}{outgoing.failures}"
    outcome = Outcome(outgoing.state.value)
    return Notice(outgoing.message_id, severity, outcome, outgoing.reason, notice_id)


def is_refused_best_effort(stored: StoredOutgoing) -> bool:
    """Whether it is a message of our own application, sent with best effort and refused."""
    outgoing = stored.outgoing
    ours = stored.relayed_from is None and not is_trial(outgoing.message_id)
    return ours and outgoing.state is OutgoingState.SENT and bool(outgoing.reason)


def refusal_of(outgoing: Outgoing) -> Notice:
    """What the application hears of a refused best-effort message. It is not owed (C34)."""
    notice_id = f"{outgoing.message_id}{_MARK}refused"
    return Notice(outgoing.message_id, Severity.ERROR, Outcome.SENT, outgoing.reason, notice_id)


def is_due(context: HandlerContext, tx: Transaction, stored: StoredOutgoing) -> bool:
    """Whether the failure of a message is told to its From Party at all (C33, C34)."""
    terms = context.terms_of(tx, stored.outgoing.terms_id)
    if is_trial(stored.outgoing.message_id):
        # The caller of the trial waits for what comes of it; no application does.
        return False
    return owes_failure_notice(stored.facts.kind, reliable=terms.reliable)


def withhold(context: HandlerContext, tx: Transaction, stored: StoredOutgoing) -> None:
    """Owe no notice; the failure of a signal is the operator's business."""
    outgoing = stored.outgoing
    no_more_owed(tx, outgoing)
    if stored.facts.kind is not MessageKind.NORMAL:
        reason = f"a notice about {stored.facts.ref_to} could not be delivered: {outgoing.reason}"
        open_incident(context, tx, Raise(reason, outgoing.message_id))
    elif is_trial(outgoing.message_id):
        write_notified(context, tx, stored)


def no_more_owed(tx: Transaction, outgoing: Outgoing) -> None:
    """The notice of this failure is not owed any more."""
    tx.save_outgoing(replace(outgoing, notice_owed=False))


def owed(tx: Transaction, limit: int) -> list[Notice]:
    """What the application has to be told, the oldest message first."""
    found = tx.notices_owed(limit)
    return [notice_of(stored.outgoing) for stored in found if not stored.damage]


def find_owed(tx: Transaction, notice_id: str) -> StoredOutgoing | None:
    """The message whose notice of this id is still owed; None: it was taken, or the message
    has gone on since. UnknownMessage if there was never such a notice."""
    message_id, mark, number = notice_id.rpartition(_MARK)
    stored = tx.outgoing(message_id) if mark else None
    if stored is None:
        if mark and any(gone.sender is None for gone in tx.removed(message_id)):
            # While a notice is owed its message is kept.
            return None
        raise UnknownMessage(
            f"there is no notice {notice_id}", remedy="`oncewire notices` lists those that wait"
        )
    current = stored.outgoing.notice_owed and number == str(stored.outgoing.failures)
    return stored if current else None


def take(context: HandlerContext, tx: Transaction, notice_id: str) -> bool:
    """The application has taken the notice. Idempotent: False when it is not owed (any more)."""
    stored = find_owed(tx, notice_id)
    if stored is None:
        return False
    no_more_owed(tx, stored.outgoing)
    write_notified(context, tx, stored)
    if _called_about(context, stored.outgoing.message_id):
        resolve_incidents(context, tx, Resolve(stored.outgoing.message_id))
    return True


def refuse(context: HandlerContext, tx: Transaction, notice_id: str, reason: str) -> bool:
    """The application will not take a notice: call the operator, once. False when it is not
    owed any more."""
    stored = find_owed(tx, notice_id)
    if stored is None:
        return False
    message_id = stored.outgoing.message_id
    if not _called_about(context, message_id):
        open_incident(context, tx, Raise(f"{_REFUSED}: {reason[:200]}", message_id))
    return True


def is_about_a_notice(reason: str) -> bool:
    """Whether an incident's reason is that the application takes no notice of a failure."""
    return reason.startswith(_REFUSED)


def _called_about(context: HandlerContext, message_id: str) -> bool:
    with context.store.reader() as reader:
        return any(
            incident.message_id == message_id and is_about_a_notice(incident.reason)
            for incident in reader.incidents()
        )


def write_notified(
    context: HandlerContext, tx: Transaction, stored: StoredOutgoing, notice_id: str | None = None
) -> None:
    """Record that the From Party was told: its application took the notice, or a message of
    that id tells it."""
    outgoing = stored.outgoing
    severity = "Error" if outgoing.state is OutgoingState.NOT_DELIVERED else "Warning"
    context.write(
        tx,
        [Note(Notified(severity), outgoing.message_id, notice_id)],
        terms_id=outgoing.terms_id,
        peer=stored.facts.from_party,
    )
