"""Write-through: a large file goes to the disk while it is written, not all at its end.

A gigabyte that is brought there by one fsync holds up every commit beside it for a tenth of a
second and more; in pieces nobody feels it.
"""

from __future__ import annotations

import os
from typing import BinaryIO

LOOSE_MAX = 8 * 1024 * 1024
"""Bytes that may be written and not yet be on the disk."""

# Not every system has the call that leaves out times and sizes.
_sync = getattr(os, "fdatasync", os.fsync)


class WriteThrough:
    """What was written of one file since it was last brought to the disk."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._loose = 0

    def wrote(self, size: int) -> None:
        """So many bytes more were written. Raises OSError where the disk does."""
        self._loose += size
        if self._loose >= LOOSE_MAX:
            self._file.flush()
            _sync(self._file.fileno())
            self._loose = 0
