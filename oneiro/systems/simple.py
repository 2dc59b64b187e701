"""RL in a few lines of Python: a model with prompts and a reward function, or a model in a world.

Both resume when they are called again with the same folder. Ctrl-C ends the step, saves, and raises `Stopped`, a
`KeyboardInterrupt`. For stages, reports and comparisons there are recipes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from oneiro.agents.loading import AgentMetadata
from oneiro.agents.policies import ModelPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import attempts, play
from oneiro.episode import Episode, Row, Sample, Tokens, given
from oneiro.learning import stages
from oneiro.learning.collapse import CollapseMonitor
from oneiro.learning.learner import LearnerSettings
from oneiro.learning.loop import RlSettings
from oneiro.learning.optimiser import OptimiserSettings
from oneiro.learning.settings import CollapseMonitorSettings
from oneiro.learning.stages import Rollout
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel, LoraSettings, load, with_lora
from oneiro.recipe import pretrained
from oneiro.report.episodes import record
from oneiro.rundir.records import drop_torn_line, read_log
from oneiro.rundir.run import METRICS, Run, holds_run
from oneiro.runtime import distributed, files, interrupt, seeds, threads
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.worlds.base import World
from oneiro.worlds.registry import WorldChoice

ROWS = 256
"""Decoded at once."""
IDLE_STEPS = 3
"""After so many steps without anything to learn from a warning is printed."""
Reward = Callable[[str, str], float]
"""(prompt, reply) -> how good the reply is."""


@distributed.setup()
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

    `model` is a name, a folder, or what `oneiro.models.language.load` returned. A prompt is one message of a user. `rl`
    sets everything about learning, `steps` included; without it the learning rate follows the model's size.
    """
    if not prompts or isinstance(prompts, str) or not all(isinstance(prompt, str) for prompt in prompts):
        raise OneiroError("prompts: give a list of at least one prompt, each a text")
    arguments = {
        # The whole list would make the file as large as the data.
        "prompts": hashlib.sha256("\n".join(prompts).encode()).hexdigest(),
        "prompts_per_step": prompts_per_step,
    }
    out = _prepare(out, steps, group_size, {**arguments, "max_tokens": max_tokens, "seed": seed})
    language = _open(model, lora)
    sampling = SamplingSettings(max_tokens=max_tokens)
    chat = ChatFormat(language.tokenizer)

    def rollout(engine: Engine) -> Rollout:
        def play_step(step: int) -> list[Episode]:
            order = seeds.generator(seed, "prompts", step).permutation(len(prompts))[:prompts_per_step]
            chosen = [prompts[i] for i in order]
            tokens = [chat.opening(prompt) for prompt in chosen]
            sampled = engine.generate(tokens, group_size, sampling, seed=seeds.derive(seed, "replies", step))
            return [
                to_episode(prompt, opening, sample, group)
                for group, (prompt, opening, samples) in enumerate(zip(chosen, tokens, sampled, strict=True))
                for sample in samples
            ]

        return Rollout(play_step, record, max_tokens=max_tokens, shown=("reward",))

    def to_episode(prompt: str, opening: Tokens, sample: Sample, group: int) -> Episode:
        reply = language.text(sample.tokens)
        earned = _number(reward(prompt, reply))
        row, turn = Row([given(opening), *sample.segments(turn=1)]), {"state": prompt, "actions": [], "reply": reply}
        return Episode([row], [earned], group=group, finish_reason=sample.finish_reason, info={"turns": [turn]})

    return _reinforce(language, rollout, rl or _settings(language, steps), out, seed)


@distributed.setup()
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
    arguments = {"world": getattr(world, "__name__", str(world)), "levels_per_step": levels_per_step}
    out = _prepare(out, steps, group_size, {**arguments, "max_tokens": max_tokens, "seed": seed})
    language = _open(model, lora)
    sampling = SamplingSettings(max_tokens=max_tokens)
    dialogue = dialogue or DialogueSettings(world_model=False)
    make_world: Callable[[], World] = world if callable(world) else WorldChoice(name=world).maker()
    if isinstance(world, str):
        metadata = AgentMetadata(
            world=WorldChoice(name=world), dialogue=dialogue, sampling=sampling, response_prefix=""
        )
        language = metadata.write(language)
    chat = ChatFormat(language.tokenizer)
    # A dialogue that grows is one row of many replies.
    replies = dialogue.max_turns if dialogue.context == "full" and not chat.rewrites else 1

    def rollout(engine: Engine) -> Rollout:
        policy = ModelPolicy(engine, sampling)

        def play_step(step: int) -> list[Episode]:
            own = seeds.derive(seed, "agent", step)
            planned = attempts(levels_per_step, group_size, "train", own)
            return play(make_world, planned, policy, dialogue, chat, own)

        return Rollout(play_step, record, max_tokens=max_tokens * replies)

    return _reinforce(language, rollout, rl or _settings(language, steps), out, seed)


