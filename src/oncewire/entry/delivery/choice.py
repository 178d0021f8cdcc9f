"""Which way the settings choose for documents that arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from oncewire.entry.party.settings import ApplicationWay
from oncewire.errors import OncewireError

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings
    from oncewire.handler.delivering.application import Application


def application_of(settings: Settings) -> Application | None:
    """The application to call; None where it asks by itself (pull)."""
    chosen = settings.application
    if chosen.way is ApplicationWay.DIRECTORY:
        from oncewire.entry.delivery.directory import Directory

        return Directory(settings.path(chosen.folder))
    if chosen.way is ApplicationWay.WEBHOOK:
        from oncewire.entry.delivery.webhook import Webhook

        return Webhook(chosen.url, chosen.secret)
    if chosen.way is ApplicationWay.FUNCTION:
        from oncewire.entry.delivery.function import Function, find_function

        return Function(find_function(chosen.function))
    return None


def check_choice(settings: Settings) -> Iterator[tuple[str, OncewireError]]:
    """What keeps the chosen way from working, by setting; nothing is called or delivered."""
    chosen = settings.application
    checks: dict[str, Callable[[], object]] = {}
    if chosen.way is ApplicationWay.WEBHOOK:
        from oncewire.entry.delivery.webhook import check_url, secret_bytes

        checks["application.url"] = lambda: check_url(chosen.url)
        checks["application.secret"] = lambda: secret_bytes(chosen.secret)
    elif chosen.way is ApplicationWay.FUNCTION:
        from oncewire.entry.delivery.function import find_function

        checks["application.function"] = lambda: find_function(chosen.function)
    for name, check in checks.items():
        try:
            check()
        except OncewireError as error:
            yield name, error
