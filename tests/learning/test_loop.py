"""Every algorithm through the whole loop on one small task: it learns, and a resumed run is the uninterrupted one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oneiro.episode import Episode, FinishReason, Row, SamplingParams, Segment, given
from oneiro.learning import checkpoint, loop, sft, update
from oneiro.learning.algorithms import DrGrpo, Grpo, Gspo, Ppo, Reinforce, Rloo, StateGrpo, TurnGrpo
from oneiro.learning.batch import Example, gather, scatter
from oneiro.learning.learner import LearnerSettings
from oneiro.learning.loop import AsyncRollout, Callbacks, RlSettings, actor_of, copy_of, reinforce
from oneiro.learning.losses import LossSettings
from oneiro.learning.optimiser import OptimiserSettings
from oneiro.learning.settings import FilterSettings
from oneiro.learning.update import (
    CorrectionSettings,
    Reference,
    ReferenceSettings,
    examples_of,
    minibatches,
    trajectory_of,
)
from oneiro.models.language import LanguageModel, LoraSettings, with_lora
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, SamplingSettings
from tests.conftest import make_tiny

WANTED = 7


def play_with(language: LanguageModel, turns: int = 1):  # type: ignore[no-untyped-def]
    """Episodes whose reward is the share of one token in the reply; several turns make several rows."""
    engine = Engine(language, max_batch_size=64)

    def play(step: int) -> list[Episode]:
        prompts = [np.array([3 + g, 4, 5]) for g in range(4)]
        episodes = [Episode([], group=g) for g in range(4) for _ in range(6)]
        for turn in range(1, turns + 1):
            seed = seeds.derive(step, turn)
            sampled = engine.generate(prompts, 6, SamplingSettings(max_tokens=5, ignore_eos=True), seed=seed)
            for episode, sample in zip(episodes, [s for group in sampled for s in group], strict=True):
                episode.rows.append(Row([given(prompts[episode.group], turn=turn), *sample.segments(turn=turn)]))
                episode.rewards.append(float((sample.tokens == WANTED).mean()))
        return episodes

    return play


def settings(algorithm: object, steps: int, **more: object) -> RlSettings:
    learner = LearnerSettings(
        optimiser=OptimiserSettings(name=more.pop("optimiser", "adamw"), lr=1e-2, weight_decay=0.0),  # type: ignore[arg-type]
        loss=LossSettings(kl=0.001 if "kl" in more else 0.0),
    )
    more.pop("kl", None)
    return RlSettings(steps=steps, algorithm=algorithm, learner=learner, checkpoint_every=2, **more)  # type: ignore[arg-type]


CASES = {
    "grpo": (Grpo(), {}),
    "grpo with a reference": (Grpo(), {"kl": True}),
    "dr-grpo": (DrGrpo(), {}),
    "rloo in minibatches": (Rloo(), {"minibatches": 2, "epochs": 2}),
    "reinforce++ with KL in the reward": (Reinforce(), {"kl_in_reward": 0.01}),
    "ppo": (Ppo(), {}),
    "ppo on a shared body": (Ppo(lam=0.9), {"shared_backbone": True}),
    "ppo by turns": (Ppo(bi_level=True), {}),
    "turn-grpo by turns": (TurnGrpo(), {}),
    "state-grpo by turns": (StateGrpo(), {"minibatches": 2}),
    "grpo, playing ahead": (Grpo(), {"async_rollout": True}),
    "ppo, playing ahead": (Ppo(), {"async_rollout": True}),
    "gspo in minibatches": (Gspo(clip_low=0.05, clip_high=0.05), {"minibatches": 2}),
    "grpo with muon": (Grpo(), {"optimiser": "muon"}),
}
FOLLOWING = ReferenceSettings(sync_every=1, mix=0.25)
QUICK = ("grpo", "ppo", "turn-grpo by turns")
"""They reach every reward in twenty steps; others take twice as many."""
RESUMED = CASES | {
    "a correction, playing ahead": (Grpo(), {"async_rollout": True, "correction": CorrectionSettings(name="icepop")}),
    "a refill, playing ahead": (Grpo(), {"async_rollout": True, "filter": FilterSettings(refill=2)}),
    "a reference that follows": (Grpo(), {"kl": True, "reference": FOLLOWING}),
    "a reference that follows an adapter": (Grpo(), {"kl": True, "reference": FOLLOWING, "lora": LoraSettings(rank=2)}),
    "muon in minibatches with a critic": (Ppo(), {"optimiser": "muon", "minibatches": 2}),
}


QUICK_RESUMED = (
    "grpo with a reference",
    "rloo in minibatches",
    "ppo on a shared body",
    "ppo, playing ahead",
    "state-grpo by turns",
    "a refill, playing ahead",
    "a reference that follows an adapter",
    "muon in minibatches with a critic",
)


def cases(names: Iterable[str], quick: Sequence[str]) -> list[Any]:
    """Those that differ most run with every change; `make thorough` runs them all."""
    return [pytest.param(name, marks=[] if name in quick else [pytest.mark.thorough]) for name in names]


def test_minibatches_keep_rows_of_a_prefix_together() -> None:
    def row(prompt: int) -> Example:
        reply = Segment(np.arange(3), True, "assistant", logprobs=np.zeros(3), params=SamplingParams())
        return Example.of(Row([given([prompt, 7, 8]), reply]))

    rows = [row(prompt) for prompt in range(10) for _ in range(4)]
    parts = minibatches(rows, 4, seed=0)
    assert sorted(i for part in parts for i in part) == list(range(40)) and all(part == sorted(part) for part in parts)
    assert max(map(len, parts)) - min(map(len, parts)) <= 4
    homes = [{i // 4 for i in part} for part in parts]
    assert sum(map(len, homes)) == 10  # no prompt in two of them
    assert minibatches(rows, 4, seed=1) != parts
    # One prompt alone is no reason for one large update.
    assert sorted(len(part) for part in minibatches([row(0)] * 10, 4, seed=0)) == [1, 3, 3, 3]


@pytest.mark.parametrize("case", cases(CASES, QUICK))
def test_every_algorithm_learns(case: str, tmp_path: Path) -> None:
    algorithm, more = CASES[case]
    language = make_tiny()
    logged: list[dict[str, float]] = []
    how = settings(algorithm, 20 if case in QUICK else 40, **more)
    actor = actor_of(language, how)
    parts = Callbacks(play_with(actor, turns=2 if "turns" in case else 1), lambda step, values: logged.append(values))
    reinforce(language, how, tmp_path, 0, parts, actor, max_tokens=5)
    rewards = [values["reward"] for values in logged]
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.15
    updates = [values for values in logged if "mismatch" in values]
    if not how.async_rollout:
        assert max(values["mismatch"] for values in updates) < 1e-4  # the sampler's weights are the learner's


@pytest.mark.parametrize("case", cases(RESUMED, QUICK_RESUMED))
def test_a_resumed_run_is_the_uninterrupted_one(case: str, tmp_path: Path) -> None:
    algorithm, more = RESUMED[case]
    lora = more.get("lora")
    more = {key: value for key, value in more.items() if key != "lora"}

    class Killed(Exception):
        pass

    def go(folder: Path, stop_at: int | None) -> tuple[list[tuple[int, dict[str, float]]], LanguageModel]:
        torch.manual_seed(0)  # peft draws adapters from the global generator
        language = with_lora(make_tiny(), lora)
        logged: list[tuple[int, dict[str, float]]] = []
        how = settings(algorithm, 4, **more)
        actor = actor_of(language, how)
        play = play_with(actor, turns=2 if "turns" in case else 1)

        def play_or_die(step: int) -> list[Episode]:
            if step == stop_at:
                raise Killed
            return play(step)

        parts = Callbacks(play_or_die, lambda step, values: logged.append((step, values)))
        with contextlib.suppress(Killed):
            reinforce(language, how, folder, 0, parts, actor, max_tokens=5)
        return logged, language

    whole, expected = go(tmp_path / "whole", None)
    go(tmp_path / "cut", 3)  # the last checkpoint is after step 2
    rest, found = go(tmp_path / "cut", None)
    assert rest == whole[2:]
    for (name, a), (_, b) in zip(expected.trainable(), found.trainable(), strict=True):
        assert torch.equal(a, b), name


def test_play_ahead_is_one_step_old_and_fresh_after_a_checkpoint(tmp_path: Path) -> None:
    language, how = make_tiny(), settings(Grpo(), 6, async_rollout=True)
    how = how.model_copy(update={"checkpoint_every": 3})
    actor = actor_of(language, how)
    play, seen = play_with(actor), {}

    def weights(model: LanguageModel) -> bytes:
        return model.backbone.head_weight.detach().numpy().tobytes()

    def watched(step: int) -> list[Episode]:
        seen[step] = weights(actor)
        episodes = play(step)
        for place, episode in enumerate(episodes):
            episode.rewards = [float(place % 5)]  # so that every step has something to learn
        return episodes

    after = {0: weights(language)}
    logged: list[float] = []

    def log(step: int, values: dict[str, float]) -> None:
        after[step] = weights(language)
        logged.append(values["mismatch"])

    reinforce(language, how, tmp_path, 0, Callbacks(watched, log), actor)
    assert len(set(after.values())) == 7
    played_with = {step: next(k for k, known in after.items() if known == seen[step]) for step in seen}
    assert played_with == {0: 0, 1: 0, 2: 1, 3: 3, 4: 3, 5: 4}
    assert max(logged[0], logged[3]) < 1e-4 < min(logged[1], logged[2])


def test_a_policy_that_plays_itself_is_never_played_while_it_learns(tmp_path: Path) -> None:
    language, how = make_tiny(), settings(Grpo(), 4, async_rollout=True)
    logged: list[dict[str, float]] = []
    reinforce(language, how, tmp_path, 0, Callbacks(play_with(language), lambda step, values: logged.append(values)))
    assert max(values.get("mismatch", 0.0) for values in logged) < 1e-4


def test_what_fails_ahead_fails_the_run(tmp_path: Path) -> None:
    language, how = make_tiny(), settings(Grpo(), 4, async_rollout=True)
    actor = actor_of(language, how)
    play = play_with(actor)

    def fails(step: int) -> list[Episode]:
        if step == 1:
            raise OneiroError("the world is closed")
        return play(step)

    with pytest.raises(OneiroError, match="the world is closed"):
        reinforce(language, how, tmp_path, 0, Callbacks(fails, lambda step, values: None), actor)


def test_environment_tokens_get_a_weight_only_after_the_first_reply() -> None:
    from oneiro.learning.update import environment_tokens

    language = make_tiny()
    (episode, *_) = play_with(language)(0)
    row = episode.rows[0]
    row.segments.append(given([8, 9], turn=2))
    np.testing.assert_allclose(environment_tokens(row), [0, 0, 0, 0, 0, 0, 0, 0, 1, 1])


def test_the_weight_of_environment_tokens_is_that_of_their_component() -> None:
    """A token's own weight would be divided out again by the component's mean."""
    from oneiro.learning.loop import learner_settings

    assert learner_settings(RlSettings(environment_ce=0.25)).loss.ce == 0.25
    assert learner_settings(RlSettings()).loss.ce == 1.0


def test_a_constant_needs_a_budget_and_takes_the_rollouts() -> None:
    from oneiro.learning.loop import learner_settings

    how = RlSettings(algorithm=DrGrpo())
    with pytest.raises(OneiroError, match=r"learner.loss.max_tokens"):
        learner_settings(how)
    assert learner_settings(how, 60).loss.max_tokens == 60
    own = RlSettings(algorithm=DrGrpo(), learner=LearnerSettings(loss=LossSettings(max_tokens=7)))
    assert learner_settings(own, 60).loss.max_tokens == 7


def scored(play, scores):  # type: ignore[no-untyped-def]
    """The same play with the scores that a step's groups are given: `scores(step, group, member)`."""

    def again(step: int) -> list[Episode]:
        episodes = play(step)
        for place, episode in enumerate(episodes):
            episode.rewards = [float(scores(step, episode.group, place % 6))]
        return episodes

    return again


