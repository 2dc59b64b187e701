"""A language model for web pages: what travels with its weights, `tiny` with a tokenizer of pages, and page models at
work, as dynamics for planners.

A line's number with the line break before it is one token of `tiny`, and so is every item that keeps coming
(`button 'Upvote'`) and the opening of any other (`heading '`). A page of twenty lines then has about a hundred tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

from oneiro.models.language import LanguageModel
from oneiro.models.metadata import ModelMetadata
from oneiro.models.settings import ModelSettings
from oneiro.runtime import distributed, seeds
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks import answering
from oneiro.tasks.answering import AnsweringModel, most_often
from oneiro.tasks.base import Dynamics, Flaw, Imagined, Malformed
from oneiro.tasks.webpage.lookup import PageLookup
from oneiro.tasks.webpage.predictor import WebPagePredictor, WebPagePredictorConfig
from oneiro.tasks.webpage.prompt import HEADINGS
from oneiro.tasks.webpage.record import HISTORY
from oneiro.tasks.webpage.rollout import Predict, imagine
from oneiro.tasks.webpage.state import PageSituation, PageState, PageTransition
from oneiro_web.actions import Kind, parse_webarena
from oneiro_web.actions import Malformed as MalformedAction
from oneiro_web.diff import apply
from oneiro_web.plugin import WebWorld

TEXTS = 1500
"""Questions with their answers that the tokenizer of `tiny` is trained on."""
LINES = 400
"""Items that become one token each."""
NUMBERS = 300
ROLES = 60
ITEM = re.compile(r"\] ([A-Za-z]+ '[^'\n]*'[^\n]*)")
OPENING = re.compile(r"( [A-Za-z]+ ['\"])")
NUMBER = re.compile(r"\n\[[.-]?\d+\]")

WebPageModel = AnsweringModel[WebPagePredictor, PageSituation]
"""A predictor with the engine that answers its prompts."""


class WebPageMetadata(ModelMetadata):
    """How a predictor of web pages is prompted."""

    what = "a predictor of web pages"
    kind: Literal["web-page"] = "web-page"
    task: WebPagePredictorConfig
    sampling: SamplingSettings


def create_tiny(
    settings: ModelSettings, task: WebPagePredictor, cases: Sequence[PageTransition], seed: int
) -> LanguageModel:
    return answering.create_tiny(settings, task, cases, seed, pieces)


def pieces(texts: Sequence[str]) -> list[str]:
    """Headings, numbers of lines, items and openings of items that occur more than once, most often first."""
    headings = [f"\n\n{heading}" for heading in HEADINGS[1:]] + ["\nNone", HEADINGS[0]]
    items = [f" {item}" for item in most_often(ITEM, texts, LINES, at_least=2)]
    numbers, openings = most_often(NUMBER, texts, NUMBERS, at_least=2), most_often(OPENING, texts, ROLES, at_least=2)
    return [*headings, *numbers, *items, *openings]


# As dynamics ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BrowsedPage:
    """A page together with what led to it: all that a policy, a value or a predictor may know."""

    site: str
    objective: str
    page: PageState
    past: tuple[str, ...] = ()
    """The actions so far."""
    previous: tuple[str, ...] = ()
    """The last of them as `PageSituation.described` writes them."""
    answer: str | None = None
    """What `stop` said; None: the episode goes on."""
    task: Any = field(default=None, compare=False, repr=False)
    """The task, for the true web alone: models, policies and values do not look at it."""

    @classmethod
    def of(cls, world: WebWorld) -> BrowsedPage:
        past = tuple(world.grammar.write(action) for action in world.done_so_far)
        page, task = PageState.of(world.page), world.task
        return cls(task.sites[0], task.intent, page, past, past[-HISTORY:], task=task)

    @cached_property
    def text(self) -> str:
        """The page as agents read it."""
        lines = "\n".join("\t" * item.depth + str(item) for item in self.page.items)
        return f"Task: {self.objective}\nURL: {self.page.url}\n{lines}"

    @cached_property
    def key(self) -> bytes:
        named = self.task.task_id if self.task is not None else ""
        # The past counts: the same page after other actions may lie over another state of the site.
        text = "\n".join([str(named), self.text, *self.past, repr(self.answer)])
        return blake2b(text.encode(errors="replace"), digest_size=16).digest()

    def situation(self, action: str) -> PageSituation:
        return PageSituation(self.site, self.objective, self.page, action, self.previous)

    def after(self, action: str, page: PageState) -> BrowsedPage:
        """Where an action that leads to `page` leaves off."""
        previous = (*self.previous, self.situation(action).described)[-HISTORY:]
        return replace(self, page=page, past=(*self.past, action), previous=previous)

    def stop(self, action: str, answer: str) -> BrowsedPage:
        return replace(self, past=(*self.past, action), answer=answer)


NextPages = Callable[[Sequence[PageSituation]], Sequence[PageState | None]]
"""The pages that actions lead to; None where a prediction cannot be read."""


def pages_in(task: WebPagePredictor, predict: Predict) -> NextPages:
    """The pages that written answers lead to."""

    def pages(cases: Sequence[PageSituation]) -> list[PageState | None]:
        imagined = [imagine(task, case, text) for case, text in zip(cases, predict(cases), strict=True)]
        return [one.state if one is not None else None for one in imagined]

    return pages


class Remembered:
    """Pages that are predicted once for each situation; the new ones of a call together."""

    def __init__(self, pages: NextPages, known: Mapping[PageSituation, PageState] | None = None) -> None:
        """`known` need no prediction: true steps."""
        self.pages = pages
        self._known: dict[PageSituation, PageState | None] = dict(known or {})

    def __call__(self, cases: Sequence[PageSituation]) -> list[PageState | None]:
        new = list(dict.fromkeys(case for case in cases if case not in self._known))
        if new:
            with distributed.local():  # what is new to this rank may be known to another
                self._known.update(zip(new, self.pages(new), strict=True))
        return [self._known[case] for case in cases]


def look_up_pages(lookup: PageLookup) -> NextPages:
    """Memory in the place of a model: where the nearest training step led, or its change made to the page."""

    def page(case: PageSituation) -> PageState | None:
        near = lookup.nearest(case)
        if not near:
            return case.state
        if not near[0].state.same_document(near[0].after):
            return near[0].after
        first = case.state.items[0].id if case.state.items else 1
        return PageState(case.state.url, tuple(apply(case.state.items, lookup(case), first)))

    return lambda cases: [page(case) for case in cases]


def shuffle_pages(pages: NextPages, pool: Sequence[PageState], seed: int) -> NextPages:
    """A control: what the action does on another page, always the same one for a page."""

    def other(state: PageState) -> PageState:
        # Seeded by the page, so that search meets a consistent, if wrong, world.
        rng = seeds.generator(seed, "shuffled", state.url, *(item.line for item in state.items))
        different = [page for page in pool if page != state]
        return different[int(rng.integers(len(different)))] if different else state

    return lambda cases: pages([replace(case, state=other(case.state)) for case in cases])


class PageDynamics(Dynamics[BrowsedPage]):
    """A predictor of pages. `stop` ends an episode and needs no prediction; an action that is none changes nothing.

    It gives one outcome however many are asked for, and a prediction counts as one token.
    """

    def __init__(self, pages: NextPages) -> None:
        self.pages = pages

    def key(self, state: BrowsedPage) -> Hashable:
        return state.key

    def show(self, state: BrowsedPage) -> str:
        return state.text if state.answer is None else f"{state.text}\n(stopped: {state.answer})"

    def predict(
        self, pairs: Sequence[tuple[BrowsedPage, str]], outcomes: int = 1, seed: int = 0
    ) -> list[list[Imagined[BrowsedPage]]]:
        predictions: list[Imagined[BrowsedPage] | None] = [_predict_known(state, action) for state, action in pairs]
        unknown = [pair for pair, known in zip(pairs, predictions, strict=True) if known is None]
        pages = iter(self.next_pages(unknown) if unknown else ())
        for place, (state, action) in enumerate(pairs):
            if predictions[place] is None:
                page = next(pages)
                after = state.after(action, page) if page is not None else Malformed(Flaw.SHAPE)
                predictions[place] = Imagined(after, tokens=1)
        return [[one] * outcomes for one in predictions if one is not None]

    def next_pages(self, pairs: Sequence[tuple[BrowsedPage, str]]) -> Sequence[PageState | None]:
        return self.pages([state.situation(action) for state, action in pairs])


def _predict_known(state: BrowsedPage, action: str) -> Imagined[BrowsedPage] | None:
    """What is known without a prediction; None where one is needed."""
    parsed = parse_webarena(action)
    if isinstance(parsed, MalformedAction) or state.answer is not None:
        return Imagined(Malformed(Flaw.SHAPE))  # nothing follows a stop, and no page is read from a wrong action
    return Imagined(state.stop(action, parsed.text)) if parsed.kind is Kind.STOP else None


class TrueWeb(PageDynamics):
    """The web itself as the model: each branch is played in its own copy of the sites."""

    def __init__(self, make_world: Callable[[], WebWorld]) -> None:
        self.make_world = make_world
        self._world: WebWorld | None = None
        self._taken: tuple[str, ...] = ()
        """Where the present copy is."""

    def next_pages(self, pairs: Sequence[tuple[BrowsedPage, str]]) -> list[PageState | None]:
        return [self._page(state, action) for state, action in pairs]

    def _page(self, state: BrowsedPage, action: str) -> PageState | None:
        if state.task is None:
            return None
        world = self._world
        # A site cannot be set back, so every branch is played again from its start, unless the copy stands there.
        if world is None or world.task is not state.task or self._taken != state.past:
            if world is None:
                world = self._world = self.make_world()
            world.reset(seed=0, options={"task": state.task})
            for past in state.past:
                world.step(past)
        world.step(action)
        self._taken = (*state.past, action)
        return PageState.of(world.page)

    def close(self) -> None:
        if self._world is not None:
            self._world.close()
        self._world = None
