"""`oneiro bench video`: frames a second at every station of the way, and prediction beside `transformers` generate.

Frames are rendered (where the extra `robot` is installed), tokenised, predicted, decoded and scored. The peer predicts
the same frames with the same weights: one call for each frame, its cache handed on, actions put in between. What data
of RT-1's size cost on their way to a GPU stands beside compressed files.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from pydantic import Field

from bench.measure import OURS, by_device, seconds_of
from bench.video_data import data_table
from oneiro import recipe as recipes
from oneiro.models.language import LanguageModel
from oneiro.models.video import tokenizer as tokenizers
from oneiro.recipe import Settings
from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.threads import cores
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.video.dataset import Clips
from oneiro.tasks.video.model import create_transformer, open_model
from oneiro.tasks.video.predictor import Encoded, VideoPredictor, VideoRewardSettings
from oneiro.tasks.video.recipe import VideoRecipe
from oneiro.worlds.robot import puck as video_toy
from oneiro.worlds.robot.episodes import ActionBins

RECIPE = "rlvr/video-multi"
ACTIONS = 4


class VideoBenchSettings(Settings):
    prompts: int = Field(default_factory=by_device(64, 4), ge=1)
    """Segments."""
    group: int = Field(default_factory=by_device(16, 8), ge=1)
    """Futures of each."""
    rounds: int = Field(3, ge=1)
    episodes: int = Field(4, ge=0)
    """Of RT-1's size, written and read by segment; 0: none."""
    threads: int = Field(default_factory=cores, ge=1)


def run(model: str | None = None, **options: Any) -> list[Table]:
    """Of a video run or model folder; without one, of the recipe's own sizes with random weights."""
    settings = VideoBenchSettings(**options)
    torch.set_num_threads(settings.threads)
    language, task = subject(model)
    clips = filmed(task, settings.prompts)
    cases = task.encode(clips)
    tables = [stations(language, task, clips, cases, settings), beside(language, task, cases, settings)]
    return [*tables, data_table(settings.episodes)] if settings.episodes else tables


def subject(model: str | None) -> tuple[LanguageModel, VideoPredictor]:
    """The models to measure."""
    if model is not None:
        language, task, _ = open_model(model)
        return language, task
    recipe = recipes.load(RECIPE)
    assert isinstance(recipe, VideoRecipe)
    tokenizer = tokenizers.create(recipe.tokenizer).eval().requires_grad_(False)
    bins = ActionBins(-np.ones(ACTIONS), np.ones(ACTIONS))
    task = VideoPredictor(tokenizer, recipe.layout.of(tokenizer, ACTIONS), bins, VideoRewardSettings(lpips=0))
    return create_transformer(recipe.model, task.layout, 0), task


def filmed(task: VideoPredictor, count: int) -> Clips:
    """Segments of the toy, in the tokenizer's size and with as many actions as the model knows."""
    sizes, length = task.tokenizer.settings, task.layout.frames
    if sizes.height != sizes.width:
        raise OneiroError("bench video films square frames; give a model of square frames")
    shown = [video_toy.play(seed, length, sizes.height).image for seed in range(count)]
    actions = np.zeros((count, length, len(task.bins.low)), np.float32)
    return Clips(np.stack(shown), actions, np.stack([images[0] for images in shown]))


