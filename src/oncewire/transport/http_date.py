"""The Date of an answer (RFC 9110 6.6.1): all that the clock which people set is asked for here."""

from __future__ import annotations

import time
from email.utils import formatdate
from functools import lru_cache


def date_now() -> str:
    """As a header has it."""
    return _date(int(time.time()))


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)
