"""The two scores of a predicted change.

Strict: set precision, recall and F1 over the records of the three blocks, micro-averaged over the blocks, as published.
`None` is no item, nothing predicted where nothing changes is 1, and a text that cannot be read is 0. The id-free
figures compare role, name and properties only, each as often as it stands.

Official, the published reward of RLVR-World's web task, for comparing numbers: set F1 over whole lines of the whole
text. Thinking is read as well, the word `None` is an item, an empty answer to an unchanged page scores 0, and whatever
stands behind a heading on its line is lost. The original reaches the intersection by a Hungarian assignment of costs 0
and 10000, which is the same number. Bounded here: a text of more than `MAX_CHARACTERS` or `MAX_LINES` scores 0.

Content, a reward beside the two: what comes counts, and what goes only as far as it is told from what stays. Both F1s
pay more than half to an answer that deletes every shown line where the step leaves the page; content pays nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass

from oneiro.tasks.base import Flaw, Malformed
from oneiro.tasks.webpage.parse import MAX_CHARACTERS, MAX_LINES, PagePrediction, Record, record
from oneiro.tasks.webpage.prompt import HEADINGS
from oneiro_web.diff import Diff


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
    precision, recall, f1 = precision_recall_f1(
        len(distinct & distinct_true), len(distinct) + false, len(distinct_true)
    )
    loose, loose_true = (Counter((block, own[1:]) for block, own in records) for records in (claimed, true))
    _, _, id_free = precision_recall_f1((loose & loose_true).total(), len(claimed) + false, len(true))
    return PageScore(precision, recall, f1, id_free)


def content_score(predicted: PagePrediction | Malformed, truth: Diff, shown: int) -> float:
    """F1 over new and updated items, times how well deleted lines are told from kept ones; `shown` counts all of them.

    The second factor is Youden's J, the share of true deletions that is named less the share of kept lines that is:
    0 for an answer that deletes everything shown, and 0 for one that deletes nothing where something goes.
    """
    if isinstance(predicted, Malformed):
        return 0.0
    came, came_true = ({one for one in _records(change) if one[0] != 1} for change in (predicted.change, truth))
    gone, gone_true = (set(map(record, change.deleted)) for change in (predicted.change, truth))
    _, _, f1 = precision_recall_f1(
        len(came & came_true), len(came) + predicted.false[0] + predicted.false[2], len(came_true)
    )
    recall = len(gone & gone_true) / len(gone_true) if gone_true else 1.0
    # Where every shown line goes there is none to be kept; a deletion of a line that is not there still costs.
    kept = shown - len(gone_true) or max(1, shown)
    alarms = min(1.0, (len(gone - gone_true) + predicted.false[1]) / kept)
    return f1 * max(0.0, recall - alarms)


def precision_recall_f1(hits: int, claimed: int, true: int) -> tuple[float, float, float]:
    """Precision, recall and F1; all 1 where nothing was claimed and nothing is true."""
    if not claimed and not true:
        return 1.0, 1.0, 1.0
    precision, recall = hits / claimed if claimed else 0.0, hits / true if true else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if hits else 0.0


def _records(change: Diff) -> list[tuple[int, Record]]:
    """The records of each block. An answer may have thousands, so each is read once for both comparisons."""
    blocks = (change.new, change.deleted, change.updated)
    return [(block, record(item)) for block, items in enumerate(blocks) for item in items]


def sections(text: str) -> list[set[str]]:
    """The lines under each heading, as the published parser finds them."""
    lines_of: dict[str, set[str]] = {heading: set() for heading in HEADINGS}
    current: set[str] | None = None
    for line in text.split("\n"):
        line = line.strip()
        heading = next((heading for heading in HEADINGS if line.startswith(heading)), None)
        if heading is not None:
            current = lines_of[heading]
        elif line and current is not None:
            current.add(line)
    return list(lines_of.values())


def official_score(prediction: str, truth: str) -> PageScore:
    """Precision, recall and F1 of a text, given the text of the truth."""
    if len(prediction) > MAX_CHARACTERS or prediction.count("\n") > MAX_LINES:
        return PageScore()
    claimed, true = sections(prediction), sections(truth)
    hits = sum(len(one & two) for one, two in zip(claimed, true, strict=True))
    count, count_true = sum(map(len, claimed)), sum(map(len, true))
    precision, recall = hits / count if count else 0.0, hits / count_true if count_true else 0.0
    return PageScore(precision, recall, 2 * precision * recall / (precision + recall) if hits else 0.0)
