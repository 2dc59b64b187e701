"""Level packs: levels in a file, each with the length of its shortest solution, that are the same everywhere.

A line is a JSON object: `text`, the level as the world's view `text` shows it in its usual characters, and `optimum`.
Which split a level belongs to is decided by its content, as ever.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Hashable
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol, TypeVar

from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError
from oneiro.worlds.base import World, WorldConfig, in_split
from oneiro.worlds.levels import new_levels


class PackConfig(WorldConfig):
    """Settings of a world whose levels can be packed."""

    pack: Path | None = None
    """A file of levels (`oneiro data levels`) to play instead of drawn ones; seeds count through them."""


class Keyed(Protocol):
    """A level that has a name of its own."""

    @property
    def key(self) -> str: ...


Level = TypeVar("Level", bound=Keyed)
Fit = TypeVar("Fit", bound=Hashable)
Read = Callable[[str, int, Fit], Level]
"""A level from its text and its optimum, for a world of some size; a ValueError says why it is none."""


def pick(pack: Path, seed: int, split: str | None, read: Read[Fit, Level], fit: Fit) -> Level:
    """Level number `seed` of those in `split`, round and round."""
    levels: tuple[Level, ...] = _levels(pack, split, read, fit)
    return levels[seed % len(levels)]


@lru_cache(maxsize=16)
def _levels(pack: Path, split: str | None, read: Callable[..., Any], fit: Hashable) -> tuple[Any, ...]:
    levels = []
    for number, row in enumerate(read_rows(pack), start=1):
        try:
            levels.append(read(str(row["text"]), int(row["optimum"]), fit))
        except (KeyError, TypeError, ValueError) as error:
            reason = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            raise OneiroError(f"{pack}: level {number} {reason}") from error
    inside = tuple(level for level in levels if in_split(level.key, split))
    if not inside:
        raise OneiroError(f"{pack} has {len(levels)} levels, and none in the split '{split}'")
    return inside


def write(world: World, path: Path, levels: int, split: str | None, first_seed: int = 0) -> int:
    """Draw levels from `first_seed` on, each once, into a pack; returns how many, fewer where the world has no more."""
    if not isinstance(world.config, PackConfig):
        raise OneiroError(f"levels of world '{world.name}' cannot be packed; those of sokoban, frozen-lake, sudoku can")
    usual = type(world.config)()
    if getattr(world.config, "glyphs", None) != getattr(usual, "glyphs", None):
        raise OneiroError("a pack has the usual characters, whatever it is shown with later; leave glyphs out")
    rows = [
        {"text": world.render("text"), "optimum": info["optimum"], "key": info["key"], "seed": seed}
        for seed, info in islice(new_levels(world, split, first_seed, itemgetter("key")), levels)
    ]
    files.write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
    return len(rows)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a data file (JSONL, a JSON list, parquet; each JSON also gzipped) as dicts; a file that cannot be
    read is one clear line.
    """
    if not path.is_file():
        raise OneiroError(f"{path} does not exist")
    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            return parquet.read_table(path).to_pylist()
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
        if text.lstrip().startswith("["):
            rows = json.loads(text)
        else:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise OneiroError(f"{path} cannot be read ({error}); it may be cut short or of another format") from error
    if not all(isinstance(row, dict) for row in rows):
        raise OneiroError(f"{path} must hold one JSON object for each row")
    return rows
