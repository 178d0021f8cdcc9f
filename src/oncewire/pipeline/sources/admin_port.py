"""A journal at a party's admin port: a book that is read over HTTP, so without the party's store.

Each request asks for at most so many rows and has its answer whole before they are handed on. So a
task holds one batch, however long its range is, and no answer waits for a reader that is slow.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from oncewire.errors import InvalidValue, JournalProblem, NotAllowed, OncewireError, StoreGone
from oncewire.journal.row import check_version
from oncewire.pipeline.lake.columns import JOURNAL, arrow, nullable
from oncewire.pipeline.lake.tables import batch_of
from oncewire.pipeline.lake.version import BATCH_ROWS, Mark
from oncewire.pipeline.sources.journal_source import ranges_from

if TYPE_CHECKING:
    import pyarrow as pa

PATIENCE = 60.0
"""Seconds without a byte of an answer after which the port counts as gone."""

_NAMES = JOURNAL.fieldNames()
_TOKEN = "make one on its machine: `oncewire token add NAME --role read`"  # noqa: S105
_WRONG = "give the address of an admin port, of a party with this version of Oncewire"


def is_admin_port(place: str) -> bool:
    """Whether a place is written as the address of an admin port."""
    return place.startswith(("http://", "https://"))


class AdminPortBook:
    """One node's journal at its admin port; see `Book`, whose docstrings hold here.

    The token is in no path, no error and no representation of it.
    """

    def __init__(self, url: str, token: str, ca: str | None = None) -> None:
        """Ask the port whose journal it has."""
        _check_address(url)
        if not token:
            raise InvalidValue(f"there is no token for {url}", remedy=_TOKEN)
        if not token.isascii() or not token.isprintable():
            raise InvalidValue(
                "the token cannot be one", remedy="give what `oncewire token add` showed"
            )
        self.path, self._token, self._ca = url, token, ca
        self.unreadable: dict[int, str] = {}
        said = self._span()
        self.node = str(said["node"])
        check_version(said["journal_version"])

    @property
    def options(self) -> dict[str, str]:
        """See `Book`: Spark shows neither `url` nor `token`."""
        said = {"url": self.path, "token": self._token}
        return said if self._ca is None else {**said, "ca": self._ca}

    def read_at(self, now: int) -> int:
        return now

    def bounds(self) -> tuple[int, int]:
        said = self._span()
        return said["first"], said["last"]

    def next_seq(self, start: int) -> int | None:
        return next((int(row["seq"]) for row in self._rows(start, 1)), None)

    def mark(self, seq: int) -> Mark | None:
        found = (row for row in self._rows(seq - 1, 1) if row["seq"] == seq)
        return next((Mark(seq, row.get("at", 0), row.get("boot", "")) for row in found), None)

    def head(self, seq: int) -> str | None:
        head: str | None = self._span(through=seq)["head"]
        return head

    def chained_from(self) -> int:
        """See `Book`: of a journal that was trimmed, of the rows that are left."""
        return int(self._span()["chained_from"])

    def splits(self, start: int, end: int, rows: int) -> list[tuple[int, int]]:
        return ranges_from(self.bounds()[0], start, end, rows)

    def count(self, start: int, end: int) -> int:
        """See `Book`: the port counts them."""
        return int(self._span(start, end)["rows"])

    def batches(self, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Book`: one request for each batch."""
        schema = arrow(nullable(JOURNAL))
        while start < end:
            asked = min(BATCH_ROWS, end - start)
            found = self._rows(start, asked)
            # Where rows were trimmed, there may be some behind the range.
            values = [[row.get(name) for name in _NAMES] for row in found if row["seq"] <= end]
            if values:
                batch = batch_of(list(zip(*values, strict=True)), schema)
                yield batch.select(list(columns))
            if len(found) < asked:
                return
            start = found[-1]["seq"]

    # --- requests ---

    def _span(self, after: int = 0, through: int = 0) -> dict[str, Any]:
        """See `GET /journal/span`."""
        lines = self._ask("/journal/span", after=max(0, after), through=through)
        said = lines[0].get("result") if lines else None
        if not isinstance(said, dict) or not {"node", "first", "chained_from"} <= said.keys():
            raise JournalProblem(f"{self.path} serves no journal", remedy=_WRONG)
        return said

    def _rows(self, after: int, limit: int) -> list[dict[str, Any]]:
        """At most `limit` rows behind a position, in order."""
        rows, last = self._ask("/journal", after=max(0, after), limit=limit), after
        for row in rows:
            seq = row.get("seq")
            if type(seq) is not int or seq <= last:
                raise JournalProblem(
                    f"{self.path} gives row {seq!r} where one behind {last} is due", remedy=_WRONG
                )
            last = seq
        return rows

    def _ask(self, path: str, **query: int) -> list[dict[str, Any]]:
        """The lines of an answer."""
        said = {"Authorization": f"Bearer {self._token}"}
        try:
            with closing(self._connection()) as connection:
                connection.request("GET", f"{path}?{urlencode(query)}", headers=said)
                response = connection.getresponse()
                status, content = response.status, response.read()
        except ssl.SSLCertVerificationError as error:
            raise StoreGone(
                f"the certificate of {self.path} is not trusted here: {error.verify_message}",
                remedy="name the certificate that vouches for it: option ca",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise StoreGone(
                f"{self.path} does not answer, or not to the end: {error!r}",
                remedy="see that `oncewire serve` runs there, and what its log says",
            ) from None
        try:
            lines = [json.loads(line) for line in content.splitlines()]
        except ValueError:
            lines = [None]
        if not all(isinstance(line, dict) for line in lines):
            raise JournalProblem(f"{self.path} answers {status}, and no rows", remedy=_WRONG)
        if status != http.HTTPStatus.OK:
            raise _refusal(self.path, status, lines[0] if lines else {})
        return lines

    def _connection(self) -> http.client.HTTPConnection:
        """For one request; over TLS the port must show a certificate that is trusted."""
        parts = urlsplit(self.path)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port, timeout=PATIENCE)
        try:
            trusted = ssl.create_default_context(cafile=self._ca)
        except OSError as error:
            why = error.strerror or getattr(error, "reason", "") or "it holds no certificate"
            raise InvalidValue(
                f"ca: {self._ca} cannot be used: {why}",
                remedy="name a file of certificates (PEM) that every machine of the cluster has",
            ) from None
        return http.client.HTTPSConnection(host, parts.port, timeout=PATIENCE, context=trusted)


def _check_address(url: str) -> None:
    """Refuse what is more than scheme, host and port."""
    try:
        said = urlsplit(url)
        good = is_admin_port(url) and bool(said.hostname) and said.port != 0
    except ValueError:
        good = False
    if not good or said.path not in ("", "/") or said.query or said.fragment or "@" in said.netloc:
        # It may hold a password.
        raise InvalidValue(
            "the url is not the address of an admin port",
            remedy="give scheme, host and port alone, such as https://acme.example:8610",
        )


def _refusal(url: str, status: int, said: dict[str, Any]) -> OncewireError:
    """What an answer that is none means, and what to do next."""
    detail, remedy = str(said.get("detail", "nothing more")), str(said.get("next") or _WRONG)
    if status == http.HTTPStatus.UNAUTHORIZED:
        return NotAllowed(f"{url} does not know the token", remedy=_TOKEN)
    if status == http.HTTPStatus.FORBIDDEN:
        return NotAllowed(f"{url} refuses the token: {detail}", remedy=_TOKEN)
    if status in (408, 429) or status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
        return StoreGone(f"{url} answers {status}: {detail}", remedy="try again; see its log")
    return JournalProblem(f"{url} answers {status}: {detail}", remedy=remedy)
