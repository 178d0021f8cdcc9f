"""Timing: how long a message took, where that time went, and what is usual for its partner.

A message takes from its submission to its outcome; one that arrived, from its arrival until the
application confirmed it. The journal tells both, and what was waited for in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from oncewire.journal import trace
from oncewire.journal.history import in_words
from oncewire.message.instant import MILLISECOND, MINUTE, SECOND, Duration, Instant, moment
from oncewire.protocol import notes
from oncewire.protocol.sender import ANSWERS_AGAIN
from oncewire.protocol.states import FINAL_OUTGOING, OutgoingState
from oncewire.store.search import Mark, Search
from oncewire.store.transition.rows import FINAL_INCOMING

if TYPE_CHECKING:
    from oncewire.journal.row import Row
    from oncewire.store.contract import Reader
    from oncewire.store.records import StoredIncoming, StoredOutgoing

SAMPLE, SAMPLE_LEAST = 100, 5
"""The newest messages of a partner that say what is usual, and the fewest that say anything."""

SLOW_TIMES = 3
"""What takes so many times as long as half of a partner's messages is slow, from a second on; so is
what takes longer than 95 of 100."""

TOLD_FROM: Duration = 100 * MILLISECOND
"""Shorter waits are not told, nor those of less than a fiftieth of the whole time, nor any where
all took less than a second."""

BEFORE = 64
"""Earlier messages of a channel that are looked at for the one that stood in the way."""

TURN, PARTS, UNREACHABLE, RETRY, ANSWER, PAUSE, OPERATOR, TAKEN, CONFIRMED = (
    "turn", "parts", "unreachable", "retry", "answer", "pause", "operator", "taken", "confirmed",
)  # fmt: skip


class Wait(Struct, frozen=True):
    """A stretch of time in which a message waited.

    `start`, `end`: from when to when, in microseconds since 1970; no `end`: it waits still.
    `why`: what was going on, in words.
    `behind`: the MessageId of the message that stood before it, if one did.
    """

    start: Instant
    end: Instant | None
    why: str
    behind: str = ""


class Usual(Struct, frozen=True):
    """How long messages of a partner take.

    Of the newest `count` that arrived, half took at most `half` and 95 of 100 at most `most`, in
    microseconds.
    """

    count: int
    half: Duration
    most: Duration

    @property
    def sentence(self) -> str:
        """It in words."""
        return f"half within {in_words(self.half)}, 95 of 100 within {in_words(self.most)}"


class Timing(Struct, frozen=True):
    """How long a message took, and where the time went.

    `began`: when it was submitted or arrived, in microseconds since 1970.
    `took`: until its outcome, in microseconds; None: it has none yet.
    `said`: all of that in a sentence. `waits`: what it waited for. `usual`: what is usual.
    """

    began: Instant
    took: Duration | None
    said: str
    waits: tuple[Wait, ...] = ()
    usual: Usual | None = None


# --- how long ----------------------------------------------------------------------------------


def took(stored: StoredOutgoing | StoredIncoming, marks: Mapping[str, Mark]) -> Duration | None:
    """From its beginning to its outcome; None: it has none yet, or the journal has forgotten."""
    from oncewire.store.records import StoredIncoming

    if isinstance(stored, StoredIncoming):
        incoming = stored.incoming
        end = incoming.confirmed_at
        return None if end is None else max(0, end - incoming.received_at)
    sent = stored.outgoing
    if sent.state not in FINAL_OUTGOING:
        return None
    ends = [marks[kind].last for kind in _ENDS[sent.state] if kind in marks]
    end = max(ends, default=sent.last_sent_at)
    return None if end is None else max(0, end - sent.submitted_at)


_ENDS = {
    OutgoingState.DELIVERED: (trace.ACKNOWLEDGED,),
    OutgoingState.SENT: (trace.SENT,),
    OutgoingState.NOT_DELIVERED: (trace.FAILED, trace.ABANDONED),
    OutgoingState.UNKNOWN: (trace.FAILED, trace.ABANDONED),
}


def usual(reader: Reader, direction: str, party_ids: tuple[str, ...]) -> Usual | None:
    """What is usual for a partner; None: too few messages say so."""
    search, found = Search(partners=party_ids), list[Duration]()
    if direction == "out":
        for sent in reader.find_sent(search, SAMPLE).messages:
            if sent.outgoing.state is OutgoingState.DELIVERED:
                found += _known(took(sent, reader.journal_marks(sent.outgoing.message_id)))
    else:
        for arrived in reader.find_received(search, SAMPLE).messages:
            found += _known(took(arrived, {}))
    if len(found) < SAMPLE_LEAST:
        return None
    found.sort()
    last = len(found) - 1
    return Usual(len(found), found[last // 2], found[last * 95 // 100])


def _known(duration: Duration | None) -> list[Duration]:
    return [] if duration is None else [duration]


def is_slow(duration: Duration, known: Usual | None) -> bool:
    """Whether that is longer than usual; without anything usual, longer than a minute."""
    if known is None:
        return duration > MINUTE
    return duration > max(SECOND, min(known.most, SLOW_TIMES * known.half))


# --- where the time went -----------------------------------------------------------------------


def timing_of(
    reader: Reader,
    stored: StoredOutgoing | StoredIncoming,
    rows: Sequence[Row],
    partner: str,
    now: Instant,
) -> Timing:
    """How long it took; `rows`: those of our own journal about it, `partner`: its name."""
    from oncewire.store.records import StoredIncoming

    arrived = isinstance(stored, StoredIncoming)
    party_id = stored.facts.from_party if arrived else stored.facts.to_party
    known = usual(reader, "in" if arrived else "out", (party_id,))
    if isinstance(stored, StoredIncoming):
        began, over = stored.incoming.received_at, stored.incoming.state in FINAL_INCOMING
        marks, turns = _RECEIVER, _arrival_key
    else:
        began, over = stored.outgoing.submitted_at, stored.outgoing.state in FINAL_OUTGOING
        in_parts = reader.document("", stored.outgoing.message_id) is not None
        marks, turns = _SENDER, _parts_key if in_parts else _sending_key
    lasted = took(stored, _marked(rows))
    whole = max(0, now - began) if lasted is None else lasted
    told = [row for row in rows if row.kind in marks]
    ends = [
        *((a, b) for a, b in pairwise(told)),
        *([(told[-1], None)] if told and not over else []),
    ]
    stretches = list(_merged((turns(a, b), a, b) for a, b in ends))
    waits = []
    for key, parts in stretches:
        start, last = parts[0][0].at, parts[-1][1]
        lasts = (now if last is None else last.at) - start
        if whole < SECOND or lasts < max(TOLD_FROM, whole // 50):
            continue
        end = None if last is None else last.at
        behind = ""
        if key == TURN and not isinstance(stored, StoredIncoming):
            behind = _behind(reader, stored, start, end)
        words = (
            _stood_still(rows, parts[0][0])
            if key == OPERATOR
            else _words(key, parts, partner, party_id, behind)
        )
        waits.append(Wait(start, end, words, behind))
    said = _said(whole, lasted, waits, known, partner, now, arrived=arrived, over=over)
    return Timing(began, lasted, said, tuple(waits), known)


_SENDER = {
    trace.SUBMITTED, trace.FORWARDED, trace.NUMBERED, trace.SENT, trace.SEND_FAILED,
    trace.ACKNOWLEDGED, trace.REJECTED, trace.TRANSIENT, trace.FAILED, trace.SUSPENDED,
    trace.RESUMED, trace.ABANDONED,
}  # fmt: skip
_RECEIVER = {trace.RECEIVED, trace.JOINED, trace.HANDED_OVER, trace.CONFIRMED, trace.ABANDONED}

Stretch = tuple["Row", "Row | None"]


def _sending_key(before: Row, after: Row | None) -> str:
    """What a sent message waits for between two rows."""
    resumed = after is not None and after.kind == trace.RESUMED
    if before.kind == trace.SEND_FAILED:
        return UNREACHABLE
    if before.kind == trace.SENT:
        if after is not None and after.kind == trace.SEND_FAILED:
            return UNREACHABLE
        return RETRY if after is not None and (resumed or after.kind == trace.SENT) else ANSWER
    if before.kind == trace.TRANSIENT:
        return PAUSE
    if before.kind in (trace.SUSPENDED, trace.FAILED, trace.REJECTED, trace.ABANDONED):
        return OPERATOR
    return TURN


def _parts_key(before: Row, after: Row | None) -> str:  # noqa: ARG001
    """The same of a document that travels in parts: they wait, and not the document."""
    return PARTS


def _is_by_operator(row: Row | None) -> bool:
    """Whether a person resumed a message, and not the handler because the partner answers again."""
    if row is None or row.kind != trace.RESUMED:
        return False
    return notes.Resumed.read(row.detail).by != ANSWERS_AGAIN


def _arrival_key(before: Row, after: Row | None) -> str:  # noqa: ARG001
    return CONFIRMED if before.kind == trace.HANDED_OVER else TAKEN


def _merged(keyed: Iterable[tuple[str, Row, Row | None]]) -> Iterator[tuple[str, list[Stretch]]]:
    """Stretches that follow each other and are of one kind, together."""
    last, parts = "", list[Stretch]()
    for key, before, after in keyed:
        if key != last and parts:
            yield last, parts
            parts = []
        last = key
        parts.append((before, after))
    if parts:
        yield last, parts


def _stood_still(rows: Sequence[Row], since: Row) -> str:
    """Why it waited for an operator: what came of the attempts before."""
    before = [row for row in rows if row.seq <= since.seq]
    failed = [row for row in before if row.kind == trace.SEND_FAILED]
    why, last = "", ""
    if failed:
        why = " after its attempts had failed,"
        last = f": the last with: {notes.SendFailed.read(failed[-1].detail).reason}"
    elif since.kind == trace.SUSPENDED and any(row.kind == trace.SENT for row in before):
        why = " after its attempts went unanswered,"
    return f"it stood still{why} until an operator let it go on{last}"


def _words(key: str, parts: Sequence[Stretch], partner: str, party_id: str, behind: str) -> str:
    then = "; then an operator had it sent" if _is_by_operator(parts[-1][1]) else ""
    if key == UNREACHABLE:
        failed = [row for pair in parts for row in pair if row and row.kind == trace.SEND_FAILED]
        tried = len(dict.fromkeys(row.seq for row in failed))
        reason = notes.SendFailed.read(failed[-1].detail).reason if failed else ""
        times = "1 attempt" if tried == 1 else f"{tried} attempts"
        # A hub on the way is no partner.
        near = not failed or failed[-1].peer in (None, party_id)
        whom = partner if near else "the next handler"
        return f"{whom} could not be reached: {times} failed, the last with: {reason}{then}"
    if key == RETRY:
        first, last = parts[0][0].attempt, parts[-1][0].attempt
        which = f"attempt {first}" if first == last else f"attempts {first} to {last}"
        return f"{which} went unanswered: it waited until it was sent again{then}"
    if key == ANSWER and parts[-1][1] is None:
        return f"no answer to attempt {parts[-1][0].attempt} has come"
    if key == TURN and behind:
        return "it was held behind another message of its channel"
    return _PLAIN[key].format(partner=partner)


_PLAIN = {
    TURN: "it waited for its turn",
    ANSWER: "it was on its way, or its receiver had it: until the answer came",
    PAUSE: "{partner} asked for a pause",
    PARTS: "its parts were on their way, one message each",
    TAKEN: "it waited for the application to take it",
    CONFIRMED: "the application had it and had not confirmed it",
}


def _behind(reader: Reader, stored: StoredOutgoing, start: Instant, end: Instant | None) -> str:
    """The earlier message of the same channel that a message waited for."""
    sent = stored.outgoing
    if sent.channel is None:
        return ""
    channel = reader.sending_channel(sent.channel)
    if end is None and channel is not None and channel.suspended_by:
        return "" if channel.suspended_by == sent.message_id else channel.suspended_by
    found: list[tuple[Instant, str]] = []
    for each in reader.outgoing_list(before=stored.position, limit=BEFORE):
        if each.outgoing.channel != sent.channel:
            continue
        earlier = each.outgoing.message_id
        lasted = took(each, reader.journal_marks(earlier))
        if lasted is None:
            # The first of those without an outcome is what the window begins with.
            found.append((-each.outgoing.submitted_at if end is None else 0, earlier))
        elif end is not None and start < each.outgoing.submitted_at + lasted <= end:
            found.append((each.outgoing.submitted_at + lasted, earlier))
    return max(found, default=(0, ""))[1]


def _marked(rows: Iterable[Row]) -> dict[str, Mark]:
    found: dict[str, Mark] = {}
    for row in rows:
        first = found[row.kind].first if row.kind in found else row.at
        found[row.kind] = Mark(1, first, row.at)
    return found


def _said(
    whole: Duration,
    lasted: Duration | None,
    waits: Sequence[Wait],
    known: Usual | None,
    partner: str,
    now: Instant,
    *,
    arrived: bool,
    over: bool,
) -> str:
    """All of it in a sentence or two."""
    if lasted is not None:
        said = "The application took" if arrived else "It took"
        said = f"{said} {in_words(lasted)}"
    elif over:
        return ""
    else:
        said = f"It waits, for {in_words(whole)} so far"
    longest = sorted(waits, key=lambda wait: wait.start - (wait.end or now))[:3]
    parts = [
        f"{in_words((wait.end or now) - wait.start)} {wait.why.partition(':')[0]} "
        f"({moment(wait.start)[11:19]} to {moment(wait.end)[11:19] if wait.end else 'now'})"
        for wait in sorted(longest, key=lambda wait: wait.start)
    ]
    said += f": {'; '.join(parts)}." if parts else "."
    if known is not None:
        late = "usual for"
        if is_slow(whole, known):
            late = (
                "longer than most to" if whole > known.most else "much longer than half of those to"
            )
        said += f" That is {late} {partner}: {known.sentence}."
    return said
