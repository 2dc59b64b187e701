"""A baseline that learns nothing: what did the nearest training step do?

The nearest step has the same site, a page of the same type and the same kind of action on the same element, as far as
there is such a step; among those, the page with the most lines in common. If that step led to another page, the answer
is that page; if not, the answer makes the same change to the page in question.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from oneiro.tasks.webpage.prompt import brief_text
from oneiro.tasks.webpage.state import (
    PageSituation,
    PageState,
    PageTransition,
    same_items,
    shown_items,
    true_diff,
)
from oneiro_web.actions import Malformed, parse_webarena
from oneiro_web.diff import Diff, Item

STEPS_COMPARED = 64
"""Training steps whose pages are compared, of those with the same key; the first ones."""
Key = tuple[str, ...]
_NUMBER = re.compile(r"\d+")


class PageLookup:
    """Training steps by what they have in common with a situation."""

    def __init__(self, train: Iterable[PageTransition], lines: int) -> None:
        self.lines = lines
        self.keys = lru_cache(maxsize=8192)(lambda case: keys(case, lines))
        self.places: dict[Key, list[PageTransition]] = defaultdict(list)
        for case in train:
            for key in self.keys(case):
                if len(self.places[key]) < STEPS_COMPARED:
                    self.places[key].append(case)
        self.text_of = lru_cache(maxsize=8192)(lambda case: frozenset(item.line for item in shown_items(case, lines)))

    def nearest(self, case: PageSituation, count: int = 1, apart: bool = False) -> list[PageTransition]:
        """The nearest training steps, best first. With `apart`, none of the same episode and none that asks the same:
        a prompt that shows them must not tell the answer of a training step.
        """
        own = case.episode if apart and isinstance(case, PageTransition) else None
        lines = {item.line for item in shown_items(case, self.lines)}
        steps: list[PageTransition] = []
        for key in self.keys(case)[1 if apart else 0 :]:
            question = self.keys(case)[0] if apart else None
            group = [
                other
                for other in self.places.get(key, ())
                if other.episode != own and other not in steps and self.keys(other)[0] != question
            ]
            group.sort(key=lambda other: -_overlap(lines, self.text_of(other)))
            steps += group[: count - len(steps)]
            if len(steps) == count:
                break
        return steps

    def has_seen(self, case: PageSituation) -> bool:
        """Whether a training step has the same type of page, action and element."""
        return any(key in self.places for key in self.keys(case)[:2])

    def __call__(self, case: PageSituation) -> Diff:
        """The change that the nearest step suggests."""
        near = self.nearest(case)
        if not near:
            return Diff()
        there = near[0]
        if not there.state.same_document(there.after):
            same = same_items(case.state, there.after, [-1] * len(there.after.items))
            step = PageTransition(case.site, "", case.state, case.action, after=there.after, matched=same)
            return true_diff(step, self.lines)
        return transplant(true_diff(there, self.lines), shown_items(there, self.lines), shown_items(case, self.lines))


def transplant(change: Diff, there: Sequence[Item], here: Sequence[Item]) -> Diff:
    """A change of one page made to another: lines are found again by their text, the first that is free."""
    free: dict[str, list[Item]] = defaultdict(list)
    for item in reversed(here):
        free[item.line].append(item)
    lines = {item.id: item.line for item in there}

    def again(items: Iterable[Item]) -> Iterator[tuple[Item, Item]]:
        for item in items:
            if matches := free.get(lines.get(item.id, ""), []):
                yield item, matches.pop()

    deleted = tuple(match for _, match in again(change.deleted))
    updated = tuple(match._replace(line=item.line) for item, match in again(change.updated))
    shift = (here[0].id if here else 1) - (there[0].id if there else 1)
    return Diff(tuple(item._replace(id=max(1, item.id + shift)) for item in change.new), deleted, updated)


def keys(case: PageSituation, lines: int) -> list[Key]:
    """From what has most in common to what has least: first of all the same question."""
    parsed = parse_webarena(case.action)
    kind = "malformed" if isinstance(parsed, Malformed) else str(parsed.kind)
    item = case.state.item(case.element)
    element = item.line if item is not None else "absent"
    role = element.partition(" ")[0]
    place = page_type(case.state)
    return [
        (case.site, brief_text(case, lines)),
        (case.site, place, kind, element),
        (case.site, kind, element),
        (case.site, place, kind, role),
        (case.site, kind, role),
        (kind, role),
        (kind,),
    ]


def page_type(state: PageState) -> str:
    """The address without what differs between pages of one type: numbers, the query and all but the first words."""
    path = state.url.partition("://")[2].partition("?")[0].partition("#")[0].split("/")
    return "/".join([*path[:2], str(len(path)), _NUMBER.sub("0", path[-1])[:12] if len(path) > 3 else ""])


def _overlap(one: set[str], two: frozenset[str]) -> float:
    return len(one & two) / max(1, len(one | two))
