"""Sites on other machines, such as WebArena's own containers, under the public addresses that agents see.

    web = RemoteWeb(Places({"shopping": "http://10.0.0.5:7770", "reddit": "http://10.0.0.5:9999"}))
    web.request("GET", "http://onestopmarket.com/")

Requests go to these sites and nowhere else. Their addresses are replaced by the public ones in answers, and back in
requests. What one episode changes, the next one finds, unless a command of the user resets the site in between.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit, urlunsplit

from oneiro_web.errors import SessionLost, WebError
from oneiro_web.grading.result import UnsupportedCheck
from oneiro_web.grading.webarena import SHOP_HELPERS, Helper
from oneiro_web.sites.base import Site
from oneiro_web.sites.web import NOWHERE, Reply, Web
from oneiro_web.urls import PUBLIC, Places, admitted

SECONDS = 30.0
RESET_SECONDS = 1800.0  # GitLab's container alone takes five minutes to start
LARGEST = 32 << 20
SHOP_ADMIN = {"username": "admin", "password": "admin1234"}
"""The account of WebArena's shop whose token its own graders ask with."""
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
    """Sites by their addresses. `backends` are more addresses that their pages ask, under their own names."""

    at_once = 8  # a page of a real shop asks for a hundred files

    def __init__(self, places: Places, storage: Path | None = None, backends: Sequence[str] = ()) -> None:
        super().__init__()
        unknown = next((site for site in places.bases if site not in PUBLIC), None)
        if unknown is not None:
            raise WebError(f"no site is called '{unknown}'; sites are {', '.join(PUBLIC)}")
        self.places, self.storage = places, storage
        self.backends = Places({url: url for url in backends}).hosts
        self.origins = {site: (_origin(PUBLIC[site]), _origin(base)) for site, base in places.bases.items()}
        # A first page that lies deep (Wikipedia's) is shown at its own path, where its relative links are right.
        own = {site: urlsplit(base).path for site, base in places.bases.items() if not urlsplit(PUBLIC[site]).path}
        self.first_pages = {PUBLIC[site]: PUBLIC[site] + path for site, path in own.items() if path.strip("/")}

    def sign_in(self, site: Site) -> dict[str, str]:
        """The cookies of a storage state `SITE_state.json`, as WebArena's log-in script writes them."""
        if self.storage is None:
            raise WebError(f"the task begins logged in at {site.name}; say storage=FOLDER, with {site.name}_state.json")
        path = self.storage / f"{site.name}_state.json"
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            return {str(cookie["name"]): str(cookie["value"]) for cookie in state["cookies"]}
        except OSError:
            raise WebError(f"{path} is missing; log in to {site.name} once and save the storage state") from None
        except (ValueError, KeyError, TypeError):
            raise WebError(f"{path} is no storage state (cookies with name and value)") from None

    def request(self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
        if url.rstrip("/") in self.first_pages:
            return Reply(302, (("location", self.first_pages[url.rstrip("/")]),), b"")
        target = self.target(url)
        if target is None or method not in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            return NOWHERE
        sent = {key: self.local(value) for key, value in (headers or {}).items() if key.lower() not in NOT_SENT}
        try:
            return self._fetch(method, target, {**sent, "accept-encoding": "identity"}, body)
        except (OSError, HTTPException, ValueError):
            return UNREACHABLE

    def target(self, url: str) -> str | None:
        """Where a public address is served; None for addresses of no site given."""
        parts = urlsplit(url)
        for site, (public, base) in self.origins.items():
            below = urlsplit(PUBLIC[site]).path
            if f"{parts.scheme}://{parts.netloc}" in (public, public.replace("http:", "https:")):
                moved = urlsplit(self.places.local(url))
                if not below or moved.netloc == parts.netloc:  # beside the path that the site's own pages lie below
                    start = urlsplit(base)
                    moved = parts._replace(scheme=start.scheme, netloc=start.netloc)
                elif _origin(urlunsplit(moved)) != base:
                    continue  # another site shares the public host
                return admitted(urlunsplit(moved._replace(fragment="")), self.places.hosts)
        return admitted(url, self.backends)

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

    def helpers(self) -> dict[str, Helper]:
        """The functions by which WebArena's graders ask the shop; '' where the shop has nothing."""
        helpers: tuple[Helper, ...] = (
            lambda page: self._latest_order(),
            lambda page, sku: str(self._latest_review(sku).get("nickname", "")),
            lambda page, sku: _percent(self._latest_review(sku)),
        )
        return dict(zip(SHOP_HELPERS, helpers, strict=True))

    def _latest_order(self) -> str:
        newest = {"field": "created_at", "direction": "DESC"}
        query = {f"searchCriteria[sortOrders][0][{key}]": value for key, value in newest.items()}
        orders = self._ask_shop(f"orders?{urlencode({**query, 'searchCriteria[pageSize]': 1})}")["items"]
        # The address has the shown number without its zeros, as in WebArena; Magento's own ids are the same there.
        return f"{PUBLIC['shopping']}/sales/order/view/order_id/{int(orders[0]['increment_id'])}/" if orders else ""

    def _latest_review(self, sku: str) -> dict[str, Any]:
        reviews = self._ask_shop(f"products/{quote(sku, safe='')}/reviews")
        return reviews[-1] if reviews else {}

    def _ask_shop(self, what: str) -> Any:
        """An answer of Magento's REST interface, asked as its administrator."""
        token = self._rest("POST", "default/V1/integration/admin/token", {}, json.dumps(SHOP_ADMIN).encode())
        return self._rest("GET", f"V1/{what}", {"authorization": f"Bearer {token}"})

    def _rest(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Any:
        url = f"{PUBLIC['shopping']}/rest/{path}"
        reply = self.request(method, url, {"content-type": "application/json", **headers}, body)
        what = f"the shop's REST interface gives no answer to {path.partition('?')[0]} ({reply.status})"
        if reply.status not in (200, 401, 403, 404):  # a shop that is down says nothing of the agent
            raise SessionLost(what)
        try:
            if reply.status == 200:
                return json.loads(reply.body)
        except ValueError:
            raise SessionLost(what) from None
        raise UnsupportedCheck(what)

    def _fetch(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
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


def reset_sites(command: str, sites: Sequence[str]) -> None:
    """Run the user's command, with the names of the sites behind it, and wait for its end. An episode on sites that
    could not be reset is lost.
    """
    try:
        with tempfile.TemporaryFile() as output:  # a pipe would wait for what the command leaves running
            done = subprocess.run(
                [*shlex.split(command), *sites],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=RESET_SECONDS,
                check=False,
            )
            output.seek(0)
            words = output.read(LARGEST).decode(errors="replace").strip().splitlines() or ["no output"]
    except (OSError, ValueError) as error:
        raise WebError(f"reset_command cannot be run ({error})") from None
    except subprocess.TimeoutExpired:
        raise SessionLost(f"reset_command did not end within {RESET_SECONDS:.0f} seconds") from None
    if done.returncode:
        raise SessionLost(f"reset_command failed with {done.returncode}: {words[-1][:200]}")


def _percent(review: Mapping[str, Any]) -> str:
    return str(review["ratings"][0]["percent"]) if review.get("ratings") else ""


def _bound_to_host(attribute: str) -> bool:
    """What would keep a cookie from coming back under the public address."""
    return attribute.strip().lower().split("=")[0] in ("domain", "secure", "samesite")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
