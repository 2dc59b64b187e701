"""The strict score: set precision, recall and F1 over the records of the three blocks.

Micro-averaged over the blocks, as published. `None` is no item, nothing predicted where nothing changes is 1, and a
text that cannot be read is 0. The id-free figures compare role, name and properties only, each as often as it stands.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass

from oneiro.predictors.base import Flaw, Malformed
from oneiro.predictors.webpage.parse import PagePrediction, Record, record
from oneiro.worlds.web.diff import Diff


@dataclass(frozen=True, slots=True)
class PageScore:
    """How right a predicted change is."""

    precision: float = 0.0
    recall: float = 0.0
    f1: float = 0.0
    id_free_f1: float = 0.0
    flaw: Flaw | None = None
    """Why the answer could not be read."""

    def figures(self) -> dict[str, float]:
        return {name: value for name, value in asdict(self).items() if name != "flaw"}


def judge(predicted: PagePrediction | Malformed, truth: Diff) -> PageScore:
    """The comparison with the true change."""
    if isinstance(predicted, Malformed):
        return PageScore(flaw=predicted.flaw)
    claimed, true = _records(predicted.change), _records(truth)
    false = sum(predicted.false)
    distinct, distinct_true = set(claimed), set(true)
    precision, recall, f1 = figures(len(distinct & distinct_true), len(distinct) + false, len(distinct_true))
    loose, loose_true = (Counter((block, own[1:]) for block, own in records) for records in (claimed, true))
    _, _, id_free = figures((loose & loose_true).total(), len(claimed) + false, len(true))
    return PageScore(precision, recall, f1, id_free)


def figures(hits: int, claimed: int, true: int) -> tuple[float, float, float]:
    """Precision, recall and F1; all 1 where nothing was claimed and nothing is true."""
    if not claimed and not true:
        return 1.0, 1.0, 1.0
    precision, recall = hits / claimed if claimed else 0.0, hits / true if true else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if hits else 0.0


def _records(change: Diff) -> list[tuple[int, Record]]:
    """The records of each block. An answer may have thousands, so each is read once for both comparisons."""
    blocks = (change.new, change.deleted, change.updated)
    return [(block, record(item)) for block, items in enumerate(blocks) for item in items]
