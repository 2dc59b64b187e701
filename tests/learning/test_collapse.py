"""The collapse watch: mutual information by hand, the stop rule by hand, and a stopped run that stays stopped."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from oneiro.episode import Episode, Row, SamplingParams, Segment, given
from oneiro.learning.algorithms import Grpo
from oneiro.learning.collapse import (
    CollapseMonitor,
    CollapseMonitorSettings,
    Pairs,
    cross,
    information,
    pass_over,
    retrieval,
)
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.loop import Callbacks, RlSettings, reinforce
from oneiro.sampling.engine import Engine, SamplingSettings
from tests.conftest import make_tiny


def test_mutual_information_of_two_prompts_is_as_worked_by_hand() -> None:
    # p(z|x): each reasoning is 4 times as likely after its own prompt. H(Z|X) = -log 0.8, H(Z) = -log 0.5.
    found = information(np.log([[0.8, 0.2], [0.2, 0.8]]), np.array([0, 1]), np.array([1, 1]))
    assert found["mi"] == pytest.approx(math.log(0.8 / 0.5))
    assert found["mi_token"] == pytest.approx(found["mi"]) and found["mi_most"] == pytest.approx(math.log(2))
    assert found["reasoning_nats"] == pytest.approx(-math.log(0.8))
    assert found["retrieval@1"] == 1.0 and found["retrieval_chance"] == 0.5 and "retrieval@2" not in found
    # Both marginals are 0.5: their deviation is 0, and only the small constant is left to divide by.
    assert found["mi_z"] == pytest.approx(math.log(1.6) / 1e-3)


def test_a_template_written_whatever_was_asked_has_no_information() -> None:
    found = information(np.full((6, 4), -3.0), np.array([0, 1, 2, 3, 0, 1]), np.full(6, 2))
    assert found["mi"] == pytest.approx(0) and found["mi_z"] == pytest.approx(0)
    assert found["retrieval@1"] == found["retrieval_chance"] == 0.25 and found["retrieval@2"] == 0.5


def test_reasoning_that_fits_only_its_own_prompt_has_all_the_information_there_is() -> None:
    scores = np.full((3, 3), -1000.0)
    np.fill_diagonal(scores, -5.0)
    found = information(scores, np.arange(3), np.array([1, 10, 100]))
    assert found["mi"] == pytest.approx(math.log(3)) == pytest.approx(found["mi_most"])


def test_the_token_variant_divides_by_length_and_the_z_score_by_the_marginals_deviation() -> None:
    # One reasoning of 2 tokens with p = 0.36 and 0.04 (a token: 0.6 and 0.2), one of 1 token with p = 0.1 and 0.3.
    scores = np.log([[0.36, 0.04], [0.1, 0.3]])
    found = information(scores, np.array([0, 1]), np.array([2, 1]), deviation=1.0)
    assert found["mi"] == pytest.approx((math.log(0.36 / 0.2) + math.log(0.3 / 0.2)) / 2)
    gain = (math.log(0.6 / 0.4) + math.log(0.3 / 0.2)) / 2
    deviation = abs(math.log(0.4) - math.log(0.2)) / 2
    assert found["mi_token"] == pytest.approx(gain)
    assert found["mi_z"] == pytest.approx(gain / (deviation + 1e-3))
    smooth = 0.9 * 1.0 + 0.1 * deviation
    assert found["marginal_std_ema"] == pytest.approx(smooth)
    assert found["mi_z_ema"] == pytest.approx(gain / (smooth + 1e-3))


def test_retrieval_counts_ranks_and_draws_ties_by_lot() -> None:
    scores = np.array([[0.0, 1.0, 2.0], [5.0, 5.0, 1.0]])
    own = np.array([1, 0])
    assert retrieval(scores, own, 1) == pytest.approx((0 + 0.5) / 2)
    assert retrieval(scores, own, 2) == 1.0


def episode(prompt: list[int], reply: list[int], group: int, success: bool = False) -> Episode:
    sampled = Segment(reply, sampled=True, turn=1, logprobs=np.zeros(len(reply)), params=SamplingParams(0.5))
    later = [
        given([9, 9], turn=2),
        Segment([8], sampled=True, turn=2, logprobs=np.zeros(1), params=SamplingParams(0.5)),
    ]
    return Episode([Row([given(prompt, turn=1), sampled, *later])], group=group, success=success)


def test_pairs_are_first_replies_spread_evenly_over_prompts() -> None:
    played = [episode([1, 2], [3, 4, 5], 0), episode([1, 2], [6], 0), episode([1, 2], [7], 0), episode([2], [4, 3], 1)]
    pairs = Pairs.of(played, samples=3, reasoning=lambda tokens: min(2, len(tokens)))
    assert [p.tolist() for p in pairs.prompts] == [[1, 2], [2]] and pairs.temperature == 0.5
    assert [r.tolist() for r in pairs.replies] == [[3, 4], [4, 3], [6]]
    assert pairs.own.tolist() == [0, 1, 0] and pairs.lengths.tolist() == [2, 2, 1]
    assert Pairs.of([Episode([])], samples=4).prompts == []
    many = Pairs.of([episode([g], [3, m], g) for g in range(30) for m in range(8)], samples=64)
    assert len(many.prompts) == 16 and np.bincount(many.own).tolist() == [4] * 16


def test_log_probabilities_after_the_own_prompt_are_the_samplers() -> None:
    language = make_tiny()
    prompts = [np.array([3, 4, 5]), np.array([6, 7]), np.array([8, 9, 10, 11])]
    sampled = Engine(language, 8).generate(prompts, 2, SamplingSettings(max_tokens=6, temperature=0.7), seed=3)
    played = [
        Episode([Row([given(prompt), *sample.segments(turn=1)])], group=g)
        for g, (prompt, samples) in enumerate(zip(prompts, sampled, strict=True))
        for sample in samples
    ]
    pairs = Pairs.of(played, 64)
    scores = cross(Learner(language.backbone, LearnerSettings(), 1), pairs)
    assert scores.shape == (6, 3)
    totals = {s.tokens.tobytes(): float(s.logprobs.sum()) for samples in sampled for s in samples}
    for row, own, reply in zip(scores, pairs.own, pairs.replies, strict=True):
        assert row[own] == pytest.approx(totals[reply.tobytes()], abs=1e-4)


def test_pass_at_k_over_training_is_the_unbiased_estimate_within_groups() -> None:
    played = [episode([1], [2], 0, s) for s in (True, False, False, False)]
    played += [episode([1], [2], 1, s) for s in (True, True, False, False)]
    # pass@2: 1 - C(3,2)/C(4,2) = 1/2 and 1 - C(2,2)/C(4,2) = 5/6.
    assert pass_over(played) == {"pass@2": pytest.approx((1 / 2 + 5 / 6) / 2), "pass@4": 1.0}
    assert pass_over([episode([1], [2], 0)]) == {} == pass_over([])


def steps(watch: CollapseMonitor, stds: list[float], **values: float) -> list[str | None]:
    return [watch.see(i, {"group_std": s, "success": 0.2, **values}) for i, s in enumerate(stds, start=1)]


def test_ten_steps_below_a_tenth_of_the_first_spread_end_the_run() -> None:
    watch = CollapseMonitor(CollapseMonitorSettings())
    said = steps(watch, [1.0] * 5 + [3.0] * 5 + [0.19] * 9 + [0.21] + [0.19] * 10)
    assert said[:-1] == [None] * 29
    assert said[-1] is not None and "RL ended at step 30: for 10 steps" in said[-1] and "collapsed" in said[-1]
    assert "little left to learn" in str(
        steps(CollapseMonitor(CollapseMonitorSettings()), [1.0] * 10 + [0.0] * 10, success=0.99)[-1]
    )


def test_a_run_in_which_nothing_ever_earned_more_ends_and_says_so() -> None:
    watch = CollapseMonitor(CollapseMonitorSettings())
    reasons = [watch.see(step, {"group_std": 0.0, "success": 0.0}) for step in range(1, 21)]
    assert reasons[:-1] == [None] * 19 and reasons[-1] is not None
    assert "step 20" in reasons[-1] and "teach the form of a reply first" in reasons[-1]


def test_a_watch_told_not_to_stop_only_looks() -> None:
    assert steps(CollapseMonitor(CollapseMonitorSettings(stop=False)), [1.0] * 10 + [0.0] * 40) == [None] * 50


def test_failing_five_evaluations_in_a_row_is_reported_once() -> None:
    watch = CollapseMonitor(CollapseMonitorSettings())
    for step, success in enumerate([0.0, 0.0, 0.005, 0.02, 0.0, 0.0, 0.0, 0.0, 0.009, 0.0], start=1):
        watch.see(step, {"group_std": 1.0, "success": 0.2, "eval_success": success})
    assert len(watch.notes) == 1 and "step 9" in watch.notes[0] and watch.reason is None


def test_a_replayed_watch_is_the_one_that_saw_it_all() -> None:
    rows = [
        {"step": i, "group_std": s, "success": 0.5, "marginal_std_ema": 0.1 * i}
        for i, s in enumerate([1.0] * 10 + [0.01] * 7, start=1)
    ]
    seen, again = CollapseMonitor(CollapseMonitorSettings()), CollapseMonitor(CollapseMonitorSettings())
    for row in rows:
        seen.see(int(row["step"]), row)
    again.see(1, {"group_std": 0.0, "success": 0.0, "eval_success": 0.0})  # replaying forgets what was known
    assert again.replay(rows) is None and again == seen


def test_a_run_that_ended_early_stays_ended_when_it_is_started_again(tmp_path: Path) -> None:
    settings = RlSettings(steps=8, algorithm=Grpo(), checkpoint_every=3)

    def go() -> list[int]:
        language = make_tiny()
        engine, logged = Engine(language, 8), list[int]()
        looked = []

        def play(step: int) -> list[Episode]:
            (samples,) = engine.generate([np.array([3, 4])], 4, SamplingSettings(max_tokens=3), seed=step)
            rows = [Row([given([3, 4], turn=1), *sample.segments(turn=1)]) for sample in samples]
            return [Episode([row], rewards=[float(i)]) for i, row in enumerate(rows)]

        def extra_metrics(step: int, episodes: list[Episode], learner: Learner) -> dict[str, float]:
            looked.append(learner.updates)
            return {"seen": float(len(episodes))}

        def log(step: int, values: dict[str, float]) -> None:
            assert values["seen"] == 4 and looked[-1] == step - 1  # looked at before the update
            logged.append(step)

        parts = Callbacks(
            play,
            log,
            rewind=lambda step: "ended" if step == 5 else None,
            should_stop=lambda step, values: "ended" if step == 5 else None,
            extra_metrics=extra_metrics,  # type: ignore[arg-type]
        )
        assert reinforce(language, settings, tmp_path, 0, parts).name == "step-000005"
        return logged

    assert go() == [1, 2, 3, 4, 5]
    assert go() == []
