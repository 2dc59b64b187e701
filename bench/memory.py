"""`oneiro bench memory`: the most memory a GRPO step takes, measured beside peers, and computed for larger models.

On a processor it is the process' own peak, libraries included; on a GPU what the process reserved there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench import models, step
from bench.sample import default_model
from bench.step import NAMES, StepSettings
from oneiro.learning.head import CHUNK_NUMBERS
from oneiro.learning.learner import MICRO_BATCH_BYTES
from oneiro.report.table import Table

LARGE = "qwen2.5-1.5b"
LARGE_STEP = StepSettings(prompts=64, group=16, prompt_tokens=200, new_tokens=128, max_batch_size=1024)
LORA_RANK = 16
GB = 1e9


def run(model: str | None = None, **options: Any) -> list[Table]:
    """One measured step of `model`, by default SmolLM2-135M on a GPU and `tiny` on a processor."""
    settings = StepSettings(**{"rounds": 1, **options})
    model = model or default_model(settings.device)
    results = step.measure(model, settings)
    table = Table(
        f"{model}: peak memory of a GRPO step of {settings.prompts} prompts x {settings.group} samples, "
        f"{settings.prompt_tokens} + {settings.new_tokens} tokens",
        ["contender", "peak memory", "libraries", "times Oneiro's", "trouble"],
        {"peak memory": "MB", "libraries": "MB"},
        f"Peers push {settings.rows} rows through the model at once.",
    )
    own = results["oneiro"].memory
    for name, result in results.items():
        if result.trouble:
            table.add(NAMES[name], None, None, None, result.trouble)
        else:
            table.add(NAMES[name], result.memory, result.memory_before, result.memory / own, None)
    return [table, *([measured_large(settings)] if settings.device == "cuda" else []), computed(LARGE_STEP)]


def measured_large(settings: StepSettings) -> Table:
    """The same for a 1.5B model with random weights, full and LoRA, Oneiro alone."""
    table = Table(
        f"{LARGE}, bfloat16, measured: a GRPO step of {LARGE_STEP.prompts} prompts x {LARGE_STEP.group} samples, "
        f"{LARGE_STEP.prompt_tokens} + {LARGE_STEP.new_tokens} tokens",
        ["learning", "peak memory", "step", "trouble"],
        {"peak memory": "GB", "step": "s"},
    )
    for name, rank in (("full", 0), (f"LoRA, rank {LORA_RANK}", LORA_RANK)):
        chosen = {"device": settings.device, "rounds": 1, "peers": False, "lora": rank, "seed": settings.seed}
        found = step.measure(models.PREFIX + LARGE, LARGE_STEP.model_copy(update=chosen))["oneiro"]
        seconds = found.seconds("step")
        table.add(name, found.memory * (1 << 20) / GB, seconds[0] if seconds else None, found.trouble or None)
    return table


@dataclass(frozen=True)
class Sizes:
    """Numbers of a model's parts."""

    weights: int
    adapter: int
    """Weights of a low-rank adapter on every projection."""
    cached: int
    """Numbers a token leaves in the key-value cache."""

    @classmethod
    def of(cls, name: str) -> Sizes:
        shape = models.SHAPES[name]
        width, mlp, layers = shape["hidden_size"], shape["intermediate_size"], shape["num_hidden_layers"]
        narrow = width // shape["num_attention_heads"] * shape["num_key_value_heads"]
        projections = [(width, width), (width, narrow), (width, narrow), (width, width)]
        projections += [(width, mlp), (width, mlp), (mlp, width)]
        weights = layers * sum(a * b for a, b in projections) + shape["vocab_size"] * width
        adapter = layers * sum(LORA_RANK * (a + b) for a, b in projections)
        return cls(weights, adapter, 2 * layers * narrow)


def computed(settings: StepSettings) -> Table:
    """What a GRPO step of a 1.5B model takes on a GPU in bfloat16, from its shape: full weights and LoRA."""
    sizes, rows = Sizes.of(LARGE), settings.max_batch_size
    # The engine's cache has a power of two of positions.
    positions = 1 << (settings.prompt_tokens + settings.new_tokens - 1).bit_length()
    parts = ["weights", "gradients", "masters and moments", "cache", "activations", "logits"]
    table = Table(
        f"{LARGE}, bfloat16, computed: {rows} rows at once, {settings.prompt_tokens} + {settings.new_tokens} tokens",
        ["learning", *parts, "all"],
        dict.fromkeys([*parts, "all"], "GB"),
        "Masters and both moments in float32; activations and logits as large as a micro-batch and a chunk may be by "
        "default. LoRA keeps the activations too.",
    )
    for name, learned in (("full", sizes.weights), (f"LoRA, rank {LORA_RANK}", sizes.adapter)):
        held = sizes.weights + (0 if name == "full" else sizes.adapter)
        found = [
            2 * held,
            2 * learned,
            12 * learned,
            2 * rows * positions * sizes.cached,
            MICRO_BATCH_BYTES["cuda"],
            2 * CHUNK_NUMBERS["cuda"],
        ]
        table.add(name, *(number / GB for number in found), sum(found) / GB)
    return table
