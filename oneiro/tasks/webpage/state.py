"""A page before and after an action, and the part of it that a model is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from oneiro_web.actions import Kind, Malformed, parse_webarena
from oneiro_web.diff import Diff, Item, Items, diff, items_of, match
from oneiro_web.page import Page

MAIN = "main"
"""The role that encloses what is a page's own; what stands above it is the same on every page of a site."""


@dataclass(frozen=True, slots=True)
class PageState:
    """An address and the lines that are shown there."""

    url: str
    items: Items

    @classmethod
    def of(cls, page: Page) -> PageState:
        return cls(page.url, items_of(page))

    def item(self, number: int | None) -> Item | None:
        """The item of an id; lines are numbered in order."""
        if number is None or not self.items:
            return None
        # Usually ids have no gap, so that the place follows from the id.
        place = number - self.items[0].id
        guess = self.items[place] if 0 <= place < len(self.items) else None
        if guess is not None and guess.id == number:
            return guess
        return next((item for item in self.items if item.id == number), None)

    @property
    def main(self) -> int:
        """The place of the first line of the page's own part."""
        return next((place for place, item in enumerate(self.items) if item.line.startswith(f"{MAIN} ")), 0)

    def frame(self) -> tuple[int, int]:
        """How many lines stand above a page's own part, with the line that opens it, and where it ends."""
        top = self.main
        if not self.items or not self.items[top].line.startswith(f"{MAIN} "):
            return 0, len(self.items)
        depth = self.items[top].depth
        inside = range(top + 1, len(self.items))
        return top + 1, next((place for place in inside if self.items[place].depth <= depth), len(self.items))

    def same_document(self, other: PageState) -> bool:
        """Whether the address, but for its fragment, is the same."""
        return self.url.partition("#")[0] == other.url.partition("#")[0]


def same_items(before: PageState, after: PageState, by_element: Sequence[int]) -> tuple[int, ...]:
    """Which lines are the same item after an action (`oneiro_web.diff.Matched`).

    On one address, as `by_element` says. Another address is another document: its own part is new, and only the frame
    that the site puts around every page is compared.
    """
    if before.same_document(after):
        return tuple(by_element)
    matched = [-1] * len(after.items)
    (head, foot), (head_after, foot_after) = before.frame(), after.frame()
    for part, part_after in ((slice(0, head), slice(0, head_after)), (slice(foot, None), slice(foot_after, None))):
        start, start_after = part.start, part_after.start
        for at, place in enumerate(match(before.items[part], after.items[part_after])):
            matched[start_after + at] = start + place if place >= 0 else -1
    return tuple(matched)


@dataclass(frozen=True)
class PageSituation:
    """What may be known before an action is carried out."""

    site: str
    objective: str
    state: PageState
    action: str
    """In WebArena's grammar."""
    previous: tuple[str, ...] = ()
    """The actions before it, as `described` writes them."""

    @cached_property
    def element(self) -> int | None:
        """The id that the action names, whether or not the page has it."""
        parsed = parse_webarena(self.action)
        return None if isinstance(parsed, Malformed) else parsed.element

    @property
    def stops(self) -> bool:
        parsed = parse_webarena(self.action)
        return not isinstance(parsed, Malformed) and parsed.kind is Kind.STOP

    @property
    def described(self) -> str:
        """The action with what it names, as in the published histories: `click [6] where [6] is link 'Reply'`."""
        item = self.state.item(self.element)
        return f"{self.action} where [{item.id}] is {item.line}" if item is not None else self.action


@dataclass(frozen=True)
class PageTransition(PageSituation):
    """One true step."""

    after: PageState = PageState("", ())
    matched: tuple[int, ...] = ()
    """Which lines are the same item: see `oneiro_web.diff.Matched`."""
    valid: bool = True
    """The browser carried the action out."""
    probe: bool = False
    """The action was chosen because it should do nothing: an id that is not there, a click on a text."""
    done: bool = False
    reward: float = 0.0
    id: str = ""
    episode: str = ""
    """Steps of one episode share a task."""
    step: int = 0
    template: str = ""
    content: int = 0
    split: str = "train"

    @property
    def question(self) -> bytes:
        """What makes two steps the same question."""
        lines = "\n".join([self.state.url, self.action, *map(str, self.state.items)])
        return blake2b(lines.encode(errors="replace"), digest_size=16).digest()

    def situation(self) -> PageSituation:
        """The part that a prompt may use."""
        return PageSituation(self.site, self.objective, self.state, self.action, self.previous)


@dataclass(frozen=True)
class Window:
    """The lines of a page that are shown: all of them, or so many from `top` on."""

    top: int
    lines: int

    def of(self, state: PageState) -> Items:
        return state.items[self.top : self.top + self.lines] if self.lines else state.items


def window_before(case: PageSituation, lines: int) -> Window:
    """What is shown of the page: its own part from the beginning, or around the element that the action names.

    Depends on the page and the action, never on the outcome.
    """
    if not lines:
        return Window(0, 0)
    state, top = case.state, case.state.main
    item = state.item(case.element)
    if item is not None:
        place = item.id - state.items[0].id
        if place >= top + lines:
            top = max(top, min(place - lines // 2, len(state.items) - lines))
    return Window(top, lines)


def window_after(case: PageSituation, after: PageState, lines: int) -> Window:
    """What is seen after the action: the same lines, or the beginning of another page."""
    before = window_before(case, lines)
    return before if not lines or case.state.same_document(after) else Window(after.main, lines)


def shown_items(case: PageSituation, lines: int) -> Items:
    return window_before(case, lines).of(case.state)


def change_to(case: PageSituation, page: PageState | None, lines: int) -> Diff:
    """The change that leads to a predicted page, of what is shown; None, a page that nobody could predict, is none."""
    if page is None:
        return Diff()
    same = match(case.state.items, page.items) if case.state.same_document(page) else ()
    matched = same_items(case.state, page, same)
    return true_diff(PageTransition(case.site, "", case.state, case.action, after=page, matched=matched), lines)


def true_diff(case: PageTransition, lines: int) -> Diff:
    """What the action changed of what is shown. A line that leaves the window is deleted, one that enters it is new."""
    before, after = window_before(case, lines), window_after(case, case.after, lines)
    if not lines:
        return diff(case.state.items, case.after.items, case.matched)
    old, new = before.of(case.state), after.of(case.after)
    matched = [
        place - before.top if 0 <= place - before.top < len(old) else -1
        for place in case.matched[after.top : after.top + len(new)]
    ]
    return diff(old, new, matched)
