"""What a model's size and a GPU's rates say."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from oneiro.learning.rl_settings import RlSettings
from oneiro.recipe import Recipe, pretrained
from oneiro.runtime.errors import OneiroError

KERNELS = 10
"""Of one layer, forward: projections, attention, feed-forward and what lies between them."""
REPLAY_S = 1.7e-6
"""Seconds that a kernel takes at least inside a CUDA graph, as in decoding, however little it computes. Measured on one
H200 with torch 2.11: chains of 40 and 400 products and sums of 256 x 64.
"""
PROMPT = 512
"""Tokens of a prompt, where nothing is known of it."""


@dataclass(frozen=True)
class Size:
    """What counts of a model."""

    parameters: float
    kept: float
    """Numbers that a token keeps for the backward pass."""
    remembered: float
    """Numbers that a token leaves in the key-value cache."""
    layers: float = 0.0
    per_rank: float = 0.0
    """Numbers that one rank of a low-rank adapter on all projections has."""

    def learned(self, model: Any) -> float:
        """Parameters that learn."""
        return self.parameters if model.lora is None else model.lora.rank * self.per_rank


def size_of(model: Any) -> Size:
    """From the settings of `tiny`, a config.json, or the number in a model's name: an estimate may use it."""
    if model.name == "tiny":
        return _size(float(model.parameters or 0), model.layers, model.width, model.mlp, 1.0)
    file, counted = pretrained.find_config(model.name), pretrained.count_parameters(model.name)
    if file is not None and counted is not None:
        config = json.loads(file.read_text(encoding="utf-8"))
        heads = config.get("num_attention_heads") or 1
        shared = (config.get("num_key_value_heads") or heads) / heads
        layers, width = config["num_hidden_layers"], config["hidden_size"]
        return _size(counted, layers, width, config.get("intermediate_size") or 4 * width, shared)
    parameters = _count_by_name(model.name)
    # Layers and widths of the usual Llama-like models of that size.
    layers = round(8 * (parameters / 1e8) ** 0.3)
    width = (parameters / (12 * layers)) ** 0.5
    return _size(parameters, layers, width, 3.5 * width, 0.25)


def _count_by_name(name: str) -> float:
    """`Qwen3-0.6B` -> 0.6e9, `Mixtral-8x7B` -> 56e9."""
    sizes = re.findall(r"(?:(\d+)x)?(\d+(?:\.\d+)?)(b|m)(?![a-z])", name.rpartition("/")[2].lower())
    if not sizes:
        raise OneiroError(f"the size of '{name}' is not known; give a folder, or a name with its size (ORG/NAME-7B)")
    experts, number, unit = sizes[0]
    return float(experts or 1) * float(number) * {"b": 1e9, "m": 1e6}[unit]


def _size(parameters: float, layers: float, width: float, mlp: float, shared: float) -> Size:
    attention = (1 + 2 * shared) * width
    # A rank of an adapter has a number for each input and each output of a projection.
    per_rank = layers * (4 * width + 2 * (1 + shared) * width + 3 * (width + mlp))
    kept = layers * (4 * width + 2 * attention + 2 * mlp)
    return Size(parameters, kept, 2 * layers * shared * width, layers, per_rank)


@dataclass(frozen=True)
class Rates:
    """Of one GPU; what is reached, not what a data sheet says."""

    tflops: float = 300.0
    """Of matrix products in training."""
    bandwidth: float = 2.0
    """TB/s of reading weights and caches."""
    link: float = 100.0
    """GB/s between GPUs."""

    def decoding(self, size: Size, rows: float, length: float) -> float:
        """Seconds in which `rows` rows, `length` tokens long so far, get one token more."""
        cache = rows * length * size.remembered * 2
        reading = (2 * size.parameters + cache) / (self.bandwidth * 1e12)
        return max(reading, 2 * size.parameters * rows / (self.tflops * 1e12), size.layers * KERNELS * REPLAY_S)

    def scoring(self, size: Size, tokens: float) -> float:
        """Seconds of a forward pass."""
        return 2 * size.parameters * tokens / (self.tflops * 1e12)

    def reducing(self, learned: float) -> float:
        """Seconds in which the gradients of an update are added up and the new weights spread."""
        return 6 * learned / (self.link * 1e9)


@dataclass(frozen=True)
class StepSize:
    """What a step of RL reads and writes if no episode ends early."""

    groups: float
    """Distinct first prompts."""
    episodes: float
    prompt: int
    """Tokens that a turn shows: its prompt, or its message in a growing dialogue."""
    new: int
    """Tokens of a reply."""
    turns: int = 1
    growing: bool = False
    """Whether the turns of an episode are one row; else each is a row of its own."""

    @property
    def rows(self) -> float:
        return self.episodes if self.growing else self.episodes * self.turns

    @property
    def length(self) -> int:
        """Tokens of a row."""
        return (self.prompt + self.new) * (self.turns if self.growing else 1)

    @property
    def learned(self) -> float:
        """Tokens of all rows; attempts at one level share its first prompt, which is computed once."""
        return self.rows * self.length - (self.episodes - self.groups) * self.prompt

    def prompt_of(self, turn: int) -> int:
        """Tokens before the reply of a turn."""
        return self.prompt + turn * (self.prompt + self.new) * self.growing

    @property
    def prefilled(self) -> float:
        """Prompt tokens that sampling computes: no turn keeps the cache of the one before."""
        later = self.episodes * sum(self.prompt_of(turn) for turn in range(1, self.turns))
        return self.groups * self.prompt + later


@dataclass(frozen=True)
class Parts:
    """What a recipe says about its RL."""

    rl: RlSettings
    model: Any
    rollout: Any
    sampling: Any
    dialogue: Any = None
    max_batch_size: int = 256

    def step(self, prompt: int) -> StepSize:
        groups, turns = self.rollout.prompts_per_step, self.dialogue.max_turns if self.dialogue else 1
        growing = turns > 1 and self.dialogue.context == "full"
        return StepSize(groups, groups * self.rollout.group_size, prompt, self.sampling.max_tokens, turns, growing)


def parts_of(recipe: Recipe) -> Parts:
    rl, model = getattr(recipe, "rl", None), getattr(recipe, "model", None)
    rollout, sampling = getattr(recipe, "rollout", None), getattr(recipe, "sampling", None)
    if not isinstance(rl, RlSettings) or not hasattr(model, "lora") or rollout is None or sampling is None:
        raise OneiroError(f"system '{recipe.system}' has no RL of a language model to plan for")
    return Parts(
        rl, model, rollout, sampling, getattr(recipe, "dialogue", None), getattr(recipe, "max_batch_size", 256)
    )


def scoring_passes(rl: RlSettings) -> int:
    """Forward passes over a step's tokens besides those of learning: a reference, a correction, a critic's values."""
    compared = bool(rl.learner.loss.kl or rl.kl_in_reward)
    return int(rl.correction.name != "none") + int(compared) + int(rl.algorithm.critic)
