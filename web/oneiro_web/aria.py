"""A page in the form of Playwright's aria snapshot, with the ids of the accessibility tree as references."""

from __future__ import annotations

import json

from oneiro_web.page import Node, Page

ROLES = {
    "DisclosureTriangle": "button",
    "Date": "textbox",
    "LabelText": "generic",
    "Legend": "generic",
    "LineBreak": "generic",
    "DescriptionList": "list",
    "DescriptionListTerm": "term",
    "DescriptionListDetail": "definition",
    "Details": "group",
    "Section": "generic",
    "Video": "generic",
    "Pre": "generic",
}
"""Names that only Chromium has -> the role."""
STATES = ("checked", "disabled", "expanded", "pressed", "selected")
TEXT = "StaticText"


def snapshot(page: Page) -> str:
    """The page as nested list items: `- link "Cart" [ref=e12]`. A single text inside an element stands behind it."""
    shown = [node for node in page.nodes.values() if node.role != "RootWebArea"]
    inside: dict[int, list[Node]] = {}
    above: list[Node] = []
    for node in shown:
        while above and above[-1].depth >= node.depth:
            above.pop()
        if above:
            inside.setdefault(above[-1].id, []).append(node)
        above.append(node)
    behind = {node: children[0] for node, children in inside.items() if len(children) == 1 and children[0].role == TEXT}
    skipped = {text.id for text in behind.values()}
    lines = [_line(node, node.id in inside, behind.get(node.id)) for node in shown if node.id not in skipped]
    return f"{page.header()}\n\n" + "\n".join(lines)


def _line(node: Node, has_children: bool, text: Node | None) -> str:
    indent = "  " * max(0, node.depth - 1)
    if node.role == TEXT:
        return f"{indent}- text: {_plain(node.name)}"
    line = f"{indent}- {ROLES.get(node.role, node.role)}"
    if node.name.strip():
        line += f" {json.dumps(' '.join(node.name.split()), ensure_ascii=False)}"
    for state in STATES:
        value = str(node.properties.get(state, "")).lower()
        if value in ("true", "mixed"):
            line += f" [{state}]" if value == "true" else f" [{state}=mixed]"
    line += f" [ref=e{node.id}]"
    if text is not None:
        return f"{line}: {_plain(text.name)}"
    return f"{line}:" if has_children else line


def _plain(text: str) -> str:
    """A text on one line; quoted where YAML would read something else."""
    text = " ".join(text.split())
    odd = not text or text[0] in "-?:,[]{}#&*!|>'\"%@`" or ": " in text or " #" in text or text.endswith(":")
    return json.dumps(text, ensure_ascii=False) if odd else text
