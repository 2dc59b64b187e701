"""Lightpanda behind the browser interface: JavaScript without drawing.

    with LightpandaBrowser() as browser:
        session = browser.open(Web(), ["http://onestopmarket.com/"])

Its binary is a separate process from the package `lightpanda`. It has no layout, so an element is clicked by a script
of ours, and the tree of a page is built by our own walker from the document as it is now. A tab is one connection. A
page that hangs loses its connection, not the process: an empty tab takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from oneiro.errors import OneiroError
from oneiro.worlds.web.browser.base import BrowserDied, Limits, Session
from oneiro.worlds.web.browser.devtools import ProtocolError
from oneiro.worlds.web.browser.lightpanda_session import LightpandaSession
from oneiro.worlds.web.browser.waiting import WaitingBrowser
from oneiro.worlds.web.sites import Web

MOST_TABS = 512
"""Connections of one process."""
HEAP_MEGABYTES = 512


class LightpandaBrowser(WaitingBrowser):
    """One process for all sessions."""

    name = "lightpanda"
    failure = ProtocolError
    start_seconds = 20.0

    def __init__(self, limits: Limits | None = None, executable: str | None = None) -> None:
        self.executable = executable or find_executable()
        super().__init__(limits)
        self.process: asyncio.subprocess.Process | None = None
        self.url = ""
        try:
            self.wait(self._start(), self.start_seconds)
        except (BrowserDied, OSError) as error:
            self.close()
            raise OneiroError(f"Lightpanda does not start ({error}): {self.executable}") from None

    async def _start(self) -> None:
        if not self.server.port:
            await self.server.start()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = {
            "protocol": "cdp", "host": "127.0.0.1", "port": port, "cdp-max-connections": MOST_TABS,
            "http-proxy": f"http://127.0.0.1:{self.server.port}", "http-max-response-size": self.limits.page_bytes,
            "http-timeout": int(1000 * self.limits.seconds), "watchdog-ms": int(1000 * self.limits.seconds / 2),
            "v8-max-heap-mb": HEAP_MEGABYTES, "timezone": "UTC", "ws-max-concurrent": 0, "log-level": "fatal",
        }  # fmt: skip
        self.process = await asyncio.create_subprocess_exec(
            self.executable,
            "serve",
            *[part for name, value in options.items() for part in (f"--{name}", str(value))],
            "--disable-metrics",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={"LIGHTPANDA_DISABLE_TELEMETRY": "true", "PATH": os.environ.get("PATH", "")},
        )
        self.url = f"ws://127.0.0.1:{port}/"
        while True:  # until it listens; the caller's deadline ends a process that never does
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                if self.process.returncode is not None:
                    raise BrowserDied(f"exit code {self.process.returncode}") from None
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def open(self, web: Web, urls: Sequence[str], cookies: Mapping[str, Mapping[str, str]] | None = None) -> Session:
        self._ensure()
        session = LightpandaSession(self, web)
        self.turn(session._open(urls, cookies or {}))
        return session

    async def _stop(self) -> None:
        if self.process is not None and self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()


def find_executable() -> str:
    """The binary inside the package `lightpanda`, or on the path."""
    package = importlib.util.find_spec("lightpanda")
    inside = [Path(place) / "lightpanda" for place in (package.submodule_search_locations or ())] if package else []
    found = next((str(path) for path in inside if path.is_file()), None) or shutil.which("lightpanda")
    if found is None:
        raise OneiroError("Lightpanda is not installed; install it with `pip install 'oneiro[lightpanda]'`")
    return found
