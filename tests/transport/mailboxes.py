"""A server that keeps mail for one mailbox, for tests, and a mail server that puts mail there."""

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from aiosmtpd.smtp import SMTP
from imapclient import IMAPClient

from oncewire.transport.http.tls import Identity
from oncewire.transport.smtp.relay import MailTls
from oncewire.transport.smtp.transport import MailboxSettings
from tests.ports import free_port

USER, PASSWORD = "beta", "a word that nobody knows"

# The library's own command line, with a folder whose mail is in memory.
_SERVE = "from pymap.main import main; main()"


class Mailboxes:
    """The running server."""

    def __init__(self, port: int, user: str = USER) -> None:
        self.port, self.user = port, user
        self._client: IMAPClient | None = None
        self._one_at_a_time = threading.Lock()

    def settings(self, **more: Any) -> MailboxSettings:
        said = {"tls": MailTls.NONE, "every": 0.02, **more}
        return MailboxSettings("127.0.0.1", self.user, PASSWORD, self.port, **said)

    @contextlib.contextmanager
    def opened(self) -> Iterator[IMAPClient]:
        """The mailbox, as somebody else sees it; who comes in once stays, for that takes long."""
        with self._one_at_a_time:
            if self._client is None:
                self._client = IMAPClient("127.0.0.1", self.port, ssl=False)
                self._client.login(self.user, PASSWORD)
            self._client.select_folder("INBOX")
            yield self._client

    def put(self, *mails: bytes) -> None:
        with self.opened() as client:
            for mail in mails:
                client.append("INBOX", mail)

    def flags(self) -> list[set[bytes]]:
        """The flags of each mail that is there."""
        with self.opened() as client:
            found = client.fetch(client.search(), ["FLAGS"]) if client.search() else {}
            return [set(told[b"FLAGS"]) - {b"\\Recent"} for told in found.values()]

    @contextlib.asynccontextmanager
    async def mail_server(self) -> AsyncIterator[int]:
        """Takes mail and puts it into the mailbox."""
        put, user = self.put, self.user

        class Put:
            async def handle_DATA(  # noqa: N802
                self, _server: Any, _session: Any, envelope: Any
            ) -> str:
                got = b"Received: from there\r\n by here; today\r\nReceived: before\r\n"
                await asyncio.to_thread(put, got + bytes(envelope.content))
                return "250 OK"

            async def handle_RCPT(  # noqa: N802
                self, _server: Any, _session: Any, envelope: Any, address: str, _more: Any
            ) -> str:
                if not address.startswith(f"{user}@"):
                    return "550 nobody of that name here"
                envelope.rcpt_tos.append(address)
                return "250 OK"

        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: SMTP(Put(), hostname="relay", loop=loop), "127.0.0.1", 0
        )
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()


@contextlib.contextmanager
def mailboxes(identity: Identity | None = None, user: str = USER) -> Iterator[Mailboxes]:
    """A server in a process of its own, with STARTTLS where it has an identity."""
    port = free_port()
    arguments = [sys.executable, "-c", _SERVE, "--host", "127.0.0.1", "--port", str(port)]
    if identity is None:
        arguments.append("--no-tls")
    else:
        arguments += ["--cert", str(identity.certificate), "--key", str(identity.key)]
    arguments += ["dict", "--demo-user", user, "--demo-password", PASSWORD]
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        _wait(port, process)
        yield Mailboxes(port, user)
    finally:
        process.kill()
        process.wait()


def _wait(port: int, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        assert process.poll() is None, "the server of mailboxes ended"
        with contextlib.suppress(OSError):
            IMAPClient("127.0.0.1", port, ssl=False).shutdown()
            return
        time.sleep(0.05)
    raise AssertionError("the server of mailboxes did not start")


def empty(folder: Mailboxes) -> None:
    """Take away what an earlier test left."""
    with folder.opened() as client:
        client.delete_messages(client.search())
        client.expunge()
