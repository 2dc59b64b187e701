"""Chromium behind the browser interface: one long-lived process, a context for each session, no way out but our proxy.

    with ChromiumBrowser() as browser:
        session = browser.open(Web(), ["http://onestopmarket.com/"])

Playwright runs in a thread with an event loop of its own; the methods here hand work to it, so that many sessions can
be stepped at once (`act_many`, `observe_many`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import shutil
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

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

from oneiro.errors import OneiroError
from oneiro.worlds.web.actions import Action
from oneiro.worlds.web.browser.base import Browser, BrowserDied, Limits, Outcome, Session
from oneiro.worlds.web.browser.chromium_session import ChromiumSession
from oneiro.worlds.web.browser.server import Server
from oneiro.worlds.web.page import Page
from oneiro.worlds.web.sites import Web

Result = TypeVar("Result")
START_SECONDS = 60.0
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


class ChromiumBrowser(Browser):
    """One Chromium for all sessions."""

    name = "chromium"

    def __init__(self, limits: Limits | None = None, executable: str | None = None, headed: bool = False) -> None:
        super().__init__(limits)
        self.executable = executable or shutil.which("chromium")
        self.headed = headed
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="chromium", daemon=True)
        self.thread.start()
        self.server = Server(self.limits)
        self.playwright: Playwright | None = None
        self.process: Process | None = None
        try:
            self.wait(self._start(), START_SECONDS)
        except (PlaywrightError, BrowserDied) as error:
            self.close()
            reason = str(error).strip().splitlines()[0] if str(error).strip() else "it does not answer"
            raise OneiroError(
                f"Chromium does not start ({reason}); "
                "install it (`apt install chromium` or `playwright install chromium`)"
            ) from None

    async def _start(self) -> None:
        if self.playwright is None:
            self.playwright = await async_playwright().start()
            await self.server.start()
        switches = [f"--proxy-server=http://127.0.0.1:{self.server.port}", *SWITCHES]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            switches.append("--no-sandbox")
        self.process = await self.playwright.chromium.launch(
            executable_path=self.executable,
            headless=not self.headed,
            args=switches,
            ignore_default_args=["--disable-popup-blocking"],
            timeout=START_SECONDS * 1000,
        )

    def wait(self, work: Coroutine[Any, Any, Result], seconds: float | None = None) -> Result:
        """Run something in the browser's thread. A browser that does not answer at all is dead."""
        bound = seconds if seconds is not None else 4 * self.limits.seconds + 10
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(bound)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise BrowserDied("Chromium does not answer") from None
        except PlaywrightError as error:
            raise BrowserDied(f"Chromium: {str(error).splitlines()[0]}") from None

    def open(self, web: Web, urls: Sequence[str], cookies: Mapping[str, Mapping[str, str]] | None = None) -> Session:
        if self.process is None or not self.process.is_connected():
            self.count("restart")
            self.wait(self._start(), START_SECONDS)
        session = ChromiumSession(self, web)
        self.wait(session._open(urls, cookies or {}))
        return session

    def count(self, event: str) -> None:
        """One more of an event."""
        self.counts[event] = self.counts.get(event, 0) + 1

    def act_many(self, sessions: Sequence[Session], actions: Sequence[Action]) -> list[Outcome]:
        return self._at_once([(one, one._act(action)) for one, action in zip(sessions, actions, strict=True)])  # type: ignore[attr-defined]

    def observe_many(self, sessions: Sequence[Session]) -> list[Page]:
        return self._at_once([(one, one._observe()) for one in sessions])  # type: ignore[attr-defined]

    def _at_once(self, work: list[tuple[Session, Coroutine[Any, Any, Result]]]) -> list[Result]:
        async def together() -> list[Result]:
            return list(await asyncio.gather(*[coroutine for _, coroutine in work]))

        return self.wait(together(), 4 * self.limits.seconds + 10 + len(work))

    def close(self) -> None:
        async def stop() -> None:
            if self.process is not None:
                await self.process.close()
            if self.playwright is not None:
                await self.playwright.stop()
            await self.server.stop()

        if not self.thread.is_alive():
            return
        try:
            self.wait(stop(), 20.0)
        except BrowserDied:
            pass
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(5.0)
