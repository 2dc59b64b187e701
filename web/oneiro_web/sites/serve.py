"""The sites behind a server on loopback, for a person with a browser: `oneiro web serve --port 8000`.

Every site has a host of its own (`shopping.localhost`), which browsers resolve to this machine by themselves; the bare
address lists them. All visitors share one web, until the button on the first page begins it again.
"""

from __future__ import annotations

import asyncio
import os
import socket

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from oneiro_web.errors import WebError
from oneiro_web.sites import SITES, Web
from oneiro_web.sites.base import application, styles, templates
from oneiro_web.sites.web import site_at


class Served:
    """An ASGI application over one web."""

    def __init__(self, content: int = 0) -> None:
        self.web = Web(content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/favicon.ico":  # every browser asks for one; the sites have none
            await Response(status_code=204)(scope, receive, send)
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").partition(":")[0].lower()
        site = site_at(host)
        if site is not None:
            await application(site)({**scope, **self.web.scope(site)}, receive, send)
        else:
            await self.first_page(Request(scope, receive))(scope, receive, send)

    def first_page(self, request: Request) -> Response:
        """The list of sites; the button on it begins the web again."""
        if request.method == "POST":
            self.web.close()
            self.web = Web(self.web.content)
            return RedirectResponse("/", 303)
        if request.url.path == "/static/style.css":
            return Response(styles()["style.css"], media_type="text/css")
        page = templates().get_template("index.html")
        port = f":{request.url.port}" if request.url.port else ""
        sites = [(site, f"http://{site.name.replace('_', '-')}.localhost{port}{site.home}") for site in SITES.values()]
        return HTMLResponse(page.render(sites=sites, content=self.web.content))


def listen(port: int, host: str = "127.0.0.1") -> socket.socket:
    """The port, taken for `serve`."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise WebError(
            f"cannot listen on {host}:{port} ({os.strerror(error.errno or 0)}); choose another --port"
        ) from error


def serve(listening: socket.socket, content: int = 0) -> None:
    """Answer until Ctrl-C."""
    import uvicorn

    config = uvicorn.Config(Served(content), log_level="warning", lifespan="off")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))
