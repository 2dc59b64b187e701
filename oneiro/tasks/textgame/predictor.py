"""Text games as a prediction task: given a state and a command, what is the next state?

task = TextGamePredictor(TextGamePredictorConfig(rules="human"), rules=data.rules)
messages = task.prompt(transition)
task.reward(model_text, transition).value
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ClassVar, Literal

from pydantic import model_validator

from oneiro.recipe import Settings
from oneiro.runtime.errors import OneiroError
from oneiro.tasks.base import Malformed, Messages, Predictor, Reward
from oneiro.tasks.textgame.lookup import TextGameLookup
from oneiro.tasks.textgame.parse import (
    MARKER,
    Output,
    Prediction,
    parse_difference,
    parse_edits,
    parse_full,
    parse_score,
)
from oneiro.tasks.textgame.prompt import (
    Author,
    StateFormat,
    answer,
    instructions,
    pick_examples,
    rationale,
    rules_text,
    situation_text,
)
from oneiro.tasks.textgame.score import (
    EXACT_SHARE,
    MAX_TASK_REWARD,
    AnswerOutcome,
    AskedStep,
    OfficialScore,
    judge,
    official_score,
    official_score_of,
    question,
)
from oneiro.worlds.textgame.dataset import Rules
from oneiro.worlds.textgame.state import Kind, Situation, Transition

Scorer = Literal["strict", "official"]


class TextGamePredictorConfig(Settings):
    """What is asked, how it is shown and how it is paid."""

    transition: Kind = "full"
    """The whole step with its score, the command alone, time alone ("tick"), or the score alone."""
    output: Output = "difference"
    """Objects that change, only what changes of them ("edits"), or the whole next state."""
    rules: Author = "human"
    """Whose rules of the game the prompt shows, if any."""
    example: bool = False
    """Whether the prompt explains the task on a worked example of another game."""
    layout: StateFormat = "json"
    """How states are written: compact JSON, or Python's printing as in the public prompts."""
    reasoning: bool = False
    """Whether the model is to think in words first and mark its answer."""
    retrieve: bool = False
    """Whether prompts show what the nearest training step suggests: the lookup's answer, which may be wrong."""
    brief: bool = False
    """Leave out the general instructions: for small models that are fine-tuned on the task."""
    scorer: Scorer = "strict"
    """What counts as exact: everything, or what the published scorer looks at."""
    reward: Literal["binary", "task", "shaped"] = "binary"
    """1 for an exact answer; the published task-specific reward; or the overlap of true and claimed changes."""

    @model_validator(mode="after")
    def _release_is_for_full_differences(self) -> TextGamePredictorConfig:
        official = self.scorer == "official" or self.reward == "task"
        if official and (self.transition != "full" or self.output == "full"):
            raise OneiroError(
                "scorer=official and reward=task exist only for transition=full with output=difference or output=edits"
            )
        return self


