"""Metrics: what Prometheus asks a running handler for, each defined once.

The table below names every metric with its meaning; the page `docs/howto/watching.md`, the
dashboard and the text that is served are held to it. Labels are the partners that agreements name,
and words of our own: nothing that a stranger says becomes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from oncewire.entry.watching.snapshot import PATIENCE, PartnerSeen, Snapshot, snapshot
from oncewire.errors import NotHere, OncewireError
from oncewire.handler.contacts import Outcome
from oncewire.message.instant import DAY, SECOND, Instant
from oncewire.transport.budget import Unserved

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

    from oncewire.handler.runtime.handler import Handler

LABEL_MAX = 200
"""Characters of a partner's name that a label shows."""

Values = Iterable[tuple[tuple[str, ...], float | None]]


class Kind(StrEnum):
    """How a metric behaves."""

    COUNTER = "counter"  # it only grows, and begins anew with each run of the handler
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: what it says, by which labels, and where that is seen."""

    name: str
    help: str
    labels: tuple[str, ...]
    # The values of its labels with its own; None: there is nothing to say.
    read: Callable[[Snapshot, dict[str, str]], Values]

    @property
    def kind(self) -> Kind:
        """How it behaves, which Prometheus wants its name to say."""
        return Kind.COUNTER if self.name.endswith("_total") else Kind.GAUGE


def _one(name: str, says: str, read: Callable[[Snapshot], float | None]) -> Metric:
    """A metric of the process."""
    return Metric(name, says, (), lambda seen, _names: [((), read(seen))])


def _each(name: str, says: str, read: Callable[[PartnerSeen, Instant], float | None]) -> Metric:
    """A metric of every partner."""

    def values(seen: Snapshot, names: dict[str, str]) -> Values:
        return [((names[partner.peer],), read(partner, seen.at)) for partner in seen.partners]

    return Metric(name, says, ("partner",), values)


def _days(ends: Instant | None, now: Instant) -> float | None:
    return None if ends is None else round((ends - now) / DAY, 4)


def _since(began: Instant | None, now: Instant) -> float:
    return max(0.0, (now - began) / SECOND) if began else 0.0


UP = Metric(
    "oncewire_up", "1 while the handler takes turns, 0 when it has failed or stands still.", (),
    lambda _seen, _names: [((), 1)],
)  # fmt: skip

METRICS = (
    UP,
    _one(
        "oncewire_loop_lag_seconds",
        "The longest that anything waited for its turn in the last minute.",
        lambda seen: seen.lag,
    ),
    _one(
        "oncewire_commit_seconds", "How long it took lately until a commit was durable.",
        lambda seen: seen.commit,
    ),
    _one(
        "oncewire_attempts_under_way", "Attempts to send that are under way now, at most 256.",
        lambda seen: seen.in_flight,
    ),
    _one(
        "oncewire_journal_rows_total", "Rows that the journal has had, removed ones too.",
        lambda seen: seen.journal,
    ),
    _one(
        "oncewire_database_bytes",
        "Size of the database, which holds messages and journal, with its log.",
        lambda seen: seen.space.database,
    ),
    _one(
        "oncewire_spool_bytes", "Size of the files of large payloads.",
        lambda seen: seen.space.spool,
    ),
    _one(
        "oncewire_disk_free_bytes", "Free bytes on the disk of the database.",
        lambda seen: seen.space.free,
    ),
    _one("oncewire_disk_bytes", "Size of the disk of the database.", lambda seen: seen.space.total),
    _one(
        "oncewire_incidents_open", "What waits for an operator's decision.",
        lambda seen: len(seen.incidents),
    ),
    _one(
        "oncewire_application_refusing", "Messages that the application is offered and refuses.",
        lambda seen: seen.refused,
    ),
    _one(
        "oncewire_clock_in_doubt", "1 while the machine's clock was set and nothing may expire.",
        lambda seen: seen.clock_in_doubt,
    ),
    _one(
        "oncewire_certificate_days_left",
        "Days until our own certificate ends; below 0 it has ended.",
        lambda seen: _days(seen.certificate_ends, seen.at),
    ),
    _one(
        "oncewire_strangers_refused_total",
        "Messages of strangers, or not as agreed, that were refused.",
        lambda seen: seen.strangers,
    ),
    Metric(
        "oncewire_unserved_total",
        "Who came and was not served, by reason: told_to_wait (429), busy (503), slow (408), "
        "handshake.",
        ("reason",),
        lambda seen, _: [((reason.value,), seen.unserved[reason]) for reason in Unserved],
    ),
    _each(
        "oncewire_partner_attempts_total", "Attempts to send to a partner that ended.",
        lambda partner, _: partner.contact.outcomes.total(),
    ),
    Metric(
        "oncewire_partner_outcomes_total",
        "How they ended: sent, refused (it certainly did not get there), unknown, later (it "
        "asked for a pause).",
        ("partner", "outcome"),
        lambda seen, names: [
            ((names[partner.peer], outcome.value), partner.contact.outcomes[outcome])
            for partner in seen.partners
            for outcome in Outcome
        ],
    ),
    _each(
        "oncewire_partner_arrivals_total", "Messages and signals of a partner that were believed.",
        lambda partner, _: partner.contact.arrivals,
    ),
    _each(
        "oncewire_partner_silent_seconds",
        "How long attempts have failed and nothing was heard of a partner; 0: it answers.",
        lambda partner, now: _since(partner.contact.silent_since, now),
    ),
    _each(
        "oncewire_partner_window_used",
        "Messages that wait for an acknowledgment, in the fullest window to a partner.",
        lambda partner, _: partner.window_used,
    ),
    _each(
        "oncewire_partner_window_size", "Messages that fit into a window to a partner.",
        lambda partner, _: partner.window_size,
    ),
    _each(
        "oncewire_partner_oldest_unsettled_seconds",
        "Age of the message to a partner that waits the longest for its outcome; 0: none "
        "waits, or 500 others wait longer.",
        lambda partner, now: _since(partner.oldest_at, now),
    ),
    _each(
        "oncewire_partner_certificate_days_left",
        "Days until the certificate of a partner ends; below 0 it has ended.",
        lambda partner, now: _days(partner.certificate_ends, now),
    ),
    _each(
        "oncewire_partner_agreement_days_left",
        "Days until the agreement with a partner ends; below 0 it has ended.",
        lambda partner, now: _days(partner.agreement_ends, now),
    ),
)  # fmt: skip
"""Every metric."""


def metrics_text(handler: Handler, patience: float = PATIENCE) -> bytes:
    """What Prometheus reads, in its text format 0.0.4; from any thread but that of the handler's
    loop. Of a handler that takes no turns it says only that."""
    try:
        seen = snapshot(handler, patience)
    except (OncewireError, TimeoutError):
        seen = None
    return written(seen)


def written(seen: Snapshot | None) -> bytes:
    """The text of what was seen; None: the handler takes no turns."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        raise NotHere(
            "what metrics need is not installed", remedy="pip install 'oncewire[admin]'"
        ) from None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Seen(seen))
    text: bytes = generate_latest(registry)
    return text


class _Seen:
    """What was seen, as a collector of the library."""

    def __init__(self, seen: Snapshot | None) -> None:
        self._seen = seen

    def describe(self) -> Iterable[Family]:
        """Nothing in advance: it is collected once."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Every metric with its values."""
        if self._seen is None:
            yield _family(UP, [((), 0)])
            return
        names = partner_labels(self._seen)
        for metric in METRICS:
            yield _family(metric, metric.read(self._seen, names))


def _family(metric: Metric, values: Values) -> Family:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name.removesuffix("_total"), metric.help, labels=metric.labels)
    for labels, value in values:
        if value is not None:
            family.add_metric(labels, value)
    return family


def partner_labels(seen: Snapshot) -> dict[str, str]:
    """What each partner is called in labels, by the label of its handler: its PartyId without what
    could not be shown, and never that of another one."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for partner in seen.partners:
        shown = "".join(
            one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in partner.peer
        )
        name, number = shown[:LABEL_MAX], 1
        while name in taken:
            number += 1
            name = f"{shown[:LABEL_MAX]} ({number})"
        taken.add(name)
        names[partner.peer] = name
    return names
