"""Does success inside a model tell of success outside it? The interface between the two, and measures of agreement.

A policy acts inside a `FrameModel`: it sees the frame the model shows and names an action, the model answers with the
next frame, and so on; nothing true comes in after the start. Any object with the two methods is one: a learned
predictor, or the true simulator itself.

"Real" is where success is known (a robot, or the true simulator), "simulated" the model that stands in for it. MMRV is
not symmetric in the two, and published code has mixed them up, so both are named in every call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from oneiro.report import plots, stats
from oneiro.report.stats import RESAMPLES
from oneiro.report.table import Cell, Table
from oneiro.runtime.seeds import generator


class FrameModel(Protocol):
    """Frames that answer actions, B rollouts at a time."""

    def begin(self, frames: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Start from frames uint8 `[B, T, H, W, 3]` and the actions float32 `[B, T - 1, A]` between them.

        Returns the last of them as the model itself shows it, `[B, H, W, 3]`: a policy sees no frame but the model's.
        """
        ...

    def step(self, actions: np.ndarray, seed: int) -> np.ndarray:
        """Take actions float32 `[B, A]`; returns the frames uint8 `[B, H, W, 3]` they lead to.

        `seed` decides the model's sampling noise; it differs at every step.
        """
        ...


def mean_gap(*, simulated: ArrayLike, real: ArrayLike) -> float:
    """The mean absolute difference of success rates `[P]`."""
    return float(_gap(*_pair(simulated, real)))


def pearson(*, simulated: ArrayLike, real: ArrayLike) -> float:
    """The correlation of success rates `[P]`; 0 where one side does not vary, unless the two vary alike."""
    return float(_pearson(*_pair(simulated, real)))


def mmrv(*, simulated: ArrayLike, real: ArrayLike) -> float:
    """Mean maximum rank violation (Li et al. 2024, SIMPLER, arXiv 2405.05941): how wrong a ranking is, at worst.

    For each policy the largest real difference to another one that the simulation ranks the wrong way round, averaged.
    Ranks are compared strictly, so two policies that tie in the simulation and differ in reality count for the better
    one of them. 0 is a right ranking, 1 the worst.
    """
    return float(_mmrv(*_pair(simulated, real)))


@dataclass(frozen=True)
class Agreement:
    """How well simulated success agrees with real success, each with its 95 % interval over starts."""

    gap: Cell
    pearson: Cell
    mmrv: Cell


def agreement(*, simulated: ArrayLike, real: ArrayLike, seed: int = 0) -> Agreement:
    """Agreement of outcomes `[P, S]` of P policies from the same S starts; starts are what is drawn again."""
    sim, true = np.asarray(simulated, np.float64), np.asarray(real, np.float64)
    if sim.ndim != 2 or sim.shape != true.shape or not sim.size:
        raise ValueError(f"outcomes must be two arrays [policies, starts], got {sim.shape} and {true.shape}")
    rng, starts = generator("real2sim", "bootstrap", seed), sim.shape[1]
    # How often each start is drawn: rates of all resamples are then two products.
    drawn = rng.multinomial(starts, np.full(starts, 1 / starts), size=RESAMPLES)
    cells = {}
    for name, measure in (("gap", _gap), ("pearson", _pearson), ("mmrv", _mmrv)):
        value = measure(sim.mean(axis=1), true.mean(axis=1))
        low, high = np.quantile(measure(drawn @ sim.T / starts, drawn @ true.T / starts), [0.025, 0.975])
        cells[name] = Cell(float(value), float(low), float(high), starts)
    return Agreement(**cells)


# The measures themselves, of rates [..., P].


def _gap(sim: np.ndarray, true: np.ndarray) -> np.ndarray:
    return np.abs(sim - true).mean(axis=-1)


def _pearson(sim: np.ndarray, true: np.ndarray) -> np.ndarray:
    x, y = (rates - rates.mean(axis=-1, keepdims=True) for rates in (sim, true))
    value = (x * y).sum(axis=-1) / (np.sqrt((x * x).sum(axis=-1) * (y * y).sum(axis=-1)) + 1e-8)
    return np.where(np.isclose(x, y).all(axis=-1), 1.0, value)


def _mmrv(sim: np.ndarray, true: np.ndarray) -> np.ndarray:
    wrong = (sim[..., :, None] > sim[..., None, :]) != (true[..., :, None] > true[..., None, :])
    return (np.abs(true[..., :, None] - true[..., None, :]) * wrong).max(axis=-1).mean(axis=-1)


