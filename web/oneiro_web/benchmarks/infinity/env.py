"""webarena-infinity as a world: a task of a local clone, one action a step, graded by its verifier at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from oneiro_web.actions import Kind
from oneiro_web.base import EnvConfig, Step, draw_level, level_key
from oneiro_web.benchmarks.infinity.tasks import Infinity, InfinityTask, Suite, tasks, verify
from oneiro_web.browsing import BrowserConfig, BrowserEnv

FENCE = "fetch('/', {method: 'HEAD'}).then(() => 'here')"
"""A request behind all that the page has sent: when it is answered, the last state is here."""


class InfinityConfig(BrowserConfig):
    """Settings of webarena-infinity."""

    max_actions: int = Field(default=30, ge=1)
    browser: Literal["chromium"] = "chromium"
    """The applications are scripts, which the text browser does not run."""
    clone: str = "webarena-infinity"
    """The folder of a clone of the project."""
    apps: tuple[str, ...] = ()
    """Take tasks of these applications only."""
    suite: Suite = "real-tasks"
    """`real-tasks`, graded by difficulty, or `function-tasks`, one for each function of an application."""
    difficulty: tuple[Literal["easy", "medium", "hard"], ...] = ()
    """Take tasks of these difficulties only."""


class InfinityEnv(BrowserEnv):
    """One task of one application."""

    name = "webarena-infinity"
    Config = InfinityConfig
    config: InfinityConfig

    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__(config)
        self.web: Infinity | None = None
        self.success, self.why = False, ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        self.task, key = draw_level(self.name, self.seed, self.split, self._draw, task_key)
        self.success, self.why = False, ""
        self.start()
        facts = {"app": self.task.app, "task": self.task.id, "difficulty": self.task.difficulty}
        return self.render(), {"key": key, **facts}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.success)
        parsed = self.parse(action)
        if parsed is None:
            return self._after(valid=False, effective=False)
        if parsed.kind is Kind.STOP:
            return self._graded(done=True, valid=True, effective=True)
        valid, effective = self.carry_out(parsed)
        return self._after(valid=valid, effective=effective)

    @property
    def intent(self) -> str:
        return self.task.instruction

    @property
    def instruction(self) -> str:
        return (
            "You use a web application to fulfil a task. Each turn shows the page as text, with a number in front of "
            f"what can be acted on.\nActions: {self.grammar.help}.\n"
            f"Stop when the task is done. You have {self.config.max_actions} actions."
        )

    def close(self) -> None:
        super().close()
        self.web = None

    def _draw(self, rng: np.random.Generator) -> InfinityTask | None:
        offered = tasks(Path(self.config.clone), self.config.apps, self.config.suite)
        task = offered[int(rng.integers(len(offered)))]
        return task if not self.config.difficulty or task.difficulty in self.config.difficulty else None

    def _open(self) -> None:
        self.close()
        self.web = Infinity(self.task.folder)
        self.session = self.browser.open(self.web, [self.web.url])
        self._observe()

    def _after(self, *, valid: bool, effective: bool) -> Step:
        """The step's result; the last one that the budget allows is graded as it stands."""
        if self.remaining > 1:
            return self.outcome(0.0, valid=valid, effective=effective)
        return self._graded(done=False, valid=valid, effective=effective)

    def _graded(self, *, done: bool, valid: bool, effective: bool) -> Step:
        assert self.session is not None and self.web is not None
        self.session.locate(FENCE)
        self.success, self.why = verify(self.task, self.web)
        reward = float(self.success)
        return self.outcome(
            reward, done=done, success=self.success, valid=valid, effective=effective, verifier=self.why
        )


def task_key(task: InfinityTask) -> str:
    """The name of a task among all."""
    return level_key(f"webarena-infinity {task.app} {task.verify}")
