"""What a recipe needs, by hand; the templates of the page are well-formed; ranks look at one another."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from oneiro.diagnosis import plan as capacity
from oneiro.diagnosis import ranks as doctor_ranks
from oneiro.diagnosis.sizes import Rates, Size, size_of
from oneiro.learning.algorithms import Ppo
from oneiro.learning.rl_settings import RlSettings
from oneiro.learning.settings import LearnerSettings
from oneiro.models.settings import ModelSettings
from oneiro.recipe import load
from oneiro.runtime.errors import OneiroError
from tests.docs.pages import DOCS, blocks
from tests.ranks import on_ranks

BILLION = Size(1e9, kept=1e5, remembered=1e4)


def rl(mode: str, **more: object) -> RlSettings:
    return RlSettings(learner=LearnerSettings(parallel=mode), **more)  # type: ignore[arg-type]


def test_memory_by_hand() -> None:
    alone = capacity.memory(BILLION, rl("data"), False, 10, 100, 1, 80e9)
    assert (alone["weights"], alone["gradients"], alone["masters and moments"]) == (2e9, 2e9, 12e9)
    assert alone["micro-batch"] == 1000 * 2e5 + 2**31 and alone["key-value cache"] == 1000 * 2e4
    four = capacity.memory(BILLION, rl("data"), False, 10, 100, 4, 80e9)
    assert four["masters and moments (sharded)"] == 3e9 and four["gradients"] == 2e9
    sharded = capacity.memory(BILLION, rl("fsdp"), False, 10, 100, 4, 80e9)
    assert sharded["shards, gradients and moments (fsdp)"] == 4e9 and "gradients" not in sharded
    critic = capacity.memory(BILLION, rl("data", algorithm=Ppo()), False, 10, 100, 4, 80e9)
    assert critic["critic"] == 4e9 + 3e9
    adapter = capacity.memory(BILLION, rl("data", kl_in_reward=0.1), True, 10, 100, 1, 80e9)
    assert adapter["masters and moments"] == pytest.approx(0.24e9) and "reference" not in adapter
    assert "reference" in capacity.memory(BILLION, rl("data", kl_in_reward=0.1), False, 10, 100, 1, 80e9)
    # What is bounded by the GPU stays below its bounds.
    long = capacity.memory(BILLION, rl("data"), False, 10_000, 10_000, 1, 80e9)
    assert long["micro-batch"] == 80e9 / 6 + 2**31 and long["key-value cache"] == 80e9 / 3


def test_more_gpus_take_less_time_and_memory() -> None:
    rates = Rates()
    one = capacity.times(BILLION, rl("data"), 256, 100, 100, 1, rates)
    eight = capacity.times(BILLION, rl("data"), 256, 100, 100, 8, rates)
    assert eight["learning"] == pytest.approx(one["learning"] / 8) and "reduction" not in one
    assert one["learning"] == pytest.approx(6e9 * 256 * 200 / 300e12)


def test_sizes_come_from_settings_folders_and_names(tmp_path: Path) -> None:
    tiny = ModelSettings()
    assert size_of(tiny).parameters == tiny.parameters
    config = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 100, "intermediate_size": 128}))
    found = size_of(ModelSettings(name=str(tmp_path)))
    assert found.remembered == 2 * 2 * 32 and found.kept == 2 * (4 * 64 + 2 * 128 + 2 * 128)
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
    verdicts = {gigabytes: capacity.plan(recipe, 8, gigabytes)[0].rows[-1][1].value for gigabytes in (10.0, 80.0)}
    assert verdicts == {10.0: "does not fit", 80.0: "fits"}


def test_the_templates_of_the_page_are_well_formed() -> None:
    found = {"sh": 0, "yaml": 0}
    for block in blocks(DOCS / "scale.md"):
        if block.language == "yaml":
            data = yaml.safe_load(block.text)
            scripts = [data["run"]] if "run" in data else []
            assert data.get("kind") == "Job" or {"resources", "num_nodes", "run"} <= set(data)
        else:
            scripts = [block.text] if block.language in ("sh", "bash") else []
        for script in scripts:
            done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
            assert done.returncode == 0, (script, done.stderr)
        found[block.language] = found.get(block.language, 0) + 1
    assert found["sh"] >= 3 and found["yaml"] == 2


def test_ranks_look_at_one_another() -> None:
    said = {finding.what: finding.found for finding in on_ranks(2, doctor_ranks.examine_ranks)}
    assert "rank 1" in said and "s apart" in said["clocks"] and said["all-reduce"].endswith("over 2 ranks")
    assert doctor_ranks.examine_ranks()[0].fatal
