"""What an episode's browser asked and was answered, for graders that look at it.

    web = TrafficWeb(Web(content=3))
    web.traffic[-1].method, web.traffic[-1].status

Requests that a grader makes after the episode are recorded too, so it takes the traffic first.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from oneiro_web.sites.base import Site
from oneiro_web.sites.web import Reply, Web

MOST = 5000
"""Requests that are kept, the last ones."""
MAX_BODY_BYTES = 1 << 18  # of a request or an answer that is recorded: graders read forms and JSON
ASSETS = (".css", ".js", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".woff", ".woff2", ".ttf", ".ico", ".webp")
_PART = re.compile(
    r'content-disposition:[^\r\n]*?name="([^"]*)"[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n(.*)', re.I | re.DOTALL
)


@dataclass(frozen=True)
class Exchange:
    """A request and its answer."""

    method: str
    url: str
    headers: Mapping[str, str]
    """Those of the request, with lower-case names."""
    body: bytes
    reply: Reply

    @property
    def is_asset(self) -> bool:
        """Whether it is a part of a page that nobody chose to ask for."""
        return urlsplit(self.url).path.endswith(ASSETS)

    @property
    def is_navigation(self) -> bool:
        """Whether it opened a page."""
        if self.method != "GET" or "text/html" not in self.headers.get("accept", ""):
            return False
        return self.headers.get("sec-fetch-dest", "document") == "document"

    @property
    def sent(self) -> dict[str, Any]:
        """The fields of the request: a form's (the first of a name) or those of a JSON object."""
        kind, text = self.headers.get("content-type", ""), self.body.decode("utf-8", "replace")
        if "multipart/form-data" in kind and (boundary := re.search(r'boundary="?([^";\s]+)', kind)):
            parts = [_PART.search(part) for part in text.split(f"--{boundary[1]}")[1:-1]]
            pairs = [(part[1], part[2].removesuffix("\r\n")) for part in parts if part]
            return dict(reversed(pairs))
        return _fields(kind, text)

    @property
    def content(self) -> dict[str, Any]:
        """The fields of the answer, where it is a JSON object."""
        return _fields(self.reply.header("content-type"), self.reply.body.decode("utf-8", "replace"))

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies that the answer sets, decoded."""
        values: dict[str, str] = {}
        for key, value in self.reply.headers:
            if key == "set-cookie":
                try:
                    values |= {name: unquote(one.value) for name, one in SimpleCookie(value[:MAX_BODY_BYTES]).items()}
                except CookieError:
                    continue
        return values


def _fields(kind: str, text: str) -> dict[str, Any]:
    if "json" in kind:
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            return {}
        return fields if isinstance(fields, dict) else {}
    if "x-www-form-urlencoded" in kind:
        return dict(reversed(parse_qsl(text, keep_blank_values=True)))
    return {}


class TrafficWeb(Web):
    """A web that notes what it is asked. Whatever is too long is kept without its end."""

    def __init__(self, web: Web) -> None:
        super().__init__(web.content)
        self.web, self.at_once = web, web.at_once
        self.traffic: deque[Exchange] = deque(maxlen=MOST)

    def sign_in(self, site: Site) -> dict[str, str]:
        return self.web.sign_in(site)

    def request(self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
        reply = self.web.request(method, url, headers, body)
        kept = Reply(reply.status, reply.headers, reply.body[:MAX_BODY_BYTES])
        named = {key.lower(): value for key, value in (headers or {}).items()}
        self.traffic.append(Exchange(method, url, named, body[:MAX_BODY_BYTES], kept))
        return reply

    def close(self) -> None:
        self.web.close()
