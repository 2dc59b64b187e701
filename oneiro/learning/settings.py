"""Settings of everything that learns. Recipes are read without torch, so they live apart from what they configure.

Those of RL name algorithms, which need the ones here: `rl_settings.py`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from oneiro.models.video.settings import DiscriminatorSettings
from oneiro.recipe import Settings
from oneiro.runtime import plugins
from oneiro.runtime.errors import nearest

KEPT_CHECKPOINTS = 2
"""Checkpoints that a stage keeps while it goes on: the second is there for when the first is damaged."""
KlKind = Literal["k1", "k2", "k3"]
Aggregate = Literal["token-mean", "sequence-mean", "constant"]
Importance = Literal["token", "sequence"]
RowLoss = Literal["squared", "official", "linear"]


class LossSettings(Settings):
    """How the components add up."""

    policy: str = "clip"
    """The loss of a sampled token: `clip`, the clipped surrogate; one that another package offers; or a function of
    yours, `module:function`.
    """
    clip_low: float = Field(0.2, ge=0)
    """Lower bound of the ratio is 1 minus this."""
    clip_high: float = Field(0.2, ge=0)
    """Upper bound is 1 plus this (DAPO: larger)."""
    dual_clip: float | None = Field(3.0, gt=1)
    """Bound on the loss of a token with negative advantage and a large ratio (Ye et al. 2020); None switches it off."""
    kl: float = Field(0.0, ge=0)
    """Weight of the KL to the reference as a loss."""
    kl_kind: KlKind = "k3"
    """Its estimator: `k1`, `k2`, `k3`."""
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    ce: float = Field(1.0, ge=0)
    """Weight of cross-entropy on tokens that carry a cross-entropy weight."""
    aggregate: Aggregate = "token-mean"
    """Or `sequence-mean`, `constant`."""
    max_tokens: int | None = Field(None, ge=1)
    """What `constant` divides a row's sum by: the most tokens a row may sample. None: as the rollout says."""
    importance_sampling: Importance = "token"
    """Whether the ratio to the old policy is a token's own, or the geometric mean over its row (GSPO)."""
    value: float = Field(1.0, ge=0)
    """Weight of the value loss."""
    value_clip: float | None = 0.5
    """How far a value may move in an update; `null` switches it off."""
    row: RowLoss | None = None
    """Instead of the clipped surrogate, a loss of a row's log-ratio to the reference and its target, the column
    `advantages` (WebRL): squared regression, the released smooth L1 on positives, or -target x log-ratio.
    """
    row_beta: float = Field(1.0, gt=0)
    """WebRL's beta, for `row: squared`."""

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, name: str) -> str:
        names = plugins.with_offered("losses", {"clip": ""})
        if name not in names and ":" not in name:
            raise ValueError(f"no policy loss called '{name}'{nearest(name, names)}; or give module:function")
        return name


class OptimiserSettings(Settings):
    name: Literal["adamw", "adamw-8bit", "paged-adamw", "muon"] = "adamw"
    """adamw-8bit: AdamW whose moments have 8 bits. paged-adamw: moments may move to the host's memory. Both need a GPU
    and bitsandbytes. muon: orthogonalised momentum for the matrices of the layers (arXiv 2502.16982), scaled so that
    AdamW's rates fit; AdamW for embeddings, heads, norms and biases.
    """
    lr: float = Field(1e-3, gt=0, le=1)
    """Learning rate, at most 1; Muon's steps are scaled so that AdamW's rates fit."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Of AdamW; the second is Muon's momentum."""
    weight_decay: float = Field(0.01, ge=0)
    """On matrices; norms and biases do not decay."""
    clip: float = Field(1.0, gt=0)
    """Largest gradient norm."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """Or `cosine`, `linear`."""
    warmup: float = Field(0.0, ge=0)
    """Steps of linear warm-up; below 1, a part of all steps. Parts of a step are rounded up."""
    final: float = Field(0.0, ge=0, le=1)
    """What a falling schedule ends at, as a part of `lr`."""


class LearnerSettings(Settings):
    parallel: Literal["data", "fsdp"] = "data"
    """How processes that torchrun starts share an update. data: every rank has all weights and takes a part of the
    rows. fsdp: weights, gradients and the optimiser's state are sharded too (FSDP2). A single process needs neither.
    """
    update_threads: int = Field(1, ge=1)
    """Threads that share an update of a small model (under 8 million parameters) on a CPU, each with a part of the
    rows. Adapters with dropout have one. Memory of an update grows with it.
    """
    optimiser: OptimiserSettings = OptimiserSettings()
    loss: LossSettings = LossSettings()
    token_budget: int | None = Field(None, ge=64)
    """Padded tokens in one micro-batch; bounds memory, changes no result. By default as `MICRO_BATCH_BYTES` says."""
    gradient_checkpointing: bool = False
    """Keep only what enters each layer and compute the layer again on the way back: less memory, a third more time.
    Models outside the fast architectures keep everything.
    """


class CorrectionSettings(Settings):
    """none: the ratio is against the sampler's own log-probabilities. tis: weights, at most `cap`. icepop: weights
    inside [`low`, `high`]; tokens outside carry no policy loss."""

    name: Literal["none", "tis", "icepop"] = "none"
    cap: float = Field(2.0, gt=0)
    """Largest weight of `tis`."""
    low: float = Field(0.5, ge=0)
    """Smallest weight that `icepop` keeps."""
    high: float = Field(5.0, gt=0)
    """Largest weight that `icepop` keeps."""


class ReferenceSettings(Settings):
    """Whether the reference follows the policy."""

    sync_every: int = Field(0, ge=0)
    """Steps after which it moves towards the policy; 0: never."""
    mix: float = Field(1.0, gt=0, le=1)
    """How far it moves: 1, all the way; less, with `sync_every=1`: an exponential moving average of the weights."""


class SelectionSettings(Settings):
    """Validation during RL."""

    metric: str | None = None
    """The validation metric that decides; None: the recipe's own."""
    mode: Literal["max", "min"] = "max"
    """Or `min`."""
    every: int = Field(10, ge=1)
    """Steps between validations, the first before any update, one more at the end."""
    cases: int = Field(64, ge=1)
    """Validation cases."""
    patience: int = Field(0, ge=0)
    """End RL after so many validations in a row without a better one; 0: never."""


