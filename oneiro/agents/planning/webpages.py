"""Planning on web pages: who proposes actions, and the task's own check of the address as value of predicted pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np

from oneiro.agents.linear import Choice, LinearPolicy, choice
from oneiro.agents.planning.base import Judged, Proposed, Root
from oneiro.runtime import seeds
from oneiro.tasks.webpage.model import BrowsedPage
from oneiro.tasks.webpage.slots import Line, sources_of
from oneiro.tasks.webpage.world import goal_of, reaches
from oneiro.worlds.base import World
from oneiro_web.actions import Action, parse_webarena
from oneiro_web.plugin import WebWorld
from oneiro_web.tasks import Evaluation


def observe(world: World) -> BrowsedPage:
    assert isinstance(world, WebWorld)
    return BrowsedPage.of(world)


# Proposals ------------------------------------------------------------------------------------------------------------


def offered_in(state: BrowsedPage) -> Choice:
    return choice(state.text, state.past)


@dataclass(frozen=True)
class PolicyRanking:
    """The actions that a linear policy finds most likely, with their probabilities; each costs a token.

    Only those with at least `least` of the likeliest one's probability: what the policy would never do leads to pages
    on which it was never taught what to do next.
    """

    policy: LinearPolicy
    least: float = 0.0

    def __call__(self, roots: Sequence[Root[BrowsedPage]], most: int, seed: int) -> list[Proposed]:
        proposals = []
        for root in roots:
            offered = offered_in(root.state)
            chances = offered.chances(self.policy.weights)
            best = [
                place
                for place in np.argsort(-chances, kind="stable")[:most]
                if chances[place] >= self.least * chances.max()
            ]
            actions = tuple(offered.actions[place] for place in best)
            proposals.append(Proposed(actions, tuple(float(chances[place]) for place in best), len(best)))
        return proposals


@dataclass(frozen=True)
class PolicyVotes:
    """The actions that `samples` samples of a linear policy name most often; each sample costs a token."""

    policy: LinearPolicy
    samples: int

    def __call__(self, roots: Sequence[Root[BrowsedPage]], most: int, seed: int) -> list[Proposed]:
        proposals = []
        for number, root in enumerate(roots):
            offered = offered_in(root.state)
            votes = seeds.generator(seed, "vote", number).multinomial(
                self.samples, offered.chances(self.policy.weights)
            )
            best = [place for place in np.argsort(-votes, kind="stable")[:most] if votes[place]]
            weights = tuple(float(votes[place]) / self.samples for place in best)
            proposals.append(Proposed(tuple(offered.actions[place] for place in best), weights, self.samples))
        return proposals


def objective_first(roots: Sequence[Root[BrowsedPage]], most: int, seed: int) -> list[Proposed]:
    """Without a policy: actions on what stands in the objective come first, clicks before texts to be typed."""
    proposals = []
    for root in roots:
        wanted = set(root.state.objective.lower().rstrip("?.").split())
        actions = offered_in(root.state).actions
        shares = [_share(wanted, root.state, action) for action in actions]
        best = sorted(range(len(actions)), key=lambda place: (-shares[place], actions[place].startswith("type")))[:most]
        weights = tuple(shares[place] + 0.01 for place in best)
        proposals.append(Proposed(tuple(actions[place] for place in best), weights))
    return proposals


def _share(wanted: set[str], state: BrowsedPage, action: str) -> float:
    """The share of the words that an action names, by its element or as text, that are wanted."""
    parsed, item = parse_webarena(action), state.page.item(state.situation(action).element)
    text = parsed.text if isinstance(parsed, Action) else ""
    words = (text or (Line.of(item).name if item is not None else "")).lower().split()
    return sum(word in wanted for word in words) / len(words) if words else 0.0


# Value ----------------------------------------------------------------------------------------------------------------

ON_THE_WAY = 0.9
"""What a page is worth at most where the episode has not stopped."""


def page_goal(world: World) -> Evaluation | None:
    """The check of the address where a world's task must end; None where it asks for something else."""
    assert isinstance(world, WebWorld)
    return goal_of(world.task)


def address_rule(state: BrowsedPage, goal: Evaluation | None) -> Judged:
    """The task's own check on a predicted address: 1 for a stop at the right one, 0 for any other stop.

    On the way there, the share of the wanted address that is there already: parts of its path and query, and half for a
    value of its query that a field of the page holds. Without a goal every page is worth 0.
    """
    if goal is None:
        return Judged(0.0, state.answer is not None)
    if state.answer is not None:
        return Judged(1.0 if reaches(state.page.url, goal) else 0.0, True)
    wanted, here = urlsplit(goal.reference_url or ""), urlsplit(state.page.url)
    if wanted.netloc != here.netloc:
        return Judged(0.0)
    path, present = _pieces(wanted.path), _pieces(here.path)
    pairs, query = parse_qsl(wanted.query), set(parse_qsl(here.query))
    there = _in_common(path, present) if len(present) <= len(path) else 0
    held = {value.lower() for slot, value in sources_of(state.situation("none")).items() if slot.startswith("field")}
    credit = sum(1.0 if pair in query else 0.5 if pair[1].lower() in held else 0.0 for pair in pairs)
    return Judged(ON_THE_WAY * (there + credit) / max(1, len(path) + len(pairs)))


def _pieces(path: str) -> list[str]:
    return [unquote(piece) for piece in path.split("/") if piece]


def _in_common(one: Sequence[str], two: Sequence[str]) -> int:
    """How many parts two paths begin with alike."""
    same = [a == b for a, b in zip(one, two, strict=False)]
    return same.index(False) if False in same else len(same)
