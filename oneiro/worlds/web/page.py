"""A page as agents see it: the accessibility tree, whichever browser made it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
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


@dataclass(frozen=True)
class Page:
    """What a browser observed."""

    url: str
    title: str
    root: Node
    nodes: dict[int, Node]
    """The printed nodes by id."""
    tabs: tuple[str, ...] = ()
    """Titles of all tabs."""
    tab: int = 0
    """Which of them is in front."""
