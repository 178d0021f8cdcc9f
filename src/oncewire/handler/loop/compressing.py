"""Compressing: a document is made smaller before the turn that takes it, while others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from oncewire.agreement.resolve import binding_to_send
from oncewire.handler.documents.splitting import (
    check_splittable,
    digests_of,
    needs_compressing,
    put_into_spool,
)
from oncewire.handler.node import Node
from oncewire.handler.route import route_under
from oncewire.handler.sending.submit import Submission, agreement_called


@asynccontextmanager
async def made_smaller(node: Node, submission: Submission) -> AsyncIterator[None]:
    """A submission has its compressed form at hand for as long as it takes to store it."""
    payloads = submission.payloads
    agreement = agreement_called(node, submission.cpa_id)
    binding = binding_to_send(agreement, submission.service, submission.action)
    if not payloads or not needs_compressing(payloads, binding.terms):
        yield
        return
    check_splittable(payloads, binding.terms, agreement.form, binding.security)
    key, route = digests_of(payloads), route_under(agreement, binding)
    node.compressed[key] = await asyncio.to_thread(put_into_spool, node, payloads, route)
    try:
        yield
    finally:
        # What the turn did not take, because it was refused or known, is nobody's.
        for content in node.compressed.pop(key, ()):
            node.store.spool.give_back(content.name)
