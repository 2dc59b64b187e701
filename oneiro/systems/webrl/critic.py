"""WebRL's critic: the learner with an outcome head on a body of its own, read where a reply would begin."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from oneiro.episode import Floats, Row, given
from oneiro.learning import checkpoint, update
from oneiro.learning.example import Example
from oneiro.learning.learner import Learner
from oneiro.learning.rl_settings import RlSettings
from oneiro.models.backbone import Backbone
from oneiro.models.heads import OutcomeHead
from oneiro.systems.webrl.episodes import RowFormat, Turn
from oneiro.systems.webrl.recipe import TrainSettings

Log = Callable[[int, dict[str, float]], None]


class Critic:
    """Starts with the body of the SFT model and new heads; both learn the outcome of the episode in every state."""

    def __init__(self, body: Backbone, form: RowFormat, settings: TrainSettings, seed: int) -> None:
        self.form, self.settings = form, settings
        head = OutcomeHead(body.shape.width, seed, body.device)
        self.learner = Learner(copy.deepcopy(body), settings.learner, 1, head, has_lm_head=False, seed=seed)

    def values(self, turns: Sequence[Turn]) -> Floats:
        """[N] the probability of success in the state of each turn."""
        values = self.learner.values([self._example(turn) for turn in turns])
        return np.array([row[-1] for row in values], np.float32)

    def fit(self, turns: Sequence[Turn], outcomes: Sequence[float], seed: int, log: Log) -> dict[str, float]:
        """Cross-entropy of both heads on the outcome, in every state; the mean loss of the updates."""
        examples = [self._example(turn, outcome) for turn, outcome in zip(turns, outcomes, strict=True)]
        parts = max(1, -(-len(examples) // self.settings.batch))
        rl = RlSettings(epochs=self.settings.epochs, minibatches=parts)
        self.learner.steps, self.learner.updates = rl.updates_per_step, 0
        losses: list[float] = []

        def note(number: int, values: dict[str, float]) -> None:
            losses.append(values["loss"])
            log(number, values)

        if examples:
            update.train(examples, rl, {"critic": self.learner}, seed, note)
        return {"loss": float(np.mean(losses[-parts:])) if losses else 0.0}

    def _example(self, turn: Turn, outcome: float = 0.0) -> Example:
        """A batch gives the hidden state that predicts a token with loss: one of no meaning is put behind the state."""
        example = Example.of(Row([given(self.form.state(turn)), given([0], policy=1.0)]))
        example.columns |= {"returns": np.full(len(example), outcome, np.float32)}
        return example

    def save(self, folder: Path) -> None:
        checkpoint.save(folder, 0, None, {"critic": self.learner})

    def load(self, folder: Path) -> None:
        checkpoint.restore(folder, None, {"critic": self.learner})


def auc(values: Sequence[float], outcomes: Sequence[float]) -> float | None:
    """Probability that a success has a higher value than a failure, ties half; None without both."""
    good = np.array([v for v, o in zip(values, outcomes, strict=True) if o > 0])
    bad = np.array([v for v, o in zip(values, outcomes, strict=True) if o <= 0])
    if not len(good) or not len(bad):
        return None
    above = (good[:, None] > bad[None]).mean() + 0.5 * (good[:, None] == bad[None]).mean()
    return float(above)
