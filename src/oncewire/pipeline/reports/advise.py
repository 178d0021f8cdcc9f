"""Advise: what an agreement should say of waiting and resending, by what was measured.

Tasks make one sample of each message that a handler sent, Spark sums them up for each partner, and
plain functions make values of the sums, each with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby, pairwise
from math import ceil, log, log10
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from oncewire.journal.outcome import elapsed
from oncewire.journal.predicates.context import CONTEXT_KINDS, Context
from oncewire.journal.trace import (
    ACKNOWLEDGED,
    DUPLICATE,
    FAILED,
    FORWARDED,
    RECEIVED,
    RESUMED,
    SEND_FAILED,
    SENT,
    SUBMITTED,
    SUSPENDED,
    Trace,
    gather,
)
from oncewire.message.envelope import is_trial
from oncewire.message.instant import MINUTE, SECOND, Duration, format_duration
from oncewire.pipeline.judging.extent import tasks_for
from oncewire.pipeline.lake.columns import JOURNAL, arrow
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.tables import batches_of, rows_of, rows_of_batch
from oncewire.pipeline.reports.report import BAD, CALM, GOOD, drawing, page, section, table
from oncewire.pipeline.session import cores_of, pinned
from oncewire.pipeline.sources.ingest import Progress, quiet
from oncewire.pipeline.tasks import Batches
from oncewire.protocol.terms import FlowMode, Terms

LOST_AT_MOST = 1e-6
"""How likely it may be that every attempt of a message goes unanswered."""
MARGIN = 1.5
"""How much longer than the slowest of a hundred answers a handler waits."""
FEW = 30
"""Of fewer messages nothing is advised: a hundredth of them says nothing."""
PREMATURE = 0.75
"""Lost requests and lost acknowledgements make about half of all resends copies. Where more than
this arrive as copies, and answers take about as long as is waited, the wait is too short."""
RESENDS = 10
"""So many resends, at least, share the time for which a message is tried: fewer would let one that
is lost twice wait for long."""
WAITED: Duration = SECOND // 10
"""A message that waits less than this for its place in the window does not wait."""

KINDS = (
    SUBMITTED, FORWARDED, SENT, SEND_FAILED, ACKNOWLEDGED, FAILED, SUSPENDED, RESUMED,
    RECEIVED, DUPLICATE,
)  # fmt: skip


class Sample(NamedTuple):
    """What one message shows of the way to a partner and back."""

    node: str
    partner: str
    terms_id: str
    minute: int
    attempts: int
    answered: bool
    waited: Duration | None
    """From its submission to its first attempt."""
    since_first: Duration | None
    """From its first attempt to its acknowledgement."""
    copies: int | None
    """How many of its attempts arrived; None where its receiver's journal is not here."""
    hung: int = 0
    """Attempts whose connection ended without an answer, and that were followed by another."""
    hung_for: Duration = 0
    """How long their connections were open, added up."""
    hung_then: Duration = 0
    """How long the next attempt came after their end, added up."""


SAMPLES = StructType(
    [
        StructField(
            name,
            StringType()
            if name in ("node", "partner", "terms_id")
            else BooleanType()
            if name == "answered"
            else LongType(),
        )
        for name in Sample._fields
    ]
)


