"""Values: what the keys of an agreement may say in a wild world.

Every term of `protocol.terms` is reached through the keys here.
"""

from __future__ import annotations

import json
from dataclasses import fields

from oncewire.protocol.terms import Terms

VALUES: dict[str, tuple[object, ...]] = {
    "delivery.reliable": (False,),
    "delivery.method": ("Transport",),
    "delivery.timeout": ("PT5S", "PT12S"),
    "delivery.retries": (0, 1, 3, 6),
    "delivery.retry_interval": ("PT5S", "PT9S"),
    "delivery.retries_counted": ("per_transport", "total"),
    "delivery.persist_duration": ("PT3M", "PT10M", "PT1H"),
    "delivery.time_to_live": ("PT20S", "PT2M"),
    "delivery.time_accuracy": ("00:10",),
    "delivery.transports": (("smtp",), ("http", "smtp")),
    "delivery.on_exhausted": ("fail_message", "suspend_channel"),
    "delivery.header_conflict": ("a", "b", "c", "d"),
    "delivery.receipt_provided": ("Signed", "Unsigned", "None"),
    "delivery.keep": ("PT10M",),
    "ack.request": ("always", "never", "perMessage", "whenStated"),
    "ack.signature": ("always", "never"),
    "ack.actor": ("nextMSH",),
    "ack.hop": ("never", "perMessage"),
    "ack.hop_request": ("Unsigned", "Signed"),
    "ack.bundling": ("standalone", "piggyback"),
    "ack.wait": ("PT2S",),
    "duplicate.elimination": ("always", "never", "perMessage", "whenStated"),
    "duplicate.answer": ("original", "most_recent", "fresh_ack"),
    "duplicate.no_response": ("ignore",),
    "best_effort.filter": (True, False),
    "sequence.numbered": (True, False),
    "sequence.ordered": (True, False),
    "sequence.range": ((0, 7), (1, 6), (0, 99), "rm-0.78"),
    "sequence.scope": ("triple", "pair", "conversation"),
    "sequence.on_gap": ("reject", "buffer"),
    "sequence.reset": ("silent", "first-window", "first-message"),
    "flow.mode": ("stop-and-wait", "window", "unrestricted"),
    "flow.window": (1, 2, 3, 8),
    "sync.mode": ("mshSignalsOnly", "responseOnly", "signalsAndResponse"),
    "sync.request": ("always", "whenStated"),
    "sync.replies": (True, False),
    "sync.retries": ("none", "same_message"),
    "sync.timeout": ("PT4S", "PT20S"),
    "sync.bundle": ("concatenated",),
    "hop.mode": ("store_and_forward", "transient_until_forwarded", "transparent", "by_request"),
    "payload.max_size": (100_000, 700, 300),
    "payload.compress": ("gzip",),
}
"""Beyond a profile's own; what a profile says is left alone more often than not."""

RARE = frozenset(
    {"delivery.reliable", "delivery.method", "delivery.receipt_provided", "ack.request"}
)
"""Values that leave little of the protocol to be tried."""

SIGNED = frozenset({("ack.signature", "always"), ("ack.hop_request", "Signed")})
"""Values that need keys: signatures are slow, and most worlds have none."""

_FIELDS = tuple(field.name for field in fields(Terms))

Held = frozenset[str]
"""The values that the terms of one agreement hold, one for each term."""


def held_by(terms: Terms) -> Held:
    """Every term with its value, as one word each."""
    plain = terms.as_dict()
    return frozenset(f"{name}={json.dumps(plain[name])}" for name in _FIELDS)
