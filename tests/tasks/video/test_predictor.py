"""The video task: clips, tokens, rewards by hand, baselines, and a learned model that answers actions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from oneiro.models.language import LanguageModel
from oneiro.models.video import tokenizer as tokenizers
from oneiro.models.video.layout import Layout
from oneiro.models.video.tokenizer import CompressiveTokenizerSettings, FrameTokenizerSettings
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.base import Malformed
from oneiro.tasks.video import dataset as video_dataset
from oneiro.tasks.video import encodings as video_encodings
from oneiro.tasks.video.dataset import Clips, ReadAhead, VideoDataset, Windows, resize
from oneiro.tasks.video.encodings import Encodings, SegmentRows
from oneiro.tasks.video.model import (
    Footage,
    FrameDynamics,
    LearnedFrames,
    TransformerSettings,
    create_transformer,
    likeness,
)
from oneiro.tasks.video.predictor import Encoded, VideoPredictor, VideoRewardSettings
from oneiro.worlds.robot import puck as video_toy
from oneiro.worlds.robot.episodes import ActionBins, Episodes, open_episodes, write_episode

SIZE = {"height": 16, "width": 16, "patch": 4, "channels": (16, 16), "layers": 1, "latent": 8, "levels": (8, 5, 5)}


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Episodes:
    folder = tmp_path_factory.mktemp("puck")
    video_toy.record(folder, episodes=4, frames=12, size=16, seed=0)
    return open_episodes(folder, every=4)


def task_of(kind: str, episodes: Episodes, **reward: object) -> VideoPredictor:
    settings = FrameTokenizerSettings(**SIZE) if kind == "single" else CompressiveTokenizerSettings(**SIZE, squares=2)  # type: ignore[arg-type]
    tokenizer = tokenizers.create(settings, 1, "cpu").eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in tokenizer.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    layout = (
        Layout.single_step(tokenizer.codes, tokenizer.frame_tokens, 2, past=3)
        if kind == "single"
        else Layout.multi_step(tokenizer.codes, tokenizer.frame_tokens, tokenizer.context_tokens, 2, future=4)
    )
    how = VideoRewardSettings(**{"lpips": 0.0, **reward})  # type: ignore[arg-type]
    return VideoPredictor(tokenizer, layout, ActionBins.fit(episodes), how)


def model_of(task: VideoPredictor) -> LanguageModel:
    made = create_transformer(TransformerSettings(layers=1, width=16, heads=2, mlp=32), task.layout, seed=1)
    with torch.no_grad():
        for parameter in made.backbone.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(4)))
    return made


# Clips ----------------------------------------------------------------------------------------------------------------


def test_every_segment_is_cut_with_its_actions_and_its_first_frame_as_context(episodes: Episodes) -> None:
    dataset = VideoDataset(episodes, 5)
    assert len(dataset.windows) == 4 * (12 - 5 + 1)
    clips = dataset.cut(np.array([[2, 3]]))
    assert np.array_equal(clips.images[0], episodes[2].image[3:8])
    assert np.array_equal(clips.actions[0], episodes[2].action[3:8])
    assert np.array_equal(clips.context[0], episodes[2].image[3])


def test_contexts_lie_within_reach_before_the_start_and_inside_the_episode(episodes: Episodes) -> None:
    dataset = VideoDataset(episodes, 5)
    windows = np.array([[0, start] for start in range(8)] * 40)
    earlier = dataset.earlier(windows, 3, "seed")
    back = windows[:, 1] - earlier[:, 1]
    assert (
        earlier.min() >= 0 and set(back[windows[:, 1] >= 3]) == {0, 1, 2, 3} and set(back[windows[:, 1] == 1]) == {0, 1}
    )


def test_scattered_frames_begin_with_their_context_and_stay_within_the_horizon(episodes: Episodes) -> None:
    dataset = VideoDataset(episodes, 5)
    assert dataset.scatter_frames(3, 4, 4, "s").shape == (3, 4, 16, 16, 3)
    everything = [image.tobytes() for episode in episodes for image in episode.image]
    for segment in dataset.scatter_frames(6, 3, 8, "s"):
        places = [everything.index(frame.tobytes()) for frame in segment]
        assert all(0 <= later - places[0] < 8 for later in places[1:])


def test_too_short_episodes_are_a_readable_mistake(episodes: Episodes) -> None:
    with pytest.raises(OneiroError, match="no episode has 13 frames, the longest has 12"):
        VideoDataset(episodes, 13)


def test_frames_are_made_smaller_by_averaging() -> None:
    image = np.zeros((1, 4, 4, 3), np.uint8)
    image[0, :2, :2] = 100
    image[0, 0, 0] = 200
    assert resize(image, (2, 2))[0, :, :, 0].tolist() == [[125, 0], [0, 0]]


# Tokens ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_kept_encodings_are_what_the_tokenizer_gives(kind: str, episodes: Episodes) -> None:
    task = task_of(kind, episodes)
    dataset = VideoDataset(episodes, task.layout.frames)
    windows = dataset.draw(6, "windows")
    direct, kept = task.encode(dataset.cut(windows)), Encodings(dataset, task).encode(windows)
    for one, two in ((direct.context, kept.context), (direct.frames, kept.frames), (direct.actions, kept.actions)):
        assert np.array_equal(one, two)


def counted(encodings: Encodings, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pieces each call of the tokenizer has encoded."""
    calls: list[int] = []
    encode = encodings.predictor.encode

    def counting(clips: Clips) -> Encoded:
        calls.append(len(clips))
        return encode(clips)

    monkeypatch.setattr(encodings.predictor, "encode", counting)
    return calls


