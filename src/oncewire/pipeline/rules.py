"""The rules that a verdict depends on, as one digest: other rules may judge otherwise.

It covers the source of every module that decides anything: the journal's own, the protocol's and
the message's values that they read, and what is computed from them here. A verdict carries it,
and what other rules judged is judged again.
"""

from __future__ import annotations

import hashlib
import inspect
from functools import cache
from importlib import import_module
from pkgutil import walk_packages

import oncewire.journal

OUTSIDE = (
    "oncewire.message.header",
    "oncewire.message.instant",
    "oncewire.protocol.detail",
    "oncewire.protocol.kinds",
    "oncewire.protocol.notes",
    "oncewire.protocol.sequence",
    "oncewire.protocol.terms",
    "oncewire.pipeline.channels",
    "oncewire.pipeline.courses",
    "oncewire.pipeline.documents",
    "oncewire.pipeline.gaps",
    "oncewire.pipeline.judging",
    "oncewire.pipeline.ledger",
    "oncewire.pipeline.look",
    "oncewire.pipeline.page",
    "oncewire.pipeline.peers",
    "oncewire.pipeline.refresh",
    "oncewire.pipeline.schemas",
    "oncewire.pipeline.partner_service",
    "oncewire.pipeline.silver",
    "oncewire.pipeline.small_refresh",
    "oncewire.pipeline.small_partner_service",
    "oncewire.pipeline.small_silver",
)
"""Modules outside `oncewire.journal` that a verdict depends on."""


def modules() -> list[str]:
    """The names of all modules that the digest covers."""
    inside = [
        module.name for module in walk_packages(oncewire.journal.__path__, "oncewire.journal.")
    ]
    return sorted((*inside, *OUTSIDE))


@cache
def rules_digest() -> str:
    """The digest of their source."""
    made = hashlib.sha256()
    for name in modules():
        made.update(f"{name}\n{inspect.getsource(import_module(name))}\n".encode())
    return made.hexdigest()[:16]
