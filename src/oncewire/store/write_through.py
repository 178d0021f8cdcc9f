"""Write-through: a large file goes to the disk while it is written, not all at its end.

A gigabyte that is brought there by one fsync holds up every commit beside it for a tenth of a
second and more; in pieces nobody feels it. A piece goes there while the next one is written.
"""

from __future__ import annotations

import os
from typing import BinaryIO

from oncewire.store.behind import Behind

LOOSE_MAX = 8 * 1024 * 1024
"""Bytes that may be written before they are on their way to the disk."""

# Not every system has the call that leaves out times and sizes.
_sync = getattr(os, "fdatasync", os.fsync)


class WriteThrough:
    """What was written of one file since it was last brought to the disk. Whoever closes the file
    settles first: a handle that is closed may be another file's the next moment."""

    def __init__(self, file: BinaryIO, disk: str) -> None:
        """`disk` is whose file it is: where one disk hangs, the files of another do not wait."""
        self._file = file
        self._loose = 0
        self._behind = Behind(f"{disk} write-through")

    def wrote(self, size: int) -> None:
        """So many bytes more were written. Raises OSError where the disk does, if not for these
        bytes then for those before them."""
        self._loose += size
        if self._loose >= LOOSE_MAX:
            self._file.flush()
            self._behind.do(_sync, self._file.fileno())
            self._loose = 0

    def settle(self) -> None:
        """Nothing is on its way any more. Raises OSError where the disk does."""
        self._behind.settle()
