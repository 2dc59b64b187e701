"""What a model is told and how a change is written: the published form, and a brief one for small models.

An answer has three blocks of item lines in this order, an empty line between them, and `None` for an empty block:

    New items:
    [21] StaticText 'Your vote was counted.'

    Deleted items:
    None

    Updated items:
    [32] button 'Retract upvote'

With heads, a fourth block `Outcome:` says the next address, whether the episode ends, and its reward.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from oneiro.tasks.webpage.state import PageSituation, PageTransition, shown_items, window_before
from oneiro_web.browsing import GRAMMARS
from oneiro_web.diff import Diff

_ABSOLUTE = re.compile(r"^\[(\d{1,9})\]", re.MULTILINE)
_COUNTED = re.compile(r"^[ \t]*\[(\.?)(-?\d{1,9})\]", re.MULTILINE)


@dataclass(frozen=True)
class Numbers:
    """How the lines of one situation are counted."""

    home: int
    """Id of the line that opens the page's own part."""
    first: int
    """Id of the first line that is shown."""
    lines: int
    """How many are shown."""

    @classmethod
    def of(cls, case: PageSituation, lines: int) -> Numbers:
        window, items = window_before(case, lines), case.state.items
        if not items:
            return cls(1, 1, 0)
        return cls(items[case.state.main].id, items[window.top].id, len(window.of(case.state)))

    def write(self, number: int) -> str:
        """The name of an id, in its brackets."""
        down = self.first != self.home and self.first <= number < self.first + self.lines
        return f"[.{number - self.first + 1}]" if down else f"[{number - self.home + 1}]"

    def from_here(self, text: str) -> str:
        """A text whose lines begin with ids, counted from here."""
        return _ABSOLUTE.sub(lambda match: self.write(int(match[1])), text)

    def read(self, text: str) -> str:
        """The way back: an answer with the page's own ids. What no line can have stays unreadable."""
        return _COUNTED.sub(lambda match: f"[{int(match[2]) - 1 + (self.first if match[1] else self.home)}]", text)


Head = Literal["url", "done", "reward"]
Deletions = Literal["lines", "ids"]
NEW, DELETED, UPDATED = "New items:", "Deleted items:", "Updated items:"
HEADINGS = (NEW, DELETED, UPDATED)
OUTCOME = "Outcome:"
NONE = "None"

INSTRUCTIONS = f"""\
You are given a task, a web page as its accessibility tree, the address, the actions so far and the action that comes \
next. Predict what this action changes on the page.

An action is one of: {GRAMMARS["accessibility"].help}. An action that cannot be carried out changes nothing: an id \
that is not on the page, a click on plain text, a form without a required field.

Write three lists under the headings "{NEW}", "{DELETED}" and "{UPDATED}", each heading on a line of its own, with an \
empty line between the lists and {NONE} in a list without items. An item is one line of the page without indentation: \
its id in brackets, its role, its name in quotes, then properties such as focused, required, checked, expanded, \
hasPopup or disabled with their values. An updated item keeps its id and is written in its new form. Ids count the \
lines of a page: a new item has the number of its line on the next page.

Example of an answer:
{NEW}
[23] StaticText 'Vortex Running Shoes'
[24] button 'Add to Cart'

{DELETED}
{NONE}

{UPDATED}
[12] textbox 'Search' focused: True required: False"""
REASON = "Reason first, then write the lists."
DIRECT = "Write the lists directly."
HEADS = {
    "url": "url: the address of the next page",
    "done": "done: yes or no, whether the episode ends",
    "reward": "reward: 1 if the task is then fulfilled, else 0",
}


def instructions(reasoning: bool, heads: Sequence[Head]) -> str:
    """The part of a prompt that is the same for all situations."""
    block = f'\n\nThen write a fourth list "{OUTCOME}": {"; ".join(HEADS[head] for head in heads)}.' if heads else ""
    return f"{INSTRUCTIONS}{block}\n{REASON if reasoning else DIRECT}"


def situation_text(case: PageSituation, lines: int) -> str:
    """The slots of the published prompt."""
    tree = "\n".join("\t" * item.depth + str(item) for item in shown_items(case, lines))
    return (
        f"URL: {case.state.url}\nOBJECTIVE: {case.objective}\nPREVIOUS ACTION: {'; '.join(case.previous) or NONE}\n"
        f"CURRENT OBSERVATION:\n{tree}\nCURRENT ACTION: {case.described}"
    )


def brief_text(case: PageSituation, lines: int) -> str:
    """Address, lines, action and the line that it names: what a small model that is fine-tuned on the task needs.

    The line stands at the end as it stands on the page, so that the same tokens name it.
    """
    address = case.state.url.removeprefix("http://").partition("?")
    tree = "\n".join(map(str, shown_items(case, lines)))
    return f"{address[0]}{address[1]}\n{tree}\n{action_text(case)}"


def action_text(case: PageSituation) -> str:
    """An action, and below it the line that it names."""
    if case.element is None:
        return case.action
    item = case.state.item(case.element)
    rest = case.action.replace(f" [{case.element}]", "", 1)
    return f"{rest}\n{item if item is not None else f'[{case.element}]'}"


def answer(change: Diff, deletions: Deletions = "lines", outcome: Sequence[str] = ()) -> str:
    """A change as text; with `deletions="ids"` a deleted item is only its id, since the page says the rest."""
    blocks = [
        (NEW, list(map(str, change.new))),
        (DELETED, [str(item) if deletions == "lines" else f"[{item.id}]" for item in change.deleted]),
        (UPDATED, list(map(str, change.updated))),
        *([(OUTCOME, list(outcome))] if outcome else []),
    ]
    return "\n\n".join("\n".join([heading, *(lines or [NONE])]) for heading, lines in blocks)


def outcome_lines(case: PageTransition, heads: Sequence[Head]) -> list[str]:
    """What truly came of an action besides the change."""
    values = {"url": case.after.url, "done": "yes" if case.done else "no", "reward": f"{case.reward:g}"}
    return [f"{head}: {values[head]}" for head in heads]
