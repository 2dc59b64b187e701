"""The accessibility tree that Chromium computes for a static page, from its HTML.

Roles, names, properties and white space follow what Chromium's `Accessibility.getFullAXTree` was seen to give. Nodes
that are never printed (blank paragraphs, lists, generic boxes) are left out and their children take their place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from oneiro.worlds.web.browser.document import Document, Element
from oneiro.worlds.web.browser.styles import ATOMIC, BLOCK, FLEXIBLE, INLINE_OUTSIDE, NEVER_SHOWN, Styles
from oneiro.worlds.web.page import Node

SPACES = re.compile(r"[ \t\n\r\f]+")
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

INPUTS = {
    "checkbox": "checkbox", "radio": "radio", "search": "searchbox", "number": "spinbutton", "range": "slider",
    "submit": "button", "reset": "button", "button": "button", "image": "button", "file": "button", "date": "Date",
    "month": "DateTime", "week": "DateTime", "datetime-local": "DateTime", "time": "InputTime", "color": "ColorWell",
}  # fmt: skip
BUTTON_INPUTS = frozenset(("submit", "reset", "button", "image", "file"))

FROM_CONTENTS = frozenset(
    (
        "link", "button", "heading", "cell", "columnheader", "rowheader", "LayoutTableCell", "term", "option", "tab",
        "DisclosureTriangle", "menuitem", "treeitem", "checkbox", "radio", "switch", "tooltip", "gridcell",
    )
)  # fmt: skip
"""Roles that are named by what is in them."""
NEVER_CONTRIBUTE = frozenset(
    (
        "form", "navigation", "article", "banner", "complementary", "blockquote", "figure", "status", "alert", "note",
        "main", "search", "table", "dialog", "separator", "log", "Date", "DateTime", "InputTime", "Canvas",
    )
)  # fmt: skip
"""Roles whose contents never become part of another element's name."""
SCOPES = frozenset(("article", "aside", "main", "nav", "section"))
"""Elements in which a header is no banner and a footer no content information."""
TITLED = frozenset(("input", "select", "textarea", "img", "section", "form", "iframe", "svg", "nav", "a", "button"))
"""Elements that take their `title` as a name when nothing else names them."""
BREAK = ""
"""In what names an element: a place where a space is wanted between two words."""
BOOLEAN = {"true": True, "false": False}


@dataclass
class State:
    """What a person did to a page: it lies over the document, which stays as it is."""

    values: dict[Element, str] = field(default_factory=dict)
    checked: dict[Element, bool] = field(default_factory=dict)
    chosen: dict[Element, frozenset[Element]] = field(default_factory=dict)
    """The chosen options of a select."""
    opened: dict[Element, bool] = field(default_factory=dict)
    focus: Element | None = None

    def value(self, element: Element) -> str:
        """What stands in an input or a text area."""
        if element in self.values:
            return self.values[element]
        if element.tag == "textarea":
            return element.text()
        return element.attributes.get("value", "")

    def is_checked(self, element: Element) -> bool:
        """Whether a checkbox or radio button is on."""
        return self.checked.get(element, "checked" in element.attributes)

    def is_open(self, element: Element) -> bool:
        """Whether a `details` shows its contents."""
        return self.opened.get(element, "open" in element.attributes)

    def options(self, select: Element) -> frozenset[Element]:
        """The chosen options of a select, as a browser begins."""
        if select in self.chosen:
            return self.chosen[select]
        options = [element for element in select.elements() if element.tag == "option"]
        chosen = [option for option in options if "selected" in option.attributes]
        if "multiple" in select.attributes:
            return frozenset(chosen)
        if not chosen and options and not int_or(select.attributes.get("size", ""), 1) > 1:
            chosen = [next((option for option in options if "disabled" not in option.attributes), options[0])]
        return frozenset(chosen[-1:])


