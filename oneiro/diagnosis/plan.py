"""What a recipe needs before anything is rented: memory per GPU, part by part, and where a step's time goes.

Memory follows from what the learner and the engine allocate. Times follow from the stated rates and are not measured:
they tell which part is long and what more GPUs change.
"""

from __future__ import annotations

from oneiro.diagnosis.sizes import PROMPT, Rates, Size, parts_of, scoring_passes, size_of
from oneiro.learning.rl_settings import RlSettings
from oneiro.recipe import Recipe, pretrained
from oneiro.report.table import Table

GB = 1e9
BUCKET = 4 * 2**26
"""Bytes of gradients that are reduced at once."""
LOGITS = 2 * 2 * 2**29
"""Bytes of the logits that exist at once, and of their gradient."""
MICRO_BATCH, PART_OF_GPU, CACHE_PART = 16 * 2**30, 6, 3
"""As `learning.learner` and `sampling.engine` have them."""


def memory(
    size: Size, rl: RlSettings, lora: bool, rows: int, length: int, gpus: int, capacity: float
) -> dict[str, float]:
    """Bytes on each GPU by what they are for. `capacity`: bytes of one GPU; `rows` of a step have `length` tokens."""
    parameters, mode = size.parameters, rl.learner.parallel if gpus > 1 or rl.learner.parallel == "fsdp" else "none"
    learned = 0.02 * parameters if lora else parameters
    sharers = gpus if mode in ("data", "fsdp") else 1
    bytes_by_part = {"weights": 2 * parameters}
    if mode == "fsdp":
        bytes_by_part["shards, gradients and moments (fsdp)"] = 16 * learned / sharers + (
            2 * parameters / sharers if lora else 0
        )
        bytes_by_part["layers gathered"] = 4 * size.parameters / 16
    else:
        bytes_by_part["gradients"] = 2 * learned
        bytes_by_part["masters and moments" + (" (sharded)" if sharers > 1 else "")] = 12 * learned / sharers
        bytes_by_part["reduction"] = min(BUCKET, 4 * learned) if sharers > 1 else 0.0
    models = int(bool(rl.learner.loss.kl or rl.kl_in_reward) and not lora)
    if models:
        bytes_by_part["reference"] = 2 * parameters
    if rl.algorithm.critic and not rl.shared_backbone:
        bytes_by_part["critic"] = 4 * parameters + 12 * parameters / sharers
    tokens = rows * length / sharers
    kept = size.kept * 2 * (2.6 if lora else 1.0)
    bytes_by_part["micro-batch"] = min(MICRO_BATCH, capacity / PART_OF_GPU, tokens * kept) + LOGITS
    bytes_by_part["key-value cache"] = min(capacity / CACHE_PART, rows / gpus * length * size.remembered * 2)
    return {name: value for name, value in bytes_by_part.items() if value}


def times(size: Size, rl: RlSettings, rows: int, new: int, prompt: int, gpus: int, rates: Rates) -> dict[str, float]:
    """Seconds of a step by part, at these rates."""
    own = rows / gpus
    scoring = rates.scoring(size, own * (prompt + new) * rl.epochs)
    passes = scoring_passes(rl)
    seconds = {
        "sampling": new * rates.decoding(size, own, prompt + new / 2),
        "learning": 3 * scoring * (2 if rl.algorithm.critic else 1),
    }
    if passes:
        seconds["scoring (reference, correction)"] = passes * scoring
    if gpus > 1:
        seconds["reduction"] = rl.updates_per_step * rates.reducing(size)
    return seconds


def plan(recipe: Recipe, gpus: int, gigabytes: float, rates: Rates | None = None, prompt: int = PROMPT) -> list[Table]:
    """Tables for `oneiro plan`."""
    rates, parts = rates or Rates(), parts_of(recipe)
    rl, model, sampling, rows = parts.rl, parts.model, parts.sampling, parts.rows
    size = size_of(model)
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
