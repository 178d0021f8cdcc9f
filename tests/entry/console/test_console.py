"""The console in a real browser, against real handlers."""

import csv
import io
import json
import re
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from oncewire.entry.console.rendering import _TEMPLATES, POLICY
from oncewire.entry.control.verb import Permission
from oncewire.entry.party.settings import load
from tests.entry.console.conftest import PHONE, WIDE, Desk, Window

pytestmark = pytest.mark.process

PROFILE = "window"
READ_ONLY = (Permission.LOOK,)
PAGES = {
    "now": "",
    "messages": "messages",
    "message": "message?id=PO-0001@acme&document=1",
    "channels": "channels",
    "partners": "partners",
    "partner": "partner?name=globex",
    "ledger": "ledger",
    "health": "health?doctor=1&metrics=1",
    "problem": "message?id=nothing",
}
"""Every page by the name of its template, and where one is found."""
NO_PAGES = {"base", "parts", "sign_in", "accept"}
"""Templates that others are made of, and what is seen only on the way somewhere."""
SUMMARY = {
    "version": 3,
    "written_at": "2026-11-17T20:00:00Z",
    "messages": 4812,
    "verdicts": {"delivered": 4800, "not_delivered": 9, "unknown": 3},
    "violations": 1,
    "counts": {"twice": 1},
    "nodes": {"acme": {"seq": 3}},
    "tables": {"messages": 4812},
    "findings": [
        {"kind": "twice", "message_id": "PO-0001@acme", "sentence": "it was delivered twice"}
    ],
}


def journal_of(desk: Desk, message_id: str) -> list[tuple[str, dict[str, object]]]:
    """The rows about a message, with their details."""
    store = desk.served.do(_store(desk))
    with store.reader() as reader:  # type: ignore[attr-defined]
        rows = reader.journal_of(message_id)
    return [(row.kind, json.loads(row.detail or "{}")) for row in rows]


async def _store(desk: Desk) -> object:
    from oncewire.entry.party.store import open_readers

    return open_readers(desk.settings)


@pytest.fixture(scope="module", autouse=True)
def _something_happened(desk: Desk) -> None:
    for number in range(1, 5):
        desk.send(f"PO-{number:04}@acme", f'<order id="no-{number}"/>'.encode())
        desk.delivered(f"PO-{number:04}@acme")
    lake = desk.settings.path(Path("../lake"))
    (lake / "summary.json").write_text(json.dumps(SUMMARY))


def test_every_page_is_looked_at() -> None:
    assert {Path(name).stem for name in _TEMPLATES.list_templates()} == {*PAGES, *NO_PAGES}


@pytest.mark.parametrize(
    ("size", "scheme"), [(WIDE, "light"), (PHONE, "light"), (WIDE, "dark"), (PHONE, "dark")]
)
def test_every_page_is_sound(
    desk: Desk, browser: Browser, size: tuple[int, int], scheme: str, tmp_path: Path
) -> None:
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    window = Window(desk, context)
    window.sign_in()
    for name, path in PAGES.items():
        page = window.open(path)
        expect(page.locator("h1")).to_be_visible()
        assert window.faults() == [], (name, size, scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, size)
        assert page.locator(".top nav").evaluate("nav => nav.scrollWidth <= nav.clientWidth"), size
        page.screenshot(path=tmp_path / f"{name}-{scheme}-{size[0]}.png", full_page=True)
    context.close()
    assert len(list(tmp_path.glob("*.png"))) == len(PAGES)
    # The page of an error has that error's status.
    assert [each for each in window.errors if "404" not in each] == []
    assert window.strangers == []


