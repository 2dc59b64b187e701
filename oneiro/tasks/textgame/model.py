"""A language model for text games: what travels with its weights, `tiny` with a tokenizer of JSON states, and the
predictor at work, as dynamics and in the place of a true game.

Whatever JSON states keep writing (`","uuid":4,`, `"isOpen":true`) is one token of `tiny`, and so is the name of a
thing. A prompt then has a hundred tokens instead of six hundred, which a small model on a CPU can learn to read, and a
thing in a command is the same token as in the state.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from oneiro.models import language as languages
from oneiro.models.language import LanguageModel
from oneiro.models.metadata import ModelMetadata
from oneiro.models.settings import ModelSettings
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks import answering
from oneiro.tasks.answering import AnsweringModel, most_often
from oneiro.tasks.base import Dynamics, Flaw, Imagined, LearnedWorld, Malformed
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.tasks.textgame.rollout import Predict, imagine, situation_key
from oneiro.worlds.base import Step, WorldConfig
from oneiro.worlds.registry import config_for
from oneiro.worlds.textgame.crawl import own_rules
from oneiro.worlds.textgame.games import game_named
from oneiro.worlds.textgame.scene import Scene
from oneiro.worlds.textgame.state import Situation, Transition
from oneiro.worlds.textgame.world import TextGame

TEXTS = 2000
"""Questions with their answers that the tokenizer of `tiny` is trained on."""
PIECES = 160
"""Fixed pieces of JSON that become one token each."""
NOUNS = 100
"""Names of things, without their numbers, that become one token each."""
NOUN = re.compile(r'"name":"([^"(]+?)(?: \(ID: \d+\))?"')
PIECE = re.compile(
    r'","uuid":\d+,"type":"'  # the uuid of an object repeats the number in its name
    r'|[^\w\s(]*"\w+":(?:true|false)?[\[{]*(?:"(?!\w+":))?'  # a key, what closes before it and what opens after it
    r'|","| \(ID: \d+\)'
)

TextGameModel = AnsweringModel[TextGamePredictor, Situation]
"""A predictor with the engine that answers its prompts."""


class TextGameMetadata(ModelMetadata):
    """How a text-game predictor is prompted."""

    what = "a predictor of text games"
    kind: Literal["text-game"] = "text-game"
    task: TextGamePredictorConfig
    sampling: SamplingSettings
    held_out: tuple[str, ...] = ()
    """Games it never saw."""


def create_tiny(
    settings: ModelSettings, task: TextGamePredictor, cases: Sequence[Transition], seed: int
) -> LanguageModel:
    openings = sorted({f"The game: {case.task}\n\n" for case in cases})
    return answering.create_tiny(
        settings, task, cases, seed, lambda texts: [*pieces(texts), *openings], roles=len(openings)
    )


def pieces(texts: Sequence[str]) -> list[str]:
    """The pieces of JSON that occur most often, and the names of things."""
    return [*most_often(PIECE, texts, PIECES), *most_often(NOUN, texts, NOUNS)]


# At work --------------------------------------------------------------------------------------------------------------


@dataclass
class TextGameDynamics(Dynamics[Situation]):
    """States are situations without a command. A prediction that is no scene of its game is unreadable."""

    task: TextGamePredictor
    predictor: Predict

    def predict(
        self, pairs: Sequence[tuple[Situation, str]], outcomes: int = 1, seed: int = 0
    ) -> list[list[Imagined[Situation]]]:
        questions = [replace(state, action=action) for state, action in pairs]
        replies = self._ask(questions, outcomes, seed)
        return [
            [Imagined(self._read(case, text), tokens) for text, tokens in answers]
            for case, answers in zip(questions, replies, strict=True)
        ]

    def key(self, state: Situation) -> Hashable:
        return state.game, situation_key(state)

    def show(self, state: Situation) -> str:
        """One line for each thing: what it is like and what is inside."""
        lines = []
        for thing in state.state:
            properties = [f"{name} {value}" for name, value in (thing.get("properties") or {}).items()]
            inside = [f"holds {', '.join(map(str, thing['contains']))}"] if thing.get("contains") else []
            lines.append(f"{thing.get('name', '?')}: {'; '.join([*properties, *inside]) or 'nothing to say'}")
        return "\n".join([*lines, f"Score: {state.score.get('score')}"])

    def _ask(self, questions: list[Situation], outcomes: int, seed: int) -> list[list[tuple[str, int]]]:
        """Answers with their tokens; predictors that are no language model have one answer, free of cost."""
        model = self.predictor
        if isinstance(model, AnsweringModel):
            samples_of = (
                [[one] for one in model.greedy(questions)] if outcomes == 1 else model.sample(questions, outcomes, seed)
            )
            return [[(model.text(sample), len(sample.tokens)) for sample in samples] for samples in samples_of]
        return [[(text, 0)] * outcomes for text in model(questions)]

    def _read(self, case: Situation, text: str) -> Situation | Malformed:
        there = imagine(self.task, case, text)
        if there is None or game_named(case.game).scene_of(there) is None:
            return Malformed(Flaw.SHAPE)
        return there


class LearnedTextGame(LearnedWorld, TextGame):
    """Starts in a true level and continues in predictions.

    A true score never falls: only what exceeds the highest score so far is rewarded, up to the game's maximum. The
    world is total: a prediction from which the game's rules could not go on is no prediction (`GameRules.scene_of`).
    """

    name: ClassVar[str] = "learned-textgame"

    def __init__(self, task: TextGamePredictor, predict: Predict, config: WorldConfig | None = None) -> None:
        super().__init__(config)
        self.task, self.predict = task, predict
        self.best: float = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        observation = super().reset(seed=seed, options=options)
        self.best = self.scene.score
        return observation

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.scene.won)
        if self.game.understand(self.scene, action) is None:
            self.reply = "That is no command of this game."
            return self.outcome(0.0, valid=False, effective=False, malformed=False)
        before, predicted = self.scene, self._predict(action)
        self.scene = predicted if predicted is not None else before
        self.reply = ""
        # Else a predictor that lets the score fall and rise again would pay for nothing.
        best, self.best = self.best, max(self.best, min(self.scene.score, self.game.max_score))
        return self.outcome(
            (self.best - best) / self.game.max_score,
            done=self.scene.over,
            success=self.scene.won,
            effective=self.scene.key() != before.key(),
            malformed=predicted is None,
        )

    def _predict(self, action: str) -> Scene | None:
        situation = self.game.situation(self.scene, action)
        imagined = imagine(self.task, situation, self.predict([situation])[0])
        return self.game.scene_of(imagined) if imagined is not None else None

    def plan(self) -> list[str] | None:
        return None  # the rules do not hold in here


def open_world(model: str, world: str, settings: Mapping[str, Any] | None = None) -> LearnedTextGame:
    """The world `textgame:NAME` as a model (a run, a checkpoint) predicts it, prompted as it was trained."""
    config = config_for(world, settings)  # before the model: a wrong name shows at once
    language = languages.load(model)
    metadata = TextGameMetadata.read(language, model)
    if metadata is None or metadata.task.transition != "full":
        raise OneiroError(f"the model at {model} was not trained to predict whole steps of text games")
    task = TextGamePredictor(metadata.task, rules=own_rules())
    return LearnedTextGame(task, TextGameModel(task, Engine(language, 1), metadata.sampling), config)
