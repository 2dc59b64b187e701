"""Chromium's accessibility nodes as our tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oneiro_web.page import IGNORED_PROPERTIES, Node, is_printed


def is_bubble(given: Mapping[str, Any]) -> bool:
    """The bubble at a field of a form that was not sent: it goes by itself, and the outcome says it already."""
    relevant = [item["value"].get("value") for item in given.get("properties", ()) if item["name"] == "relevant"]
    return relevant == ["additions"] and not given.get("childIds")


def convert(nodes: Sequence[Mapping[str, Any]]) -> Node:
    """Chromium's accessibility nodes as our tree; what is never printed is left out."""
    known = {node["nodeId"]: node for node in nodes}
    roots: list[Node] = []
    stack: list[tuple[Mapping[str, Any], list[Node]]] = [(nodes[0], roots)]
    while stack:
        given, out = stack.pop()
        role = given.get("role", {}).get("value", "")
        if role == "InlineTextBox" or (
            role == "alert" and given.get("parentId") == nodes[0]["nodeId"] and is_bubble(given)
        ):
            continue
        if not given.get("ignored") and "name" in given:
            name = given["name"].get("value", "")
            properties = {
                item["name"]: item["value"]["value"]
                for item in given.get("properties", ())
                if item["value"].get("value", "") != "" or (item["name"] == "valuetext" and "value" in item["value"])
                if item["name"] not in IGNORED_PROPERTIES
            }
            if is_printed(role, name, properties):
                node = Node(role, name, properties, [], given.get("backendDOMNodeId"))
                out.append(node)
                out = node.children
        stack.extend([(known[child], out) for child in reversed(given.get("childIds", ())) if child in known])
    return roots[0] if roots else Node("RootWebArea", "")
