"""`oneiro bench video`: every station has a rate, and the peer predicts the same frames."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import bench
from bench import video, video_data
from bench.video import filmed, generated, subject
from oneiro import recipe
from oneiro.models.language import LanguageModel
from oneiro.tasks.video.predictor import VideoPredictor


@pytest.fixture(scope="module")
def small() -> tuple[LanguageModel, VideoPredictor]:
    """What is measured, in the sizes of the smoke preset."""
    load = recipe.load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.video.recipes.load", lambda name: load(name, ["preset=smoke"]))
        return subject(None)


def test_every_station_has_a_rate_and_the_ratio_is_of_the_two_rates(
    tmp_path: Path, small: tuple[LanguageModel, VideoPredictor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video, "subject", lambda model: small)
    monkeypatch.setattr(video, "RENDERED", 2)
    monkeypatch.setattr(video_data, "FRAMES", 16)
    stations, beside, data = bench.run(
        "video", json=tmp_path / "video.json", prompts=1, group=2, rounds=1, threads=1, episodes=1
    )
    rows = {row["frames are"]: row for row in stations.data()["rows"]}
    assert {"rendered, one process", "tokenised", "predicted", "decoded", "scored, MAE"} <= set(rows)
    assert all(rows[name]["frames a second"] > 0 for name in ("tokenised", "predicted", "decoded", "scored, MAE"))
    ours, theirs = beside.data()["rows"]
    ratio = ours["frames a second"] / theirs["frames a second"]
    assert abs(ours["times as fast as transformers"] - ratio) < 1e-9 and theirs["times as fast as transformers"] == 1
    assert json.loads((tmp_path / "video.json").read_text())["tables"] == [stations.data(), beside.data(), data.data()]
    ours, theirs = data.data()["rows"]
    for cost, ratio in (("CPU-s an episode", "times as fast: import"), ("CPU-s a segment", "read")):
        assert abs(ours[ratio] - theirs[cost] / ours[cost]) < 1e-9 and theirs[ratio] == 1
        assert ours[ratio] > 1  # of processor seconds; measured: 8 and 5
    assert ours["MB an episode"] < theirs["MB an episode"] / 3


def test_the_peer_fills_in_whole_rows_with_the_actions_in_their_places(
    small: tuple[LanguageModel, VideoPredictor],
) -> None:
    language, task = small
    cases = task.encode(filmed(task, 1))
    with torch.random.fork_rng(devices=[]):
        tokens = generated(language, task, cases, 2).numpy()
    layout = task.layout
    assert tokens.shape == (2, layout.length)
    reply = tokens[:, layout.prompt_length :].reshape(2, layout.future, layout.step_tokens)
    assert np.array_equal(reply[0, :, layout.frame_tokens :], layout.first_action + cases.actions[0, layout.past :])
