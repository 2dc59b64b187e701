"""Steps on many GPUs: parts by hand, the pipeline against events one by one, and what must hold for any recipe."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from oneiro.bench import rates
from oneiro.bench.rates import RatesSettings
from oneiro.capacity import forecast, plan, simulate
from oneiro.capacity.pace import TITLE, Pace
from oneiro.capacity.simulate import Draws, Latency, Simulation, Work, pipeline
from oneiro.capacity.sizes import Rates, Size
from oneiro.cli import app
from oneiro.errors import OneiroError
from oneiro.learning.rl_settings import RlSettings
from oneiro.recipe import load
from oneiro.report.table import Table

PACE = Pace(step_s=1.0, row_s=0.1, prompt_s=0.01, token_s=0.5, update_s=2.0, reduce_s=3.0, transfer_s=4.0)


def drawn(replies: list[list[float]], worlds: list[list[float]]) -> Draws:
    return Draws(np.array(replies), np.array(worlds))


# Parts, by hand -------------------------------------------------------------------------------------------------------


def test_a_call_is_over_when_the_gpu_with_most_to_do_is() -> None:
    # Two GPUs: one row of 3 tokens, and rows of 1 and 2. 3 + 0.3 + 0.1 and 2 + 0.3 + 0.2 seconds.
    call = simulate.sampling(PACE, np.array([3.0, 1.0, 2.0]), 10, 2)
    assert call.seconds == pytest.approx(3.4) and call.busy == pytest.approx(3.4 + 2.5)
    # More GPUs than rows: some have nothing to do.
    assert simulate.sampling(PACE, np.array([3.0]), 10, 8) == simulate.sampling(PACE, np.array([3.0]), 10, 1)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=12))
def test_a_call_takes_as_long_as_its_steps_one_by_one(lengths: list[int]) -> None:
    left, seconds = list(lengths), PACE.prompt_s * 7 * len(lengths)
    while any(left):
        seconds += PACE.step_s + PACE.row_s * sum(1 for tokens in left if tokens)
        left = [max(0, tokens - 1) for tokens in left]
    assert simulate.sampling(PACE, np.array(lengths, float), 7, 1).seconds == pytest.approx(seconds)


def test_worlds_here_answer_one_after_the_other_and_workers_at_once() -> None:
    draws = drawn([[2.0, 2.0]] * 2, [[5.0, 1.0]] * 2)
    work = Work(rows=2, turns=2, prompt=0, longest=2)
    # A turn: 2 steps of 1.2 s, then 6 s of worlds.
    assert simulate.rollout(work, PACE, draws, 1).seconds == pytest.approx(2 * (2.4 + 6.0))
    # Halves of one row: 2.2 s each. The first half is ready again at 7.2, is answered at 9.4 and ends at 14.4; the
    # second (ready at 5.4) is asked after it, at 9.4, and ends at 12.6.
    assert simulate.rollout(replace(work, workers=2), PACE, draws, 1).seconds == pytest.approx(14.4)
    # Two rows a half: 2.4 s each, then as long as the slower world of the half takes.
    four = Work(rows=4, turns=1, prompt=0, longest=2, workers=4)
    assert simulate.rollout(four, PACE, drawn([[2.0] * 4], [[5.0, 1.0] * 2]), 1).seconds == pytest.approx(4.8 + 5.0)
    # One worker: two waves of one row, 2 x (2.2 + 5) and 2 x (2.2 + 1).
    assert simulate.rollout(replace(work, workers=1), PACE, draws, 1).seconds == pytest.approx(14.4 + 6.4)


def test_a_shared_prompt_is_computed_once_in_the_first_turn() -> None:
    draws = drawn([[1.0, 1.0]] * 2, [[0.0, 0.0]] * 2)
    work = Work(rows=2, turns=2, prompt=100, longest=1)
    alone, group = (simulate.rollout(replace(work, group=n), PACE, draws, 1).seconds for n in (1, 2))
    assert alone - group == pytest.approx(100 * PACE.prompt_s)


def test_learning_is_divided_by_tokens_and_adds_gradients_up() -> None:
    draws = drawn([[4.0, 2.0, 2.0]], [[0.0] * 3])
    work = Work(rows=3, turns=1, prompt=2, longest=4, updates=2)
    # 14 tokens of 0.5 s and two updates of 2 s; on two GPUs 7 tokens and two reductions of 3 s.
    assert simulate.learning(work, PACE, draws, 1).seconds == pytest.approx(7.0 + 4.0)
    assert simulate.learning(work, PACE, draws, 2).seconds == pytest.approx(3.5 + 4.0 + 6.0)
    # The longest row, 6 tokens, is the smallest part.
    assert simulate.learning(work, PACE, draws, 14).seconds == pytest.approx(3.0 + 4.0 + 6.0)
    # A critic doubles it, a reference is a third more.
    assert simulate.learning(replace(work, critic=True), PACE, draws, 1).seconds == pytest.approx(14.0 + 4.0)
    assert simulate.learning(replace(work, passes=3), PACE, draws, 1).seconds == pytest.approx(14.0 + 4.0)


def test_latencies_have_their_median_and_percentile() -> None:
    found = Latency(0.4, 2.5).draw(np.random.default_rng(0), (100_000,))
    assert np.quantile(found, [0.5, 0.95]) == pytest.approx([0.4, 2.5], rel=0.02)
    assert found.mean() == pytest.approx(Latency(0.4, 2.5).mean, rel=0.02)
    assert set(Latency(0.3, 0.3).draw(np.random.default_rng(0), (5,))) == {0.3}


def test_replies_have_their_mean_and_their_limit() -> None:
    replies = Draws.of(Work(rows=20_000, turns=1, prompt=1, longest=10_000, mean=50.0), 0, 0).replies
    assert replies.mean() == pytest.approx(50, rel=0.03) and replies.min() >= 1
    assert Draws.of(Work(rows=100, turns=1, prompt=1, longest=60, mean=50.0), 0, 0).replies.max() == 60


# The pipeline ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("playing", "learning"), [(5.0, 3.0), (3.0, 5.0)])
def test_constant_parts_have_a_closed_form(playing: float, learning: float) -> None:
    for staleness in (1, 2, 3):
        ends = pipeline([playing] * 20, [learning] * 20, 1.0, staleness)
        assert ends[-1] - ends[-2] == pytest.approx(max(playing + 1.0, learning))
    in_turns = pipeline([playing] * 20, [learning] * 20, 1.0, 0)
    assert in_turns == pytest.approx([(i + 1) * (playing + 1.0 + learning) for i in range(20)])


def events(rollouts: list[float], learnings: list[float], transfer: float, staleness: int) -> list[float]:
    """The same as it happens: at every moment whoever can begin does, and time moves to the next end."""
    now, played, learned = 0.0, 0, 0
    playing: float | None = None
    learning: float | None = None
    done: list[float] = []
    while learned < len(rollouts):
        if playing is None and played < len(rollouts) and played - learned <= staleness:
            playing = now + transfer + rollouts[played]
        if learning is None and learned < played:
            learning = now + learnings[learned]
        now = min(end for end in (playing, learning) if end is not None)
        if playing == now:
            playing, played = None, played + 1
        if learning == now:
            learning, learned = None, learned + 1
            done.append(now)
    return done


SECONDS = st.floats(0.01, 10.0)


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=12), st.floats(0, 3), st.integers(0, 3))
def test_the_pipeline_is_what_events_give_one_by_one(
    parts: list[tuple[float, float]], transfer: float, staleness: int
) -> None:
    rollouts, learnings = [p for p, _ in parts], [q for _, q in parts]
    assert pipeline(rollouts, learnings, transfer, staleness) == pytest.approx(
        events(rollouts, learnings, transfer, staleness)
    )


# What must hold -------------------------------------------------------------------------------------------------------

RATE = st.floats(1e-6, 1.0)
PACES = st.builds(Pace, step_s=RATE, row_s=RATE, prompt_s=RATE, token_s=RATE, update_s=RATE)
WORKS = st.builds(
    Work,
    rows=st.integers(1, 40),
    turns=st.integers(1, 4),
    prompt=st.integers(1, 50),
    longest=st.just(30),
    group=st.integers(1, 4),
    mean=st.none() | st.floats(1, 30),
    world=st.sampled_from([Latency(), Latency(0.1, 0.1), Latency(0.5, 4.0)]),
    workers=st.integers(0, 10),
    staleness=st.integers(1, 3),
)
OVERHEADS = st.tuples(st.floats(0, 2), st.floats(0, 2))


@settings(deadline=None, max_examples=60)
@given(WORKS, PACES, st.integers(0, 3))
def test_twice_the_gpus_are_never_slower_where_sending_is_free(work: Work, pace: Pace, seed: int) -> None:
    simulation = Simulation(work, pace, 3, seed)
    for way in (simulation.synchronous, simulation.asynchronous):
        found = [way(gpus).rate for gpus in (1, 2, 4, 8, 16, 32, 64)]
        assert all(more >= fewer * (1 - 1e-9) for fewer, more in pairwise(found))


@settings(deadline=None, max_examples=60)
@given(WORKS, PACES, OVERHEADS, st.integers(1, 70))
def test_overlapping_is_never_slower_and_idle_shares_are_shares(
    work: Work, pace: Pace, overheads: tuple[float, float], gpus: int
) -> None:
    simulation = Simulation(work, replace(pace, reduce_s=overheads[0], transfer_s=overheads[1]), 3, 0)
    sync, overlapped = simulation.synchronous(gpus), simulation.asynchronous(gpus)
    assert overlapped.rate >= sync.rate * (1 - 1e-9)
    for outcome in (sync, overlapped, *(simulation.apart(gpus, s) for s in simulate.splits(gpus))):
        assert 0 <= outcome.idle <= 1 and outcome.tokens == pytest.approx(sync.tokens)


def test_idle_share_and_cost_by_hand() -> None:
    # One row on two GPUs: 10 steps of 1.1 s on one of them, then 10 tokens of 0.5 s on one, an update of 2 s on both
    # and a reduction of 3 s. Busy: 11 + 5 + 4 of 2 x 21 GPU-seconds.
    work = Work(rows=1, turns=1, prompt=0, longest=10)
    outcome = Simulation(work, PACE, 2).synchronous(2)
    assert outcome.seconds == pytest.approx(21.0) and outcome.idle == pytest.approx(1 - 20 / 42)
    assert outcome.rate == pytest.approx(10 / 21)
    # Two GPUs at 3.6 an hour: 0.002 a second, 0.042 for 10 tokens.
    assert outcome.cost(3.6) == pytest.approx(0.042 / 10 * 1e6)
    # Apart, one GPU plays and gets weights (11 + 4 s) while the other learns (5 + 2 s).
    assert Simulation(work, PACE, 2).apart(2, 1).seconds == pytest.approx(15.0)


# From a recipe --------------------------------------------------------------------------------------------------------


def test_plan_and_simulation_agree_about_one_call() -> None:
    size, rates_ = Size(1e9, kept=1e5, remembered=1e4), Rates()
    pace = replace(Pace.computed(size, rates_, 100 + 50 / 2), prompt_s=0.0)
    for rows in (1, 64):
        seconds = plan.times(size, RlSettings(), rows, 50, 100, 1, rates_)
        assert simulate.sampling(pace, np.full(rows, 50.0), 100, 1).seconds == pytest.approx(seconds["sampling"])
        assert pace.token_s * rows * 150 == pytest.approx(seconds["learning"])


def test_a_recipe_says_what_is_simulated() -> None:
    recipe = load("spa/frozen-lake", ["world.workers=ray?actors=6", "rl.minibatches=3"])
    asked = forecast.Asked([1], Rates(), Latency(), tokens=1000.0)
    work = forecast.work_of(recipe, asked)
    assert (work.rows, work.turns, work.longest, work.group, work.updates) == (256, 10, 60, 8, 3)
    assert work.mean == 60 and work.workers == 6 and work.passes == 1
    assert forecast.workers_of("ray", 256) == 256 and forecast.workers_of(4, 256) == 4
    with pytest.raises(OneiroError, match="no RL of a language model"):
        forecast.work_of(load("plan/frozen-lake"), asked)


def test_numbers_of_gpus_double_or_are_listed() -> None:
    assert forecast.numbers_of("8..100") == [8, 16, 32, 64]
    assert forecast.numbers_of("24,3") == [3, 24] and forecast.numbers_of("5") == [5]
    for wrong in ("", "0", "8..4", "8...16", "a", "1..999999", "-3", "8,", "0..8", ",".join(map(str, range(1, 40)))):
        with pytest.raises(OneiroError, match="no number of GPUs"):
            forecast.numbers_of(wrong)
    for wrong in ("", "x", "2,1", "-1", "1,2,3", "nan", "0,1", "1e9"):
        with pytest.raises(OneiroError, match="no latency"):
            forecast.latency_of(wrong)


def test_the_command_prints_a_table_and_mistakes_are_one_line(tmp_path: Path) -> None:
    out, words = tmp_path / "found.json", ["simulate", "spa/frozen-lake", "--gpus", "1..4", "--tokens", "30", "--grow"]
    assert CliRunner().invoke(app, [*words, "--json", str(out)]).exit_code == 0
    rows = json.loads(out.read_text())["tables"][0]["rows"]
    assert [(row["GPUs"], row["setting"]) for row in rows] == [(n, s) for n in (1, 2, 4) for s in ("sync", "async")]
    mistaken = tmp_path / "rates.json"
    for text in ("{", "[]", "{}", '{"tables": []}', rates_file([("step_s", -1.0)]), rates_file([("speed", 1.0)])):
        mistaken.write_text(text)
        result = CliRunner().invoke(app, [*words, "--rates", str(mistaken)])
        assert isinstance(result.exception, OneiroError) and "\n" not in str(result.exception)
    for wrong in (
        ["world.workers=1", "--steps", "100"],
        ["--tokens", "inf"],
        ["--price", "inf"],
        ["--bandwidth", "inf"],
    ):
        result = CliRunner().invoke(app, [*words, *wrong])
        assert isinstance(result.exception, OneiroError) and "\n" not in str(result.exception)


def rates_file(found: list[tuple[str, float]]) -> str:
    table = Table(TITLE, ["rate", "seconds"])
    for name, seconds in found:
        table.add(name, seconds)
    return json.dumps({"tables": [table.data()]})


def test_a_small_model_waits_for_its_kernels_and_the_table_says_so() -> None:
    # Ten kernels in each of 4 layers: 1.7 microseconds each in a decoding step, 11 in a pass of learning.
    small, large = Size(1e5, kept=1e3, remembered=10, layers=4), Size(7e9, kept=1e6, remembered=1e5, layers=32)
    for rows in (1, 64):
        assert Rates().decoding(small, rows, 100) == pytest.approx(68e-6)
    pace = Pace.computed(small, Rates(), 100)
    assert (pace.step_s, pace.row_s, pace.pass_s) == pytest.approx((68e-6, 0.0, 440e-6))
    # One update is three passes, on any number of GPUs; half a microsecond of products does not count.
    work, draws = Work(rows=2, turns=1, prompt=0, longest=4), drawn([[4.0, 4.0]], [[0.0, 0.0]])
    for gpus in (1, 8):
        alone = simulate.learning(work, replace(pace, reduce_s=0.0), draws, gpus)
        assert (alone.seconds, alone.busy) == pytest.approx((1320e-6, gpus * 1320e-6))
    assert Rates().decoding(large, 1, 100) == pytest.approx((14e9 + 2e7) / 2e12)  # reading the weights takes longer
    for change, bound in (("model=tiny", True), ("model=Qwen/Qwen2.5-7B", False)):
        table, _ = forecast.tables(load("spa/frozen-lake", [change]), forecast.Asked([1], Rates(), Latency(), steps=1))
        assert ("waits for kernels" in table.note) == bound


def test_a_growing_batch_keeps_the_work_of_a_gpu() -> None:
    work = simulate.grown(Work(rows=24, turns=1, prompt=1, longest=1, workers=6), 32, 8)
    assert (work.rows, work.workers) == (96, 24)


def test_measured_rates_replace_computed_ones(tmp_path: Path) -> None:
    (tmp_path / "rates.json").write_text(rates_file([("step_s", 0.25), ("token_s", 0.125)]))
    assert Pace.read(tmp_path / "rates.json", PACE) == replace(PACE, step_s=0.25, token_s=0.125)
    (tmp_path / "rates.json").write_text(rates_file([("update_s", 0.5)]))
    assert Pace.read(tmp_path / "rates.json", replace(PACE, pass_s=9.0)) == replace(PACE, update_s=0.5)


def test_lines_through_measured_points_are_found() -> None:
    asked = RatesSettings(rows=16, prompt_tokens=20, new_tokens=10)
    found = rates.sampling_line(lambda rows, prompt: 10 * (0.5 + 0.02 * rows) + 0.001 * rows * prompt, asked)
    assert found == pytest.approx({"step_s": 0.5, "row_s": 0.02, "prompt_s": 0.001})
    assert rates.learning_line(lambda rows: 3.0 + 0.1 * rows * 30, asked) == pytest.approx(
        {"token_s": 0.1, "update_s": 3.0}
    )
    # Noise that turns a slope around gives no negative rate.
    noisy = rates.sampling_line(lambda rows, prompt: 1.0 / rows / prompt, asked)
    assert all(seconds >= 0 for seconds in noisy.values())


def test_what_the_benchmark_writes_is_read(tmp_path: Path) -> None:
    from oneiro import bench

    file = tmp_path / "rates.json"
    tables = bench.run("rates", "tiny", json=file, rows=8, prompt_tokens=4, new_tokens=4, rounds=1, threads=1)
    pace = Pace.read(file, PACE)
    assert pace.reduce_s == PACE.reduce_s and 0 < pace.transfer_s != PACE.transfer_s
    assert {row[0].value for row in tables[1].rows} == {
        "step_s", "row_s", "prompt_s", "token_s", "update_s", "transfer_s"
    }  # fmt: skip