def int_or(text: str, default: int) -> int:
    """A whole number from an attribute."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else default


def is_disabled(element: Element) -> bool:
    """Whether a control takes no input: its own attribute, or a fieldset around it (not its legend)."""
    if "disabled" in element.attributes:
        return element.tag in ("input", "button", "select", "textarea", "option", "optgroup", "fieldset")
    inside, around = element, element.parent
    while around is not None:
        if around.tag == "fieldset" and "disabled" in around.attributes and inside.tag != "legend":
            return True
        if around.tag in ("optgroup", "select") and "disabled" in around.attributes:
            return True
        inside, around = around, around.parent
    return False


LABELABLE = frozenset(("button", "input", "meter", "output", "progress", "select", "textarea"))


def labelled(label: Element, document: Document) -> Element | None:
    """The control of a label."""
    name = label.attributes.get("for")
    if name is not None:
        control = document.ids.get(name)
        return control if control is not None and control.tag in LABELABLE else None
    return next((element for element in label.elements() if element.tag in LABELABLE), None)


def is_hidden(element: Element, style: dict[str, str]) -> bool:
    """Whether the element and all in it are neither drawn nor in the tree."""
    attributes = element.attributes
    return (
        ("hidden" in attributes and style.get("display") is None)
        or style.get("display") == "none"
        or style.get("visibility") == "hidden"
        or (element.tag == "input" and attributes.get("type", "").lower() == "hidden")
        or (element.tag == "dialog" and "open" not in attributes)
    )


PLAIN = {
    **dict.fromkeys(
        ("html", "body", "div", "span", "p", "b", "i", "u", "small", "strong", "tbody", "section", "cite"), ""
    ),
    **dict.fromkeys(("li", "kbd"), ""),
    **{tag: ROLES[tag] for tag in ("article", "form", "dl", "dt", "dd", "time", "em", "code", "main", "td", "tr")},
    **{tag: ROLES[tag] for tag in ("h1", "h2", "h3", "h4")},
    "a": "link",
}
"""Roles of the most frequent elements when nothing in their attributes changes them; '' without a node."""
NO_PROPERTIES: dict[str, Any] = {}
NO_CHILDREN: list[Node] = []
"""Shared by all texts, which never have any."""
WHITE = " \n\t\r\f"


class Builder:
    """One walk over a document."""

    def __init__(self, document: Document, state: State, styles: Styles) -> None:
        self.document, self.state, self.styles = document, state, styles
        self.line_start = True
        self.last: Node | None = None
        """The last text of the line, whose space at the end goes when the line ends."""
        self.collectors: list[list[Node | str]] = []
        self.collected: dict[Element, list[Node | str]] = {}
        self.label_texts: set[int] = set()
        """Which lists are the texts of labels: controls add nothing to them."""
        self.after_atom = False
        self.named: list[tuple[Node, Element | None, list[Node | str] | None]] = []
        """Nodes to be named when all is read, inner ones first; without an element, only their contents count."""
        self.tables: dict[Element, bool] = {}
        self.data_table = False
        """Whether the table around holds data."""
        self.preformatted = False
        self.disabled = False
        self.scopes = 0
        self.list_style = ""
        self.depth_of_lists = 0
        self.labels: dict[Element, list[Element]] = {}
        self.referenced: set[str] = set()
        for element in document.elements:
            if element.tag == "label":
                control = labelled(element, document)
                if control is not None:
                    self.labels.setdefault(control, []).append(element)
            elif "aria-labelledby" in element.attributes:
                self.referenced.update(element.attributes["aria-labelledby"].split())

    def build(self) -> Node:
        """The whole tree."""
        root = Node("RootWebArea", self.document.title, {"focused": True}, [], self.document.root)
        self.children(self.document.root, root.children, "block")
        self.boundary()
        by_others: list[tuple[Node, Element, list[Node | str] | None]] = []
        for node, element, items in self.named:
            if element is None:
                node.name = join(items or [])
            elif element in self.labels or "aria-labelledby" in element.attributes:
                by_others.append((node, element, items))
            else:
                node.name = self.name(node, element, items)
        for node, element, items in by_others:
            node.name = self.name(node, element, items)
        return root

    # Text and lines

    def text(self, text: str, element: Element, out: list[Node] | None) -> None:
        """A run of text in the line that is being filled."""
        if not self.preformatted:
            if "\n" in text or "  " in text or "\t" in text or "\r" in text or "\f" in text:
                text = SPACES.sub(" ", text)
            if self.line_start and text[0] == " ":
                text = text[1:]
            if not text:
                return
            self.line_start = text[-1] == " "
        node = Node("StaticText", text, NO_PROPERTIES, NO_CHILDREN, element)
        self.last = None if self.preformatted else node
        if text != " " and out is not None:
            out.append(node)
        if text == " " and self.after_atom:
            return
        self.after_atom = False
        for collector in self.collectors:
            collector.append(node)

    def boundary(self) -> None:
        """The line ends here."""
        last = self.last
        if last is not None and last.name[-1:] == " ":
            last.name = last.name[:-1]
        self.last = None
        self.line_start = True
        self.after_atom = False
        for collector in self.collectors:
            collector.append(BREAK)

    def atom(self, added: Node | str) -> None:
        """Something that stands in the line like a letter; `added` is what it gives to the names around it."""
        self.space()
        for collector in self.collectors:
            if id(collector) not in self.label_texts:
                collector.append(added)
            collector.append(BREAK)
        self.last = None
        self.line_start = False
        self.after_atom = True

    def space(self) -> None:
        """A space is wanted here in the names around; white space alone before it does not count."""
        for collector in self.collectors:
            if collector and collector[-1] is self.last and self.last.name == " ":
                collector.pop()
            collector.append(BREAK)

    # Elements

    def children(self, element: Element, out: list[Node] | None, display: str) -> None:
        """What is in an element, in order."""
        apart = display in FLEXIBLE
        for child in element.children:
            if isinstance(child, str):
                if not (self.line_start and not self.preformatted and not child.strip(WHITE)):
                    self.text(child, element, out)
            elif apart:
                self.boundary()
                self.element(child, out)
                self.boundary()
            else:
                self.element(child, out)

    def element(self, element: Element, out: list[Node] | None) -> None:
        """One element and what is in it."""
        if element.plain and out is not None and self.plain(element, out):
            return
        tag, attributes = element.tag, element.attributes
        if tag in NEVER_SHOWN:
            return
        style = self.styles.of(element)
        if is_hidden(element, style):
            return
        if attributes.get("aria-hidden") == "true":
            out, kept = None, self.collectors
            self.collectors = []
            self.inside(element, out, style, self.display(element, style))
            self.collectors = kept
            return
        if tag == "br":
            self.boundary()
            if out is not None:
                out.append(Node("LineBreak", "\n", {}, [], element))
            for collector in self.collectors:
                collector.append("\n")
            return
        if tag in ATOMIC and tag != "button":
            self.replaced(element, out)
            return
        if tag == "label" and out is not None and self.is_redundant(element):
            hidden: list[Node] = []
            self.collect(element, hidden, style)
            out.extend(node for node in hidden if node.role in ("checkbox", "radio"))
            return
        role = self.role(element)
        node = None
        if role and out is not None:
            node = Node(role, "", {}, [], element)
            self.properties(node, element)
        if node is None:
            if tag == "label" or attributes.get("id") in self.referenced:
                self.collect(element, out, style)
            else:
                self.inside(element, out, style, self.display(element, style))
            return
        display = self.display(element, style)
        around = self.collectors
        items: list[Node | str] | None = None
        named = attributes.get("aria-label", "").strip() or "aria-labelledby" in attributes or tag == "fieldset"
        apart = bool(named) or display != "inline"
        alone = bool(named) or role in FROM_CONTENTS or role in NEVER_CONTRIBUTE or tag == "hgroup"
        if alone:
            self.collectors = []
            if apart:
                self.spaces(around)
        if role in FROM_CONTENTS or attributes.get("id") in self.referenced or tag in ("legend", "caption", "label"):
            items = self.collected[element] = []
            self.collectors = [*self.collectors, items]
            if tag == "label":
                self.label_texts.add(id(items))
        self.inside(element, node.children, style, display)
        self.collectors = around
        self.named.append((node, element, items))
        if alone:
            if named or role in FROM_CONTENTS:
                for collector in around:
                    collector.append(node)
            if apart:
                self.spaces(around)
        assert out is not None
        out.append(node)

    def plain(self, element: Element, out: list[Node]) -> bool:
        """The short way for frequent elements without anything special; False where there is something."""
        tag = element.tag
        role = PLAIN.get(tag)
        if role is None or element is self.state.focus:
            return False
        if tag == "li" and "none" not in self.list_style:
            return False
        style = self.styles.of(element)
        display = "block" if tag in BLOCK else "inline"
        if style:
            if "white-space" in style or "visibility" in style or "list-style" in style:
                return False
            display = style.get("display", display)
            if display in INLINE_OUTSIDE or display == "none":
                return False
        if self.referenced and "id" in element.attributes:
            return False
        if tag == "td" or tag == "tr":
            if not self.data_table:
                return False
        elif tag == "a" and "href" not in element.attributes:
            role = ""
        around = self.collectors
        node = None
        if role:
            node = Node(role, "", {}, [], element)
            out.append(node)
            out = node.children
            if role in FROM_CONTENTS:
                items: list[Node | str] = []
                self.collectors = [items]
            elif role in NEVER_CONTRIBUTE:
                self.collectors = []
        scoped = tag in SCOPES
        self.scopes += scoped
        if display == "inline":
            self.children(element, out, display)
        else:
            self.boundary()
            self.children(element, out, display)
            self.boundary()
        self.scopes -= scoped
        if self.collectors is not around:
            self.collectors = around
            if node is not None and role in FROM_CONTENTS:
                self.named.append((node, None, items))
                for collector in around:
                    collector.extend((node,) if display == "inline" else (BREAK, node, BREAK))
        return True

    def collect(self, element: Element, out: list[Node] | None, style: dict[str, str]) -> None:
        """An element that has no node but whose text names another."""
        items = self.collected[element] = []
        if element.tag == "label":
            self.label_texts.add(id(items))
        self.collectors = [*self.collectors, items]
        self.inside(element, out, style, self.display(element, style))
        self.collectors = self.collectors[:-1]

    @staticmethod
    def spaces(collectors: list[list[Node | str]]) -> None:
        """A space is wanted here in each of these names."""
        for collector in collectors:
            collector.append(BREAK)

    @staticmethod
    def display(element: Element, style: dict[str, str]) -> str:
        """How the element's box is laid out."""
        tag = element.tag
        return style.get("display") or ("block" if tag in BLOCK else "inline-block" if tag == "button" else "inline")

    def inside(self, element: Element, out: list[Node] | None, style: dict[str, str], display: str) -> None:
        """The contents of an element in its own kind of box."""
        tag = element.tag
        saved = (self.preformatted, self.disabled, self.list_style, self.depth_of_lists)
        space = style.get("white-space")
        if tag == "pre" or space is not None:
            self.preformatted = (space or "pre") in ("pre", "pre-wrap", "break-spaces")
        outer_table = self.data_table
        if tag == "table":
            self.data_table = self.holds_data(element) and not element.attributes.get("role")
        if tag in SCOPES:
            self.scopes += 1
        if tag == "fieldset" and "disabled" in element.attributes:
            self.disabled = True
        elif tag == "legend":
            self.disabled = self.disabled and "disabled" not in getattr(element.parent, "attributes", {})
        if tag in ("ul", "ol", "menu"):
            self.depth_of_lists += 1
            self.list_style = ""
        if "list-style" in style:
            self.list_style = style["list-style"]
        if display in INLINE_OUTSIDE:
            self.space()
            self.last, self.line_start = None, True
            self.contents(element, out, display)
            self.boundary()
            self.line_start, self.after_atom = False, True
        elif display == "inline":
            self.contents(element, out, display)
        else:
            self.boundary()
            self.contents(element, out, display)
            self.boundary()
        if tag in SCOPES:
            self.scopes -= 1
        self.data_table = outer_table
        self.preformatted, self.disabled, self.list_style, self.depth_of_lists = saved

    def contents(self, element: Element, out: list[Node] | None, display: str) -> None:
        """What is in an element; closed details show their summary only, items begin with their marker."""
        tag = element.tag
        if tag == "details" and not self.state.is_open(element):
            summary = next((c for c in element.children if isinstance(c, Element) and c.tag == "summary"), None)
            if summary is not None:
                self.element(summary, out)
            return
        if tag == "li" and out is not None and "none" not in self.list_style:
            out.append(Node("ListMarker", self.marker(element), {}, [], element))
        if tag == "q":
            self.text("“", element, out)
        self.children(element, out, display)
        if tag == "q":
            self.text("”", element, out)

    def marker(self, item: Element) -> str:
        """The bullet or number of a list item."""
        around = item.parent
        if around is not None and around.tag == "ol":
            items = [child for child in around.children if isinstance(child, Element) and child.tag == "li"]
            return f"{items.index(item) + int_or(around.attributes.get('start', ''), 1)}. "
        return ("• ", "◦ ", "▪ ")[min(max(self.depth_of_lists, 1), 3) - 1]

    def is_redundant(self, label: Element) -> bool:
        """Chromium drops the label of a checkbox or radio button that is named by it and holds nothing else."""
        control = labelled(label, self.document)
        if control is None or control.attributes.get("type", "").lower() not in ("checkbox", "radio"):
            return False
        if control.attributes.get("aria-label", "").strip() or "aria-labelledby" in control.attributes:
            return False
        elements = [child for child in label.children if isinstance(child, Element)]
        return not elements or elements == [control]

    def role(self, element: Element) -> str:
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

    # Names and properties

    def properties(self, node: Node, element: Element) -> None:
        """Properties in Chromium's order."""
        attributes, role, found = element.attributes, node.role, node.properties
        tag = element.tag
        if role in LIVE or "aria-live" in attributes:
            found["live"] = attributes.get("aria-live", LIVE.get(role, "off"))
            if found["live"] == "off":
                del found["live"]
            else:
                atomic = attributes.get("aria-atomic")
                if atomic is not None or role in ("alert", "status"):
                    found["atomic"] = BOOLEAN.get(atomic or "true", True)
                found["relevant"] = attributes.get("aria-relevant", "additions text")
        if (tag in LABELABLE and (self.disabled or "disabled" in attributes)) or attributes.get(
            "aria-disabled"
        ) == "true":
            found["disabled"] = True
        if element is self.state.focus:
            found["focused"] = True
        if "aria-haspopup" in attributes and attributes["aria-haspopup"] != "false":
            popup = attributes["aria-haspopup"]
            found["hasPopup"] = "menu" if popup == "true" else popup
        if role in ("columnheader", "rowheader"):
            found["required"] = attributes.get("aria-required") == "true"
        elif role == "separator":
            found["orientation"] = "horizontal"
        elif role == "tablist":
            found["multiselectable"] = False
            found["orientation"] = "horizontal"
        if role == "DisclosureTriangle" and element.parent is not None and element.parent.tag == "details":
            found["expanded"] = self.state.is_open(element.parent)
        if attributes.get("aria-expanded") in BOOLEAN:
            found["expanded"] = BOOLEAN[attributes["aria-expanded"]]
        if "aria-pressed" in attributes and role == "button":
            found["pressed"] = attributes["aria-pressed"]
        if role in ("tab", "option") and attributes.get("aria-selected", "false") in BOOLEAN:
            found["selected"] = BOOLEAN[attributes.get("aria-selected", "false")]
        if role == "dialog":
            found["modal"] = attributes.get("aria-modal") == "true"
        if "aria-describedby" in attributes:
            found["describedby"] = attributes["aria-describedby"]

    def name(self, node: Node, element: Element, items: list[Node | str] | None) -> str:
        """The accessible name."""
        attributes = element.attributes
        if "aria-labelledby" in attributes:
            parts = [self.text_of(name) for name in attributes["aria-labelledby"].split()]
            if any(parts):
                return " ".join(part for part in parts if part)
        label = attributes.get("aria-label", "").strip()
        if label:
            return attributes["aria-label"]
        tag = element.tag
        if tag in ("input", "select", "textarea", "meter", "progress", "output"):
            found = self.control_name(element)
            if found:
                return found
        elif tag in ("img", "iframe", "svg"):
            found = attributes.get("alt", "") if tag == "img" else ""
            if tag == "svg":
                found = next((e.text().strip() for e in element.elements() if e.tag == "title"), "")
            return found or attributes.get("title", "")
        elif tag == "fieldset" or tag == "table":
            wanted = "legend" if tag == "fieldset" else "caption"
            for child in element.children:
                if isinstance(child, Element) and child.tag == wanted:
                    return join(self.collected.get(child, []))
        elif tag == "optgroup":
            return attributes.get("label", "")
        elif tag == "abbr":
            return attributes.get("title", "")
        if items is not None and node.role in FROM_CONTENTS:
            found = join(items)
            if found.strip():
                return found
        return attributes.get("title", "") if tag in TITLED else ""

    def control_name(self, element: Element) -> str:
        """The name of a control from its labels, its button text, its placeholder or its title."""
        attributes = element.attributes
        kind = attributes.get("type", "text").lower() if element.tag == "input" else element.tag
        labels = self.labels.get(element)
        if labels:
            parts = [join(self.collected.get(label, [])) for label in labels]
            if any(parts):
                return " ".join(part for part in parts if part)
        if kind in ("submit", "reset", "button"):
            default = {"submit": "Submit", "reset": "Reset"}.get(kind, "")
            return attributes.get("value", default) or attributes.get("title", "")
        if kind == "image":
            return attributes.get("alt") or attributes.get("value") or attributes.get("title") or "Submit"
        return attributes.get("title", "") or attributes.get("placeholder", "")

    def text_of(self, name: str) -> str:
        """The text that `aria-labelledby` points at, shown or not."""
        element = self.document.ids.get(name)
        if element is None:
            return ""
        label = element.attributes.get("aria-label", "").strip()
        if label:
            return label
        if element in self.collected:
            return join(self.collected[element]).strip()
        return " ".join(element.text().split())

    # Controls and images

    def replaced(self, element: Element, out: list[Node] | None) -> None:
        """An element that is drawn as a whole: a control, an image, a frame."""
        tag = element.tag
        if tag == "input":
            kind = element.attributes.get("type", "text").lower()
            node = Node(element.attributes.get("role") or INPUTS.get(kind, "textbox"), "", {}, [], element)
            if "list" in element.attributes and node.role == "textbox":
                node.role = "combobox"
            self.input(node, element, kind)
        elif tag == "select":
            node = self.select(element)
        elif tag == "textarea":
            node = Node("textbox", "", {}, [], element)
            self.properties(node, element)
            node.properties["required"] = "required" in element.attributes
            lines(self.state.value(element), element, node.children)
        else:
            role = element.attributes.get("role", "")
            if (tag == "img" and element.attributes.get("alt") == "") or role in ("presentation", "none"):
                return
            node = Node("image" if role == "img" else role or ROLES.get(tag, ""), "", {}, [], element)
            self.properties(node, element)
            if tag in ("progress", "meter"):
                node.properties.update(
                    valuemin=0, valuemax=number_or(element.attributes.get("max", ""), 1), valuetext=""
                )
        self.named.append((node, element, None))
        self.atom(self.contribution(node, element))
        if out is not None and node.role:
            out.append(node)

    def contribution(self, node: Node, element: Element) -> Node | str:
        """What a control adds to a name around it: its value, or else its name."""
        labels = self.labels.get(element, [])
        if element.tag == "select":
            chosen = self.state.options(element)
            return " ".join(option_name(o) for o in element.elements() if o in chosen)
        if element.tag in ("progress", "meter"):
            return element.attributes.get("value", "")
        if node.role in ("textbox", "searchbox", "spinbutton", "combobox"):
            value = self.state.value(element)
            return value or (BREAK if labels else node)
        if node.role in ("Date", "DateTime", "InputTime", "Canvas", "slider"):
            return BREAK
        return BREAK if labels else node

    def input(self, node: Node, element: Element, kind: str) -> None:
        """The properties and inner texts of an input."""
        attributes, value = element.attributes, self.state.value(element)
        self.properties(node, element)
        found = node.properties
        if "list" in attributes and node.role == "combobox":
            found.pop("hasPopup", None)
            found.update(autocomplete="list", hasPopup="listbox")
        if node.role in ("checkbox", "radio"):
            found["checked"] = "true" if self.state.is_checked(element) else "false"
        elif node.role == "button":
            if kind in ("submit", "reset", "button"):
                text = attributes.get("value", {"submit": "Submit", "reset": "Reset"}.get(kind, ""))
                if text:
                    node.children.append(Node("StaticText", text, {}, [], element))
        elif node.role == "spinbutton":
            found["required"] = "required" in attributes
            found["valuemin"] = number_or(attributes.get("min", ""), 0)
            found["valuemax"] = number_or(attributes.get("max", ""), 0)
            found["valuetext"] = value
        elif node.role == "slider":
            found.update(orientation="horizontal", valuemin=number_or(attributes.get("min", ""), 0))
            found.update(valuemax=number_or(attributes.get("max", ""), 100), valuetext="")
        elif node.role == "Date":
            named = element in self.labels or any(
                key in attributes for key in ("aria-label", "aria-labelledby", "title")
            )
            date_parts(node, value, named)
            return
        elif node.role in ("textbox", "combobox"):
            found["required"] = "required" in attributes
        if node.role in ("textbox", "searchbox", "spinbutton", "combobox") and value:
            shown = "•" * len(value) if kind == "password" else value
            node.children.append(Node("StaticText", shown, {}, [], element))
        described = found.pop("describedby", None)
        if described is not None:
            found["describedby"] = described

    def select(self, element: Element) -> Node:
        """A menu or a list of options."""
        attributes = element.attributes
        chosen = self.state.options(element)
        size = int_or(attributes.get("size", ""), 0)
        if "multiple" in attributes or size > 1:
            node = Node("listbox", "", {}, [], element)
            self.properties(node, element)
            if "multiple" in attributes:
                node.properties["multiselectable"] = True
            node.properties.update(orientation="vertical", required="required" in attributes)
            options = node.children
        else:
            node = Node("combobox", "", {}, [], element)
            self.properties(node, element)
            described = node.properties.pop("describedby", None)
            node.properties.update(hasPopup="menu", expanded=False)
            if described is not None:
                node.properties["describedby"] = described
            popup = Node("MenuListPopup", "", {}, [], element)
            node.children.append(popup)
            options = popup.children
        self.add_options(element, options, chosen, "disabled" in node.properties)
        return node

    def add_options(self, around: Element, out: list[Node], chosen: frozenset[Element], disabled: bool) -> None:
        """Options and their groups."""
        for child in around.children:
            if not isinstance(child, Element) or "hidden" in child.attributes:
                continue
            if child.tag == "optgroup":
                group = Node("group", child.attributes.get("label", ""), {}, [], child)
                out.append(group)
                self.add_options(child, group.children, chosen, disabled or "disabled" in child.attributes)
            elif child.tag == "option":
                off = disabled or "disabled" in child.attributes
                said: dict[str, Any] = {"disabled": True} if off else {"selected": child in chosen}
                out.append(Node("option", option_name(child), said, [], child))


