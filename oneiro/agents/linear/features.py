"""What a page and an intent say to each other without the words of any site: cues of the linear agent.

An intent falls into names (what it calls by name) and asked words (all others). A name on a page may be asked for, may
be one of the intent's names, may stand in the row of one, and may be where the agent already is. Such cues mean the
same on pages and for intents that were never shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from oneiro.agents.prompts import NODE, unquote

ENDING = re.compile(r"(?:ings?|ed|es|s|e)$")
"""What a word loses before it is compared: 'stars' and 'star', 'removed' and 'remove'."""
STOP_WORDS = frozenset(
    re.findall(
        r"\w+", "and are did does for from has have how into its of or that the this was what when which who with"
    )
)
"""Words that ask for nothing."""
CACHED_TEXTS = 1 << 14
"""Texts whose words are kept: pages of a site repeat them."""
MAX_PLACES_BEHIND = 3
"""Elements of a kind behind a name; later ones count as this."""
DATE = re.compile(r"\b[A-Z][a-z]{2} \d{1,2}, \d{4}\b|\b\d{4}-\d\d-\d\d\b")
COUNT = re.compile(r"(?:^|· )(\d[\d,.]*) ([a-z]+)")
"""A number and what it counts, inside a text."""


@dataclass(frozen=True)
class PageElement:
    """A named node of the page, and where it stands."""

    number: str
    role: str
    name: str
    properties: str
    label: str
    """The header of its column; outside tables the name before it."""
    behind: str
    """How many of its role stand between it and the last element that has a name of the intent; '-' without one."""
    inside: bool
    """Whether it is in the page's main part, and not in what every page of a site repeats."""
    first: bool
    """Whether it is in the first row of a table."""


def names_in(intent: str) -> list[str]:
    """What an intent calls by name, in order: quotes, paths, names, numbers."""
    words = r"[A-Z][\w'&/.-]*(?: (?:[A-Z&(][\w'&/.)-]*|of|\(\d\)))*"
    pattern = (
        rf'"([^"]{{2,}})"|\b(\w[\w.-]*/[\w.-]+)|(?<!^)\b(\d+ {words})|(?<!^)(?<![.?!:] )\b({words})'
        r"|\b(\d[\d-]{2,})\b|\b([a-z]+\d+)\b"
    )
    # Every alternative of the pattern is a group of its own, and one of them matched.
    names = [next(part for part in match if part).rstrip(".,?") for match in re.findall(pattern, intent)]
    return [name for name in dict.fromkeys(names) if len(name) > 1][:4]


@lru_cache(maxsize=CACHED_TEXTS)
def stems(text: str) -> frozenset[str]:
    """The words of a text that say something, without their endings."""
    words = re.findall(r"[a-z]{2,}", text.lower())
    # Short words keep their endings: 'used' without 'ed' would be 'us'.
    return frozenset(ENDING.sub("", word) if len(word) > 4 else word for word in words if word not in STOP_WORDS)


@lru_cache(maxsize=CACHED_TEXTS)
def plain(text: str) -> str:
    """Letters and digits only, in lower case."""
    return "".join(re.findall(r"[a-z0-9]+", text.lower()))


def overlap(mine: frozenset[str], theirs: frozenset[str]) -> str:
    if not mine & theirs:
        return "none"
    return "part" if mine - theirs else "whole"


def kind_of(text: str) -> str:
    if DATE.fullmatch(text):
        return "date"
    if re.fullmatch(r"[\d,.]+", text):
        return "number"
    if re.search(r"\d", text):
        return "mixed" if len(text) < 25 else "long"
    return "words" if len(text) < 25 else "long"


