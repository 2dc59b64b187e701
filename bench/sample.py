"""`oneiro bench sample`: sampled tokens a second of the engine, beside `transformers` generate, vLLM and the machine's
limit.

All sample the same number of tokens from the same weights and prompts; Oneiro and vLLM also return log-probabilities.
Every contestant lives in this process and they take turns.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field, model_validator

from bench import floor, models
from bench.growth import Axes, growth, three
from bench.measure import OURS, Contestant, Machine, by_device, comparison, seconds_of, take_turns
from oneiro.models import language as languages
from oneiro.models.language import LanguageModel
from oneiro.models.randomness import seeded
from oneiro.recipe import Settings
from oneiro.report.table import Table
from oneiro.runtime import seeds
from oneiro.runtime.threads import cores
from oneiro.sampling.engine import Engine, SamplingSettings


class SampleSettings(Settings):
    rows: int = Field(default_factory=by_device(256, 32), ge=1)
    group: int = Field(1, ge=1)
    """Rows that share a prompt; Oneiro computes it once for them."""
    prompt_tokens: int = Field(default_factory=by_device(200, 64), ge=1)
    new_tokens: int = Field(default_factory=by_device(128, 32), ge=2)
    rounds: int = Field(3, ge=1)
    threads: int = Field(default_factory=cores, ge=1)
    growth: bool = False
    seed: int = 0

    @model_validator(mode="after")
    def _whole_groups(self) -> SampleSettings:
        if self.rows % self.group:
            raise ValueError(f"rows {self.rows} must be a multiple of group {self.group}")
        return self

    def prompts(self, vocabulary: int) -> np.ndarray:
        """Random token ids [rows / group, prompt_tokens]; ids of special tokens come first and are left out."""
        random = seeds.generator(self.seed, "prompts")
        return random.integers(3, vocabulary, (self.rows // self.group, self.prompt_tokens))


def run(model: str | None = None, **options: Any) -> list[Table]:
    """By default SmolLM2-135M on a GPU (256 rows of 200 and 128 tokens, bfloat16) and `tiny` on a processor."""
    settings = SampleSettings(**options)
    machine = Machine.measured(settings.threads)
    model = model or default_model(machine.device.type)
    with opened(model, machine, settings.seed) as (folder, language):
        tables = [machine.table(), compare(model, folder, language, machine, settings)]
    if settings.growth:
        tables.append(grow(model, machine, settings))
    return tables


def default_model(device: str) -> str:
    return "smollm2-135m" if device == "cuda" else "tiny"


@contextmanager
def opened(model: str, machine: Machine, seed: int) -> Iterator[tuple[Path, LanguageModel]]:
    """The model's folder, for peers, and the model loaded on the machine's device."""
    with tempfile.TemporaryDirectory(prefix="oneiro-bench-") as scratch:
        folder = models.prepare(model, Path(scratch) / "model", seed, machine.device.type)
        yield folder, languages.load(str(folder), machine.device)


def compare(model: str, folder: Path, language: LanguageModel, machine: Machine, settings: SampleSettings) -> Table:
    prompts = settings.prompts(language.backbone.shape.vocabulary)
    peer = Peer(folder, prompts, machine, settings)
    static = Contestant("transformers generate, static cache, compiled", lambda n: peer.generate(n, static=True))
    if machine.device.type != "cuda":
        static = Contestant(static.name, None, "measured on a GPU only")
    contestants = [
        Contestant(OURS, ours(language, prompts, settings)),
        Contestant("transformers generate", lambda n: peer.generate(n, static=False)),
        static,
        vllm_contestant(folder, prompts, machine, settings),
    ]
    take_turns(f"bench sample {model}", contestants, settings.rounds)
    work, sizes = floor.Work.of(language.backbone), (len(prompts), settings.group, settings.prompt_tokens)
    decoding = floor.decoding(work, *sizes, settings.new_tokens, machine)
    floors = {
        "floor: memory and arithmetic of decoding": decoding,
        "floor, with the prompts": decoding + floor.prefill(work, len(prompts), settings.prompt_tokens, machine),
    }
    title = (
        f"{model}: sampling {settings.rows} rows, {settings.group} a prompt, {settings.prompt_tokens} prompt and "
        f"{settings.new_tokens} new tokens"
    )
    return comparison(title, contestants, settings.rows * settings.new_tokens, floors)


def ours(language: LanguageModel, prompts: np.ndarray, settings: SampleSettings) -> Any:
    """Round -> one call of the engine."""
    engine = Engine(language, max_batch_size=settings.rows)
    sampling = SamplingSettings(max_tokens=settings.new_tokens, ignore_eos=True)
    return lambda number: engine.generate(list(prompts), settings.group, sampling, seed=number)


class Peer:
    """`transformers` generate on the same rows; it has no groups, so a shared prompt is repeated."""

    def __init__(self, folder: Path, prompts: np.ndarray, machine: Machine, settings: SampleSettings) -> None:
        from transformers import AutoModelForCausalLM

        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=machine.dtype)
        self.model = model.to(machine.device)
        self.model.generation_config.eos_token_id = None
        self.rows = torch.from_numpy(prompts).repeat_interleave(settings.group, 0).to(machine.device)
        self.new_tokens = settings.new_tokens

    @torch.no_grad()
    def generate(self, number: int, static: bool) -> None:
        extra: dict[str, Any] = {"cache_implementation": "static"} if static else {}
        with seeded(number, self.rows.device):
            self.model.generate(
                self.rows,
                attention_mask=torch.ones_like(self.rows),
                do_sample=True,
                top_k=0,
                max_new_tokens=self.new_tokens,
                pad_token_id=0,
                **extra,
            )


def vllm_contestant(folder: Path, prompts: np.ndarray, machine: Machine, settings: SampleSettings) -> Contestant:
    """vLLM where it is installed. Its engine is made in the first round, which does not count."""
    name = "vLLM"
    if machine.device.type != "cuda":
        return Contestant(name, None, "measured on a GPU only")
    if find_spec("vllm") is None:
        return Contestant(name, None, "not installed")
    engine = cache(lambda: vllm_engine(folder, settings.rows, settings.prompt_tokens + settings.new_tokens))
    return Contestant(name, lambda _: vllm_generate(engine(), prompts, settings))


def vllm_engine(folder: Path, rows: int, longest: int) -> Any:
    """vLLM's engine, in this process unless VLLM_ENABLE_V1_MULTIPROCESSING says otherwise, with CUDA graphs up to all
    rows; its own limit is 512.
    """
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import LLM

    return LLM(
        str(folder),
        dtype="bfloat16",
        gpu_memory_utilization=0.3,  # the other contenders hold memory, too
        enable_prefix_caching=True,
        max_model_len=longest,
        max_num_seqs=rows,
        compilation_config={"max_cudagraph_capture_size": rows},
        generation_config="vllm",
    )


def vllm_generate(engine: Any, prompts: np.ndarray, settings: SampleSettings) -> None:
    """Token ids in and out; a round computes its prompts, once for a group. Without a seed: with one, vLLM draws row by
    row.
    """
    from vllm import SamplingParams

    sampling = SamplingParams(
        n=settings.group, max_tokens=settings.new_tokens, ignore_eos=True, logprobs=0, detokenize=False
    )
    engine.reset_prefix_cache()
    engine.generate([{"prompt_token_ids": ids} for ids in prompts.tolist()], sampling, use_tqdm=False)


def grow(model: str, machine: Machine, settings: SampleSettings) -> Table:
    """Oneiro alone, over rows, prompt, group and model."""
    alone = settings.model_copy(update={"group": 1})
    largest = min(16, settings.rows)

    def cost(name: str, value: Any) -> tuple[float, int]:
        chosen = alone if name == "model" else alone.model_copy(update={name: value})
        with opened(value if name == "model" else model, machine, settings.seed) as (_, language):
            work = ours(language, chosen.prompts(language.backbone.shape.vocabulary), chosen)
            work(0)
            return seconds_of(lambda: work(1)), chosen.rows * chosen.new_tokens

    axes: Axes = {
        "rows": three(settings.rows),
        "prompt_tokens": three(4 * settings.prompt_tokens),
        "group": three(largest),
        "model": sizes(machine),
    }
    return growth(f"{model}: how sampling grows", axes, cost)


def sizes(machine: Machine) -> list[str]:
    """Three models, each about four times the one before on a processor, ten times on a GPU."""
    small = ["tiny", "shape:4m", "14m"]
    return ["14m", "shape:smollm2-135m", "shape:qwen2.5-1.5b"] if machine.device.type == "cuda" else small
