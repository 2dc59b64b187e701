"""RL in a few lines: `oneiro.train` and `oneiro.train_agent`."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import oneiro
from oneiro.agents.loading import AgentMetadata
from oneiro.agents.prompts import DialogueSettings
from oneiro.learning.learner import LearnerSettings
from oneiro.learning.loop import RlSettings
from oneiro.learning.optimiser import OptimiserSettings
from oneiro.models.language import load
from oneiro.runtime import threads
from oneiro.runtime.errors import OneiroError
from oneiro.worlds.base import Step, World
from tests.conftest import make_tiny
from tests.interruption import Forked

SMALL = {"prompts_per_step": 2, "group_size": 8, "max_tokens": 8}


def share_of_a(prompt: str, reply: str) -> float:
    return reply.count("a") / 8


def test_a_reward_function_is_learned(tmp_path: Path) -> None:
    earned: list[float] = []

    def reward(prompt: str, reply: str) -> float:
        assert prompt in ("hello", "world")
        earned.append(share_of_a(prompt, reply))
        return earned[-1]

    folder = make_tiny().save(tmp_path / "model")
    quick = RlSettings(steps=40, learner=LearnerSettings(optimiser=OptimiserSettings(lr=3e-3)))
    model = oneiro.train(str(folder), ["hello", "world"], reward, out=tmp_path / "out", rl=quick, **SMALL)
    assert len(earned) == 40 * 2 * 8
    assert np.mean(earned[-160:]) > np.mean(earned[:160]) + 0.1
    again = load(str(tmp_path / "out"))
    for (name, a), (_, b) in zip(model.trainable(), again.trainable(), strict=True):
        assert torch.equal(a, b), name


def test_stopped_training_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    folder = str(make_tiny().save(tmp_path / "model"))
    whole = oneiro.train(folder, ["hello"], share_of_a, out=tmp_path / "whole", steps=12, **SMALL)
    calls = 0

    def fails(prompt: str, reply: str) -> float:
        nonlocal calls
        calls += 1
        if calls > 11 * 8:
            raise KeyboardInterrupt
        return share_of_a(prompt, reply)

    with pytest.raises(KeyboardInterrupt):
        oneiro.train(folder, ["hello"], fails, out=tmp_path / "cut", steps=12, **SMALL)
    resumed = oneiro.train(folder, ["hello"], share_of_a, out=tmp_path / "cut", steps=12, **SMALL)
    for (name, a), (_, b) in zip(whole.trainable(), resumed.trainable(), strict=True):
        assert torch.equal(a, b), name


def test_control_c_saves_the_step_and_ends_with_a_line_that_says_how_to_go_on(tmp_path: Path) -> None:
    """A real signal in the third step of a script of one's own; the folder holds that step, and the call goes on."""
    folder = make_tiny().save(tmp_path / "model")
    replies = 0

    def reward(prompt: str, reply: str) -> float:
        nonlocal replies
        replies += 1
        if replies == 20:
            os.kill(os.getpid(), signal.SIGINT)
        return len(reply)

    def script() -> None:
        os.chdir(tmp_path)
        oneiro.train(str(folder), ["hello"], reward, out="out", steps=9, group_size=8, max_tokens=4)

    assert Forked(script, tmp_path / "log.txt").wait() == 1
    lines = (tmp_path / "log.txt").read_text().strip().splitlines()
    assert lines[-1].endswith("Stopped: stopped; the same call goes on from what is saved in out")
    assert lines[0].startswith("stopping after this step")
    assert len([line for line in lines if "File " in line and "interruption.py" not in line]) <= 6
    assert sorted(path.name for path in (tmp_path / "out").glob("step-*")) == ["step-000000", "step-000003"]


