"""Where published data comes from: `sources.yaml` has addresses, sizes, licences, and known checksums."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from oneiro.runtime.download import Unreachable, download
from oneiro.runtime.errors import OneiroError, nearest

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
