"""What every pipeline shares."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oneiro.episode import Episode, Row, given
from oneiro.learning import stages
from oneiro.learning.algorithms import Grpo
from oneiro.learning.collapse import CollapseMonitor, CollapseMonitorSettings
from oneiro.learning.settings import SftContinuedSettings
from oneiro.models.language import LanguageModel, ModelSettings
from oneiro.rundir.records import read_lines, read_log
from oneiro.rundir.run import METRICS, Run
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.sampling.fleet import Fleet
from oneiro.sampling.settings import FleetSettings, SamplingSettings
from tests.conftest import make_tiny
from tests.learning.test_loop import settings as rl_settings
from tests.ranks import on_every_rank
from tests.sampling.fake_fleet import FakeServer
from tests.toy_system import ToyRecipe


def test_weights_without_a_tokenizer_are_refused_before_anything_is_played(tiny: LanguageModel, tmp_path: Path) -> None:
    tiny.save(tmp_path / "other" / "model")
    for file in (tmp_path / "other" / "model").glob("*token*"):
        file.unlink()
    settings = ModelSettings(name=str(tmp_path / "other"))
    with Run.open(tmp_path / "run", ToyRecipe(system="toy")) as run, pytest.raises(OneiroError, match="no tokenizer"):
        stages.make_base(run, settings, lambda: tiny)


def test_with_servers_the_main_process_asks_and_all_ranks_learn(tmp_path: Path) -> None:
    steps = 2

    def rollout_of(engine: Engine) -> stages.Rollout:
        def play(step: int) -> list[Episode]:
            how = SamplingSettings(max_tokens=5, ignore_eos=True)
            sampled = engine.generate([[3 + g, 4, 5] for g in range(2)], 4, how, seed=step)
            return [
                Episode([Row([given([3 + g, 4, 5]), *s.segments()])], [float((s.tokens % 2).mean())], group=g)
                for g in range(2)
                for s in sampled[g]
            ]

        def evaluate(step: int) -> dict[str, float]:
            return {"eval_reward": float(np.mean([episode.score for episode in play(step)]))}

        return stages.Rollout(play, lambda episode: {"reward": episode.score}, evaluate=evaluate)

    def learned(out: Path, asynchronous: bool) -> list[dict[str, Any]]:
        settings = rl_settings(Grpo(), steps, async_rollout=asynchronous, servers=FleetSettings(urls=(server.url,)))
        monitor = CollapseMonitor(CollapseMonitorSettings(every=0, stop=False))
        with Run.open(out, ToyRecipe(system="toy")) as run:
            work = partial(stages.reinforce, run, "rl", "RL", make_tiny(), rollout_of, settings=settings, seed=0)
            run.stage("rl", partial(work, monitor=monitor, max_batch_size=8, evaluate_every=1))
            return list(read_lines(run.path / "metrics.jsonl"))

    second = []
    for asynchronous in (False, True):
        with FakeServer(make_tiny(), "vllm") as server:
            alone = learned(tmp_path / f"alone-{asynchronous}", asynchronous)
            assert server.updates == steps and alone[0]["servers"] == 1
            shared = on_every_rank(2, partial(learned, tmp_path / f"ranks-{asynchronous}", asynchronous))[0]
            assert server.updates == 2 * steps  # once a step, however many ranks learn
        assert [row.keys() for row in shared] == [row.keys() for row in alone]
        for mine, theirs in zip(shared, alone, strict=True):
            assert mine["eval_reward"] == theirs["eval_reward"] and mine["reward"] == theirs["reward"]
            assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3, abs=1e-5)
        second.append(alone[1]["eval_reward"])
    # What is played ahead is played with the weights before the update, also where servers play.
    with FakeServer(make_tiny(), "vllm") as server:
        fleet = Fleet(make_tiny(), FleetSettings(urls=(server.url,)), tmp_path / "weights")
        assert second[1] == rollout_of(fleet).evaluate(2)["eval_reward"] != second[0]


@pytest.mark.parametrize("group_sizes", [None, [2] * 6, [3, 3, 2, 2, 1, 1]])
def test_the_control_makes_as_many_updates_as_were_counted(
    group_sizes: list[int] | None, tiny: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SftContinuedSettings(batch=5)
    rows = [Row([given([3, 4, 5], ce=1.0)]) for _ in range(12)]
    monkeypatch.setattr(stages, "count_updates", lambda *arguments: 7)
    with Run.open(tmp_path / "run", ToyRecipe(system="toy")) as run:
        stages.continue_sft(run, settings, lambda: (tiny, rows, group_sizes), lambda: 1.0, seed=0)
        assert run.info["stages"][stages.CONTINUED]["result"] == {"rows": 12, "steps": 7}
        assert len(list(read_log(run.path / METRICS))) == 7
