"""An exploration policy: it tries what it has not tried, and goes where something is left to try.

It remembers where each action led, over all attempts at all levels that it plays, and sees nothing that other policies
do not see. In a stochastic world it remembers where an action led last.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from oneiro.worlds.base import World


class Explorer:
    """Names the next action of a world (`worlds.baselines.Policy`). Actions of free text it draws at random."""

    def __init__(self) -> None:
        self.leads: dict[str, dict[str, str | None]] = {}
        """By state and action the state it led to; None: not known yet, or the end."""
        self.last: dict[tuple[int, int], tuple[str, str]] = {}
        """Each game's last action, and the state it was taken in."""

    def __call__(self, world: World, rng: np.random.Generator) -> str:
        return self.plan(world, rng, 1)[0]

    def plan(self, world: World, rng: np.random.Generator, most: int) -> list[str]:
        """The next actions, at most so many: those whose outcome it knows, and after them one that is new.

        In a stochastic world, or one of free text, it plans a single action: it cannot know where a second one starts.
        """
        if not world.actions:
            return [world.random_action(rng)]
        here, game = world.render(), (world.seed, world.member)
        if world.taken and game in self.last:
            state, action = self.last[game]
            self.leads[state][action] = here
        planned: list[str] = []
        while len(planned) < (most if world.deterministic else 1):
            choices = self._untried(here, world.actions) or self._towards_untried(here, world.actions) or world.actions
            action = choices[int(rng.integers(len(choices)))]
            planned.append(action)
            after = self.leads.setdefault(here, {}).setdefault(action, None)
            self.last[game] = here, action
            if after is None:
                break
            here = after
        return planned

    def _untried(self, state: str, actions: tuple[str, ...]) -> list[str]:
        tried = self.leads.get(state, {})
        return [action for action in actions if action not in tried]

    def _towards_untried(self, here: str, actions: tuple[str, ...]) -> list[str]:
        """First actions of the shortest known ways to states where something is left to try."""
        distance, firsts = {here: 0}, {here: set[str]()}
        nearest, best = None, set[str]()
        ahead = deque([here])
        while ahead:
            state = ahead.popleft()
            if nearest is not None and distance[state] > nearest:
                break
            if state != here and self._untried(state, actions):
                nearest, best = distance[state], best | firsts[state]
                continue
            for action, after in self.leads.get(state, {}).items():
                if after is None:
                    continue
                if after not in distance:
                    distance[after], firsts[after] = distance[state] + 1, set[str]()
                    ahead.append(after)
                if distance[after] == distance[state] + 1:
                    firsts[after] |= firsts[state] or {action}
        return sorted(best)