def join(items: list[Node | str]) -> str:
    """A name from its pieces: words of one line as they stand, a space where boxes meet."""
    if len(items) == 1 and not isinstance(items[0], str) and "\n" not in items[0].name:
        return items[0].name
    found, wanted = "", False
    for item in items:
        text = item if isinstance(item, str) else item.name
        if not text:
            wanted = wanted or item is BREAK
            continue
        if wanted and found and not found[-1].isspace() and not text[0].isspace():
            found += " "
        found += text
        wanted = False
    return SPACES.sub(" ", found)


def option_name(option: Element) -> str:
    """What an option shows."""
    return option.attributes.get("label") or " ".join(option.text().split())


def lines(value: str, element: Element, out: list[Node]) -> None:
    """The text of a text area: a text for every line, a break between them, one more after a last empty line."""
    if not value:
        return
    parts = value.split("\n")
    for index, part in enumerate(parts):
        if part:
            out.append(Node("StaticText", part, {}, [], element))
        if index < len(parts) - 1 or not part:
            out.append(Node("LineBreak", "\n", {}, [], element))


DATE = re.compile(r"(\d{4,6})-(\d\d)-(\d\d)")


def date_parts(node: Node, value: str, named: bool) -> None:
    """The three fields in which Chromium shows a date, and its button."""
    found = DATE.fullmatch(value)
    year, month, day = (found[1], found[2], found[3]) if found else ("", "", "")
    focused = node.properties.pop("focused", False)
    off = {"disabled": True} if "disabled" in node.properties else {}
    for name, most, text, empty in (("Month", 12, month, "mm"), ("Day", 31, day, "dd"), ("Year", 275760, year, "yyyy")):
        held = {"focused": True} if name == "Month" and focused else {}
        said = {**off, **held, "required": False, "valuemin": 1, "valuemax": most, "valuetext": text}
        part = Node("spinbutton", f"{name} {name}" if named else name, said, [], node.handle)
        part.children.append(Node("StaticText", text or empty, {}, [], node.handle))
        node.children.append(part)
        if name != "Year":
            node.children.append(Node("StaticText", "/", {}, [], node.handle))
    if not off:
        node.children.append(Node("button", "Show date picker", {"hasPopup": "menu"}, [], node.handle))


def number_or(text: str, default: float) -> float:
    """A number of an attribute, whole where it is."""
    try:
        value = float(text)
    except ValueError:
        return default
    return int(value) if value == int(value) else value


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


def tree(document: Document, state: State, styles: Styles) -> Node:
    """The accessibility tree of a document as a person left it."""
    return Builder(document, state, styles).build()
