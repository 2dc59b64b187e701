"""The RL loop: play, keep the groups that teach, estimate advantages, update. It is handed its callbacks and knows no
world.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import torch
from torch import nn

from oneiro.episode import Episode, FinishReason, groups_of
from oneiro.learning import checkpoint, finite
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.rl_settings import RlSettings
from oneiro.learning.update import Reference, keep_varied, learn, learnable
from oneiro.models.backbone import Backbone
from oneiro.models.heads import ValueHead
from oneiro.models.language import LanguageModel
from oneiro.runtime import clock, distributed, seeds
from oneiro.runtime.clock import spent
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.interrupt import Saving


@dataclass
class Callbacks:
    """What the loop is handed."""

    play: Callable[[int], list[Episode]]
    """Step number -> finished episodes; must be a pure function of the step and the weights."""
    log: Callable[[int, dict[str, float]], None]
    time: Callable[[int, dict[str, float]], None] = lambda step, values: None
    """Where a step's seconds went (`oneiro.runtime.clock`)."""
    keep: Callable[[int, Sequence[Episode]], None] = lambda step, episodes: None
    rewind: Callable[[int], str | None] = lambda step: None
    """Forgets what was logged after a step, from which the loop then goes on; a text: the run had ended there."""
    should_stop: Callable[[int, dict[str, float]], str | None] = lambda step, values: None
    """Looks at the metrics; a text stops the run with that reason."""
    extra_metrics: Callable[[int, Sequence[Episode], Learner], dict[str, float]] = lambda step, episodes, learner: {}
    """Further metrics of a step, taken while the policy is still the one that played."""
    say: Callable[[str], object] = warnings.warn
    """Gets a line for people, such as that a checkpoint was damaged."""
    hand_over: Callable[[int], None] = lambda step: None
    """Gives weights away for the play of a step, where others play. Called before it begins, while nothing is learned:
    beside an update, half of them could be newer than the rest."""


def copy_of(policy: LanguageModel) -> LanguageModel:
    """The same model with weights of its own, which nothing trains."""
    return replace(policy, backbone=copy.deepcopy(policy.backbone).requires_grad_(False).eval())


def actor_of(language: LanguageModel, settings: RlSettings) -> LanguageModel:
    """Who plays: the policy itself, or with `async_rollout` a copy that follows it."""
    return copy_of(language) if settings.async_rollout else language


def reinforce(
    language: LanguageModel,
    settings: RlSettings,
    folder: Path,
    seed: int,
    callbacks: Callbacks,
    actor: LanguageModel | None = None,
    max_tokens: int | None = None,
    saving: Saving | None = None,
) -> Path:
    """Train for `settings.steps` steps, resuming from `folder`; returns the last checkpoint.

    `actor` is the model that `callbacks.play` plays with, as `actor_of` gives it. `max_tokens` is the most tokens that
    a row may sample, for the aggregation `constant`. `saving` decides about checkpoints between those by steps: there
    are none with `async_rollout`, where a checkpoint decides with which weights the next step is played.
    """
    updates = settings.steps * settings.updates_per_step
    compared = settings.learner.loss.kl or settings.kl_in_reward
    reference = Reference(language.backbone, settings.reference) if compared else None
    others = {"reference": reference} if reference is not None else {}
    learners = make_learners(language, settings, learner_settings(settings, max_tokens), updates, seed)
    start = checkpoint.restore(folder, language, learners, others, callbacks.say, settings.keep_checkpoints)
    finite.require_start(language.name, modules(learners))
    reason = callbacks.rewind(start)
    if start == 0:
        checkpoint.save(folder, 0, language, learners, others)
    saving = saving or Saving()
    waits = contextlib.nullcontext() if settings.async_rollout else saving.defer()
    with AsyncRollout(callbacks.play, language, actor or language, callbacks.hand_over) as rollout, waits:
        for step in range(start, settings.steps):
            if reason:
                break
            clock.read()
            episodes = rollout.episodes(step)
            wanted = len(groups_of(episodes))
            episodes = refill(episodes, wanted, step, settings, rollout.more)
            with spent("measuring"):
                extra = callbacks.extra_metrics(step + 1, episodes, learners["policy"])
            saves = (step + 1) % settings.checkpoint_every == 0 or step + 1 == settings.steps
            # A resumed run has only the checkpoint's weights, so what follows a checkpoint is played with those.
            if not saves:
                rollout.begin(step + 1)
            with spent("learning"), finite.at_step(step + 1):
                # The schedule follows the steps, also past one without anything to learn.
                for learner in learners.values():
                    learner.updates = step * settings.updates_per_step
                own = seeds.derive(seed, "minibatches", step)
                statistics = learn(episodes, settings, learners, reference, own, wanted)
                finite.require_weights(modules(learners))
                if reference is not None:
                    reference.follow(step + 1)
            with spent("checkpointing"):
                # The main process's numbers are everyone's, so that all ranks stop at the same step.
                statistics = distributed.broadcast(statistics | describe(episodes) | extra)
                callbacks.log(step + 1, statistics)
                if settings.keeps(step + 1):
                    callbacks.keep(step + 1, episodes)
                reason = callbacks.should_stop(step + 1, statistics)
            # Before the checkpoint, from which a resumed run goes on without looking back; the save has its own line.
            callbacks.time(step + 1, clock.read())
            if saves or reason or (saving.due() and not settings.async_rollout):
                with spent("checkpointing"):
                    checkpoint.save(folder, step + 1, language, learners, others, settings.keep_checkpoints)
                    saving.done()
                callbacks.time(step + 1, clock.read())
            saving.stop()
    return checkpoint.last(folder)


