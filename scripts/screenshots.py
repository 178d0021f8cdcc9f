"""Make the pictures of docs/img anew: the console of a demo, in a browser without a screen.

With a folder as its argument it makes pictures of every page there instead, wide and narrow, light
and dark, to be looked at.
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs/img"
PAGES = {
    "now": "",
    "messages": "messages",
    "channels": "channels",
    "partners": "partners",
    "partner": "partner?name=seller",
    "ledger": "ledger",
    "health": "health?doctor=1",
}
WIDE, PHONE = (1280, 800), (390, 844)


def main() -> None:
    """Run a demo, look at it, end it."""
    every = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as folder:
        command = ["oncewire", "demo", f"{folder}/demo", "--keep", "--messages", "120"]
        demo = subprocess.Popen(
            [sys.executable, "-m", *command, *([] if every else ["--no-spark"])],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert demo.stdout is not None
            link = next(line.split()[1] for line in demo.stdout if line.startswith("console"))
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox"]
                )
                _look(browser, link, demo, every)
                browser.close()
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait(60)


def _look(browser: Browser, link: str, demo: subprocess.Popen[str], every: Path | None) -> None:
    page = browser.new_page(viewport={"width": WIDE[0], "height": WIDE[1]})
    page.goto(link)
    page.wait_for_url("**/console/")
    home = page.url
    assert demo.stdout is not None
    next(line for line in demo.stdout if line.startswith("It goes on"))
    time.sleep(3)
    order = _most_troubled(page, home)
    if every is None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.emulate_media(color_scheme="dark")
        page.goto(f"{home}message?id={order}")
        page.screenshot(path=PICTURES / "console-message.png")
        page.emulate_media(color_scheme="light")
        page.goto(home)
        page.get_by_role("button", name="Break something").click()
        page.get_by_text("seller is silent").wait_for()
        time.sleep(4)
        page.screenshot(path=PICTURES / "console-now.png")
        return
    every.mkdir(parents=True, exist_ok=True)
    for name, path in {**PAGES, "message": f"message?id={order}&document=1"}.items():
        for size in (WIDE, PHONE):
            page.set_viewport_size({"width": size[0], "height": size[1]})
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                page.goto(home + path)
                time.sleep(0.5)
                page.screenshot(path=every / f"{name}-{size[0]}-{scheme}.png", full_page=True)


def _most_troubled(page: Page, home: str) -> str:
    """An order that was tried several times, but not too often for a picture, and of which a copy
    was stopped, if there is one."""
    found = json.loads(page.request.get(f"{home}messages.json?q=PO-00").text())
    tried = [row["message_id"] for row in found if row["tries"] and 2 <= row["tries"] <= 4]
    copied = [
        order
        for order in tried
        if "a copy arrived" in page.request.get(f"{home}message?id={order}").text()
    ]
    return str((copied or tried)[0])


if __name__ == "__main__":
    main()
