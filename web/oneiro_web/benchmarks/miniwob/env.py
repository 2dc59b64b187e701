"""MiniWoB++ as a world: a task of the 130, one action a step, the page's own reward from -1 to 1 at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from oneiro_web.actions import Action, Kind
from oneiro_web.base import EnvConfig, Step, draw_level, level_key
from oneiro_web.benchmarks.miniwob.episode import Episode, task_names
from oneiro_web.browsers.base import Outcome
from oneiro_web.browsing import BrowserConfig, BrowserEnv
from oneiro_web.errors import WebError, nearest

PAGES = 1 << 20
"""Seeds of a task's page."""


class MiniWobConfig(BrowserConfig):
    """Settings of MiniWoB++."""

    max_actions: int = Field(default=10, ge=1)
    browser: Literal["chromium"] = "chromium"
    """The tasks are scripts, which the text browser does not run."""
    tasks: tuple[str, ...] = ()
    """Play these only. Empty: all."""


@dataclass(frozen=True)
class MiniWobLevel:
    """One task with the seed of its page."""

    task: str
    seed: int

    @property
    def key(self) -> str:
        """The name of the level."""
        return level_key(f"miniwob {self.task} {self.seed}")


class MiniWobEnv(BrowserEnv):
    """One page of MiniWoB++."""

    name = "miniwob"
    Config = MiniWobConfig
    config: MiniWobConfig

    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__(config)
        for task in self.config.tasks:
            if task not in task_names():
                raise WebError(f"MiniWoB++ has no task '{task}'{nearest(task, task_names())}")
        self.offered = self.config.tasks or task_names()
        self.episode: Episode | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        self.level, key = draw_level(self.name, self.seed, self.split, self._draw, lambda level: level.key)
        self.start()
        return self.render(), {"key": key, "task": self.level.task}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.episode is not None and self.episode.reward > 0)
        assert self.episode is not None
        parsed = self.parse(action)
        if parsed is None:
            return self.outcome(0.0, valid=False, effective=False)
        if parsed.kind is Kind.STOP:
            return self.outcome(0.0, done=True, effective=True)
        valid, effective = self.carry_out(parsed)
        done, reward = self.episode.done, self.episode.reward
        return self.outcome(reward, done=done, success=reward > 0, valid=valid, effective=effective or done)

    @property
    def intent(self) -> str:
        assert self.episode is not None
        return self.episode.intent

    @property
    def instruction(self) -> str:
        return (
            "You use a web page to fulfil a task. Each turn shows the page as text, with a number in front of what can "
            f"be acted on.\nActions: {self.grammar.help}.\nYou have {self.config.max_actions} actions. "
            "The page ends the episode by itself when the task is done or failed."
        )

    def close(self) -> None:
        super().close()
        self.episode = None

    def _draw(self, rng: np.random.Generator) -> MiniWobLevel:
        return MiniWobLevel(self.offered[int(rng.integers(len(self.offered)))], int(rng.integers(PAGES)))

    def _open(self) -> None:
        self.close()
        self.episode = Episode(self.browser, self.level.task, self.level.seed)
        self.session = self.episode.session
        self._observe()

    def _carry_in_session(self, action: Action) -> Outcome:
        assert self.episode is not None
        return self.episode.act(action)
