"""What a recipe needs, by hand; the templates of the page are well-formed; ranks look at one another."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from oneiro import worlds
from oneiro.agents.policies import ModelPolicy
from oneiro.agents.rollout import attempts, play
from oneiro.diagnosis import plan as capacity
from oneiro.diagnosis.doctor import examine_ranks
from oneiro.diagnosis.plan import Rates, Size, StepSize, parts_of, size_of
from oneiro.learning.algorithms import Ppo
from oneiro.learning.rl_settings import RlSettings
from oneiro.learning.settings import LearnerSettings
from oneiro.models.attention import Prefill
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.models.settings import LoraSettings, ModelSettings
from oneiro.recipe import load
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.systems.spa.recipe import SpaRecipe
from tests.docs.pages import DOCS, blocks
from tests.ranks import on_ranks

BILLION = Size(1e9, kept=1e5, remembered=1e4)


def rl(mode: str, **more: object) -> RlSettings:
    return RlSettings(learner=LearnerSettings(parallel=mode), **more)  # type: ignore[arg-type]


TEN = StepSize(10, 10, 50, 50)
"""Ten rows of a hundred tokens."""


def test_memory_by_hand() -> None:
    alone = capacity.memory(BILLION, rl("data"), 1e9, TEN, 1, 80e9)
    assert (alone["weights"], alone["gradients"], alone["masters and moments"]) == (2e9, 2e9, 12e9)
    assert alone["micro-batch"] == 1000 * 2e5 + 2**31 and alone["key-value cache"] == 1000 * 2e4
    four = capacity.memory(BILLION, rl("data"), 1e9, TEN, 4, 80e9)
    assert four["masters and moments"] == 12e9 and four["gradients"] == 2e9 and four["reduction"] == 4 * 2**26
    sharded = capacity.memory(BILLION, rl("fsdp"), 1e9, TEN, 4, 80e9)
    assert sharded["shards, gradients and moments (fsdp)"] == 4e9 and "gradients" not in sharded
    critic = capacity.memory(BILLION, rl("data", algorithm=Ppo()), 1e9, TEN, 4, 80e9)
    assert critic["critic"] == 4e9 + 12e9
    critic = capacity.memory(BILLION, rl("fsdp", algorithm=Ppo()), 1e9, TEN, 4, 80e9)
    assert critic["critic"] == 4e9 + 3e9
    adapter = capacity.memory(BILLION, rl("data", kl_in_reward=0.1, algorithm=Ppo()), 2e7, TEN, 1, 80e9)
    assert adapter["masters and moments"] == pytest.approx(0.24e9) and "reference" not in adapter
    assert adapter["critic"] == pytest.approx(2e9 + 14 * 2e7)
    assert "critic" not in capacity.memory(
        BILLION, rl("data", algorithm=Ppo(), shared_backbone=True), 1e9, TEN, 1, 80e9
    )
    assert "reference" in capacity.memory(BILLION, rl("data", kl_in_reward=0.1), 1e9, TEN, 1, 80e9)
    assert capacity.memory(BILLION, rl("data", async_rollout=True), 1e9, TEN, 1, 80e9)["copy that plays"] == 2e9
    frozen = capacity.memory(BILLION, rl("fsdp"), 2e7, TEN, 4, 80e9)  # an adapter's base is sharded, and learns nothing
    assert frozen["shards, gradients and moments (fsdp)"] == pytest.approx(16 * 2e7 / 4 + 2e9 / 4)
    # Backward keeps what entered each adapter besides: measured, 2.6 times as much.
    assert adapter["micro-batch"] == pytest.approx(1000 * 2e5 * 2.6 + 2**31)
    # Gradients are added up by buckets of 256 MB; one process has nothing to add.
    assert four["reduction"] == 2**28 and "reduction" not in alone
    assert capacity.memory(BILLION, rl("data"), 2e7, TEN, 4, 80e9)["reduction"] == 8e7
    # Rows of turns of their own are decoded one turn at a time and learned together.
    turns = capacity.memory(BILLION, rl("data"), 1e9, replace(TEN, turns=5), 1, 80e9)
    assert turns["key-value cache"] == alone["key-value cache"] and turns["micro-batch"] == 5000 * 2e5 + 2**31
    # What is bounded by the GPU stays below its bounds.
    long = capacity.memory(BILLION, rl("data"), 1e9, StepSize(10_000, 10_000, 5_000, 5_000), 1, 80e9)
    assert long["micro-batch"] == 80e9 / 6 + 2**31 and long["key-value cache"] == 80e9 / 3


def spent(
    settings: RlSettings, step: StepSize, learned: float = 1e9, batch: int = 1024, gpus: int = 1
) -> dict[str, float]:
    return capacity.times(BILLION, settings, learned, step, batch, gpus, Rates())


def test_times_by_hand() -> None:
    """A token costs 2 FLOP a parameter forward, as much back to the activations and to the weights that learn."""
    step, second = StepSize(32, 256, 100, 100), 1e9 / 300e12
    tokens = 256 * 100 + 32 * 100
    one, eight = spent(rl("data"), step), spent(rl("data"), step, gpus=8)
    assert one["learning"] == pytest.approx(6 * tokens * second)
    assert eight["learning"] == pytest.approx(one["learning"] / 8) and "reduction" not in one
    assert eight["reduction"] == pytest.approx(6e9 / 100e9)
    adapter = spent(rl("data"), step, learned=1e7, gpus=8)
    assert adapter["learning"] == pytest.approx(8 / 12 * eight["learning"], rel=0.01)
    assert adapter["reduction"] == pytest.approx(0.01 * eight["reduction"])
    # A reference and a critic's values look at a batch once, epochs learn from it again.
    critic = spent(rl("data", algorithm=Ppo(), kl_in_reward=0.1, epochs=3), step)
    assert critic["learning"] == pytest.approx(6 * one["learning"])
    shared = spent(rl("data", algorithm=Ppo(), shared_backbone=True), step)
    assert shared["learning"] == pytest.approx(one["learning"])
    assert critic["scoring (reference, correction, values)"] == pytest.approx(2 * 2 * tokens * second)
    # 256 rows at once are bound by products; 64 at once by reading the weights and 64 rows of 150 tokens, four times.
    # The prompts are computed once a group.
    prefill = 2 * 3200 * second
    assert one["sampling"] == pytest.approx(100 * 2 * 256 * second + prefill)
    assert spent(rl("data"), step, batch=64)["sampling"] == pytest.approx(400 * (2e9 + 64 * 150 * 2e4) / 2e12 + prefill)


@pytest.mark.parametrize("context", ["single", "full"])
def test_a_plan_counts_the_rows_and_tokens_of_a_played_step(tiny: LanguageModel, context: str) -> None:
    """Replies of a model that knows nothing are malformed, so that no episode ends before its last turn."""
    recipe = load(
        "spa/frozen-lake",
        [f"dialogue.context={context}", "dialogue.max_turns=4", "sampling.max_tokens=12", "sampling.ignore_eos=true"],
    )
    assert isinstance(recipe, SpaRecipe)
    planned = attempts(3, 5, "train", 0)
    engine, chat = Engine(tiny), ChatFormat(tiny.tokenizer)
    prefilled: list[int] = []
    compute = tiny.backbone.forward

    def counting(tokens: torch.Tensor, positions: torch.Tensor, plan: object, *wanted: torch.Tensor) -> torch.Tensor:
        if isinstance(plan, Prefill):
            prefilled.append(tokens.numel())
        return compute(tokens, positions, plan, *wanted)

    tiny.backbone.forward = counting  # type: ignore[method-assign]
    try:
        make = lambda: worlds.make("frozen-lake", size=4, view="spaced")  # noqa: E731
        episodes = play(make, planned, ModelPolicy(engine, recipe.sampling), recipe.dialogue, chat)
    finally:
        del tiny.backbone.forward
    rows = [row for episode in episodes for row in episode.rows]
    step = replace(parts_of(recipe).step(len(rows[0].prefix)), groups=3, episodes=15)
    assert len(rows) == step.rows
    tokens = sum(len(row.tokens) for row in rows)
    shared = sum(len(episode.rows[0].prefix) for episode in episodes) * 12 / 15
    assert tokens - shared == pytest.approx(step.learned, rel=0.05)
    # A malformed reply leaves the state as it is: alone it is then the prompt of the whole group again.
    assert sum(prefilled) == pytest.approx(step.prefilled if context == "full" else 4 * 3 * step.prompt, rel=0.05)


def test_sizes_come_from_settings_folders_and_names(tmp_path: Path) -> None:
    tiny = ModelSettings()
    assert size_of(tiny).parameters == tiny.parameters
    config = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 100, "intermediate_size": 128}))
    found = size_of(ModelSettings(name=str(tmp_path)))
    assert found.remembered == 2 * 2 * 32 and found.kept == 2 * (4 * 64 + 2 * 128 + 2 * 128)
    # One rank: an input and an output for each of q, k, v, o, gate, up and down.
    assert found.per_rank == 2 * ((64 + 64) + 2 * (64 + 32) + (64 + 64) + 3 * (64 + 128))
    assert found.learned(ModelSettings(lora=LoraSettings(rank=8))) == 8 * found.per_rank
    assert found.learned(tiny) == found.parameters
    del config["num_key_value_heads"]  # then every head has keys and values of its own
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 100, "intermediate_size": 128}))
    assert size_of(ModelSettings(name=str(tmp_path))).remembered == 2 * 2 * 64
    nested = tmp_path / "model-9B"  # sizes one level down, as models of text and pictures have them
    nested.mkdir()
    (nested / "config.json").write_text(json.dumps({"text_config": config}))
    assert size_of(ModelSettings(name=str(nested))).parameters == 9e9
    for name, parameters in {
        "ORG/NAME-7B": 7e9,
        "google/gemma-3-270m-it": 270e6,
        "Qwen/Qwen3-30B-A3B": 30e9,
        "mistralai/Mixtral-8x7B-v0.1": 56e9,
    }.items():
        assert size_of(ModelSettings(name=name)).parameters == parameters
    with pytest.raises(OneiroError, match="not known"):
        size_of(ModelSettings(name="org/bert-3bad"))
    with pytest.raises(OneiroError, match="not known"):
        size_of(ModelSettings(name="ORG/NAME"))


def test_a_plan_says_whether_it_fits() -> None:
    recipe = load("spa/frozen-lake", ["model=Qwen/Qwen2.5-1.5B-Instruct"])
    memory, clock = capacity.plan(recipe, 8, 80.0)
    for table, rows in ((memory, memory.rows[:-2]), (clock, clock.rows[:-1])):
        numbers = [float(row[1].value) for row in rows if row[1].value != "–"]  # type: ignore[arg-type]
        total = next(row for row in table.rows if str(row[0].value).startswith("sum"))
        assert float(total[1].value) == pytest.approx(sum(numbers), abs=0.05 * len(numbers))  # type: ignore[arg-type]
    verdicts = {gigabytes: capacity.plan(recipe, 8, gigabytes)[0].rows[-1][1].value for gigabytes in (10.0, 80.0)}
    assert verdicts == {10.0: "does not fit", 80.0: "fits"}


def test_the_scripts_of_the_page_are_well_formed() -> None:
    scripts = [block.text for block in blocks(DOCS / "scale.md") if block.language in ("sh", "bash")]
    assert len(scripts) >= 3
    for script in scripts:
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert done.returncode == 0, (script, done.stderr)


def test_ranks_look_at_one_another() -> None:
    lines = {finding.what: finding.found for finding in on_ranks(2, examine_ranks)}
    assert "rank 1" in lines and "s apart" in lines["clocks"] and lines["all-reduce"].endswith("over 2 ranks")
    assert examine_ranks()[0].fatal
