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
    first_reply,
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


# Once more, written out -----------------------------------------------------------------------------------------------


def test_everything_about_the_information_is_as_written_out_sample_by_sample() -> None:
    random = np.random.default_rng(0)
    scores, own, lengths = (
        random.normal(-8, 3, (7, 5)),
        np.array([0, 1, 2, 3, 4, 2, 0]),
        np.array([1, 2, 3, 4, 5, 6, 7]),
    )

    def gains(table: np.ndarray) -> tuple[list[float], list[float]]:
        matched = [table[i, own[i]] for i in range(7)]
        return matched, [math.log(sum(math.exp(v) for v in row) / 5) for row in table]

    matched, marginal = gains(scores)
    each, marginal_each = gains(scores / lengths[:, None])
    std = float(np.std(marginal_each))
    token = float(np.mean(each) - np.mean(marginal_each))
    found = information(scores, own, lengths, deviation=2.0)
    expected = {
        "mi": np.mean(matched) - np.mean(marginal),
        "mi_most": math.log(5),
        "mi_token": token,
        "mi_z": token / (std + 0.001),
        "mi_z_ema": token / (0.9 * 2 + 0.1 * std + 0.001),
        "marginal_std_ema": 0.9 * 2 + 0.1 * std,
        "reasoning_nats": -np.mean(each),
        "retrieval_chance": 0.2,
    }
    for k in (1, 2, 4):
        better = [sum(value > row[own[i]] for value in row) for i, row in enumerate(scores)]
        expected[f"retrieval@{k}"] = np.mean([place < k for place in better])
    assert found == pytest.approx(expected)
    # Long reasoning is so unlikely that no float holds its probability.
    far = information(scores - [[4000.0, 2000, 4000, 4000, 4000]], own, lengths)
    assert far["mi"] == pytest.approx(
        np.mean([scores[i, o] - scores[i, 1] - (o != 1) * 2000 for i, o in enumerate(own)]) + math.log(5)
    )
    first = information(scores, own, lengths)
    assert first["marginal_std_ema"] == pytest.approx(std) and first["mi_z_ema"] == pytest.approx(first["mi_z"])


def test_the_first_reply_ends_where_somebody_else_speaks() -> None:
    def reply(*tokens: int) -> Segment:
        return Segment(list(tokens), sampled=True, logprobs=np.zeros(len(tokens)), params=SamplingParams(0.5))

    def found(*segments: Segment) -> tuple[list[int], list[int]] | None:
        answer = first_reply(Row(list(segments)))
        return answer and (answer[0].tolist(), answer[1].tolist())

    assert found(given([1, 2]), reply(3, 4), given([5]), reply(6)) == ([1, 2], [3, 4])
    assert found(given([1]), reply(3, 4)) == ([1], [3, 4])
    assert found(reply(3), reply(4)) == ([], [3, 4])
    assert found(given([1, 2])) is None


def test_pairs_leave_out_empty_reasoning_and_prompts_beyond_the_first_few() -> None:
    played = [episode([g, g], [3, 4, 5][: m + 1], g) for g in range(6) for m in range(3)]
    pairs = Pairs.of(played, samples=9, reasoning=lambda tokens: len(tokens) - 1)
    # Two prompts at most for 9 samples; of each the replies with reasoning, first ones first.
    assert [p.tolist() for p in pairs.prompts] == [[0, 0], [1, 1]]
    assert [r.tolist() for r in pairs.replies] == [[3], [3], [3, 4], [3, 4]] and pairs.own.tolist() == [0, 1, 0, 1]
    assert len(Pairs.of(played, samples=12).prompts) == 3
    assert len(Pairs.of(played, samples=2).prompts) == 2 and len(Pairs.of(played, samples=5).replies) == 5
    unused = Pairs.of([episode([1], [2], 0)] * 5 + [episode([2], [2], 1)] * 5, samples=4)
    assert unused.own.tolist() == [0, 1, 0, 1] and unused.temperature == 0.5
    assert Pairs.of([], 8).temperature == 1.0


def test_a_look_comes_every_so_many_steps_and_takes_two_prompts() -> None:
    learner = Learner(make_tiny().backbone, LearnerSettings(), 1)
    played = [episode([3, 4], [5, 6], 0), episode([7], [8], 1), episode([7], [9, 5], 1)]
    watch = CollapseMonitor(CollapseMonitorSettings(every=3, samples=8))
    looks = [set(watch.measure(step, played, learner)) for step in range(1, 8)]
    assert [bool(look) for look in looks] == [True, False, False, True, False, False, True]
    assert watch.measure(1, played[:1], learner) == {}
    assert CollapseMonitor(CollapseMonitorSettings(every=0)).measure(1, played, learner) == {}
    pairs = Pairs.of(played, 8)
    plain = information(cross(learner, pairs), pairs.own, pairs.lengths)
    assert watch.measure(4, played, learner) == pytest.approx(plain)
    watch.deviation = 5.0
    assert watch.measure(4, played, learner)["marginal_std_ema"] == pytest.approx(4.5 + 0.1 * plain["marginal_std_ema"])
    short = CollapseMonitor(CollapseMonitorSettings(every=1, samples=8), reasoning=lambda tokens: 1)
    assert short.measure(1, played, learner)["mi"] != pytest.approx(plain["mi"])


def test_the_watch_at_its_edges() -> None:
    watch = CollapseMonitor(CollapseMonitorSettings(min_std=0.5, patience=2))
    # Exactly half of the first ten steps' mean is alike; the first ten are never judged.
    assert steps(watch, [0.0] * 5 + [4.0] * 5 + [1.0, 1.01, 1.0, 1.0])[-2:] != [None, None]
    assert watch.alike == 2 and watch.reason is not None and "step 14" in watch.reason
    assert len(watch.first) == 10
    watch = CollapseMonitor(CollapseMonitorSettings())
    for step, success in enumerate([0.0, 0.0, 0.0, 0.0, 0.01, 0.0], start=1):
        watch.see(step, {"group_std": 1.0, "success": 0.2, "eval_success": success})
    assert (watch.lost, watch.notes) == (1, [])
    watch.see(7, {"group_std": 1.0, "success": 0.2, "eval_success": None, "marginal_std_ema": 0.25})
    watch.see(8, {"group_std": 1.0, "success": 0.2, "marginal_std_ema": None})
    assert (watch.lost, watch.deviation) == (1, 0.25)
    for success, said in ((0.9, "has collapsed"), (0.91, "little left")):
        watch = CollapseMonitor(CollapseMonitorSettings(patience=1))
        assert said in str(steps(watch, [1.0] * 10 + [0.1], success=success)[-1])


def test_pass_at_k_goes_as_far_as_the_smallest_group() -> None:
    def groups(*sizes: int) -> dict[str, float]:
        return pass_over([episode([1], [2], g, m == 0) for g, size in enumerate(sizes) for m in range(size)])

    assert set(groups(3, 5)) == {"pass@2"} and set(groups(4, 9)) == {"pass@2", "pass@4"}
    assert set(groups(7, 8)) == {"pass@2", "pass@4"} and set(groups(8)) == {"pass@2", "pass@4", "pass@8"}
    assert groups(1, 4) == {} and groups(2) == {"pass@2": 1.0}
    # One of four succeeded, and one of five: 1 - C(3,2)/C(4,2) = 1/2, 1 - C(4,2)/C(5,2) = 2/5.
    assert groups(4, 5)["pass@2"] == pytest.approx(0.45)
