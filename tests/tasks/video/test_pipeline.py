"""RLVR on video: the pipelines through the command line, what a killed run becomes, and their parts."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import oneiro
from oneiro import cli
from oneiro import recipe as recipes
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.stages import CONTROL
from oneiro.models.video import tokenizer as tokenizers
from oneiro.models.video.layout import Layout
from oneiro.models.video.tokenizer import CompressiveTokenizerSettings
from oneiro.report.figures import gif
from oneiro.rundir.records import read_lines
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.video import evaluation as video_evaluate
from oneiro.tasks.video.data import VideoData, data_stage, open_data
from oneiro.tasks.video.data import fixed_windows as fixed_segments
from oneiro.tasks.video.dataset import VideoDataset
from oneiro.tasks.video.evaluation import (
    CEILING,
    COPY,
    LOOKUP,
    Measured,
    SegmentEvaluation,
    by_episode,
    change_table,
    evaluate_video,
    main_table,
    open_models,
)
from oneiro.tasks.video.model import TransformerSettings, create_transformer, find_tokenizer, open_model
from oneiro.tasks.video.predictor import VideoPredictor, VideoRewardSettings
from oneiro.tasks.video.recipe import VideoRecipe
from oneiro.tasks.video.task import SHARPER, VideoTask, play, record, verdict
from oneiro.tasks.video.teleop import blocks, key_action, keys_of, open_teleop
from oneiro.tasks.video.training import given_transformer, take_transformer
from oneiro.worlds.robot import puck as video_toy
from oneiro.worlds.robot.episodes import ActionBins, Episodes, RobotEpisode, open_episodes, write_episode
from tests.interruption import fingerprint, kill_in

COMMAND = [sys.executable, "-m", "oneiro"]
ENVIRONMENT = {**os.environ, "COLUMNS": "200"}
BOTH = ("rlvr/video-single", "rlvr/video-multi")


def start(recipe: str, out: Path, *overrides: str) -> subprocess.Popen[bytes]:
    command = [*COMMAND, "run", recipe, "preset=toy", *overrides, "--out", str(out)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module", params=BOTH, ids=["single", "multi"])
def alone(request: pytest.FixtureRequest, finished: Callable[[str, str], Path]) -> Path:
    """A smoke run on the toy, which needs no simulator, that was left alone."""
    return finished(request.param, "toy")


EITHER = pytest.mark.parametrize(
    "alone", [BOTH[0], pytest.param(BOTH[1], marks=pytest.mark.thorough)], ids=["single", "multi"], indirect=True
)
"""For what does not depend on the tokenizer's kind."""

# The pipelines --------------------------------------------------------------------------------------------------------


def recipe_of(run: Path) -> str:
    return BOTH[1] if "multi" in (run / "recipe.yaml").read_text() else BOTH[0]


