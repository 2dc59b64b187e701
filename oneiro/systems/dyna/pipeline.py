"""Dyna (Sutton 1991): an agent learns by RL in a learned world and in the true one, and the model from true steps.

    play  ->  world model and first policy  ->  rounds: RL, refreshed model, measured success  ->  tables

All variants start from the same play, model and policy and take the same number of RL steps over as many episodes; they
differ in where these are played. The x axis of every curve is the number of true environment steps so far, those of the
play before RL included. A world fills in how its policy learns, how its model is refreshed and what is measured
(`lake.py`, `web.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oneiro.agents.learners import Repeat
from oneiro.episode import Episode
from oneiro.learning import stages
from oneiro.learning.stages import Curve
from oneiro.report import stats
from oneiro.report.table import Table
from oneiro.rundir.run import Run
from oneiro.runtime import plugins
from oneiro.systems.dyna.recipe import DynaLakeRecipe, DynaSettings, DynaWebRecipe, Variant

REFRESHED: Variant = "mixed"
"""The variant whose model goes on learning."""
LOGGED = ("true_success", "dreamed_success", "gap", "model_exact")
"""What is logged at every evaluation."""


def run(recipe: DynaLakeRecipe | DynaWebRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    variant_class: type[DynaVariant] = plugins.resolve(recipe.variant_class, f"the world of {recipe.system}")
    learners = [variant_class.learner_class(recipe, run, number) for number in range(recipe.repeats)]
    run.plan(stage_names(learners[0].stages, recipe.dyna.rounds, recipe.variants, recipe.repeats))
    measured: dict[str, list[dict[str, Any]]] = {variant: [] for variant in recipe.variants}
    for learner in learners:
        learner.learn()
        for variant in recipe.variants:
            measured[variant].append(variant_class(learner, recipe, variant).train())
    compared = run.stage("compare", lambda: compare(run, measured))
    lines = {f"{variant} {one.number}": f"{variant}-{one.number}" for variant in recipe.variants for one in learners}
    curves = [
        Curve("True success against true environment steps", "true_success", lines, "%"),
        Curve("Success in dreams less true success, against true environment steps", "gap", lines, "%"),
        Curve("Exact predictions of the policy's own steps", "model_exact", lines, "%"),
    ]
    stages.summarise(run, compared, curves, compared["notes"])


def stage_names(learned: Sequence[str], rounds: int, variants: Sequence[Variant], repeats: int) -> list[str]:
    """All stages in order; a variant that stops early leaves out those of its later rounds."""
    names = []
    for number in range(repeats):
        names += [f"{stage}-{number}" for stage in (*learned, "evaluate-policy")]
        for variant in variants:
            names.append(f"evaluate-{variant}-{number}-0")
            each = ("rl", "refresh", "evaluate") if variant == REFRESHED else ("rl", "evaluate")
            names += [f"{stage}-{variant}-{number}-{turn}" for turn in range(1, rounds + 1) for stage in each]
    return [*names, "compare"]


class DynaVariant(ABC):
    """One variant of one repeat, in one world."""

    learner_class: ClassVar[type[Repeat]]
    """What learns the first model and policy of a repeat."""
    played: ClassVar[Sequence[str]]
    """The learner's stages that took true environment steps."""

    def __init__(self, learner: Any, recipe: Any, variant: Variant) -> None:
        self.learner, self.recipe, self.variant = learner, recipe, variant
        self.run: Run = learner.run
        self.number: int = learner.number
        self.settings: DynaSettings = recipe.dyna

    @property
    def name(self) -> str:
        return f"{self.variant}-{self.number}"

    @property
    def dreams(self) -> bool:
        return self.variant in ("dream-only", "mixed")

    @property
    def refreshes(self) -> bool:
        """Whether the model goes on learning: `dream-only` brings it no new true steps."""
        return self.variant == REFRESHED

    @property
    def real_share(self) -> float:
        """Part of the levels that are played in the true world."""
        return {"real-only": 1.0, "dream-only": 0.0}.get(self.variant, self.settings.real_share)

    @abstractmethod
    def reinforce(self, number: int) -> dict[str, Any]:
        """A round of RL from the last round's policy, with the last refreshed model; `true_steps` counts its true
        environment steps.
        """

    @abstractmethod
    def refresh(self, number: int) -> dict[str, Any]:
        """The model learns from the true steps of the rounds so far."""

    @abstractmethod
    def evaluate(self, number: int) -> dict[str, Any]:
        """`LOGGED`, `true_steps` and `success` by level, after a round; after none, of the first policy."""

    def train(self) -> dict[str, Any]:
        """All rounds, until they are over or the gap opens; the measurements after each, the first before any RL."""
        # Once for a repeat: all variants start from the same policy, so that their curves start at one point.
        first = self.run.stage(f"evaluate-policy-{self.number}", partial(self.evaluate, 0))
        measured = [self.run.stage(f"evaluate-{self.name}-0", partial(self.evaluate_and_log, 0, first))]
        reason = ""
        for number in range(1, self.settings.rounds + 1):
            self.run.stage(f"rl-{self.name}-{number}", partial(self.reinforce, number))
            if self.refreshes:
                self.run.stage(f"refresh-{self.name}-{number}", partial(self.refresh, number))
            measured.append(self.run.stage(f"evaluate-{self.name}-{number}", partial(self.evaluate_and_log, number)))
            gap = measured[-1]["gap"]
            # A policy that does well only in dreams has learned the model's mistakes; more of them would not help.
            if self.dreams and abs(gap) > self.settings.max_gap:
                reason = (
                    f"{self.name} stopped after round {number}: success in dreams differs from the truth by {gap:.1%}"
                )
                self.run.say(reason)
                break
        return {"rounds": measured, "stopped": reason}

    def true_steps(self, number: int) -> int:
        """True environment steps up to the end of a round, those before RL included."""
        rounds = [self.run.result(f"rl-{self.name}-{earlier}")["true_steps"] for earlier in range(1, number + 1)]
        before = [self.run.result(self.learner.name_stage(stage))["steps"] for stage in self.played]
        return int(sum(before) + sum(rounds))

    def measurements(
        self, number: int, true: Sequence[Episode], dreamed: Sequence[Episode], right: Sequence[bool]
    ) -> dict[str, Any]:
        """What `evaluate` returns: attempts at the same levels in the true world and in dreams, and whether the model
        was right on the true steps.
        """
        success, dream = by_level(true), by_level(dreamed)
        return {
            "true_success": float(np.mean(success)),
            "dreamed_success": float(np.mean(dream)),
            "gap": float(np.mean(dream) - np.mean(success)),
            **({"model_exact": float(np.mean(right))} if right else {}),
            "true_steps": self.true_steps(number),
            "success": success,
        }

    def evaluate_and_log(self, number: int, known: dict[str, Any] | None = None) -> dict[str, Any]:
        """The measurements after a round, logged by the round's number."""
        values = known if known is not None else self.evaluate(number)
        self.run.rewind(f"rounds-{self.name}", number - 1)
        self.run.log(f"rounds-{self.name}", number, {key: values[key] for key in LOGGED if key in values})
        self.run.say(
            f"{self.name}, round {number}, {values['true_steps']:,} true steps: success {values['true_success']:.1%}, "
            f"in dreams {values['dreamed_success']:.1%}"
        )
        return values


