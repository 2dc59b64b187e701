"""The checker finds nothing wrong with good worlds and the fault in broken ones."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from oneiro.seeds import generator
from oneiro.worlds import check, make
from oneiro.worlds.base import Step, World, WorldConfig, level_key
from oneiro.worlds.check import worst
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


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    known = dict(WORLDS)
    for world in (Coin, Moody, Generous):
        register(world.name, f"{__name__}:{world.__name__}")
    yield
    WORLDS.clear()
    WORLDS.update(known)


def test_a_sound_world_has_no_errors() -> None:
    for name in ("frozen-lake", "frozen-lake:slippery"):
        assert worst([f for f in check(name) if "out of reach" not in f.message]) == "ok"


def test_a_registered_world_is_played_in_the_other_process_too() -> None:
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


def test_a_crash_is_a_finding_and_the_other_checks_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Coin, view: str | None = None) -> str:
        raise ZeroDivisionError("no picture")

    monkeypatch.setattr(Coin, "render", broken)
    findings = check("coin")
    assert worst(findings) == "error"
    assert any("ZeroDivisionError: no picture" in finding.message for finding in findings)


def test_default_settings_are_enough() -> None:
    assert Coin().config == WorldConfig()


SHIPPED = ("2048", "bandit", "countdown", "cube", "frozen-lake", "math", "sokoban", "sudoku", "webshop")


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_world_keeps_its_promises(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("oneiro.worlds.check")
    monkeypatch.setattr(module, "LEVELS", 24)
    monkeypatch.setattr(module, "MEMBERS", 2)
    assert [finding.message for finding in check(name) if finding.status == "error"] == []


@pytest.mark.parametrize("name", SHIPPED)
def test_every_variant_reads_back_what_it_shows(name: str) -> None:
    rng = generator("test", "round trip", name)
    for variant in ("", *(f":{variant}" for variant in world_class(name).variants)):
        world = make(name + variant)
        readable = {
            view for view in world.views if world.reset(seed=0) and world.parse(world.render(view), view) is not None
        }
        for seed in range(6):
            world.reset(seed=seed)
            while not world.over and world.taken < 25:
                world.step(world.random_action(rng))
                assert all(world.parse(world.render(view), view) == world.state for view in readable)
        assert readable or name in ("bandit", "math", "webshop")
