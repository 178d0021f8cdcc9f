"""Glance: which messages a body seems to name, before anybody reads it.

It is a guess, for whoever wants to have things at hand when the body is read. Nothing is believed
of it, and where it is wrong nothing but time is lost.
"""

from __future__ import annotations

import re

FAR = 16 * 1024
"""How many bytes are looked at: the header comes first."""

NAMES_MAX = 8
"""As many ids as anything but a flood has at its beginning."""

# Every dialect's elements are called so, for the message's own id and for the one it refers to.
_NAMED = re.compile(rb"MessageId>\s*([^<>&\s]{1,200})\s*<")


def named_in(body: bytes) -> tuple[str, ...]:
    """MessageIds that the beginning of a body seems to have, each once."""
    found = []
    for match in _NAMED.finditer(body, 0, FAR):
        found.append(match[1].decode("utf-8", "replace"))
        if len(found) == NAMES_MAX:
            break
    return tuple(dict.fromkeys(found))