def test_the_schedule_advances_past_steps_without_anything_to_learn(tmp_path: Path) -> None:
    language, logged = make_tiny(), []
    how = settings(Grpo(), 4, minibatches=2)
    falling = OptimiserSettings(lr=0.8, schedule="linear")
    how = how.model_copy(update={"learner": LearnerSettings(optimiser=falling)})
    play = scored(play_with(language), lambda step, group, member: member if step != 1 else 0)
    reinforce(language, how, tmp_path, 0, Callbacks(play, lambda step, values: logged.append(values)))
    # Eight updates fall from 0.8 by 0.1 each; the last of a step is logged, and the second step has none.
    assert [values.get("lr") for values in logged] == [pytest.approx(0.7), None, pytest.approx(0.3), pytest.approx(0.1)]


def test_groups_without_std_are_drawn_again_up_to_a_bound(tmp_path: Path) -> None:
    language, drawn, logged = make_tiny(), [], []
    play = play_with(language)

    def watched(number: int) -> list[Episode]:
        drawn.append(number)
        # Step 0: all groups vary. Step 1: one of four does, as in every later batch. Step 2: nothing ever.
        varying = {0: 4, 2: 0, 7: 0, 8: 0}.get(number, 1)
        return scored(play, lambda step, group, member: member if group < varying else 1)(number)

    how = settings(Grpo(), 3, filter=FilterSettings(refill=2))
    reinforce(language, how, tmp_path, 0, Callbacks(watched, lambda step, values: logged.append(values)))
    assert drawn == [0, 1, 5, 6, 2, 7, 8]
    assert [values["groups_drawn"] for values in logged] == [4, 12, 12]
    assert [values["groups_kept"] for values in logged] == [4, 3, 0]
    assert logged[1]["group_std"] == pytest.approx(3 * np.std(range(6)) / 12)


