"""The parts of the console by themselves: links and sessions, the search box, the ladder."""

import asyncio
from datetime import date
from pathlib import Path

import pytest

from oncewire.entry.console import rendering, searching
from oncewire.entry.console.rendering import _TEMPLATES, Pulse, lasting, plain, render
from oncewire.entry.console.sign_in import SignIns
from oncewire.entry.control.verb import Permission
from oncewire.entry.control.verbs import TABLE
from oncewire.entry.doctor.checkup import Finding, Grade
from oncewire.entry.messages.listing import instant_of
from oncewire.entry.messages.story import Story, StoryStep, _elsewhere, _with_names
from oncewire.entry.party.settings import load
from oncewire.entry.watching.snapshot import Overview, PartnerOverview
from oncewire.errors import InvalidValue
from oncewire.journal.row import Row
from oncewire.message.instant import HOUR, MINUTE
from oncewire.protocol.states import OutgoingState
from oncewire.store.search import TAKEN_OVER
from oncewire.store.sqlite.store import SqliteStore
from oncewire.store.transition.rows import STORED_INCOMING
from tests.entry.terminal import run_json

NOW = 1_700_000_000_000_000


@pytest.fixture
def sign_ins(tmp_path: Path) -> SignIns:
    return SignIns(tmp_path / "keys/sign-ins.json", 10 * MINUTE, 8 * HOUR)


def test_a_link_is_used_once_and_in_time(sign_ins: SignIns, tmp_path: Path) -> None:
    link = sign_ins.add_link("alice", [Permission.OPERATE], NOW)
    late = sign_ins.add_link("bob", [], NOW)
    used = sign_ins.use_link(link, NOW + MINUTE)
    assert used is not None
    assert sign_ins.use_link(link, NOW + MINUTE) is None
    assert sign_ins.use_link(late, NOW + 10 * MINUTE) is None
    assert sign_ins.use_link("", NOW) is None
    # Another process, such as the admin port after a restart, knows the session too.
    again = SignIns(tmp_path / "keys/sign-ins.json", 10 * MINUTE, 8 * HOUR)
    session = again.session(used[0], NOW + 2 * MINUTE)
    assert session is not None
    assert (session.name, sorted(session.roles)) == ("alice", ["operate", "read"])
    assert again.session(used[0], NOW + MINUTE + 8 * HOUR) is None
    assert session.csrf not in (tmp_path / "keys/sign-ins.json").read_text()
    again.end(session, NOW + 3 * MINUTE)
    assert not sign_ins.lasts(session, NOW + 3 * MINUTE)
    assert sign_ins.session(used[0], NOW + 3 * MINUTE) is None


def test_a_file_that_others_can_read_is_refused(sign_ins: SignIns, tmp_path: Path) -> None:
    link = sign_ins.add_link("alice", [], NOW)
    (tmp_path / "keys/sign-ins.json").chmod(0o644)
    with pytest.raises(InvalidValue, match="others on this machine"):
        sign_ins.use_link(link, NOW)
    for name in ("", "a\nb", "x" * 65):
        with pytest.raises(InvalidValue):
            sign_ins.add_link(name, [], NOW)


@pytest.mark.parametrize(
    ("words", "filters"),
    [
        ("order-4711", {"text": "order-4711"}),
        ("globex", {"partner": "globex"}),
        ("partner:initech since:2d x", {"partner": "initech", "since": "2d", "text": "x"}),
        ("unknown 2026-01-31", {"state": "unknown", "since": "2026-01-31", "until": "2026-02-01"}),
        ("9999-12-31", {"since": "9999-12-31", "until": "9999-12-31"}),
        ("urn:example:orders nonsense:word", {"text": "urn:example:orders nonsense:word"}),
        ("limit:100000", {"text": "limit:100000"}),
    ],
)  # fmt: skip
def test_the_search_box_understands(words: str, filters: dict[str, str]) -> None:
    found = searching.wanted({"q": words}, {"globex"}, TABLE["find"])
    assert found.filters == filters
    assert searching.wanted(found.query, (), TABLE["find"]).filters == filters


def test_a_filter_of_the_page_wins_over_the_box() -> None:
    asked = {"q": "state:unknown", "state": "delivered", "direction": "in", "parts": "1"}
    found = searching.wanted(asked, (), TABLE["find"])
    assert (found.verb, found.filters) == ("inbox", {"state": "delivered"})
    assert found.command == "oncewire inbox --state delivered --parts"


def test_what_a_hub_took_over_is_counted_apart() -> None:
    asked = {"partner": "globex", "direction": "out", "since": "2026-01-05", "until": "2026-01-06"}
    found, today = searching.wanted(asked, (), TABLE["find"]), date(2026, 1, 6)
    tally = {"out.delivered": 2, "out.taken_over": 3}
    said = searching.summed_up(found, tally, today, whole=True)
    assert said == (
        "Yesterday (2026-01-05): none failed, and not all are settled: 5 messages to globex, "
        "2 delivered, 3 taken over."
    )
    failed = searching.summed_up(found, tally | {"out.unknown": 1}, today, whole=True)
    assert failed.startswith("Yesterday (2026-01-05): no, some failed: 6 messages to globex")
    # What was not counted whole is not judged.
    part = searching.summed_up(found, {"out.delivered": 2}, today, whole=False)
    assert "yes" not in part
    page = render("messages.html", {
        "wanted": found, "said": said, "totals": tally, "troubled": (), "asked": asked,
        "messages": (), "problem": "", "more": "", "exports": {"csv": "", "json": ""},
        "states": searching.STATES, "party": "acme", "session": None, "version": "1", "now": NOW,
        "page": "messages", "done": "", "operates": False, "takes": False, "chaos": False,
    })  # fmt: skip
    assert "its receiver has not said that it got it" in page


