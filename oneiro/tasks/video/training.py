"""The two models of a video run: the tokenizer, trained and then frozen, and the transformer over its tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneiro.learning import reconstruction, stages
from oneiro.learning.reconstruction import ReconstructionSettings
from oneiro.learning.sft import SftSettings, order
from oneiro.models import language as languages
from oneiro.models.video import tokenizer as tokenizers
from oneiro.models.video.perceptual import Lpips
from oneiro.models.video.tokenizer import pixels
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.tasks.video import measures
from oneiro.tasks.video.augment import AugmentSettings, crop, jitter
from oneiro.tasks.video.data import BINS, VideoData
from oneiro.tasks.video.dataset import Images, ReadAhead
from oneiro.tasks.video.encodings import Encodings, SegmentRows
from oneiro.tasks.video.model import (
    PRETRAIN,
    TOKENIZER,
    VideoMetadata,
    VideoModel,
    create_transformer,
    find_tokenizer,
    open_model,
)
from oneiro.tasks.video.predictor import VideoPredictor
from oneiro.tasks.video.recipe import VideoRecipe
from oneiro.worlds.robot.episodes import ActionBins

MEAN_FRAME_PAIRS = 256
"""Pairs of frames whose mean is the mean_frame."""


# The tokenizer --------------------------------------------------------------------------------------------------------


def tokenizer_stage(recipe: VideoRecipe, run: Run, data: VideoData) -> dict[str, Any]:
    """Train the tokenizer, or take the given one; says how well it redraws unseen frames."""
    given = given_tokenizer(recipe)
    made = given or tokenizers.create(recipe.tokenizer, tokenizer_seed(recipe))
    run.say(
        f"tokenizer: {made.parameter_count:,} parameters, {made.codes:,} codes, "
        f"{made.frame_tokens} tokens a frame" + (f", {made.context_tokens} a context" if made.context_tokens else "")
    )
    if given is None:
        train_tokenizer(made, recipe, run, data)
    else:
        # A copy, so that the run can be moved and read without the folder it came from.
        keep(run, TOKENIZER, lambda folder: made.save(folder / TOKENIZER))
    quality = redrawn(made, data)
    run.say(
        f"tokenizer: validation frames redrawn with PSNR {quality['psnr']:.1f} dB, {quality['codes_used']} codes in use"
    )
    return {"parameters": made.parameter_count, **quality}


def tokenizer_seed(recipe: VideoRecipe) -> int:
    return seeds.derive(recipe.seed, "tokenizer")


def train_tokenizer(made: tokenizers.Tokenizer, recipe: VideoRecipe, run: Run, data: VideoData) -> None:
    settings, seed = recipe.reconstruction, tokenizer_seed(recipe)

    def read(number: int) -> Images:
        drawn = data.train.scatter_frames(settings.batch, settings.frames, settings.horizon, seed, "batch", number)
        return augment(drawn, recipe.augment, seed, "augment", number)

    if recipe.tokenizer.mean_frame:
        made.mean_frame.copy_(
            pixels(data.train.scatter_frames(MEAN_FRAME_PAIRS, 2, 2, seed, "canvas"), made.device).mean(dim=(0, 1))
        )
    network = Lpips.load(settings.network, made.device) if settings.lpips else None
    with run.progress("tokenizer", settings.steps) as bar:

        def log(step: int, values: dict[str, float]) -> None:
            run.log(TOKENIZER, step, values)
            bar.advance(1, loss=values["loss"], l1=values["l1"])

        def rewind(step: int) -> None:
            run.rewind(TOKENIZER, step)
            bar.begin(step)

        with ReadAhead(read, partial(next_batch, settings)) as ahead:

            def draw(number: int) -> Tensor:
                return pixels(ahead(number), made.device)

            reconstruction.train(
                made, settings, draw, network, run.checkpoint_dir(TOKENIZER), seed, log, rewind, run.say, run.saving()
            )


def augment(segments: Images, settings: AugmentSettings, *seed: int | str) -> Images:
    """Segments [N, T, H, W, 3] as the tokenizer learns from them, each cropped and coloured in its own way."""
    for change, wanted in ((crop, settings.crops), (jitter, settings.jitters)):
        if wanted:
            segments = np.stack([change(one, settings, *seed, place) for place, one in enumerate(segments)])
    return segments


def next_batch(settings: ReconstructionSettings, number: int) -> int | None:
    """The batch that training asks for after this one: even ones are the tokenizer's, odd ones a discriminator's."""
    other = settings.discriminator
    if other is not None and other.alternate and number % 2 == 0:
        start = other.start if other.start >= 1 else other.start * settings.steps
        if number // 2 >= start:
            return number + 1
    following = number + 2 - number % 2
    return following if following < 2 * settings.steps else None


@torch.inference_mode()
def redrawn(tokenizer: tokenizers.Tokenizer, data: VideoData) -> dict[str, float]:
    """PSNR of validation frames through the tokenizer and back, and how many codes they use."""
    clips = data.validation.cut(data.validation_windows(64))
    frames = pixels(clips.images, tokenizer.device)
    context, codes = tokenizer.encode(frames)
    values = measures.psnr(tokenizer.decode(context, codes), frames)
    return {"psnr": float(values.mean()), "codes_used": len(codes.unique())}


# The transformer ------------------------------------------------------------------------------------------------------


def predictor_of(recipe: VideoRecipe, run: Run) -> VideoPredictor:
    """The prediction task with the run's own tokenizer and bins."""
    tokenizer = tokenizers.load(run.path / "checkpoints" / TOKENIZER)
    bins = ActionBins.load(run.path / BINS)
    return VideoPredictor(tokenizer, recipe.layout.of(tokenizer, len(bins.low)), bins, recipe.reward)


