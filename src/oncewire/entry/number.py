"""Numbers of things, as people say them."""

from __future__ import annotations


def number_of(count: int, noun: str, verb: str = "") -> str:
    """`1 message`, `2,000 messages`; with a verb that agrees: `1 message is`, `2 messages are`."""
    said = f"{count:,} {noun}" + ("" if count == 1 else "s")
    if not verb:
        return said
    return f"{said} {verb if count == 1 else _PLURAL[verb]}"


def size_of(count: int) -> str:
    """Bytes in the unit that leaves a figure to read: `229 kB`, `8.7 MB`, `80.1 GB`."""
    if count < 1_000_000:
        return f"{-(-count // 1000)} kB"
    return f"{count / 1e6:.1f} MB" if count < 1_000_000_000 else f"{count / 1e9:.1f} GB"


_PLURAL = {"is": "are", "was": "were", "waits": "wait"}
