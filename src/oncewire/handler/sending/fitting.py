"""Fitting: the terms a submission runs under, and whether its documents fit what was agreed.

It is asked before a document is read, where its size is known by then, and again when it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oncewire.agreement.resolve import binding_to_send
from oncewire.agreement.rules import sends_synchronously
from oncewire.errors import InvalidValue
from oncewire.handler.documents.splitting import check_splittable, needs_parts
from oncewire.handler.node import BODY_MAX
from oncewire.handler.sealing.confide import check_closable
from oncewire.message.header import SyncReplyMode
from oncewire.wire.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from oncewire.agreement.agreement import ActionBinding, Agreement
    from oncewire.handler.sending.submit import Submission
    from oncewire.protocol.terms import Terms

PAYLOAD_BYTES_MAX = BODY_MAX - 2 * DEFAULT_LIMITS.header_bytes
"""Bytes of all payloads of a message: with what is around them a body that a handler takes."""


def terms_to_send(submission: Submission, binding: ActionBinding) -> Terms:
    """The terms of its action, less what the submission goes without."""
    terms, opens = binding.terms, submission.ref_to_message_id is None
    if submission.best_effort and terms.reliable:
        terms = replace(terms, reliable=False, numbered=False, ordered=False)
    if terms.synchronous and not sends_synchronously(binding, opens=opens):
        # Nobody waits on its connection, so it is repeated like any other (SYNC-18).
        terms = replace(terms, sync_mode=SyncReplyMode.NONE)
    return terms


def check_sizes_known(submission: Submission, agreement: Agreement) -> None:
    """Refuse a submission by what is known of its documents before anybody has read them."""
    binding = binding_to_send(agreement, submission.service, submission.action)
    check_sizes(submission, agreement, binding, terms_to_send(submission, binding))


def check_sizes(
    submission: Submission, agreement: Agreement, binding: ActionBinding, terms: Terms
) -> None:
    """Refuse what the partner would refuse: more than was agreed, or than a handler takes."""
    payloads = submission.payloads
    if terms.max_size is not None and needs_parts(payloads, terms):
        check_splittable(payloads, terms, agreement.form, binding.security)
        return
    together = sum(payload.size for payload in payloads)
    if together > PAYLOAD_BYTES_MAX:
        raise InvalidValue(
            f"the payloads have {together:,} bytes together, more than {PAYLOAD_BYTES_MAX:,}",
            remedy="send them in several messages, or agree on parts (payload.max_size)",
        )
    check_closable(payloads, binding.security)
