"""One file from the net: resumed where it broke off, bounded in size and time, checked, and whole or absent at its
place.

Half a download stays beside the target as `NAME.part`, and `NAME.part.version` says which version of the file it is
half of: a server that has another one by then sends it from the start.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from oneiro.runtime.errors import OneiroError, nearest

if TYPE_CHECKING:
    import httpx2

SILENCE_S = 30.0  # a server that sends nothing for so long is given up
TRIES = 3  # connections that may break in a row; any byte that arrives begins the count anew

Advance = Callable[[int, int | None], None]
"""Called with the bytes that are here and the bytes there will be, where the server says so."""


class Unreachable(OneiroError):
    """The server cannot be reached, or does not have the file."""


def download(
    url: str,
    target: Path,
    *,
    max_bytes: int,
    seconds: float,
    sha256: str = "",
    advance: Advance | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> str:
    """Bring `url` to `target`; returns "kept", "resumed" or "new". `tell` is called with what it waits for.

    A file of more than `max_bytes` is refused, and after `seconds` the download ends, to be resumed by the same call.
    """
    import httpx2

    if target.exists():
        _check(target, sha256, "delete it and run the same command again")
        return "kept"
    part = target.with_name(target.name + ".part")
    version = part.with_name(part.name + ".version")
    deadline = time.monotonic() + seconds
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        resumed, whole, broken, reason = _size(part) > 0, False, 0, ""
        while not whole:
            before = _size(part)
            tell(f"waiting for {urllib.parse.urlsplit(url).hostname}: {target.name}{reason and f' ({reason}; again)'}")
            try:
                whole = _receive(url, part, version, max_bytes, deadline, advance)
            except httpx2.TransportError as error:
                reason = " ".join(str(error).split()) or type(error).__name__
                broken = 0 if _size(part) > before else broken + 1
                if broken == TRIES:
                    raise Unreachable(f"cannot get {url} ({reason})") from error
        try:
            _check(part, sha256, "what was sent is deleted; run the same command again, or get the file elsewhere")
        except OneiroError:
            part.unlink()
            raise
        finally:
            version.unlink(missing_ok=True)
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        part.replace(target)
    except OSError as error:
        raise OneiroError(
            f"cannot write {target}: {error.strerror or error}; free some space or choose another --out"
        ) from error
    return "resumed" if resumed else "new"


def _refuse(url: str, response: httpx2.Response) -> None:
    """Replies that are not the file, which another attempt would not change."""
    if not response.is_success:
        raise Unreachable(f"cannot get {url} (the server answers {response.status_code})")
    if "text/html" in response.headers.get("Content-Type", ""):
        raise Unreachable(f"cannot get {url} (it answers with a web page, not with the file)")
    if url.startswith("https:") and response.url.scheme != "https":
        raise Unreachable(f"cannot get {url} (it leads to an address that is not encrypted)")


def _receive(url: str, part: Path, version: Path, max_bytes: int, deadline: float, advance: Advance | None) -> bool:
    """One connection's worth of the file; whether it is whole now. A connection that breaks is an `httpx2` error."""
    import httpx2

    here = _size(part)
    headers = {"User-Agent": "oneiro", "Accept-Encoding": "identity"}
    known = version.read_text(encoding="utf-8", errors="replace") if here and version.exists() else ""
    if known.isascii() and known.isprintable() and known:
        # If-Range: the rest of this version, or the whole of another one.
        headers |= {"Range": f"bytes={here}-", "If-Range": known}
    with httpx2.stream("GET", url, headers=headers, follow_redirects=True, timeout=SILENCE_S) as response:
        if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            if response.headers.get("Content-Range", "").strip() == f"bytes */{here}":
                return True  # only the last step, the file's name, was missing
            part.unlink()
            return False
        _refuse(url, response)
        if response.status_code != HTTPStatus.PARTIAL_CONTENT:
            here = 0
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {here}-"):
            raise httpx2.RemoteProtocolError("a part of a file without its place in it")
        length = response.headers.get("Content-Length", "")
        total = here + int(length) if length.isdecimal() else None
        with part.open("ab" if here else "wb") as handle:
            tag = response.headers.get("ETag", "")  # a weak one, W/"...", may stand for other bytes
            version.write_text(tag if tag.startswith('"') else response.headers.get("Last-Modified", ""), "utf-8")
            for chunk in response.iter_raw():
                handle.write(chunk)
                here += len(chunk)
                if max(total or 0, here) > max_bytes:
                    raise OneiroError(f"{url} is larger than the {max_bytes:,} bytes it may have: get it elsewhere")
                if time.monotonic() > deadline:
                    raise OneiroError(
                        f"{url} takes too long: {here:,} bytes are here; the same command goes on from there"
                    )
                if advance is not None:
                    advance(here, total)
    return True


