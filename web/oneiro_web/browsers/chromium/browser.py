"""Chromium behind the browser interface: one long-lived process, a context for each session, no way out but our proxy.

    with ChromiumBrowser() as browser:
        session = browser.open(Web(), ["http://onestopmarket.com/"])

Playwright runs in a thread with an event loop of its own; the methods here hand work to it, so that many sessions can
be stepped at once (`act_many`, `observe_many`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping, Sequence

from playwright.async_api import (
    Browser as Process,
)
from playwright.async_api import (
    Error as PlaywrightError,
)
from playwright.async_api import (
    Playwright,
    async_playwright,
)

from oneiro_web.browsers.base import BrowserDied, Limits, Session
from oneiro_web.browsers.chromium.session import ChromiumSession
from oneiro_web.browsers.chromium.waiting import WaitingBrowser
from oneiro_web.errors import WebError
from oneiro_web.sites import Web

END_SECONDS = 5.0
SWITCHES = (
    "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-quic",
    "--disable-sync",
    "--dns-prefetch-disable",
    "--no-pings",
    "--disable-gpu",
    "--mute-audio",
)


class ChromiumBrowser(WaitingBrowser):
    """One Chromium for all sessions."""

    name = "chromium"
    failure = PlaywrightError
    start_seconds = 60.0

    def __init__(self, limits: Limits | None = None, executable: str | None = None, headed: bool = False) -> None:
        super().__init__(limits)
        self.executable = executable or shutil.which("chromium")
        self.headed = headed
        self.playwright: Playwright | None = None
        self.process: Process | None = None
        self.group = 0
        """Chromium's processes, to kill them where they do not end."""
        try:
            self.wait(self._start(), self.start_seconds)
        except (PlaywrightError, BrowserDied) as error:
            self.close()
            reason = str(error).strip().splitlines()[0] if str(error).strip() else "it does not answer"
            raise WebError(
                f"Chromium does not start ({reason}); "
                "install it (`apt install chromium` or `playwright install chromium`)"
            ) from None

    async def _start(self) -> None:
        if self.playwright is None:
            self.playwright = await async_playwright().start()
        if not self.server.port:
            await self.server.start()
        switches = [f"--proxy-server=http://127.0.0.1:{self.server.port}", *SWITCHES]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            switches.append("--no-sandbox")
        self.process = await self.playwright.chromium.launch(
            executable_path=self.executable,
            headless=not self.headed,
            args=switches,
            ignore_default_args=["--disable-popup-blocking"],
            timeout=self.start_seconds * 1000,
        )
        protocol = await self.process.new_browser_cdp_session()
        running = (await protocol.send("SystemInfo.getProcessInfo"))["processInfo"]
        leader = next((int(one["id"]) for one in running if one["type"] == "browser"), 0)
        self.group = leader if leader and os.getpgid(leader) == leader else 0
        await protocol.detach()

    def open(self, web: Web, urls: Sequence[str], cookies: Mapping[str, Mapping[str, str]] | None = None) -> Session:
        self._ensure()
        session = ChromiumSession(self, web)
        self.turn(session._open(urls, cookies or {}))
        return session

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.is_connected()

    async def _stop(self) -> None:
        if self.hung and self.group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.group, signal.SIGKILL)
        ends = [self.process.close()] if self.process is not None else []
        ends += [self.playwright.stop()] if self.playwright is not None else []
        for end in ends:
            with contextlib.suppress(PlaywrightError, TimeoutError):
                await asyncio.wait_for(end, END_SECONDS)
        self.process = self.playwright = None
