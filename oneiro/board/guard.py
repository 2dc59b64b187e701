"""Who may ask the board: requests of other sites are refused, other machines need the token."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE = "oneiro-board"
MAX_BODY_BYTES = 1 << 20
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
FRAME_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; sandbox"
"""Of a page of a site inside a frame of the board: it is drawn, and can do nothing."""


class Guard:
    """Refuses what a page of another site could ask for, and puts the headers on every answer.

    A name that an attacker's DNS points at this machine arrives with the attacker's Host header; loopback alone would
    let it in. Where the board is open to other machines, by whatever name, every request needs the token, once in the
    address and then in a cookie.
    """

    def __init__(self, app: ASGIApp, token: str, closed: bool) -> None:
        self.app, self.token, self.closed = app, token, closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refuse(Request(scope))
        await (refusal or self.app)(scope, receive, send_with_headers)

    def _refuse(self, request: Request) -> Response | None:
        if not self.closed and host_name(request.headers.get("host", "")) not in LOOPBACK:
            return PlainTextResponse("this board answers to another name; open the address it printed", 421)
        if int(request.headers.get("content-length") or 0) > MAX_BODY_BYTES:
            return PlainTextResponse("too long", 413)
        if self.closed and not same_token(request.cookies.get(COOKIE, ""), self.token):
            if not same_token(request.query_params.get("token", ""), self.token):
                return PlainTextResponse("open the address that the board printed: it holds a token", 403)
            answer = RedirectResponse(request.url.remove_query_params("token"), 303)
            answer.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            return answer
        return None


def same_token(given: str, token: str) -> bool:
    """In a time that tells nothing about how much of it was right."""
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())


def host_name(header: str) -> str:
    """The name in a Host header, without its port; nothing for what is no header of a browser."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
