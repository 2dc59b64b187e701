"""The tables of Dyna: success at the end, and the true steps that a variant needs to reach what real-only reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oneiro.report import stats
from oneiro.report.table import Table

Runs = Sequence[Mapping[str, Any]]


def variants_table(found: Mapping[str, Runs]) -> Table:
    """Success before RL and at the end; levels are what is independent, repeats of a level are averaged first."""
    table = Table(
        "Success on unseen levels after the last round",
        ["variant", "success", "repeats", "true steps", "in dreams", "gap", "model exact"],
        units=dict.fromkeys(("success", "in dreams", "gap", "model exact"), "%"),
        note="95 % intervals, bootstrap over levels; the repeats of a level are averaged first. `gap`: success in "
        "dreams less true success, on the same levels. `model exact`: exact predictions of the policy's own steps.",
    )
    rows = {"first policy": [one["rounds"][:1] for one in next(iter(found.values()))]}
    rows |= {variant: [one["rounds"] for one in runs] for variant, runs in found.items()}
    for name, runs in rows.items():
        last = [rounds[-1] for rounds in runs]
        success = np.array([one["success"] for one in last])
        means = [_mean([one[key] for one in last if key in one]) for key in ("dreamed_success", "gap", "model_exact")]
        each = " ".join(f"{100 * value:.1f}" for value in success.mean(axis=1)) if len(last) > 1 else None
        steps = round(float(np.mean([one["true_steps"] for one in last])))
        table.add(name, stats.bootstrap(success.mean(axis=0)), each, steps, *means)
    return table


def steps_table(found: Mapping[str, Runs]) -> tuple[Table | None, list[str]]:
    """True steps until each variant's success is what real-only ends with, for each repeat."""
    if "real-only" not in found:
        return None, []
    table = Table(
        "True environment steps to the success that real-only ends with",
        ["variant", "repeat", "success wanted", "true steps", "of real-only's"],
        units={"success wanted": "%", "of real-only's": "%"},
        note="The first measurement that reaches it counts; –: not reached. Measurements are made after each round.",
    )
    shares: dict[str, list[float | None]] = {}
    for number, real in enumerate(found["real-only"]):
        wanted, most = real["rounds"][-1]["true_success"], real["rounds"][-1]["true_steps"]
        for variant, runs in found.items():
            reached = next((one["true_steps"] for one in runs[number]["rounds"] if one["true_success"] >= wanted), None)
            share = reached / most if reached is not None else None
            shares.setdefault(variant, []).append(share)
            table.add(variant, number, wanted, reached, share)
    notes = []
    for variant, values in shares.items():
        if variant != "real-only":
            known = [value for value in values if value is not None]
            told = ", ".join(f"{value:.0%}" for value in known) or "in none"
            notes.append(
                f"{variant} reaches real-only's final success in {len(known)} of {len(values)} repeats, with {told} of "
                "its true steps."
            )
    return table, notes


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
