"""What a recipe needs before anything is rented: memory per GPU, part by part, and where a step's time goes.

Memory follows from what the learner and the engine allocate. Times follow from the stated rates and are not measured:
they tell which part is long and what more GPUs change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oneiro import pretrained
from oneiro.errors import OneiroError
from oneiro.learning.rl_settings import RlSettings
from oneiro.recipe import Recipe
from oneiro.report.table import Table

GB = 1e9
PROMPT = 512
"""Tokens of a prompt, where nothing is known of it."""
BUCKET = 4 * 2**26
"""Bytes of gradients that are reduced at once."""
LOGITS = 2 * 2 * 2**29
"""Bytes of the logits that exist at once, and of their gradient."""
MICRO_BATCH, PART_OF_GPU, CACHE_PART = 16 * 2**30, 6, 3
"""As `learning.learner` and `sampling.engine` have them."""


@dataclass(frozen=True)
class Size:
    """What counts of a model."""

    parameters: float
    kept: float
    """Numbers that a token keeps for the backward pass."""
    remembered: float
    """Numbers that a token leaves in the key-value cache."""


def size_of(model: Any) -> Size:
    """From the settings of `tiny`, a folder's config.json, or the number in a model's name."""
    if model.name == "tiny":
        return _size(float(model.parameters or 0), model.layers, model.width, model.mlp, 1.0)
    file = (
        next(iter(sorted(Path(model.name).expanduser().rglob("config.json"))), None) if _is_folder(model.name) else None
    )
    if file is not None:
        config = json.loads(file.read_text(encoding="utf-8"))
        shared = (config.get("num_key_value_heads") or config["num_attention_heads"]) / config["num_attention_heads"]
        layers, width = config["num_hidden_layers"], config["hidden_size"]
        return _size(
            pretrained.parameters_of(model.name) or 0.0,
            layers,
            width,
            config.get("intermediate_size") or 4 * width,
            shared,
        )
    parameters = pretrained.parameters_of(model.name)
    if parameters is None:
        raise OneiroError(
            f"the size of '{model.name}' is not known; give a folder, or a name with its size (ORG/NAME-7B)"
        )
    # Layers and widths of the usual Llama-like models of that size.
    layers = round(8 * (parameters / 1e8) ** 0.3)
    width = (parameters / (12 * layers)) ** 0.5
    return _size(parameters, layers, width, 3.5 * width, 0.25)


def _is_folder(name: str) -> bool:
    return Path(name).expanduser().is_dir()


def _size(parameters: float, layers: float, width: float, mlp: float, shared: float) -> Size:
    attention = (1 + 2 * shared) * width
    return Size(parameters, layers * (4 * width + 2 * attention + 2 * mlp), 2 * layers * shared * width)


@dataclass(frozen=True)
class Rates:
    """Of one GPU; what is reached, not what a data sheet says."""

    tflops: float = 300.0
    """Of matrix products in training."""
    bandwidth: float = 2.0
    """TB/s of reading weights and caches."""
    link: float = 100.0
    """GB/s between GPUs."""


def memory(
    size: Size, rl: RlSettings, lora: bool, rows: int, length: int, gpus: int, capacity: float
) -> dict[str, float]:
    """Bytes on each GPU by what they are for. `capacity`: bytes of one GPU; `rows` of a step have `length` tokens."""
    parameters, mode = size.parameters, rl.learner.parallel if gpus > 1 or rl.learner.parallel == "fsdp" else "none"
    learned = 0.02 * parameters if lora else parameters
    sharers = gpus if mode in ("data", "fsdp") else 1
    found = {"weights": 2 * parameters}
    if mode == "fsdp":
        found["shards, gradients and moments (fsdp)"] = 16 * learned / sharers + (
            2 * parameters / sharers if lora else 0
        )
        found["layers gathered"] = 4 * size.parameters / 16
    else:
        found["gradients"] = 2 * learned
        found["masters and moments" + (" (sharded)" if sharers > 1 else "")] = 12 * learned / sharers
        found["reduction"] = min(BUCKET, 4 * learned) if sharers > 1 else 0.0
    models = int(bool(rl.learner.loss.kl or rl.kl_in_reward) and not lora)
    if models:
        found["reference"] = 2 * parameters
    if rl.algorithm.critic and not rl.shared_backbone:
        found["critic"] = 4 * parameters + 12 * parameters / sharers
    tokens = rows * length / sharers
    kept = size.kept * 2 * (2.6 if lora else 1.0)
    found["micro-batch"] = min(MICRO_BATCH, capacity / PART_OF_GPU, tokens * kept) + LOGITS
    found["key-value cache"] = min(capacity / CACHE_PART, rows / gpus * length * size.remembered * 2)
    return {name: value for name, value in found.items() if value}


def times(size: Size, rl: RlSettings, rows: int, new: int, prompt: int, gpus: int, rates: Rates) -> dict[str, float]:
    """Seconds of a step by part, at these rates."""
    parameters, own = size.parameters, rows / gpus
    cache = own * (prompt + new / 2) * size.remembered * 2
    reading = (2 * parameters + cache) / (rates.bandwidth * 1e12)
    computing = 2 * parameters * own / (rates.tflops * 1e12)
    tokens = own * (prompt + new) * rl.epochs
    scoring = 2 * parameters * tokens / (rates.tflops * 1e12)
    passes = int(rl.correction.name != "none") + int(bool(rl.learner.loss.kl or rl.kl_in_reward))
    learning = 6 * parameters * tokens / (rates.tflops * 1e12)
    found = {"sampling": new * max(reading, computing), "learning": learning * (2 if rl.algorithm.critic else 1)}
    if passes:
        found["scoring (reference, correction)"] = passes * scoring
    if gpus > 1:
        found["reduction"] = rl.updates_per_step * 6 * parameters / (rates.link * 1e9)
    return found


def plan(recipe: Recipe, gpus: int, gigabytes: float, rates: Rates | None = None, prompt: int = PROMPT) -> list[Table]:
    """Tables for `oneiro plan`."""
    rates, rl = rates or Rates(), getattr(recipe, "rl", None)
    model: Any = getattr(recipe, "model", None)
    rollout, sampling = getattr(recipe, "rollout", None), getattr(recipe, "sampling", None)
    if not isinstance(rl, RlSettings) or not hasattr(model, "lora") or rollout is None or sampling is None:
        raise OneiroError(f"system '{recipe.system}' has no RL of a language model to plan for")
    size, rows = size_of(model), rollout.prompts_per_step * rollout.group_size
    length, capacity = prompt + sampling.max_tokens, gigabytes * GB
    words = f"{pretrained.in_words(size.parameters)} parameters, {rows} rows of {prompt} + {sampling.max_tokens} tokens"
    table = Table(f"Memory of one of {gpus} GPUs: {words}", ["for", "GB", "if fsdp"])
    own = memory(size, rl, model.lora is not None, rows, length, gpus, capacity)
    sharded = rl.model_copy(update={"learner": rl.learner.model_copy(update={"parallel": "fsdp"})})
    other = memory(size, sharded, model.lora is not None, rows, length, gpus, capacity)
    for name in dict.fromkeys([*own, *other]):
        table.add(name, *(f"{part[name] / GB:.1f}" if name in part else "–" for part in (own, other)))
    totals = [sum(part.values()) / GB for part in (own, other)]
    table.add("sum", *(f"{total:.1f}" for total in totals))
    table.add("verdict", *("fits" if total < 0.92 * gigabytes else "does not fit" for total in totals))
    spent = times(size, rl, rows, sampling.max_tokens, prompt, gpus, rates)
    clock = Table(
        f"A step at {rates.tflops:.0f} TFLOP/s, {rates.bandwidth:g} TB/s and {rates.link:.0f} GB/s between GPUs",
        ["part", "seconds"],
    )
    for name, seconds in spent.items():
        clock.add(name, f"{seconds:.2f}")
    clock.add("sum, without worlds", f"{sum(spent.values()):.2f}")
    return [table, clock]