@EITHER
def test_a_run_takes_models_that_were_trained_before(alone: Path, tmp_path: Path) -> None:
    """Nothing is trained in their place, and both models end as in the run they come from: nor do looks at test
    segments on the way disturb what is learned.
    """
    out = tmp_path / "again"
    looks = ["evaluation.every=2", "evaluation.eval_subset=3"]
    oneiro.run(recipe_of(alone), out=out, overrides=["preset=toy", f"init_from.transformer={alone}", *looks])
    for file in ("evaluation/base.npz", "evaluation/RLVR.npz"):
        mine, theirs = np.load(out / file), np.load(alone / file)
        assert set(mine) == set(theirs) and all(np.array_equal(mine[key], theirs[key]) for key in mine)
    lines = list(read_lines(out / "metrics.jsonl"))
    assert {line["stage"] for line in lines} == {"rl", "sft-continued"}
    assert [line["step"] for line in lines if "eval_reward" in line and "eval_mse" in line] == [1, 3]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["init_from.tokenizer=RUN", "tokenizer.height=64", "tokenizer.width=64"], "set tokenizer.height=32"),
        (["init_from.tokenizer=RUN/nowhere"], "nothing is at"),
        (["init_from.transformer=RUN", "data.test_every=2"], "was trained with data.test_every=3"),
        (["init_from.transformer=RUN", "layout.bins=9"], "was trained with layout.bins=256"),
        (["init_from.transformer=RUN", "init_from.tokenizer=RUN"], "init_from.tokenizer or init_from.transformer"),
    ],
)
@pytest.mark.parametrize("alone", BOTH[:1], ids=["single"], indirect=True)
def test_what_is_given_must_fit(
    alone: Path, tmp_path: Path, overrides: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [part.replace("RUN", str(alone)) for part in overrides]
    assert cli.main(["run", recipe_of(alone), "preset=toy", *filled, "--out", str(tmp_path / "other")]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "other" / "data").exists()  # it is looked at first


def test_a_run_ends_with_baselines_ceiling_base_and_rlvr_in_every_table(alone: Path) -> None:
    summary = json.loads((alone / "summary.json").read_text())
    main = summary["tables"][0]
    assert [row["frames"] for row in main["rows"]] == [
        COPY,
        LOOKUP,
        CEILING,
        "base",
        SHARPER["base"],
        CONTROL,
        "RLVR",
        SHARPER["RLVR"],
    ]
    for row in main["rows"]:
        assert row["MSE x 100"]["low"] <= row["MSE x 100"]["value"] <= row["MSE x 100"]["high"]
        assert row["MSE x 100"]["n"] == 4  # twelve episodes, every third for testing
    assert "intervals" in summary["notes"][0] and "Copying the last frame" in summary["notes"][0]
    ahead = [table for table in summary["tables"] if table["title"] == "By how far ahead"]
    assert len(ahead) == ("compressive" in (alone / "recipe.yaml").read_text())
    for table in ahead:
        assert table["columns"] == [
            "ahead",
            "frames",
            "MSE x 100",
            "MSE of moving pixels x 100",
            "PSNR",
            "SSIM x 100",
            "repeats",
        ]
        assert len(table["rows"]) == 7 * 8


@EITHER
def test_a_stage_has_its_own_weights_and_none_means_those_before_rl(alone: Path) -> None:
    recipe = recipes.load(str(alone / "recipe.yaml"))
    with Run.open(alone, recipe) as run:
        for stage, name in ((None, "pretrain"), ("rl", "rl")):
            trained_in = VideoTask(recipe, run).model(stage).trained_in  # type: ignore[arg-type]
            assert trained_in is not None and trained_in.is_relative_to(alone / "checkpoints" / name)


def test_the_report_holds_its_moving_pictures(alone: Path) -> None:
    page = (alone / "report.html").read_text()
    assert re.findall(r'<img src="data:image/gif;base64,R0lGOD', page)
    assert "img-src data:" in page


def test_the_sampler_and_the_learner_agree_and_the_reward_is_the_sum_of_its_terms(alone: Path) -> None:
    steps = [line for line in read_lines(alone / "metrics.jsonl") if line["stage"] == "rl"]
    assert [line["step"] for line in steps] == [1, 2, 3]
    assert [line["mismatch"] < 1e-3 for line in steps] == [True] * 3
    for row in read_lines(alone / "episodes" / "rl-000003.jsonl.gz"):
        assert sum(sum(values) for values in row["terms"].values()) == pytest.approx(row["score"])
        assert len(row["frames"]) == len(row["turns"]) and max(map(max, row["frames"])) < 240


def test_eval_video_measures_base_and_rlvr_on_the_episodes_that_training_left_out(alone: Path, tmp_path: Path) -> None:
    out = tmp_path / "frames.json"
    options = ["--segments", "5", "--runs", "2", "--lpips", "none", "--json", str(out)]
    assert cli.main(["eval", "video", "--model", str(alone), "--data", str(alone / "data"), *options]) == 0
    rows = json.loads(out.read_text())["tables"][0]["rows"]
    assert [row["frames"] for row in rows] == [COPY, LOOKUP, CEILING, "base", "RLVR"] and rows[0]["PSNR"]["n"] == 4


def test_playing_writes_a_frame_for_every_key(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "frames"
    out.mkdir()
    (out / "frame-0009.png").touch()  # of a longer rollout that was here before
    monkeypatch.setattr("sys.stdin", io.StringIO("dw.\n?\nq\n"))
    assert cli.main(["play", "robot", "--model", str(alone), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "'?' means nothing here" in shown
    assert sorted(path.name for path in out.iterdir()) == [*(f"frame-{i:04d}.png" for i in range(1, 5)), "rollout.gif"]
    assert "frame 4 > " in shown  # as the fourth of the moving picture's frames is numbered


@EITHER
def test_a_key_moves_one_entry_to_the_end_of_its_range(alone: Path, tmp_path: Path) -> None:
    drive = open_teleop(alone, None, 1, tmp_path, seed=0)
    low, high = drive.camera.task.bins.low, drive.camera.task.bins.high
    assert key_action(drive.camera.task.bins, "d").tolist() == pytest.approx([high[0], 0])  # type: ignore[union-attr]
    assert key_action(drive.camera.task.bins, "s").tolist() == pytest.approx([0, low[1]])  # type: ignore[union-attr]
    assert key_action(drive.camera.task.bins, "x") is None  # the toy's actions have two entries
    assert key_action(drive.camera.task.bins, "1+").tolist() == pytest.approx([high[0], 0])  # type: ignore[union-attr]
    assert key_action(drive.camera.task.bins, "2-").tolist() == pytest.approx([0, low[1]])  # type: ignore[union-attr]
    assert (
        key_action(drive.camera.task.bins, "0+")
        is key_action(drive.camera.task.bins, "3+")
        is key_action(drive.camera.task.bins, "99999-")
        is None
    )
    assert blocks(drive.frame).count("▀") == 32 * 16
    with pytest.raises(OneiroError, match="there are 4 test episodes"):
        open_teleop(alone, None, 4, tmp_path, seed=0)


@EITHER
def test_every_entry_of_a_long_action_has_keys(alone: Path, tmp_path: Path) -> None:
    drive = open_teleop(alone, None, 1, tmp_path, seed=0)
    bins = ActionBins(-np.arange(1.0, 14), np.arange(1.0, 14))  # thirteen, as RT-1's
    drive.camera.task = replace_bins(drive.camera.task, bins)
    for entry in range(13):
        for sign, name in ((1, "+"), (-1, "-")):
            action = key_action(drive.camera.task.bins, f"{entry + 1}{name}")
            assert action is not None and action.tolist() == [sign * (entry + 1.0) * (i == entry) for i in range(13)]
    assert list(keys_of("d 13+w12-. ")) == ["d", "13+", "w", "12-", "."]


def replace_bins(task: VideoPredictor, bins: ActionBins) -> VideoPredictor:
    return VideoPredictor(task.tokenizer, task.layout, bins, task.reward_settings)


def test_a_checkpoint_finds_the_tokenizer_of_its_run(alone: Path) -> None:
    language, task, metadata = open_model(alone / "checkpoints" / "rl")
    assert task.layout.codes == language.backbone.output_vocab == 240 and metadata.test_every == 3
    assert find_tokenizer(alone / "checkpoints" / "pretrain") == find_tokenizer(alone)
    assert list(open_models(alone)) == ["base", "RLVR"]


@EITHER
def test_a_model_without_its_tokenizer_is_a_readable_mistake(alone: Path, tmp_path: Path) -> None:
    language, _, _ = open_model(alone)
    language.save(tmp_path / "a" / "b" / "c" / "d" / "moved")
    with pytest.raises(OneiroError, match="no tokenizer belongs to the model"):
        open_model(tmp_path / "a" / "b" / "c" / "d" / "moved")


@pytest.mark.parametrize(
    "words", [["eval", "video", "--data", "."], ["eval", "policy"], ["play", "robot"]], ids=["video", "policy", "play"]
)
def test_a_model_that_is_not_there_is_a_readable_mistake(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*words, "--model", str(tmp_path / "nowhere")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "name a run of rlvr/video-..." in said and "language" not in said and "smollm" not in said


@EITHER
def test_a_stage_that_a_run_has_not_is_a_readable_mistake(alone: Path) -> None:
    with pytest.raises(OneiroError, match="no transformer of a stage 'sft'; they come after 'pretrain' and 'rl'"):
        open_model(alone, "sft")


@EITHER
def test_playing_in_a_model_without_episodes_of_its_own_asks_for_some(alone: Path, tmp_path: Path) -> None:
    rl = alone / "checkpoints" / "rl"
    with pytest.raises(OneiroError, match="name the folder of some with --data"):
        open_teleop(rl, None, 0, tmp_path, seed=0)
    assert open_teleop(rl, alone / "data", 0, tmp_path, seed=0).frame.shape == (32, 32, 3)


@EITHER
def test_data_with_other_actions_is_a_readable_mistake(alone: Path, tmp_path: Path) -> None:
    one = video_toy.play(0, 12, 32)
    write_episode(tmp_path / "a.npz", replace(one, action=np.zeros((12, 7), np.float32)))
    with pytest.raises(OneiroError, match="have 7 numbers, the model knows 2"):
        evaluate_video(open_models(alone), tmp_path, "all", 2, 1, [])


@EITHER
def test_eval_video_names_the_files_it_leaves_out(alone: Path, tmp_path: Path) -> None:
    shutil.copytree(alone / "data", tmp_path / "data")
    (tmp_path / "data" / "puck_eps_00000099.npz").write_bytes(b"PK")
    said: list[str] = []
    evaluate_video(open_models(alone), tmp_path / "data", "test", 2, 1, [], say=said.append)
    assert len(said) == 1 and said[0].startswith("left out:") and "puck_eps_00000099.npz" in said[0]


def test_lpips_is_refused_on_frames_that_are_too_small_before_anything_runs(
    episodes: Episodes, task: VideoPredictor
) -> None:
    small = ("preset=toy", "tokenizer.height=16", "tokenizer.width=16")
    for setting in ("evaluation.networks=[alex]", "reward.lpips=1 reward.network=alex", "reconstruction.lpips=1"):
        network = "reconstruction.network=alex" if setting.startswith("reconstruction") else "reward.mae=1"
        with pytest.raises(OneiroError, match="alex needs frames of at least 31x31 pixels, these are 16x16; take vgg"):
            load(BOTH[1], *small, *setting.split(), network)
    load(BOTH[1], *small, "evaluation.networks=[vgg]", "reward.lpips=1", "reward.network=vgg")
    dataset = VideoDataset(episodes, task.layout.frames)
    with pytest.raises(OneiroError, match="at least 31x31"):
        SegmentEvaluation(task, dataset, dataset.windows[:1], ["alex"])


def test_a_layout_of_the_other_kind_is_named_as_it_is_set(alone: Path) -> None:
    multi = recipe_of(alone) == BOTH[1]
    other = load(BOTH[0] if multi else BOTH[1], "preset=toy", f"init_from.transformer={alone}")
    with pytest.raises(OneiroError, match=f"layout.name={'multi' if multi else 'single'}") as refused:
        given_transformer(other)
    assert "marks" not in str(refused.value)


@EITHER
def test_a_given_transformer_is_not_taken_for_actions_that_last_longer(alone: Path, tmp_path: Path) -> None:
    recipe = load(recipe_of(alone), "preset=toy", f"init_from.transformer={alone}")
    data = VideoData(recipe, open_episodes(alone / "data", every=3), action_repeat=8)
    with (
        Run.open(tmp_path / "run", recipe) as run,
        pytest.raises(OneiroError, match="last 8 simulator steps, the transformer's 4"),
    ):
        take_transformer(recipe, run, data)


@pytest.mark.thorough
def test_a_run_killed_in_its_stages_ends_like_one_left_alone(tmp_path: Path) -> None:
    undisturbed, killed = tmp_path / "alone", tmp_path / "killed"
    assert start("rlvr/video-multi", undisturbed).wait(300) == 0
    stages = ("tokenizer", "pretrain", "rl", "evaluate-rlvr")
    assert kill_in(stages, killed, lambda: start("rlvr/video-multi", killed)) >= 2
    assert start("rlvr/video-multi", killed).wait(300) == 0
    folders = ("data", "evaluation", "images")
    assert fingerprint(killed, folders) == fingerprint(undisturbed, folders)
    assert (killed / "actions.json").read_bytes() == (undisturbed / "actions.json").read_bytes()


# Recipes --------------------------------------------------------------------------------------------------------------


def load(name: str, *overrides: str) -> VideoRecipe:
    found = recipes.load(name, overrides)
    assert isinstance(found, VideoRecipe)
    return found


@pytest.mark.parametrize(("name", "length", "vocabulary"), [(BOTH[0], 1654, 4633), (BOTH[1], 2024, 9008)])
def test_the_published_overlay_has_the_published_sizes(name: str, length: int, vocabulary: int) -> None:
    recipe = load(name, "model=published", "data=somewhere")
    with torch.device("meta"):
        tokenizer = tokenizers.create(recipe.tokenizer, device="meta")
    layout = recipe.layout.of(tokenizer, 13)
    assert (layout.length, layout.vocabulary) == (length, vocabulary)
    assert (recipe.model.layers, recipe.model.width, recipe.model.mlp) == (12, 768, 3072)
    assert round(tokenizer.parameter_count / 1e6, 1) == (104.4 if "single" in name else 129.4)
    assert recipe.rollout.prompts_per_step == 128 and recipe.rollout.group_size == 16


@pytest.mark.parametrize("name", BOTH)
def test_the_gpu_overlay_has_a_model_of_at_least_twenty_million_parameters(name: str) -> None:
    recipe = load(name, "model=large")
    with torch.device("meta"):
        layout = recipe.layout.of(tokenizers.create(recipe.tokenizer, device="meta"), 4)
    width, layers, mlp = recipe.model.width, recipe.model.layers, recipe.model.mlp
    assert layers * (4 * width * width + 3 * width * mlp) + 2 * layout.vocabulary * width >= 20e6


@pytest.mark.parametrize("name", BOTH)
def test_the_smoke_preset_learns_what_policies_are_judged_in(name: str) -> None:
    recipe = load(name, "preset=smoke")
    assert recipe.data.name == "drawer" and "drawer-open" in recipe.data.tasks
    assert recipe.tokenizer.height == recipe.tokenizer.width == 64  # as oneiro data robot draws
    toy = load(name, "preset=toy")
    assert toy.data.name == video_toy.NAME and toy.rl == recipe.rl and toy.model == recipe.model


def test_a_toy_of_oblong_frames_is_refused() -> None:
    with pytest.raises(OneiroError, match="square frames"):
        load(BOTH[0], "preset=toy", "tokenizer.width=64")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model=publishd"], "did you mean 'published'"),
        (["model=mine", "model.layers=2"], "needs sizes of its own, layers, width, heads, mlp; known: large"),
        (["reward.mae=0"], "nothing counts in the reward"),
        (["layout.quantiles=[-1,3]"], "from 0 to 1"),
        (["layout.quantiles=[0.9,0.1]"], "the lower one first"),
        (["data.policies=[]"], "data.policies"),
        (["tokenizer.heads=3"], "heads = 3"),
        (["tokenizer.height=8", "tokenizer.width=8"], "tokenizer.height"),
    ],
)
def test_settings_that_cannot_work_are_one_line(overrides: list[str], said: str) -> None:
    with pytest.raises(OneiroError, match=said):
        load(BOTH[1], "preset=smoke", *overrides)


def test_a_model_with_sizes_of_its_own_may_have_any_name() -> None:
    sizes = ["model.layers=2", "model.width=32", "model.heads=2", "model.mlp=64"]
    assert load(BOTH[1], "preset=smoke", "model=mine", *sizes).model.name == "mine"


# Data -----------------------------------------------------------------------------------------------------------------


def test_a_file_that_is_damaged_inside_is_left_out_by_every_stage(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    video_toy.record(folder, episodes=6, frames=12, size=32, seed=0)
    victim, noise = folder / "puck_eps_00000001.npz", np.random.default_rng(0)
    frames = noise.integers(0, 256, (12, 32, 32, 3), np.uint8)  # long enough that the headers are read without the flaw
    write_episode(victim, RobotEpisode(frames, np.zeros((12, 2), np.float32)))
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 4
    victim.write_bytes(bytes(data))
    assert len(open_episodes(folder, verify=False)) == 6
    recipe = load(BOTH[1], "preset=toy", f"data={folder}", "data.test_every=3")
    with Run.open(tmp_path / "run", recipe) as run:
        looked = run.stage("data", lambda: data_stage(recipe, run))
        found = open_data(recipe, run, looked).episodes
    assert "left out" in (tmp_path / "run" / "log.txt").read_text() and looked["left_out"] == [victim.name]
    assert [path.stem[-1] for path in found.train.paths] == ["2", "4", "5"] and len(list(found.train)) == 3
    assert [path.stem[-1] for path in found.test.paths] == ["0", "3"]


def test_how_long_an_action_lasts_comes_from_the_episodes(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for number in range(6):
        one = video_toy.play(number, 12, 32)
        write_episode(folder / f"puck_{number}.npz", replace(one, info={"action_repeat": 8}))
    recipe = load(BOTH[1], "preset=toy", f"data={folder}", "data.test_every=3")
    with Run.open(tmp_path / "run", recipe) as run:
        assert open_data(recipe, run, data_stage(recipe, run)).action_repeat == 8
        write_episode(folder / "puck_7.npz", replace(one, info={}))  # as long as ever
        with pytest.raises(OneiroError, match="held for 4 and 8 simulator steps"):
            data_stage(recipe, run)


# Parts ----------------------------------------------------------------------------------------------------------------

SIZE = {"height": 16, "width": 16, "patch": 4, "channels": (16, 16), "layers": 1, "latent": 8, "levels": (8, 5, 5)}


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Episodes:
    folder = tmp_path_factory.mktemp("puck")
    video_toy.record(folder, episodes=3, frames=9, size=16, seed=0)
    return open_episodes(folder, every=3)


@pytest.fixture(scope="module")
def task(episodes: Episodes) -> VideoPredictor:
    tokenizer = tokenizers.create(CompressiveTokenizerSettings(**SIZE, squares=2), 1, "cpu").eval()  # type: ignore[arg-type]
    layout = Layout.multi_step(tokenizer.codes, tokenizer.frame_tokens, tokenizer.context_tokens, 2, future=3)
    return VideoPredictor(tokenizer, layout, ActionBins.fit(episodes), VideoRewardSettings(lpips=0, repetition=0.1))


def test_test_segments_are_spread_over_the_episodes_and_never_twice(episodes: Episodes) -> None:
    dataset = VideoDataset(episodes, 4)
    few, many = fixed_segments(dataset, 3), fixed_segments(dataset, 1000)
    assert sorted(few[:, 0].tolist()) == [0, 1, 2]
    assert len({tuple(window) for window in many.tolist()}) == len(many) <= len(dataset.windows)
    assert np.array_equal(fixed_segments(dataset, 3), few)


def test_an_episode_is_a_future_whose_frames_are_turns(episodes: Episodes, task: VideoPredictor) -> None:
    language = create_transformer(TransformerSettings(layers=1, width=16, heads=2, mlp=32), task.layout, seed=1)
    dataset = VideoDataset(episodes, task.layout.frames)
    windows = dataset.draw(2, "play")
    clips = dataset.cut(windows)
    told = play(task, Engine(language), clips, task.encode(clips), ["a", "b"], 3, SamplingSettings(), seed=0)
    assert [(e.task, e.group, e.member) for e in told] == [
        (name, g, m) for g, name in enumerate("ab") for m in range(3)
    ]
    for episode in told:
        (row,) = episode.rows
        assert len(episode.rewards) == 3 and sorted(set(row.turns[row.sampled])) == [1, 2, 3]
        assert row.sampled.sum() == 3 * task.layout.frame_tokens
        assert sum(map(sum, episode.terms.values())) == pytest.approx(episode.score, rel=1e-5)
        assert json.dumps(record(episode))
    learned, _ = Learner(language.backbone, LearnerSettings(), 1).logprobs([Example.of(e.rows[0]) for e in told])
    for episode, scores in zip(told, learned, strict=True):
        (row,) = episode.rows
        assert np.allclose(scores[row.sampled], row.logprobs[row.sampled], atol=1e-4)


def test_an_exam_looks_at_nothing_but_the_given_frames(episodes: Episodes, task: VideoPredictor) -> None:
    language = create_transformer(TransformerSettings(layers=1, width=16, heads=2, mlp=32), task.layout, seed=1)
    dataset = VideoDataset(episodes, task.layout.frames)
    evaluation = SegmentEvaluation(task, dataset, fixed_segments(dataset, 3), [])
    before = evaluation.model(Engine(language), SamplingSettings(), 2, 0, lambda done: None)
    assert before.values["mse"].shape == (3, 2, 3) and before.frames is not None
    # Frames before the start and after it change nothing that is sampled; the start frame is the context.
    for index in range(len(episodes)):
        start = int(evaluation.windows[evaluation.windows[:, 0] == index][0, 1])
        image = dataset.episode(index).image
        image[:start], image[start + 1 :] = 0, 255
    other = SegmentEvaluation(task, dataset, evaluation.windows, []).model(
        Engine(language), SamplingSettings(), 2, 0, lambda done: None
    )
    assert np.array_equal(other.frames, before.frames)
    assert not np.allclose(other.values["mse"], before.values["mse"])


def test_copying_and_the_ceiling_are_paid_like_a_model(episodes: Episodes, task: VideoPredictor) -> None:
    dataset = VideoDataset(episodes, task.layout.frames)
    windows = fixed_segments(dataset, 3)
    clips, rows = dataset.cut(windows), SegmentEvaluation(task, dataset, windows, []).baselines()
    cases, copied = task.encode(clips), rows[COPY]
    error = np.abs(clips.images[:, 1:].astype(float) - clips.images[:, :1]).mean(axis=(2, 3, 4)) / 255
    # Each frame held still pays its error and the whole penalty of 0.1.
    assert copied.values["reward"][:, 0] == pytest.approx(-error - 0.1, rel=1e-4) and copied.repeats.all()
    assert task.reward_of_copying(clips, cases) == pytest.approx(-error.mean(axis=1) - 0.1, rel=1e-4)
    sampled = task.rewards(clips, cases, cases.frames[:, None, 1:])  # a model that samples the true tokens
    assert rows[CEILING].values["reward"].mean(axis=2) == pytest.approx(
        np.sum(list(sampled.values()), axis=(0, 3)), rel=1e-4
    )


def measured(numbers: list[float], repeats: list[bool] | None = None) -> Measured:
    """One run of one frame for each segment."""
    values = np.array(numbers, np.float32)[:, None, None]
    return Measured(
        {"mse": values, "reward": -values}, np.array(repeats or [False] * len(numbers), bool)[:, None, None]
    )


def test_each_frame_ahead_has_its_own_mean_of_every_measure() -> None:
    values = np.array([[[1.0, 5.0]], [[3.0, 7.0]]], np.float32)  # two segments, one run, two frames
    row = Measured({"mse": values, "psnr": values, "ssim": values}, np.array([[[False, True]], [[False, False]]]))
    rows = video_evaluate.horizon_table({"base": row, "RLVR": row}, np.array([0, 1])).data()["rows"]
    assert [(line["ahead"], line["frames"]) for line in rows] == [
        (f"frame {number}", name) for number in (1, 2) for name in ("base", "RLVR")
    ]
    means = [[line[key]["value"] for key in ("MSE x 100", "PSNR", "SSIM x 100", "repeats")] for line in rows[::2]]
    assert means == [[200.0, 2.0, 200.0, 0.0], [600.0, 6.0, 600.0, 0.5]]


def test_the_verdict_has_the_means_of_the_tables(episodes: Episodes, task: VideoPredictor) -> None:
    evaluation = SegmentEvaluation(
        task, VideoDataset(episodes, task.layout.frames), np.array([[0, 0], [0, 1], [1, 0]]), []
    )
    numbers = {COPY: [1.0, 3.0, 5.0], CEILING: [0.0, 1.0, 2.0], "base": [1.0, 1.0, 1.0], "RLVR": [1.0, 1.0, 1.0]}
    rows = {name: measured(values) for name, values in numbers.items()}
    (said,) = verdict(rows, evaluation, {})
    # The first episode's segments earn -2 and -0.5 on average, the second's -5 and -2.
    assert "Copying the last frame earns -3.5000" in said and "tokenizer -1.2500" in said
    table = main_table(rows, evaluation.episodes).data()
    assert [row["reward"]["value"] for row in table["rows"][:2]] == [-3.5, -1.25] and "3 in all" in table["note"]


def test_one_unseen_episode_is_compared_without_an_interval(episodes: Episodes, task: VideoPredictor) -> None:
    evaluation = SegmentEvaluation(task, VideoDataset(episodes, task.layout.frames), np.array([[0, 0], [0, 1]]), [])
    numbers = {COPY: [1.0, 3.0], CEILING: [0.0, 1.0], "base": [3.0, 4.0], "RLVR": [2.0, 3.0]}
    (said,) = verdict({name: measured(values) for name, values in numbers.items()}, evaluation, {})
    assert "is -3.5000 for the base and -2.5000 after RLVR: too few cases to compare; the paired gain is" in said


def test_rlvr_is_compared_with_its_controls(episodes: Episodes, task: VideoPredictor) -> None:
    evaluation = SegmentEvaluation(task, VideoDataset(episodes, task.layout.frames), np.array([[0, 0], [1, 0]]), [])
    numbers = {COPY: [9.0, 9.0], CEILING: [0.0, 0.0], "base": [4.0, 5.0], "RLVR": [2.0, 3.0]}
    rows = {name: measured(values) for name, values in numbers.items()}
    rows |= {
        SHARPER["base"]: measured([3.0, 4.0]),
        CONTROL: measured([2.5, 3.5]),
        SHARPER["RLVR"]: measured([1.75, 2.75]),
    }
    way = {"temperature": 0.5, "top_k": 3}
    _, base, tuned, *differences = verdict(rows, evaluation, {"base": way, "SFT continued": None, "RLVR": way})
    assert "at temperature 0.5 from the 3 likeliest codes" in base and base.endswith(
        "base earns -3.5000 (-4.0000 to -3.0000)."
    )
    assert "RLVR earns -2.2500" in tuned
    # Earning -2.5 and, sampled sharper, -2.25 on average, RLVR is 1 and 1.25 above the base, half above SFT continued.
    assert [line.partition("paired: ")[2][:6] for line in differences] == ["1.0000", "1.2500", "0.5000"]


@EITHER
def test_the_control_learns_the_segments_that_rl_sampled(alone: Path) -> None:
    recipe = recipes.load(str(alone / "recipe.yaml"))
    with Run.open(alone, recipe) as run:
        task = VideoTask(recipe, run)  # type: ignore[arg-type]
        rows, _ = task.control_rows(task.model(None), 3)
    assert len(rows) == 3 * 2
    prompts = [row["prompt"] for row in read_lines(alone / "episodes" / "rl-000003.jsonl.gz")]
    for number, prompt in enumerate(prompts):  # two groups of four
        assert rows[4 + number // 4].tokens[: len(prompt)].tolist() == prompt


def test_means_and_intervals_are_over_episodes() -> None:
    episodes = np.array([0, 0, 1])
    assert by_episode(np.array([1.0, 3.0, 5.0]), episodes).tolist() == [2.0, 5.0]
    table = main_table({"base": measured([1.0, 3.0, 5.0], [True, False, False])}, episodes)
    row = table.data()["rows"][0]
    assert row["MSE x 100"] == {"value": 350.0, "low": 200.0, "high": 500.0, "n": 2}
    assert row["ends repeating"]["value"] == 0.25


def test_a_change_is_relative_and_paired() -> None:
    table = change_table(measured([2.0, 4.0]), measured([1.0, 3.0]), np.array([0, 1]))
    row = table.data()["rows"][0]
    # Both fall by 1 from a mean of 3: the interval has no width.
    assert row["change"]["value"] == pytest.approx(-1 / 3)
    assert [row["change"]["low"], row["change"]["high"]] == pytest.approx([-1 / 3, -1 / 3])


def test_the_best_of_several_is_chosen_for_each_measure_by_itself() -> None:
    values = np.array([[[1.0], [3.0]], [[4.0], [2.0]]], np.float32)
    row = Measured({"mse": values, "psnr": values}, np.zeros(values.shape, bool))
    found = video_evaluate.runs_table({"base": row}, np.array([0, 1]))
    assert found is not None
    best = {line["measure"]: line["best of 2"]["value"] for line in found.data()["rows"]}
    assert best == {"MSE x 100": 150.0, "PSNR": 3.5}
    # Over both segments the first runs have a mean of 2.5, and the second ones too.
    means = {line["measure"]: (line["mean"]["value"], line["deviation of runs"]) for line in found.data()["rows"]}
    assert means == {"MSE x 100": (250.0, 0.0), "PSNR": (2.5, 0.0)}
    apart = Measured({"mse": np.array([[[1.0], [3.0]]], np.float32)}, np.zeros((1, 2, 1), bool))
    (line,) = video_evaluate.runs_table({"base": apart}, np.array([0])).data()["rows"]  # type: ignore[union-attr]
    assert line["deviation of runs"] == pytest.approx(100 * np.sqrt(2))
    assert video_evaluate.runs_table({"base": measured([1.0])}, np.array([0])) is None
    titles = [table.title for table in video_evaluate.tables({"base": apart, "RLVR": apart}, np.array([0]))]
    assert len(titles) == 3 and titles[2].endswith("the best of 2")


def test_measures_survive_a_file(tmp_path: Path) -> None:
    before = Measured(
        {"mse": np.ones((2, 3, 4), np.float32)}, np.eye(4, dtype=bool)[None, 1:], np.zeros((2, 4, 5), np.int32)
    )
    before.save(tmp_path / "base.npz")
    after = Measured.load(tmp_path / "base.npz")
    assert np.array_equal(after.values["mse"], before.values["mse"])
    assert np.array_equal(after.repeats, before.repeats) and np.array_equal(after.frames, before.frames)  # type: ignore[arg-type]


def test_a_strip_shows_its_videos_side_by_side() -> None:
    from io import BytesIO

    from PIL import Image

    red, blue = np.zeros((3, 80, 80, 3), np.uint8), np.zeros((3, 80, 80, 3), np.uint8)
    red[..., 0], blue[..., 2] = 255, 255
    red[1:, :, :40] = 0
    picture = Image.open(BytesIO(gif({"truth": red, "base": blue})))
    assert picture.n_frames == 3 and picture.size == (2 * 160 + 4, 160 + 2 * 19)  # type: ignore[attr-defined]
    first = picture.convert("RGB")
    assert first.getpixel((20, 100)) == (255, 0, 0) and first.getpixel((300, 100)) == (0, 0, 255)
