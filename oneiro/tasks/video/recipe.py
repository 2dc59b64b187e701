"""RLVR's recipe for video: every setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from oneiro.learning.rl_settings import RolloutSettings
from oneiro.learning.settings import LearnerSettings, ReconstructionSettings
from oneiro.models.video.layout import Layout
from oneiro.models.video.settings import FrameTokenizerSettings, TokenizerSettings, TransformerSettings
from oneiro.recipe import Settings, Workers
from oneiro.runtime.files import require_path
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks.recipe import OnTheWay, RlvrRecipe
from oneiro.tasks.video.augment import AugmentSettings
from oneiro.worlds.robot import puck as video_toy
from oneiro.worlds.robot.collect import PERTURBATIONS
from oneiro.worlds.robot.simulator import TaskName

if TYPE_CHECKING:
    from oneiro.models.video.tokenizer import Tokenizer

BETTER = {"mae": -1.0, "mse": -1.0, "lpips": -1.0, "psnr": 1.0, "ssim": 1.0}
"""Which way each measure counts in a reward."""
SMALLEST = {"alex": 31, "vgg": 16}
"""Pixels to a side below which a network of LPIPS has nothing left after its last pooling."""


class VideoRewardSettings(Settings):
    """A weighted sum over a segment's predicted frames. Weights are positive; errors count against, likeness for."""

    mae: float = Field(1.0, ge=0)
    """Weights of the measures, negative for errors and positive for similarity; at least one must be non-zero."""
    mse: float = Field(0.0, ge=0)
    """Weight of minus the mean squared error."""
    psnr: float = Field(0.0, ge=0)
    """Weight of PSNR."""
    ssim: float = Field(0.0, ge=0)
    """Weight of SSIM."""
    lpips: float = Field(1.0, ge=0)
    """Weight of minus LPIPS."""
    network: Literal["alex", "vgg"] = "vgg"
    """Whose features LPIPS compares; published: vgg."""
    repetition: float = Field(0.0, ge=0)
    """What a frame pays for being the one before it, token for token."""
    aggregate: Literal["mean", "last", "discount"] = "mean"
    """Frames count alike, only the last counts, or each counts `discount` times the one before."""
    discount: float = Field(0.9, gt=0, le=1)
    """Weight of a frame relative to the previous one."""
    truth: Literal["pixels", "reconstruction"] = "pixels"
    """Compare with the recorded frames, or with what the tokenizer could have made of them."""

    @model_validator(mode="after")
    def _something_counts(self) -> VideoRewardSettings:
        if not self.weights and not self.repetition:
            raise ValueError(f"nothing counts in the reward; give one of {', '.join(BETTER)} or repetition a weight")
        return self

    @property
    def weights(self) -> dict[str, float]:
        """The measures that count, with their signs."""
        return {name: sign * getattr(self, name) for name, sign in BETTER.items() if getattr(self, name)}

    def shares(self, frames: int) -> NDArray[np.float32]:
        """How much each frame counts, [F]; they sum to 1."""
        if self.aggregate == "last":
            return np.eye(frames, dtype=np.float32)[-1]
        raw = np.ones(frames) if self.aggregate == "mean" else self.discount ** np.arange(frames)
        return (raw / raw.sum()).astype(np.float32)


def too_small(network: str, height: int, width: int) -> str | None:
    """Why a network of LPIPS cannot look at frames of this size; None where it can."""
    least = SMALLEST[network]
    if min(height, width) >= least:
        return None
    others = [name for name, side in SMALLEST.items() if min(height, width) >= side]
    instead = f"take {' or '.join(others)}, or leave LPIPS out" if others else "leave LPIPS out"
    return (
        f"LPIPS with {network} needs frames of at least {least}x{least} pixels, these are {height}x{width}; {instead}"
    )


DRAWER = "drawer"


class VideoDataSettings(Settings):
    """Where the episodes come from."""

    name: str = DRAWER
    """`drawer`: Meta-World's drawer tasks, simulated by the run itself; `puck`: a toy that needs no simulator; else a
    folder of episode files (`oneiro data`)."""
    tasks: tuple[TaskName, ...] = Field(("drawer-open", "drawer-close"), min_length=1)
    """Of the robot; each gets the same number of episodes."""
    policies: tuple[str, ...] = Field(tuple(PERTURBATIONS), min_length=1)
    """Who moves the robot; failures must be among what a model learns from."""
    episodes: int = Field(200, ge=2)
    """Total number."""
    frames: int = Field(32, ge=2)
    """Of the longest episode."""
    workers: Workers = 2
    """Processes or actors that simulate the robot."""
    test_every: int = Field(100, ge=2)
    """One episode in so many is for testing, never for training."""

    @property
    def own(self) -> bool:
        """Whether the run records the episodes itself."""
        return self.name in (DRAWER, video_toy.NAME)


