"""A connection that speaks the Chrome DevTools Protocol, with a deadline on every command."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException


class ProtocolError(Exception):
    """The browser refused a command, or its connection is gone."""


class Connection:
    """One client of a browser. Events go to `react` in their order; it must not wait."""

    def __init__(self, socket: ClientConnection, react: Callable[[str, dict[str, Any]], None], seconds: float) -> None:
        self.socket, self.react, self.seconds = socket, react, seconds
        self.asked = 0
        self.waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.reading = asyncio.ensure_future(self._read())

    @classmethod
    async def open(
        cls, url: str, react: Callable[[str, dict[str, Any]], None], seconds: float, longest: int
    ) -> Connection:
        """Connect. A message of more than `longest` bytes ends the connection."""
        try:
            socket = await connect(url, proxy=None, ping_interval=None, compression=None, max_size=longest)
        except (OSError, TimeoutError, WebSocketException) as error:
            raise ProtocolError(str(error)) from None
        return cls(socket, react, seconds)

    async def send(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """One command and its result. Raises TimeoutError when the browser does not answer in time."""
        self.asked += 1
        number = self.asked
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        answer = asyncio.get_running_loop().create_future()
        self.waiting[number] = answer
        try:
            if self.reading.done():
                raise ProtocolError("the connection is closed")
            await self.socket.send(json.dumps(message))
            found: dict[str, Any] = await asyncio.wait_for(answer, self.seconds)
            return found
        except WebSocketException as error:
            raise ProtocolError(str(error)) from None
        finally:
            self.waiting.pop(number, None)

    async def _read(self) -> None:
        try:
            async for text in self.socket:
                message = json.loads(text)
                answer = self.waiting.get(message.get("id", 0))
                if answer is None:
                    self.react(message.get("method", ""), message.get("params", {}))
                elif not answer.done() and "error" in message:
                    answer.set_exception(ProtocolError(str(message["error"].get("message", "refused"))))
                elif not answer.done():
                    answer.set_result(message.get("result", {}))
        except (WebSocketException, ValueError):
            pass
        finally:
            for answer in self.waiting.values():
                if not answer.done():
                    answer.set_exception(ProtocolError("the connection is closed"))

    async def close(self) -> None:
        """End the connection without waiting for a browser that hangs."""
        self.reading.cancel()
        with contextlib.suppress(TimeoutError, WebSocketException, OSError):
            await asyncio.wait_for(self.socket.close(), 1.0)
        with contextlib.suppress(asyncio.CancelledError):
            await self.reading