def pretrain_stage(recipe: VideoRecipe, run: Run, data: VideoData) -> dict[str, Any]:
    """Learn true futures by cross-entropy, or take the given transformer."""
    if recipe.init_from.transformer:
        return take_transformer(recipe, run, data)
    task, settings, seed = predictor_of(recipe, run), recipe.pretrain, seeds.derive(recipe.seed, PRETRAIN)
    language = create_transformer(recipe.model, task.layout, seed)
    metadata_of(recipe, task, data.action_repeat).write(language)
    shape, layout = language.backbone.shape, task.layout
    run.say(f"transformer: {shape.parameters:,} parameters, {layout.vocabulary:,} ids, rows of {layout.length} tokens")
    encodings = training_encodings(recipe, data, task)
    windows = data.train.draw(settings.steps * settings.batch, seed, "segments")
    contexts = encodings.contexts(windows, seed, "contexts")
    # In the order in which training will ask for them, an update's rows side by side.
    together = np.array(order(len(windows), seed, 0, len(windows)), np.int64).reshape(settings.steps, settings.batch)
    prepare(run, encodings, contexts[together.reshape(-1)])
    unseen = data.validation_windows(settings.held_out)
    held_out = SegmentRows(Encodings(data.validation, task), unseen, unseen)
    how = SftSettings(learner=settings.learner, batch=settings.batch, checkpoint_every=settings.checkpoint_every)
    rows = SegmentRows(encodings, windows, contexts, settings.history, together)
    steps = stages.supervise(run, PRETRAIN, "pre-training", language, rows, held_out, how, seed)
    return {"parameters": shape.parameters, "vocabulary": layout.vocabulary, "length": layout.length, "steps": steps}


def training_encodings(recipe: VideoRecipe, data: VideoData, task: VideoPredictor) -> Encodings:
    """Training segments as tokens, with the contexts and the colours that the recipe asks for."""
    offset, first, colours = recipe.layout.context_offset, recipe.layout.first, recipe.augment
    return Encodings(data.train, task, offset, first, colours if colours.jitters else None)


def prepare(run: Run, encodings: Encodings, contexts: np.ndarray) -> None:
    """On a GPU, encode all segments before they are asked for one by one."""
    if encodings.predictor.tokenizer.device.type == "cuda":
        with run.progress("tokens", len(np.unique(contexts, axis=0))) as bar:
            encodings.prepare(contexts, bar.advance)


