"""The benchmark itself: real processes on the smallest work; what is computed from their answers, by hand."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from oneiro import bench
from oneiro.bench import cpu, curves, models, step
from oneiro.bench.contender import Clock, Job, reward
from oneiro.bench.measure import paired
from oneiro.bench.process import Contender
from oneiro.bench.step import Result, StepSettings
from oneiro.errors import OneiroError
from oneiro.report.table import Cell, Table

SMALL = StepSettings(
    prompts=2, group=2, prompt_tokens=5, new_tokens=6, rounds=2, rows=2, threads=1, patience=120, device="cpu"
)


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    return step.measure("tiny", SMALL)


def column(table: Table, name: str) -> list[object]:
    return [row[name] for row in table.data()["rows"]]


def test_a_plain_loop_computes_the_same_losses_and_gradient_norms(results: dict[str, Result]) -> None:
    own, plain = step.numbers(results["oneiro"]), step.numbers(results["transformers"])
    assert len(own) == 4
    assert all(abs(number) > 1e-4 for number in own)
    np.testing.assert_allclose(plain, own, rtol=1e-4)


def test_contenders_one_after_the_other_find_the_same_and_never_share_the_memory(
    results: dict[str, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, most = list[str](), list[int]()

    class Watched(Contender):
        def __init__(self, job: Job, *how: object) -> None:
            there.append(job.contender)
            most.append(len(there))
            super().__init__(job, *how)  # type: ignore[arg-type]

        def close(self) -> None:
            super().close()
            there.remove(self.name)

    monkeypatch.setattr(step, "Contender", Watched)
    names = ("oneiro", "transformers")
    alone = step.measure("tiny", SMALL.model_copy(update={"turns": False, "rounds": 1}), names)
    assert most == [1, 1]
    for name in names:
        assert step.numbers(alone[name]) == pytest.approx(step.numbers(results[name]), rel=1e-6)
        assert len(alone[name].steps) == 1
    most.clear()
    step.measure("tiny", SMALL.model_copy(update={"turns": True, "rounds": 1}), names)
    assert most == [1, 2]


def test_trl_computes_the_same_or_says_that_it_is_not_installed(results: dict[str, Result]) -> None:
    found = results["trl"]
    if found.trouble:
        assert found.trouble.startswith("not installed: no module ")
        assert found.trouble in column(step.seconds_table("tiny", SMALL, results), "trouble")
        assert "no peer" in column(step.ratio_table({"tiny": results}, cpu.BARS), "verdict")
    else:
        np.testing.assert_allclose(step.numbers(found), step.numbers(results["oneiro"]), rtol=1e-4)


def test_every_contender_reports_parts_that_sum_to_its_step_and_memory_that_grows(results: dict[str, Result]) -> None:
    for result in (found for found in results.values() if not found.trouble):
        assert len(result.steps) == SMALL.rounds
        for taken in result.steps:
            seconds = taken["seconds"]
            assert seconds["generate"] > 0 and seconds["update"] > 0
            assert seconds["generate"] + seconds["score"] + seconds["update"] == pytest.approx(seconds["step"])
        assert 0 < result.memory_before < result.memory


def test_a_step_on_sampled_tokens_of_equal_length_has_loss_zero(results: dict[str, Result]) -> None:
    # A group's advantages sum to 0 and every ratio is 1 on the first update of a batch.
    for result in (found for found in results.values() if not found.trouble):
        assert [taken["loss"] for taken in result.steps] == pytest.approx([0.0, 0.0], abs=1e-5)


def test_a_peer_that_breaks_is_trouble_and_our_own_breaking_is_an_error(tmp_path: Path) -> None:
    jobs = {
        name: Job(name, str(tmp_path / "nothing"), ["a"], [], 2, 4, 1e-5, 2, False, 0)
        for name in ("transformers", "oneiro")
    }
    peer = Contender(jobs["transformers"], tmp_path, threads=1, patience=120)
    peer.close()
    assert peer.trouble.startswith("failed: ")
    assert peer.step(0) is None
    with pytest.raises(OneiroError, match="the benchmark's own contender failed: "):
        Contender(jobs["oneiro"], tmp_path, threads=1, patience=120)


def test_a_peer_python_that_does_not_exist_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEIRO_PEER_PYTHON", "/nowhere/python")
    with pytest.raises(OneiroError, match="ONEIRO_PEER_PYTHON: cannot run '/nowhere/python'"):
        Contender(Job("trl", "", [], [], 2, 4, 1e-5, 2, False, 0), tmp_path, threads=1, patience=5)


@pytest.mark.parametrize("name", models.RANDOM)
def test_prompts_have_exactly_the_length_asked_for(name: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = models.prepare(name, tmp_path / name)
    prompts = models.make_prompts(folder, count=3, length=11)
    assert [len(ids) for ids in AutoTokenizer.from_pretrained(folder)(prompts)["input_ids"]] == [11, 11, 11]
    assert len(set(prompts)) == 3


def test_a_ratio_is_the_median_over_rounds_with_its_extremes() -> None:
    cell = paired([6.0, 9.0, 8.0], [2.0, 2.0, 2.0])
    assert (cell.value, cell.low, cell.high, cell.n) == (4.0, 3.0, 4.5, 3)


def test_the_bar_is_met_at_the_bar_and_missed_below_it() -> None:
    table = Table("", ["model", "of", "transformers", "trl", "bar", "verdict"])
    for ratio in (2.5, 2.4):
        step.judge(table, "14m", "step", [Cell(1.0), Cell(ratio)], 2.5)
    assert column(table, "verdict") == ["met", "missed"]


def test_a_part_inside_a_part_counts_once() -> None:
    clock = Clock()
    with clock.part("score"):
        with clock.part("generate"):
            time.sleep(0.05)
        time.sleep(0.02)
    seconds = clock.stop()
    assert 0.05 <= seconds["generate"] < 0.2
    assert 0.02 <= seconds["score"] < 0.05 + 0.02
    assert seconds["step"] == pytest.approx(sum(seconds[part] for part in ("generate", "score", "update")))


def test_the_reward_is_the_share_of_even_ids() -> None:
    assert reward([2, 3, 4, 5, 6]) == 0.6


def test_students_interval_of_two_values_is_what_the_textbook_says() -> None:
    # mean 2, sample deviation sqrt(2), standard error 1, quantile 12.706 at one degree of freedom
    cell = curves.student(np.array([1.0, 3.0]))
    assert (cell.value, cell.n) == (2.0, 2)
    assert (cell.low, cell.high) == pytest.approx((2 - 12.706, 2 + 12.706))


def test_an_unknown_benchmark_or_option_is_one_line() -> None:
    with pytest.raises(OneiroError, match="no benchmark called 'cup'; did you mean 'cpu'"):
        bench.run("cup")
    with pytest.raises(OneiroError, match="bench cpu: --group: "):
        bench.run("cpu", "tiny", group=1)
    with pytest.raises(OneiroError, match="bench worlds has no option --prompt-tokens"):
        bench.run("worlds", prompt_tokens=3)
    with pytest.raises(OneiroError, match="bench train has no option --curves"):
        bench.run("train", curves=3)