async def _no_rows(_after: int, _limit: int) -> list[Row]:
    return []


_EMPTY = Pulse(_no_rows).totals(NOW)


def _partner(name: str, heard_at: int, **outcomes: int) -> PartnerOverview:
    return PartnerOverview(name, name, 0, "", heard_at, 0, outcomes, 0, 0, None, None, None)


def _now(*partners: PartnerOverview, restored: tuple[Finding, ...] = ()) -> str:
    seen = Overview("acme", NOW, 0.0, 0.0, 0, 1, 0, False, 0, None, None, 0, 0, tuple(partners), ())
    page = render("now.html", {
        "party": "acme", "session": None, "version": "", "now": NOW, "page": "now", "done": "",
        "seen": seen, "troubles": [], "down": "", "totals": _EMPTY,
        "restored": restored, "chaos": False, "operates": False,
    })  # fmt: skip
    return " ".join(page.split())


def test_of_a_partner_that_was_never_heard_nothing_good_is_said() -> None:
    assert "every partner answers" in _now(_partner("globex", NOW))
    untried = _now(_partner("globex", NOW), _partner("initech", 0))
    assert "every partner answers" not in untried
    assert "nothing was heard of initech since the handler was started" in untried
    assert "not tried yet" in untried
    assert "not heard yet" in _now(_partner("initech", 0, refused=1))
    assert "there are no partners yet" in _now()


def test_a_restore_is_something_to_do() -> None:
    found = Finding("restored", Grade.WARNING, "from the backup of Monday: unknown here", "ask")
    page = _now(_partner("globex", NOW), restored=(found,))
    assert "One thing needs you" in page
    assert "The party was restored from the backup of Monday" in page


def test_every_state_of_a_list_has_its_meaning() -> None:
    listed = {TAKEN_OVER, *(state.value for state in (*OutgoingState, *STORED_INCOMING))}
    assert set(searching.STATES) == listed
    assert all(searching.STATES.values())


def test_the_last_minutes_tell_a_hubs_word_from_the_receivers() -> None:
    details = ('{"hop":true}', '{"by":"transport"}', None, '{"signed":true}')
    rows = [
        Row(seq, NOW, 0, "boot", "acme", "acknowledged", f"m{seq}", detail=detail)
        for seq, detail in enumerate(details, 1)
    ]

    async def journal(_after: int, _limit: int) -> list[Row]:
        return rows

    pulse = Pulse(journal)
    asyncio.run(pulse.read(4))
    totals = pulse.totals(NOW)
    assert (totals["acknowledged"], totals["taken_over"]) == (2, 2)


def _story(*steps: tuple[str, str, str, str], elsewhere: tuple[str, ...] = ()) -> Story:
    """A story of (node, direction, kind, what); what is in or out is with the other one."""
    other = {"acme": "globex", "globex": "acme"}
    told = (
        StoryStep(NOW + at, node, way, other[node] if way != "here" else "", what, kind, at, "s1")
        for at, (node, way, kind, what) in enumerate(steps)
    )
    return Story("m", "", "c", tuple(told), (), elsewhere)


SENT = ("acme", "out", "sent", "attempt 1 over http")
AGAIN = ("acme", "out", "sent", "attempt 2 over http")
FAILED = ("acme", "here", "send_failed", "attempt 1 failed: refused")
RECEIVED = ("globex", "in", "received", "received and stored")
COPY = ("globex", "in", "duplicate", "a copy arrived and was stopped")
ACK = ("globex", "out", "ack_sent", "acknowledgement sent")
DONE = ("acme", "in", "acknowledged", "acknowledgement accepted")


@pytest.mark.parametrize(
    ("steps", "elsewhere", "ends"),
    [
        ((SENT, DONE), (), ["there", "unknown"]),
        ((SENT, FAILED, AGAIN), (), ["lost", "unknown"]),
        ((SENT,), ("globex",), ["unknown"]),
        ((SENT, RECEIVED, ACK, AGAIN, COPY, DONE), ("globex",), ["there", "there", "there"]),
        ((SENT, RECEIVED, ACK, AGAIN, COPY), ("globex",), ["lost", "there", "there"]),
        # The network repeated what was sent once.
        ((SENT, RECEIVED, COPY), ("globex",), ["late", "there"]),
        # An attempt that failed for its sender may have come all the same.
        ((SENT, FAILED, RECEIVED), ("globex",), ["late"]),
    ],
)
def test_arrows_end_where_it_is_known_that_they_do(
    steps: tuple[tuple[str, str, str, str], ...], elsewhere: tuple[str, ...], ends: list[str]
) -> None:
    drawn = rendering.draw(_story(*steps, elsewhere=elsewhere))
    assert sorted(arrow.end for arrow in drawn.arrows) == ends
    assert [lane.name for lane in drawn.lanes] == ["acme", "globex"]
    assert [rung.text for rung in drawn.rungs] == [step[3] for step in steps]


