"""Levels: which seeds give different ones, which are the same up to symmetry, and levels in a file.

Two seeds may well draw the same level, or one turned round. A level's canonical form is the least of its images under
all rotations and mirrors, so two levels have the same form exactly if a symmetry takes one to the other. Worlds split
their levels by it, and evaluations count levels by it.

A *pack* has levels that are the same everywhere, each with the length of its shortest solution. A line is a JSON
object: `text`, the level as the world's view `text` shows it in its usual characters, and `optimum`. Which split a
level belongs to is decided by its content, as ever.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError
from oneiro.worlds.base import World, WorldConfig, canonical_key, in_split

MAX_REPEATS = 1000
"""Levels in a row that were drawn before; then there are no more."""


def new_levels(
    world: World,
    split: str | None,
    first_seed: int = 0,
    name: Callable[[Mapping[str, Any]], str] = canonical_key,
    look: Callable[[int, str | None], dict[str, Any]] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Seed and `info` of each level that has not been drawn before, from `first_seed` on, as long as new ones come.

    The world has just been reset to the level when it is handed out, unless `look` gives the `info` in another way.
    `name` says when two levels are one; by default they are if a symmetry of the world takes one to the other.
    """
    look = look or (lambda seed, split: world.reset(seed=seed, options={"split": split})[1])
    seen, repeats, seed = set[str](), 0, first_seed
    while repeats < MAX_REPEATS:
        info = look(seed, split)
        known = name(info) in seen
        repeats = repeats + 1 if known else 0
        if not known:
            seen.add(name(info))
            yield seed, info
        seed += 1


def distinct_seeds(make_world: Callable[[], World], split: str | None, count: int, first_seed: int = 0) -> list[int]:
    """The first `count` seeds from `first_seed` on whose levels differ, also up to symmetry.

    Fewer where the world has fewer: the length of the list is then the number of distinct levels that were found in
    `MAX_REPEATS` seeds without a new one.
    """
    world = make_world()
    try:
        return [seed for seed, _ in islice(new_levels(world, split, first_seed, look=world.peek), count)]
    finally:
        world.close()


@lru_cache(maxsize=256)
def symmetries(height: int, width: int) -> NDArray[np.int64]:
    """[8 or 4, cells]: for each rotation and mirror of a board onto itself, the cell that comes to each place.

    A square has eight of them and any other rectangle four. Cells count row by row.
    """
    board = np.arange(height * width).reshape(height, width)
    flat = [board, board[::-1], board[:, ::-1], board[::-1, ::-1]]
    images = flat + [image.T for image in flat] if height == width else flat
    return np.stack([image.ravel() for image in images])


def least_image(*layers: NDArray[np.uint8]) -> tuple[bytes, ...]:
    """The canonical form of a board, given as layers [height, width] that turn together.

    The first layer decides, the next one among equals, and so on. So the first part of the form is the canonical form
    of the first layer alone, whatever stands in the others.
    """
    sources = symmetries(*layers[0].shape)
    images = [layer.ravel()[sources].tobytes() for layer in layers]
    cells = layers[0].size
    return min(tuple(image[at : at + cells] for image in images) for at in range(0, sources.size, cells))


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


def pick_level(pack: Path, seed: int, split: str | None, read: Read[Fit, Level], fit: Fit) -> Level:
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


def write_pack(world: World, path: Path, levels: int, split: str | None, first_seed: int = 0) -> int:
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
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise OneiroError(f"{path} cannot be read ({error}); it may be cut short or of another format") from error
    if not all(isinstance(row, dict) for row in rows):
        raise OneiroError(f"{path} must hold one JSON object for each row")
    return rows
