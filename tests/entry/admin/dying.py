"""A handler and its admin port as processes that are forked, so that many deaths cost little."""

import asyncio
import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import uvicorn

from oncewire.entry.admin.app import AdminApp
from oncewire.entry.party.settings import load
from oncewire.entry.running.serving import serve

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.entry.admin.dying"])


def serve_alone(folder: Path, ready: Connection, point: str) -> None:
    """A handler, as `oncewire serve` runs it; it dies where the point says."""
    os.environ["ONCEWIRE_KILL_AT"] = point
    settings = load(folder, environ={}).settings
    asyncio.run(serve(settings, lambda _: ready.send("ready")))


def admin_alone(folder: Path, port: int) -> None:
    """Its admin port, which outlives it."""
    settings = load(folder, environ={}, flags={"admin.port": port}).settings

    async def work() -> None:
        config = uvicorn.Config(AdminApp(settings), port=port, lifespan="off", log_config=None)
        await uvicorn.Server(config).serve()

    asyncio.run(work())
