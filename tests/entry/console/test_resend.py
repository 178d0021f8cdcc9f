"""Messages that failed are sent again from the list that shows them, and arrive once."""

import zipfile

import pytest
from playwright.sync_api import expect

from tests.entry.console.conftest import Desk, Window
from tests.entry.console.test_console import journal_of

pytestmark = pytest.mark.process

PROFILE, SIGN = "ebms2", True


def test_all_that_failed_is_sent_again_and_arrives_once(desk: Desk, window: Window) -> None:
    page = window.sign_in(by="olga")
    desk.cut()
    failed = [desk.send(f"PO-{number}@acme") for number in range(3)]
    expect(page.locator(".todo")).to_contain_text("3 messages to globex", timeout=60_000)
    page.get_by_role("link", name="Show them").click()
    expect(page.locator("[data-rows] a.id")).to_have_count(3)
    desk.heal()
    page.get_by_role("button", name="Resend the 3 that failed").click()
    expect(page.locator(".done")).to_contain_text("same MessageId")
    for message_id in failed:
        desk.delivered(message_id)
        kinds = [kind for kind, _ in journal_of(desk, message_id)]
        assert kinds.count("submitted") == kinds.count("acknowledged") == 1
        assert ("resumed", "olga") in [
            (kind, said.get("by")) for kind, said in journal_of(desk, message_id)
        ]
    expect(page.locator("[data-rows] tbody")).to_contain_text("Nothing was found")


def test_what_is_signed_is_proved(desk: Desk, window: Window) -> None:
    page = window.sign_in()
    desk.delivered(desk.send("PO-proved@acme"))
    window.open("message?id=PO-proved@acme")
    with page.expect_download() as download:
        page.get_by_role("link", name="Evidence").click()
    assert download.value.suggested_filename == "evidence-PO-proved_acme.zip"
    with zipfile.ZipFile(download.value.path()) as archive:
        assert archive.testzip() is None
        assert "verify.sh" in archive.namelist()


def test_a_handler_that_is_down_is_told_and_back(desk: Desk, window: Window) -> None:
    page = window.sign_in()
    desk.served.stop("acme")
    expect(page.locator(".todo")).to_contain_text("The handler does not answer", timeout=60_000)
    window.open("health")
    expect(page.locator("h1")).to_have_text("Not well")
    desk.served.start("acme")
    expect(page.locator("h1")).to_have_text("Well", timeout=60_000)