def _prepare(out: str | Path, steps: int, group_size: int, arguments: dict[str, Any]) -> Path:
    """The folder, which remembers what it was begun with: other arguments need another folder."""
    return distributed.on_main_process(lambda: _begin(Path(out), steps, {**arguments, "group_size": group_size}))


def _begin(out: Path, steps: int, arguments: dict[str, Any]) -> Path:
    if steps < 1:
        raise OneiroError(f"steps: {steps} steps teach nothing; give 1 or more")
    if arguments["group_size"] < 2:
        raise OneiroError("group_size: replies to one prompt are compared with each other; give 2 or more")
    if holds_run(out):
        raise OneiroError(f"{out} holds the run of a recipe; choose another folder for out")
    file = out / "arguments.json"
    if file.exists():
        known = files.read_json(file)
        if changed := [
            key for key, value in arguments.items() if not isinstance(known, dict) or known.get(key) != value
        ]:
            raise OneiroError(f"{out} was begun with other {', '.join(changed)}; choose another folder for out")
    else:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OneiroError(f"out: cannot use {out} ({error.strerror}); give a folder") from None
        files.write_json(file, arguments)
    return out


def _number(reward: Any) -> float:
    if not isinstance(reward, int | float | np.number | np.bool_):
        raise OneiroError(f"the reward function must return a number for one reply, not {type(reward).__name__}")
    if not math.isfinite(reward):
        raise OneiroError(f"the reward function returned {float(reward)}; a reward must be a finite number")
    return float(reward)


def _open(model: str | LanguageModel, lora: LoraSettings | None) -> LanguageModel:
    if not isinstance(model, str | LanguageModel):
        raise OneiroError("model: give a name, a folder, or what oneiro.models.language.load returned")
    language = with_lora(load(model) if isinstance(model, str) else model, lora)
    if language.tokenizer is None:
        raise OneiroError(f"model '{language.name}' has no tokenizer; give a folder that has one beside the weights")
    return language


def _settings(language: LanguageModel, steps: int) -> RlSettings:
    rate = pretrained.rl_rate(language.backbone.shape.parameters)
    learner = LearnerSettings(optimiser=OptimiserSettings(lr=rate, weight_decay=0.0, warmup=4))
    return RlSettings(steps=steps, learner=learner)


@contextmanager
def _stoppable(out: Path) -> Iterator[None]:
    """Ctrl-C saves, as in a run of a recipe; one line says how to go on."""
    try:
        with interrupt.handle():
            yield
    except KeyboardInterrupt:
        raise interrupt.Stopped(f"stopped; the same call goes on from what is saved in {out}") from None


@contextmanager
def _threads(language: LanguageModel, arguments: Path) -> Iterator[None]:
    """Inside, as many threads as the model's size asks for, or as the folder was begun with."""
    before, known = torch.get_num_threads(), files.read_json(arguments)
    if "threads" not in known:
        # Remembered: sums over another number of threads round otherwise, and a resumed run should end with the same
        # weights.
        known["threads"] = threads.choose(language.backbone.shape.parameters)
        files.write_json(arguments, known)
    torch.set_num_threads(known["threads"])
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _PlainRun(Run):
    """The folder of `train`: one stage, no recipe, and checkpoints in the folder itself."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, -1)
        self.recipe, self.info = {}, {"stages": {}}
        drop_torn_line(path / METRICS)

    def checkpoint_dir(self, stage: str) -> Path:
        return self.path

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        super().log(stage, step, values)
        if step == IDLE_STEPS and not any(row["groups_kept"] for row in read_log(self.path / METRICS)):
            self.say(f"in {IDLE_STEPS} steps all replies to a prompt earned the same: nothing can be learned from that")


def _reinforce(
    language: LanguageModel, rollout: Callable[[Engine], Rollout], settings: RlSettings, out: Path, seed: int
) -> LanguageModel:
    # What it looks for, reasoning that ignores its prompt, is a matter of recipes with thoughts.
    never = CollapseMonitor(CollapseMonitorSettings(every=0, stop=False))
    with _stoppable(out), _threads(language, out / "arguments.json"):
        stages.reinforce(
            _PlainRun(out),
            "rl",
            "RL",
            language,
            rollout,
            settings=settings,
            seed=seed,
            monitor=never,
            max_batch_size=ROWS,
        )
    return language
