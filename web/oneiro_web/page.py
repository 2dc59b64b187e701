"""A page as agents see it: the accessibility tree, whichever browser made it, and WebArena's text of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

IGNORED_PROPERTIES = frozenset(
    ("focusable", "editable", "readonly", "level", "settable", "multiline", "invalid", "url")
)
"""Properties that WebArena does not print; `url` is newer than WebArena, so its data have none."""
SILENT_ROLES = frozenset(
    (
        "generic", "img", "list", "strong", "paragraph", "banner", "navigation", "Section", "LabelText", "Legend",
        "listitem",
    )
)  # fmt: skip
"""Roles that are not printed when they have neither a name nor properties."""
MAX_NAME_CHARS = 4000  # a text of a page; longer ones are cut in the printed line
MAX_PAGE_CHARS = 400_000  # of all printed lines; what follows is cut off


@dataclass(slots=True, eq=False)
class Node:
    """One node of the accessibility tree, with Chromium's roles, names and properties."""

    role: str
    name: str
    properties: dict[str, Any] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)
    handle: Any = None
    """What the browser needs to find the element again."""
    id: int = 0
    """The number an agent names it by: document order of the printed nodes, from 1."""
    depth: int = 0
    """How many printed ancestors it has."""
    line: str = ""
    """What is printed of it, without its id."""

    def __str__(self) -> str:
        return f"[{self.id}] {self.line}"


class Printed(dict[int, Node]):
    """The printed nodes by id. They are not changed any more, so their text is made once for all who look."""

    @cached_property
    def text(self) -> str:
        """A line for each node, with a tab of indentation for every printed ancestor."""
        return "\n".join(["\t" * node.depth + f"[{node.id}] {node.line}" for node in self.values()])


@dataclass(frozen=True)
class PageFailure:
    """A page that was given up: it did not settle before its deadline, and an empty one is in its place."""

    url: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.url} did not settle within {self.seconds:g} seconds and was given up."


@dataclass(frozen=True)
class Page:
    """What a browser observed."""

    url: str
    title: str
    root: Node
    nodes: Printed
    tabs: tuple[str, ...] = ()
    """Titles of all tabs."""
    tab: int = 0
    """Which of them is in front."""
    cut: bool = False
    """The page was too large: its end is missing."""
    failure: PageFailure | None = None
    """Why this is an empty page instead of the one that was asked for."""

    def header(self) -> str:
        """WebArena's first line: every tab's title."""
        return " | ".join(
            f"Tab {index}{' (current)' if index == self.tab else ''}: {title}" for index, title in enumerate(self.tabs)
        )

    def text(self) -> str:
        """WebArena's observation: the tabs, then the tree with a tab of indentation for every printed ancestor."""
        return f"{self.header()}\n\n{self.nodes.text}"

    def lines(self) -> list[str]:
        """The tree without indentation, a line for each node, as world models predict it."""
        return [str(node) for node in self.nodes.values()]


def is_printed(role: str, name: str, properties: Mapping[str, Any]) -> bool:
    """WebArena's rule for nodes that say nothing."""
    if name and not name.isspace():
        return True
    return role != "listitem" if properties else role not in SILENT_ROLES


def number(root: Node, most_nodes: int) -> tuple[Printed, bool]:
    """The printed nodes by their new ids, and whether some were cut off.

    A text that stands in one of the three lines before is dropped. WebArena compares with whole lines, so that an id
    can hide a text of digits; here the ids do not count.
    """
    nodes = Printed()
    third, second, first = "", "", ""
    characters = count = 0
    stack = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        role, name, properties = node.role, node.name, node.properties
        if (name and not name.isspace()) or is_printed(role, "", properties):
            shown = repr(name if len(name) <= MAX_NAME_CHARS else name[:MAX_NAME_CHARS])
            if role == "StaticText":
                text = shown[1:-1]
                if not text or text in first or text in second or text in third:
                    continue
            line = f"{role} {shown}"
            if properties:
                for key, value in properties.items():
                    line += f" {key}: {value}"
            characters += len(line)
            if count >= most_nodes or characters > MAX_PAGE_CHARS:
                return nodes, True
            third, second, first = second, first, line
            count += 1
            node.id, node.depth, node.line = count, depth, line
            nodes[count] = node
            depth += 1
        children = node.children
        if children:
            stack.extend([(child, depth) for child in reversed(children)])
    return nodes, False
