"""One file from the net: resumed where it broke off, bounded in size and time, checked, and whole or absent at its
place.

Half a download stays beside the target as `NAME.part`, and `NAME.part.version` says which version of the file it is
half of: a server that has another one by then sends it from the start.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oneiro.runtime.errors import OneiroError

CHUNK = 1 << 20
SILENCE_S = 30.0
"""A server that says nothing for so long is given up."""
TRIES = 3
"""Connections that may break in a row before the command ends; any byte that arrives begins the count anew."""

Advance = Callable[[int, int | None], None]
"""Told the bytes that are here and the bytes there will be, where the server says so."""


class Unreachable(OneiroError):
    """The server cannot be reached, or does not have the file."""


def download(
    url: str,
    target: Path,
    *,
    most: int,
    seconds: float,
    sha256: str = "",
    advance: Advance | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> str:
    """Bring `url` to `target`; returns "kept", "resumed" or "new". `tell` hears what it waits for.

    A file of more than `most` bytes is refused, and after `seconds` the download ends, to be resumed by the same call.
    """
    if target.exists():
        _check(target, sha256, "delete it and run the same command again")
        return "kept"
    part = target.with_name(target.name + ".part")
    version = part.with_name(part.name + ".version")
    deadline = time.monotonic() + seconds
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        resumed, broken, reason = _size(part) > 0, 0, ""
        while True:
            before = _size(part)
            tell(f"waiting for {urllib.parse.urlsplit(url).hostname}: {target.name}{reason and f' ({reason}; again)'}")
            try:
                if _more(url, part, version, most, deadline, advance):
                    break
                reason = "the connection ended early"
            except (TimeoutError, http.client.HTTPException, urllib.error.URLError, ConnectionError) as error:
                reason = _reason(error)
            broken = 0 if _size(part) > before else broken + 1
            if broken >= TRIES:
                raise Unreachable(f"cannot get {url} ({reason})")
        try:
            _check(part, sha256, "what was sent is deleted; run the same command again, or get the file elsewhere")
        except OneiroError:
            part.unlink()
            version.unlink(missing_ok=True)
            raise
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        part.replace(target)
        version.unlink(missing_ok=True)
    except OSError as error:
        raise OneiroError(
            f"cannot write {target}: {error.strerror or error}; free some space or choose another --out"
        ) from error
    return "resumed" if resumed else "new"


def _more(url: str, part: Path, version: Path, most: int, deadline: float, advance: Advance | None) -> bool:
    """One connection's worth of the file; whether it is whole now."""
    have = _size(part)
    known = version.read_text(encoding="utf-8", errors="replace") if version.exists() else ""
    headers = {"User-Agent": "oneiro", "Accept-Encoding": "identity"}
    if have and re.fullmatch(r"[ -~]{1,200}", known):
        headers |= {"Range": f"bytes={have}-", "If-Range": known}
    opener = urllib.request.build_opener(_Redirects())
    try:
        response = opener.open(urllib.request.Request(url, headers=headers), timeout=SILENCE_S)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise Unreachable(f"cannot get {url} (the server answers {error.code})") from error
            if error.headers.get("Content-Range", "").strip() == f"bytes */{have}":
                return True
            part.unlink()
            return False
    with response:
        return _receive(url, response, part, version, most, deadline, advance)


def _receive(
    url: str, response: Any, part: Path, version: Path, most: int, deadline: float, advance: Advance | None
) -> bool:
    if "text/html" in response.headers.get("Content-Type", ""):
        raise Unreachable(f"cannot get {url} (it answers with a web page, not with the file)")
    begin, total = _extent(response)
    if begin != (_size(part) if begin else 0):
        part.unlink(missing_ok=True)
        return False
    here = begin
    with part.open("r+b" if begin else "wb") as handle:
        handle.seek(here)
        version.write_text(_version(response), encoding="utf-8")
        while True:
            if max(total or 0, here) > most:
                raise OneiroError(f"{url} is larger than the {most:,} bytes it may have: get the file elsewhere")
            if time.monotonic() > deadline:
                raise OneiroError(f"{url} takes too long: {here:,} bytes are here; the same command goes on from there")
            try:
                data = response.read1(CHUNK)
            except OSError as error:  # also what TLS and routing raise, which are no errors of the disk
                raise ConnectionError(str(error)) from error
            if not data:
                return total is None or here >= total
            handle.write(data)
            here += len(data)
            if advance is not None:
                advance(here, total)


def _extent(response: Any) -> tuple[int, int | None]:
    """Where the answer begins in the file, and the whole file's size."""
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        found = re.fullmatch(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})", response.headers.get("Content-Range", "").strip())
        if not found:
            raise http.client.HTTPException("a part of a file without its place in it")
        return int(found[1]), int(found[2])
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if re.fullmatch(r"\d{1,18}", length) else None


def _version(response: Any) -> str:
    """What names this version of the file; empty where the server says nothing that is sure."""
    tag = str(response.headers.get("ETag", ""))
    return tag if tag.startswith('"') else str(response.headers.get("Last-Modified", ""))


def _check(path: Path, sha256: str, remedy: str) -> None:
    if not sha256:
        return
    with path.open("rb") as handle:
        found = hashlib.file_digest(handle, "sha256").hexdigest()
    if found != sha256:
        raise OneiroError(f"{path} has the checksum {found[:12]}… and not {sha256[:12]}…: {remedy}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: BaseException) -> str:
    return " ".join(str(getattr(error, "reason", None) or error or type(error).__name__).split())


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but from no encrypted address to an open one."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if req.full_url.startswith("https:") and urllib.parse.urlsplit(newurl).scheme != "https":
            raise Unreachable(f"cannot get {req.full_url} (it leads to an address that is not encrypted)")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
