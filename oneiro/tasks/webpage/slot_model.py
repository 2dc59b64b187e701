"""A small page model without a language model: which kind of page comes next, and which lines stand there.

Two things are learned from steps that are rewritten with slots (`oneiro.tasks.webpage.slots`); no reward is used:

    softmax regression   the action, its element and the page  ->  an outcome: another address, or a change of this page
    frequencies          an outcome  ->  the lines of the page that it leads to

A prediction takes the likeliest outcome, writes the lines that more than half of its training pages have, and fills the
slots from the page in question. What differs between contents and stands in no slot is written `?`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import read_json, write_json
from oneiro.tasks.webpage.lookup import page_type
from oneiro.tasks.webpage.slots import UNKNOWN, Line, Sources, filled_url, slotted_url, sources_of, to_template
from oneiro.tasks.webpage.state import PageSituation, PageState, PageTransition, true_diff
from oneiro_web.actions import Action, parse_webarena

FILE = "page_model.json"
NEAR_LINES = 3
"""Lines around an action's element within which a change is told by its distance from it."""
SITE_CONTENTS = 3
"""A name that stands on pages of so many contents belongs to the site and is written as it is."""
LIKELY_SHARE = 0.5  # a line that most pages of an outcome have is predicted, any other is not
_NUMBER = re.compile(r"\d+")

Outcome = str
"""`page ADDRESS` with slots, or `change N`: the N-th kind of change."""
Change = tuple[tuple[Any, ...], ...]
"""What happens on a page that stays: ("new", offset, line) and ("renamed", offset, name) below the element, ("becomes",
properties) of the element, ("other", role, properties before, properties after) of the nearest such line."""


def features_of(case: PageSituation, sources: Sources) -> list[str]:
    """What an outcome depends on: the action, its element, the page, and what its fields hold."""
    parsed = parse_webarena(case.action)
    kind = str(parsed.kind) if isinstance(parsed, Action) else "none"
    item = case.state.item(case.element)
    role, name = ("absent", "") if item is None else Line.of(item)[1:3]
    # 'Comments (3)' and 'Comments (12)' are the same link.
    name = _NUMBER.sub("0", name)
    enter = isinstance(parsed, Action) and parsed.enter
    place, act = page_type(case.state), f"{kind} {enter} {role}"
    held = [(slot, value) for slot, value in sources.items() if slot.startswith("field")]
    return [
        "always",
        f"{case.site} {act}",
        act,
        f"{act} {name}",
        f"{place} {act}",
        f"{place} {act} {name}",
        *(f"{act} {name} | {slot} {'full' if value else 'empty'}" for slot, value in held),
        *(f"{act} {name} | {slot}={value}" for slot, value in held),
    ]


def change_of(case: PageTransition) -> Change:
    """What a step did to a page that stays."""
    here, sources = case.element or 0, sources_of(case)
    diff = true_diff(case, 0)
    before = {item.id: Line.of(item) for item in case.state.items}
    own = before.get(here)
    changes: list[tuple[Any, ...]] = []
    for item in diff.new:
        line = Line.of(item)
        if own is not None and 0 < item.id - here <= NEAR_LINES:
            name = to_template(line.name, sources)
            changes.append(("new", item.id - here, line.depth - own.depth, line.role, name, line.properties))
    for item in diff.updated:
        line, old = Line.of(item), before.get(item.id)
        if item.id == here:
            changes.append(("becomes", line.properties))
        elif old is not None and old.name != line.name:
            if 0 < item.id - here <= NEAR_LINES:
                changes.append(("renamed", item.id - here, to_template(line.name, sources)))
        elif old is not None:
            changes.append(("other", old.role, old.properties, line.properties))
    # In a fixed order, so that equal changes are one outcome.
    return tuple(sorted(set(changes), key=repr))


