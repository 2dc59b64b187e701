"""What a web page is worth for a task, learned from episodes and their rewards; nobody says where the task ends.

Two logistic regressions on what a page and the task's own words say to each other:

    stop   the chance that the task is done where the agent stops
    way    the discounted reward that followed where the agent went on
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from oneiro.agents.linear.features import names_in, plain, stems
from oneiro.agents.planning.base import Judged, Root
from oneiro.runtime import seeds
from oneiro.tasks.webpage.dynamics import BrowsedPage
from oneiro.tasks.webpage.lookup import page_type
from oneiro.tasks.webpage.slots import Line, sources_of

ON_THE_WAY = 0.9
"""What a page is worth at most where the episode has not stopped."""
DISCOUNT = 0.9
"""What the reward of an episode is worth one action earlier."""
EPOCHS, RATE, DECAY = 20, 0.5, 1e-4
Row = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Places of features, and their values."""


@dataclass(frozen=True)
class Lesson:
    """A page, whether the agent stopped on it, and what came of it."""

    state: BrowsedPage
    stopped: bool
    target: float


def lessons_of(views: Sequence[tuple[BrowsedPage, str]], success: bool) -> Iterator[Lesson]:
    """What an episode teaches; `views` are its pages with the action on each.

    Whoever reached a goal did not stop before it, so stopping there would have failed. Where a failed episode went on
    nobody knows what a stop would have brought.
    """
    for place, (state, action) in enumerate(views):
        if action.startswith("stop"):
            yield Lesson(state, True, float(success))
            continue
        yield Lesson(state, False, success * DISCOUNT ** (len(views) - place))
        if success:
            yield Lesson(state, True, 0.0)


class PageValue:
    """Judges pages (`planning.base.Value`); a task is told by the objective that every page carries."""

    def __init__(self, lessons: Sequence[Lesson], seed: int = 0) -> None:
        self.places: dict[str, int] = {}
        rows = [self._row(lesson.state, grow=True) for lesson in lessons]
        self.weights = {
            stopped: self._fit(
                [(row, one.target) for row, one in zip(rows, lessons, strict=True) if one.stopped is stopped], seed
            )
            for stopped in (True, False)
        }

    def __call__(self, roots: Sequence[Root[BrowsedPage]]) -> list[Judged]:
        return [self._judge(root.state) for root in roots]

    def _judge(self, state: BrowsedPage) -> Judged:
        done = state.answer is not None
        chance = self._chance(self.weights[done], self._row(state))
        return Judged(chance if done else ON_THE_WAY * chance, done)

    def _fit(self, lessons: Sequence[tuple[Row, float]], seed: int) -> NDArray[np.float64]:
        weights = np.zeros(len(self.places))
        for epoch in range(EPOCHS):
            for number in seeds.generator(seed, "page value", epoch).permutation(len(lessons)):
                row, target = lessons[number]
                slope = self._chance(weights, row) - target
                weights[row[0]] -= RATE * (slope * row[1] / max(1.0, row[1] @ row[1]) ** 0.5 + DECAY * weights[row[0]])
        return weights

    @staticmethod
    def _chance(weights: NDArray[np.float64], row: Row) -> float:
        return float(1 / (1 + np.exp(-np.clip(weights[row[0]] @ row[1], -30, 30))))

    def _row(self, state: BrowsedPage, grow: bool = False) -> Row:
        features = features_of(state)
        if grow:
            for name in features:
                self.places.setdefault(name, len(self.places))
        known = [(self.places[name], value) for name, value in features.items() if name in self.places]
        return np.array([place for place, _ in known], np.int64), np.array([value for _, value in known])


def features_of(state: BrowsedPage) -> dict[str, float]:
    """What a page says of its task: how much of what the task names and asks for stands in the address, in fields, in
    headings and anywhere; and which of its words go with which kind of page, query and choice.
    """
    names = names_in(state.objective)
    asked = stems(state.objective) - stems(" ".join(names))
    parts = urlsplit(state.page.url)
    held = {slot: value for slot, value in sources_of(state.situation("none")).items() if slot.startswith("field")}
    above, below = state.page.frame()
    lines = [Line.of(item) for item in state.page.items[above:below]]
    texts = {
        "address": unquote(f"{parts.path} {parts.query}".replace("+", " ")),
        "fields": " ".join(held.values()),
        "headings": " ".join(line.name for line in lines if line.role == "heading"),
        "page": " ".join(line.name for line in lines),
    }
    features = {"always": 1.0}
    for place, text in texts.items():
        missing = [name for name in names if plain(name) not in plain(text)]
        features[f"names in {place}"] = 1 - len(missing) / len(names) if names else 1.0
        features[f"all names in {place}"] = float(not missing)
        features[f"words in {place}"] = len(asked & stems(text)) / len(asked) if asked else 1.0

    def written(value: str) -> str:
        """A value by what it is to the task: a certain one of its names, or itself."""
        own = plain(value)
        return next((f"name {n}" for n, name in enumerate(names) if plain(name) == own), own[:24])

    kind = page_type(state.page)
    facts = [kind, *(f"{kind} {key}={written(value)}" for key, value in parse_qsl(parts.query, keep_blank_values=True))]
    facts += [f"{kind} {slot}={written(value)}" for slot, value in held.items()]
    features |= dict.fromkeys((*facts, *(f"{word} | {fact}" for fact in facts for word in asked)), 1.0)
    return features