def by_level(episodes: Sequence[Episode]) -> list[float]:
    """The share of attempts at each level that succeed."""
    levels: dict[int, list[bool]] = {}
    for episode in episodes:
        levels.setdefault(episode.group, []).append(episode.success)
    return [float(np.mean(attempts)) for attempts in levels.values()]


def compare(run: Run, variants: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The curves over true steps, the tables, and in words how many true steps each variant needed."""
    for variant, runs in variants.items():
        for number, one in enumerate(runs):
            run.rewind(f"{variant}-{number}", -1)  # written anew as a whole, so that a resumed run has no row twice
            for measured in one["rounds"]:
                values = {key: measured[key] for key in LOGGED if key in measured}
                run.log(f"{variant}-{number}", measured["true_steps"], values)
    (equal, compared), (steps, reached) = equal_steps_table(variants), steps_table(variants)
    stopped = [one["stopped"] for runs in variants.values() for one in runs if one["stopped"]]
    tables = [one for one in (equal, variants_table(variants), steps) if one is not None]
    return {"tables": [one.data() for one in tables], "notes": [*compared, *reached, *stopped]}


Runs = Sequence[Mapping[str, Any]]


def variants_table(variants: Mapping[str, Runs]) -> Table:
    """Success before RL and at the end; levels are what is independent, repeats of a level are averaged first."""
    table = Table(
        "Success on unseen levels after the last round",
        ["variant", "success", "repeats", "true steps", "in dreams", "gap", "model exact"],
        units=dict.fromkeys(("success", "in dreams", "gap", "model exact"), "%"),
        note="95 % intervals, bootstrap over levels; the repeats of a level are averaged first. `gap`: success in "
        "dreams less true success, on the same levels. `model exact`: exact predictions of the policy's own steps.",
    )
    rows = {"first policy": [one["rounds"][:1] for one in next(iter(variants.values()))]}
    rows |= {variant: [one["rounds"] for one in runs] for variant, runs in variants.items()}
    for name, runs in rows.items():
        last = [rounds[-1] for rounds in runs]
        success = np.array([one["success"] for one in last])
        means = [_mean([one[key] for one in last if key in one]) for key in ("dreamed_success", "gap", "model_exact")]
        each = " ".join(f"{100 * value:.1f}" for value in success.mean(axis=1)) if len(last) > 1 else None
        steps = round(float(np.mean([one["true_steps"] for one in last])))
        table.add(name, stats.bootstrap(success.mean(axis=0)), each, steps, *means)
    return table


MOMENTS = {"at a third": 1 / 3, "at two thirds": 2 / 3, "at the end": 1.0}
"""Columns of the table over equal true steps: how much of the RL steps that all variants took."""


def equal_steps_table(variants: Mapping[str, Runs]) -> tuple[Table | None, list[str]]:
    """Success after as many true steps for every variant that takes any, between measurements by straight lines; and
    what dreams add to `replay` at the end.
    """
    acting = {name: runs for name, runs in variants.items() if all(map(_acts, runs))}
    if len(acting) < 2:
        return None, []
    table = Table(
        "Success at equal true steps",
        ["variant", *MOMENTS, "repeats at the end", "true steps"],
        units=dict.fromkeys(MOMENTS, "%"),
        note="The end: the true steps that every variant of a repeat took. 95 % intervals, bootstrap over levels; the "
        "repeats of a level are averaged first.",
    )
    repeats = list(zip(*acting.values(), strict=True))
    ends = [min(one["rounds"][-1]["true_steps"] for one in runs) for runs in repeats]
    last: dict[str, NDArray[np.float64]] = {}
    first = [{"rounds": one["rounds"][:1]} for one in next(iter(acting.values()))]
    for name, runs in {"first policy": first, **acting}.items():
        cells = []
        for share in MOMENTS.values():
            begins = [one["rounds"][0]["true_steps"] for one in runs]
            moments = [begin + share * (end - begin) for begin, end in zip(begins, ends, strict=True)]
            last[name] = np.array([success_at(one, moment) for one, moment in zip(runs, moments, strict=True)])
            cells.append(stats.bootstrap(last[name].mean(axis=0)))
        each = " ".join(f"{100 * value:.1f}" for value in last[name].mean(axis=1)) if len(runs) > 1 else None
        table.add(name, *cells, each, round(float(np.mean(ends))))
    if not {"mixed", "replay"} <= set(last):
        return table, []
    gain = stats.paired(last["mixed"].mean(axis=0), last["replay"].mean(axis=0))
    return table, [f"At equal true steps, success of mixed less replay: {gain.words('{:+.1%}')}."]


def _acts(run: Mapping[str, Any]) -> bool:
    return bool(run["rounds"][-1]["true_steps"] > run["rounds"][0]["true_steps"])


def success_at(run: Mapping[str, Any], steps: float) -> NDArray[np.float64]:
    """[levels] after so many true steps, between two measurements by a straight line."""
    taken = [one["true_steps"] for one in run["rounds"]]
    success = np.array([one["success"] for one in run["rounds"]], np.float64)
    return np.array([np.interp(steps, taken, level) for level in success.T])


def steps_table(variants: Mapping[str, Runs]) -> tuple[Table | None, list[str]]:
    """True steps until each variant's success is what real-only ends with, for each repeat."""
    if "real-only" not in variants:
        return None, []
    table = Table(
        "True environment steps to the success that real-only ends with",
        ["variant", "repeat", "success wanted", "true steps", "of real-only's"],
        units={"success wanted": "%", "of real-only's": "%"},
        note="The first measurement that reaches it counts; –: not reached. Measurements are made after each round. "
        "Only repeats in which real-only learned: its success rose, with a 95 % interval over levels above 0.",
    )
    shares: dict[str, list[float | None]] = {}
    notes = []
    for number, real in enumerate(variants["real-only"]):
        # Repeat by repeat, since each has a play and a first policy of its own.
        first, last = real["rounds"][0], real["rounds"][-1]
        wanted, most = last["true_success"], last["true_steps"]
        rise = stats.paired(last["success"], first["success"])
        if rise.low is None or rise.low <= 0:
            # Whoever stands where real-only stands has saved nothing if real-only went nowhere.
            notes.append(
                f"Repeat {number}: real-only learned nothing to speak of ({first['true_success']:.1%} before, "
                f"{wanted:.1%} after), so no steps are saved."
            )
            continue
        for variant, runs in variants.items():
            reached = next((one["true_steps"] for one in runs[number]["rounds"] if one["true_success"] >= wanted), None)
            share = reached / most if reached is not None else None
            shares.setdefault(variant, []).append(share)
            table.add(variant, number, wanted, reached, share)
    for variant, values in shares.items():
        if variant != "real-only":
            known = [value for value in values if value is not None]
            each = ", ".join(f"{value:.0%}" for value in known) or "in none"
            notes.append(
                f"{variant} reaches real-only's final success in {len(known)} of {len(values)} repeats that learned, "
                f"with {each} of its true steps."
            )
    return table if shares else None, notes


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