@dataclass
class SlotModel:
    """Predicts pages. It is a function of situations (`NextPages`)."""

    outcomes: list[Outcome] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    lines: dict[Outcome, list[Line]] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    """Feature -> its row of the weights."""
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    """[features, outcomes]"""

    @classmethod
    def fit(cls, cases: Sequence[PageTransition], epochs: int = 8, rate: float = 0.3, seed: int = 0) -> SlotModel:
        """Learn from steps; those that end an episode by an answer are left out."""
        cases = [case for case in cases if not case.stops]
        model = cls()
        outcomes = [model._outcome(case) for case in cases]
        model.outcomes = sorted(set(outcomes))
        model._learn_lines(cases, outcomes)
        model._learn_outcomes(cases, outcomes, epochs, rate, seed)
        return model

    def _outcome(self, case: PageTransition) -> Outcome:
        if not case.state.same_document(case.after):
            return f"page {slotted_url(case.after.url, sources_of(case))}"
        change = change_of(case)
        if change not in self.changes:
            self.changes.append(change)
        return f"change {self.changes.index(change)}"

    def _learn_lines(self, cases: Sequence[PageTransition], outcomes: Sequence[Outcome]) -> None:
        pages = [(outcome, case, sources_of(case)) for outcome, case in zip(outcomes, cases, strict=True)]
        pages = [one for one in pages if one[0].startswith("page ")]
        written = [
            [(line, to_template(line.name, sources)) for line in map(Line.of, case.after.items)]
            for _, case, sources in pages
        ]
        contents: dict[str, set[int]] = defaultdict(set)
        for (_, case, _), lines in zip(pages, written, strict=True):
            for _, name in lines:
                contents[name].add(case.content)
        counts: dict[Outcome, Counter[tuple[Line, int]]] = defaultdict(Counter)
        heights: dict[Outcome, dict[tuple[Line, int], float]] = defaultdict(lambda: defaultdict(float))
        seen = Counter(outcome for outcome, _, _ in pages)
        # Play on fewer contents than that knows no better.
        enough = min(SITE_CONTENTS, max((len(seen_in) for seen_in in contents.values()), default=1))
        for (outcome, _, _), lines in zip(pages, written, strict=True):
            again = Counter[Line]()
            for height, (line, name) in enumerate(lines):
                known = name if len(contents[name]) >= enough else UNKNOWN
                own = line._replace(name=known)
                # The n-th equal line of a page is a line of its own, else a list of ten equal buttons would be one.
                key = own, again[own]
                again[own] += 1
                counts[outcome][key] += 1
                heights[outcome][key] += height / len(lines)
        for outcome, keys in counts.items():
            likely = [key for key, count in keys.items() if count > LIKELY_SHARE * seen[outcome]]
            # By where a line stood on average, since pages of one outcome differ in length.
            likely.sort(key=lambda key: heights[outcome][key] / keys[key])
            self.lines[outcome] = [line for line, _ in likely]

    def _learn_outcomes(
        self, cases: Sequence[PageTransition], outcomes: Sequence[Outcome], epochs: int, rate: float, seed: int
    ) -> None:
        rows = []
        for case in cases:
            own = [self.places.setdefault(name, len(self.places)) for name in features_of(case, sources_of(case))]
            rows.append(np.array(sorted(set(own))))
        numbers = {outcome: number for number, outcome in enumerate(self.outcomes)}
        self.weights = np.zeros((len(self.places), len(self.outcomes)))
        for epoch in range(epochs):
            for place in seeds.generator(seed, "page model", epoch).permutation(len(rows)):
                logits = self.weights[rows[place]].sum(axis=0)
                slope = np.exp(logits - logits.max())
                slope /= slope.sum()
                slope[numbers[outcomes[place]]] -= 1
                # A page with many fields has many features, and would move the weights by more.
                self.weights[rows[place]] -= rate / len(rows[place]) ** 0.5 * slope

    # Prediction

    def __call__(self, cases: Sequence[PageSituation]) -> list[PageState | None]:
        return [self.page(case) for case in cases]

    def outcome(self, case: PageSituation, sources: Sources) -> Outcome | None:
        """The likeliest outcome; None where nothing was learned."""
        if not self.outcomes:
            return None
        known = [self.places[name] for name in features_of(case, sources) if name in self.places]
        return self.outcomes[int(np.argmax(self.weights[known].sum(axis=0)))]

    def page(self, case: PageSituation) -> PageState | None:
        sources = sources_of(case)
        outcome = self.outcome(case, sources)
        if outcome is None:
            return None
        kind, _, rest = outcome.partition(" ")
        if kind == "change":
            return _apply_change(case, self.changes[int(rest)], sources)
        lines = self.lines.get(outcome, [])
        items = tuple(line.item(number, sources) for number, line in enumerate(lines, start=1))
        return PageState(filled_url(rest, sources), items) if items else None

    # Files

    def save(self, folder: Path) -> None:
        """One JSON file; weights are rounded to what a choice can depend on."""
        write_json(
            folder / FILE,
            {
                "outcomes": self.outcomes,
                "changes": self.changes,
                "lines": self.lines,
                "places": list(self.places),
                "weights": np.round(self.weights, 4).tolist(),
            },
        )

    @classmethod
    def load(cls, folder: Path) -> SlotModel:
        try:
            data = read_json(folder / FILE)
            model = cls(
                [str(one) for one in data["outcomes"]],
                [tuple(tuple(part) for part in change) for change in data["changes"]],
                {name: [Line(*line) for line in lines] for name, lines in data["lines"].items()},
                {name: number for number, name in enumerate(data["places"])},
                np.array(data["weights"], np.float64),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OneiroError(
                f"the page model at {folder} cannot be read ({type(error).__name__}); delete it"
            ) from error
        if model.weights.shape != (len(model.places), len(model.outcomes)) or not np.isfinite(model.weights).all():
            raise OneiroError(f"the page model at {folder} is damaged: its weights do not fit; delete it")
        return model


def _apply_change(case: PageSituation, change: Change, sources: Sources) -> PageState:
    """A page with a change made around the action's element."""
    items = list(case.state.items)
    here = next((place for place, item in enumerate(items) if item.id == case.element), None)
    if here is None:
        return case.state
    own = Line.of(items[here])
    for kind, *what in change:
        if kind == "becomes":
            items[here] = own._replace(properties=what[0]).item(items[here].id, {})
        elif kind == "renamed" and here + what[0] < len(items):
            old = items[here + what[0]]
            items[here + what[0]] = Line.of(old)._replace(name=what[1]).item(old.id, sources)
        elif kind == "other":
            role, old, new = what
            near = sorted(range(len(items)), key=lambda place: abs(place - here))
            for place in near:
                line = Line.of(items[place])
                if place != here and (line.role, line.properties) == (role, old):
                    items[place] = line._replace(properties=new).item(items[place].id, {})
                    break
    for kind, *what in change:
        if kind == "new":
            offset, deeper, role, name, properties = what
            line = Line(own.depth + deeper, role, name, properties)
            # After all other changes: an insertion moves the lines that their offsets count.
            items.insert(here + offset, line.item(0, sources))
    first = case.state.items[0].id
    # A browser numbers the lines of a page in order, so the inserted ones push the others down.
    return PageState(case.state.url, tuple(item._replace(id=first + at) for at, item in enumerate(items)))


def right_kind(predicted: PageState | None, case: PageTransition) -> bool:
    """Whether a prediction has the right address, but for numbers in its path, or the right lines of a page that stays.

    A page's lines cannot all be known; an address says which page it is.
    """
    if predicted is None:
        return False
    if case.state.same_document(case.after):
        return predicted.url == case.state.url and [i.line for i in predicted.items] == [
            i.line for i in case.after.items
        ]
    return slotted_url(predicted.url, {}) == slotted_url(case.after.url, {})
