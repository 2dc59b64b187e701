"""The benchmark itself: contenders called on the smallest work, processes that only talk; the rest by hand.

Each real contender takes seconds to import its libraries: all of them in processes of their own are a thorough test.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bench
from bench import contender, cpu, curves, models, step
from bench.contender import Channel, Clock, Job, reward
from bench.measure import paired
from bench.process import Contender
from bench.step import Result, StepSettings
from oneiro.report.table import Cell, Table
from oneiro.runtime.errors import OneiroError

SMALL = StepSettings(
    prompts=2, group=2, prompt_tokens=5, new_tokens=6, rounds=2, rows=2, threads=1, patience=120, device="cpu"
)
TALKERS = """
import importlib.util, sys

place = importlib.util.spec_from_file_location("contender", "@PATH@")
sys.modules["contender"] = contender = importlib.util.module_from_spec(place)
place.loader.exec_module(contender)


def answers(job, channel):
    channel.say(ready=False)
    channel.say(ready=True)
    for request in channel.requests():
        parts = {"step": 3.0, "generate": 1.0, "score": 1.0, "update": 1.0, "processor": 3.0}
        channel.answer(parts, [0.5], float(request["step"]), 10.0 * request["given"])


def breaks(job, channel):
    raise ValueError("no such model")


def lacks(job, channel):
    import no_such_library


