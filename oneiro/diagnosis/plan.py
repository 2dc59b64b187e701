"""What a recipe needs before anything is rented: memory per GPU, part by part, and where a step's time goes.

Memory follows from what the learner and the engine allocate. Times follow from the stated rates and are not measured:
they tell which part is long and what more GPUs change.
"""

from __future__ import annotations

from oneiro.diagnosis.sizes import PROMPT, Rates, Size, StepSize, parts_of, scoring_passes, size_of
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


def memory(size: Size, rl: RlSettings, learned: float, step: StepSize, gpus: int, capacity: float) -> dict[str, float]:
    """Bytes on each GPU by what they are for. `capacity`: bytes of one GPU; `learned`: parameters that learn."""
    parameters, sharded = size.parameters, rl.learner.parallel == "fsdp"
    lora, sharers = learned < parameters, gpus if sharded else 1
    used = {"weights": 2 * parameters}
    if sharded:
        frozen = 2 * parameters / sharers if lora else 0
        used["shards, gradients and moments (fsdp)"] = 16 * learned / sharers + frozen
        used["layers gathered"] = 4 * size.parameters / 16
    else:
        used["gradients"] = 2 * learned
        used["masters and moments"] = 12 * learned
        used["reduction"] = min(BUCKET, 4 * learned) if gpus > 1 else 0.0
    if (rl.learner.loss.kl or rl.kl_in_reward) and not lora:
        used["reference"] = 2 * parameters
    if rl.async_rollout:
        used["copy that plays"] = 2 * parameters
    if rl.algorithm.critic and not rl.shared_backbone:
        used["critic"] = 2 * parameters + 2 * learned + 12 * learned / sharers
    kept = size.kept * 2 * (2.6 if lora else 1.0)
    used["micro-batch"] = min(MICRO_BATCH, capacity / PART_OF_GPU, step.rows * step.length / gpus * kept) + LOGITS
    # A turn's rows are decoded together: one an episode.
    used["key-value cache"] = min(capacity / CACHE_PART, step.episodes / gpus * step.length * size.remembered * 2)
    return {name: value for name, value in used.items() if value}


def times(
    size: Size, rl: RlSettings, learned: float, step: StepSize, max_batch_size: int, gpus: int, rates: Rates
) -> dict[str, float]:
    """Seconds of a step by part, at these rates."""
    own, batch = step.episodes / gpus, min(step.episodes / gpus, max_batch_size)
    lengths = [step.prompt_of(turn) + step.new / 2 for turn in range(step.turns)]
    decoding = sum(step.new * own / batch * rates.decoding(size, batch, length) for length in lengths)
    scoring = rates.scoring(size, step.learned / gpus)
    # Forward, back to the activations, and back to the weights that learn.
    passes = 2 + learned / size.parameters + (1 if rl.learner.gradient_checkpointing else 0)
    models = 2 if rl.algorithm.critic and not rl.shared_backbone else 1
    spent = {
        "sampling": decoding + rates.scoring(size, step.prefilled / gpus),
        "learning": passes * scoring * rl.epochs * models,
    }
    if scoring_passes(rl):
        spent["scoring (reference, correction, values)"] = scoring_passes(rl) * scoring
    if gpus > 1:
        spent["reduction"] = models * rl.updates_per_step * rates.reducing(learned)
    return spent


def plan(recipe: Recipe, gpus: int, gigabytes: float, rates: Rates | None = None, prompt: int = PROMPT) -> list[Table]:
    """Tables for `oneiro plan`."""
    rates, parts = rates or Rates(), parts_of(recipe)
    rl, model, step = parts.rl, parts.model, parts.step(prompt)
    size, capacity = size_of(model), gigabytes * GB
    learned = size.learned(model)
    words = f"{pretrained.in_words(size.parameters)} parameters, {step.episodes:g} episodes of {step.turns} turns, "
    words += f"{step.rows:g} rows of {step.length} tokens"
    table = Table(f"Memory of one of {gpus} GPUs: {words}", ["for", "GB", "if fsdp"])
    own = memory(size, rl, learned, step, gpus, capacity)
    sharded = rl.model_copy(update={"learner": rl.learner.model_copy(update={"parallel": "fsdp"})})
    other = memory(size, sharded, learned, step, gpus, capacity)
    for name in dict.fromkeys([*own, *other]):
        table.add(name, *(f"{part[name] / GB:.1f}" if name in part else "–" for part in (own, other)))
    totals = [sum(part.values()) / GB for part in (own, other)]
    table.add("sum", *(f"{total:.1f}" for total in totals))
    table.add("verdict", *("fits" if total < 0.92 * gigabytes else "does not fit" for total in totals))
    spent = times(size, rl, learned, step, parts.max_batch_size, gpus, rates)
    clock = Table(
        f"A step at {rates.tflops:.0f} TFLOP/s, {rates.bandwidth:g} TB/s and {rates.link:.0f} GB/s between GPUs, "
        "if every episode has all its turns and every reply all its tokens",
        ["part", "seconds"],
    )
    for name, seconds in spent.items():
        clock.add(name, f"{seconds:.2f}")
    clock.add("sum, without worlds", f"{sum(spent.values()):.2f}")
    return [table, clock]
