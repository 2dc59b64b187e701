"""What an action changed on a page: the lines that are new, deleted and updated, and the page that a diff leads to.

Lines are matched in passes: nodes that the browser knows to be the same element, then equal lines, then, in the gaps
that are left, an assignment of similar lines. Every pass keeps document order, which is what ids mean here. So a
diff can be carried out: `apply(before, diff(before, after))` is `after`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

from oneiro_web.page import Page

LARGEST_ALIGNED = 2000
"""Lines of a page; of a longer one only what it has in common at both ends is matched."""
LARGEST_GAP = 10_000
"""Pairs of lines that are compared in one gap; a larger gap is all deleted and new."""
SIMILAR = 0.5
"""Share of words that two names must have in common to be one item."""
_WORD = re.compile(r"\w+")
_ROLE = re.compile(r"[^\s']*")
_NAME = re.compile(r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"")


class Item(NamedTuple):
    """One line of a page."""

    id: int
    line: str
    """Role, name and properties, without the id."""
    depth: int = 0
    """Indentation: how many lines enclose it."""

    def __str__(self) -> str:
        return f"[{self.id}] {self.line}"


Items = tuple[Item, ...]
Matched = Sequence[int]
"""For every line after the action, the place of the line before it that it is the same item as, or -1."""


@dataclass(frozen=True, slots=True)
class Diff:
    """What is different: deleted and updated items by their ids before the action, new ones by those after it."""

    new: Items = ()
    deleted: Items = ()
    updated: Items = ()
    """In their new form."""
    moved: Items = ()
    """Kept items at a new depth, by their ids before the action. Answers do not write depths, and no score counts them:
    they are here so that a true diff leads to the true page.
    """

    def __bool__(self) -> bool:
        return bool(self.new or self.deleted or self.updated)


def items_of(page: Page) -> Items:
    """The printed lines of a page."""
    return tuple(Item(node.id, node.line, node.depth) for node in page.nodes.values())


def compare(before: Page, after: Page) -> list[int]:
    """Which lines of two pages are the same item, by the browser's own identity of nodes first."""
    return match(items_of(before), items_of(after), _keys(before), _keys(after))


def match(
    before: Sequence[Item],
    after: Sequence[Item],
    keys_before: Sequence[Hashable] | None = None,
    keys_after: Sequence[Hashable] | None = None,
) -> list[int]:
    """`Matched` of two pages. Keys, where given, say which nodes are one element."""
    matched = [-1] * len(after)
    pairs: list[tuple[int, int]] = []
    if keys_before is not None and keys_after is not None:
        pairs = _increasing(_same_elements(before, after, keys_before, keys_after))
    for low, high, low_after, high_after in _gaps(pairs, len(before), len(after)):
        pairs += _equal(before, after, low, high, low_after, high_after)
    for low, high, low_after, high_after in _gaps(sorted(pairs), len(before), len(after)):
        pairs += _assigned(before, after, low, high, low_after, high_after)
    for low, high, low_after, high_after in _gaps(sorted(pairs), len(before), len(after)):
        pairs += _alone(before, after, low, high, low_after, high_after)
    for place, place_after in pairs:
        matched[place_after] = place
    return matched


def diff(before: Sequence[Item], after: Sequence[Item], matched: Matched | None = None) -> Diff:
    """What is different, as lines. `matched` is computed where it is not known."""
    matched = match(before, after) if matched is None else matched
    kept = set(matched)
    pairs = [(before[place], item) for place, item in zip(matched, after, strict=True) if place >= 0]
    return Diff(
        new=tuple(item for place, item in zip(matched, after, strict=True) if place < 0),
        deleted=tuple(item for place, item in enumerate(before) if place not in kept),
        updated=tuple(old._replace(line=item.line) for old, item in pairs if old.line != item.line),
        moved=tuple(old._replace(depth=item.depth) for old, item in pairs if old.depth != item.depth),
    )


def apply(before: Sequence[Item], change: Diff, first: int | None = None) -> Items:
    """The page that a diff leads to, its lines numbered from `first` on (as before, where it is left out). Total: ids
    that are not on the page change nothing.

    What is kept stays in order; a new item stands at the place that its id names, since ids count lines.
    """
    if first is None:
        first = before[0].id if before else 1
    gone = {item.id for item in change.deleted}
    lines: Mapping[int, str] = {item.id: item.line for item in change.updated}
    depths: Mapping[int, int] = {item.id: item.depth for item in change.moved}
    kept = [
        item._replace(line=lines.get(item.id, item.line), depth=depths.get(item.id, item.depth))
        for item in before
        if item.id not in gone
    ]
    places: dict[int, Item] = {}
    for item in change.new:
        places.setdefault(item.id - first, item)
    items: list[Item] = []
    waiting = deque(kept)
    while waiting or len(items) in places:
        items.append(places.pop(len(items)) if len(items) in places else waiting.popleft())
    items += [places[place] for place in sorted(places)]  # beyond the end: in order
    return tuple(item._replace(id=first + place) for place, item in enumerate(items))


