"""The checker finds nothing wrong with good worlds and the fault in broken ones."""

from __future__ import annotations

import inspect
import json
import subprocess
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from oneiro.cli import main
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.worlds import check, make
from oneiro.worlds.base import Step, World, WorldConfig, level_key
from oneiro.worlds.baselines import oracle_success
from oneiro.worlds.check import scores_make_sense, worst
from oneiro.worlds.registry import WORLDS, register, world_class


class Coin(World):
    """Say heads or tails; the level is which one wins."""

    name = "coin"
    actions = ("heads", "tails")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        return self.render(), {"key": level_key(f"{self.seed} {self.split}")}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=False)
        if action not in self.actions:
            return self.outcome(0.0, valid=False, effective=False)
        won = action == self.oracle()
        return self.outcome(float(won), done=True, success=won, effective=True)

    def render(self, view: str | None = None) -> str:
        return f"Coin number {self.seed}."

    @property
    def instruction(self) -> str:
        return "Call the coin."

    def oracle(self) -> str:
        return self.actions[self.seed % 2]

    def ceiling(self) -> float:
        return 1.0


class Moody(Coin):
    """Its luck depends on how often it was reset: the same seed, another episode."""

    name = "moody"
    resets = 0

    def reset(self, **kwargs: Any) -> tuple[str, dict[str, Any]]:
        self.resets += 1
        return super().reset(**kwargs)

    def render(self, view: str | None = None) -> str:
        return f"Coin {self.resets}"


class Generous(Coin):
    """Pays for nonsense, has one split only, returns an int as reward, and promises more than it holds."""

    name = "generous"

    def reset(self, **kwargs: Any) -> tuple[str, dict[str, Any]]:
        shown, _ = super().reset(**kwargs)
        return shown, {"key": level_key(str(self.seed))}

    def step(self, action: str) -> Step:
        shown, _, done, truncated, info = super().step(action)
        return shown, 1, done, truncated, {**info, "success": True}

    def oracle(self) -> None:
        return None

    def ceiling(self) -> float:
        return 0.5


class Mirrored(Coin):
    """Gives every level a name of its own; each evaluation level is a training level seen in a mirror."""

    name = "mirrored"

    def reset(self, **kwargs: Any) -> tuple[str, dict[str, Any]]:
        shown, info = super().reset(**kwargs)
        return shown, {**info, "canonical": str(self.seed)}


pytestmark = pytest.mark.usefixtures("one_process")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    known = dict(WORLDS)
    for world in (Coin, Moody, Generous, Mirrored):
        register(world.name, f"{__name__}:{world.__name__}")
    yield
    WORLDS.clear()
    WORLDS.update(known)


def test_a_sound_world_has_no_errors() -> None:
    for name in ("frozen-lake", "frozen-lake:slippery"):
        assert worst([f for f in check(name) if "out of reach" not in f.message]) == "ok"


def test_a_registered_world_is_played_in_the_other_process_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("oneiro.worlds.check"), "subprocess", subprocess)
    messages = {finding.message: finding.status for finding in check("coin", max_actions=3)}
    assert messages["same seed, same episode in another process"] == "ok"


def test_hidden_state_is_found() -> None:
    errors = [finding.message for finding in check("moody") if finding.status == "error"]
    assert "the same seed and actions gave two different episodes in one process" in errors
    assert "members of one group see different first observations" in errors


def test_a_world_that_pays_for_nothing_is_found() -> None:
    errors = " | ".join(finding.message for finding in check("generous") if finding.status == "error")
    assert "doing nothing understandable earns a reward" in errors
    assert "levels are in both splits" in errors
    assert "must return text, float, bool, bool, dict" in errors
    assert "beats the stated ceiling" in errors


def test_splits_that_share_levels_up_to_symmetry_are_found() -> None:
    errors = [finding.message for finding in check("mirrored") if finding.status == "error"]
    assert errors == ["256 levels are in both splits up to symmetry"]
    assert not [finding for finding in check("coin") if finding.status == "error"]


def test_the_check_counts_evaluation_levels_up_to_symmetry() -> None:
    messages = [
        finding.message for finding in check("2048", size=3, target=8, max_actions=4) if "distinct" in finding.message
    ]
    assert messages == [
        "train and eval share no level up to symmetry (3 distinct of 64 drawn)",
        "only 3 distinct evaluation levels up to symmetry in 256 seeds",
    ]


def test_a_crash_is_a_finding_and_the_other_checks_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Coin, view: str | None = None) -> str:
        raise ZeroDivisionError("no picture")

    monkeypatch.setattr(Coin, "render", broken)
    findings = check("coin")
    assert worst(findings) == "error"
    assert any("ZeroDivisionError: no picture" in finding.message for finding in findings)