def test_a_link_signs_in_once(desk: Desk) -> None:
    link = desk.link().partition("#")[2]
    with httpx.Client(base_url=desk.url) as client:
        assert client.get("/console/").headers["location"] == "/console/sign-in"
        assert client.get("/console/messages").status_code == 303
        page = client.get("/console/sign-in")
        assert page.headers["content-security-policy"] == POLICY
        used = client.post("/console/sign-in", data={"link": link})
        assert (used.status_code, used.headers["location"]) == (303, "/console/")
        cookie = used.headers["set-cookie"].lower()
        assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/console"))
        assert client.get("/console/").status_code == 200
        # Neither the link nor the session is written anywhere as it is.
        kept = desk.settings.path(desk.settings.console.sign_ins).read_text()
        logs = desk.settings.path(desk.settings.admin.access_log).read_text()
        for secret in (link, client.cookies[f"oncewire-{desk.settings.admin.port}"]):
            assert secret not in kept + logs
        # A cookie opens no route of programs.
        assert client.get("/find").status_code == 401
    assert httpx.post(f"{desk.url}/console/sign-in", data={"link": link}).status_code == 403


def test_a_form_of_another_page_does_nothing(desk: Desk) -> None:
    link = desk.link().partition("#")[2]
    with httpx.Client(base_url=desk.url) as client:
        client.post("/console/sign-in", data={"link": link})
        asked = {"do": "hold", "message_id": "PO-0001@acme", "back": "/console/"}
        for given, headers, status in (
            (asked, {}, 409),
            (asked | {"csrf": "0" * 64}, {}, 409),
            (asked, {"Origin": "http://evil.example"}, 403),
            (asked, {"Sec-Fetch-Site": "cross-site"}, 403),
        ):
            answer = client.post("/console/do", data=given, headers=headers)
            assert answer.status_code == status, answer.text
        answer = client.post("/console/do", json=asked)
        assert answer.status_code == 422
    assert desk.do("show", message_id="PO-0001@acme").facts["legal_hold"] is False


def test_who_only_reads_changes_and_opens_nothing(desk: Desk, window: Window) -> None:
    page = window.sign_in(READ_ONLY, "rita")
    window.open("message?id=PO-0001@acme&document=1")
    assert page.locator("form[action='/console/do']").count() == 0
    assert page.locator(".payload").count() == 0
    assert 'id="no-1"' not in page.content()
    page.locator(".menu summary").click()
    expect(page.locator(".menu")).to_contain_text("read-only")
    csrf = page.locator("input[name=csrf]").first.get_attribute("value") or ""
    cookies = {each["name"]: each["value"] for each in window.context.cookies()}
    with httpx.Client(base_url=desk.url, cookies=cookies) as client:
        asked = {"do": "hold", "message_id": "PO-0001@acme", "csrf": csrf}
        assert client.post("/console/do", data=asked).status_code == 403
        for path in ("document?id=PO-0001@acme&number=1", "evidence?id=PO-0001@acme"):
            assert client.get(f"/console/{path}").status_code == 403


def test_what_a_person_types_is_found_and_exported(desk: Desk, window: Window) -> None:
    page = window.sign_in()
    page.keyboard.press("/")
    page.keyboard.type("no-3")
    page.keyboard.press("Enter")
    expect(page.locator("[data-rows] tbody tr")).to_have_count(1)
    expect(page.locator("[data-rows] a.id")).to_have_text("PO-0003@acme")
    for words, count in (
        ("PO-000", 4), ("globex delivered", 4), ("state:unknown", 0), ("2001-01-01", 0),
        ("partner:globex since:24h PO-0002", 1),
    ):  # fmt: skip
        window.open(f"messages?q={quote(words)}")
        found = page.locator("[data-rows] tbody a.id")
        assert found.count() >= count if words == "globex delivered" else found.count() == count
    window.open("messages?q=PO-000&direction=out")
    shown = page.locator("[data-rows] tbody a.id").all_text_contents()
    with page.expect_download() as csv_file:
        page.get_by_role("link", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(csv_file.value.path().read_text())))
    assert [row["message_id"] for row in rows] == shown
    with page.expect_download() as json_file:
        page.get_by_role("link", name="JSON").click()
    found_rows = json.loads(json_file.value.path().read_text())
    assert [row["message_id"] for row in found_rows] == shown
    # Keys alone lead to a message, also where the list has changed meanwhile.
    page.keyboard.press("j")
    desk.send("PO-0005@acme")
    expect(page.locator("[data-rows] tbody a.id").first).to_have_text("PO-0005@acme")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(shown[0])