def test_a_long_story_is_drawn_in_part() -> None:
    drawn = rendering.draw(_story(*[SENT] * 500))
    assert (len(drawn.rungs), drawn.left_out) == (rendering.DRAWN_MAX, 500 - rendering.DRAWN_MAX)
    assert rendering.draw(_story()).lanes == ()


def test_what_cannot_be_seen_is_shown_as_its_number() -> None:
    assert plain("order\u202e\x00\n") == "order\\u{202e}\\u{0}\n"
    page = render("problem.html", {
        "status": 404, "detail": "<b>\u202e", "remedy": "", "party": "<i>", "session": None,
        "version": "1", "page": "problem", "done": "",
    })  # fmt: skip
    assert "&lt;b&gt;\\u{202e}" in page
    assert "<i>" not in page
    spans = [lasting(span) for span in (5_000, 2_500_000, 90_000_000, 3 * HOUR)]
    assert spans == ["5 ms", "2.5 s", "90 s", "3 h"]


@pytest.mark.parametrize(
    "unseen",
    [0x3164, 0x2800, 0x34F, 0xFE0F, 0xE0041, 0x200B, 0x200D, 0x2066, 0x61C, 0xAD, 0xFEFF, 0x115F,
     0x180E, 0x2028, 0xA0, 0x3000, 0xE000, 0xFFA0, 0x1D173, 0x7F],
    ids=hex,
)  # fmt: skip
def test_no_character_hides_in_a_text(unseen: int) -> None:
    assert plain(f"PO{chr(unseen)}-1") == f"PO\\u{{{unseen:x}}}-1"
    # What a form gives back is what it was given.
    form = _TEMPLATES.from_string("{{ value|whole }}").render(value=f"<{chr(unseen)}")
    assert form == f"&lt;{chr(unseen)}"
    assert plain("Zürich 東京 😀 e\u0301") == "Zürich 東京 😀 e\u0301"


def test_a_folder_tells_of_its_own_handler_alone(parties: Path) -> None:
    settings = load(parties / "globex", environ={}).settings
    store = SqliteStore(settings.path(settings.store.path), node="globex")
    with store.transition() as tx:
        tx.journal(
            Row(0, NOW, 0, "boot", node, "received", "m@acme", terms_id="t", peer="x", digest="d",
                size=1, detail="{}")
            for node in ("globex", "acme", "hub")
        )  # fmt: skip
    store.commit()
    store.close()
    folders = [parties / "globex", parties / "nothing"]
    ((name, _, rows),) = _elsewhere("m@acme", folders)
    assert (name, [row.node for row in rows]) == ("globex", ["globex"])


def test_the_command_makes_a_link(parties: Path) -> None:
    refused = run_json("console", exit_code=4)
    assert "admin port" in refused["problems"][0]["problem"]
    file = parties / "acme/oncewire.toml"
    file.write_text(f"{file.read_text()}\n[admin]\nport = 8610\n")
    made = run_json("console", "--role", "operate", "--by", "alice")
    assert made["roles"] == ["operate", "read"]
    assert made["console"].startswith("http://127.0.0.1:8610/console/sign-in#")


@pytest.mark.parametrize("clock", ["11:22", "11:22:33", "11:22:33.457Z"])
def test_a_time_as_lists_show_it_is_searched_for(clock: str) -> None:
    found = searching.wanted({"q": f"2026-11-18 {clock}"}, (), TABLE["find"])
    assert found.filters == {"since": "2026-11-18T11:22:00Z", "until": "2026-11-18T11:23:00Z"}


def test_a_time_behind_since_is_no_minute() -> None:
    found = searching.wanted({"q": "since:2026-11-18 11:22"}, (), TABLE["find"])
    assert (found.filters["since"], found.filters["text"]) == ("2026-11-18", "11:22")


def test_a_time_that_is_none_is_told_of() -> None:
    found = searching.wanted({"q": "2026-11-18 99:99"}, (), TABLE["find"])
    with pytest.raises(InvalidValue):
        instant_of(found.filters["since"], NOW)


def test_times_are_read_as_they_are_shown() -> None:
    exact = instant_of("2026-11-18T11:22:00Z", NOW)
    assert (
        instant_of("2026-11-18 11:22", NOW) == instant_of("2026-11-18 11:22:00.000", NOW) == exact
    )


def test_the_key_of_a_channel_keeps_its_parties() -> None:
    called = {"urn:party:hub": "hub", "urn:party:b": "beta"}
    said = "taken over by urn:party:hub; `oncewire resume --channel urn:party:b>urn:party:hub#1`"
    assert _with_names(said, called) == (
        "taken over by hub; `oncewire resume --channel urn:party:b>urn:party:hub#1`"
    )