def _check(path: Path, sha256: str, remedy: str) -> None:
    if not sha256:
        return
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    if digest != sha256:
        raise OneiroError(f"{path} has the checksum {digest[:12]}… and not {sha256[:12]}…: {remedy}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


# Published data: `sources.yaml` has addresses, sizes, licences, and known checksums -----------------------------------

MB, GB = 10**6, 10**9
SECONDS_PER_FILE = 3600.0  # 4 GB, the largest shard, at 9 Mbit/s


@dataclass(frozen=True)
class File:
    """One file of a source."""

    name: str
    url: str
    max_bytes: int
    sha256: str = ""
    """Empty where none is known."""


@dataclass(frozen=True)
class Source:
    """A published dataset."""

    name: str
    about: str
    page: str
    licence: str
    size: int
    """Bytes in all, about; 0 where it is not known."""
    files: tuple[File, ...]
    use: str
    """The command that reads it; `{folder}` is where it lies."""
    shards: int = 0
    """How many files at the end are shards of the data, of which some alone are of use."""

    def select(self, shards: int | None) -> tuple[File, ...]:
        """All files, or only so many shards of them."""
        if shards is None or not self.shards:
            return self.files
        return self.files[: len(self.files) - self.shards + min(shards, self.shards)]

    def estimate_bytes(self, shards: int | None) -> int:
        """About how much the selected files have."""
        return self.size * len(self.select(shards)) // len(self.files)


@dataclass(frozen=True)
class FetchedFile:
    """A file that is here now."""

    path: Path
    how: str
    """kept, resumed or new"""
    checked: bool
    """Whether a checksum was known, and right."""


@cache
def load_sources() -> dict[str, Source]:
    """Every source by its name."""
    entries = yaml.safe_load(Path(__file__).with_name("sources.yaml").read_text(encoding="utf-8"))
    return {name: _read_source(name, **entry) for name, entry in entries.items()}


def _read_source(
    name: str,
    url: str,
    max_bytes: int,
    files: dict[str, dict[str, str]],
    shards: dict[str, int] | None = None,
    **rest: Any,
) -> Source:
    names = [
        f"{split}.tfrecord-{i:05d}-of-{count:05d}" for split, count in (shards or {}).items() for i in range(count)
    ]
    listed = [
        File(file, url.format(name=file, key=entry.get("key")), max_bytes, entry.get("sha256", ""))
        for file, entry in (files | {shard: {} for shard in names}).items()
    ]
    return Source(name=name, files=tuple(listed), shards=len(names), **{"size": 0, **rest})


def find_source(name: str) -> Source:
    sources = load_sources()
    if name not in sources:
        raise OneiroError(f"no data called '{name}'{nearest(name, sources)}")
    return sources[name]


def fetch_files(
    source: Source,
    folder: Path,
    shards: int | None = None,
    advance: Callable[[File, int, int | None], None] = lambda file, here, total: None,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[FetchedFile]:
    """Bring a source's files into `folder`, one after the other; the same call goes on where it broke off.

    `advance` is called with a file's bytes, `tell` with what is waited for.
    """
    _need_room(source, folder, shards)
    for file in source.select(shards):
        path = folder / file.name
        try:
            how = download(
                file.url,
                path,
                max_bytes=file.max_bytes,
                seconds=SECONDS_PER_FILE,
                sha256=file.sha256,
                advance=partial(advance, file),
                tell=tell,
            )
        except Unreachable as error:
            raise OneiroError(
                f"{error}; get it from {source.page} elsewhere, put it at {path}, and run the same command again"
            ) from error
        yield FetchedFile(path, how, bool(file.sha256))


def _need_room(source: Source, folder: Path, shards: int | None) -> None:
    size = source.estimate_bytes(shards)
    place = next(parent for parent in (folder, *folder.absolute().parents) if parent.is_dir())
    paths = [folder / file.name for file in source.select(shards)]
    here = sum(path.stat().st_size for path in paths if path.is_file())
    free = shutil.disk_usage(place).free
    if size - here > free:
        fewer = "; take fewer with --shards" if source.shards else ""
        raise OneiroError(
            f"{source.name} has about {amount(size)}, and {place} has {amount(free)} free: choose another --out{fewer}"
        )


def amount(size: int) -> str:
    """`124 GB`, `4.9 MB`; `?` for 0."""
    if not size:
        return "?"
    unit, name = (GB, "GB") if size >= GB else (MB, "MB")
    return f"{size / unit:.3g} {name}"
