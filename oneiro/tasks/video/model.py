"""A trained video predictor as it comes from disk: transformer, tokenizer, and how they belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from oneiro.models import language as languages
from oneiro.models.language import LanguageModel
from oneiro.models.metadata import ModelMetadata
from oneiro.models.video import tokenizer as tokenizers
from oneiro.models.video.layout import Layout
from oneiro.models.video.settings import TransformerSettings
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import SamplingSettings
from oneiro.tasks.video.predictor import VideoPredictor, VideoRewardSettings
from oneiro.worlds.robot.episodes import ActionBins
from oneiro.worlds.robot.simulator import ACTION_REPEAT

TOKENIZER, PRETRAIN = "tokenizer", "pretrain"
"""The stages of a run that train the two models; their checkpoints lie in folders of that name."""


class VideoMetadata(ModelMetadata):
    """Everything a video predictor needs beside its tokenizer's weights."""

    what = "a predictor of video"
    kind: Literal["video"] = "video"
    layout: dict[str, Any]
    bins: dict[str, Any]
    reward: VideoRewardSettings = VideoRewardSettings()
    sampling: SamplingSettings = SamplingSettings()
    test_every: int = 100
    """One episode in so many was kept from training."""
    action_repeat: int = ACTION_REPEAT
    """Simulator steps that an action of the robot lasted."""


class VideoModel(NamedTuple):
    """The transformer, the task it was trained on, and its metadata."""

    language: LanguageModel
    task: VideoPredictor
    metadata: VideoMetadata


def open_model(place: str | Path, stage: str | None = None) -> VideoModel:
    """A video model of a run (after `stage`, or after its last one), or in a folder with its tokenizer beside it."""
    place = Path(place)
    if not place.is_dir():
        raise OneiroError(f"no folder is at {place}; name a run of rlvr/video-..., or a video model with its tokenizer")
    if stage is not None:
        if not any(place.glob(f"checkpoints/{stage}/step-*/model")):
            raise OneiroError(f"{place} has no transformer of a stage '{stage}'; they come after '{PRETRAIN}' and 'rl'")
        place = place / "checkpoints" / stage
    elif (place / "checkpoints" / PRETRAIN).is_dir():
        newest = [name for name in ("rl", PRETRAIN) if any(place.glob(f"checkpoints/{name}/step-*/model"))]
        if not newest:
            raise OneiroError(f"{place} has no transformer yet; let the run get past its stage '{PRETRAIN}'")
        place = place / "checkpoints" / newest[0]
    language = languages.load(str(place))
    metadata = VideoMetadata.read(language, place)
    if metadata is None:
        raise OneiroError(f"the model at {place} was not trained to predict video: it has no {languages.METADATA}")
    tokenizer = tokenizers.load(find_tokenizer(place))
    layout, bins = Layout.read(metadata.layout), ActionBins.read(metadata.bins)
    if (tokenizer.codes, tokenizer.frame_tokens) != (layout.codes, layout.frame_tokens):
        raise OneiroError(f"the tokenizer beside {place} is not the one this model was trained with")
    return VideoModel(language, VideoPredictor(tokenizer, layout, bins, metadata.reward), metadata)


def find_tokenizer(place: Path) -> Path:
    """Inside a model's folder, or among the checkpoints of its run (RUN/checkpoints/rl/step-000040/model)."""
    for folder in (place, *place.resolve().parents[:4]):
        for candidate in (folder / TOKENIZER, folder / "checkpoints" / TOKENIZER):
            if (candidate / tokenizers.CONFIG).is_file() or any(candidate.glob(f"step-*/{TOKENIZER}")):
                return candidate
    raise OneiroError(f"no tokenizer belongs to the model at {place}: put its folder there, as {place / TOKENIZER}")


PRECISE = 1e-6


def create_transformer(settings: TransformerSettings, layout: Layout, seed: int) -> LanguageModel:
    """The transformer that predicts frame tokens, with random weights for the tokens of a layout: a Llama whose tokens
    are no text; only frame codes are ever predicted."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=layout.vocabulary,
        hidden_size=settings.width,
        intermediate_size=settings.mlp,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=8192,
        rms_norm_eps=PRECISE,
        tie_word_embeddings=settings.tied,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    config.output_vocab = layout.codes  # kept in config.json; the backbone reads it
    model = languages.initialise(LlamaForCausalLM, config, seed)
    if languages.default_device().type == "cuda":
        model = model.to(torch.bfloat16)  # as `load` does; the optimiser keeps the float32 truth
    return languages.assemble(settings.name, model, None)
