"""A predictor in the place of the true game: the same interface, the same views, and every step a prediction."""

from __future__ import annotations

from typing import Any, ClassVar

from oneiro.predictors.textgame.rollout import Predict, imagine
from oneiro.predictors.textgame.task import TextGamePredictor
from oneiro.worlds.base import Step, WorldConfig
from oneiro.worlds.textgame.scene import Scene
from oneiro.worlds.textgame.world import TextGame


class LearnedTextGame(TextGame):
    """Starts in a true level and goes on in predictions.

    An answer that cannot be read, or that describes no possible scene, changes nothing; `info["malformed"]` counts
    it. As a true score never falls, only what exceeds the highest score so far is paid, and no more than everything in
    all. Nobody knows the best action in here, so there is no oracle and no ceiling.
    """

    name: ClassVar[str] = "imagined-textgame"

    def __init__(self, task: TextGamePredictor, predict: Predict, config: WorldConfig | None = None) -> None:
        super().__init__(config)
        self.task, self.predict = task, predict
        self.best: float = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        found = super().reset(seed=seed, options=options)
        self.best = self.scene.score
        return found

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.scene.won)
        if self.game.understand(self.scene, action) is None:
            self.reply = "That is no command of this game."
            return self.outcome(0.0, valid=False, effective=False, malformed=False)
        before, told = self.scene, self._predicted(action)
        self.scene = told if told is not None else before
        self.reply = ""
        best, self.best = self.best, max(self.best, min(self.scene.score, self.game.max_score))
        return self.outcome(
            (self.best - best) / self.game.max_score,
            done=self.scene.over,
            success=self.scene.won,
            effective=self.scene.key() != before.key(),
            malformed=told is None,
        )

    def _predicted(self, action: str) -> Scene | None:
        situation = self.game.situation(self.scene, action)
        told = imagine(self.task, situation, self.predict([situation])[0])
        return Scene.from_state(told.state, told.score, told.uuid_base) if told is not None else None

    def oracle(self) -> str | None:
        return None

    def ceiling(self) -> float | None:
        return None