def _pair(simulated: ArrayLike, real: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    sim, true = np.asarray(simulated, np.float64), np.asarray(real, np.float64)
    if sim.ndim != 1 or sim.shape != true.shape or not len(sim):
        raise ValueError(f"success rates must be two lists of one length, got {sim.shape} and {true.shape}")
    return sim, true


SIMULATOR = "simulator"
"""How the true simulator is called among models."""


@dataclass(frozen=True)
class Comparison:
    """Success of P policies from S starts: in the simulator by its state, in it by the classifier, in each model."""

    policies: tuple[str, ...]
    real: np.ndarray
    classified: np.ndarray
    """The classifier's verdict on the simulator's own last frames, bool `[P, S]`: its error on these rollouts."""
    models: dict[str, np.ndarray]
    decoded: dict[str, np.ndarray] = field(default_factory=dict)
    """The classifier's verdict on the same last frames as each model draws them, bool `[P, S]`: its error on frames of
    the kind it judges inside the model."""
    labelled: int = 0
    """How many of the verdicts are a person's."""

    def data(self) -> dict[str, Any]:
        """As JSON: every outcome."""
        seen = {f"simulator, drawn by {name}": outcomes for name, outcomes in self.decoded.items()}
        rows = {SIMULATOR: self.real, "simulator, classified": self.classified, **seen, **self.models}
        return {
            where: {name: outcomes[place].astype(int).tolist() for place, name in enumerate(self.policies)}
            for where, outcomes in rows.items()
        }


def tables(compared: Comparison, task: str) -> list[Table]:
    """Success and rank of each policy everywhere; agreement of each model with the simulator."""
    return [success_table(compared, task), agreement_table(compared, task)]


def success_table(compared: Comparison, task: str) -> Table:
    names = [SIMULATOR, "simulator, classified", *compared.models]
    verdicts = compared.classified.size + sum(outcomes.size for outcomes in compared.models.values())
    ranks = [f"rank: {name}" for name in (SIMULATOR, *compared.models)]
    table = Table(
        f"Success of policies, {task}",
        ["policy", *names, *ranks],
        dict.fromkeys(names, "%"),
        note="simulator: by its state; classified: by the classifier on its frames; models: by the classifier on theirs"
        + (f"; {compared.labelled} of {verdicts} verdicts by a person" if compared.labelled else ""),
    )
    columns = [compared.real, compared.classified, *compared.models.values()]
    placed = [_ranks(outcomes.mean(axis=1)) for outcomes in (compared.real, *compared.models.values())]
    for place in np.argsort(-compared.real.mean(axis=1), kind="stable"):
        cells = [stats.wilson(int(outcomes[place].sum()), outcomes.shape[1]) for outcomes in columns]
        table.add(compared.policies[place], *cells, *(rank[place] for rank in placed))
    return table


def agreement_table(compared: Comparison, task: str) -> Table:
    table = Table(
        f"Agreement with the simulator, {task}",
        ["success in", "mean gap", "Pearson", "MMRV"],
        note=f"over {len(compared.policies)} policies; intervals over starts. Rows 'simulator' are the classifier's "
        "own error: on the simulator's last frames, and on the same frames as each model draws them",
    )
    seen = {f"simulator, drawn by {name}": outcomes for name, outcomes in compared.decoded.items()}
    for name, outcomes in {"simulator, classified": compared.classified, **seen, **compared.models}.items():
        agreed = agreement(simulated=outcomes, real=compared.real)
        table.add(name, agreed.gap, agreed.pearson, agreed.mmrv)
    return table


def plot(compared: Comparison, task: str) -> str:
    """Success in each model over success in the simulator, a dot for each policy, as SVG."""
    real = compared.real.mean(axis=1).tolist()
    dots = [
        plots.Dots(name, real, outcomes.mean(axis=1).tolist(), compared.policies if number == 0 else ())
        for number, (name, outcomes) in enumerate(compared.models.items())
    ]
    return plots.scatter(f"Success of policies, {task}", dots, "in the simulator, %", "in the model, %")


def _ranks(rates: np.ndarray) -> list[int]:
    """1 for the best; equal rates share a rank."""
    return [1 + int((rates > rate).sum()) for rate in rates]