def test_a_refill_never_makes_a_batch_larger(tmp_path: Path) -> None:
    language, logged = make_tiny(), []
    play = scored(play_with(language), lambda step, group, member: member if step or group else 0)
    how = settings(Grpo(), 1, filter=FilterSettings(refill=3))
    reinforce(language, how, tmp_path, 0, Callbacks(play, lambda step, values: logged.append(values)))
    assert logged[0]["groups_drawn"] == 8 and logged[0]["groups_kept"] == 4


def test_episodes_cut_by_the_token_limit_leave_the_policy_loss(tmp_path: Path) -> None:
    """The same weights as if only the whole episodes had been learned from, with the advantages of all."""
    from oneiro.learning.loop import make_learners
    from oneiro.learning.update import learn

    def go(masked: bool) -> tuple[dict[str, float], LanguageModel]:
        language = make_tiny()
        how = settings(Grpo(), 1, mask_truncated=True)
        episodes = scored(play_with(language), lambda step, group, member: member)(0)
        for place, episode in enumerate(episodes):
            segment = episode.rows[0].segments[1]
            assert segment.finish_reason is FinishReason.LENGTH
            cut = place % 3 == 0
            segment.finish_reason = FinishReason.LENGTH if cut and masked else FinishReason.TOKEN
            if cut and not masked:
                segment.weights = {"policy": 0.0}
        found = learn(episodes, how, make_learners(language, how, how.learner, 1), None, 0)
        return found, language

    masked, language = go(True)
    expected, other = go(False)
    assert masked.pop("masked") == pytest.approx(1 / 3) and expected.pop("masked") == 0
    assert masked == expected
    for (_, a), (_, b) in zip(language.trainable(), other.trainable(), strict=True):
        assert torch.equal(a, b)


