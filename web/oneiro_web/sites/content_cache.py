"""Contents on disk, so that each is made once on a machine and not once in every process.

To make a content takes a twentieth of a second, to read it again three milliseconds. Files lie in
`$XDG_CACHE_HOME/oneiro-web` (`~/.cache/oneiro-web`), two megabytes a seed, under a name that changes with the code that
makes them. They may be deleted at any time; where nothing can be written, every process makes its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import tempfile
import zlib
from functools import cache
from pathlib import Path

import numpy as np

CHECKSUM_BYTES = 4
VERSION_BYTES = 16


def load(store: str, seed: int) -> bytes | None:
    """A content as `save` kept it; None where it is missing or damaged."""
    try:
        kept = file_of(store, seed).read_bytes()
    except (OSError, RuntimeError):  # RuntimeError: nobody's home is known
        return None
    checksum, data = kept[:CHECKSUM_BYTES], kept[CHECKSUM_BYTES:]
    return data if checksum == checksum_of(data) else None


def save(store: str, seed: int, data: bytes) -> None:
    """Keep a content. A file is whole or absent, whoever else writes it at the same time."""
    try:
        file = file_of(store, seed)
        if not file.parent.is_dir():
            shutil.rmtree(file.parent.parent, ignore_errors=True)  # what older code made
            file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as part:
            part.write(checksum_of(data) + data)
        Path(part.name).replace(file)
    except (OSError, RuntimeError):
        return


def checksum_of(data: bytes) -> bytes:
    """By which a damaged file is noticed. Every reset on a new content waits for it, and a digest would take five times
    as long.
    """
    return zlib.crc32(data).to_bytes(CHECKSUM_BYTES, "big")


def file_of(store: str, seed: int) -> Path:
    """Where a content lies."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "oneiro-web" / "contents" / version() / f"{store}-{seed}.sqlite"


@cache
def version() -> str:
    """A name for the code and the words that contents are made from, and for the libraries that take part."""
    sites = Path(__file__).parent
    sources = [sites.parent / "seeds.py", *sites.glob("*.py"), *sites.glob("*/*.py"), *sites.rglob("words.json")]
    made_by = hashlib.blake2b(f"{np.__version__} {sqlite3.sqlite_version}".encode(), digest_size=VERSION_BYTES)
    for source in sorted(sources):
        made_by.update(source.read_bytes())
    return made_by.hexdigest()
