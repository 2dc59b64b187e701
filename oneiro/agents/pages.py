"""A web page in few tokens, for small models: what WebArena's accessibility tree says, without what it repeats."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import groupby

NODE = re.compile(r"\t*\[(\d+)\] (\w+) ('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")((?: \w+: \S.*)?)$")
"""A line of the tree: indentation, id, role, quoted name, properties."""
SHOWN_STATES = re.compile(r" (checked|selected|expanded|disabled): True\b")
"""Properties that are still said, where they hold."""
ROLES = {"StaticText": "", "RootWebArea": "page"}
"""Roles that are called otherwise; a text needs no role."""
GROUPS = frozenset(("navigation", "main", "search", "form", "contentinfo", "banner", "region", "list", "table", "row"))
"""Roles that hold others and are left out, named or not."""
ACTED_ON = frozenset(("link", "button", "textbox", "searchbox", "combobox", "checkbox", "radio", "spinbutton"))
"""Roles that are shown even without a name."""
SHORT_LIST = 6
"""Of a list with more options than these only the selected one is shown, and those that the task names."""
MARKS = ("Tab ", "URL: ")
"""Lines above the tree that are left out: the first line of the tree has the page's title."""


def compact(text: str) -> str:
    """The text of a page with one short line for each node that says something; other lines stay as they are.

    Left out are: indentation, groups, nodes without a name that cannot be acted on, properties (but `checked`,
    `selected`, `expanded`, `disabled`, where true), the options of long lists that are neither selected nor named
    in the task, and headings and labels that the next line repeats. Ids do not change, so actions mean the same.
    """
    shown: list[tuple[str, str]] = []
    """Each line, and the name that the next line may take over from it."""
    for role, line, name in _nodes(text):
        if name and shown and shown[-1][1] == name:
            shown.pop()
        shown.append((line, name if role in ("StaticText", "heading") else ""))
    return "\n".join(line for line, _ in shown)


def _nodes(text: str) -> Iterator[tuple[str, str, str]]:
    """Role, line and name of what is shown; lines that are no nodes have no role."""
    task = text.partition("\n")[0].lower() if text.startswith("Task: ") else ""
    read = ((line, NODE.fullmatch(line)) for line in text.splitlines())
    for is_option, part in groupby(read, key=lambda pair: pair[1] is not None and pair[1][2] == "option"):
        run = list(part)
        for line, node in run:
            if node is None:
                if line and not line.startswith(MARKS):
                    yield "", line, ""
                continue
            number, role, quoted, properties = node.groups()
            name, states = " ".join(unquote(quoted).split()), SHOWN_STATES.findall(properties)
            hidden = is_option and len(run) > SHORT_LIST and "selected" not in states and name.lower() not in task
            if not hidden and role not in GROUPS and (name or role in ACTED_ON):
                words = [ROLES.get(role, role), name, *states]
                yield role, f"[{number}] " + " ".join(word for word in words if word), name


def unquote(text: str) -> str:
    """The name that Python's `repr` quoted."""
    if "\\" not in text:
        return text[1:-1]
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return text[1:-1]