class LayoutSettings(Settings):
    """What a row of tokens holds."""

    name: Literal["single", "multi"] = "single"
    """One frame from several past ones, or several from one and a context."""
    past: int = Field(4, ge=1)
    """Frames that are given; a multi-step model is given 1."""
    future: int = Field(7, ge=1)
    """Frames that a multi-step model predicts; a single-step one predicts 1."""
    bins: int = Field(256, ge=2)
    """Into how many parts the range of an action's entry is cut."""
    quantiles: tuple[float, float] | None = (0.01, 0.99)
    """The range of each entry, as quantiles of the training data; null: its least and greatest value, as published."""
    context_offset: int = Field(0, ge=0)
    """In training, the context may lie so many frames before the segment (15 as published). Tests never do that."""
    first: float = Field(0.0, ge=0, le=1)
    """In training, the share of segments whose context is the first frame of their episode, however far back."""

    @model_validator(mode="before")
    @classmethod
    def _usual(cls, data: Any) -> Any:
        name = data.get("name", "single") if isinstance(data, dict) else data
        usual: dict[str, Any] = {"past": 1} if name == "multi" else {"future": 1}
        return {**usual, **data} if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _quantiles_are_a_range(self) -> LayoutSettings:
        if self.quantiles is not None and not 0 <= self.quantiles[0] < self.quantiles[1] <= 1:
            raise ValueError("quantiles are two numbers from 0 to 1, the lower one first")
        return self

    def of(self, tokenizer: Tokenizer, actions: int) -> Layout:
        """The layout of a tokenizer's tokens and of actions with so many entries."""
        return Layout(
            tokenizer.codes,
            tokenizer.frame_tokens,
            actions,
            self.past,
            self.future,
            tokenizer.context_tokens,
            self.bins,
            marks=self.name == "single",
        )

    @property
    def frames(self) -> int:
        return self.past + self.future


class InitFromSettings(Settings):
    """What was trained before and is taken as it is: a run, or a folder with a model."""

    tokenizer: str | None = None
    """No tokenizer is trained then."""
    transformer: str | None = None
    """With its own tokenizer and ranges of actions; there is no pre-training then."""

    @model_validator(mode="after")
    def _one(self) -> InitFromSettings:
        if self.tokenizer and self.transformer:
            raise ValueError(
                "a transformer comes with its own tokenizer: set init_from.tokenizer or init_from.transformer"
            )
        return self


class PretrainSettings(Settings):
    """Cross-entropy on true frames."""

    steps: int = Field(500, ge=1)
    """Updates."""
    batch: int = Field(16, ge=1)
    """Segments in an update."""
    history: float = Field(0.0, ge=0)
    """Weight of the loss on given frames, each predicted from those before it: a row teaches more. Published: 0."""
    learner: LearnerSettings = LearnerSettings()
    held_out: int = Field(32, ge=0)
    """Validation segments on which the loss is measured at the end."""
    checkpoint_every: int = Field(200, ge=1)
    """Updates between checkpoints."""


class VideoEvaluationSettings(OnTheWay):
    """What a model is measured on, and how."""

    segments: int = Field(200, ge=1)
    """Test segments, evenly over the test episodes."""
    runs: int = Field(3, ge=1)
    """Futures sampled for each segment; tables show their mean, and the best of them."""
    sampling: SamplingSettings = SamplingSettings(top_k=100)
    sharper: tuple[SamplingSettings, ...] = tuple(
        SamplingSettings(temperature=temperature, top_k=top_k)
        for temperature, top_k in ((0.3, 100), (0.5, 100), (0.7, 100), (0.85, 100), (1.0, 3), (1.0, 10))
    )
    """Other ways to sample: RL sharpens, and what that alone earns is no knowledge. The model before RL and the one
    after it are measured again, each in the way with the highest reward on `eval_subset` validation segments; none: no
    such rows.
    """
    networks: tuple[Literal["alex", "vgg"], ...] = ("alex", "vgg")
    """LPIPS columns; none: no LPIPS."""
    sample_videos: int = Field(4, ge=0)
    """Test segments that are drawn in the report."""
    eval_subset: int = Field(32, ge=1)
    """Validation segments of an evaluation on the way, one future each."""


class VideoRecipe(RlvrRecipe):
    """Everything RLVR on video does, in order."""

    task_class: ClassVar[str] = "oneiro.tasks.video.task:VideoTask"
    data: VideoDataSettings = VideoDataSettings()
    init_from: InitFromSettings = InitFromSettings()
    layout: LayoutSettings = LayoutSettings()
    augment: AugmentSettings = AugmentSettings()
    tokenizer: TokenizerSettings = FrameTokenizerSettings()
    reconstruction: ReconstructionSettings = ReconstructionSettings()
    model: TransformerSettings = TransformerSettings()
    pretrain: PretrainSettings = PretrainSettings()
    reward: VideoRewardSettings = VideoRewardSettings()
    rollout: RolloutSettings = RolloutSettings(prompts_per_step=16)
    evaluation: VideoEvaluationSettings = VideoEvaluationSettings()

    def check_places(self) -> None:
        if not self.data.own:
            require_path("data.name", self.data.name)
        require_path("init_from.tokenizer", self.init_from.tokenizer)
        require_path("init_from.transformer", self.init_from.transformer)

    @model_validator(mode="after")
    def _square(self) -> VideoRecipe:
        if self.data.own and self.tokenizer.height != self.tokenizer.width:
            raise ValueError("our own worlds draw square frames: set tokenizer.height and tokenizer.width alike")
        return self

    @model_validator(mode="after")
    def _of_one_length(self) -> VideoRecipe:
        if self.rl.mask_truncated:
            raise ValueError("every predicted video ends at its token limit: leave rl.mask_truncated out")
        return self

    @model_validator(mode="after")
    def _lpips_sees_the_frames(self) -> VideoRecipe:
        used = {f"evaluation.networks={name}": name for name in self.evaluation.networks}
        if self.reward.lpips:
            used["reward.network"] = self.reward.network
        if self.reconstruction.lpips and not (self.init_from.tokenizer or self.init_from.transformer):
            used["reconstruction.network"] = self.reconstruction.network
        for setting, network in used.items():
            if reason := too_small(network, self.tokenizer.height, self.tokenizer.width):
                raise ValueError(f"{setting}: {reason}")
        return self
