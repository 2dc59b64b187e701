"""Text games as dynamics: any predictor of whole steps, asked in batches by planners."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from oneiro.tasks.answering import AnsweringModel
from oneiro.tasks.base import Dynamics, Flaw, Imagined, Malformed
from oneiro.tasks.textgame.predictor import TextGamePredictor
from oneiro.tasks.textgame.rollout import Predict, imagine, situation_key
from oneiro.worlds.textgame.games import game_named
from oneiro.worlds.textgame.state import Situation


@dataclass
class TextGameDynamics(Dynamics[Situation]):
    """States are situations without a command. A prediction that is no scene of its game is unreadable."""

    task: TextGamePredictor
    predictor: Predict

    def predict(
        self, pairs: Sequence[tuple[Situation, str]], outcomes: int = 1, seed: int = 0
    ) -> list[list[Imagined[Situation]]]:
        asked = [replace(state, action=action) for state, action in pairs]
        told = self._told(asked, outcomes, seed)
        return [
            [Imagined(self._read(case, text), tokens) for text, tokens in answers]
            for case, answers in zip(asked, told, strict=True)
        ]

    def key(self, state: Situation) -> Hashable:
        return state.game, situation_key(state)

    def show(self, state: Situation) -> str:
        """One line for each thing: what it is like and what is inside."""
        lines = []
        for thing in state.state:
            told = [f"{name} {value}" for name, value in (thing.get("properties") or {}).items()]
            inside = [f"holds {', '.join(map(str, thing['contains']))}"] if thing.get("contains") else []
            lines.append(f"{thing.get('name', '?')}: {'; '.join([*told, *inside]) or 'nothing to say'}")
        return "\n".join([*lines, f"Score: {state.score.get('score')}"])

    def _told(self, asked: list[Situation], outcomes: int, seed: int) -> list[list[tuple[str, int]]]:
        """Answers with their tokens; predictors that are no language model have one answer, free of cost."""
        model = self.predictor
        if isinstance(model, AnsweringModel):
            found = [[one] for one in model.greedy(asked)] if outcomes == 1 else model.sample(asked, outcomes, seed)
            return [[(model.text(sample), len(sample.tokens)) for sample in samples] for samples in found]
        return [[(text, 0)] * outcomes for text in model(asked)]

    def _read(self, case: Situation, text: str) -> Situation | Malformed:
        there = imagine(self.task, case, text)
        if there is None or game_named(case.game).imagined(there) is None:
            return Malformed(Flaw.SHAPE)
        return there
