"""Who answers: a local model, a server, or a script. Each turns waiting games into samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from oneiro.agents import reply as replies
from oneiro.agents.game import Game
from oneiro.episode import FinishReason, Sample, SamplingParams
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.server import Completion, Server, ServerConfig
from oneiro.worlds.base import World
from oneiro.worlds.baselines import Policy as Choose

if TYPE_CHECKING:
    from oneiro.sampling.engine import Engine, SamplingSettings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from oneiro.agents.prompts import DialogueSettings


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


class Explorer:
    """Names the next action of a world (`worlds.baselines.Policy`): tries what it has not tried, and goes where
    something is left to try. Actions of free text it draws at random.

    It remembers where each action led, over all attempts at all levels that it plays, and sees nothing that other
    policies do not see. In a stochastic world it remembers where an action led last.
    """

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
            choices = (
                self._untried_actions(here, world.actions)
                or self._towards_untried(here, world.actions)
                or world.actions
            )
            action = choices[int(rng.integers(len(choices)))]
            planned.append(action)
            after = self.leads.setdefault(here, {}).setdefault(action, None)
            self.last[game] = here, action
            if after is None:
                break
            here = after
        return planned

    def _untried_actions(self, state: str, actions: tuple[str, ...]) -> list[str]:
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
            if state != here and self._untried_actions(state, actions):
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


@dataclass
class DreamingPolicy:
    """A policy whose actions are predicted together before the worlds, which share a model, are stepped one by one.

    It changes no result: a world that finds its prediction remembered steps as if it had asked for it.
    """

    policy: Policy
    predict_together: Callable[[Sequence[tuple[World, str]]], object]
    """Asks the model, which remembers its answers, about the next action in each world."""
    dialogue: DialogueSettings

    @property
    def independent(self) -> bool:
        return getattr(self.policy, "independent", False)

    @property
    def longest_prompt(self) -> int | None:
        return getattr(self.policy, "longest_prompt", None)

    def answer(self, turns: Sequence[Game], seed: int) -> list[Sample]:
        answers = self.policy.answer(turns, seed)
        pairs = []
        for turn, answer in zip(turns, answers, strict=True):
            form = self.dialogue
            reply = replies.read(answer.text, form.think, form.world_model, form.actions_per_turn, form.parser)
            if reply.actions:
                pairs.append((turn.playing, reply.actions[0]))
        if pairs:
            self.predict_together(pairs)
        return answers
