"""Roles of elements and their properties, as Chromium gives them."""

from __future__ import annotations

from oneiro_web.browsers.text.document import Element
from oneiro_web.browsers.text.state import LABELABLE, State
from oneiro_web.page import Node

LIVE = {"alert": "assertive", "status": "polite", "log": "polite"}
ROLES = {
    "nav": "navigation", "main": "main", "article": "article", "aside": "complementary", "form": "form",
    "search": "search", "table": "table", "thead": "rowgroup", "tfoot": "rowgroup", "tr": "row", "td": "cell",
    "caption": "caption", "dl": "DescriptionList", "dt": "term", "dfn": "term", "dd": "definition", "em": "emphasis",
    "code": "code", "time": "time", "mark": "mark", "del": "deletion", "s": "deletion", "ins": "insertion",
    "sub": "subscript", "sup": "superscript", "blockquote": "blockquote", "figure": "figure",
    "figcaption": "Figcaption", "address": "group", "hgroup": "group", "details": "group", "fieldset": "group",
    "summary": "DisclosureTriangle", "hr": "separator", "canvas": "Canvas", "iframe": "Iframe", "output": "status",
    "progress": "progressbar", "meter": "meter", "dialog": "dialog", "abbr": "Abbr", "button": "button",
    "h1": "heading", "h2": "heading", "h3": "heading", "h4": "heading", "h5": "heading", "h6": "heading",
    "img": "image", "svg": "image", "strong": "strong", "ul": "list", "ol": "list", "menu": "list", "li": "listitem",
    "p": "paragraph", "label": "LabelText", "legend": "Legend", "option": "option", "optgroup": "group",
}  # fmt: skip
"""Roles of elements whose role does not depend on anything else."""

SCOPES = frozenset(("article", "aside", "main", "nav", "section"))
"""Elements in which a header is no banner and a footer no content information."""
BOOLEAN = {"true": True, "false": False}


class Roles:
    """The roles of the elements of one page, asked in document order."""

    def __init__(self) -> None:
        self.scopes = 0
        """How many of `SCOPES` are around the element that is asked for."""
        self.tables: dict[Element, bool] = {}

    def of(self, element: Element) -> str:
        """The role, or '' for an element without a node of its own."""
        tag, attributes = element.tag, element.attributes
        given = attributes.get("role", "").lower().split()
        named = "aria-label" in attributes or "aria-labelledby" in attributes
        if given:
            role = given[0]
            if role in ("presentation", "none"):
                return ""
            if role == "img":
                return "image"
            if role == "region" and not named:
                return ""
            return role
        if tag in ("div", "span"):
            live = "aria-live" in attributes or "aria-describedby" in attributes
            return "generic" if named or live else ""
        if tag == "a":
            return "link" if "href" in attributes else ""
        if tag in ROLES:
            if tag == "abbr" and "title" not in attributes:
                return ""
            if tag in ("td", "tr", "table"):
                return self.table_role(element)
            return ROLES[tag]
        if tag == "th":
            return self.header_role(element)
        if tag == "header":
            return "sectionheader" if self.scopes else "banner"
        if tag == "footer":
            return "sectionfooter" if self.scopes else "contentinfo"
        if tag == "section":
            return "region" if named or attributes.get("title") else ""
        return "generic" if named and tag not in ("html", "body") else ""

    def table_role(self, element: Element) -> str:
        """Rows and cells of a table that only serves layout have roles of their own."""
        table = element.closest("table")
        if table is None or self.holds_data(table):
            return ROLES[element.tag]
        return {"table": "LayoutTable", "tr": "LayoutTableRow", "td": "LayoutTableCell"}[element.tag]

    def holds_data(self, table: Element) -> bool:
        """Whether a table is one of data, found once."""
        if table not in self.tables:
            self.tables[table] = is_data_table(table)
        return self.tables[table]

    def header_role(self, element: Element) -> str:
        """A header cell heads its row if a data cell is beside it, else its column."""
        table = element.closest("table")
        if table is not None and not self.holds_data(table):
            return "LayoutTableCell"
        scope = element.attributes.get("scope", "").lower()
        if scope in ("row", "rowgroup"):
            return "rowheader"
        if scope in ("col", "colgroup") or element.parent is None:
            return "columnheader"
        cells = [c for c in element.parent.children if isinstance(c, Element) and c.tag in ("td", "th")]
        place = cells.index(element)
        beside = [cells[index].tag for index in (place - 1, place + 1) if 0 <= index < len(cells)]
        return "rowheader" if "td" in beside else "columnheader"


def is_data_table(table: Element) -> bool:
    """Chromium's guess whether a table holds data or only lays out a page."""
    if table.attributes.get("role") == "table" or "summary" in table.attributes:
        return True
    cells, headers = 0, 0
    for element in table.elements():
        if element.tag in ("caption", "thead", "tfoot", "col", "colgroup") or "scope" in element.attributes:
            return True
        cells += element.tag in ("td", "th")
        headers += element.tag == "th"
    return cells > 1 and headers > 0


def add_properties(node: Node, element: Element, state: State, disabled: bool) -> None:
    """Properties in Chromium's order."""
    attributes, role, properties = element.attributes, node.role, node.properties
    tag = element.tag
    if role in LIVE or "aria-live" in attributes:
        properties["live"] = attributes.get("aria-live", LIVE.get(role, "off"))
        if properties["live"] == "off":
            del properties["live"]
        else:
            is_whole = role in ("alert", "status")
            properties["atomic"] = BOOLEAN.get(attributes.get("aria-atomic", ""), is_whole)
            properties["relevant"] = attributes.get("aria-relevant", "additions text")
    if (tag in LABELABLE and (disabled or "disabled" in attributes)) or attributes.get("aria-disabled") == "true":
        properties["disabled"] = True
    if element is state.focus:
        properties["focused"] = True
    if "aria-haspopup" in attributes and attributes["aria-haspopup"] != "false":
        popup = attributes["aria-haspopup"]
        properties["hasPopup"] = "menu" if popup == "true" else popup
    if role in ("columnheader", "rowheader"):
        properties["required"] = attributes.get("aria-required") == "true"
    elif role == "separator":
        properties["orientation"] = "horizontal"
    elif role == "tablist":
        properties["multiselectable"] = False
        properties["orientation"] = "horizontal"
    if role == "DisclosureTriangle" and element.parent is not None and element.parent.tag == "details":
        properties["expanded"] = state.is_open(element.parent)
    if attributes.get("aria-expanded") in BOOLEAN:
        properties["expanded"] = BOOLEAN[attributes["aria-expanded"]]
    if "aria-pressed" in attributes and role == "button":
        properties["pressed"] = attributes["aria-pressed"]
    if role in ("tab", "option") and attributes.get("aria-selected", "false") in BOOLEAN:
        properties["selected"] = BOOLEAN[attributes.get("aria-selected", "false")]
    if role == "dialog":
        properties["modal"] = attributes.get("aria-modal") == "true"
    if "aria-describedby" in attributes:
        properties["describedby"] = attributes["aria-describedby"]
