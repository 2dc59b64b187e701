"""The steps of an RLVR run on web pages: recorded or opened, and sampled for SFT and RL."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

from oneiro.models.chat import ChatFormat
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.tasks.answering import some
from oneiro.tasks.webpage.evaluation import distinct
from oneiro.tasks.webpage.parquet import read_parquet, write_parquet
from oneiro.tasks.webpage.predictor import WebPagePredictor
from oneiro.tasks.webpage.recipe import WebPageRecipe
from oneiro.tasks.webpage.record import Collection, steps_of
from oneiro.tasks.webpage.slot_model import SITE_CONTENTS
from oneiro.tasks.webpage.slots import Line
from oneiro.tasks.webpage.state import PageState, PageTransition, shown_items, true_diff
from oneiro_web.actions import Action, parse_webarena

TRAIN, TEST = "train", "test"
VALIDATION_EVERY = 8
"""One training episode in so many is a validation episode: never learned from, looked at during RL."""


@dataclass(frozen=True)
class WebPageData:
    """The steps of a run."""

    train: Sequence[PageTransition]
    validation: Sequence[PageTransition]
    test: Sequence[PageTransition]
    """Every question once."""
    episodes: Sequence[PageTransition]
    """All test steps in order, for rollouts."""


def data_stage(recipe: WebPageRecipe, run: Run) -> dict[str, Any]:
    """Record steps of training and test tasks, or look whether the given files can be read."""
    settings = recipe.data
    if not settings.train:
        for split in (TRAIN, TEST):
            record(recipe, run, split)
    data = open_data(recipe, run)
    sizes = {"train": len(data.train), "validation": len(data.validation), "test": len(data.test)}
    run.say(f"data: {', '.join(f'{count:,} {name}' for name, count in sizes.items())} distinct steps")
    for name, count in sizes.items():
        if not count:
            raise OneiroError(f"data: no {name} steps; raise data.episodes or data.test_episodes")
    return sizes


def record(recipe: WebPageRecipe, run: Run, split: str) -> None:
    """Play tasks of a split: test tasks have other content and templates that training never has."""
    settings, test = recipe.data, split == TEST
    collection = Collection(
        world="web",
        settings={"sites": settings.sites, **({"test": "unseen"} if test else {})},
        policy=settings.policy,
        episodes=settings.test_episodes if test else settings.episodes,
        split=split,
        steps=settings.steps,
        probes=settings.probes,
        oracle_share=settings.oracle_share,
        seed=seeds.derive(recipe.seed, "web data"),
    )
    with run.progress(f"data, {split}", collection.episodes) as bar:
        write_parquet(
            folder(run) / f"{split}.parquet", steps_of(collection, bar.advance), WebPagePredictor(recipe.task)
        )


def folder(run: Run) -> Path:
    return run.path / "data"


def open_data(recipe: WebPageRecipe, run: Run) -> WebPageData:
    """The splits. Validation episodes leave train, with every question that they share with it."""
    settings, stops = recipe.data, bool(recipe.task.heads)
    train = read_parquet(Path(settings.train).expanduser() if settings.train else folder(run) / f"{TRAIN}.parquet")
    test = read_parquet(Path(settings.test).expanduser() if settings.test else folder(run) / f"{TEST}.parquet")
    episodes = list(dict.fromkeys(case.episode for case in train))
    chosen = {*episodes[VALIDATION_EVERY - 1 :: VALIDATION_EVERY]}
    learned = distinct((case for case in train if case.episode not in chosen), stops)
    known = {case.question for case in learned}
    apart = distinct((case for case in train if case.episode in chosen), stops)
    validation = [case for case in apart if case.question not in known]
    data = WebPageData(learned, validation, distinct(test, stops), test)
    if not settings.content:
        return data
    names, lines = site_names(learned), recipe.task.lines
    train, validation, cases = (
        [case for case in part if decided_by_content(case, lines, names)]
        for part in (data.train, data.validation, data.test)
    )
    return WebPageData(train, validation, cases, test)


def some_steps(cases: Sequence[PageTransition], rows: int, seed: int) -> list[PageTransition]:
    return some(cases, rows, seed, "test steps")


class StepSampler:
    """An endless list of training steps: a pure function of the seed and the sample's number.

    `changed_share` of them change the page; within each part every step comes once before any comes again.
    """

    def __init__(
        self, task: WebPagePredictor, cases: Sequence[PageTransition], changed_share: float, seed: int
    ) -> None:
        self.parts = [[case for case in cases if task.changes(case) is changed] for changed in (True, False)]
        self.share = changed_share if all(self.parts) else float(bool(self.parts[0]))
        self.seed = seed
        self._order = lru_cache(maxsize=8)(self._shuffle)

    def __call__(self, number: int) -> PageTransition:
        before, upto = int(number * self.share), int((number + 1) * self.share)
        part, place = (0, before) if upto > before else (1, number - before)
        epoch, at = divmod(place, len(self.parts[part]))
        return self.parts[part][self._order(part, epoch)[at]]

    def _shuffle(self, part: int, epoch: int) -> list[int]:
        return [int(i) for i in seeds.generator(self.seed, "steps", part, epoch).permutation(len(self.parts[part]))]


def short_enough(
    task: WebPagePredictor, chat: ChatFormat, cases: Sequence[PageTransition], longest: int
) -> list[PageTransition]:
    """The steps whose prompts have at most so many tokens; 0: all."""
    if not longest:
        return list(cases)
    return [case for case in cases if len(chat.opening(task.prompt(case)[0]["content"])) <= longest]


# Steps that a page's content decides ----------------------------------------------------------------------------------

# Steps inside a page that the page's own content decides: what changes is a copy, a permutation or a sum of what is
# shown.
#
# Navigation is mostly structure, which a memory of training pages knows as well as a model does. Sorting a table,
# voting, filling in a form or deleting a row changes lines that no training page has and that the page in question
# tells. These steps are chosen by their pages and the truth, never by an answer.


SITE_SHARE = 0.03
"""Of a site's contents that must have a name for it to be the site's: names are drawn from lists, so that of many
contents a few share one by chance."""
SHORTEST_QUOTE = 4
"""Characters of a shown name that another line may quote; shorter ones stand in many words by chance."""
MAX_NUMBERS = 64
"""Different numbers of a page whose sums and products are made, in the order in which they are shown."""
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def site_names(train: Iterable[PageTransition]) -> frozenset[str]:
    """Names that belong to a site and not to one content of it: buttons, labels, messages. A number never does."""
    contents: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    sizes: dict[str, set[int]] = defaultdict(set)
    for state, site, content in {(state, c.site, c.content) for c in train for state in (c.state, c.after)}:
        sizes[site].add(content)
        for name in {Line.of(item).name for item in state.items}:
            if not _NUMBER.search(name):
                contents[name][site].add(content)
    least = {site: max(SITE_CONTENTS, SITE_SHARE * len(every)) for site, every in sizes.items()}
    return frozenset(
        name for name, sites in contents.items() if any(len(own) >= least[at] for at, own in sites.items())
    )


def inside_page(case: PageTransition) -> bool:
    """Whether an action stays on its page: the address is the same but for query and fragment."""
    return _path(case.state) == _path(case.after)


def decided_by_content(case: PageTransition, lines: int, known: Set[str]) -> bool:
    """Whether a step stays on its page and changes content, at least half of which what is shown tells. `known` are the
    names that belong to the site.
    """
    if case.stops or not inside_page(case):
        return False
    change = true_diff(case, lines)
    names = [Line.of(item).name for item in (*change.new, *change.updated)]
    own = [name for name in names if name not in known]
    if not own:
        # A row that goes and nothing in its place: the action's element says which.
        return not change.new and any(Line.of(item).name not in known for item in change.deleted)
    shown = PageContent.of(case, lines, known)
    return 2 * sum(map(shown.tells, own)) >= len(own)


class PageContent:
    """What a page and an action tell about the lines that come next."""

    def __init__(self, names: Sequence[str], known: Set[str]) -> None:
        self.names = frozenset(names)
        self.quotes = [name for name in self.names if len(name) >= SHORTEST_QUOTE and name not in known]
        self.shapes = {_NUMBER.sub("0", name) for name in (*names, *known)}
        numbers = list(dict.fromkeys(number for name in names for number in numbers_in(name)))[:MAX_NUMBERS]
        pairs = list(combinations_with_replacement(numbers, 2))
        # A counter moves by 1; totals are sums, line totals products of price and quantity.
        self.numbers = {
            round(value, 2)
            for value in (
                *numbers,
                *(number + step for number in numbers for step in (-1, 1)),
                *(one + two for one, two in pairs),
                *(one * two for one, two in pairs),
            )
        }

    @classmethod
    def of(cls, case: PageTransition, lines: int, known: Set[str]) -> PageContent:
        parsed = parse_webarena(case.action)
        typed = [parsed.text] if isinstance(parsed, Action) and parsed.text else []
        return cls([*(Line.of(item).name for item in shown_items(case, lines)), *typed], known)

    def tells(self, name: str) -> bool:
        """Whether a name is a copy, quotes one, or has its form with numbers that follow from those shown."""
        if name in self.names or any(quote in name for quote in self.quotes):
            return True
        numbers = numbers_in(name)
        return bool(numbers) and _NUMBER.sub("0", name) in self.shapes and self.numbers.issuperset(numbers)


def numbers_in(text: str) -> list[float]:
    """The numbers of a text: `$1,204.50 for 3` has 1204.5 and 3."""
    return [round(float(number.replace(",", "")), 2) for number in _NUMBER.findall(text)]


def _path(state: PageState) -> str:
    return state.url.partition("?")[0].partition("#")[0]
