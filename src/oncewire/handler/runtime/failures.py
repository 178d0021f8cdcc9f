"""Failures: who is told of what failed, in the commit that makes it so.

A party's application is told by an action, and owed the notice until it took it; the From Party of
what a hub could not pass on by a message. Of a part nobody is told but by the notice of its
document. That a best-effort message was refused is told while this process runs, and not owed.
"""

from __future__ import annotations

from oncewire.errors import OncewireError, StoreDamaged, StoreProblem
from oncewire.handler.actions import Refused
from oncewire.handler.context import HandlerContext
from oncewire.handler.delivering import notices
from oncewire.handler.hub.next_hop import report_failure
from oncewire.handler.perform import open_incident
from oncewire.handler.receiving import release
from oncewire.handler.sending.outgoing_document import is_part
from oncewire.protocol.notes import Raise
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredOutgoing

PAGE = 256


def left_untold(context: HandlerContext, tx: Transaction) -> list[str]:
    """Failures that are not an application's to take, and that no commit has told of."""
    found, position = [], 0
    while page := tx.notices_owed(PAGE, position):
        position = page[-1].position
        found += [stored.outgoing.message_id for stored in page if _is_untold(context, tx, stored)]
    return found


def _is_untold(context: HandlerContext, tx: Transaction, stored: StoredOutgoing) -> bool:
    try:
        due = notices.is_due(context, tx, stored)
        return stored.relayed_from is not None or is_part(stored) or not due
    except StoreDamaged:
        # It is unknown whether it is; its application is told, which cannot be wrong.
        return False


def tell_failures(context: HandlerContext) -> None:
    """Tell the From Parties of what failed."""
    while context.state.failed:
        message_id = context.state.failed.pop()
        try:
            with context.transition() as tx:
                stored = tx.outgoing(message_id)
                if stored is not None and notices.is_refused_best_effort(stored):
                    context.state.actions.append(Refused(notices.refusal_of(stored.outgoing)))
                    continue
                if stored is None or not stored.outgoing.notice_owed:
                    # Undone, or overtaken by an acknowledgement.
                    continue
                if is_part(stored) or not notices.is_due(context, tx, stored):
                    notices.withhold(context, tx, stored)
                    continue
        except StoreDamaged as problem:
            with context.transition() as tx:
                release.call_operator(context, tx, problem, message_id)
            continue
        if stored.relayed_from is None:
            context.state.actions.append(notices.notice_of(stored.outgoing))
        else:
            _report(context, stored)


def _report(context: HandlerContext, stored: StoredOutgoing) -> None:
    """Send the From Party the notice of a hub; where that cannot be, call the operator."""
    outgoing = stored.outgoing
    try:
        with context.transition() as tx:
            notices.no_more_owed(tx, outgoing)
            report_failure(context, tx, stored)
    except StoreProblem:
        raise
    except OncewireError as problem:
        reason = f"its failure could not be reported to the From Party: {problem}"
        with context.transition() as tx:
            notices.no_more_owed(tx, outgoing)
            open_incident(context, tx, Raise(reason, outgoing.message_id))
