"""A page model in the place of the true web, for tasks that end on a page: their own check decides on its address."""

from __future__ import annotations

from collections.abc import Sequence

from oneiro.predictors.webpage.dynamics import NextPages
from oneiro.predictors.webpage.goals import goal_of, reaches
from oneiro.predictors.webpage.record import HISTORY
from oneiro.predictors.webpage.task import WebPagePredictor
from oneiro.predictors.webpage.world import LearnedPage
from oneiro.worlds.base import Step, World
from oneiro_web.actions import Kind, Malformed
from oneiro_web.env import WebConfig


class DreamedWeb(LearnedPage):
    """Starts on a true page and continues on predicted ones; a task is done at the predicted address that it asks for.

    As in the true web, `stop` is graded, and so is the page that the last action of the budget leaves. Tasks that ask
    for anything but a page are never done in here.
    """

    def __init__(self, pages: NextPages, config: WebConfig | None = None) -> None:
        super().__init__(WebPagePredictor(), lambda situations: [], config)
        self.pages = pages

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.won)
        parsed = self.grammar.parse(action)
        if isinstance(parsed, Malformed):
            self.notice = parsed.reason
            return self.outcome(0.0, valid=False, effective=False, malformed=False)
        self.notice = ""
        if parsed.kind is Kind.STOP:
            return self._graded(done=True, effective=True, malformed=False)
        case, before = self.situation(action), self.present
        told = self.pages([case])[0]
        self.said = (*self.said, case.described)[-HISTORY:]
        self.done_so_far.append(parsed)
        if told is not None:
            self.show(told)
        malformed, effective = told is None, self.present != before
        if self.remaining > 1:
            return self.outcome(0.0, effective=effective, malformed=malformed)
        return self._graded(done=False, effective=effective, malformed=malformed)

    def _graded(self, *, done: bool, effective: bool, malformed: bool) -> Step:
        self.won = reaches(self.present.url, goal_of(self.task))
        return self.outcome(float(self.won), done=done, success=self.won, effective=effective, malformed=malformed)


def foresee(pages: NextPages, asked: Sequence[tuple[World, str]]) -> None:
    """Predict the next step of many dreams in one call; those that share `pages` (`Remembered`) find it there."""
    cases = []
    for world, action in asked:
        assert isinstance(world, DreamedWeb)
        parsed = world.grammar.parse(action)
        if not isinstance(parsed, Malformed) and parsed.kind is not Kind.STOP:
            cases.append(world.situation(action))
    pages(cases)
