"""What a newcomer asks of the console, and where the answer stands."""

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from oncewire.agreement.compose import PROFILES
from tests.entry.console.conftest import Desk
from tests.entry.console.test_console import SUMMARY
from tests.waiting import wait_until

pytestmark = pytest.mark.process
PROFILE = "window"


@pytest.fixture(scope="module")
def client(desk: Desk) -> Iterator[httpx.Client]:
    """A browser that is signed in, without a screen; six orders were quick, one was late."""
    for number in range(6):
        desk.delivered(desk.send(f"PO-{number}@acme"))
    desk.cut()
    late, behind = desk.send("PO-late@acme"), desk.send("PO-behind@acme")
    wait_until(lambda: desk.do("show", message_id=late).facts["state"] == "suspended")  # type: ignore[attr-defined]
    desk.heal()
    desk.do("resume", message_id=late)
    for each in (late, behind):
        desk.delivered(each)
    with httpx.Client(base_url=desk.url, follow_redirects=True) as made:
        made.post("/console/sign-in", data={"link": desk.link().partition("#")[2]})
        yield made


def text_of(answer: httpx.Response) -> str:
    """The words of a page."""
    assert answer.status_code == 200, answer.text
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.text))


def listed(answer: httpx.Response) -> list[str]:
    """The ids of a list."""
    return re.findall(r'<a class="id" href="[^"]+">([^<]+)</a></td>', answer.text)


def test_why_an_order_is_late(client: httpx.Client) -> None:
    slow = client.get("/console/messages?slow=1&direction=out")
    assert {"PO-late@acme", "PO-behind@acme"} >= set(listed(slow)) >= {"PO-late@acme"}
    slowest = listed(client.get("/console/messages?slowest=1&direction=out"))
    assert set(slowest[:2]) == {"PO-late@acme", "PO-behind@acme"}
    assert listed(client.get("/console/messages?q=late")) == listed(slow)
    page = text_of(client.get("/console/message?id=PO-late@acme&direction=out"))
    sentence = re.search(
        r"It took [\d.]+ s: .*?That is (?:much )?longer than (?:half of those|most) to globex: ",
        page,
    )
    assert sentence is not None, page[:2000]
    assert re.search("went unanswered|could not be reached|did not answer", sentence[0])


def test_what_was_sent_twice(client: httpx.Client) -> None:
    now = client.get("/console/").text
    assert "/console/messages?direction=in&amp;again=1" in now
    assert "PO-late@acme" in listed(client.get("/console/messages?direction=out&again=1"))
    twice = client.get("/console/messages?q=twice")
    assert "PO-0@acme" not in listed(twice)
    # It says what was counted, and where; not what nobody here can know.
    assert "tries and copies are those in the journal of acme" in text_of(twice)
    assert "hands it over once" not in text_of(twice)


def test_whether_a_partner_got_everything(client: httpx.Client) -> None:
    today = datetime.now(UTC).date()
    asked = f"partner=globex&direction=out&since={today}&until={today + timedelta(days=1)}"
    assert asked.replace("&", "&amp;") in client.get("/console/").text
    page = text_of(client.get(f"/console/messages?{asked}"))
    assert f"Today ({today}): yes: 8 messages to globex, all delivered." in page
    yesterday = today - timedelta(days=1)
    asked = f"partner=globex&direction=out&since={yesterday}&until={today}"
    page = text_of(client.get(f"/console/messages?{asked}"))
    assert f"Yesterday ({yesterday}): no message to globex." in page


def test_how_old_the_ledger_is(desk: Desk, client: httpx.Client) -> None:
    lake = desk.settings.path(Path("../lake"))
    told = SUMMARY | {"written_at": "2026-01-01T00:00:00Z", "nodes": {"acme": {"seq": 3}}}
    (lake / "summary.json").write_text(json.dumps(told))
    page = text_of(client.get("/console/ledger"))
    last = desk.do("overview").journal  # type: ignore[attr-defined]
    assert re.search(r"The last run was \d+ d ago \( ?2026-01-01T00:00:00", page), page[:900]
    assert "broken in 4,812 messages, by the journal of acme alone" in page
    assert f"{last - 3:,} rows were added to the journal of acme since" in page


def test_now_counts_messages_and_names_attempts(client: httpx.Client) -> None:
    page = text_of(client.get("/console/"))
    assert re.search(r"acknowledged 8 8 messages sent", page), page[:1500]
    tried = re.search(r"attempts (\d+) (\d+) again", page)
    assert tried is not None
    assert int(tried[1]) == 8 + int(tried[2]) > 8


def test_partners_tell_the_day_in_numbers(client: httpx.Client) -> None:
    today = datetime.now(UTC).date()
    yesterday = today - timedelta(days=1)
    page = client.get("/console/partners")
    assert f"/console/partners?day={yesterday}" in page.text
    words = text_of(page)
    assert f"What partners got on {today}" in words
    assert re.search(r"globex 8 delivered 0 taken over 0 waiting 0 failed", words), words[-3000:]
    words = text_of(client.get(f"/console/partners?day={yesterday}"))
    assert f"What partners got on {yesterday}" in words
    assert re.search(r"globex nothing was sent", words)
    # What is no day means today.
    assert f"What partners got on {today}" in text_of(
        client.get("/console/partners?day=2026-99-99")
    )


def test_profiles_are_grouped(client: httpx.Client) -> None:
    page = client.get("/console/partners").text
    groups = re.findall(r'<optgroup label="([^"]+)">(.*?)</optgroup>', page, re.DOTALL)
    named = {label: re.findall(r'value="([^"]+)"', options) for label, options in groups}
    assert named["ebMS 2.0"] == ["ebms2", "cpa"]
    assert "nhs-express" in named["NHS Spine"]
    assert sorted(name for names in named.values() for name in names) == sorted(PROFILES)


def test_who_paused_a_channel_is_in_the_first_sentence(desk: Desk, client: httpx.Client) -> None:
    (channel,) = [each for each in desk.do("channels") if each.direction == "out"]  # type: ignore[attr-defined]
    desk.do("pause", channel=channel.key, reason="stock-taking", by="olga")
    held = desk.send("PO-paused@acme")
    page = text_of(client.get(f"/console/message?id={held}&direction=out"))
    assert "paused by olga: stock-taking" in page
    channels = text_of(client.get("/console/channels"))
    assert "paused by olga: stock-taking" in channels
    assert "1 waiting until the channel goes on" in channels
    partner = text_of(client.get("/console/partner?name=globex"))
    assert "Sending stands still: paused by olga: stock-taking" in partner
    # What took less than a second is not explained.
    time.sleep(1.1)
    desk.do("resume", channel=channel.key)
    desk.delivered(held)
    assert "stands still" not in text_of(client.get("/console/partner?name=globex"))
    page = text_of(client.get(f"/console/message?id={held}&direction=out"))
    assert re.search(r"It took [\d.]+ s: for [\d.]+ m?s its channel was paused by olga \(", page)
