"""What a web page is worth for a task, learned from episodes and their rewards; nobody says where the task ends.

A page and the task's own words are turned into facts that hold for any names: which of what the task names stands in
the address, in fields and in headings, and which kind of page it is. Both numbers are chances of success:

    stop   a logistic regression on facts
    go on  the share of episodes that succeeded among those that went on after as many actions

Going on is the same for all pages: a value that compares them there draws a search back to pages like those of
successes, and it never stops.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from oneiro.agents.linear.features import names_in, plain, stems
from oneiro.agents.planning.base import Judged, Root
from oneiro.learning.logistic import sigmoid
from oneiro.runtime import seeds
from oneiro.tasks.webpage.lookup import page_type
from oneiro.tasks.webpage.model import BrowsedPage
from oneiro.tasks.webpage.slots import Line, sources_of

EPOCHS, RATE, DECAY = 20, 0.5, 1e-4
"""Of the regression: passes over its lessons, step size, pull towards 0."""
Facts = frozenset[str]


@dataclass(frozen=True)
class Lesson:
    """A page, whether to stop on it is what is judged, and what came of it."""

    state: BrowsedPage
    stopped: bool
    target: float


def lessons_of(views: Sequence[tuple[BrowsedPage, str]], success: bool) -> Iterator[Lesson]:
    """What an episode teaches; `views` are its pages with the action on each.

    Whoever reached a goal did not stop before it, so stopping there would have failed. Of a failed episode only its
    stop is known to be wrong: it may have been on its way until then.
    """
    for state, action in views:
        if action.startswith("stop"):
            yield Lesson(state, True, float(success))
            continue
        yield Lesson(state, False, float(success))
        if success:
            yield Lesson(state, True, 0.0)


class PageValue:
    """Judges pages (`planning.base.Value`); a task is told by the objective that every page carries."""

    def __init__(self, lessons: Sequence[Lesson], seed: int = 0) -> None:
        self.places: dict[str, int] = {}
        self.common = common_words([lesson.state.objective for lesson in lessons])
        stops, ends = list[tuple[NDArray[np.int64], float]](), defaultdict[int, list[float]](list)
        for lesson in lessons:
            if not lesson.stopped:
                ends[len(lesson.state.past)].append(lesson.target)
                continue
            facts = facts_of(lesson.state, self.common)
            for name in cross_facts(facts):
                self.places.setdefault(name, len(self.places))
            stops.append((self._row(facts), lesson.target))
        self.going_on = {actions: float(np.mean(targets)) for actions, targets in ends.items()}
        """Number of actions so far -> share of successes. No episode went on after more than the most of them."""
        self.weights = self._fit(stops, seed)

    def __call__(self, roots: Sequence[Root[BrowsedPage]]) -> list[Judged]:
        return [self._judge(root.state) for root in roots]

    def _judge(self, state: BrowsedPage) -> Judged:
        if state.answer is None:
            return Judged(self.going_on.get(len(state.past), 0.0))
        return Judged(self._chance(self.weights, self._row(facts_of(state, self.common))), True)

    def _fit(self, lessons: Sequence[tuple[NDArray[np.int64], float]], seed: int) -> NDArray[np.float64]:
        weights = np.zeros(len(self.places))
        for epoch in range(EPOCHS):
            for number in seeds.generator(seed, "page value", epoch).permutation(len(lessons)):
                row, target = lessons[number]
                slope = (self._chance(weights, row) - target) / max(1, len(row)) ** 0.5
                weights[row] -= RATE * (slope + DECAY * weights[row])
        return weights

    @staticmethod
    def _chance(weights: NDArray[np.float64], row: NDArray[np.int64]) -> float:
        return float(sigmoid(weights[row].sum()))

    def _row(self, facts: Facts) -> NDArray[np.int64]:
        return np.array([self.places[name] for name in cross_facts(facts) if name in self.places], np.int64)


TASK_WORD = "asked "
"""Begins the facts that are words of the task."""
COMMON_SHARE = 0.05
"""Of the objectives that a word must stand in to be one that tasks are asked by; what is rarer names something."""
_WORD = re.compile(r"[\w.-]{3,}")


def common_words(objectives: Sequence[str]) -> Facts:
    """The words that tasks are asked by, and not what they are about."""
    distinct = set(objectives)
    counts = Counter(word for text in distinct for word in set(_WORD.findall(text)))
    return frozenset(word for word, count in counts.items() if count >= COMMON_SHARE * len(distinct))


def cross_facts(facts: Facts) -> list[str]:
    """Facts, and each of those about the page together with each word that the task asks by; in a fixed order."""
    words = sorted(fact for fact in facts if fact.startswith(TASK_WORD))
    about = sorted(facts - set(words))
    return [*about, *(f"{word} | {fact}" for fact in about for word in words)]


def facts_of(state: BrowsedPage, common: Facts) -> Facts:
    """What holds of a page and its task, in words that other names do not change."""
    names = names_in(state.objective)
    known = plain(" ".join(names))
    # A name may be written in small letters; then it is told by how rare it is.
    rare = [word.strip(".-") for word in _WORD.findall(state.objective) if word not in common]
    names += [word for word in dict.fromkeys(rare) if plain(word) not in known]
    words = stems(state.objective) - stems(" ".join(names))
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
    facts = {f"{TASK_WORD}{word}" for word in words}
    for place, text in texts.items():
        missing = sum(plain(name) not in plain(text) for name in names)
        facts.add(f"{place} has {'all' if not missing else 'some' if missing < len(names) else 'none'} of the names")

    def name_of(value: str) -> str:
        """A value by what it is to the task: a certain one of its names, or itself."""
        own = plain(value)
        return next((f"name {number}" for number, name in enumerate(names) if plain(name) == own), own[:24])

    kind = page_type(state.page)
    for piece in (unquote(piece) for piece in parts.path.split("/")):
        kind = kind.replace(piece, name_of(piece)) if piece and name_of(piece).startswith("name") else kind
    facts.add(f"kind {kind}")
    facts |= {f"query {key}={name_of(value)}" for key, value in parse_qsl(parts.query, keep_blank_values=True)}
    facts |= {f"{slot}={name_of(value)}" for slot, value in held.items()}
    facts |= {f"part {place}={name_of(unquote(piece))}" for place, piece in enumerate(parts.path.split("/")) if piece}
    return frozenset(facts)