does = {"answers": answers, "breaks": breaks, "lacks": lacks}
contender.CONTENDERS = {name: does[what] for name, what in @WHAT@.items()}
contender.main(sys.argv[1])
"""
"""Contenders that import nothing: they answer, break, or lack a library."""


class Called(Channel):
    """Asks a contender of this process for the steps of a measurement, and keeps its answers."""

    def __init__(self, steps: int) -> None:
        self.asked: Iterator[int] = iter(range(steps))
        self.answers: list[dict[str, Any]] = []

    def say(self, **message: Any) -> None:
        if "seconds" in message:
            self.answers.append(message)

    def ask(self) -> dict[str, Any] | None:
        number = next(self.asked, None)
        return None if number is None else {"step": number, "given": number < step.CHECKS}


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    """Oneiro and a plain loop, measured in this process."""
    found = {}
    with torch.random.fork_rng(devices=[]), step.jobs("tiny", SMALL, ("oneiro", "transformers")) as (_, jobs):
        for name, job in jobs.items():
            channel = Called(step.CHECKS + step.WARM_UP + SMALL.rounds)
            contender.CONTENDERS[name](job, channel)
            measured = channel.answers[step.CHECKS + step.WARM_UP :]
            found[name] = Result(checks=channel.answers[: step.CHECKS], steps=measured)
    return found


def talk(monkeypatch: pytest.MonkeyPatch, folder: Path, **what: str) -> None:
    """Let the processes of contenders do no more than what is said."""
    script = folder / "talkers.py"
    script.write_text(TALKERS.replace("@PATH@", contender.__file__).replace("@WHAT@", repr(what)))
    monkeypatch.setattr(contender, "__file__", str(script))


def column(table: Table, name: str) -> list[object]:
    return [row[name] for row in table.data()["rows"]]


def test_a_plain_loop_computes_the_same_losses_and_gradient_norms(results: dict[str, Result]) -> None:
    own, plain = step.numbers(results["oneiro"]), step.numbers(results["transformers"])
    assert len(own) == 4
    assert all(abs(number) > 1e-4 for number in own)
    np.testing.assert_allclose(plain, own, rtol=1e-4)


@pytest.mark.parametrize(("turns", "most"), [(False, [1, 1]), (True, [1, 2])])
def test_contenders_share_the_memory_only_where_they_take_turns(
    turns: bool, most: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    there, found = list[str](), list[int]()

    class Watched(Contender):
        def __init__(self, job: Job, *how: object) -> None:
            there.append(job.contender)
            found.append(len(there))
            super().__init__(job, *how)  # type: ignore[arg-type]

        def close(self) -> None:
            super().close()
            there.remove(self.name)

    talk(monkeypatch, tmp_path, oneiro="answers", transformers="answers")
    monkeypatch.setattr(step, "Contender", Watched)
    names = ("oneiro", "transformers")
    results = step.measure("tiny", SMALL.model_copy(update={"turns": turns}), names)
    assert (there, found) == ([], most)
    for name in names:
        assert step.numbers(results[name]) == [0.0, 10.0, 1.0, 10.0]
        assert [taken["loss"] for taken in results[name].steps] == [3.0, 4.0]
        assert results[name].memory > 0


def test_a_peer_that_is_not_installed_or_breaks_is_trouble_and_our_own_breaking_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    talk(monkeypatch, tmp_path, oneiro="answers", transformers="breaks", trl="lacks")
    results = step.measure("tiny", SMALL)
    assert results["transformers"].trouble == "failed: ValueError: no such model"
    assert results["trl"].trouble == "not installed: no module 'no_such_library'"
    assert len(results["oneiro"].steps) == SMALL.rounds and not results["trl"].steps
    assert results["trl"].trouble in column(step.seconds_table("tiny", SMALL, results), "trouble")
    assert "no peer" in column(step.ratio_table({"tiny": results}, cpu.BARS), "verdict")
    monkeypatch.undo()
    talk(monkeypatch, tmp_path, oneiro="breaks")
    with pytest.raises(OneiroError, match="the benchmark's own contender failed: ValueError: no such model"):
        step.measure("tiny", SMALL, ("oneiro",))


def test_trl_with_vllm_is_a_contender_on_a_gpu_only_and_a_row_where_vllm_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert SMALL.model_copy(update={"device": "cuda"}).contenders == tuple(contender.CONTENDERS)
    assert SMALL.contenders == ("oneiro", "transformers", "trl")
    talk(monkeypatch, tmp_path, oneiro="answers", trl="answers", **{"trl-vllm": "lacks"})
    results = {"tiny": step.measure("tiny", SMALL, ("oneiro", "trl", "trl-vllm"))}
    ratios = step.ratio_table(results)
    assert column(ratios, "TRL GRPOTrainer")[0] == {"value": 1.0, "low": 1.0, "high": 1.0, "n": 2}
    assert set(column(ratios, "TRL GRPOTrainer, vLLM")) == {None}
    missing = "not installed: no module 'no_such_library'"
    assert column(step.agreement_table(results, 0.0), "verdict") == [None, "same", missing]


@pytest.mark.thorough
def test_real_processes_agree_and_their_memory_grows() -> None:
    results = step.measure("tiny", SMALL)
    for result in (found for found in results.values() if not found.trouble):
        np.testing.assert_allclose(step.numbers(result), step.numbers(results["oneiro"]), rtol=1e-4)
        assert 0 < result.memory_before < result.memory
    assert not results["transformers"].trouble
    assert not results["trl"].trouble or results["trl"].trouble.startswith("not installed: no module ")


def test_every_contender_reports_parts_that_sum_to_its_step(results: dict[str, Result]) -> None:
    for result in results.values():
        assert len(result.steps) == SMALL.rounds
        for taken in result.steps:
            seconds = taken["seconds"]
            assert seconds["generate"] > 0 and seconds["update"] > 0
            assert seconds["generate"] + seconds["score"] + seconds["update"] == pytest.approx(seconds["step"])


def test_a_step_on_sampled_tokens_of_equal_length_has_loss_zero(results: dict[str, Result]) -> None:
    # A group's advantages sum to 0 and every ratio is 1 on the first update of a batch.
    for result in results.values():
        assert [taken["loss"] for taken in result.steps] == pytest.approx([0.0, 0.0], abs=1e-5)


def test_a_peer_python_that_does_not_exist_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEIRO_PEER_PYTHON", "/nowhere/python")
    with pytest.raises(OneiroError, match="ONEIRO_PEER_PYTHON: cannot run '/nowhere/python'"):
        Contender(Job("trl", "", [], [], 2, 4, 1e-5, 2, False, 0), tmp_path, threads=1, patience=5)


@pytest.mark.parametrize("name", ["tiny", pytest.param("14m", marks=pytest.mark.thorough)])
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


def test_a_part_inside_a_part_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([0.0, 1.0, 2.0, 7.0, 9.0, 10.0])
    monkeypatch.setattr("bench.contender.time.perf_counter", lambda: next(readings))
    clock = Clock()
    with clock.part("score"), clock.part("generate"):
        pass
    seconds = clock.stop()
    # The inner part lasted from 2 to 7, the outer one from 1 to 9, the step from 0 to 10.
    assert (seconds["generate"], seconds["score"], seconds["update"], seconds["step"]) == (5.0, 3.0, 2.0, 10.0)


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