# Matching ------------------------------------------------------------------------------------------------------------


def _keys(page: Page) -> list[Hashable]:
    """A key for each line: the element behind it, its role, and which of that element's lines it is."""
    seen = Counter[tuple[int, str]]()
    keys: list[Hashable] = []
    for node in page.nodes.values():
        # The number of a browser's node, or the place in memory of an element that the page keeps alive.
        handle = node.handle if isinstance(node.handle, int) else id(node.handle) if node.handle is not None else 0
        seen[handle, node.role] += 1
        keys.append((handle, node.role, seen[handle, node.role]) if handle else None)
    return keys


def _same_elements(
    before: Sequence[Item], after: Sequence[Item], keys_before: Sequence[Hashable], keys_after: Sequence[Hashable]
) -> list[tuple[int, int]]:
    places = {key: place for place, key in enumerate(keys_before) if key is not None}
    return [(places[key], place) for place, key in enumerate(keys_after) if key is not None and key in places]


def _increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The most pairs that keep the order on both sides: a longest increasing subsequence."""
    ends: list[int] = []
    last: list[int] = []
    previous: list[int] = []
    for number, (place, _) in enumerate(pairs):
        at = bisect_left(ends, place)
        previous.append(last[at - 1] if at else -1)
        ends[at : at + 1] = [place]
        last[at : at + 1] = [number]
    kept = []
    number = last[-1] if last else -1
    while number >= 0:
        kept.append(pairs[number])
        number = previous[number]
    return kept[::-1]


def _gaps(pairs: Iterable[tuple[int, int]], length: int, length_after: int) -> list[tuple[int, int, int, int]]:
    """The stretches between matched lines that have lines on both sides."""
    gaps, low, low_after = [], 0, 0
    for place, place_after in [*pairs, (length, length_after)]:
        if place > low and place_after > low_after:
            gaps.append((low, place, low_after, place_after))
        low, low_after = place + 1, place_after + 1
    return gaps


def _equal(
    before: Sequence[Item], after: Sequence[Item], low: int, high: int, low_after: int, high_after: int
) -> list[tuple[int, int]]:
    """Equal lines in order; of enormous pages only those at both ends."""
    old, new = [item.line for item in before[low:high]], [item.line for item in after[low_after:high_after]]
    if max(len(old), len(new)) <= LARGEST_ALIGNED:
        blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        return [(low + b.a + i, low_after + b.b + i) for b in blocks for i in range(b.size)]
    shortest = min(len(old), len(new))
    start = next((i for i in range(shortest) if old[i] != new[i]), shortest)
    end = next((i for i in range(shortest - start) if old[-1 - i] != new[-1 - i]), shortest - start)
    head = [(low + i, low_after + i) for i in range(start)]
    return head + [(high - i, high_after - i) for i in range(end, 0, -1)]


def _assigned(
    before: Sequence[Item], after: Sequence[Item], low: int, high: int, low_after: int, high_after: int
) -> list[tuple[int, int]]:
    """The assignment of similar lines in a gap that has the greatest similarity and keeps the order."""
    rows, columns = high - low, high_after - low_after
    if rows * columns > LARGEST_GAP:
        return []
    old = [_features(item.line) for item in before[low:high]]
    new = [_features(item.line) for item in after[low_after:high_after]]
    likeness = [[_similarity(one, two) for two in new] for one in old]
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows):
        for j in range(columns):
            best[i + 1][j + 1] = max(best[i][j + 1], best[i + 1][j], best[i][j] + likeness[i][j])
    pairs: list[tuple[int, int]] = []
    i, j = rows, columns
    while i and j:
        if best[i][j] == best[i - 1][j]:
            i -= 1
        elif best[i][j] == best[i][j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((low + i, low_after + j))
    return pairs


def _alone(
    before: Sequence[Item], after: Sequence[Item], low: int, high: int, low_after: int, high_after: int
) -> list[tuple[int, int]]:
    """Two lines of one role that stand alone between the same neighbours, as a count of votes does."""
    alone = high - low == high_after - low_after == 1
    return [(low, low_after)] if alone and _features(before[low].line)[0] == _features(after[low_after].line)[0] else []


def _features(line: str) -> tuple[str, str, frozenset[str]]:
    """Role, quoted name and the words of the name."""
    role = _ROLE.match(line)
    name = _NAME.search(line)
    quoted = name[0] if name else ""
    return role[0] if role else "", quoted, frozenset(_WORD.findall(quoted.lower()))


def _similarity(one: tuple[str, str, frozenset[str]], two: tuple[str, str, frozenset[str]]) -> float:
    """2 for the same role and name, up to 1 for names with words in common, 0 for lines that are no one item."""
    if one[0] != two[0]:
        return 0.0
    if one[1] == two[1]:
        return 2.0
    union = one[2] | two[2]
    share = len(one[2] & two[2]) / len(union) if union else 0.0
    return share if share >= SIMILAR else 0.0
