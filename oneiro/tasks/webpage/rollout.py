"""Several steps on a model's own predictions: a predicted change is carried out, the next question is asked there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from oneiro.report.stats import bootstrap
from oneiro.tasks.base import Malformed
from oneiro.tasks.webpage.parse import MAX_LINES, PagePrediction
from oneiro.tasks.webpage.predictor import WebPagePredictor
from oneiro.tasks.webpage.prompt import brief_text
from oneiro.tasks.webpage.score import precision_recall_f1
from oneiro.tasks.webpage.state import PageSituation, PageState, PageTransition, window_before
from oneiro_web.actions import Malformed as MalformedAction
from oneiro_web.actions import parse_webarena
from oneiro_web.diff import apply

Predict = Callable[[Sequence[PageSituation]], Sequence[str]]
"""Answers to situations: a model, or a baseline."""
DEPTHS = (1, 2, 4, 8)
MAX_URL_CHARS = 2000  # browsers and servers refuse longer addresses; a model may write any
_ID = re.compile(r"\[\d+\]")


@dataclass(frozen=True)
class ImaginedPage:
    """What a prediction leads to."""

    state: PageState
    prediction: PagePrediction


def imagine(task: WebPagePredictor, case: PageSituation, text: str) -> ImaginedPage | None:
    """The page that an answer leads to; None where it cannot be read or would leave no page. Total.

    What lies outside the window stays as it is, unless the answer leads to another page: then only what stands above a
    page's own part is known of it, besides the window.
    """
    read = task.parse(text, case)
    if isinstance(read, Malformed):
        return None
    window = window_before(case, task.config.lines)
    state, seen = case.state, window.of(case.state)
    url = read.outcome.get("url", state.url)[:MAX_URL_CHARS]
    here = state.items[state.main].id if state.items else 1
    first = seen[0].id if seen else here
    # Another page replaces what is shown of this one, but for the line that opens a page's own part.
    leaves = url != state.url if "url" in read.outcome else len({*read.change.deleted}) >= max(1, len(seen) - 1)
    above, below = state.items[: window.top], state.items[window.top + len(seen) :]
    # New lines above what is shown mean another page as well: of this one the model saw nothing there.
    if task.config.lines and (leaves or any(item.id < first for item in read.change.new)):
        first, above, below = here, state.items[: state.main], ()
    items = [*above, *apply(seen, read.change, first), *below]
    if not items or len(items) > MAX_LINES:
        return None
    start = state.items[0].id if state.items else 1
    return ImaginedPage(PageState(url, tuple(item._replace(id=start + at) for at, item in enumerate(items))), read)


def carry_over(action: str, true: PageState, imagined: PageState) -> str:
    """A true step's action with the id that its element has on an imagined page, as far as it is there."""
    parsed = parse_webarena(action)
    item = None if isinstance(parsed, MalformedAction) else true.item(parsed.element)
    if item is None:
        return action
    # Ids of imagined pages shift by what was predicted before; the text of a line stays.
    same = [other.id for other in imagined.items if other.line == item.line]
    return _ID.sub(f"[{min(same, key=lambda number: abs(number - item.id))}]", action, count=1) if same else action


def chains(cases: Sequence[PageTransition]) -> list[list[PageTransition]]:
    """The unbroken steps of each episode. Probes that did nothing are left out; stops end an episode."""
    unbroken = []
    for _, group in groupby(cases, key=lambda case: case.episode):
        chain = [case for case in group if not case.stops and not (case.probe and case.state == case.after)]
        # Pages that do not join up cannot be rolled out: something happened between two steps.
        if chain and all(one.after == two.state for one, two in pairwise(chain)):
            unbroken.append(chain)
    return unbroken


def errors_by_depth(
    task: WebPagePredictor,
    predict: Predict,
    episodes: Sequence[Sequence[PageTransition]],
    depths: Sequence[int] = DEPTHS,
) -> list[dict[str, Any]]:
    """How far an imagined page is from the true one after so many steps on a model's own predictions.

    The error is 1 - F1 of the lines of what is shown there, as often as each stands, without ids. An episode counts at
    a depth that it reaches; answers that cannot be read change nothing.
    """
    states = {number: chain[0].state for number, chain in enumerate(episodes)}
    errors: dict[int, list[float]] = {depth: [] for depth in depths}
    for depth in range(1, max(depths, default=0) + 1):
        alive = [number for number in states if len(episodes[number]) >= depth]
        situations = []
        for number in alive:
            true = episodes[number][depth - 1]
            action = carry_over(true.action, true.state, states[number])
            situations.append(replace(true.situation(), state=states[number], action=action))
        answers = predict(situations) if situations else []
        for number, situation, text in zip(alive, situations, answers, strict=True):
            imagined = imagine(task, situation, text)
            states[number] = imagined.state if imagined is not None else states[number]
            if depth in errors:
                errors[depth].append(page_error(task, states[number], episodes[number][depth - 1].after))
    return [{"depth": depth, **vars(bootstrap(values))} for depth, values in errors.items() if values]


def page_error(task: WebPagePredictor, imagined: PageState, true: PageState) -> float:
    """1 - F1 of the lines in view at the beginning of each page's own part."""
    one, two = (_lines(state, task.config.lines) for state in (imagined, true))
    return 1.0 - precision_recall_f1((one & two).total(), one.total(), two.total())[2]


def _lines(state: PageState, lines: int) -> Counter[str]:
    top = state.main if lines else 0
    return Counter(item.line for item in state.items[top : top + lines if lines else None])


def true_predictor(task: WebPagePredictor, cases: Sequence[PageTransition]) -> Predict:
    """The truth where what is shown and asked was recorded, elsewhere that nothing changes: the ceiling of rollouts.

    It lies below 1 where a step needs lines that a window never showed.
    """

    def key(case: PageSituation) -> str:
        return brief_text(case, task.config.lines)

    known = {key(case): case for case in cases}

    def predict(situations: Sequence[PageSituation]) -> list[str]:
        recorded = [known.get(key(case)) for case in situations]
        return [
            task.target(one) if one else task.no_change(case) for one, case in zip(recorded, situations, strict=True)
        ]

    return predict
