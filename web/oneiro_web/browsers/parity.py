"""Does the text browser see what Chromium sees? A seeded crawl of all page types, compared line by line.

with TextBrowser() as text, ChromiumBrowser() as chromium:
    comparison = compare(text, chromium, pages=300)
    print(comparison.equal_lines, "of", comparison.lines)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

from starlette.routing import Match

from oneiro_web.actions import Action, Kind
from oneiro_web.browsers.base import Browser, Session
from oneiro_web.browsers.text import forms
from oneiro_web.browsers.text.document import Document
from oneiro_web.browsers.text.state import State
from oneiro_web.seeds import generator
from oneiro_web.sites import HOSTS, SITES, Site, Web

MOST_KNOWN = 20_000


@dataclass(frozen=True)
class PageParity:
    """One page in both browsers."""

    url: str
    kind: str
    """Site and route: `reddit /f/{forum}`."""
    lines: int
    """Lines of Chromium's text."""
    equal: int
    """Those of them that the text browser gives too, in their place."""
    differences: tuple[str, ...]
    """What differs, as a diff: `-` only in Chromium, `+` only in the text browser."""


@dataclass(frozen=True)
class Parity:
    """A whole crawl."""

    pages: tuple[PageParity, ...]

    @property
    def lines(self) -> int:
        """Lines of Chromium's texts."""
        return sum(page.lines for page in self.pages)

    @property
    def equal_lines(self) -> int:
        """Lines that both browsers give."""
        return sum(page.equal for page in self.pages)

    @property
    def different(self) -> tuple[PageParity, ...]:
        """Pages that are not the same to the last line."""
        return tuple(page for page in self.pages if page.differences)

    def as_json(self) -> dict[str, Any]:
        """Numbers and differences for a file."""
        kinds: dict[str, int] = {}
        for page in self.pages:
            kinds[page.kind] = kinds.get(page.kind, 0) + 1
        return {
            "pages": len(self.pages),
            "equal_pages": len(self.pages) - len(self.different),
            "lines": self.lines,
            "equal_lines": self.equal_lines,
            "kinds": kinds,
            "differences": {page.url: list(page.differences) for page in self.different},
        }


def page_kind(site: Site, url: str) -> str:
    """The route that answers an address."""
    scope = {"type": "http", "method": "GET", "path": urlsplit(url).path or "/", "root_path": "", "headers": []}
    for route in site.pages:
        if route.matches(scope)[0] is Match.FULL:
            return f"{site.name} {route.path}"
    return f"{site.name} (no page)"


def addresses(html: str, url: str) -> Iterator[str]:
    """Where links and GET forms of a page lead, forms as they stand."""
    document = Document(html, MOST_KNOWN)
    for element in document.elements:
        if element.tag == "a" and element.attributes.get("href"):
            yield urldefrag(urljoin(url, element.attributes["href"]))[0]
        elif element.tag == "form" and element.attributes.get("method", "get").lower() == "get":
            sent = forms.encode(forms.entries(element, document, State(), None))
            target = urljoin(url, element.attributes.get("action") or url)
            yield f"{target.partition('?')[0]}?{sent}"


def crawl(session: Session, seed: int, pages: int, sites: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Addresses and kinds of pages, those of rarely seen kinds first. The session walks along."""
    chance = generator("web", "parity", seed)
    waiting: dict[str, list[str]] = {}
    known: set[str] = set()
    seen: dict[str, int] = {}

    def add(url: str) -> None:
        site = HOSTS.get(urlsplit(url).hostname or "")
        if site is not None and site.name in sites and url not in known and len(known) < MOST_KNOWN:
            known.add(url)
            waiting.setdefault(page_kind(site, url), []).append(url)

    for name in sites:
        add(SITES[name].url)
    for _ in range(pages):
        open_kinds = [kind for kind, urls in waiting.items() if urls]
        if not open_kinds:
            return
        kind = min(open_kinds, key=lambda one: seen.get(one, 0))
        urls = waiting[kind]
        url = urls.pop(int(chance.integers(len(urls))))
        seen[kind] = seen.get(kind, 0) + 1
        session.act(Action(Kind.GOTO, text=url))
        yield url, kind
        for url_there in addresses(session.html(), session.url):
            add(url_there)


def compare(
    text: Browser, chromium: Browser, pages: int = 300, seed: int = 0, sites: Sequence[str] | None = None
) -> Parity:
    """Crawl `pages` pages as the sites' own users and compare what both browsers give for each."""
    names = list(sites or SITES)
    webs = Web(seed), Web(seed)
    left, right = (
        browser.open(web, ["about:blank"], {SITES[name].host: web.sign_in(SITES[name]) for name in names})
        for browser, web in zip((text, chromium), webs, strict=True)
    )
    try:
        differences = []
        for url, kind in crawl(left, seed, pages, names):
            right.act(Action(Kind.GOTO, text=url))
            differences.append(difference(url, kind, right.observe().text(), left.observe().text()))
        return Parity(tuple(differences))
    finally:
        left.close()
        right.close()
        for web in webs:
            web.close()


def difference(url: str, kind: str, theirs: str, ours: str) -> PageParity:
    """Two texts of one page, line by line."""
    wanted, given = theirs.split("\n"), ours.split("\n")
    if wanted == given:
        return PageParity(url, kind, len(wanted), len(wanted), ())
    matched = difflib.SequenceMatcher(None, wanted, given, autojunk=False)
    equal = sum(block.size for block in matched.get_matching_blocks())
    changes = list(difflib.unified_diff(wanted, given, "chromium", "text", lineterm="", n=0))
    return PageParity(url, kind, len(wanted), equal, tuple(changes[2:]))