def test_training_uses_threads_by_the_model_s_size_and_keeps_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "choose", lambda parameters: 2 if parameters < 10**6 else 1)
    before, seen = torch.get_num_threads(), []

    def reward(prompt: str, reply: str) -> float:
        seen.append(torch.get_num_threads())
        return share_of_a(prompt, reply)

    model, small = make_tiny(), {**SMALL, "group_size": 2}
    oneiro.train(model, ["hello"], reward, out=tmp_path / "out", steps=1, **small)
    monkeypatch.setattr(threads, "choose", lambda parameters: 1)
    oneiro.train(model, ["hello"], reward, out=tmp_path / "out", steps=2, **small)
    assert seen == [2, 2, 2, 2] and torch.get_num_threads() == before


def test_training_without_anything_to_learn_says_so_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No group varies, so the optimiser has nothing to remember; its empty state is no damage."""
    folder = str(make_tiny().save(tmp_path / "model"))
    for steps in (4, 6):
        oneiro.train(folder, ["hello"], lambda prompt, reply: 1.0, out=tmp_path / "out", steps=steps, **SMALL)
    assert "nothing can be learned" in " ".join(capsys.readouterr().out.split())
    rows = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]


class Switch(World):
    """Turn the light on."""

    name, actions, instruction = "switch", ("On", "Off"), "Turn the light on. Actions: On, Off."

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        return self.render(), {"key": "lamp"}

    def step(self, action: str) -> Step:
        return self.outcome(float(action == "On"), done=True, success=action == "On", effective=True)

    def render(self, view: str | None = None) -> str:
        return "The light is off."


def test_an_agent_learns_in_a_world_of_ones_own_and_in_a_named_one(tmp_path: Path) -> None:
    brief = DialogueSettings(context="single", brief=True, world_model=False, max_turns=2)
    how = {"levels_per_step": 2, "group_size": 4, "max_tokens": 6, "steps": 1, "dialogue": brief}
    model = make_tiny()
    before = [parameter.detach().clone() for _, parameter in model.trainable()]
    own = oneiro.train_agent(model, Switch, out=tmp_path / "own", **how)
    assert own is model and len(before) == len(own.trainable())
    named = oneiro.train_agent(make_tiny(), "frozen-lake", out=tmp_path / "named", **how)
    taught = AgentMetadata.read(named, "named")
    assert taught is not None and taught.world.name == "frozen-lake" and taught.dialogue == brief
    assert AgentMetadata.read(load(str(tmp_path / "named")), "named") == taught


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match="give a list"):
        oneiro.train(make_tiny(), [], share_of_a, out=tmp_path)
    with pytest.raises(OneiroError, match="each a text"):
        oneiro.train(make_tiny(), [[{"role": "user"}]], share_of_a, out=tmp_path)  # type: ignore[list-item]
    with pytest.raises(OneiroError, match="must return a number for one reply, not NoneType"):
        oneiro.train(make_tiny(), ["hello"], lambda prompt, reply: None, out=tmp_path / "none", **SMALL)  # type: ignore[arg-type, return-value]
    with pytest.raises(OneiroError, match="load returned"):
        oneiro.train(make_tiny().model, ["hello"], share_of_a, out=tmp_path / "hf")
    with pytest.raises(OneiroError, match="give 2 or more"):
        oneiro.train(make_tiny(), ["hello"], share_of_a, out=tmp_path / "one", group_size=1)
    with pytest.raises(OneiroError, match="steps: -1 steps teach nothing"):
        oneiro.train(make_tiny(), ["hello"], share_of_a, out=tmp_path / "back", steps=-1)
    (tmp_path / "file").write_text("")
    with pytest.raises(OneiroError, match="give a folder"):
        oneiro.train(make_tiny(), ["hello"], share_of_a, out=tmp_path / "file")
    with pytest.raises(OneiroError, match="was begun with other prompts"):
        oneiro.train(make_tiny(), ["world"], share_of_a, out=tmp_path / "none", **SMALL)
    with pytest.raises(OneiroError, match="returned nan; a reward must be a finite number"):
        oneiro.train(make_tiny(), ["hello"], lambda prompt, reply: float("nan"), out=tmp_path / "nan", **SMALL)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        oneiro.trian  # noqa: B018