class PageFeatures:
    """A page as the agent reads it, for one intent."""

    def __init__(self, state: str, past: Sequence[str]) -> None:
        lines = state.splitlines()
        self.past = past
        self.intent = next((line.removeprefix("Task: ") for line in lines if line.startswith("Task: ")), "")
        self.address = next((line.removeprefix("URL: ") for line in lines if line.startswith("URL: ")), "")
        self.names = names_in(self.intent)
        rest = self.intent
        # What is called by name is looked for as a whole; its single words ask for nothing.
        for name in self.names:
            rest = rest.replace(name, " ")
        self.intent_words = stems(rest)
        self.plain_names = [plain(name) for name in self.names]
        self.elements = list(self._read(lines))
        self._general: dict[str, list[str]] = {}

    def _read(self, lines: Sequence[str]) -> Iterator[PageElement]:
        before, headers, column, rows, inside = "", list[str](), -1, 0, False
        since: dict[str, int] | None = None
        for line in lines:
            if (node := NODE.fullmatch(line)) is None:
                continue
            number, role, quoted, properties = node.groups()
            name = " ".join(unquote(quoted).split())
            if role in ("main", "contentinfo"):
                inside = role == "main"
            elif role == "table":
                headers, rows = [], -1  # a row of headers comes first
            elif role == "columnheader":
                headers.append(name)
            elif role == "row":
                column, since, rows = -1, None, rows + 1
            elif role == "cell":
                column += 1
            in_table = 0 <= column < len(headers)
            label = headers[column] if in_table else before
            # The page's title and pictures repeat a name without standing beside what belongs to it.
            if self.match_names(name) in ("is", "has") and role not in ("RootWebArea", "image"):
                since, behind = {}, "0"
            elif since is None:
                behind = "-"
            else:
                since[role] = since.get(role, 0) + 1
                behind = str(min(since[role], MAX_PLACES_BEHIND))
            yield PageElement(number, role, name, properties, label, behind, inside, in_table and rows == 1)
            if name:
                before = name

    def match_names(self, name: str) -> str:
        """Whether a name is one of the intent's, has one in it, or is part of one."""
        own = plain(name)
        if not own:
            return "no"
        if own in self.plain_names:
            return "is"
        # Shorter names ("to", "11") stand inside nearly any word.
        if any(other in own for other in self.plain_names if len(other) > 2):
            return "has"
        return "in" if len(own) > 2 and any(own in other for other in self.plain_names) else "no"

    def match_words(self, name: str) -> str:
        return overlap(stems(name), self.intent_words)

    @cached_property
    def title(self) -> str:
        return next((e.name for e in self.elements if e.role == "RootWebArea"), "")

    @cached_property
    def place(self) -> frozenset[str]:
        """Words of the title and of the address."""
        return stems(self.title) | stems(self.address.partition("//")[2].partition("/")[2])

    def here(self, name: str) -> bool:
        """Whether the page's title or address already says a name."""
        own = stems(name)
        return bool(own) and own <= self.place

    @cached_property
    def arrived(self) -> str:
        """How many of the intent's names stand in the title, the address or a heading."""
        titles = plain(
            " ".join([self.address, *(e.name for e in self.elements if e.role in ("RootWebArea", "heading"))])
        )
        count = sum(name in titles for name in self.plain_names)
        return "none" if not count else "all" if count == len(self.names) else "some"

    @cached_property
    def shown(self) -> str:
        """Whether an element of the page is one of the intent's names, or has one."""
        matches = {self.match_names(e.name) for e in self.elements if e.role in ("link", "cell", "heading", "button")}
        return "is" if "is" in matches else "has" if "has" in matches else "no"

    @cached_property
    def left(self) -> str:
        """The best that can still be pressed: a button or link that is asked for, where the agent is not yet."""
        best = [
            e.role
            for e in self.elements
            if e.role in ("button", "link") and self.match_words(e.name) == "whole" and not self.here(e.name)
        ]
        return "button" if "button" in best else "link" if best else "nothing"

    @cached_property
    def begins(self) -> str:
        """The first two words of the intent."""
        return " ".join(self.intent.lower().split()[:2])

    def general(self, kind: str) -> list[str]:
        if kind in self._general:
            return self._general[kind]
        last = self.past[-1].partition(" ")[0] if self.past else "nothing"
        first = self.begins.partition(" ")[0]
        self._general[kind] = [
            f"{kind} arrived {self.arrived} after {last}",
            f"{kind} arrived {self.arrived} left {self.left}",
            f"{kind} title {self.match_words(self.title)} after {last}",
            f"{kind} arrived {self.arrived} shown {self.shown}",
            f"{kind} begins {first}",
            f"{kind} begins {first} arrived {self.arrived} left {self.left}",
        ]
        return self._general[kind]

    def click(self, e: PageElement) -> list[str]:
        wanted, called, here = self.match_words(e.name), self.match_names(e.name), self.here(e.name)
        chosen = "selected: True" in e.properties
        many = min(2, len(stems(e.name) & self.intent_words))
        return [
            f"click {e.role} wanted {wanted} {here} {chosen}",
            f"click {e.role} wanted {wanted} inside {e.inside} arrived {self.arrived}",
            f"click {e.name[:20]} shown {self.shown}",
            f"click {e.role} wanted {wanted} {many} arrived {self.arrived}",
            f"click {e.role} called {called} {here}",
            f"click {e.role} called {called} arrived {self.arrived}",
            f"click {e.role} behind {e.behind} wanted {wanted}",
            f"click {e.role} label {self.match_words(e.label)} {self.match_names(e.label)}",
            *self.general("click"),
        ]

    def sort(self, name: str) -> str:
        if "/" in name:
            return "path"
        if f'"{name}"' in self.intent:
            return "quote"
        return "number" if name[:1].isdigit() else "name"

    def type(self, e: PageElement, text: str, enter: int, full: str) -> list[str]:
        """Cues of typing a name of the intent into a field, which may be full."""
        typed = any(f"[{text}]" in action for action in self.past)
        # 'from X' and 'to Y' go into the fields 'From' and 'To'.
        led = self.intent.partition(text)[0].rstrip('" ').lower().rpartition(" ")[2]
        matches = bool(led) and led == e.name.lower()
        return [
            f"type {e.role} {enter} typed {typed} {full}",
            f"type {e.role} {enter} {self.sort(text)} arrived {self.arrived}",
            f"type led {matches} {full} {enter} typed {typed}",
            f"type field {self.match_words(e.name)} {enter}",
            *self.general(f"type {enter}"),
        ]

    def stop(self) -> list[str]:
        confirmed = any(e.role == "StaticText" and self.match_names(e.name) == "has" for e in self.elements)
        return [f"stop empty said {confirmed} arrived {self.arrived}", *self.general("stop empty")]

    def answer(self, e: PageElement, text: str, label: str) -> list[str]:
        wanted, kind = self.match_words(label), kind_of(text)
        return [
            f"answer label {wanted} {kind}",
            f"answer label {wanted} behind {e.behind}",
            f"answer {kind} behind {e.behind} arrived {self.arrived}",
            f"answer text {self.match_words(text)} {self.match_names(text)}",
            f"answer {self.begins} {kind}",
            f"answer {e.role} {kind} part {text != e.name}",
            f"answer {e.role} first {e.first} inside {e.inside} label {wanted}",
            f"answer {self.begins} first {e.first}",
            *self.general("answer"),
        ]


def parts(text: str) -> list[tuple[str, str]]:
    """Numbers and dates inside a longer text, each with what it is told by."""
    dates = [(match[0], text[: match.start()]) for match in DATE.finditer(text) if match[0] != text]
    return [*dates, *((match[1], match[2]) for match in COUNT.finditer(text))][:4]
