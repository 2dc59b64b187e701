"""Addresses: the public ones agents see, the ones sites are served at, and which may be opened at all."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit, urlunsplit

from oneiro_web.errors import WebError

PUBLIC: Mapping[str, str] = {
    "shopping": "http://onestopmarket.com",
    "shopping_admin": "http://luma.com/admin",
    "reddit": "http://reddit.com",
    "gitlab": "http://gitlab.com",
    "map": "http://openstreetmap.org",
    "wikipedia": "http://wikipedia.org",
    "homepage": "http://homepage.com",
}
"""The address that WebArena shows for each site, by its name."""

MAX_URL_CHARS = 8192  # as much as servers commonly take
_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")


def _parts(url: str) -> tuple[SplitResult, str, int] | None:
    """A web address taken apart, with its host written plainly and its port; None if it is none, or an odd one.

    Browsers repair what is odd (backslashes, tabs, missing slashes, percent signs in hosts), each in its own way, so
    that two readers can see two hosts in one text. Such a text is refused.
    """
    url = url.strip(" \t\r\n\f")
    if len(url) > MAX_URL_CHARS or any(char < " " or char == "\x7f" or "\ud800" <= char <= "\udfff" for char in url):
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS or not url[len(scheme) :].startswith("://"):
        return None
    name = re.fullmatch(r"([^@:\\%\s\[\]]+)(:[0-9]*)?", parts.netloc)
    if name is None:
        return None
    host = unicodedata.normalize("NFKC", name[1]).replace("\u3002", ".").lower().removesuffix(".")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            return None
    if not _HOST.fullmatch(host) or len(host) > 253:
        return None
    return parts._replace(scheme=scheme), host, port or _DEFAULT_PORTS[scheme]


def _joined(parts: SplitResult, host: str, port: int) -> str:
    netloc = host if port == _DEFAULT_PORTS[parts.scheme] else f"{host}:{port}"
    return urlunsplit(parts._replace(netloc=netloc, path=parts.path or "/"))


def plain(url: str) -> str | None:
    """`url` written plainly if it is a web address that every browser reads alike, whatever its host; else None."""
    parsed = _parts(url)
    return _joined(*parsed) if parsed is not None else None


def admitted(url: str, hosts: Collection[str]) -> str | None:
    """`url` written plainly if it is a web address at one of `hosts`, else None.

    A host counts by its whole name. One with a port (`127.0.0.1:8080`) allows that port and no other; one without
    allows the usual ports.
    """
    parsed = _parts(url)
    if parsed is None:
        return None
    parts, host, port = parsed
    usual = port == _DEFAULT_PORTS[parts.scheme]
    return _joined(parts, host, port) if f"{host}:{port}" in hosts or (usual and host in hosts) else None


def page_of(url: str) -> tuple[str, int, str, dict[str, str]] | None:
    """Host, port, path and query of an address as our sites read them: of a repeated key the last value counts, and an
    empty one is none. None if it is no web address.
    """
    parsed = _parts(url)
    if parsed is None:
        return None
    parts, host, port = parsed
    try:
        pairs = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=1000))
    except ValueError:
        return None
    query = {key: text for key, value in pairs.items() if (text := value.strip())}
    return host, port, unquote(parts.path).removesuffix("/"), query


@dataclass(frozen=True)
class Places:
    """Where each site is served, by its name, and the public address it is shown under."""

    bases: Mapping[str, str] = field(default_factory=lambda: dict(PUBLIC))
    """What `__SITE__` stands for in tasks; our own sites are served under their public addresses."""

    def __post_init__(self) -> None:
        for site, base in self.bases.items():
            if _parts(base) is None:
                raise WebError(f"{site}: {base!r} is no web address; write it like http://127.0.0.1:7770")

    @property
    def hosts(self) -> frozenset[str]:
        """What `admitted` takes."""
        known = [parts for base in self.bases.values() if (parts := _parts(base))]
        return frozenset(host if port in (80, 443) else f"{host}:{port}" for _, host, port in known)

    def site(self, url: str) -> str | None:
        """The site that a local or public address belongs to."""
        known = ((site, bases[site]) for bases in (self.bases, PUBLIC) for site in _ranked(bases))
        return next((site for site, base in known if _rest(url, base) is not None), None)

    def public(self, url: str) -> str:
        """A local address as agents see it. Others stay as they are."""
        return _moved(url, self.bases, PUBLIC)

    def local(self, url: str) -> str:
        """A public address (http or https) as it is served. Others stay as they are."""
        return _moved(url, PUBLIC, self.bases)


def _ranked(bases: Mapping[str, str]) -> list[str]:
    """Sites, those with longer addresses first: one may lie below another."""
    return sorted(bases, key=lambda site: -len(bases[site].rstrip("/")))


def _rest(url: str, base: str) -> str | None:
    """What follows `base` in `url`; None if it does not lie there."""
    asked, known = _parts(url), _parts(base)
    if asked is None or known is None or asked[1] != known[1]:
        return None
    if asked[2] != known[2] and {asked[2], known[2]} != {80, 443}:
        return None
    parts, above = asked[0], known[0].path.rstrip("/")
    if parts.path != above and not parts.path.startswith(f"{above}/"):
        return None
    query, fragment = f"?{parts.query}" if parts.query else "", f"#{parts.fragment}" if parts.fragment else ""
    return parts.path[len(above) :] + query + fragment


def _moved(url: str, come: Mapping[str, str], go: Mapping[str, str]) -> str:
    for site in _ranked(come):
        rest = _rest(url, come[site]) if site in go else None
        if rest is not None:
            return go[site].rstrip("/") + rest
    return url