def test_a_message_is_held_released_and_shown(desk: Desk, window: Window) -> None:
    page = window.sign_in()
    window.open("message?id=PO-0002@acme")
    page.get_by_role("button", name="Keep under legal hold").click()
    expect(page.locator(".done")).to_contain_text("legal hold")
    expect(page.locator("header.title")).to_contain_text("legal hold")
    expect(page.locator("main")).to_contain_text("put under legal hold by ")
    page.get_by_role("button", name="Lift the legal hold").click()
    expect(page.locator("header.title")).not_to_contain_text("legal hold")
    # What is not signed proves nothing.
    expect(page.locator("main")).to_contain_text("No evidence: its acknowledgement was not signed")
    assert page.get_by_role("link", name="Evidence").count() == 0
    page.get_by_role("link", name="order.xml").click()
    expect(page.locator(".payload")).to_have_text('<order id="no-2"/>')
    # The other side's rungs are drawn from the folder that console.with names.
    assert page.locator(".lane.unknown").count() == 0
    assert page.locator(".arrow.there").count() >= 2
    steps = page.locator(".steps li").all_text_contents()
    assert any("globex" in step and "received and stored" in step for step in steps)


def test_a_cut_network_is_seen_resumed_and_over(desk: Desk, window: Window) -> None:
    page = window.sign_in(by="olga")
    expect(page.locator("#todo")).to_have_text("Nothing needs you")
    desk.cut()
    late = desk.send("PO-0100@acme")
    # Nobody reloads the page.
    expect(page.locator("#live")).to_contain_text("globex is silent", timeout=60_000)
    expect(page.locator(".todo")).to_contain_text("cannot go on", timeout=60_000)
    page.get_by_role("link", name="Channels").click()
    cell = page.locator(".cell.suspended a")
    told = re.compile(rf"\d suspended: {late}, 3 tries")
    expect(cell).to_have_attribute("title", told, timeout=60_000)
    page.get_by_role("link", name="Now").click()
    desk.heal()
    page.get_by_role("button", name="Let the channel go on").first.click()
    desk.delivered(late)
    expect(page.locator("#todo")).to_have_text("Nothing needs you", timeout=60_000)
    resumed = [said for kind, said in journal_of(desk, late) if kind == "resumed"]
    assert [said.get("by") for said in resumed][:1] == ["olga"], resumed
    window.open(f"message?id={late}")
    expect(page.locator(".arrow.lost")).not_to_have_count(0)
    expect(page.locator("header.title")).to_contain_text("delivered")


def test_a_message_is_abandoned_by_name(desk: Desk, window: Window) -> None:
    page = window.sign_in(by="olga")
    desk.cut()
    given_up = desk.send("PO-0200@acme")
    window.open(f"message?id={given_up}")
    expect(page.locator("header.title")).to_contain_text("suspended", timeout=60_000)
    page.locator("summary", has_text="Abandon").click()
    page.get_by_role("button", name="Abandon it").click()
    expect(page.locator(".done")).to_contain_text("given up")
    assert ("abandoned", "olga") in [
        (kind, said.get("by")) for kind, said in journal_of(desk, given_up)
    ]
    desk.heal()
    expect(page.get_by_role("button", name="Resend")).to_have_count(0)


def test_a_channel_is_paused_and_goes_on(desk: Desk, window: Window) -> None:
    page = window.sign_in(by="olga")
    window.open("channels")
    page.get_by_text("Pause the channel …").click()
    page.get_by_label("reason").fill("stock-taking")
    page.get_by_role("button", name="Pause the channel").click()
    expect(page.locator(".channel")).to_contain_text("paused by olga: stock-taking")
    waits = desk.send("PO-0300@acme")
    page.get_by_role("button", name="Let the channel go on").click()
    desk.delivered(waits)


def test_a_partner_is_asked_and_tried(desk: Desk, window: Window) -> None:
    page = window.sign_in()
    window.open("partner?name=globex")
    page.get_by_role("button", name="Ping").click()
    expect(page.locator(".done")).to_have_text("It answered.")
    page.get_by_role("button", name="Test", exact=True).click()
    expect(page.locator("#test")).to_contain_text("Under way")
    expect(page.locator("#test .checks")).to_contain_text("works", timeout=90_000)
    expect(page.locator("#test")).to_contain_text("Ended")


