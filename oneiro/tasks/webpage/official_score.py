"""The published reward of RLVR-World's web task, for comparing numbers: set F1 over whole lines of the whole text.

It differs from the strict score: thinking is read as well, the word `None` is an item, nothing right about nothing is
0, and whatever stands behind a heading on its line is lost. The original reaches the intersection by a Hungarian
assignment of costs 0 and 10000, which is the same number. Bounded here: a text of more than `MAX_CHARACTERS` or
`MAX_LINES` scores 0.
"""

from __future__ import annotations

from oneiro.tasks.webpage.parse import MAX_CHARACTERS, MAX_LINES
from oneiro.tasks.webpage.prompt import HEADINGS
from oneiro.tasks.webpage.score import PageScore


def sections(text: str) -> list[set[str]]:
    """The lines under each heading, as the published parser finds them."""
    found: dict[str, set[str]] = {heading: set() for heading in HEADINGS}
    current: set[str] | None = None
    for line in text.split("\n"):
        line = line.strip()
        heading = next((heading for heading in HEADINGS if line.startswith(heading)), None)
        if heading is not None:
            current = found[heading]
        elif line and current is not None:
            current.add(line)
    return list(found.values())


def official_score(prediction: str, truth: str) -> PageScore:
    """Precision, recall and F1 of a text, given the text of the truth."""
    if len(prediction) > MAX_CHARACTERS or prediction.count("\n") > MAX_LINES:
        return PageScore()
    claimed, true = sections(prediction), sections(truth)
    hits = sum(len(one & two) for one, two in zip(claimed, true, strict=True))
    count, count_true = sum(map(len, claimed)), sum(map(len, true))
    precision, recall = hits / count if count else 0.0, hits / count_true if count_true else 0.0
    return PageScore(precision, recall, 2 * precision * recall / (precision + recall) if hits else 0.0)
