"""The transitions of an RLVR run: recorded or opened, and sampled for SFT and RL.

Which one is trained on next is a pure function of a seed and an index, so that any run can be resumed anywhere.
`Balanced` gives every game the same share and, within each game, questions whose answer changes something a fixed one.
`GoldMix` is the published way: every epoch has all steps that change an object and a fresh draw of the others.
`StateGroups` lets others of the same state come along with each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import floor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oneiro.episode import Row
from oneiro.models.chat import ChatFormat
from oneiro.rundir.run import Run
from oneiro.runtime import distributed, seeds
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.tasks.answering import LazyRows, SharedPrompts, some
from oneiro.tasks.textgame.lookup import TextGameLookup
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.tasks.textgame.prompt import cut
from oneiro.tasks.textgame.recipe import SamplerSettings, TextGameDataSettings, TextGameRecipe
from oneiro.tasks.textgame.teacher import taught_examples
from oneiro.worlds.textgame.crawl import UNSEEN, own_dataset
from oneiro.worlds.textgame.dataset import EXAMPLE, Dataset, TransitionRow, open_dataset, require_games, splits
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
            # The first row counts among those of its kind.
            chosen = rng.permutation(len(others))[: most - (len(others) < len(rows))]
            numbers += [others[i] for i in chosen]
        return numbers

    def _state(self, number: int) -> tuple[str, int, int]:
        row = self.data.rows[number]
        return row.game, row.state, row.score


VALIDATION_EVERY = 20
"""One training state in so many is a validation state: never learned from, looked at during SFT and RL."""


@dataclass(frozen=True)
class TextGameData:
    """The splits of a run, as its settings divide them."""

    train: Dataset
    test: Dataset
    unseen: Dataset | None
    """Rows of held-out games that are not among `test`."""
    examples: Sequence[Transition]
    validation: Sequence[Transition] = ()
    """Rows of states that `train` does not have: all that training looks at."""
    own: Dataset | None = None
    """Training rows of held-out games: a lookup may be given some of them, a model never learns from them."""

    def predictor(self, config: TextGamePredictorConfig) -> TextGamePredictor:
        memory = TextGameLookup(self.train, config.transition, config.output) if config.retrieve else None
        return TextGamePredictor(config, rules=self.train.rules, examples=self.examples, memory=memory)

    def memories(self, recipe: TextGameRecipe) -> dict[int, TextGameLookup]:
        """Lookups that know, besides `train`, so many steps of each held-out game: by that number."""
        if self.own is None:
            return {}
        games: dict[str, list[TransitionRow]] = {}
        for number in seeds.generator(recipe.seed, "own steps").permutation(len(self.own)):
            row = self.own.rows[int(number)]
            games.setdefault(row.game, []).append(row)

        def lookup(count: int) -> TextGameLookup:
            rows = [*self.train.rows, *(row for own in games.values() for row in own[:count])]
            return TextGameLookup(replace(self.train, rows=rows), recipe.task.transition, recipe.task.output)

        return {count: lookup(count) for count in recipe.evaluation.own_steps}


def data_stage(recipe: TextGameRecipe, run: Run) -> dict[str, Any]:
    """Record our own games, or look whether the imported folder has what is asked for."""
    settings = recipe.data
    if settings.own:
        record(settings, run.path / "data")
    data = open_data(settings, run)
    if recipe.task.example and not data.examples:
        run.say("data: no example rows, so task.example shows none in the prompts (our own games have none)")
    sizes = {"train": len(data.train), "test": len(data.test), "held-out games": len(data.unseen or ())}
    run.say(f"data: {', '.join(f'{count:,} {name}' for name, count in sizes.items())} rows")
    return sizes


def record(settings: TextGameDataSettings, folder: Path) -> dict[str, int]:
    """Our games into a folder: training levels, unseen levels of the same games, and levels of held-out games."""
    return own_dataset(
        folder, settings.crawl, settings.held_out, games=settings.trained, test_levels=settings.test_levels
    )


def open_data(settings: TextGameDataSettings, run: Run) -> TextGameData:
    """The splits. Held-out games leave train; where the folder has no split for them, they stay in test."""
    folder = run.path / "data" if settings.own else Path(settings.name).expanduser()
    there = splits(folder)
    train, test = open_dataset(folder, "train"), open_dataset(folder, "test")
    unseen = open_dataset(folder, UNSEEN) if UNSEEN in there else None
    own = None
    if not settings.own:
        require_games(settings.held_out, folder, train, test, unseen)
        own = train.only(set(settings.held_out) & set(train.games))
        train = train.only([game for game in settings.games or train.games if game not in settings.held_out])
        wanted = {*settings.games, *settings.held_out} & set(test.games)
        test = test.only(wanted) if settings.games else test
    examples = list(open_dataset(folder, EXAMPLE)) if EXAMPLE in there else []
    return TextGameData(train, test, unseen, examples, own=own)


def with_validation(data: TextGameData, seed: int) -> TextGameData:
    """The same with some states of `train` set apart, and every row that starts from them."""
    train, states = data.train, list(dict.fromkeys(row.state for row in data.train.rows))
    order = seeds.generator(seed, "validation states").permutation(len(states))
    # By state and not by row: rows of one state share most of their prompt.
    apart = {states[int(i)] for i in order[: max(1, len(states) // VALIDATION_EVERY)]}
    if len(apart) == len(states):
        raise OneiroError(f"the {len(train)} training rows start from one state: record or name more games")
    learned, watched = ([row for row in train.rows if (row.state in apart) is side] for side in (False, True))
    return replace(data, train=replace(train, rows=learned), validation=replace(train, rows=watched))


def row_order(data: Dataset, settings: SamplerSettings, kind: Kind, seed: int) -> Balanced | GoldMix:
    """The endless list of row numbers that training goes through, for questions of one kind."""
    if settings.name == "gold-mix":
        return GoldMix(data, per_hundred=settings.per_hundred, seed=seed)
    return Balanced(data, kind, changed_share=settings.changed_share, seed=seed)


def some_rows(data: Sequence[Transition], rows: int, seed: int) -> list[Transition]:
    return some(data, rows, seed, "test rows")


class AnswerRows(LazyRows):
    """Token rows of questions and answers, by number: the loss is on the answer and its end.

    A row's first segment is what all commands in one situation share. `groups` are the row numbers that are learned
    together.
    """

    def __init__(
        self, chat: ChatFormat, example: Callable[[int], tuple[str, str]], groups: Sequence[Sequence[int]]
    ) -> None:
        self.prompts, self.example, self.groups = SharedPrompts(chat), example, groups
        numbers = [number for group in groups for number in group]
        # Epochs come back to the same rows, which need not be tokenised again.
        row = lru_cache(maxsize=200_000)(self._row)
        super().__init__(lambda index: row(numbers[index]), len(numbers))

    def _row(self, number: int) -> Row:
        prompt, answer = self.example(number)
        return self.prompts.row(*cut(prompt), answer)


def training_rows(
    recipe: TextGameRecipe, run: Run, data: TextGameData, task: TextGamePredictor, chat: ChatFormat
) -> AnswerRows:
    """What SFT learns from: the truth, or a teacher's right answers (kept in the run as they come)."""
    settings, seed = recipe.sft_data, seeds.derive(recipe.seed, "lessons")
    sampler, kind = settings.sampler or recipe.sampler, recipe.task.transition
    order = row_order(data.train, sampler, kind, seed)
    sampled = StateGroups(data.train, order, settings.rows_per_state, sampler.changed_share, seed, kind)
    groups: list[list[int]] = []
    left = settings.rows
    while left:
        groups.append(sampled.group(len(groups))[:left])
        left -= len(groups[-1])
    if settings.teacher is None:
        return true_rows(task, chat, data.train, groups)
    cases = (data.train[number] for group in groups for number in group)
    teacher, cache, refused = settings.teacher, run.path / "teacher", list[str]()
    with run.progress("teacher", settings.rows) as bar:
        examples = taught_examples(
            task, cases, teacher, cache, samples=settings.samples, advance=bar.advance, refuse=refused.append
        )
        taught = distributed.on_main_process(lambda: list(examples))
    run.say(f"teacher: {len(taught):,} of {settings.rows:,} questions answered right in {settings.samples} tries")
    if refused:
        run.say(f"teacher: {len(refused):,} questions skipped, since its server refused them: {refused[0]}")
    if not taught:
        raise OneiroError(
            "the teacher got no answer right; raise sft_data.rows or sft_data.samples, or have no teacher"
        )
    pairs = [(example.messages[0]["content"], example.answer) for example in taught]
    return AnswerRows(chat, pairs.__getitem__, [[number] for number in range(len(pairs))])


def true_rows(
    task: TextGamePredictor, chat: ChatFormat, cases: Sequence[Transition], groups: Sequence[Sequence[int]]
) -> AnswerRows:
    """The true answers to the numbered cases."""

    def example(number: int) -> tuple[str, str]:
        case = cases[number]
        return task.prompt(case)[0]["content"], task.target(case)

    return AnswerRows(chat, example, groups)
