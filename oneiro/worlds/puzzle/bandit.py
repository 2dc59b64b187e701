"""Bandit: two arms with telling names. One pays a little every time, the other much now and then, and more on average.

Names hint at the kind of arm, so a reader of names can do better than chance before the first pull. The names of the
two splits are disjoint; every member of a group sees the same two names in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from oneiro.runtime.seeds import generator
from oneiro.worlds.base import Step, World, WorldConfig, draw_level, in_split, level_key

STEADY = (
    *("Accountant", "Archivist", "Baker", "Beekeeper", "Bookbinder", "Botanist", "Bricklayer", "Carpenter", "Cashier"),
    *("Clerk", "Clockmaker", "Curator", "Dentist", "Dressmaker", "Florist", "Gardener", "Grocer", "Janitor", "Judge"),
    *("Librarian", "Locksmith", "Notary", "Nurse", "Optician", "Pharmacist", "Plumber", "Postmaster", "Printer"),
    *("Proofreader", "Receptionist", "Registrar", "Shepherd", "Shoemaker", "Surveyor", "Tailor", "Teacher", "Typist"),
)
RISKY = (
    *("Acrobat", "Adventurer", "Alchemist", "Astronaut", "Buccaneer", "Bullfighter", "Burglar", "Conqueror", "Corsair"),
    *("Crusader", "Daredevil", "Diver", "Duelist", "Explorer", "Forger", "Gambler", "Gladiator", "Gunslinger"),
    *("Highwayman", "Inventor", "Jockey", "Matador", "Mercenary", "Mountaineer", "Paratrooper", "Pirate", "Privateer"),
    *("Prospector", "Raider", "Rebel", "Skydiver", "Smuggler", "Speculator", "Spy", "Trader", "Viking", "Warlord"),
)


class BanditConfig(WorldConfig):
    """Settings of the arms."""

    max_actions: int = Field(default=1, ge=1)
    low: float = Field(default=0.1, ge=0)
    """What the steady arm always pays."""
    high: float = Field(default=1.0, gt=0)
    """What the risky arm pays when it pays."""
    chance: float = Field(default=0.25, gt=0, le=1)
    """How often the risky arm pays."""
    reversed: bool = False
    """Swap the names: the one that sounds steady is the risky arm."""


@dataclass(frozen=True)
class Arms:
    """Two names in the order shown, and which of them pays more on average."""

    names: tuple[str, str]
    better: str

    @property
    def key(self) -> str:
        return level_key(f"bandit {self.names} {self.better}", self.better)


class Bandit(World):
    """One pull."""

    name = "bandit"
    Config = BanditConfig
    deterministic = False
    variants: ClassVar = {"reversed": {"reversed": True}, "paper": {"low": 0.15}}
    config: BanditConfig

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        self.arms, key = draw_level(self.name, self.seed, self.split, self._draw, lambda arms: arms.key)
        self.actions = self.arms.names
        self.pulled, self.paid = "", 0.0
        self._noise = generator(self.name, self.seed, "luck", self.member)
        return self.render(), {"key": key}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.pulled == self.arms.better)
        word = action.strip().lower()
        pulled = next((name for name in self.arms.names if name.lower() == word), None)
        if pulled is None:
            return self.outcome(0.0, valid=False, effective=False)
        risky = (pulled == self.arms.better) == self._risky_is_better
        lucky = self._noise.random() < self.config.chance
        self.pulled, self.paid = pulled, (self.config.high * lucky if risky else self.config.low)
        return self.outcome(self.paid, done=True, success=pulled == self.arms.better, effective=True)

    def render(self, view: str | None = None) -> str:
        shown = f"Arms: {' and '.join(self.arms.names)}."
        return f"{shown} You pulled {self.pulled}; it paid {self.paid:g}." if self.pulled else shown

    @property
    def instruction(self) -> str:
        return (
            "Two arms stand before you. One pays a little every time; the other pays a lot now and then. Their names "
            "hint at which is which. Choose the arm that pays more on average.\n"
            "Actions: the name of an arm. You have one pull."
        )

    def random_action(self, rng: np.random.Generator) -> str:
        return self.arms.names[int(rng.integers(2))]

    def ceiling(self) -> float:
        return float(not self.over or self.pulled == self.arms.better)

    def oracle(self) -> str | None:
        return None if self.over else self.arms.better

    @property
    def _risky_is_better(self) -> bool:
        return self.config.chance * self.config.high > self.config.low

    def _draw(self, rng: np.random.Generator) -> Arms | None:
        steady, risky = (str(rng.choice(names)) for names in (STEADY, RISKY))
        held_out = [in_split(level_key(name), "eval") for name in (steady, risky)]
        if held_out[0] != held_out[1]:
            return None
        order = (steady, risky) if rng.random() < 0.5 else (risky, steady)
        return Arms(order, risky if self._risky_is_better != self.config.reversed else steady)
