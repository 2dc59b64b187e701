"""Who answers: a local model, a server, or a script. Each turns waiting games into utterances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from oneiro.agents import reply as replies
from oneiro.agents.exploration import Explorer
from oneiro.agents.game import Game
from oneiro.episode import FinishReason, SamplingParams
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.completion import Completion
from oneiro.sampling.sample import Sample
from oneiro.sampling.server import Server, ServerConfig
from oneiro.worlds.base import World
from oneiro.worlds.baselines import Policy as Choose

if TYPE_CHECKING:
    from oneiro.sampling.engine import Engine, SamplingSettings


class Policy(Protocol):
    """Anything that can play. `seed` is one number for the whole batch of turns.

    A policy may have more: `longest_prompt`, the tokens that it can read; `answer_each(games, seeds)`, which answers
    games at different turns in one batch; `reads_worlds = False`, where it reads texts and ids only, so that it may
    answer while worlds are stepped; `independent = True`, where an answer depends on nothing but its turn and seed, so
    that ranks may divide the episodes.
    """

    def answer(self, games: Sequence[Game], seed: int) -> list[Sample]: ...


class ModelPolicy:
    """The learner's own model, sampled by the built-in engine."""

    reads_worlds = False
    independent = True

    def __init__(self, engine: Engine, sampling: SamplingSettings) -> None:
        self.engine, self.sampling = engine, sampling

    @property
    def longest_prompt(self) -> int | None:
        """Tokens of a prompt that leave room for a reply; None: any number."""
        most = self.engine.language.backbone.most_positions
        return None if most is None else most - self.sampling.max_tokens

    def answer(self, games: Sequence[Game], seed: int) -> list[Sample]:
        return self.answer_each(games, [seed] * len(games))

    def answer_each(self, games: Sequence[Game], batch_seeds: Sequence[int]) -> list[Sample]:
        """A reply depends on its own turn and seed; other turns change it by no more than float tolerance."""
        own = [seeds.derive(seed, game.seed) for seed, game in zip(batch_seeds, games, strict=True)]
        sampled = self.engine.generate([game.prompt for game in games], 1, self.sampling, seed=own)
        text = self.engine.language.text
        return [
            replace(sample, text=game.response_prefix + text(sample.tokens))
            for game, (sample,) in zip(games, sampled, strict=True)
        ]


class ServerPolicy:
    """A model behind an OpenAI-compatible address; plays, and makes data to learn from.

    With `token_ids` its replies carry the tokens as they were sampled, and can be trained on by RL.
    """

    reads_worlds = False
    independent = True

    def __init__(self, config: ServerConfig) -> None:
        changed = {"temperature", "top_p", "top_k", "min_p"} & set(config.extra)
        if config.token_ids and (config.temperature != 1 or config.top_p != 1 or changed):
            raise OneiroError(
                "token_ids needs temperature=1 and top_p=1: servers give log-probabilities from before these are "
                "applied, and training needs those of the tokens as they were drawn"
            )
        self.config = config

    def answer_each(self, games: Sequence[Game], batch_seeds: Sequence[int]) -> list[Sample]:
        """All requests at once; a server that is given a seed gets one for the batch."""
        return self.answer(games, batch_seeds[0])

    def answer(self, games: Sequence[Game], seed: int) -> list[Sample]:
        config = self.config
        if config.seed is not None:
            # A turn's own seed: the server's replies to one prompt would otherwise be the same in every batch.
            config = config.model_copy(update={"seed": seeds.derive(config.seed, seed)})
        answers = [reply for (reply,) in Server(config).chat([game.messages for game in games], n=1)]
        if answers and all(reply.error for reply in answers):
            raise OneiroError(f"{config.base_url} answered none of {len(answers)} requests: {answers[0].error}")
        return [_sample(reply) for reply in answers]


def _sample(reply: Completion) -> Sample:
    """A server's reply; thoughts that the server keeps apart go back where they were."""
    text = f"<think>{reply.reasoning}</think>{reply.text}" if reply.reasoning else reply.text
    cut = reply.finish_reason == "length"
    finish = FinishReason.ERROR if reply.error else FinishReason.LENGTH if cut else FinishReason.TOKEN
    if reply.error or not reply.tokens or reply.logprobs is None or not reply.prompt_tokens:
        return Sample.of_text(text, finish)
    tokens, logprobs = np.array(reply.tokens, np.int32), np.array(reply.logprobs, np.float32)
    prompt = np.array(reply.prompt_tokens, np.int32)
    return Sample(tokens, logprobs, np.zeros(len(tokens), bool), finish, SamplingParams(), text=text, prompt=prompt)


class ScriptedPolicy:
    """Actions from a rule, written in the demanded form.

    `actions` bounds how many it gives a turn. A rule that looks at the world, as the oracle does, gives one: it cannot
    see past its first action.
    """

    independent = True

    def __init__(
        self, choose: Choose, actions: tuple[int, int] = (1, 1), think: bool = True, world_model: bool = True
    ) -> None:
        self.choose, self.actions, self.think, self.world_model = choose, actions, think, world_model

    def answer(self, games: Sequence[Game], seed: int) -> list[Sample]:
        return [Sample.of_text(self._write(game, seeds.generator(seed, game.seed))) for game in games]

    def _write(self, game: Game, rng: np.random.Generator) -> str:
        words = self.actions_of(game.playing, rng)
        # The states are left blank: the truth is put in their place when the play is turned into data.
        blank = "?" if self.world_model and self.think else None
        return replies.write(words, blank, blank, think=self.think)

    def actions_of(self, world: World, rng: np.random.Generator) -> list[str]:
        count = int(rng.integers(self.actions[0], self.actions[1] + 1))
        return [self.choose(world, rng) for _ in range(count)]


class ExplorationPolicy(ScriptedPolicy):
    """The explorer's actions: of several a turn, all but the last lead where it has been before."""

    independent = False

    def __init__(self, most: int = 1, think: bool = True, world_model: bool = True) -> None:
        self.explorer = Explorer()
        super().__init__(self.explorer, (1, most), think, world_model)

    def actions_of(self, world: World, rng: np.random.Generator) -> list[str]:
        return self.explorer.plan(world, rng, self.actions[1])
