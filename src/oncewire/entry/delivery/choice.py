"""Which way the settings choose for documents that arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncewire.entry.settings import ApplicationWay

if TYPE_CHECKING:
    from oncewire.entry.settings import Settings
    from oncewire.handler.application import Application


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


def check_choice(settings: Settings) -> None:
    """Whether the chosen way can work, without beginning it."""
    chosen = settings.application
    if chosen.way is ApplicationWay.WEBHOOK:
        application_of(settings)
    elif chosen.way is ApplicationWay.FUNCTION:
        from oncewire.entry.delivery.function import split_name

        split_name(chosen.function)