def test_a_session_that_is_over_leads_to_the_sign_in(desk: Desk, window: Window) -> None:
    page = window.sign_in()
    expect(page.locator("#link")).to_have_text("live")
    file = desk.settings.path(desk.settings.console.sign_ins)
    kept = json.loads(file.read_text())
    for each in kept["sessions"].values():
        each["until"] = 1
    file.write_text(json.dumps(kept))
    # The page that is open finds out by itself.
    page.wait_for_url("**/console/sign-in", timeout=60_000)
    page.goto(f"{desk.url}/console/messages")
    assert page.url.endswith("/console/sign-in")
    # Whatever the page asked for meanwhile was refused.
    assert all("401" in each for each in window.errors), window.errors
    window.errors.clear()


def test_who_signs_out_is_out(desk: Desk, window: Window) -> None:
    page = window.sign_in()
    before = window.context.cookies()
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Sign out").click()
    assert page.url.endswith("/console/sign-in")
    cookies = {each["name"]: each["value"] for each in before}
    assert httpx.get(f"{desk.url}/console/", cookies=cookies).status_code == 303


def test_the_theme_is_switched_and_kept(window: Window) -> None:
    page = window.sign_in()
    page.get_by_role("button", name="Switch between light and dark").click()
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


EVIL = "<img src=x onerror=pwn()>'\"--></script><script>pwn()</script>{{7*7}}\u202e"


def _harmless(page: Page) -> None:
    """Nothing of what was shown became part of the page."""
    assert page.evaluate("typeof pwn") == "undefined"
    assert page.locator("img[src=x], script:not([src]), main style, main iframe").count() == 0
    assert "49" not in page.locator("h1").inner_text()


def test_hostile_words_are_only_words(desk: Desk, window: Window) -> None:
    evil = EVIL.replace("\u202e", "").replace(" ", "/")
    desk.send(
        f"{evil}@acme",
        b"<script>pwn()</script></pre>\x00\xff\x1b[2J",
        f"{EVIL}.xml".replace("/", "_"),
    )
    desk.delivered(f"{evil}@acme")
    channel = desk.do("channels")[0].key  # type: ignore[index]
    lake = desk.settings.path(Path("../lake"))
    finding = {"kind": EVIL, "message_id": EVIL, "sentence": EVIL}
    told = SUMMARY | {"findings": [finding], "verdicts": {EVIL: 1}, "nodes": {EVIL: {"seq": 1}}}
    (lake / "summary.json").write_text(json.dumps(told))
    log = load(desk.settings.folder, environ={}).settings.path(Path("data/handler.log"))
    with log.open("a") as file:
        file.write(EVIL + "\n")
    page = window.sign_in(by=EVIL.replace("\u202e", "")[:60])
    for path in (
        *(path for name, path in PAGES.items() if name != "problem"),
        f"message?id={quote(evil)}%40acme&document=1", f"messages?q={quote(EVIL)}",
        f"?done={quote(EVIL)}",
    ):  # fmt: skip
        window.open(path)
        expect(page.locator("h1")).to_be_visible()
        _harmless(page)
    desk.do("pause", channel=channel, reason=EVIL, by=EVIL)
    for path in ("", "channels"):
        window.open(path)
        _harmless(page)
        expect(page.locator("main")).to_contain_text("onerror=pwn()")
    desk.do("resume", channel=channel)
    (lake / "summary.json").write_text(json.dumps(SUMMARY))
    for path in (
        "message?id=%00",
        "partner?name=..%2F..%2Foncewire",
        "messages?after=x",
        "static/..%2F..%2Fpages.py",
    ):
        answer = httpx.get(
            f"{desk.url}/console/{path}",
            cookies={each["name"]: each["value"] for each in window.context.cookies()},
        )
        assert 400 <= answer.status_code < 500, (path, answer.status_code)