def test_a_full_cache_drops_the_oldest_tokens_and_keeps_the_rest(
    episodes: Episodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video_encodings, "CACHED_PIECES", 6)
    dataset = VideoDataset(episodes, 4)
    encodings = Encodings(dataset, task_of("multi", episodes))
    calls = counted(encodings, monkeypatch)
    windows = dataset.windows[:8]
    encodings.prepare(windows)  # as many as fit, those that are asked for first
    assert sum(calls) == 6
    encodings.encode(windows[:6])
    assert sum(calls) == 6
    encodings.encode(windows[6:7])  # takes the place of the first
    encodings.encode(windows[1:7])
    assert sum(calls) == 7
    encodings.encode(windows[:1])
    assert sum(calls) == 8


def test_rows_of_one_update_are_read_together_and_are_what_they_are_alone(
    episodes: Episodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of("multi", episodes)
    dataset = VideoDataset(episodes, task.layout.frames)
    windows = dataset.draw(6, "windows")
    alone = SegmentRows(Encodings(dataset, task), windows, windows)
    together = SegmentRows(Encodings(dataset, task), windows, windows, together=np.array([[4, 1, 0], [2, 5, 3]]))
    asked: list[int] = []
    make = together.encodings.encode

    def noted(windows: Windows, contexts: Windows | None = None) -> Encoded:
        asked.append(len(windows))
        return make(windows, contexts)

    monkeypatch.setattr(together.encodings, "encode", noted)
    for index in (4, 1, 0, 2, 5, 3):
        assert np.array_equal(together[index].tokens, alone[index].tokens)
    assert asked == [3, 1, 1, 1, 3, 1, 1, 1]


# Data that do not fit into memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [False, True], ids=["by segment", "files of the RT-1 converter"])
def test_a_dataset_larger_than_memory_gives_the_same_segments(
    episodes: Episodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    for path, episode in zip(episodes.paths, episodes, strict=True):
        if compressed:
            np.savez_compressed(tmp_path / path.name, image=episode.image, action=episode.action)
        else:
            write_episode(tmp_path / path.name, episode)
    for size in ((8, 8), (16, 16)):
        memory, large = VideoDataset(episodes, 5, size), VideoDataset(open_episodes(tmp_path), 5, size)
        assert memory.in_memory
        monkeypatch.setattr(video_dataset, "KEPT_BYTES", 12 * size[0] * size[1] * 3)  # one episode
        assert not large.in_memory
        monkeypatch.undo()
        windows = memory.draw(9, "windows")
        contexts = memory.earlier(windows, 3, "contexts")
        one, two = memory.cut(windows, contexts), large.cut(windows, contexts)
        assert np.array_equal(one.images, two.images) and np.array_equal(one.context, two.context)
        assert np.array_equal(one.actions, two.actions)
        for frames, horizon in ((4, 4), (3, 9), (5, 40)):
            assert np.array_equal(
                memory.scatter_frames(4, frames, horizon, "s"), large.scatter_frames(4, frames, horizon, "s")
            )
        assert compressed or not large._kept  # no episode was read as a whole
    task = task_of("multi", episodes)
    held = [Encodings(dataset, task, 3, 0.5).encode(windows, contexts) for dataset in (memory, large)]
    assert np.array_equal(held[0].frames, held[1].frames) and np.array_equal(held[0].actions, held[1].actions)


def test_reading_ahead_gives_what_reading_gives_in_any_order_and_reads_nothing_twice() -> None:
    read: list[int] = []

    def square(number: int) -> int:
        read.append(number)
        return number * number

    with ReadAhead(square, lambda number: number + 2 if number < 8 else None) as ahead:
        assert [ahead(number) for number in (0, 2, 4, 6, 8)] == [0, 4, 16, 36, 64]
        assert sorted(read) == [0, 2, 4, 6, 8]
        assert ahead(3) == 9  # resumed elsewhere


def test_an_earlier_context_reaches_the_tokens_and_never_the_actions(episodes: Episodes) -> None:
    task = task_of("multi", episodes)
    dataset = VideoDataset(episodes, task.layout.frames)
    encodings = Encodings(dataset, task, context_offset=4)
    windows = np.array([[1, 4]])
    own, other = encodings.encode(windows), encodings.encode(windows, np.array([[1, 2]]))
    direct = task.encode(dataset.cut(windows, np.array([[1, 2]])))
    assert np.array_equal(other.context, direct.context) and np.array_equal(other.frames, direct.frames)
    assert not np.array_equal(own.context, other.context) and np.array_equal(own.actions, other.actions)


def test_a_share_of_contexts_are_the_first_frame_of_their_episode(episodes: Episodes) -> None:
    task = task_of("multi", episodes)
    dataset = VideoDataset(episodes, task.layout.frames)
    encodings = Encodings(dataset, task, context_offset=1, first=0.5)
    windows = np.array([[2, 7]] * 200)
    contexts = encodings.contexts(windows, "seed")
    assert set(contexts[:, 1]) == {0, 6, 7} and 60 < (contexts[:, 1] == 0).sum() < 140
    found, direct = encodings.encode(windows[:9], contexts[:9]), task.encode(dataset.cut(windows[:9], contexts[:9]))
    assert np.array_equal(found.context, direct.context) and np.array_equal(found.frames, direct.frames)


def test_sft_rows_are_rows_of_the_layout_with_loss_on_the_frames_to_predict(episodes: Episodes) -> None:
    task = task_of("multi", episodes)
    dataset = VideoDataset(episodes, task.layout.frames)
    windows = dataset.draw(3, "windows")
    rows = list(SegmentRows(Encodings(dataset, task), windows, windows))
    assert [len(row) for row in rows] == [task.layout.length] * 3
    assert rows[0].weights("ce").sum() == task.layout.future * task.layout.frame_tokens


# Rewards --------------------------------------------------------------------------------------------------------------


def clips_and_cases(task: VideoPredictor, episodes: Episodes, count: int = 2) -> tuple[Clips, Encoded]:
    clips = VideoDataset(episodes, task.layout.frames).cut(
        VideoDataset(episodes, task.layout.frames).draw(count, "reward")
    )
    return clips, task.encode(clips)


def test_terms_are_errors_of_decoded_frames_and_sum_to_the_mean(episodes: Episodes) -> None:
    task = task_of("multi", episodes, mae=2.0, mse=3.0, ssim=0.5)
    clips, cases = clips_and_cases(task, episodes)
    frames = np.stack([cases.frames[:, 1:], np.zeros_like(cases.frames[:, 1:])], axis=1)
    terms = task.rewards(clips, cases, frames)
    made = task.decode(cases.context, frames).numpy().astype(np.float64)
    true = np.moveaxis(clips.images[:, 1:], -1, 2)[:, None] / 255
    mae, mse = np.abs(made - true).mean(axis=(3, 4, 5)), ((made - true) ** 2).mean(axis=(3, 4, 5))
    np.testing.assert_allclose(terms["mae"], -2 * mae / 4, rtol=1e-4)
    np.testing.assert_allclose(terms["mse"], -3 * mse / 4, rtol=1e-4)
    assert terms["ssim"].shape == (2, 2, 4) and (np.abs(terms["ssim"]) <= 0.5 / 4).all()


def test_lpips_shares_the_truths_features_and_equals_pair_by_pair(episodes: Episodes) -> None:
    class Eyes:
        """Two taps of different sizes, as a network has."""

        def features(self, images: torch.Tensor) -> list[torch.Tensor]:
            return [images[:, :, ::2, ::2], images.flip(-1)]

        def between(self, a: list[torch.Tensor], b: list[torch.Tensor]) -> torch.Tensor:
            return sum((x - y).square().mean(dim=(1, 2, 3)) for x, y in zip(a, b, strict=True))  # type: ignore[return-value]

    task, eyes = task_of("multi", episodes), Eyes()
    task.__dict__["lpips"] = eyes
    generator = torch.Generator().manual_seed(0)
    made, true = torch.rand(2, 3, 4, 3, 16, 16, generator=generator), torch.rand(2, 4, 3, 16, 16, generator=generator)
    found = task._lpips(made, true)
    for n, m, f in ((0, 0, 0), (1, 2, 3), (0, 1, 2)):
        alone = eyes.between(eyes.features(made[n, m, f][None]), eyes.features(true[n, f][None]))
        assert float(found[n, m, f]) == pytest.approx(float(alone))


def test_frames_count_alike_or_the_last_alone_or_ever_less() -> None:
    assert VideoRewardSettings().shares(4).tolist() == [0.25] * 4
    assert VideoRewardSettings(aggregate="last").shares(3).tolist() == [0, 0, 1]
    # 1, 1/2, 1/4 over 7/4
    assert VideoRewardSettings(aggregate="discount", discount=0.5).shares(3).tolist() == pytest.approx(
        [4 / 7, 2 / 7, 1 / 7]
    )


def test_a_frame_that_repeats_the_one_before_it_pays(episodes: Episodes) -> None:
    task = task_of("multi", episodes, repetition=0.8)
    clips, cases = clips_and_cases(task, episodes, 1)
    given, other = cases.frames[0, 0], (cases.frames[0, 0] + 1) % task.layout.codes
    frames = np.stack([given, given, other, other])[None, None]
    assert task.repeats(cases, frames)[0, 0].tolist() == [1, 1, 0, 1]
    assert task.rewards(clips, cases, frames)["repetition"][0, 0].tolist() == pytest.approx([-0.2, -0.2, 0, -0.2])


def test_against_its_own_reconstruction_the_truth_scores_perfectly(episodes: Episodes) -> None:
    task = task_of("multi", episodes, truth="reconstruction")
    clips, cases = clips_and_cases(task, episodes)
    best = task.rewards(clips, cases, cases.frames[:, None, 1:])
    assert np.abs(best["mae"]).max() < 1e-6
    assert np.abs(task_of("multi", episodes).rewards(clips, cases, cases.frames[:, None, 1:])["mae"]).max() > 1e-3


def test_baselines_are_the_last_given_frame_and_the_tokenizers_best(episodes: Episodes) -> None:
    task = task_of("single", episodes)
    clips, cases = clips_and_cases(task, episodes)
    copied = task.copy_frames(clips)
    assert np.allclose(copied[:, 0].numpy(), np.moveaxis(clips.images[:, 2], -1, 1) / 255)
    assert torch.equal(task.ceiling(cases), task.decode(cases.context, cases.frames[:, 3:]))
    error = np.abs(clips.images[:, 3].astype(float) - clips.images[:, 2]).mean(axis=(1, 2, 3)) / 255
    assert task.reward_of_copying(clips, cases) == pytest.approx(-error, rel=1e-4)


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_what_is_sampled_does_not_depend_on_the_future(kind: str, episodes: Episodes) -> None:
    task = task_of(kind, episodes)
    engine = Engine(model_of(task))
    _, cases = clips_and_cases(task, episodes)
    before = task.frames_of(task.sample(engine, cases, 2, SamplingSettings(), seed=1))
    cases.frames[:, task.layout.past :] = 0
    assert np.array_equal(task.frames_of(task.sample(engine, cases, 2, SamplingSettings(), seed=1)), before)
    assert before.shape == (2, 2, task.layout.future, task.layout.frame_tokens)


# The learned model as a camera ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_stepping_gives_the_frames_that_one_long_sample_gives(kind: str, episodes: Episodes) -> None:
    task = task_of(kind, episodes)
    camera = LearnedFrames(task, Engine(model_of(task)), SamplingSettings(temperature=0.0))
    clips, cases = clips_and_cases(task, episodes)
    past = task.layout.past
    camera.begin(clips.images[:, :past], clips.actions[:, : past - 1])
    shown = [camera.step(clips.actions[:, past - 1 + k], seed=k) for k in range(task.layout.future)]
    sampled = task.frames_of(task.sample(Engine(model_of(task)), cases, 1, SamplingSettings(temperature=0.0), seed=0))
    expected = tokenizers.images(task.decode(cases.context, sampled[:, 0]))
    assert np.array_equal(np.stack(shown, axis=1), expected)


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_a_rollout_goes_on_past_the_window_of_training(kind: str, episodes: Episodes) -> None:
    task = task_of(kind, episodes)
    camera = LearnedFrames(task, Engine(model_of(task)), SamplingSettings())
    start = np.stack([episodes[i].image[:1] for i in range(3)])
    first = camera.begin(start, np.zeros((3, 0, 2), np.float32))
    assert first.shape == (3, 16, 16, 3) and first.dtype == np.uint8
    for step in range(2 * task.layout.frames):
        frame = camera.step(np.full((3, 2), 0.3, np.float32), seed=step)
        assert frame.shape == first.shape
        assert camera.frames.shape[1] <= camera.window and all(len(p) <= task.layout.length for p in camera._prompts())


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_a_long_start_is_its_last_frames_as_many_as_the_window_holds(kind: str, episodes: Episodes) -> None:
    task = task_of(kind, episodes)
    camera, other = (LearnedFrames(task, Engine(model_of(task)), SamplingSettings()) for _ in range(2))
    image, action = episodes[0].image[None], episodes[0].action[None]
    window = camera.window
    long = camera.begin(image[:, :11], action[:, :10])
    short = other.begin(image[:, 11 - window : 11], action[:, 11 - window : 10])
    assert np.array_equal(long, short) and camera.frames.shape[1] == camera.actions.shape[1] == window
    for step in range(3):
        assert all(len(prompt) <= task.layout.length for prompt in camera._prompts())
        assert np.array_equal(camera.step(action[:, 10], seed=step), other.step(action[:, 10], seed=step))
    with pytest.raises(ValueError, match="11 frames have 10 actions between them, not 4"):
        camera.begin(image[:, :11], action[:, :4])


def test_the_same_seeds_give_the_same_rollout(episodes: Episodes) -> None:
    task = task_of("multi", episodes)
    start = episodes[0].image[None, :1]

    def roll() -> list[bytes]:
        camera = LearnedFrames(task, Engine(model_of(task)), SamplingSettings())
        camera.begin(start, np.zeros((1, 0, 2), np.float32))
        return [camera.step(np.ones((1, 2), np.float32), seed=s).tobytes() for s in range(6)]

    assert roll() == roll()


def test_footage_branches_goes_on_from_its_own_frames_and_can_be_repeated(episodes: Episodes) -> None:
    task = task_of("multi", episodes)
    camera = LearnedFrames(task, Engine(model_of(task)), SamplingSettings())
    dynamics = FrameDynamics(camera)
    start = Footage((episodes[0].image[0],))

    def after(state: Footage, *actions: str) -> Footage:
        for action in actions:
            predicted = dynamics.predict([(state, action)])[0][0].state
            assert isinstance(predicted, Footage)
            state = predicted
        return state

    one = after(start, "1 0")
    left, right = after(one, "1 0", "-1 0"), after(one, "0 1", "0 1")
    assert np.array_equal(after(one, "1 0", "-1 0").last, left.last)  # the other branch changed nothing
    assert left.actions == ("1 0", "1 0", "-1 0") and len(right.frames) == 4
    camera.begin(episodes[0].image[None, :1], np.zeros((1, 0, 2), np.float32))
    frames = [
        camera.step(np.array([action], np.float32), seeds.derive("footage", place))[0]
        for place, action in enumerate([(1, 0), (1, 0), (-1, 0)])
    ]
    assert np.array_equal(frames[-1], left.last)  # as one rollout, not encoded anew at every step
    assert isinstance(dynamics.predict([(start, "up")])[0][0].state, Malformed)
    assert dynamics.key(left) != dynamics.key(right) and dynamics.key(one) != dynamics.key(start)
    assert dynamics.show(start).startswith("data:image/png;base64,")
    assert likeness(start, start) == pytest.approx(80) and likeness(start, left) < 80


# The toy --------------------------------------------------------------------------------------------------------------


def test_a_hand_pushes_a_puck_it_touches_and_nothing_else() -> None:
    hand, puck = np.array([0.3, 0.5]), np.array([0.7, 0.5])
    moved, still = video_toy.advance(hand, puck, np.array([1.0, 0.0]))
    assert moved.tolist() == [0.39, 0.5] and still.tolist() == puck.tolist()
    near, pushed = video_toy.advance(np.array([0.5, 0.5]), puck, np.array([1.0, 0.0]))
    assert near[0] == pytest.approx(0.59) and pushed[0] == pytest.approx(0.59 + 0.22)


def test_recording_again_keeps_the_files_that_are_there(tmp_path: Path) -> None:
    video_toy.record(tmp_path, 2, 6, 16, seed=1)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")}
    video_toy.record(tmp_path, 3, 6, 16, seed=1)
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")}
    assert len(after) == 3 and before.items() <= after.items()
