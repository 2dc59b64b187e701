"""RL in a few lines of Python: a model with prompts and a reward function, or a model in a world.

Both resume when they are called again with the same folder. For stages, reports and comparisons there are recipes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from oneiro import pretrained, seeds
from oneiro.agents.loading import AgentMetadata
from oneiro.agents.policies import ModelPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import attempts, play
from oneiro.episode import Episode, Row, given
from oneiro.errors import OneiroError
from oneiro.learning import loop
from oneiro.learning.learner import LearnerSettings
from oneiro.learning.loop import Callbacks, RlSettings
from oneiro.learning.optimiser import OptimiserSettings
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel, LoraSettings, load, with_lora
from oneiro.progress import Bar, console
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.worlds.base import World
from oneiro.worlds.choice import WorldChoice

Reward = Callable[[str, str], float]
"""(prompt, reply) -> how good the reply is."""


def train(
    model: str | LanguageModel,
    prompts: Sequence[str],
    reward: Reward,
    *,
    out: str | Path,
    steps: int = 50,
    prompts_per_step: int = 8,
    group_size: int = 8,
    max_tokens: int = 128,
    rl: RlSettings | None = None,
    lora: LoraSettings | None = None,
    seed: int = 0,
) -> LanguageModel:
    """Train a model by GRPO on the rewards of its replies to prompts; returns it, and leaves its weights in `out`.

    `model` is a name, a folder or a loaded model. A prompt is one message of a user. `rl` sets everything about
    learning, `steps` included; without it the learning rate follows the model's size.
    """
    if not prompts or isinstance(prompts, str):
        raise OneiroError("prompts: give a list of at least one prompt")
    language = _opened(model, lora)
    sampling = SamplingSettings(max_tokens=max_tokens)
    chat, engine = ChatFormat(language.tokenizer), Engine(language)
    ends = set(language.end_tokens)

    def play_step(step: int) -> list[Episode]:
        order = seeds.generator(seed, "prompts", step).permutation(len(prompts))[:prompts_per_step]
        chosen = [prompts[i] for i in order]
        tokens = [chat.opening(prompt) for prompt in chosen]
        sampled = engine.generate(tokens, group_size, sampling, seed=seeds.derive(seed, "replies", step))
        episodes = []
        for group, (prompt, opening, samples) in enumerate(zip(chosen, tokens, sampled, strict=True)):
            for sample in samples:
                closed = len(sample.tokens) and int(sample.tokens[-1]) in ends
                reply = language.decode(sample.tokens[:-1] if closed else sample.tokens)
                row = Row([given(opening), *sample.segments(turn=1)])
                earned = [float(reward(prompt, reply))]
                episodes.append(Episode([row], earned, group=group, finish_reason=sample.finish_reason))
        return episodes

    return _reinforced(language, play_step, rl or _settings(language, steps), Path(out), seed, max_tokens)


def train_agent(
    model: str | LanguageModel,
    world: str | Callable[[], World],
    *,
    out: str | Path,
    steps: int = 50,
    levels_per_step: int = 8,
    group_size: int = 8,
    max_tokens: int = 128,
    dialogue: DialogueSettings | None = None,
    rl: RlSettings | None = None,
    lora: LoraSettings | None = None,
    seed: int = 0,
) -> LanguageModel:
    """Train a model by GRPO to act in a world; returns it, and leaves its weights in `out`.

    `world` is the name of a registered world, a `World` class of your own, or anything that makes worlds. Without
    `dialogue` an agent is asked for its thoughts and its actions, and not for predictions of states.
    """
    language = _opened(model, lora)
    sampling = SamplingSettings(max_tokens=max_tokens)
    dialogue = dialogue or DialogueSettings(world_model=False)
    make_world: Callable[[], World] = world if callable(world) else WorldChoice(name=world).maker()
    if isinstance(world, str):
        told = AgentMetadata(world=WorldChoice(name=world), dialogue=dialogue, sampling=sampling, response_prefix="")
        language = told.write(language)
    chat, policy = ChatFormat(language.tokenizer), ModelPolicy(Engine(language), sampling)

    def play_step(step: int) -> list[Episode]:
        own = seeds.derive(seed, "agent", step)
        planned = attempts(levels_per_step, group_size, "train", own)
        return play(make_world, planned, policy, dialogue, chat, own)

    most = max_tokens * (dialogue.max_turns if dialogue.context == "full" and not chat.rewrites else 1)
    return _reinforced(language, play_step, rl or _settings(language, steps), Path(out), seed, most)


def _opened(model: str | LanguageModel, lora: LoraSettings | None) -> LanguageModel:
    language = with_lora(load(model) if isinstance(model, str) else model, lora)
    if language.tokenizer is None:
        raise OneiroError(f"model '{language.name}' has no tokenizer; give a folder that has one beside the weights")
    return language


def _settings(language: LanguageModel, steps: int) -> RlSettings:
    rate = pretrained.rl_rate(language.backbone.shape.parameters)
    learner = LearnerSettings(optimiser=OptimiserSettings(lr=rate, weight_decay=0.0, warmup=4))
    return RlSettings(steps=steps, learner=learner)


def _reinforced(
    language: LanguageModel,
    play_step: Callable[[int], list[Episode]],
    settings: RlSettings,
    out: Path,
    seed: int,
    max_tokens: int,
) -> LanguageModel:
    screen = console()
    with Bar("RL", settings.steps, 0, screen, lambda line: None) as bar:

        def log(step: int, values: dict[str, float]) -> None:
            bar.advance(1, reward=values["reward"])

        def rewind(step: int) -> None:
            bar.advance(step)

        callbacks = Callbacks(play_step, log, rewind=rewind, say=screen.print)
        loop.reinforce(language, settings, out, seed, callbacks, max_tokens=max_tokens)
    return language