class CollapseMonitorSettings(Settings):
    """What is looked at, and when RL ends early."""

    every: int = Field(10, ge=0)
    """Steps between looks at the mutual information of prompts and reasoning; 0: never."""
    samples: int = Field(64, ge=2)
    """Replies in one look."""
    stop: bool = True
    """End RL when attempts at one task have scored alike for `patience` steps."""
    min_std: float = Field(0.1, gt=0)
    """What counts as alike: a reward std within groups below this fraction of the first steps' mean."""
    patience: int = Field(10, ge=1)
    """Steps."""


class SftSettings(Settings):
    learner: LearnerSettings = LearnerSettings()
    batch: int = Field(64, ge=1)
    """Rows in an update."""
    epochs: float = Field(1.0, gt=0)
    """Passes over the data; a part of one is allowed."""
    checkpoint_every: int = Field(200, ge=1)
    """Updates between checkpoints."""
    keep_checkpoints: int = Field(KEPT_CHECKPOINTS, ge=1)
    """How many of the last checkpoints stay while the stage goes on; one at its end."""


class SftContinuedSettings(Settings):
    """The control of RL: SFT that goes on from the weights that RL starts from, for as many seconds as RL took. What RL
    adds is what it adds to this.
    """

    learner: LearnerSettings = LearnerSettings()
    batch: int = Field(32, ge=1)
    """Rows in an update."""
    checkpoint_every: int = Field(200, ge=1)
    """Updates between checkpoints."""


class DiscriminatorLossSettings(Settings):
    """The discriminator, and what the tokenizer makes of its verdict."""

    weight: float = Field(0.1, gt=0)
    """Weight of the loss that fools the discriminator."""
    start: float = Field(0.0, ge=0)
    """The step from which it takes part; below 1, a part of all steps."""
    gradient_penalty: float = Field(10.0, ge=0)
    """Weight of the penalty on the gradient at real pictures."""
    alternate: bool = False
    """Learn on a batch of its own between two steps, as published, and not on the tokenizer's."""
    network: DiscriminatorSettings = DiscriminatorSettings()
    optimiser: OptimiserSettings = OptimiserSettings(lr=5e-4, betas=(0.9, 0.999), weight_decay=0.0)


class ReconstructionSettings(Settings):
    """How a tokenizer learns."""

    steps: int = Field(1000, ge=1)
    """Updates of the tokenizer; those of a discriminator are not counted."""
    batch: int = Field(8, ge=1)
    """Segments in an update."""
    frames: int = Field(8, ge=2)
    """Frames of a segment; the first is its context, where the tokenizer has one."""
    horizon: int = Field(8, ge=2)
    """Frames are drawn among so many consecutive ones (32 in the paper); equal to `frames`: all of them."""
    l1: float = Field(1.0, ge=0)
    """Weight of the absolute error."""
    mse: float = Field(0.0, ge=0)
    """Squared error besides; minds small things that move. Published: none."""
    lpips: float = Field(1.0, ge=0)
    """Weight of LPIPS."""
    network: Literal["alex", "vgg"] = "vgg"
    """Whose features LPIPS compares: AlexNet's cost a tenth."""
    discriminator: DiscriminatorLossSettings | None = None
    optimiser: OptimiserSettings = OptimiserSettings(
        lr=5e-4, betas=(0.9, 0.999), weight_decay=0.0, schedule="cosine", warmup=0.01
    )
    checkpoint_every: int = Field(200, ge=1)
    """Updates between checkpoints."""


class FilterSettings(Settings):
    """none: all groups. varied: those with any std. fraction: the `keep` part with the largest std (StarPO-S).
    top-p: the fewest groups that hold `keep` of all std (RAGEN-2). softmax-top-p: the fewest that hold `keep` of the
    softmax of stds, groups without any among them; so RAGEN-2's own scripts, a milder choice: most stds are far
    below 1, where a softmax hardly tells them apart."""

    name: Literal["none", "varied", "fraction", "top-p", "softmax-top-p"] = "varied"
    keep: float = Field(0.25, gt=0, le=1)
    """For `fraction`, `top-p` and `softmax-top-p`."""
    refill: int = Field(0, ge=0)
    """How many more batches a step may draw where groups had no std, until as many have some as one batch has groups
    (dynamic sampling, DAPO)."""