def test_rows_remember_the_advantages_of_their_tokens(tiny: LanguageModel) -> None:
    row = [Row([given([3, 4]), Segment(np.array([5, 6]), True, logprobs=np.zeros(2))]) for _ in range(3)]
    episodes = [Episode([row[n]], [float(n)], group=n // 2) for n in range(3)]
    how = settings(Rloo(), 1)
    loop.learn(episodes, how, loop.make_learners(tiny, how, how.learner, 1), None, 0)
    # Each against the other of its group; the third is alone in its own.
    assert [one.advantages.tolist() for one in row[:2] if one.advantages is not None] == [[0, 0, -1, -1], [0, 0, 1, 1]]


def test_where_all_episodes_were_cut_nothing_is_learned(tmp_path: Path) -> None:
    language, logged = make_tiny(), []
    before = [p.detach().clone() for _, p in language.trainable()]
    play = scored(play_with(language), lambda step, group, member: member)
    how = settings(Grpo(), 1, mask_truncated=True)
    reinforce(language, how, tmp_path, 0, Callbacks(play, lambda step, values: logged.append(values)))
    assert logged[0]["masked"] == 1 and "loss" not in logged[0]
    assert all(torch.equal(a, b) for a, (_, b) in zip(before, language.trainable(), strict=True))


def adapted(seed: int = 0) -> LanguageModel:
    """An adapter that says something."""
    torch.manual_seed(seed)
    language = with_lora(make_tiny(), LoraSettings(rank=2))
    with torch.no_grad():
        for _, parameter in language.trainable():
            parameter.normal_(0, 0.1)
    return language


def test_the_reference_of_an_adapter_is_the_adapter_as_it_was(tiny: LanguageModel) -> None:
    from oneiro.learning.learner import Learner

    language = adapted()
    learner = Learner(language.backbone, LearnerSettings(), 1)
    examples = [Example.of(row) for episode in play_with(language)(0) for row in episode.rows]
    start, _ = learner.logprobs(examples)
    reference = Reference(language.backbone, ReferenceSettings())
    assert reference.model is None and set(reference.weights) == {name for name, _ in language.trainable()}
    with torch.no_grad():
        for _, parameter in language.trainable():
            parameter.add_(0.1)
    moved = [p.detach().clone() for _, p in language.trainable()]
    found = reference.logprobs(examples, learner)
    assert all(np.array_equal(a, b) for a, b in zip(found, start, strict=True))
    assert all(torch.equal(a, p) for a, (_, p) in zip(moved, language.trainable(), strict=True))  # put back


@pytest.mark.parametrize("make", [make_tiny, adapted])
def test_a_reference_that_follows_is_a_moving_average(make) -> None:  # type: ignore[no-untyped-def]
    language = make()
    reference = Reference(language.backbone, ReferenceSettings(sync_every=2, mix=0.25))
    name, parameter = language.trainable()[0]
    start = parameter.detach().clone()
    expected = start.clone()
    for step in range(1, 5):
        with torch.no_grad():
            parameter.add_(1.0)
        reference.follow(step)
        if step % 2 == 0:
            expected = 0.75 * expected + 0.25 * (start + step)
    torch.testing.assert_close(reference.weights[name], expected)
    if reference.model is not None:
        torch.testing.assert_close(dict(reference.model.named_parameters())[name].detach(), expected)
    untouched = Reference(language.backbone, ReferenceSettings())
    assert not untouched.state()


def test_supervised_learning_resumes_bit_for_bit(tmp_path: Path) -> None:
    rows = [Row([given([i % 9, 2, 3]), given([10 + i % 5, 11], ce=1.0)]) for i in range(40)]
    chosen = sft.SftSettings(batch=8, epochs=2.0, checkpoint_every=3)

    class Killed(Exception):
        pass

    def go(folder: Path, stop_at: int | None) -> tuple[list[tuple[int, float]], LanguageModel]:
        language, logged = make_tiny(), []

        def log(step: int, values: dict[str, float]) -> None:
            if step == stop_at:
                raise Killed
            logged.append((step, values["ce"]))

        with contextlib.suppress(Killed):
            sft.train(language, rows, rows[:4], chosen, folder, 0, log)
        return logged, language

    whole, expected = go(tmp_path / "whole", None)
    go(tmp_path / "cut", 8)
    rest, found = go(tmp_path / "cut", None)
    assert len(whole) == 10 and rest == whole[6:] and whole[-1][1] < whole[0][1]
    for (name, a), (_, b) in zip(expected.trainable(), found.trainable(), strict=True):
        assert torch.equal(a, b), name


def test_overfitting_is_noticed_on_held_out_rows(tiny: LanguageModel, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [Row([given(rng.integers(3, 60, 8), ce=1.0)]) for _ in range(24)]  # nothing in them to be understood
    learner = LearnerSettings(optimiser=OptimiserSettings(lr=1e-2, schedule="constant", warmup=0.0))
    settings = sft.SftSettings(batch=8, epochs=40.0, checkpoint_every=100, learner=learner)
    logged: list[tuple[int, float]] = []

    def log(step: int, values: dict[str, float]) -> None:
        if "held_out_ce" in values:
            logged.append((step, values["held_out_ce"]))

    sft.train(tiny, rows[:16], rows[16:], settings, tmp_path, 0, log)
    assert [step for step, _ in logged] == [20, 40, 60, 80]
    said = sft.overfitting(logged)
    assert said is not None and f"{logged[-1][1]:.3g} now" in said
    assert sft.overfitting([(1, 2.0), (2, 1.0), (3, 1.04)]) is None and sft.overfitting(logged[:1]) is None


def test_every_row_is_seen_once_an_epoch() -> None:
    seen = [i for step in range(10) for i in sft.order(40, 3, step, 8)]
    assert sorted(seen[:40]) == list(range(40)) == sorted(seen[40:]) and seen[:40] != seen[40:]


def test_a_step_is_timed_before_the_checkpoint_that_a_resumed_run_starts_from(tmp_path: Path) -> None:
    """Killed anywhere, no step that a checkpoint holds lacks its time."""
    language, timed = make_tiny(), list[tuple[int, set[str]]]()
    seen: list[tuple[int, int]] = []

    def time(step: int, values: dict[str, float]) -> None:
        timed.append((step, set(values)))
        newest = checkpoint.latest(tmp_path)
        assert newest is not None
        seen.append((step, int(newest.name.removeprefix("step-"))))

    callbacks = Callbacks(play_with(language), lambda step, values: None, time)
    reinforce(language, settings(Grpo(), 2).model_copy(update={"checkpoint_every": 2}), tmp_path, 0, callbacks)
    assert [step for step, _ in timed] == [1, 2, 2]
    assert seen == [(1, 0), (2, 0), (2, 2)] and timed[-1][1] == {"checkpointing"} and "learning" in timed[1][1]


class Killed(Exception):
    pass


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_resumed_run_goes_on_with_the_same_learning_rates(schedule: str, tmp_path: Path) -> None:
    def play(step: int) -> list[Episode]:
        rng = np.random.default_rng(step)
        replies = [
            Segment(rng.integers(3, 99, 4), True, logprobs=rng.normal(-3, 0.2, 4), params=SamplingParams())
            for _ in range(3)
        ]
        return [Episode([Row([given([5, 6, 7]), reply])], rewards=[rng.normal()]) for reply in replies]

    def rates(folder: Path, stop_at: int) -> list[float]:
        found: list[float] = []

        def play_or_die(step: int) -> list[Episode]:
            if step == stop_at:
                raise Killed
            return play(step)

        optimiser = OptimiserSettings(lr=1e-3, schedule=schedule, warmup=2)  # type: ignore[arg-type]
        settings = RlSettings(
            steps=6,
            algorithm=Grpo(),
            learner=LearnerSettings(optimiser=optimiser, loss=LossSettings()),
            epochs=2,
            checkpoint_every=2,
        )
        parts = Callbacks(play_or_die, lambda step, values: found.append(values["lr"]))
        with contextlib.suppress(Killed):
            reinforce(make_tiny(), settings, folder, 0, parts)
        return found

    whole = rates(tmp_path / "whole", -1)
    before = rates(tmp_path / "killed", 4)
    after = rates(tmp_path / "killed", -1)
    assert before + after == whole and len(set(whole)) >= 5


def reply(*tokens: int, turn: int = 0, temperature: float = 1.0, **more: Any) -> Segment:
    logprobs = -np.arange(1, len(tokens) + 1) / 4
    return Segment(np.array(tokens), True, turn=turn, logprobs=logprobs, params=SamplingParams(temperature), **more)


def family(prefix: list[int], *lengths: int, start: int = 100) -> list[Example]:
    """Rows behind one prefix; tokens of a row count up, so that places can be told."""
    rows = [Row([given(prefix), reply(*range(start + 10 * i, start + 10 * i + n))]) for i, n in enumerate(lengths)]
    return [Example.of(row) for row in rows]


def test_training_samples_gather_and_scatter_over_rows() -> None:
    rows = [Row([given([1]), reply(2, 3, turn=1)]), Row([given([4, 5]), reply(6, turn=2), given([7], turn=2)])]
    episode = Episode(rows, rewards=[1.0, 2.0], group=5)
    examples = examples_of(episode, RlSettings(environment_ce=0.5))
    assert [e.weights["ce"].tolist() for e in examples] == [[0, 0, 0], [0, 0, 0, 1]]
    scatter(examples, "advantages", np.array([10.0, 20.0, 30.0], np.float32))
    assert [e.columns["advantages"].tolist() for e in examples] == [[0, 10, 20], [0, 0, 30, 0]]
    assert gather(examples, (e.columns["advantages"] for e in examples)).tolist() == [10, 20, 30]
    scatter(examples, "reference", np.array([-1.0, -1.0, -2.0], np.float32))
    plain = trajectory_of(episode, examples, RlSettings())
    assert plain.rewards.tolist() == [0, 1, 2] and plain.values is None and (plain.group, plain.score) == (5, 3.0)
    # k1 costs 0.75, 0.5 and 1.75, half of each is taken off.
    found = trajectory_of(episode, examples, RlSettings(kl_in_reward=0.5))
    assert found.rewards.tolist() == [-0.375, 0.75, 1.125] and found.score == pytest.approx(3 - 1.5)
    # The first row's log-probabilities recomputed: k1 costs nothing there.
    examples[0].columns["old"] = np.array([0.0, -1.0, -1.0], np.float32)
    assert trajectory_of(episode, examples, RlSettings(kl_in_reward=0.5)).rewards.tolist() == [0, 1, 1.125]
    scatter(examples, "values", np.array([7.0, 8.0, 9.0], np.float32))
    assert trajectory_of(episode, examples, RlSettings()).values.tolist() == [7, 8, 9]  # type: ignore[union-attr]


def test_cut_replies_are_told_by_their_own_reason() -> None:
    cut = reply(2, finish_reason=FinishReason.LENGTH)
    ended = reply(2, finish_reason=FinishReason.TOKEN)
    given_cut = given([3])
    given_cut.finish_reason = FinishReason.LENGTH
    assert update.is_truncated(Episode([Row([given([1]), ended]), Row([given([1]), cut])]))
    assert not update.is_truncated(Episode([Row([given([1]), ended, given_cut])]))
    masked = examples_of(Episode([Row([given([1]), cut]), Row([given([1]), ended])]), RlSettings(mask_truncated=True))
    assert [e.weights["policy"].tolist() for e in masked] == [[0, 0], [0, 0]]
    assert [e.weights["kl"].tolist() for e in masked] == [[0, 1], [0, 1]]
    whole = examples_of(Episode([Row([given([1]), ended])]), RlSettings(mask_truncated=True))
    assert whole[0].weights["policy"].tolist() == [0, 1]


def test_a_refill_numbers_its_batches_behind_the_last_step_and_its_groups_behind_the_last_group() -> None:
    def batch(*scores: float, group: int = 0) -> list[Episode]:
        return [Episode([Row([given([1]), reply(2)])], rewards=[s], group=group) for s in scores]

    asked: list[int] = []

    def more(number: int) -> list[Episode]:
        asked.append(number)
        return batch(0.0, float(len(asked) > 1), group=2)

    settings = RlSettings(steps=10, filter=FilterSettings(refill=3))
    found = loop.refill(batch(1.0, 1.0, group=4), 1, 2, settings, more)
    assert asked == [16, 17] and [e.group for e in found] == [4, 4, 7, 7, 10, 10]
    asked.clear()
    assert len(loop.refill(batch(0.0, 1.0), 1, 2, settings, more)) == 2 and asked == []
    assert [e.group for e in loop.refill([], 1, 0, settings, more)] == [3, 3, 6, 6] and asked == [10, 11]
    asked.clear()
    loop.refill(batch(1.0, 1.0), 9, 0, settings, more)
    assert asked == [10, 11, 12]
    broken = replace(batch(5.0)[0], finish_reason=FinishReason.ERROR)
    silent = Episode([Row([given([1])])], rewards=[3.0])
    (good,) = batch(1.0)
    assert update.learnable([broken, silent, good]) == [good]


def test_what_the_loop_says_about_the_loss_and_who_learns(tiny: LanguageModel) -> None:
    settings = RlSettings(environment_ce=0.3, learner=LearnerSettings(loss=LossSettings(max_tokens=9)))
    assert loop.learner_settings(settings, 70).loss.max_tokens == 9 and loop.learner_settings(settings).loss.ce == 0.3
    assert (
        loop.learner_settings(RlSettings(), 70).loss.max_tokens == 70
        and loop.learner_settings(RlSettings()).loss.ce == 1.0
    )
    plain = loop.make_learners(tiny, RlSettings(), LearnerSettings(), 5, seed=3)
    assert list(plain) == ["policy"] and (plain["policy"].steps, plain["policy"].seed) == (5, 3)
    assert plain["policy"].value_head is None and plain["policy"].has_lm_head
    shared = loop.make_learners(tiny, RlSettings(algorithm=Ppo(), shared_backbone=True), LearnerSettings(), 5, seed=3)
    assert list(shared) == ["policy"] and shared["policy"].value_head is not None and shared["policy"].seed == 3
    critic = OptimiserSettings(lr=0.25)
    both = loop.make_learners(tiny, RlSettings(algorithm=Ppo(), critic=critic), LearnerSettings(), 5, seed=3)
    assert list(both) == ["policy", "critic"] and both["critic"].settings.optimiser == critic
    assert both["policy"].settings.optimiser == OptimiserSettings() and both["policy"].value_head is None
    assert not both["critic"].has_lm_head and both["critic"].backbone is not tiny.backbone
    assert (both["critic"].steps, both["critic"].seed, both["policy"].steps, both["policy"].seed) == (5, 3, 5, 3)
    assert len(loop.modules(both)) == 3 and len(loop.modules(plain)) == 1
    assert RlSettings(epochs=3, minibatches=4).updates_per_step == 12


def test_minibatches_are_even_random_and_in_order() -> None:
    rows = [*family([1, 2, 3], 1, 1, 1, 1, 1), *family([4], 1), *family([5], 1), *family([6], 1)]
    parts = update.minibatches(rows, 2, seed=1)
    assert sorted(i for p in parts for i in p) == list(range(8)) and [len(p) for p in parts] == [4, 4]
    assert all(p == sorted(p) for p in parts) and any({0, 1, 2, 3} <= set(p) for p in parts)
    assert update.minibatches(rows, 1, seed=1) == [list(range(8))]
    assert len({str(update.minibatches(rows, 3, seed)) for seed in range(6)}) > 1
    order = seeds.generator(4).permutation(3)
    assert update.minibatches(family([1], 1, 1, 1), 5, 4) == [[int(order[k])] for k in range(3)]


def test_one_turn_is_as_long_as_its_tokens() -> None:
    reply = Segment(np.array([2, 3, 4], np.int32), True, logprobs=np.zeros(3, np.float32), params=SamplingParams())
    episode = Episode([Row([given([1]), reply])], [1.0])
    assert loop.describe([episode])["response_length"] == 3.0


def test_an_actor_follows_the_policy_and_plays_ahead_with_what_it_knew(tiny: LanguageModel) -> None:
    actor = copy_of(tiny)
    assert not any(p.requires_grad for p in actor.backbone.parameters()) and actor.backbone is not tiny.backbone
    seen: list[tuple[int, float]] = []

    def play(step: int) -> list[Episode]:
        seen.append((step, float(actor.backbone.norm.weight.detach()[0])))
        return [Episode([], seed=step)]

    def set_policy(value: float) -> None:
        with torch.no_grad():
            tiny.backbone.norm.weight[0] = value

    handed = list[tuple[int, float]]()

    def hand_over(step: int) -> None:
        handed.append((step, float(tiny.backbone.norm.weight[0])))

    with AsyncRollout(play, tiny, actor, hand_over) as rollout:
        set_policy(1.0)
        assert rollout.episodes(0)[0].seed == 0
        rollout.begin(1)
        assert rollout._coming is not None and rollout._coming.result()[0].seed == 1
        set_policy(2.0)
        assert rollout.episodes(1)[0].seed == 1 and rollout._coming is None
        assert rollout.more(7)[0].seed == 7
        assert rollout.episodes(2)[0].seed == 2
    assert seen == [(0, 1.0), (1, 1.0), (7, 1.0), (2, 2.0)]
    assert handed == [(0, 1.0), (1, 1.0), (2, 2.0)]  # once a step, and what is played ahead before the update
    with AsyncRollout(lambda step: [Episode([], seed=step)], tiny, tiny, hand_over) as own:
        own.begin(3)
        assert len(handed) == 3
        assert own._coming is None and own.episodes(4)[0].seed == 4
