"""Which transition is trained on next: pure functions of a seed and an index, so that any run can be resumed anywhere.

`Balanced` gives every game the same share and, within each game, steps that change something a fixed share. `GoldMix`
is the published way: every epoch has all steps that change an object and a fresh draw of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import floor

import numpy as np

from oneiro.errors import OneiroError
from oneiro.seeds import generator
from oneiro.worlds.textgame.dataset import Dataset
from oneiro.worlds.textgame.state import Transition


class Balanced(Sequence[int]):
    """Row numbers, endless: block after block, every game once a block in a fresh order.

    Within a game, steps that change something (the score alone counts) come `changed_share` of the time, spread
    evenly; each kind goes through all its rows in a random order before any row comes again. A game without rows of
    one kind always gives the other.
    """

    def __init__(self, data: Sequence[Transition], *, changed_share: float = 0.5, seed: int = 0) -> None:
        if not 0 <= changed_share <= 1:
            raise OneiroError(f"changed_share is {changed_share}; it must lie between 0 and 1")
        if not len(data):
            raise OneiroError("there are no transitions to sample from")
        self.share, self.seed = changed_share, seed
        cells: dict[str, tuple[list[int], list[int]]] = {}
        for number, case in enumerate(data):
            cells.setdefault(case.game, ([], []))[case.changed].append(number)
        self.games = sorted(cells)
        self.cells = {game: tuple(np.array(rows, np.int64) for rows in cells[game]) for game in self.games}
        self._order = lru_cache(maxsize=4 * len(self.games))(self._order_of)

    def __len__(self) -> int:
        """One round: as many draws as there are rows. Indices beyond it are fine."""
        return sum(len(rows) for cell in self.cells.values() for rows in cell)

    def __getitem__(self, index: int) -> int:  # type: ignore[override]
        if index < 0:
            raise IndexError("indices count from 0 on")
        block, place = divmod(index, len(self.games))
        games = generator(self.seed, "balanced", "games", block).permutation(len(self.games))
        game = self.games[int(games[place])]
        before = floor(block * self.share + 1e-9)
        changes = floor((block + 1) * self.share + 1e-9) > before
        draw = before if changes else block - before
        if not len(self.cells[game][changes]):
            changes, draw = not changes, block
        rows = self.cells[game][changes]
        epoch, within = divmod(draw, len(rows))
        return int(rows[self._order(game, int(changes), epoch)[within]])

    def _order_of(self, game: str, changes: int, epoch: int) -> np.ndarray:
        size = len(self.cells[game][changes])
        return generator(self.seed, "balanced", game, changes, epoch).permutation(size)


class GoldMix(Sequence[int]):
    """Row numbers, epoch after epoch: all gold rows and `others` of the rest, shuffled together.

    The rest is drawn afresh for each epoch, without repetition while it lasts. Paper: 40 others for 100 gold rows
    with the binary reward, 5 with the task-specific one.
    """

    def __init__(self, data: Dataset | Sequence[Transition], *, per_hundred: float = 40.0, seed: int = 0) -> None:
        gold = np.array([case.gold for case in data], bool)
        self.gold, self.rest = np.flatnonzero(gold), np.flatnonzero(~gold)
        self.others = floor(len(self.gold) * per_hundred / 100) if len(self.rest) else 0
        self.seed = seed
        if not len(self):
            raise OneiroError("no transition changes an object; GoldMix needs some")
        self._epoch = lru_cache(maxsize=2)(self.epoch)

    def __len__(self) -> int:
        """Rows in one epoch; the index of row r of epoch e is `e * len + r`."""
        return len(self.gold) + self.others

    def __getitem__(self, index: int) -> int:  # type: ignore[override]
        if index < 0:
            raise IndexError("indices count from 0 on")
        epoch, place = divmod(index, len(self))
        return int(self._epoch(epoch)[place])

    def epoch(self, number: int) -> np.ndarray:
        """All row numbers of one epoch, in order."""
        rng = generator(self.seed, "gold mix", number)
        drawn = (
            rng.choice(self.rest, self.others, replace=self.others > len(self.rest)) if self.others else self.rest[:0]
        )
        return rng.permutation(np.concatenate([self.gold, drawn]))
