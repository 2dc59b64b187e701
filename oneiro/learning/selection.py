"""Which weights of an RL stage are kept for good: those that did best on validation cases; and when to stop looking.

Validation cases are neither trained on nor part of the reported evaluation. All that decides comes from logged metrics,
so that a resumed run decides alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oneiro.learning.settings import SelectionSettings
from oneiro.models.language import LanguageModel, write_folder
from oneiro.models.locate import BEST
from oneiro.runtime import distributed, files
from oneiro.runtime.errors import OneiroError

RECORD = "selection.json"


@dataclass
class Selection:
    """Follows one RL stage."""

    settings: SelectionSettings
    folder: Path
    """The stage's checkpoints; the best weights lie there under `best`."""
    language: LanguageModel
    validate: Callable[[], dict[str, float]]
    metric: str
    """The validation metric that decides."""
    best: float | None = None
    since: int = 0
    """Validations since the best."""
    reason: str | None = None
    """Why the run was stopped."""

    def measure(self, step: int) -> dict[str, float]:
        """The validation metrics before the update of `step`, where they are due; the best weights are kept."""
        if (step - 1) % self.settings.every:
            return {}
        return self._validated(step - 1)

    def see(self, step: int, values: Mapping[str, Any]) -> str | None:
        """Take a step's metrics in; a text says why RL should end here."""
        if (value := values.get(self.metric)) is None:
            return None
        if self._better(value):
            self.best, self.since = value, 0
            return None
        self.since += 1
        if not self.settings.patience or self.since < self.settings.patience:
            return None
        self.reason = f"RL ended at step {step}: {self.since} validations in a row were no better than {self.best:.4g}"
        return self.reason

    def replay(self, rows: Iterable[Mapping[str, Any]]) -> str | None:
        """Take in the metrics of the steps that were done before; the reason, if the last of them was the end."""
        self.best, self.since, self.reason = None, 0, None
        for row in rows:
            self.see(row["step"], row)
        return self.reason

    def finish(self, steps: int) -> str:
        """Validate the last weights too; says which were kept."""
        self._validated(steps)
        kept = distributed.on_main_process(lambda: files.read_json(self.folder / BEST / RECORD))
        return (
            f"the weights after step {kept['step']} of {steps} did best on {self.settings.cases} validation cases "
            f"({kept['metric']} {kept['value']:.4g}) and are the ones that go on"
        )

    def _validated(self, steps: int) -> dict[str, float]:
        values = self.validate()
        if self.metric not in values:
            raise OneiroError(
                f"no '{self.metric}' among the validation metrics ({', '.join(values)}): see rl.select.metric"
            )
        if self._better(values[self.metric]):
            record = {"step": steps, "metric": self.metric, "value": values[self.metric]}
            write_folder(self.folder / BEST, lambda part: self._write(part, record))
        return values

    def _write(self, part: Path, record: dict[str, Any]) -> None:
        self.language.save(part / "model")
        files.write_json(part / RECORD, record)

    def _better(self, value: float) -> bool:
        if self.best is None:
            return True
        return value > self.best if self.settings.mode == "max" else value < self.best
