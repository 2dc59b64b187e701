"""Policies of a real robot: starts from test episodes, rollouts that end when the policy says so, people's verdicts."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oneiro import cli
from oneiro.models.video import tokenizer as tokenizers
from oneiro.models.video.layout import Layout
from oneiro.models.video.tokenizer import FrameTokenizerSettings
from oneiro.runtime.errors import OneiroError
from oneiro.systems.policy_eval.pipeline import read_labels
from oneiro.systems.policy_eval.policies import Rt1
from oneiro.systems.policy_eval.recorded_starts import (
    RecordedStartSettings,
    draw_starts,
    evaluate_policies,
    named_values,
    real_rates,
    robot_models,
    robot_tables,
)
from oneiro.tasks.video.model import TransformerSettings, VideoMetadata, create_transformer, open_model
from oneiro.worlds.robot.episodes import ActionBins, RobotEpisode, open_episodes, read_episode, write_episode

SAID = "open middle drawer"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve episodes; the first pixel says which, every third has another instruction."""
    folder = tmp_path_factory.mktemp("rt1")
    for number in range(12):
        image = np.full((3, 16, 20, 3), number, np.uint8)
        info = {"instruction": "close top drawer" if number % 3 == 2 else SAID.title()}
        write_episode(folder / f"train_eps_{number:08d}.npz", RobotEpisode(image, np.zeros((3, 13), np.float32), info))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of thirteen numbers an action, with random weights."""
    folder = tmp_path_factory.mktemp("model")
    sizes = FrameTokenizerSettings(height=16, width=16, patch=4, channels=(8, 8), layers=1, latent=4, levels=(3, 3))
    tokenizer = tokenizers.create(sizes, 0, "cpu")
    layout = Layout.single_step(tokenizer.codes, tokenizer.frame_tokens, 13, past=1)
    language = create_transformer(TransformerSettings(layers=1, width=8, heads=1, mlp=8), layout, 0)
    bins = ActionBins(-np.ones(13), np.ones(13))
    how = VideoMetadata(layout=layout.data(), bins=bins.data(), test_every=2)
    language.metadata = how.model_dump(mode="json")
    language.save(folder / "model")
    tokenizer.save(folder / "tokenizer")
    return folder / "model"


def stepping(ends_at: int) -> Rt1:
    """An RT-1 that ends its episode after so many actions."""

    def step(frame: np.ndarray, instruction: str, state: Any) -> tuple[Mapping[str, np.ndarray], Any]:
        assert frame.shape == (256, 320, 3) and instruction == SAID
        count = state or 0
        return {"terminate_episode": np.array([int(count >= ends_at), 0, 0])}, count + 1

    return Rt1(step)


def test_starts_are_test_episodes_with_the_instruction_drawn_by_the_seed(data: Path) -> None:
    test = open_episodes(data, every=2).test  # 0 2 4 6 8 10, of which 2 and 8 say something else
    first = draw_starts(test, RecordedStartSettings(starts=4), (16, 20))
    assert first.shape == (4, 16, 20, 3) and set(first[:, 0, 0, 0]) == {0, 4, 6, 10}
    drawn = {tuple(draw_starts(test, RecordedStartSettings(starts=2, seed=s), (16, 20))[:, 0, 0, 0]) for s in range(9)}
    assert len(drawn) > 3
    assert draw_starts(test, RecordedStartSettings(starts=1), (8, 10)).shape == (1, 8, 10, 3)
    with pytest.raises(OneiroError, match="4 test episodes say 'open middle drawer', 5 are asked for"):
        draw_starts(test, RecordedStartSettings(starts=5), (16, 20))


def test_policies_end_their_rollouts_and_people_judge_the_last_frame(data: Path, model: Path, tmp_path: Path) -> None:
    models = robot_models({"base": open_model(model)})
    settings = RecordedStartSettings(starts=3, horizon=4)
    starts = draw_starts(open_episodes(data, every=2).test, settings, (16, 16))
    policies = {"quick": stepping(2), "slow": stepping(9), "unlabelled": stepping(0)}
    verdicts = [("quick", 0, True), ("quick", 1, False), ("slow", 0, True), ("slow", 1, True), ("slow", 2, True)]
    rows = [{"model": "base", "policy": p, "start": s, "success": done} for p, s, done in verdicts]
    (tmp_path / "labels").write_text("\n".join(map(json.dumps, rows)))
    labels = read_labels(tmp_path / "labels", models, policies, 3)
    found = evaluate_policies(models, policies, starts, settings, keep=tmp_path / "kept", labels=labels)
    assert found.lengths["base", "quick"].tolist() == [2, 2, 2] and found.ended["base", "quick"].all()
    assert found.lengths["base", "slow"].tolist() == [4, 4, 4] and not found.ended["base", "slow"].any()
    kept = read_episode(tmp_path / "kept" / "base_quick_001.npz")
    assert len(kept) == 3 and kept.info == {"model": "base", "policy": "quick", "start": 1, "instruction": SAID}
    first, agreed = robot_tables(found, {"quick": 0.25, "slow": 0.75, "absent": 0.1}, SAID)
    labelled = {row["policy"]: row["success, labelled"] for row in first.data()["rows"]}
    assert labelled["quick"]["value"] == 0.5 and labelled["slow"]["value"] == 1.0 and labelled["unlabelled"] is None
    (row,) = agreed.data()["rows"]
    assert row["policies"] == 2 and row["mean gap"] == pytest.approx(0.25) and row["MMRV"] == 0.0
    assert len(robot_tables(found, {}, SAID)) == 1


def test_options_of_names_and_rates_are_read_or_refused() -> None:
    assert named_values(["a=b=c"], "DIR") == {"a": "b=c"} and real_rates(["x=0.5"]) == {"x": 0.5}
    for wrong in (["a"], ["=b"], ["a="], ["a=1", "a=2"]):
        with pytest.raises(OneiroError, match="is not NAME=DIR"):
            named_values(wrong, "DIR")
    for rate in ("2", "nan", "x"):
        with pytest.raises(OneiroError, match="a number from 0 to 1"):
            real_rates([f"x={rate}"])


def test_the_command_looks_at_everything_before_it_needs_tensorflow(
    data: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["eval", "rt1", f"--data={data}", "--rt1=converged=nowhere", "--encoder=nowhere"]
    assert cli.main([*command, f"--model={model}", "--starts=9"]) == 2
    assert "9 are asked for" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "labels").write_text('{"model": "simulator", "policy": "convergd", "start": 0, "success": true}')
    assert cli.main([*command, f"--model={model}", f"--labels={tmp_path / 'labels'}"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "line 1: no policy here is called 'convergd'; did you mean 'converged'" in said
    assert cli.main([*command, f"--model={model}", "--starts=2"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert ("oneiro[rt1]" if importlib.util.find_spec("tensorflow") is None else "SavedModel") in said
