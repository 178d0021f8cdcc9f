"""Timing: how long a message took, where that time went, and what is usual for its partner.

A message takes from its submission to its outcome; one that arrived, from its arrival until the
application confirmed it. The journal tells both, and what was waited for in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oncewire.journal import trace
from oncewire.journal.history import in_words
from oncewire.message.instant import MILLISECOND, MINUTE, SECOND, Duration, Instant, moment
from oncewire.protocol import notes
from oncewire.protocol.sender import ANSWERS_AGAIN
from oncewire.protocol.states import FINAL_OUTGOING, OutgoingState
from oncewire.store.records import StoredIncoming, StoredOutgoing
from oncewire.store.search import Mark, Search
from oncewire.store.transition.rows import FINAL_INCOMING

if TYPE_CHECKING:
    from oncewire.journal.row import Row
    from oncewire.store.contract import Reader

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

ROWS = 2_000
"""Rows of the journal before the first of a message, and as many from there on, that are looked at
for what hindered it."""

TURN, PARTS, UNREACHABLE, RETRY, ANSWER, BEYOND, PAUSE, OPERATOR, TAKEN, CONFIRMED = (
    "turn", "parts", "unreachable", "retry", "answer", "beyond", "pause", "operator", "taken",
    "confirmed",
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

    Of the newest `count` that arrived and that nothing hindered, half took at most `half` and 95 of
    100 at most `most`, in microseconds.
    """

    count: int
    half: Duration
    most: Duration

    @property
    def sentence(self) -> str:
        """It in words."""
        half, most = in_words(self.half), in_words(self.most)
        return f"of the newest that nothing hindered half took up to {half}, 95 of 100 up to {most}"


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
    """What is usual for a partner; None: too few messages say so.

    After an outage all of the newest messages are late ones, and would make lateness usual: so the
    ones that left at once and needed one attempt say it, if there are enough of them.
    """
    search, found = Search(partners=party_ids), list[Duration]()
    if direction == "out":
        hindered = list[Duration]()
        for sent in reader.find_sent(search, SAMPLE).messages:
            if sent.outgoing.state is OutgoingState.DELIVERED:
                marks = reader.journal_marks(sent.outgoing.message_id)
                which = found if _left_at_once(sent.outgoing.submitted_at, marks) else hindered
                which += _known(took(sent, marks))
        if len(found) < SAMPLE_LEAST:
            found += hindered
    else:
        for arrived in reader.find_received(search, SAMPLE).messages:
            found += _known(took(arrived, {}))
    if len(found) < SAMPLE_LEAST:
        return None
    found.sort()
    last = len(found) - 1
    return Usual(len(found), found[last // 2], found[last * 95 // 100])


def _left_at_once(submitted_at: Instant, marks: Mapping[str, Mark]) -> bool:
    """Whether a message was sent within a second, and once."""
    sent = marks.get(trace.SENT)
    if sent is None or sent.count > 1 or trace.SEND_FAILED in marks:
        return False
    return sent.first - submitted_at <= SECOND


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
    called: Mapping[str, str] | None = None,
    onward: Instant = 0,
) -> Timing:
    """How long it took; `rows`: those of our own journal about it, `partner`: its name.
    `called`: the names of other parties, by their PartyIds. `onward`: when a hub sent it on, by the
    hub's own journal and clock; 0: that is not known."""
    arrived = isinstance(stored, StoredIncoming)
    party_id = stored.facts.from_party if arrived else stored.facts.to_party
    called = dict(called or {})
    # A row has the partner's PartyId without its type.
    if f":{party_id}".endswith(f":{stored.peer}"):
        called[stored.peer] = partner
    known = usual(reader, "in" if arrived else "out", (party_id,))
    if isinstance(stored, StoredIncoming):
        began, over = stored.incoming.received_at, stored.incoming.state in FINAL_INCOMING
        marks, turns = _RECEIVER, _arrival_key
    else:
        began, over = stored.outgoing.submitted_at, stored.outgoing.state in FINAL_OUTGOING
        in_parts = reader.document("", stored.outgoing.message_id) is not None
        # The parts of a document wait, and not the document.
        marks, turns = _SENDER, (lambda *_: PARTS) if in_parts else _sending_key
    found: dict[str, Mark] = {}
    for row in rows:
        first = found[row.kind].first if row.kind in found else row.at
        found[row.kind] = Mark(1, first, row.at)
    lasted = took(stored, found)
    whole = max(0, now - began) if lasted is None else lasted
    told = [row for row in rows if row.kind in marks]
    ends = [
        *((a, b) for a, b in pairwise(told)),
        *([(told[-1], None)] if told and not over else []),
    ]
    least = max(TOLD_FROM, whole // 50)
    # What was quick needs no explanation.
    stretches = list(_merged((turns(a, b), a, b) for a, b in ends)) if whole >= SECOND else []
    hindrances = [
        each
        for each in (_hindrances(reader, stored, told, called) if stretches else ())
        if (each.end or now) - each.start >= least
    ]
    waits = []
    for key, parts in stretches:
        start, last = parts[0][0].at, parts[-1][1]
        given = [each for each in hindrances if each.key in (ANY, key)]
        for piece in _split(start, None if last is None else last.at, given, now):
            if (now if piece.end is None else piece.end) - piece.start < least:
                continue
            if piece.why:
                waits.append(piece)
            elif key == TURN and not isinstance(stored, StoredIncoming):
                waits.append(_behind(reader, stored, piece))
            elif key == OPERATOR:
                waits.append(replace(piece, why=_stood_still(rows, parts[0][0])))
            elif key == BEYOND and piece.start < onward < (piece.end or now):
                who = _next_handler(parts[0][0].peer, called)
                waits.append(Wait(piece.start, onward, f"{who} had it and had not sent it on"))
                then = f"{who} had sent it on, and the answer of {partner} was awaited"
                if (piece.end or now) - onward >= least:
                    waits.append(Wait(onward, piece.end, then))
            else:
                waits.append(replace(piece, why=_words(key, parts, partner, called)))
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
    if before.kind == trace.ACKNOWLEDGED:
        return BEYOND
    if before.kind in (trace.SUSPENDED, trace.FAILED, trace.REJECTED, trace.ABANDONED):
        return OPERATOR
    return TURN


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


def _words(key: str, parts: Sequence[Stretch], partner: str, called: Mapping[str, str]) -> str:
    peer = parts[0][0].peer
    whom = _next_handler(peer, called) if peer else partner
    then = "; then an operator had it sent" if _is_by_operator(parts[-1][1]) else ""
    if key == UNREACHABLE:
        failed = [row for pair in parts for row in pair if row and row.kind == trace.SEND_FAILED]
        tried = len(dict.fromkeys(row.seq for row in failed))
        reason = notes.SendFailed.read(failed[-1].detail).reason if failed else ""
        times = "1 attempt" if tried == 1 else f"{tried} attempts"
        return f"{_silence(whom, failed)}: {times} failed, the last with: {reason}{then}"
    if key == RETRY:
        first, last = parts[0][0].attempt, parts[-1][0].attempt
        which = f"attempt {first}" if first == last else f"attempts {first} to {last}"
        return f"{which} went unanswered: it waited until it was sent again{then}"
    if key == BEYOND:
        return f"{_next_handler(peer, called)} had it, and the answer of {partner} was awaited"
    if key == ANSWER and parts[-1][1] is None:
        return f"no answer to attempt {parts[-1][0].attempt} has come"
    return _PLAIN[key].format(whom=whom)


_PLAIN = {
    ANSWER: "its answer was awaited",
    PAUSE: "{whom} asked for a pause",
    PARTS: "its parts were on their way, one message each",
    TAKEN: "it waited for the application to take it",
    CONFIRMED: "the application had it and had not confirmed it",
}


def _silence(whom: str, failed: Iterable[Row]) -> str:
    """In words, that attempts failed: some certainly did not get across, or all may have."""
    said = [notes.SendFailed.read(row.detail) for row in failed]
    if any(each.outcome == "refused" for each in said):
        return f"{whom} could not be reached"
    if any(notes.NO_MESSAGE in (each.reason or "") for each in said):
        return f"what answered for {whom} was no handler"
    return f"{whom} did not answer"


def _next_handler(peer: str | None, called: Mapping[str, str]) -> str:
    """A hub on the way, which is no partner, by its name if that is known."""
    return called.get(peer or "", "the next handler")


def _behind(reader: Reader, stored: StoredOutgoing, wait: Wait) -> Wait:
    """A wait of a message for its turn, with the earlier message of its channel that it waited
    for, if one is known."""
    sent, end = stored.outgoing, wait.end
    if sent.channel is None:
        return replace(wait, why="it waited for its turn")
    found: list[tuple[Instant, str, str]] = []
    for each in reader.outgoing_list(before=stored.position, limit=BEFORE):
        if each.outgoing.channel != sent.channel:
            continue
        earlier = each.outgoing.message_id
        if each.outgoing.state not in FINAL_OUTGOING:
            # The first of those without an outcome is what the window begins with.
            found.append((-each.outgoing.submitted_at if end is None else 0, earlier, ""))
            continue
        lasted = took(each, reader.journal_marks(earlier))
        over = each.outgoing.submitted_at + (lasted or 0)
        if end is not None and wait.start < over <= end:
            ended = f", which had its outcome at {moment(over)[11:19]}"
            found.append((over, earlier, ended))
    if not found:
        return replace(wait, why="it waited for its turn")
    _, behind, ended = max(found)
    held = "it is" if end is None else "it was"
    why = f"{held} held behind an earlier message of its channel{ended}"
    return replace(wait, why=why, behind=behind)


# --- what hindered it ---------------------------------------------------------------------------

ANY = "any"


class Hindrance(Wait, frozen=True):
    """What kept messages of a channel, or all, from going on for a time.

    `key`: the kind of wait that it explains: any, or that of a message for its turn.
    """

    key: str = ANY


def _hindrances(
    reader: Reader,
    stored: StoredOutgoing | StoredIncoming,
    told: Sequence[Row],
    called: Mapping[str, str],
) -> Iterator[Hindrance]:
    """What kept a message from going on, besides itself. However many rows there are, a bounded
    number is read."""
    rows = reader.journal_since(max(0, told[0].seq - ROWS), 2 * ROWS)
    for before, row in pairwise(rows):
        if row.kind == trace.STARTED:
            why = "this handler was not running, or had nothing to do, until it was started"
            yield Hindrance(before.at, row.at, why)
    if not isinstance(stored, StoredOutgoing):
        return
    own, channel = told[0].message_id, stored.outgoing.channel
    asked = [row for row in rows if row.peer == stored.peer and row.message_id != own]
    yield from _pauses(asked, _PLAIN[PAUSE].format(whom=_next_handler(stored.peer, called)))
    if channel is None:
        return
    yield from _standstills(reader, channel, [row for row in rows if row.channel == channel], own)
    yield from _outages([row for row in rows if row.channel == channel], called)


def _pauses(rows: Sequence[Row], why: str) -> Iterator[Hindrance]:
    """The times of the pauses that a receiver asked for when it got other messages."""
    lifted = [row.at for row in rows if row.kind == trace.RESUMED and row.message_id is None]
    for row in rows:
        if row.kind == trace.TRANSIENT:
            until = notes.Transient.read(row.detail).until
            end = min((until, *(at for at in lifted if at > row.at)))
            yield Hindrance(row.at, end, why, row.message_id or "", key=TURN)


def _standstills(
    reader: Reader, channel: str, rows: Iterable[Row], own: str | None
) -> Iterator[Hindrance]:
    """The times in which a channel was paused or suspended; what a message brought upon its channel
    is told of the message itself."""
    opened: dict[str, Row] = {}
    for row in rows:
        if row.kind == trace.INCIDENT:
            opened[notes.Incident.read(row.detail).id] = row
        elif row.kind == trace.RESOLVED:
            begun = opened.get(notes.Resolved.read(row.detail).id)
            if begun is not None and begun.message_id != own:
                problem = notes.Incident.read(begun.detail).problem
                yield _standstill(problem, begun.at, row.at, begun.message_id)
    for incident in reader.incidents():
        if incident.channel == channel and incident.message_id != own:
            yield _standstill(incident.reason, incident.opened_at, None, incident.message_id)


def _standstill(
    problem: str | None, start: Instant, end: Instant | None, behind: str | None
) -> Hindrance:
    from oncewire.handler.runtime.operate import PAUSED

    said = str(problem) if str(problem).startswith(PAUSED) else f"suspended: {problem}"
    is_was = "is" if end is None else "was"
    return Hindrance(start, end, f"its channel {is_was} {said}", behind or "")


def _outages(rows: Iterable[Row], called: Mapping[str, str]) -> Iterator[Hindrance]:
    """The times in which attempts of a channel failed and none was answered."""
    failed: list[Row] = []
    for row in rows:
        if row.kind == trace.SEND_FAILED:
            failed.append(row)
        elif row.kind in _ANSWERS and failed:
            yield _outage(failed, row.at, called)
            failed = []
    if failed:
        yield _outage(failed, None, called)


_ANSWERS = {trace.ACKNOWLEDGED, trace.REJECTED, trace.TRANSIENT}


def _outage(failed: Sequence[Row], end: Instant | None, called: Mapping[str, str]) -> Hindrance:
    whom = _next_handler(failed[-1].peer, called)
    times = "1 attempt" if len(failed) == 1 else f"{len(failed)} attempts"
    reason = notes.SendFailed.read(failed[-1].detail).reason
    silence = _silence(whom, failed)
    why = f"{silence}: {times} in its channel failed, the last with: {reason}"
    return Hindrance(failed[0].at, end, why, key=TURN)


def _split(
    start: Instant, end: Instant | None, hindrances: Iterable[Hindrance], now: Instant
) -> Iterator[Wait]:
    """A stretch of time by what hindered in it; where nothing did, without a reason."""
    at, last = start, now if end is None else end
    for each in sorted(hindrances, key=lambda each: each.start):
        begin = max(each.start, at)
        over = last if each.end is None else min(each.end, last)
        if over <= begin:
            continue
        if begin > at:
            yield Wait(at, begin, "")
        yield Wait(begin, end if over == last else over, each.why, each.behind)
        at = over
    if at < last:
        yield Wait(at, end, "")


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
    # By cause, in the order of their beginning: how long in all, and from when to when.
    causes: dict[str, list[Wait]] = {}
    for wait in waits:
        causes.setdefault(re.split(r": |, ", wait.why)[0], []).append(wait)
    lasting = {why: sum((wait.end or now) - wait.start for wait in causes[why]) for why in causes}
    parts = []
    for why in sorted(causes, key=lambda why: -lasting[why])[:3]:
        start, end = causes[why][0].start, causes[why][-1].end
        # Within one second, to the millisecond.
        exact = 23 if (end or now) // SECOND == start // SECOND else 19
        until = moment(end)[11:exact] if end else "now"
        parts.append(f"for {in_words(lasting[why])} {why} ({moment(start)[11:exact]} to {until})")
    said += f": {'; '.join(parts)}." if parts else "."
    if known is not None:
        late = "usual for"
        if is_slow(whole, known):
            late = (
                "longer than most to" if whole > known.most else "much longer than half of those to"
            )
        said += f" That is {late} {partner}: {known.sentence}."
    return said
