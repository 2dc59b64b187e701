"""A player that wants to know: it tries what it has not tried, and goes where something is left to try.

It remembers where each action led, over all attempts at all levels that it plays, and nobody tells it more than any
player is told. In a world with luck it remembers where an action led last.
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
        """Each game's last state and action."""

    def __call__(self, world: World, rng: np.random.Generator) -> str:
        if not world.actions:
            return world.random_action(rng)
        here, game = world.render(), (world.seed, world.member)
        if world.taken and game in self.last:
            state, action = self.last[game]
            self.leads[state][action] = here
        choices = self._untried(here, world.actions) or self._towards_untried(here, world.actions) or world.actions
        action = choices[int(rng.integers(len(choices)))]
        self.leads.setdefault(here, {}).setdefault(action, None)
        self.last[game] = here, action
        return action

    def _untried(self, state: str, actions: tuple[str, ...]) -> list[str]:
        tried = self.leads.get(state, {})
        return [action for action in actions if action not in tried]

    def _towards_untried(self, here: str, actions: tuple[str, ...]) -> list[str]:
        """First actions of the shortest known ways to states where something is left to try."""
        distance, firsts = {here: 0}, {here: set[str]()}
        nearest, found = None, set[str]()
        ahead = deque([here])
        while ahead:
            state = ahead.popleft()
            if nearest is not None and distance[state] > nearest:
                break
            if state != here and self._untried(state, actions):
                nearest, found = distance[state], found | firsts[state]
                continue
            for action, after in self.leads.get(state, {}).items():
                if after is None:
                    continue
                if after not in distance:
                    distance[after], firsts[after] = distance[state] + 1, set[str]()
                    ahead.append(after)
                if distance[after] == distance[state] + 1:
                    firsts[after] |= firsts[state] or {action}
        return sorted(found)
