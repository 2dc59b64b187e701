"""Which transition is trained on next: pure functions of a seed and an index, so that any run can be resumed anywhere.

`Balanced` gives every game the same share and, within each game, questions whose answer changes something a fixed one.
`GoldMix` is the published way: every epoch has all steps that change an object and a fresh draw of the others.
`StateGroups` lets others of the same state come along with each.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.worlds.textgame.dataset import Dataset
from oneiro.worlds.textgame.state import Kind, Transition


class Order(Protocol):
    """An endless list of row numbers."""

    def row(self, index: int) -> int: ...


class Balanced:
    """An endless list of row numbers: block after block, every game once a block in a fresh order.

    Within a game, rows where the part of the step that is asked (`kind`) changes something come `changed_share` of
    the time, spread evenly; in a whole step a change of the score alone counts. Changed and unchanged rows each come
    in a random order, all of them before any comes again. A game without rows of one sort always gives the other.
    """

    def __init__(
        self, data: Sequence[Transition], kind: Kind = "full", *, changed_share: float = 0.5, seed: int = 0
    ) -> None:
        if not 0 <= changed_share <= 1:
            raise OneiroError(f"changed_share is {changed_share}; it must lie between 0 and 1")
        if not len(data):
            raise OneiroError("there are no transitions to sample from")
        self.share, self.seed = changed_share, seed
        cells: dict[str, tuple[list[int], list[int]]] = {}
        for number, case in enumerate(data):
            cells.setdefault(case.game, ([], []))[case.changes(kind)].append(number)
        self.games = sorted(cells)
        self.cells = {game: tuple(np.array(rows, np.int64) for rows in cells[game]) for game in self.games}
        self._orders: dict[tuple[str, bool, int], NDArray[np.int64]] = {}

    def __len__(self) -> int:
        """One round: as many draws as there are rows. Indices beyond it are fine."""
        return sum(len(rows) for cell in self.cells.values() for rows in cell)

    def row(self, index: int) -> int:
        """The row to train on as number `index`, counted from 0."""
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
        return int(rows[self._order(game, changes, epoch)[within]])

    def _order(self, game: str, changes: bool, epoch: int) -> NDArray[np.int64]:
        """The order of a cell's rows in one round through them; the last round of each cell is kept at hand."""
        key = (game, changes, epoch)
        if key not in self._orders:
            self._orders = {old: order for old, order in self._orders.items() if old[:2] != key[:2]}
            rng = generator(self.seed, "balanced", game, int(changes), epoch)
            self._orders[key] = rng.permutation(len(self.cells[game][changes]))
        return self._orders[key]


class GoldMix:
    """An endless list of row numbers, epoch after epoch: all gold rows and `others` of the rest, shuffled together.

    The rest is drawn afresh for each epoch, without repetition while it lasts. Paper: 40 others for 100 gold rows
    with the binary reward, 5 with the task-specific one.
    """

    def __init__(self, data: Sequence[Transition], *, per_hundred: float = 40.0, seed: int = 0) -> None:
        gold = np.array([case.gold for case in data], bool)
        self.gold, self.rest = np.flatnonzero(gold), np.flatnonzero(~gold)
        self.others = floor(len(self.gold) * per_hundred / 100) if len(self.rest) else 0
        self.seed = seed
        if not len(self):
            raise OneiroError("no transition changes an object; GoldMix needs some")
        self._kept: tuple[int, NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        """Rows in one epoch; the index of row r of epoch e is `e * len + r`."""
        return len(self.gold) + self.others

    def row(self, index: int) -> int:
        """The row to train on as number `index`, counted from 0."""
        number, place = divmod(index, len(self))
        if self._kept is None or self._kept[0] != number:
            self._kept = (number, self.epoch(number))
        return int(self._kept[1][place])

    def epoch(self, number: int) -> NDArray[np.int64]:
        """All row numbers of one epoch, in order."""
        rng = generator(self.seed, "gold mix", number)
        drawn = (
            rng.choice(self.rest, self.others, replace=self.others > len(self.rest)) if self.others else self.rest[:0]
        )
        return rng.permutation(np.concatenate([self.gold, drawn]))


class StateGroups:
    """An endless list of groups of rows of one state: `order` names one row, and others of its state join it.

    At most `most` rows, of which at most `changed_share` change something. A language model computes the state once
    for a whole group, and states are most of the tokens.
    """

    def __init__(
        self, data: Dataset, order: Order, most: int, changed_share: float, seed: int, kind: Kind = "full"
    ) -> None:
        self.data, self.order, self.seed = data, order, seed
        self.most = (most - round(most * changed_share), round(most * changed_share))
        self.by_state: dict[tuple[str, int, int], tuple[list[int], list[int]]] = {}
        if most > 1:
            for number, case in enumerate(data):
                self.by_state.setdefault(self._state(number), ([], []))[case.changes(kind)].append(number)

    def group(self, index: int) -> list[int]:
        """The rows of group number `index`, counted from 0."""
        first = self.order.row(index)
        numbers = [first]
        if not self.by_state:
            return numbers
        rng = generator(self.seed, "family", index)
        for rows, most in zip(self.by_state[self._state(first)], self.most, strict=True):
            others = [row for row in rows if row != first]
            chosen = rng.permutation(len(others))[: most - (len(others) < len(rows))]
            numbers += [others[i] for i in chosen]
        return numbers

    def _state(self, number: int) -> tuple[str, int, int]:
        row = self.data.rows[number]
        return row.game, row.state, row.score
