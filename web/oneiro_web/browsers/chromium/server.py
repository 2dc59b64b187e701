"""The only way out of Chromium: a proxy on loopback that answers from the sessions' own webs and refuses all else.

A session is known by a secret header that its browser context adds to every request; pages cannot read or forge it.
Nothing is ever sent on to a network: a request is answered in this process or refused, `CONNECT` (TLS, web sockets)
always.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from oneiro_web.browsers.base import Limits, is_download
from oneiro_web.sites import Web
from oneiro_web.sites.web import NOWHERE, Reply

HEADER = "x-oneiro-session"
MAX_HEAD_BYTES = 1 << 16  # more headers than any browser sends
MAX_BODY_BYTES = 1 << 20  # sites refuse forms of a sixteenth of it
MOST_CONNECTIONS = 512
NOT_PASSED = frozenset(("connection", "content-length", "transfer-encoding", "keep-alive", "upgrade"))
NO_ICON = Reply(404, (), b"")
STAY = Reply(204, (), b"")
"""The answer to a link to a file: the tab stays where it is."""
LATE = Reply(504, (("content-type", "text/html"),), b"<title>Too slow</title><p>The site did not answer in time.")


@dataclass
class Guest:
    """A session behind the proxy."""

    web: Web
    tell: Callable[[str], None]
    """Called with `blocked` when it asked for something outside, with `download` when it was given a file."""
    turn: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.turn = asyncio.Semaphore(self.web.at_once)


class ProxyServer:
    """The proxy. It lives in the event loop that drives the browser."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.guests: dict[str, Guest] = {}
        self.port = 0
        self.refused = 0
        """Requests that no session made, or that wanted a tunnel."""
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self) -> None:
        """Listen on a free port of this machine."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=MAX_HEAD_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    def admit(self, web: Web, tell: Callable[[str], None]) -> str:
        """Let a session in; the secret that its requests must carry."""
        secret = secrets.token_hex(16)
        self.guests[secret] = Guest(web, tell)
        return secret

    def forget(self, secret: str) -> None:
        """The session is over."""
        self.guests.pop(secret, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            while self._open <= MOST_CONNECTIONS and await self._answer(reader, writer):
                pass
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether the connection stays open."""
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, url, _ = first.split(" ", 2)
        headers: dict[str, str] = {}
        for line in lines:
            key, colon, value = line.partition(":")
            if colon:
                headers[key.strip().lower()] = value.strip()
        guest = self.guests.get(headers.pop(HEADER, ""))
        if guest is None or method == "CONNECT" or "upgrade" in headers:
            self.refused += 1
            if guest is not None:
                guest.tell("blocked")
            await self._send(writer, NOWHERE, method)
            return False
        length = int(headers.get("content-length", "0"))
        if length > MAX_BODY_BYTES or "transfer-encoding" in headers:
            await self._send(writer, Reply(413, (), b""), method)
            return False
        body = await asyncio.wait_for(reader.readexactly(length), self.limits.seconds) if length else b""
        await self._send(writer, await self._ask(guest, method, url, headers, body), method)
        return True

    async def _ask(self, guest: Guest, method: str, url: str, headers: dict[str, str], body: bytes) -> Reply:
        if url.endswith("/favicon.ico"):
            return NO_ICON
        for name in ("host", "proxy-connection", "connection"):
            headers.pop(name, None)
        try:
            async with asyncio.timeout(self.limits.seconds), guest.turn:
                reply = await asyncio.to_thread(guest.web.request, method, url, headers, body)
        except TimeoutError:
            return LATE
        if reply is NOWHERE:
            guest.tell("blocked")
        elif headers.get("accept", "").startswith("text/html") and reply.status == 200 and is_download(reply):
            guest.tell("download")
            return STAY
        return reply

    async def _send(self, writer: asyncio.StreamWriter, reply: Reply, method: str) -> None:
        body = reply.body[: self.limits.page_bytes]
        try:
            phrase = HTTPStatus(reply.status).phrase
        except ValueError:
            phrase = "Unknown"
        lines = [f"HTTP/1.1 {reply.status} {phrase}", f"content-length: {len(body)}"]
        lines += [f"{key}: {value}" for key, value in reply.headers if key not in NOT_PASSED]
        if not reply.header("cache-control"):
            lines.append("cache-control: no-store")
        safe = [line.replace("\r", "").replace("\n", "") for line in lines]
        writer.write(("\r\n".join(safe) + "\r\n\r\n").encode("latin-1", "replace"))
        if method != "HEAD":
            writer.write(body)
        await asyncio.wait_for(writer.drain(), self.limits.seconds)
