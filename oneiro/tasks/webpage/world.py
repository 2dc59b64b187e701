"""A trained predictor in the place of the true web: the same interface, pages as text, every step a prediction.

`DreamedWeb` is the same for tasks that end on a page; whoever dreams says which pages are worth a stop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

from oneiro.models import language as languages
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.tasks.base import LearnedWorld
from oneiro.tasks.webpage.model import BrowsedPage, NextPages, WebPageMetadata, WebPageModel
from oneiro.tasks.webpage.parse import record
from oneiro.tasks.webpage.predictor import WebPagePredictor
from oneiro.tasks.webpage.record import HISTORY
from oneiro.tasks.webpage.rollout import Predict, imagine
from oneiro.tasks.webpage.state import PageSituation, PageState
from oneiro.worlds.base import Step, World
from oneiro.worlds.registry import config_for
from oneiro_web.actions import Action, Kind, Malformed
from oneiro_web.diff import Item
from oneiro_web.env import WebConfig
from oneiro_web.grading.webarena import VARIANTS, url_match
from oneiro_web.page import Node, Page, Printed
from oneiro_web.plugin import WebWorld
from oneiro_web.tasks import Evaluation, Task

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class LearnedPage(LearnedWorld, WebWorld):  # type: ignore[misc]
    """Starts on a true page and continues on predicted ones.

    A prediction that cannot be read changes nothing (`info["malformed"]`). `stop` ends the episode; it is worth what
    the predictor's reward head says, and 0 where it has none: nobody grades an imagined database.
    """

    name: ClassVar[str] = WebWorld.name
    """The name seeds the tasks: a seed gives the task that it gives in the true web."""

    def __init__(self, task: WebPagePredictor, predict: Predict, config: WebConfig | None = None) -> None:
        super().__init__(config)
        if self.config.view != "accessibility":
            raise OneiroError("pages are predicted as accessibility trees: leave out the view html")
        self.predictor, self.predict = task, predict

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        observation = super().reset(seed=seed, options=options)
        self.history: tuple[str, ...] = ()
        self.won = False
        self.show(PageState.of(self.page))
        return observation

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.won)
        parsed = self.grammar.parse(action)
        if isinstance(parsed, Malformed):
            self.notice = parsed.reason
            return self.outcome(0.0, valid=False, effective=False, malformed=False)
        self.notice = ""
        return self.follow(action, parsed)

    def follow(self, action: str, parsed: Action) -> Step:
        """Where an action leads."""
        situation = self.situation(action)
        text = self.predict([situation])[0]
        imagined, before = imagine(self.predictor, situation, text), self.present
        heads: Mapping[str, str] = imagined.prediction.outcome if imagined is not None else {}
        self.history = (*self.history, situation.described)[-HISTORY:]
        stops = parsed.kind is Kind.STOP
        # A stop ends the episode on the page where it was said.
        if imagined is not None and not stops:
            self.show(imagined.state)
        reward = _share(heads.get("reward"))
        self.won = reward >= 1.0
        return self.outcome(
            reward,
            done=stops or heads.get("done") == "yes",
            success=self.won,
            effective=stops or self.present != before,
            malformed=imagined is None,
        )

    def situation(self, action: str) -> PageSituation:
        """What the predictor may know before an action."""
        return PageSituation(self.task.sites[0], self.task.intent, self.present, action, self.history)

    def show(self, state: PageState) -> None:
        """Go on from a page, true or imagined: a planner returns to where it branched off."""
        self.present = state
        self.page = page_of(state, self.page)
        self.see.page = self.page
        self.body = self.page.text()

    @property
    def state(self) -> PageState:
        return self.present


def page_of(state: PageState, before: Page) -> Page:
    """Lines as a page: nodes with roles and names, and no elements behind them."""
    nodes = Printed({item.id: _node(item) for item in state.items})
    parents: list[Node] = []
    roots: list[Node] = []
    for node in nodes.values():
        del parents[node.depth :]
        (parents[-1].children if parents else roots).append(node)
        parents.append(node)
    root = roots[0] if roots else Node("RootWebArea", "")
    root.children += roots[1:]
    title = root.name or before.title
    tabs = tuple(title if number == before.tab else tab for number, tab in enumerate(before.tabs))
    return Page(state.url, title, root, nodes, tabs, before.tab)


def _node(item: Item) -> Node:
    read = record(item)
    name = _ESCAPE.sub(r"\1", read.name[1:-1])
    return Node(read.role, name, dict(read.properties), [], None, item.id, item.depth, item.line)


def _share(text: str | None) -> float:
    """A predicted reward, between 0 and 1; 0 where it is no number."""
    try:
        value = float(text) if text is not None else 0.0
    except ValueError:
        return 0.0
    return min(1.0, max(0.0, value)) if value == value else 0.0  # NaN is not itself


def open_world(model: str, world: str, settings: Mapping[str, Any] | None = None) -> LearnedPage:
    """The world `web` or a variant of it as a model (a run, a checkpoint) predicts it, prompted as it was trained."""
    config = cast(WebConfig, config_for(world, dict(settings or {})))  # before the model: a wrong name shows at once
    language = languages.load(model)
    metadata = WebPageMetadata.read(language, model)
    if metadata is None:
        raise OneiroError(f"the model at {model} was not trained to predict web pages")
    task = WebPagePredictor(metadata.task.model_copy(update={"retrieve": 0}))
    return LearnedPage(task, WebPageModel(task, Engine(language, 1), metadata.sampling), config)


def goal_of(task: Task) -> Evaluation | None:
    """The check of the address where a task must end; None where a task asks for something else."""
    check = task.eval
    return check if isinstance(check, Evaluation) and check.eval_types == ("url_match",) else None


def reaches(url: str, goal: Evaluation | None) -> bool:
    """Whether the check accepts an address."""
    return goal is not None and url_match(goal, url, VARIANTS["webarena"]).score == 1.0


Judge = Callable[[BrowsedPage], bool]
"""Whether an episode that stopped on a page (`BrowsedPage.answer`) succeeded."""


class DreamedWeb(LearnedPage):
    """Starts on a true page and continues on predicted ones; `succeeds` decides in the place of the task's check.

    Predicted addresses lack what no page tells, as the number of an order; the task's check of the address would
    refuse them all, and would tell what no agent knows. As in the true web, `stop` is graded, and so is the page that
    the last action of the budget leaves.
    """

    def __init__(self, pages: NextPages, succeeds: Judge, config: WebConfig | None = None) -> None:
        super().__init__(WebPagePredictor(), lambda situations: [], config)
        self.pages, self.succeeds = pages, succeeds

    def follow(self, action: str, parsed: Action) -> Step:
        if parsed.kind is Kind.STOP:
            return self._grade_page(parsed.text, done=True, effective=True, malformed=False)
        case, before = self.situation(action), self.present
        predicted = self.pages([case])[0]
        self.history = (*self.history, case.described)[-HISTORY:]
        self.done_so_far.append(parsed)
        if predicted is not None:
            self.show(predicted)
        malformed, effective = predicted is None, self.present != before
        if self.remaining > 1:
            return self.outcome(0.0, effective=effective, malformed=malformed)
        return self._grade_page("", done=False, effective=effective, malformed=malformed)

    def _grade_page(self, answer: str, *, done: bool, effective: bool, malformed: bool) -> Step:
        self.won = self.succeeds(replace(BrowsedPage.of(self), page=self.present, answer=answer, task=None))
        return self.outcome(float(self.won), done=done, success=self.won, effective=effective, malformed=malformed)


def predict_together(pages: NextPages, pairs: Sequence[tuple[World, str]]) -> None:
    """Predict the next step of many dreams in one call; those that share `pages` (`Remembered`) find it there."""
    cases = []
    for world, action in pairs:
        assert isinstance(world, DreamedWeb)
        parsed = world.grammar.parse(action)
        if not isinstance(parsed, Malformed) and parsed.kind is not Kind.STOP:
            cases.append(world.situation(action))
    pages(cases)