class Crashing(Coin):
    """Divides by zero inside something it calls."""

    name = "crashing"

    def step(self, action: str) -> Step:
        return self.outcome(float(np.linalg.inv(np.zeros((2, 2)))[0, 0]), effective=True)


def test_a_crash_names_the_line_of_the_world(capsys: pytest.CaptureFixture[str]) -> None:
    register("crashing", Crashing)
    lines, first = inspect.getsourcelines(Crashing.step)
    messages = [finding.message for finding in check("crashing") if finding.status == "error"]
    place = f"({__file__}, line {first + len(lines) - 1})"
    assert f"five tuple: LinAlgError: Singular matrix {place}" in messages
    assert main(["check", "crashing"]) == 1
    assert f"line {first + len(lines) - 1})" in " ".join(capsys.readouterr().out.split())


def test_the_other_process_is_told_where_to_find_a_class_registered_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(command: list[str], *, input: str, **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(json.loads(input)["target"])
        return subprocess.CompletedProcess(command, 1, "", "")

    module = import_module("oneiro.worlds.check")
    monkeypatch.setattr(module.subprocess, "run", run)
    register("coin", Coin)
    check("coin")
    assert asked == [f"{__name__}:Coin"]


def test_a_world_that_steps_without_a_reset_is_told_how_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: Coin, action: str) -> Step:
        won = action == self.oracle()
        return self.outcome(float(won), done=True, success=won, effective=True)

    assert "step before reset is refused" in [finding.message for finding in check("coin")]
    monkeypatch.setattr(Coin, "step", hasty)
    warnings = [finding.message for finding in check("coin") if finding.status == "warning"]
    assert "step before reset is accepted: begin `step` with `if self.over`" in warnings


@pytest.mark.parametrize(
    ("world", "setting"),
    [("math", "path"), ("math", "eval_path"), ("countdown", "path"), ("webshop", "products")],
)
def test_a_file_that_is_not_there_is_one_line(world: str, setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", world, f"{setting}=/nowhere.jsonl"]) == 2
    printed = capsys.readouterr()
    assert printed.err.strip() == "/nowhere.jsonl does not exist" and not printed.out


def test_a_player_without_a_proven_ceiling_is_shown_as_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("oneiro.worlds.check"), "LEVELS", 4)
    messages = [finding.message for finding in check("2048:3x3")]
    assert "oracle (a player that looks 2 moves ahead; no proven ceiling) succeeds in 100.0% of 4 episodes" in messages
    monkeypatch.setattr(import_module("oneiro.worlds.check"), "CHECKS", (scores_make_sense,))
    assert any("0.0% is the best possible in 700 actions" in finding.message for finding in check("2048"))


class Mute(Coin):
    """Knows no player to ask."""

    name = "mute"
    oracle = World.oracle

    def step(self, action: str) -> Step:
        return self.outcome(0.0, valid=action in self.actions, effective=False)


def test_a_world_without_an_oracle_does_not_play_at_random_in_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    register("mute", f"{__name__}:Mute")
    assert make("coin").has_oracle and not make("mute").has_oracle
    with pytest.raises(OneiroError, match="world 'mute' has no oracle"):
        oracle_success("mute", 1)
    for policy in ("oracle", "mixture"):
        assert main(["eval", "agent", "--world", "mute", "--policy", policy, "--levels", "1"]) == 2
        assert capsys.readouterr().err.strip() == ("world 'mute' has no oracle; let a random policy or a model play")
    assert "the world has no oracle" in [finding.message for finding in check("mute")]


def test_default_settings_are_enough() -> None:
    assert Coin().config == WorldConfig()


SHIPPED = ("2048", "bandit", "countdown", "cube", "frozen-lake", "math", "sokoban", "sudoku", "webshop")


@pytest.mark.parametrize("name", [name for name in SHIPPED if name != "2048"])  # its oracle thinks long
def test_every_shipped_world_keeps_its_promises(name: str, few_levels: None) -> None:
    assert [finding.message for finding in check(name) if finding.status == "error"] == []


@pytest.mark.thorough
@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_world_keeps_its_promises_on_many_levels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("oneiro.worlds.check"), "subprocess", subprocess)
    assert [finding.message for finding in check(name) if finding.status == "error"] == []


@pytest.mark.parametrize("name", SHIPPED)
def test_every_variant_reads_back_what_it_shows(name: str) -> None:
    rng = generator("test", "round trip", name)
    for variant in ("", *(f":{variant}" for variant in world_class(name).variants)):
        world = make(name + variant)
        readable = {
            view for view in world.views if world.reset(seed=0) and world.parse(world.render(view), view) is not None
        }
        for seed in range(2):
            world.reset(seed=seed)
            while not world.over and world.taken < 12:
                world.step(world.random_action(rng))
                assert all(world.parse(world.render(view), view) == world.state for view in readable)
        assert readable or name in ("bandit", "math", "webshop")
