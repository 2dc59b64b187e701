"""Sampling, training and memory benchmarks on the smallest work; floors and growth worked by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import bench
import oneiro
from bench import floor, memory, models
from bench.growth import growth, three
from bench.measure import OURS, Contestant, Machine, comparison, take_turns
from bench.step import StepSettings
from oneiro.cli import main
from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError

MACHINE = Machine(torch.device("cpu"), torch.float32, bandwidth=1000.0, arithmetic=1e9)
WORK = floor.Work(body=100, head=50, width=4, memory=8, layers=2)


def rows(table: Table) -> list[dict[str, object]]:
    found: list[dict[str, object]] = table.data()["rows"]
    return found


def test_sampling_stands_beside_generate_and_the_floor_through_the_command_line(tmp_path: Path) -> None:
    target = tmp_path / "sample.json"
    sizes = "--rows 4 --group 2 --prompt-tokens 6 --new-tokens 4 --rounds 1 --threads 1"
    assert main(["bench", "sample", "--model", "tiny", "--json", str(target), *sizes.split()]) == 0
    machine, found = json.loads(target.read_text())["tables"]
    assert {"copy bandwidth, GB/s", "matrix products, TFLOP/s"} <= {row["what"] for row in machine["rows"]}
    own, plain, static, vllm, decoding, whole = found["rows"]
    assert (own["contender"], plain["contender"]) == ("Oneiro", "transformers generate")
    assert own["times Oneiro's seconds"]["value"] == 1 and plain["seconds"]["value"] > 0
    assert static["trouble"] or static["seconds"]
    assert vllm["contender"] == "vLLM" and (vllm["trouble"] or vllm["seconds"])
    assert own["tokens/s"] == pytest.approx(16 / own["seconds"]["value"])
    assert 0 < decoding["seconds"] < whole["seconds"] < own["seconds"]["value"]


def test_training_computes_the_loss_that_plain_transformers_computes() -> None:
    _, speed, losses = bench.run("train", "tiny", rows=3, tokens=9, rounds=1, threads=1)
    own, plain = rows(losses)
    for step in ("loss of step 1", "loss of step 2"):
        assert own[step] == pytest.approx(plain[step], rel=1e-5 if not torch.cuda.is_available() else 5e-2)
    assert [row["contender"] for row in rows(speed)][-1] == "floor: arithmetic"


def test_a_decoding_floor_reads_weights_prompts_and_rows_once_a_step() -> None:
    # Two steps of 3 prompts x 2 rows after 5 tokens: 150 + 8 * 15 numbers, then 8 * 6 more; 4 bytes each.
    assert floor.decoding(WORK, 3, 2, 5, 2, MACHINE) == pytest.approx((270 + 318) * 4 / 1000)


def test_where_arithmetic_takes_longer_it_is_the_floor() -> None:
    slow = Machine(MACHINE.device, MACHINE.dtype, bandwidth=1e12, arithmetic=1000.0)
    # A token: 2 * 150 for the weights, 4 * 2 * 4 for each token it attends to.
    assert floor.decoding(WORK, 1, 2, 5, 1, slow) == pytest.approx(2 * (300 + 32 * 5) / 1000)
    assert floor.prefill(WORK, 1, 4, slow) == pytest.approx(4 * (200 + 32 * 2) / 1000)
    assert floor.training(WORK, 1, 4, slow) == pytest.approx(3 * 4 * (300 + 32 * 2) / 1000)


def test_a_model_works_with_its_blocks_and_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"vocab_size": 500, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    monkeypatch.setitem(models.SHAPES, "small", {"model_type": "llama", **sizes, **heads})
    found = floor.Work.of(models.shaped("small").backbone)
    layer = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 96 + 2 * 64
    assert (found.body, found.head, found.memory) == (2 * layer, 500 * 64, 2 * 2 * 32)


def test_a_shape_has_the_parameters_of_the_model_it_is_named_after() -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(**models.SHAPES["smollm2-135m"], tie_word_embeddings=True)
        )
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    with pytest.raises(OneiroError, match="no shape called 'smollm2'; did you mean 'smollm2-135m'"):
        models.shaped("smollm2")


def test_a_peer_that_breaks_is_out_and_oneiro_breaking_ends_the_run() -> None:
    def breaks(number: int) -> None:
        raise ValueError("no such thing\nand more")

    peer, own = Contestant("peer", breaks), Contestant(OURS, lambda number: None)
    take_turns("turns", [own, peer], rounds=2)
    assert (len(own.seconds), peer.seconds, peer.trouble) == (2, [], "failed: no such thing")
    table = comparison("", [own, peer], tokens=10, floors={"floor": 1e-9})
    assert [row["trouble"] for row in rows(table)] == [None, "failed: no such thing", None]
    with pytest.raises(ValueError, match="no such thing"):
        take_turns("turns", [Contestant(OURS, breaks)], rounds=1)


def test_growth_is_told_in_times_of_the_first_point() -> None:
    table = growth("", {"rows": three(32), "model": ["a", "b"]}, lambda name, value: (2.0 * len(str(value)), 8))
    assert [row["to"] for row in rows(table)] == ["2", "8", "32", "a", "b"]
    assert [row["times the first"] for row in rows(table)] == [1, 1, 2, 1, 1]
    assert [row["tokens/s"] for row in rows(table)] == [4, 4, 2, 4, 4]


def test_the_memory_of_a_large_model_is_the_sum_of_its_parts() -> None:
    full, lora = rows(memory.computed(StepSettings(prompt_tokens=100, new_tokens=20, max_batch_size=10)))
    # 28 layers of width 1536, keys 256 wide, feed-forward 8960; 151,936 words.
    weights = 28 * (2 * 1536 * 1536 + 2 * 1536 * 256 + 3 * 1536 * 8960) + 151_936 * 1536
    assert full["weights"] == pytest.approx(2 * weights / 1e9)
    assert full["masters and moments"] == pytest.approx(12 * weights / 1e9)
    assert full["cache"] == lora["cache"] == pytest.approx(2 * 10 * 128 * 2 * 28 * 256 / 1e9)
    assert lora["all"] < full["all"] < 80
    parts = [full[part] for part in ("weights", "gradients", "masters and moments", "cache", "activations", "logits")]
    assert full["all"] == pytest.approx(sum(parts))


def test_without_a_checkout_the_command_says_that_it_needs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(oneiro, "__file__", str(tmp_path / "oneiro" / "__init__.py"))
    assert main(["bench", "worlds"]) == 2
    assert "needs a checkout of the repository" in capsys.readouterr().err
