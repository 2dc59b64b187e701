"""Sites on other machines, such as WebArena's own containers, under the public addresses that agents see.

    web = RemoteWeb(Places({"shopping": "http://10.0.0.5:7770", "reddit": "http://10.0.0.5:9999"}))
    web.request("GET", "http://onestopmarket.com/")

Requests go to these sites and nowhere else. Their addresses are replaced by the public ones in answers, and back in
requests. Nobody resets such a site: what one episode changes, the next one finds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import SplitResult, urlsplit, urlunsplit

from oneiro_web.errors import WebError
from oneiro_web.sites.base import Site
from oneiro_web.sites.web import NOWHERE, Reply, Web
from oneiro_web.urls import PUBLIC, Places, admitted

SECONDS = 30.0
LARGEST = 32 << 20
NOT_SENT = frozenset(
    ("host", "connection", "proxy-connection", "keep-alive", "content-length", "accept-encoding", "upgrade", "te")
)
NOT_KEPT = frozenset(
    ("connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding", "upgrade",
     "strict-transport-security", "content-security-policy")
)  # fmt: skip
REWRITTEN = ("text/", "application/json", "application/javascript", "application/xml", "application/xhtml+xml")
UNREACHABLE = Reply(
    502, (("content-type", "text/html; charset=utf-8"),), b"<title>Not there</title><p>The site does not answer."
)


class RemoteWeb(Web):
    """Sites by their addresses."""

    def __init__(self, places: Places, storage: Path | None = None) -> None:
        super().__init__()
        unknown = next((site for site in places.bases if site not in PUBLIC), None)
        if unknown is not None:
            raise WebError(f"no site is called '{unknown}'; sites are {', '.join(PUBLIC)}")
        self.places, self.storage = places, storage
        self.origins = {site: (_origin(PUBLIC[site]), _origin(base)) for site, base in places.bases.items()}

    def sign_in(self, site: Site) -> dict[str, str]:
        """The cookies of a storage state `SITE_state.json`, as WebArena's log-in script writes them."""
        if self.storage is None:
            return {}
        path = self.storage / f"{site.name}_state.json"
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            return {str(cookie["name"]): str(cookie["value"]) for cookie in state["cookies"]}
        except OSError:
            raise WebError(f"{path} is missing; log in to {site.name} once and save the storage state") from None
        except (ValueError, KeyError, TypeError):
            raise WebError(f"{path} is no storage state (cookies with name and value)") from None

    def request(self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
        target = self.target(url)
        if target is None or method not in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            return NOWHERE
        sent = {key: self.local(value) for key, value in (headers or {}).items() if key.lower() not in NOT_SENT}
        try:
            return self._asked(method, target, {**sent, "accept-encoding": "identity"}, body)
        except (OSError, HTTPException, ValueError):
            return UNREACHABLE

    def target(self, url: str) -> str | None:
        """Where a public address is served; None for addresses of no site given."""
        parts = urlsplit(url)
        for public, base in self.origins.values():
            if f"{parts.scheme}://{parts.netloc}" in (public, public.replace("http:", "https:")):
                moved = urlsplit(self.places.local(url))
                if moved.netloc == parts.netloc:  # beside the path that the site's own pages lie below
                    start = urlsplit(base)
                    moved = parts._replace(scheme=start.scheme, netloc=start.netloc)
                elif _origin(urlunsplit(moved)) != base:
                    continue  # another site shares the public host
                return admitted(urlunsplit(moved._replace(fragment="")), self.places.hosts)
        return None

    def public(self, text: bytes) -> bytes:
        """A text of a site with public addresses in the place of its own."""
        for public, base in self.origins.values():
            text = text.replace(base.encode(), public.encode())
            text = text.replace(base.replace("/", "\\/").encode(), public.replace("/", "\\/").encode())
        return text

    def local(self, value: str) -> str:
        """A header's value (`referer`, `origin`) with the site's own address."""
        for public, base in self.origins.values():
            value = value.replace(public, base)
        return value

    def _asked(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        parts = urlsplit(url)
        opener = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = opener(parts.netloc, timeout=SECONDS)
        try:
            path = urlunsplit(SplitResult("", "", parts.path or "/", parts.query, ""))
            connection.request(method, path, body or None, dict(headers))
            answer = connection.getresponse()
            deadline, chunks, size = time.monotonic() + SECONDS, list[bytes](), 0
            while size < LARGEST and time.monotonic() < deadline and (chunk := answer.read1(1 << 16)):
                chunks.append(chunk)
                size += len(chunk)
        finally:
            connection.close()
        received = b"".join(chunks)
        kept: list[tuple[str, str]] = []
        for key, value in answer.getheaders():
            name = key.lower()
            if name == "set-cookie":
                attributes = [part for part in value.split(";") if not _bound_to_host(part)]
                kept.append((name, ";".join(attributes)))
            elif name not in NOT_KEPT:
                kept.append((name, self.public(value.encode("latin-1")).decode("latin-1")))
        kind = answer.headers.get("content-type", "").lower()
        return Reply(answer.status, tuple(kept), self.public(received) if kind.startswith(REWRITTEN) else received)


def _bound_to_host(attribute: str) -> bool:
    """What would keep a cookie from coming back under the public address."""
    return attribute.strip().lower().split("=")[0] in ("domain", "secure", "samesite")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