class TextGamePredictor(Predictor[Transition, Messages, str, Prediction]):
    """The prediction task over transitions of any text game whose state is JSON."""

    name: ClassVar[str] = "text-game"

    def __init__(
        self,
        config: TextGamePredictorConfig | None = None,
        *,
        rules: Rules | None = None,
        examples: Sequence[Transition] = (),
        memory: TextGameLookup | None = None,
    ) -> None:
        self.config = config if config is not None else TextGamePredictorConfig()
        self.rules: Rules = rules or {}
        self.examples, self.memory = list(examples), memory
        self._openings: dict[tuple[str, str], str] = {}

    def with_memory(self, memory: TextGameLookup) -> TextGamePredictor:
        """The same with another memory behind its suggestions."""
        return TextGamePredictor(self.config, rules=self.rules, examples=self.examples, memory=memory)

    @property
    def reward_range(self) -> tuple[float, float]:
        """0..1; the published task-specific reward reaches 1.3."""
        return 0.0, MAX_TASK_REWARD if self.config.reward == "task" else 1.0

    def prompt(self, case: Situation) -> Messages:
        """One user message: instructions, example, rules, and the situation."""
        situation = situation_text(case, self._question(case), self.config.transition, self.config.layout)
        if self.config.retrieve:
            if self.memory is None:
                raise OneiroError(
                    "a model with task.retrieve needs training steps; ask it by oneiro eval text-game --data FOLDER"
                )
            situation += f"\nSuggestion: {self.memory.suggest(case)}"
        return [{"role": "user", "content": f"{self._opening(case.game, case.task)}{situation}"}]

    def target(self, case: Transition) -> str:
        """The true answer, after a written-out reason where reasoning is asked for."""
        text, config = self.outcome(case), self.config
        return f"{rationale(case, config.transition)}\n{MARKER} {text}" if config.reasoning else text

    def outcome(self, case: Transition) -> str:
        return answer(question(case, self.config.transition), self.config.transition, self.config.output)

    def parse(self, text: str, case: Situation) -> Prediction | Malformed:
        step = self._question(case)
        if self.config.transition == "score":
            return parse_score(text, step.before)
        if self.config.output == "full":
            return parse_full(text)
        read = parse_edits if self.config.output == "edits" else parse_difference
        return read(text, step.before, step.score_before)

    def judge(self, text: str, case: Transition) -> AnswerOutcome:
        """The strict comparison of an answer with the truth."""
        return judge(question(case, self.config.transition), self.parse(text, case))

    def changes(self, case: Transition) -> bool:
        """Whether what is asked changes anything: the command alone may do nothing while time goes on."""
        return case.changes(self.config.transition)

    def exact(self, text: str, case: Transition) -> bool:
        """Whether an answer is right under the configured scorer."""
        return self.official(text, case).exact if self.config.scorer == "official" else self.judge(text, case).exact

    def official(self, text: str, case: Transition) -> OfficialScore:
        """The published figures of an answer; edits are made a whole state first."""
        return (
            official_score_of(self.parse(text, case), case)
            if self.config.output == "edits"
            else official_score(text, case)
        )

    def reward(self, text: str, case: Transition) -> Reward:
        if self.config.reward == "shaped":
            outcome = self.judge(text, case)
            exact = EXACT_SHARE * outcome.exact
            return Reward(outcome.shaped, {"exact": exact, "overlap": outcome.shaped - exact})
        if self.config.reward == "task":
            official = self.official(text, case)
            return Reward(official.task_specific, {"published": official.task_specific})
        right = float(self.exact(text, case))
        return Reward(right, {"exact": right})

    def metrics(self, text: str, case: Transition) -> dict[str, float]:
        """Exactness under the configured scorer, overlap of changes, and whether the answer could be read."""
        outcome = self.judge(text, case)
        exact = self.official(text, case).exact if self.config.scorer == "official" else outcome.exact
        errors = {str(kind): float(count > 0) for kind, count in outcome.errors.items()}
        return {"exact": float(exact), "overlap": outcome.overlap, "parsed": float(outcome.flaw is None), **errors}

    def baselines(self, train: Sequence[Transition] = ()) -> dict[str, Callable[[Transition], str]]:
        """The answer that nothing changes, a lookup among training rows, and the true answer."""
        lookup = self.memory or TextGameLookup(train, self.config.transition, self.config.output)
        return {
            "no change": self.no_change,
            **({"lookup": lookup} if len(train) else {}),
            "perfect": self.perfect,
        }

    def no_change(self, case: Situation) -> str:
        step = self._question(case)
        still = AskedStep(step.before, step.before, step.score_before, step.score_before)
        return answer(still, self.config.transition, self.config.output)

    def perfect(self, case: Transition) -> str:
        return answer(question(case, self.config.transition), self.config.transition, self.config.output)

    def _question(self, case: Situation) -> AskedStep:
        """What is known of the question; where the truth is not known, nothing of it is used."""
        kind = self.config.transition
        if isinstance(case, Transition):
            return question(case, kind)
        score = case.score if kind in ("full", "score") else None
        # The truth is not known: what is before stands in its place.
        return AskedStep(case.state, case.state, score, score)

    def _opening(self, game: str, task: str) -> str:
        """The part of a prompt that all situations of a game share."""
        if (game, task) not in self._openings:
            self._openings[game, task] = self._write_opening(game, task)
        return self._openings[game, task]

    def _write_opening(self, game: str, task: str) -> str:
        config = self.config
        parts = (
            [] if config.brief else [instructions(config.transition, config.output, config.reasoning, config.retrieve)]
        )
        if config.example and self._shown:
            parts.append(self._example_block)
        rules = rules_text(self.rules, config.rules, game)
        parts.append(f"The game: {task}" + (f"\n\n{rules}" if rules else ""))
        return "\n\n".join(parts) + "\n\n"

    @cached_property
    def _shown(self) -> list[Transition]:
        return pick_examples(self.examples, self.config.transition)

    @cached_property
    def _example_block(self) -> str:
        config = self.config
        first = self._shown[0]
        rules = rules_text(self.rules, config.rules, first.game)
        parts = [f"An example of another game: {first.task}" + (f"\n\n{rules}" if rules else "")]
        for case in self._shown:
            step = question(case, config.transition)
            situation = situation_text(case, step, config.transition, config.layout)
            text = answer(step, config.transition, config.output, config.layout)
            parts.append(f"{situation}\nAnswer: {text}")
        return "\n\n".join(parts)
