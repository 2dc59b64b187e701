"""Steps inside a page that the page's own content decides: what changes is a copy, a permutation or a sum of what is
shown.

Navigation is mostly structure, which a memory of training pages knows as well as a model does. Sorting a table, voting,
filling in a form or deleting a row changes lines that no training page has and that the page in question tells. These
steps are chosen by their pages and the truth, never by an answer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from itertools import combinations_with_replacement

from oneiro.tasks.webpage.slot_model import SITE_CONTENTS
from oneiro.tasks.webpage.slots import Line
from oneiro.tasks.webpage.state import PageState, PageTransition, shown_items, true_diff
from oneiro_web.actions import Action, parse_webarena

SITE_SHARE = 0.03
"""Of a site's contents that must have a name for it to be the site's: names are drawn from lists, so that of many
contents a few share one by chance."""
SHORTEST_QUOTE = 4
"""Characters of a shown name that another line may quote; shorter ones stand in many words by chance."""
MAX_NUMBERS = 64
"""Different numbers of a page whose sums and products are made, in the order in which they are shown."""
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def site_names(train: Iterable[PageTransition]) -> frozenset[str]:
    """Names that belong to a site and not to one content of it: buttons, labels, messages. A number never does."""
    contents: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    sizes: dict[str, set[int]] = defaultdict(set)
    for state, site, content in {(state, c.site, c.content) for c in train for state in (c.state, c.after)}:
        sizes[site].add(content)
        for name in {Line.of(item).name for item in state.items}:
            if not _NUMBER.search(name):
                contents[name][site].add(content)
    least = {site: max(SITE_CONTENTS, SITE_SHARE * len(every)) for site, every in sizes.items()}
    return frozenset(
        name for name, sites in contents.items() if any(len(own) >= least[at] for at, own in sites.items())
    )


def inside_page(case: PageTransition) -> bool:
    """Whether an action stays on its page: the address is the same but for query and fragment."""
    return _path(case.state) == _path(case.after)


def decided_by_content(case: PageTransition, lines: int, known: Set[str]) -> bool:
    """Whether a step stays on its page and changes content, at least half of which what is shown tells. `known` are the
    names that belong to the site.
    """
    if case.stops or not inside_page(case):
        return False
    change = true_diff(case, lines)
    names = [Line.of(item).name for item in (*change.new, *change.updated)]
    own = [name for name in names if name not in known]
    if not own:
        # A row that goes and nothing in its place: the action's element says which.
        return not change.new and any(Line.of(item).name not in known for item in change.deleted)
    told = Shown.of(case, lines, known)
    return 2 * sum(map(told.tells, own)) >= len(own)


class Shown:
    """What a page and an action tell about the lines that come next."""

    def __init__(self, names: Sequence[str], known: Set[str]) -> None:
        self.names = frozenset(names)
        self.quotes = [name for name in self.names if len(name) >= SHORTEST_QUOTE and name not in known]
        self.shapes = {_NUMBER.sub("0", name) for name in (*names, *known)}
        numbers = list(dict.fromkeys(number for name in names for number in numbers_in(name)))[:MAX_NUMBERS]
        pairs = list(combinations_with_replacement(numbers, 2))
        # A counter moves by 1; totals are sums, line totals products of price and quantity.
        self.numbers = {
            round(value, 2)
            for value in (
                *numbers,
                *(number + step for number in numbers for step in (-1, 1)),
                *(one + two for one, two in pairs),
                *(one * two for one, two in pairs),
            )
        }

    @classmethod
    def of(cls, case: PageTransition, lines: int, known: Set[str]) -> Shown:
        parsed = parse_webarena(case.action)
        typed = [parsed.text] if isinstance(parsed, Action) and parsed.text else []
        return cls([*(Line.of(item).name for item in shown_items(case, lines)), *typed], known)

    def tells(self, name: str) -> bool:
        """Whether a name is a copy, quotes one, or has its form with numbers that follow from those shown."""
        if name in self.names or any(quote in name for quote in self.quotes):
            return True
        numbers = numbers_in(name)
        return bool(numbers) and _NUMBER.sub("0", name) in self.shapes and self.numbers.issuperset(numbers)


def numbers_in(text: str) -> list[float]:
    """The numbers of a text: `$1,204.50 for 3` has 1204.5 and 3."""
    return [round(float(number.replace(",", "")), 2) for number in _NUMBER.findall(text)]


def _path(state: PageState) -> str:
    return state.url.partition("?")[0].partition("#")[0]