def sample_of(traces: Sequence[Trace]) -> Iterator[Sample]:
    """One sample for each handler that sent the message; what an operator had a hand in is none."""
    for trace in traces:
        sent, first = trace.kinds.get(SENT), trace.first(SUBMITTED) or trace.first(FORWARDED)
        if not sent or first is None or first.terms_id is None or sent[0].peer is None:
            continue
        if SUSPENDED in trace.kinds or (FAILED in trace.kinds and RESUMED in trace.kinds):
            continue
        answer = next(
            (row for row in trace.kinds.get(ACKNOWLEDGED, ()) if row.seq > sent[0].seq), None
        )
        before = [row for row in sent if answer is None or row.seq < answer.seq]
        copies = sum(
            len(other.kinds.get(kind, ()))
            for other in traces
            if other is not trace and not other.sends
            for kind in (RECEIVED, DUPLICATE)
        )
        ended = {row.attempt: row for row in trace.kinds.get(SEND_FAILED, ())}
        hung = [
            (elapsed(row, ended[row.attempt]), elapsed(ended[row.attempt], following))
            for row, following in pairwise(before)
            if row.attempt in ended and row.seq < ended[row.attempt].seq < following.seq
        ]
        yield Sample(
            trace.node,
            sent[0].peer,
            first.terms_id,
            first.at // MINUTE,
            len(before),
            answer is not None,
            elapsed(first, sent[0]),
            None if answer is None else elapsed(sent[0], answer),
            copies or None,
            len(hung),
            sum(open_for for open_for, _ in hung),
            sum(then for _, then in hung),
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one partner, by the journal of one handler."""

    node: str
    partner: str
    terms: Terms
    """Those of its newest message."""
    messages: int
    attempts: int
    answered: int
    first_time: int
    """How many were acknowledged after one attempt."""
    resends_seen: int
    """Resends of messages whose receiver's journal is here."""
    duplicates: int
    """How many of those messages' attempts arrived as copies."""
    round_trip: Duration | None
    """Mean, and below its 99th hundredth: of those that needed one attempt, for of others nobody
    knows which attempt was answered."""
    round_trip_p99: Duration | None
    since_first_p99: Duration | None
    """From the first attempt, whichever of them was answered."""
    since_first: Duration | None
    waited_p95: Duration
    per_minute: int
    """Messages of the busiest minute."""
    hung: int = 0
    """Attempts whose connection ended without an answer."""
    hung_for: Duration = 0
    hung_then: Duration = 0
    """Until their connections ended, and from there to the next attempt, in the mean."""
    spread: tuple[tuple[int, int], ...] = ()
    """How many were acknowledged in each tenth of a power of ten, in microseconds."""

    @property
    def loss(self) -> float:
        """How likely an attempt goes unanswered. One more of either kind is thought of, so that a
        partner of which little is known is not taken for perfect."""
        if self.too_short and self.resends_seen:
            # Most of what is unanswered is only not answered yet: what arrives tells more.
            resends = max(1, self.resends_seen)
            missing = max(0, self.resends_seen - self.duplicates)
            return min(0.99, (2 * missing + 1) / (resends + 2))
        return (self.attempts - self.answered + 1) / (self.attempts + 2)

    @property
    def too_short(self) -> bool:
        """Whether copies prove that it is resent before an answer can be there."""
        if self.resends_seen < FEW or self.duplicates < PREMATURE * self.resends_seen:
            return False
        slowest = self.round_trip_p99
        return slowest is None or 2 * slowest > self.terms.timeout


def fold(batches: Batches) -> Batches:
    """The task: samples of rows that are sorted by message, node and position."""
    found = (
        sample
        for message_id, group in groupby(rows_of(batches), attrgetter("message_id"))
        if not is_trial(message_id)
        for sample in sample_of(gather(group))
    )
    return batches_of(found, arrow(SAMPLES))


def measure(
    spark: SparkSession, journal: DataFrame, rows: int, *, partner: str = ""
) -> list[Measured]:
    """What a journal shows of each partner, from the one with most messages on."""
    few = journal.where(f.col("kind").isin(sorted(CONTEXT_KINDS))).orderBy("node", "seq").toArrow()
    context = Context.gather(
        (row for batch in few.to_batches() for row in rows_of_batch(batch)), healed=True
    )
    tasks = tasks_for(rows, cores_of(spark))
    samples = (
        journal.where(f.col("kind").isin(list(KINDS)) & f.col("message_id").isNotNull())
        .repartition(tasks, "message_id")
        .sortWithinPartitions("message_id", "node", "seq")
        .mapInArrow(fold, SAMPLES)
    )
    # The instants of an archive are not those of its handler.
    samples = samples.where(~f.col("node").isin(list(context.archives)))
    if partner:
        samples = samples.where(f.col("partner") == partner)
    samples = samples.cache()
    try:
        sums = _sums(samples).toArrow().to_pylist()
        spread: dict[tuple[str, str], list[tuple[int, int]]] = {}
        tenth = f.floor(f.log10(f.greatest(f.col("since_first"), f.lit(1))) * 10)
        answered = samples.where("since_first IS NOT NULL").withColumn("tenth", tenth)
        for each in (
            answered.groupBy("node", "partner", "tenth")
            .agg(f.count("*").alias("messages"))
            .toArrow()
            .to_pylist()
        ):
            spread.setdefault((each["node"], each["partner"]), []).append(
                (each["tenth"], each["messages"])
            )
    finally:
        samples.unpersist()
    found = []
    for values in sums:
        terms = context.terms.get(values.pop("terms_id"))
        if terms is None or not terms.runs_protocol:
            continue  # Nothing is resent, so there is nothing to be tuned.
        drawn = tuple(sorted(spread.get((values["node"], values["partner"]), ())))
        found.append(Measured(terms=terms, spread=drawn, **values))
    return sorted(found, key=lambda one: (-one.messages, one.node, one.partner))


def _sums(samples: DataFrame) -> DataFrame:
    once = f.expr("CASE WHEN answered AND attempts = 1 THEN since_first END")
    busy = samples.groupBy("node", "partner", "minute").agg(f.count("*").alias("n"))
    busiest = busy.groupBy("node", "partner").agg(f.max("n").alias("per_minute"))
    sums = samples.groupBy("node", "partner").agg(
        f.max_by("terms_id", "minute").alias("terms_id"),
        f.count("*").alias("messages"),
        f.sum("attempts").alias("attempts"),
        f.sum(f.col("answered").cast("long")).alias("answered"),
        f.count(once).alias("first_time"),
        f.expr("coalesce(sum(CASE WHEN copies IS NOT NULL THEN attempts - 1 END), 0)").alias(
            "resends_seen"
        ),
        f.expr("coalesce(sum(copies - 1), 0)").alias("duplicates"),
        f.avg(once).cast("long").alias("round_trip"),
        f.percentile_approx(once, 0.99, 10_000).alias("round_trip_p99"),
        f.percentile_approx("since_first", 0.99, 10_000).alias("since_first_p99"),
        f.avg("since_first").cast("long").alias("since_first"),
        f.coalesce(f.percentile_approx("waited", 0.95, 10_000), f.lit(0)).alias("waited_p95"),
        f.sum("hung").alias("hung"),
        f.expr("coalesce(CAST(sum(hung_for) / nullif(sum(hung), 0) AS LONG), 0)").alias("hung_for"),
        f.expr("coalesce(CAST(sum(hung_then) / nullif(sum(hung), 0) AS LONG), 0)").alias(
            "hung_then"
        ),
    )
    return sums.join(busiest, ["node", "partner"])


# --- what follows from it ---------------------------------------------------------------------


class Value(NamedTuple):
    """One value of an agreement, as it is and as it should be."""

    key: str
    today: str
    advised: str
    reason: str

    @property
    def changes(self) -> bool:
        """Whether it is to be another one."""
        return self.today != self.advised


@dataclass(frozen=True, slots=True)
class Advice:
    """What the agreement with one partner should say."""

    measured: Measured
    terms: Terms
    """Those that are advised; today's where nothing is."""
    values: tuple[Value, ...] = field(default=())
    problem: str = ""
    """Why nothing is advised."""

    @property
    def waits(self) -> tuple[Duration, Duration] | None:
        """How long a message takes from its first attempt to its acknowledgement, in the mean:
        measured, and as it is to be expected."""
        measured = self.measured
        if measured.since_first is None:
            return None
        return measured.since_first, expected_wait(measured, self.terms)

    def as_toml(self) -> str:
        """The lines for the agreement file."""
        lines: dict[str, list[str]] = {}
        for value in self.values:
            name, _, key = value.key.partition(".")
            text = value.advised if value.advised.isdigit() else f'"{value.advised}"'
            lines.setdefault(name, []).append(f"{key} = {text}")
        return "".join(
            f"[{name}]\n" + "".join(f"{line}\n" for line in some) for name, some in lines.items()
        )


def expected_wait(measured: Measured, terms: Terms) -> Duration:
    """From the first attempt to the acknowledgement, in the mean: every attempt that goes
    unanswered costs the wait before the next one. Where the connection itself gets no answer, that
    is as long as it stays open, and then a pause that other messages' answers may cut short."""
    loss, base = measured.loss, measured.round_trip
    if base is None or measured.too_short:
        return measured.since_first or 0
    hung = min(1.0, measured.hung / max(1, measured.attempts - measured.answered))
    connection = measured.hung_for + min(measured.hung_then, terms.retry_interval)
    first, later = (
        hung * connection + (1 - hung) * silent for silent in (terms.timeout, terms.retry_interval)
    )
    often = sum(loss**number for number in range(2, terms.retries + 1))
    return round(base + loss * first + often * later)


def advise(measured: Measured) -> Advice:
    """The values that follow from what was measured."""
    today = measured.terms
    if measured.messages < FEW:
        problem = f"only {measured.messages} messages were sent, and a hundredth of them is none"
        return Advice(measured, today, problem=f"{problem}; measure at least {FEW}")
    slowest = measured.since_first_p99 if measured.too_short else measured.round_trip_p99
    if slowest is None:
        return Advice(measured, today, problem="no message was ever acknowledged")
    timeout, why_timeout = _timeout(measured, slowest)
    interval, retries, why_interval, why_retries = _resends(measured, timeout)
    terms = replace(today, timeout=timeout, retry_interval=interval, retries=retries)
    values = [
        _value("delivery.timeout", today.timeout, timeout, why_timeout),
        _value("delivery.retry_interval", today.retry_interval, interval, why_interval),
        Value("delivery.retries", str(today.retries), str(retries), why_retries),
    ]
    if today.flow is FlowMode.WINDOW:
        window, why = _window(measured, terms)
        terms = replace(terms, window=window)
        values.append(Value("flow.window", str(today.window), str(window), why))
    return Advice(measured, terms, tuple(values))


def _value(key: str, today: Duration, advised: Duration, reason: str) -> Value:
    return Value(key, format_duration(today), format_duration(advised), reason)


def _timeout(measured: Measured, slowest: Duration) -> tuple[Duration, str]:
    today = measured.terms.timeout
    enough = max(1, ceil(slowest * MARGIN / SECOND)) * SECOND
    took = f"99 of 100 answers took at most {_seconds(slowest)}"
    if measured.too_short:
        # What came after a resend shows only how long it took at least.
        longer = max(enough, 2 * today)
        return longer, (
            f"{measured.duplicates} of {measured.resends_seen} resends arrived as copies, for "
            f"today's wait is over before the answer is there; {took}. Measure again with it."
        )
    if enough >= today:
        return today, f"{took}, and no copies show that today's wait is too short."
    return enough, f"{took}; whoever waits half as long again resends nothing in vain."


def _resends(measured: Measured, timeout: Duration) -> tuple[Duration, int, str, str]:
    """How often, and at which pace: as often as losses ask for, over the time that a message is
    tried today, so that an outage is outlasted as before."""
    today, loss = measured.terms, measured.loss
    needed = max(0, ceil(log(LOST_AT_MOST) / log(loss)) - 1)
    ways = today.longest_retry // max(1, today.timeout + today.retries * today.retry_interval) or 1
    room = max(0, today.persist_duration // ways - timeout)
    tried = today.timeout + today.retries * today.retry_interval
    many = max(needed, today.retries, RESENDS)
    pace = max(timeout, ceil((tried - timeout) / many / SECOND) * SECOND)
    if not measured.too_short:
        pace = min(pace, max(today.retry_interval, timeout))
    retries = max(needed, ceil(max(0, tried - timeout) / pace))
    fitting = room // pace
    chance = f"{loss:.1%} of the attempts go unanswered"
    why_pace = (
        f"At this pace {min(retries, fitting)} resends fill the {_seconds(tried)} for which a "
        "message is tried today, and none comes before an answer can."
    )
    if retries > fitting:
        retries = fitting
        return (
            pace,
            retries,
            why_pace,
            (
                f"{chance}; more resends do not fit into persist_duration "
                f"({format_duration(today.persist_duration)}), and the chance that all are lost is "
                f"{loss ** (retries + 1):.0e}."
            ),
        )
    return (
        pace,
        retries,
        why_pace,
        (
            f"{chance}, so {needed + 1} attempts keep the chance that all are lost below one in a "
            "million"
            + ("." if retries == needed else "; the others outlast an outage as today's do.")
        ),
    )


def _window(measured: Measured, terms: Terms) -> tuple[int, str]:
    today = terms.window
    if measured.waited_p95 < WAITED:
        return today, "95 of 100 messages found a place in it at once."
    # The window stands still for as long as its oldest message is unanswered.
    losses = max(0, ceil(log(0.01) / log(measured.loss)) - 1)
    resent = terms.timeout + (losses - 1) * terms.retry_interval if losses else 0
    slowest = (measured.round_trip_p99 or 0) + resent
    most = terms.numbers.size // 2
    window = min(max(ceil(measured.per_minute * slowest / MINUTE), today), most)
    waited = f"5 of 100 messages waited {_seconds(measured.waited_p95)} or longer for a place"
    if window == today:
        return today, f"{waited}, but " + (
            "the sequence numbers allow no more." if today == most else "it is not its size."
        )
    return window, (
        f"{waited}; 99 of 100 are answered within {_seconds(slowest)}, and in the busiest minute "
        f"there are {measured.per_minute} of them."
    )


def _seconds(duration: Duration) -> str:
    return f"{duration / SECOND:,.3g} s" if duration < 1_000 * SECOND else f"{duration // SECOND} s"


# --- the lake, and the page -------------------------------------------------------------------


def advise_lake(
    spark: SparkSession, lake: Lake, *, partner: str = "", tell: Progress = quiet
) -> list[Advice]:
    """The advice for every partner of every handler of a lake."""
    version = lake.current()
    rows = version.rows("journal")
    tell(f"measuring {rows:,} rows")
    with pinned(spark):
        journal = lake.read(spark, version, JOURNAL, "journal")
        return [advise(each) for each in measure(spark, journal, rows, partner=partner)]


_WIDTH, _HEIGHT, _FOOT = 900, 160, 34


def render(found: Sequence[Advice]) -> str:
    """The page: for each partner how long its answers took, and what follows."""
    parts = [
        section(
            f"{each.measured.node} to {each.measured.partner}",
            _picture(each) + (f"<p>{escape(each.problem)}.</p>" if each.problem else _told(each)),
        )
        for each in found
    ]
    return page("What agreements should say", parts)


def _told(advice: Advice) -> str:
    head = ("key", "today", "advised", "reason")
    return table(head, [tuple(value) for value in advice.values], len(advice.values))


def _picture(advice: Advice) -> str:
    """How many answers took how long, and the waits beside them."""
    spread = advice.measured.spread
    if not spread:
        return ""
    marks = [
        ("99 of 100", advice.measured.since_first_p99, BAD),
        ("today", advice.measured.terms.timeout, CALM),
        ("advised", advice.terms.timeout, GOOD),
    ]
    ends = [tenth for tenth, _ in spread]
    ends += [int(10 * log10(at)) for _, at, _ in marks if at]
    first, last = min(ends), max(ends) + 1
    step, most = _WIDTH / (last - first), max(count for _, count in spread)
    drawn = ""
    for tenth, count in spread:
        height = max(1.0, (_HEIGHT - _FOOT - 14) * count / most)
        said = f"{count} answers within {_seconds(round(10 ** ((tenth + 1) / 10)))}"
        drawn += (
            f'<rect x="{(tenth - first) * step:.1f}" y="{_HEIGHT - _FOOT - height:.1f}" '
            f'width="{max(1.0, step - 1):.1f}" height="{height:.1f}" fill="#8a94a3">'
            f"<title>{escape(said)}</title></rect>"
        )
    for row, (name, at, colour) in enumerate(marks):
        if not at:
            continue
        x = (10 * log10(at) - first) * step
        anchor = "end" if x > _WIDTH / 2 else "start"
        drawn += (
            f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{_HEIGHT - _FOOT}" stroke="{colour}" '
            f'stroke-width="2"/><text x="{x:.1f}" y="{_HEIGHT - _FOOT + 10 + 10 * row}" '
            f'font-size="10" fill="{colour}" text-anchor="{anchor}">'
            f"{escape(name)} {_seconds(at)}</text>"
        )
    return drawing(_WIDTH, _HEIGHT, drawn)