def metadata_of(recipe: VideoRecipe, task: VideoPredictor, action_repeat: int) -> VideoMetadata:
    return VideoMetadata(
        layout=task.layout.data(),
        bins=task.bins.data(),
        reward=recipe.reward,
        sampling=recipe.evaluation.sampling,
        test_every=recipe.data.test_every,
        action_repeat=action_repeat,
    )


# What was trained before ----------------------------------------------------------------------------------------------


def check_init_from(recipe: VideoRecipe) -> None:
    """Open what the recipe says is there, before anything else is done."""
    given_tokenizer(recipe)
    if recipe.init_from.transformer:
        given_transformer(recipe)


def given_tokenizer(recipe: VideoRecipe) -> tokenizers.Tokenizer | None:
    """A tokenizer trained before, for frames of the recipe's size; None where the run trains its own."""
    if recipe.init_from.transformer:
        tokenizer = given_transformer(recipe)[1].tokenizer
    elif recipe.init_from.tokenizer:
        folder = existing(recipe.init_from.tokenizer)
        tokenizer = tokenizers.load(folder if (folder / tokenizers.CONFIG).is_file() else find_tokenizer(folder))
    else:
        return None
    size, wanted = (
        (tokenizer.settings.height, tokenizer.settings.width),
        (recipe.tokenizer.height, recipe.tokenizer.width),
    )
    if size != wanted:
        raise OneiroError(
            f"the given tokenizer draws {size[0]}x{size[1]} frames, the recipe asks for {wanted[0]}x{wanted[1]}; "
            f"set tokenizer.height={size[0]} tokenizer.width={size[1]}"
        )
    return tokenizer


def given_transformer(recipe: VideoRecipe) -> VideoModel:
    """A transformer trained before, of a run the one that RL started from; it must have been shown the same rows."""
    place = existing(str(recipe.init_from.transformer))
    of_a_run = (place / "checkpoints" / PRETRAIN).is_dir()
    language, task, metadata = open_model(place, PRETRAIN if of_a_run else None)
    wanted = recipe.layout.of(task.tokenizer, task.layout.action_tokens).data()
    other = {f"layout.{key}": value for key, value in task.layout.data().items() if wanted[key] != value}
    if "layout.marks" in other:  # not a setting of its own: the layout's name decides it
        other["layout.name"] = "single" if other.pop("layout.marks") else "multi"
    if metadata.test_every != recipe.data.test_every:
        other["data.test_every"] = metadata.test_every  # or some of its training episodes would be called unseen
    if other:
        settings = " ".join(f"{key}={value}" for key, value in other.items())
        raise OneiroError(
            f"the transformer at {place} was trained with {settings}, the recipe says otherwise; set these"
        )
    return VideoModel(language, task, metadata)


def take_transformer(recipe: VideoRecipe, run: Run, data: VideoData) -> dict[str, Any]:
    """The given transformer as the run's own, with the ranges of actions it knows."""
    language, task, metadata = given_transformer(recipe)
    if metadata.action_repeat != data.action_repeat:
        raise OneiroError(
            f"actions of the data last {data.action_repeat} simulator steps, the transformer's {metadata.action_repeat}"
        )
    if len(task.bins.low) != len(ActionBins.load(run.path / BINS).low):
        raise OneiroError(f"actions of the data have not the {len(task.bins.low)} entries the given transformer knows")
    # The model's ranges and not those of the data: its action tokens mean nothing else.
    task.bins.save(run.path / BINS)
    metadata_of(recipe, task, data.action_repeat).write(language)
    keep(run, PRETRAIN, lambda folder: language.save(folder / "model"))
    shape = language.backbone.shape
    run.say(f"transformer, as given: {shape.parameters:,} parameters")
    return {"parameters": shape.parameters, "vocabulary": task.layout.vocabulary, "length": task.layout.length}


def existing(place: str) -> Path:
    folder = Path(place).expanduser()
    if not folder.is_dir():
        raise OneiroError(
            f"nothing is at {folder}, where the recipe's `init_from` points; name a run or a folder in one"
        )
    return folder


def keep(run: Run, stage: str, save: Callable[[Path], Any]) -> None:
    """What was given, as the stage's only checkpoint."""
    languages.write_folder(run.checkpoint_dir(stage) / "step-000000", save, {"step": 0})