def stations(
    language: LanguageModel, task: VideoPredictor, clips: Clips, cases: Encoded, settings: VideoBenchSettings
) -> Table:
    """Best of the rounds, for each station by itself."""
    engine, future = Engine(language), task.layout.future
    group_size, count = settings.group, settings.prompts * settings.group * future
    frames = np.repeat(cases.frames[:, None, task.layout.past :], group_size, axis=1)
    made, true = task.decode(cases.context, frames), task.truth(clips, cases)
    work: dict[str, tuple[int, Callable[[], object]]] = {
        "tokenised": (settings.prompts * task.layout.frames, lambda: task.encode(clips)),
        "predicted": (count, lambda: task.sample(engine, cases, group_size, SamplingSettings(), 0)),
        "decoded": (count, lambda: task.decode(cases.context, frames)),
        "scored, MAE": (count, lambda: task.compare(made, true)),
    }
    if (seen := with_eyes(task)) is not None:
        work["scored, MAE and LPIPS (Alex)"] = (count, lambda: seen.compare(made, true))
    sizes, shape = task.tokenizer.settings, language.backbone.shape
    table = Table(
        f"Frames a second: {sizes.height}x{sizes.width}, tokenizer of {task.tokenizer.parameter_count / 1e6:.1f} M and "
        f"transformer of {shape.parameters / 1e6:.1f} M parameters, {task.layout.frame_tokens} tokens a frame",
        ["frames are", "frames", "frames a second"],
        {"frames a second": "1/s"},
        note=f"{settings.prompts} segments, {group_size} futures of {future} frames each, {settings.threads} threads; "
        f"best of {settings.rounds}",
    )
    if find_spec("metaworld") is not None:
        table.add("rendered, one process", RENDERED, RENDERED / rendering(sizes.height))
    else:
        table.add("rendered, one process", None, "needs pip install 'oneiro[robot]'")
    for name, (number, do) in work.items():
        do()
        table.add(name, number, number / min(seconds_of(do) for _ in range(settings.rounds)))
    return table


RENDERED = 40


def rendering(size: int) -> float:
    """Seconds to simulate and draw so many frames of the drawer."""
    from oneiro.worlds.robot.simulator import ACTION, DrawerSimulator

    simulator = DrawerSimulator("drawer-open", size)
    simulator.reset(0.0)

    def film() -> None:
        for _ in range(RENDERED):
            simulator.act(np.zeros(ACTION, np.float32))
            simulator.frame()

    film()
    return seconds_of(film)


def with_eyes(task: VideoPredictor) -> VideoPredictor | None:
    """The same task scored by LPIPS as well; None where its weights cannot be had."""
    seen = VideoPredictor(task.tokenizer, task.layout, task.bins, VideoRewardSettings(network="alex"))
    try:
        seen.lpips  # noqa: B018  # loads the weights
    except OneiroError:
        return None
    return seen


def beside(language: LanguageModel, task: VideoPredictor, cases: Encoded, settings: VideoBenchSettings) -> Table:
    """Both predict the same futures in turns."""
    engine, group_size = Engine(language), settings.group
    count = settings.prompts * group_size * task.layout.future
    contestants: dict[str, Callable[[], object]] = {
        OURS: lambda: task.sample(engine, cases, group_size, SamplingSettings(), 0),
        "transformers generate": lambda: generated(language, task, cases, group_size),
    }
    best = {name: float("inf") for name in contestants}
    for work in contestants.values():
        work()
    for _ in range(settings.rounds):
        for name, work in contestants.items():
            best[name] = min(best[name], seconds_of(work))
    table = Table(
        "Prediction beside transformers, same weights and actions",
        ["who", "frames a second", "times as fast as transformers"],
        {"frames a second": "1/s"},
        note="Oneiro computes a prompt once for its futures, samples frame codes only and returns log-probabilities",
    )
    for name, seconds in best.items():
        table.add(name, count / seconds, best["transformers generate"] / seconds)
    return table


@torch.inference_mode()
def generated(language: LanguageModel, task: VideoPredictor, cases: Encoded, group_size: int) -> torch.Tensor:
    """The peer's futures: one call a frame, the key-value cache handed on, actions appended in between."""
    from transformers import DynamicCache

    layout, device = task.layout, language.backbone.device
    prompts = np.repeat(np.stack([task.opening(cases[i]) for i in range(len(cases))]), group_size, axis=0)
    actions = layout.first_action + np.repeat(cases.actions, group_size, axis=0)
    tokens = torch.from_numpy(prompts).long().to(device)
    cache = DynamicCache()
    for frame in range(layout.future):
        out = language.model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            past_key_values=cache,
            max_new_tokens=layout.frame_tokens,
            min_new_tokens=layout.frame_tokens,
            do_sample=True,
            top_k=0,
            pad_token_id=0,
            return_dict_in_generate=True,
        )
        taken = torch.from_numpy(actions[:, layout.past + frame]).long().to(device)
        tokens, cache = torch.cat([out.sequences, taken], dim=1), out.past_key_values
    return tokens
