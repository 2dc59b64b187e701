"""The interface of every browser: one long-lived `Browser`, one `Session` an episode.

A session never raises for what a page or an agent does: an action that cannot be carried out gives an `Outcome` with a
reason, which the agent is shown. It raises `BrowserDied` when the browser itself is gone; the browser then starts a new
one, and whoever plays may try the episode once more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from oneiro_web.actions import Action
from oneiro_web.errors import SessionLost
from oneiro_web.page import Node, Page
from oneiro_web.sites import Reply, Web
from oneiro_web.urls import plain


class BrowserDied(SessionLost):
    """The browser is gone or does not answer."""


class Failed(Exception):
    """An action that cannot be carried out; its text is for the agent."""


@dataclass(frozen=True)
class Limits:
    """Bounds on what a page may cost."""

    nodes: int = 20_000
    """Nodes of a tree; the rest is cut and said to be."""
    page_bytes: int = 8 << 20
    seconds: float = 15.0
    """One deadline for whatever is asked of a page: to load, to carry out an action and settle, to be read."""
    redirects: int = 10
    tabs: int = 8


@dataclass(frozen=True)
class Outcome:
    """What became of an action."""

    failure: str | None = None
    """One line for the agent; None if the action was carried out."""
    events: tuple[str, ...] = ()
    """What happened besides, in order: `dialog`, `new tab`, `download`, `blocked`, `crash`, `timeout`."""


class Session(ABC):
    """One episode's tabs. Nothing of it is shared with another session."""

    @abstractmethod
    def observe(self) -> Page:
        """The tab in front, as a tree. The ids in it are the ones the next `act` understands. A page that cannot be
        read before its deadline is closed; an empty one with a `failure` takes its place.
        """

    @abstractmethod
    def act(self, action: Action) -> Outcome:
        """Carry out one action and wait until its effect is there (an event, never a fixed sleep)."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The address of the tab in front."""

    @abstractmethod
    def html(self) -> str:
        """The document of the tab in front, as it is now."""

    @abstractmethod
    def simplified_html(self) -> str:
        """WebRL's observation of the tab in front. Its element ids are those of the same call's page."""

    @abstractmethod
    def number_of(self, node: Node) -> int | None:
        """The id that the last `simplified_html` gave to the element of a node; None if it gave none."""

    @abstractmethod
    def screenshot(self, small: bool = False) -> bytes | None:
        """A PNG of the viewport, or a small JPEG of it; None from a browser that draws nothing."""

    @abstractmethod
    def visit(self, url: str) -> Visited:
        """For graders: open `url` with the session's cookies beside the agent's tabs, which stay as they are."""

    @abstractmethod
    def locate(self, locator: str, url: str | None = None) -> str:
        """For graders: the text that a WebArena locator (`document.querySelector(...)...`) gives on the tab in front,
        or on `url` opened as by `visit`; '' where it finds nothing. Only known forms; never arbitrary code in process.
        """

    @abstractmethod
    def close(self) -> None: ...


@dataclass(frozen=True)
class Visited:
    """A page that a grader opened."""

    url: str
    """Where redirects ended."""
    status: int
    html: str


class Browser(ABC):
    """A browser that serves many sessions."""

    name: ClassVar[str]

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.counts: dict[str, int] = {}
        """How often each event happened, over all sessions."""

    @abstractmethod
    def open(self, web: Web, urls: Sequence[str], cookies: Mapping[str, Mapping[str, str]] | None = None) -> Session:
        """A session with one tab for each of `urls`, the first in front. `cookies` are by host."""

    def act_many(self, sessions: Sequence[Session], actions: Sequence[Action]) -> list[Outcome]:
        """One action in each session; browsers that wait do it at once."""
        return [session.act(action) for session, action in zip(sessions, actions, strict=True)]

    def observe_many(self, sessions: Sequence[Session]) -> list[Page]:
        """Every session's page; browsers that wait do it at once."""
        return [session.observe() for session in sessions]

    def step_many(
        self, sessions: Sequence[Session], actions: Sequence[Action]
    ) -> list[tuple[Outcome, Page] | BrowserDied]:
        """One action in each session and the page after it, or why there is none; browsers that wait do it at once,
        and no session waits for another.
        """
        results: list[tuple[Outcome, Page] | BrowserDied] = []
        for session, action in zip(sessions, actions, strict=True):
            try:
                results.append((session.act(action), session.observe()))
            except BrowserDied as error:
                results.append(error)
        return results

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


SHOWN = ("text/", "application/json", "application/xhtml+xml")
"""Types of answers that are shown in a tab."""


def is_download(reply: Reply) -> bool:
    """Whether an answer is a file rather than a page. No browser here keeps files."""
    if "attachment" in reply.header("content-disposition").lower():
        return True
    return not (reply.header("content-type").lower() or "text/html").startswith(SHOWN)


@lru_cache(maxsize=4096)
def address(url: str) -> str | None:
    """The address to ask for, or None for one that no browser may open: `file:`, `javascript:`, `data:` and the like,
    and those in which two readers could see two hosts (`oneiro_web.urls`).

    There is no encryption between a browser and sites in the same process, so `https` is read as `http`.
    """
    url = url.strip()
    if url == "about:blank":
        return url
    if "://" not in url and not url.split(":")[0].isalpha():
        url = f"http://{url}"
    known = plain(url)
    if known is None:
        return None
    parts = urlsplit(known)
    path = quote(parts.path, safe="/%:@!$&'()*+,;=~-._")
    query = quote(parts.query, safe="/%:@!$&'()*+,;=~-._?[]")
    return urlunsplit(("http", parts.netloc, path, query, parts.fragment)) + ("#" if url.endswith("#") else "")


@lru_cache(maxsize=4096)
def resolved(base: str, url: str) -> str | None:
    """The address to ask for when a page at `base` names `url`; None as for `address`."""
    return address(joined(base, url))


def joined(base: str, url: str) -> str:
    """`url` as a page at `base` means it; as it is written where no host can be read from it (`http://[`)."""
    try:
        return urljoin(base, url)
    except ValueError:
        return url


def refused(url: str) -> Failed:
    """What an agent is told when `address` gives None."""
    scheme = url.strip().split(":")[0].lower()
    if scheme in ("http", "https") or scheme.startswith("//"):
        return Failed("That address cannot be read without doubt, so it is blocked.")
    return Failed(f"Addresses that begin with '{scheme}:' are blocked.")
