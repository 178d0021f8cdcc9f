"""Numbers of things, as people say them."""

from __future__ import annotations


def number_of(count: int, noun: str, verb: str = "") -> str:
    """`1 message`, `2,000 messages`; with a verb that agrees: `1 message is`, `2 messages are`."""
    said = f"{count:,} {noun}" + ("" if count == 1 else "s")
    if not verb:
        return said
    return f"{said} {verb if count == 1 else _PLURAL[verb]}"


_PLURAL = {"is": "are", "was": "were", "waits": "wait"}
