"""Your own environment: a lift that an agent learns to predict, then to drive. A few minutes on 2 cores.

oneiro check examples.own_environment:Lift       # does it keep the contract?
python examples/own_environment.py               # SPA and its control; the report is runs/lift/report.html
python examples/own_environment.py preset=smoke  # every stage at its smallest size
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import oneiro
from oneiro.recipe import load
from oneiro.worlds.base import Step, World, WorldConfig, draw_level, level_key
from oneiro.worlds.registry import register

FLOORS = 9


class LiftConfig(WorldConfig):
    max_actions: int = 8


class Lift(World):
    """Bring the lift to the caller's floor and open it. `Express` moves three floors up; walls stop it."""

    name = "lift"
    Config = LiftConfig
    actions = ("Up", "Down", "Express", "Open")
    instruction = "Bring the lift to the caller and open it. Actions: Up, Down, Express, Open."

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        (self.floor, self.caller, self.weight), key = draw_level(
            self.name, self.seed, self.split, draw, lambda level: level_key(f"{level}")
        )
        return self.render(), {"key": key}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=False)
        word, before = action.strip().capitalize(), self.floor
        if word not in self.actions:
            return self.outcome(0.0, valid=False, effective=False)
        if word == "Open":
            done = self.floor == self.caller
            return self.outcome(float(done), done=done, success=done, effective=done)
        move = {"Up": 1, "Down": -1, "Express": 3}[word]
        self.floor = min(FLOORS - 1, max(0, self.floor + move))
        return self.outcome(0.0, effective=self.floor != before)

    def render(self, view: str | None = None) -> str:
        return f"lift {self.floor} caller {self.caller} weight {self.weight}"

    def oracle(self) -> str:
        if self.floor == self.caller:
            return "Open"
        if self.caller - self.floor >= 2 and self.floor + 3 < FLOORS:
            return "Express"
        return "Up" if self.caller > self.floor else "Down"


def draw(rng: np.random.Generator) -> tuple[int, int, int] | None:
    """Floors of lift and caller, and a weight that changes nothing; None where nothing is to be done."""
    floor, caller = (int(number) for number in rng.integers(FLOORS, size=2))
    return None if floor == caller else (floor, caller, int(rng.integers(100)))


def main(overrides: list[str], out: str = "runs/lift") -> None:
    register("lift", Lift)
    # The demo's recipe in another world: fewer levels, more passes over them, unless a preset has sizes of its own.
    own = ["world=lift", "workers=1", "self_play.workers=0", "dialogue.max_turns=8", "variants=[spa,no-world-model]"]
    if not any(word.startswith("preset=") for word in overrides):
        own += ["self_play.levels=150", "self_play.batches=2", "sft.epochs=3", "rl.steps=2"]
        own += ["rollout.prompts_per_step=8", "evaluation.levels=64"]
    run = oneiro.run(load("spa/frozen-lake", [*own, *overrides]), out=out)
    print(run.path / "report.html")


if __name__ == "__main__":
    main(sys.argv[1:])
