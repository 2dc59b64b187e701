"""Ctrl-C, SIGTERM and the clock: a checkpoint at any step leaves the result as it was."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from oneiro.episode import Row, given
from oneiro.learning import checkpoint, reconstruction, sft
from oneiro.learning.algorithms import Grpo, Ppo
from oneiro.learning.loop import Callbacks, actor_of, reinforce
from oneiro.models.video import tokenizer as tokenizers
from oneiro.runtime import interrupt
from oneiro.runtime.interrupt import Saving
from tests.conftest import make_tiny
from tests.learning.test_loop import play_with, settings
from tests.learning.test_reconstruction import FRAME, bars, schedule

Logged = list[tuple[int, dict[str, float]]]
Training = Callable[[Path, Callable[[int, dict[str, float]], None], Saving | None], torch.nn.Module]
STEPS = 5


def supervised(folder: Path, log: Any, saving: Saving | None) -> torch.nn.Module:
    rows = [Row([given([i % 9, 2, 3]), given([10 + i % 5, 11], ce=1.0)]) for i in range(40)]
    language = make_tiny()
    sft.train(language, rows, (), sft.SftSettings(batch=8, checkpoint_every=100), folder, 0, log, saving=saving)
    return language.model


def reinforced(folder: Path, log: Any, saving: Saving | None, algorithm: Any = None, **more: Any) -> torch.nn.Module:
    language, how = make_tiny(), settings(algorithm or Grpo(), STEPS, **more)
    how = how.model_copy(update={"checkpoint_every": 100})
    actor = actor_of(language, how)
    reinforce(language, how, folder, 0, Callbacks(play_with(actor), log), actor, 5, saving)
    return language.model


def with_critic(folder: Path, log: Any, saving: Saving | None) -> torch.nn.Module:
    return reinforced(folder, log, saving, Ppo(), kl=True, minibatches=2)


def reconstructed(folder: Path, log: Any, saving: Saving | None) -> torch.nn.Module:
    tokenizer = tokenizers.create(FRAME, 3, "cpu")
    how = schedule(STEPS).model_copy(update={"checkpoint_every": 100})
    reconstruction.train(tokenizer, how, bars, None, folder, 5, log, saving=saving)
    return tokenizer


@pytest.mark.parametrize(
    ("training", "number"),
    [
        (supervised, signal.SIGTERM),
        (with_critic, signal.SIGINT),
        (reconstructed, signal.SIGINT),
        pytest.param(supervised, signal.SIGINT, marks=pytest.mark.thorough),
        pytest.param(reinforced, signal.SIGINT, marks=pytest.mark.thorough),
        pytest.param(reinforced, signal.SIGTERM, marks=pytest.mark.thorough),
        pytest.param(with_critic, signal.SIGTERM, marks=pytest.mark.thorough),
        pytest.param(reconstructed, signal.SIGTERM, marks=pytest.mark.thorough),
    ],
)
def test_a_signal_saves_the_step_and_the_rest_is_that_of_an_uninterrupted_run(
    training: Training, number: signal.Signals, tmp_path: Path
) -> None:
    def go(folder: Path, stop_at: int | None = None) -> tuple[Logged, torch.nn.Module | None]:
        logged: Logged = []

        def log(step: int, values: dict[str, float]) -> None:
            logged.append((step, values))
            if step == stop_at:
                os.kill(os.getpid(), number)

        trained = None
        with contextlib.suppress(KeyboardInterrupt), interrupt.handle():
            trained = training(folder, log, None)
        return logged, trained

    whole, expected = go(tmp_path / "whole")
    begun, nothing = go(tmp_path / "cut", stop_at=3)
    assert nothing is None and [step for step, _ in begun] == [1, 2, 3]
    newest = checkpoint.latest(tmp_path / "cut")
    assert newest is not None and checkpoint.step_of(newest) == 3
    rest, found = go(tmp_path / "cut")
    assert begun + rest == whole
    assert expected is not None and found is not None
    for name, tensor in expected.state_dict().items():
        assert torch.equal(tensor, found.state_dict()[name]), name


def test_checkpoints_come_by_the_clock_too_and_change_nothing(tmp_path: Path) -> None:
    plain: Logged = []
    clocked: Logged = []
    supervised(tmp_path / "plain", lambda *row: plain.append(row), None)
    seen: list[int] = []

    def log(step: int, values: dict[str, float]) -> None:
        clocked.append((step, values))
        seen.append(len(checkpoint.checkpoints(tmp_path / "clocked")))

    supervised(tmp_path / "clocked", log, Saving(minutes=1e-9))
    assert plain == clocked
    assert seen[:3] == [0, 1, 2]  # one after each step
    assert not Saving(minutes=60).due() and not Saving().due()


@pytest.mark.parametrize("training", [supervised, reinforced, reconstructed])
def test_a_checkpoint_by_the_clock_is_the_last_for_a_while(training: Training, tmp_path: Path) -> None:
    saving, seen = Saving(minutes=60), list[int]()
    saving._last -= 3600  # an hour has passed: the first step saves, and then the clock starts again

    def log(step: int, values: dict[str, float]) -> None:
        seen.append(len(checkpoint.checkpoints(tmp_path)))

    training(tmp_path, log, saving)
    assert seen == [seen[0], *[seen[0] + 1] * (STEPS - 1)]


def test_playing_ahead_saves_by_steps_alone_because_a_checkpoint_decides_who_plays_next(tmp_path: Path) -> None:
    seen: list[int] = []

    def log(step: int, values: dict[str, float]) -> None:
        seen.append(len(checkpoint.checkpoints(tmp_path)))

    reinforced(tmp_path, log, Saving(minutes=1e-9), async_rollout=True)
    assert seen == [1] * STEPS  # the one before any step


@pytest.mark.parametrize("ahead", [False, True])
def test_a_signal_waits_for_the_step_only_where_the_step_can_be_saved(tmp_path: Path, ahead: bool) -> None:
    entered: list[bool] = []

    class Watched(Saving):
        @contextlib.contextmanager
        def defer(self) -> Iterator[None]:
            entered.append(True)
            with super().defer():
                yield

    reinforced(tmp_path, lambda step, values: None, Watched(), async_rollout=ahead)
    assert entered == [] if ahead else entered == [True]


def test_outside_training_and_the_second_time_a_signal_stops_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), interrupt.handle():
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("not reached")
    saving = Saving()
    with pytest.raises(KeyboardInterrupt), interrupt.handle(), saving.defer():
        os.kill(os.getpid(), signal.SIGINT)
        assert saving.due()
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("not reached")
    assert not saving.due() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_what_must_not_be_cut_in_two_is_finished_first(capfd: pytest.CaptureFixture[str]) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupt.handle(), interrupt.postpone():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("loaded")
    assert done == ["loaded"] and capfd.readouterr().err == ""