def modules(learners: dict[str, Learner]) -> list[nn.Module]:
    heads = [learner.value_head for learner in learners.values() if learner.value_head is not None]
    return [*(learner.backbone for learner in learners.values()), *heads]


def refill(
    episodes: list[Episode], wanted: int, step: int, settings: RlSettings, more: Callable[[int], list[Episode]]
) -> list[Episode]:
    """The episodes of a step and, as long as too few of their groups vary, those of further batches.

    Batches are numbered on behind the last step, so that each is a pure function of its number too.
    """
    bound = settings.filter.refill
    for number in range(settings.steps + step * bound, settings.steps + (step + 1) * bound):
        if len(keep_varied(groups_of(learnable(episodes)))) >= wanted:
            break
        shift = 1 + max((episode.group for episode in episodes), default=0)
        episodes = episodes + [replace(episode, group=episode.group + shift) for episode in more(number)]
    return episodes


def learner_settings(settings: RlSettings, max_tokens: int | None = None) -> LearnerSettings:
    """The learner's settings with what the loop and its algorithm have to say about the loss."""
    loss = settings.learner.loss
    updates: dict[str, object] = {**settings.algorithm.loss, "max_tokens": loss.max_tokens or max_tokens}
    if settings.algorithm.aggregate is not None:
        updates["aggregate"] = settings.algorithm.aggregate
    if updates.get("aggregate", loss.aggregate) == "constant" and updates["max_tokens"] is None:
        raise OneiroError(
            "the aggregation 'constant' divides by the most tokens that a row may sample; set learner.loss.max_tokens"
        )
    if settings.environment_ce:
        # A component is a mean over its tokens: what counts against the policy's loss is the component's weight.
        updates["ce"] = settings.environment_ce
    return settings.learner.model_copy(update={"loss": loss.model_copy(update=updates)})


def make_learners(
    language: LanguageModel, settings: RlSettings, learner_settings: LearnerSettings, updates: int, seed: int = 0
) -> dict[str, Learner]:
    """The policy's learner and, for algorithms that need one, the critic's."""
    needs_critic, shared = settings.algorithm.critic, settings.shared_backbone
    head = ValueHead(language.backbone.shape.width, language.backbone.device) if needs_critic else None
    policy = Learner(language.backbone, learner_settings, updates, head if shared else None, seed=seed)
    checkpoint.adopt_masters(language, policy)
    if not needs_critic or shared:
        return {"policy": policy}
    body: Backbone = copy.deepcopy(language.backbone)
    critic_settings = learner_settings.model_copy(update={"optimiser": settings.critic})
    return {"policy": policy, "critic": Learner(body, critic_settings, updates, head, has_lm_head=False, seed=seed)}


def describe(episodes: Sequence[Episode]) -> dict[str, float]:
    """What a batch of episodes looks like."""
    if not episodes:
        return {}
    count = len(episodes)
    turns = max(1, sum(len(e.rewards) for e in episodes))
    means = {
        "success": sum(e.success for e in episodes) / count,
        "reward": sum(e.score for e in episodes) / count,
        "turns": sum(len(e.rewards) for e in episodes) / count,
        "response_length": sum(e.sampled_tokens for e in episodes) / turns,
        "errors": sum(e.finish_reason is FinishReason.ERROR for e in episodes) / count,
    }
    for name in sorted({name for e in episodes for name in e.terms}):
        means[f"reward_{name}"] = sum(sum(e.terms.get(name, [])) for e in episodes) / count
    return means


class AsyncRollout:
    """Gives the episodes of each step: played when they are asked for, or begun before, while a step is learned.

    `actor` is the model that plays: the policy itself, then nothing is played ahead; or a copy that is one step older.
    The learner weighs each token by how much likelier it has become since it was sampled, so what a slightly older
    policy did still teaches the present one.
    """

    def __init__(
        self,
        play: Callable[[int], list[Episode]],
        policy: LanguageModel,
        actor: LanguageModel,
        hand_over: Callable[[int], None],
    ) -> None:
        self.play, self.policy, self.actor, self.hand_over = play, policy, actor, hand_over
        self._thread = ThreadPoolExecutor(1, "ahead")
        self._coming: Future[list[Episode]] | None = None
        cuda = policy.backbone.device.type == "cuda"
        self._stream = torch.cuda.Stream(policy.backbone.device) if cuda and actor is not policy else None

    def __enter__(self) -> AsyncRollout:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown(cancel_futures=True)

    def begin(self, step: int) -> None:
        """Start to play the step that is asked for next, with the weights as they are now.

        The policy itself cannot: its weights are about to change under it.
        """
        if self.actor is self.policy:
            return
        self._follow()
        self.hand_over(step)
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
        self._coming = self._thread.submit(self._play, step)

    def episodes(self, step: int) -> list[Episode]:
        coming, self._coming = self._coming, None
        if coming is not None:
            with spent("waiting"):
                return coming.result()
        self._follow()
        self.hand_over(step)
        return self.more(step)

    def more(self, number: int) -> list[Episode]:
        """Further episodes, with the weights that played the last ones. Nothing may be played ahead meanwhile."""
        with spent("worlds"):
            # What every rank computed for itself, such as a reward, may differ in its last digits.
            return distributed.broadcast(self.play(number))

    def _play(self, step: int) -> list[Episode]:
        own: AbstractContextManager[object] = torch.cuda.stream(self._stream) if self._stream else nullcontext()
        with own, distributed.background():
            return distributed.broadcast(self.play(step))

    @torch.no_grad()
    def _follow(self) -> None:
        """Give the actor the policy's present weights."""
        if self.actor is self.policy:
            return
        pairs = zip(self.actor.backbone.parameters(), self.policy.backbone.parameters(), strict=True)
        for mine, theirs in pairs:
            mine.copy_(theirs)
