"""How the text browser loads a page: requests, cookies, redirects, style sheets, and the memory of equal pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urldefrag, urlsplit

from oneiro_web.browsers.base import Failed, Limits, address, is_download, resolved
from oneiro_web.browsers.text.accessibility import tree
from oneiro_web.browsers.text.document import LARGE, Document
from oneiro_web.browsers.text.state import State
from oneiro_web.browsers.text.styles import Styles
from oneiro_web.page import Node, Printed, number
from oneiro_web.sites import Web
from oneiro_web.sites.web import NOWHERE, Reply

BLANK = "about:blank"
MOST_SHEETS = 8
PAGES_KEPT = 512
"""Parsed pages of a process, about 80 kB each. Large ones are not kept."""
MAX_COOKIE_CHARS = 8192  # of one header, and of all cookies of a host
CHARSET = re.compile(r"charset=[\"']?([\w-]+)", re.IGNORECASE)
META_CHARSET = re.compile(rb"<meta[^>]+charset=[\"']?([\w-]+)", re.IGNORECASE)


class Rendering:
    """A document, its style sheets, and its tree as long as nobody touched it."""

    def __init__(self, document: Document, sheets: tuple[str, ...]) -> None:
        self.document = document
        self.styles = styles((*document.styles, *sheets))
        self.fresh: tuple[Node, Printed, bool] | None = None

    def tree(self, state: State, nodes: int) -> tuple[Node, Printed, bool]:
        """Root, printed nodes, and whether the page was cut."""
        untouched = not (state.focus or state.values or state.checked or state.chosen or state.opened)
        if untouched and self.fresh is not None:
            return self.fresh
        root = tree(self.document, state, self.styles)
        printed, cut = number(root, nodes)
        made = (root, printed, cut or self.document.cut)
        if untouched:
            self.fresh = made
        return made


@lru_cache(maxsize=PAGES_KEPT)
def read(html: str, nodes: int) -> Document:
    """Equal pages are parsed once."""
    return Document(html, nodes)


@lru_cache(maxsize=256)
def styles(sheets: tuple[str, ...]) -> Styles:
    """Equal style sheets are read once."""
    return Styles(sheets)


@lru_cache(maxsize=PAGES_KEPT)
def rendering(document: Document, sheets: tuple[str, ...]) -> Rendering:
    """A document is rendered once."""
    return Rendering(document, sheets)


@dataclass
class Loaded:
    """A page in a tab."""

    url: str
    status: int
    html: str
    rendering: Rendering
    state: State = field(default_factory=State)
    posted: bool = False

    @property
    def base(self) -> str:
        """What its links are relative to: what its `base` says, or its own address."""
        return base_of(self.rendering.document, self.url)


def base_of(document: Document, url: str) -> str:
    """What the links of a document at an address are relative to."""
    return (resolved(url, document.base) if document.base else None) or url


class Loader:
    """Fetches pages of one episode's web and keeps its cookies."""

    def __init__(
        self, web: Web, limits: Limits, cookies: Mapping[str, Mapping[str, str]], event: Callable[[str], None]
    ) -> None:
        self.web, self.limits, self.event = web, limits, event
        self.cookies: dict[str, dict[str, str]] = {host: dict(values) for host, values in cookies.items()}
        self.sheets: dict[str, str] = {}

    def open(self, url: str) -> Loaded:
        """A page for a tab of its own; an empty one where it cannot be had."""
        target = address(url)
        try:
            page = self.fetch(target) if target and target != BLANK else None
        except Failed:
            page = None
        return page or self.blank()

    def blank(self) -> Loaded:
        """An empty page."""
        return Loaded(BLANK, 200, "", rendering(read("", self.limits.nodes), ()))

    def request(self, method: str, url: str, body: bytes, referrer: str) -> Reply:
        """One request with the cookies of its host, and the cookies it sets."""
        host = urlsplit(url).hostname or ""
        headers = {"accept": "text/html", **({"referer": referrer} if referrer.startswith("http") else {})}
        if self.cookies.get(host):
            headers["cookie"] = "; ".join(f"{key}={value}" for key, value in self.cookies[host].items())
        if method == "POST":
            headers["content-type"] = "application/x-www-form-urlencoded"
            headers["content-length"] = str(len(body))
        reply = self.web.request(method, url, headers, body)
        for key, value in reply.headers:
            if key == "set-cookie":
                self.keep_cookie(host, value)
        return reply

    def keep_cookie(self, host: str, header: str) -> None:
        """One `Set-Cookie`; a life of zero forgets the cookie."""
        jar = self.cookies.setdefault(host, {})
        try:
            cookies = SimpleCookie(header[:MAX_COOKIE_CHARS])
        except CookieError:
            return
        for name, morsel in cookies.items():
            if morsel["max-age"] == "0" or "01 Jan 1970" in morsel["expires"]:
                jar.pop(name, None)
            elif sum(map(len, jar.values())) < MAX_COOKIE_CHARS:
                jar[name] = morsel.value

    def fetch(self, url: str, method: str = "GET", body: bytes = b"", referrer: str = "") -> Loaded | None:
        """The page at an address after its redirects; None where the tab stays as it is (a download)."""
        posted = method == "POST"
        for _ in range(self.limits.redirects + 1):
            reply = self.request(method, urldefrag(url)[0], body, referrer)
            target = reply.header("location")
            if reply.status not in (301, 302, 303, 307, 308) or not target:
                break
            joined = resolved(url, target)
            if joined is None:
                self.event("blocked")
                reply = NOWHERE
                break
            if reply.status == 303 or (reply.status in (301, 302) and method == "POST"):
                method, body, posted = "GET", b"", False
            url = joined
        else:
            self.event("blocked")
            raise Failed("The page sends on from address to address without end.")
        if reply is NOWHERE:
            self.event("blocked")
        return self.make_page(url, reply, posted)

    def make_page(self, url: str, reply: Reply, posted: bool) -> Loaded | None:
        """An answer as a page."""
        kind = reply.header("content-type").lower() or "text/html"
        if is_download(reply):
            self.event("download")
            return None
        html = decode(reply.body[: self.limits.page_bytes], kind)
        if "html" not in kind:
            html = f"<pre>{html.replace('&', '&amp;').replace('<', '&lt;')}</pre>"
        is_kept = len(html) < LARGE
        document = (read if is_kept else Document)(html, self.limits.nodes)
        shown = (rendering if is_kept else Rendering)(document, self.sheets_of(document, url))
        page = Loaded(url, reply.status, html, shown, posted=posted)
        page.state.focus = document.autofocus
        return page

    def sheets_of(self, document: Document, url: str) -> tuple[str, ...]:
        """The linked style sheets of a page."""
        sheets, base = [], base_of(document, url)
        for element in document.links[:MOST_SHEETS]:
            target = resolved(base, element.attributes.get("href", ""))
            if target is None:
                continue
            if target not in self.sheets:
                reply = self.web.request("GET", target)
                fine = reply.status == 200 and "css" in reply.header("content-type")
                self.sheets[target] = decode(reply.body, "text/css") if fine else ""
            sheets.append(self.sheets[target])
        return tuple(sheets)


def decode(body: bytes, kind: str) -> str:
    """Bytes of a page as text, by the header, the page's own word, or what fits."""
    charset = CHARSET.search(kind)
    name = charset[1] if charset else ""
    if not name:
        meta = META_CHARSET.search(body[:1024])
        name = meta[1].decode("ascii") if meta else "utf-8"
    try:
        return body.decode(name, "replace")
    except (LookupError, ValueError):  # `undefined` and `idna` are codecs of Python that read no page
        return body.decode("utf-8", "replace")
