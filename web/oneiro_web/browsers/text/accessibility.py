"""The accessibility tree that Chromium computes for a static page, from its HTML.

Roles, names, properties and white space follow what Chromium's `Accessibility.getFullAXTree` was seen to give. Nodes
that are never printed (blank paragraphs, lists, generic boxes) are left out and their children take their place.
"""

from __future__ import annotations

from typing import Any

from oneiro_web.browsers.text.controls import contribution, control
from oneiro_web.browsers.text.document import Document, Element
from oneiro_web.browsers.text.names import BREAK, FROM_CONTENTS, NEVER_CONTRIBUTE, SPACES, Names, join
from oneiro_web.browsers.text.roles import ROLES, SCOPES, Roles, add_properties
from oneiro_web.browsers.text.state import State, int_or, is_hidden, labelled
from oneiro_web.browsers.text.styles import (
    ATOMIC,
    BLOCK,
    FLEXIBLE,
    INLINE_OUTSIDE,
    NEVER_SHOWN,
    UNPLANNED,
    Place,
    Styles,
    with_own,
)
from oneiro_web.page import Node

PLAIN = {
    **dict.fromkeys(
        ("html", "body", "div", "span", "p", "b", "i", "u", "small", "strong", "tbody", "section", "cite"), ""
    ),
    **dict.fromkeys(("li", "kbd"), ""),
    **{tag: ROLES[tag] for tag in ("article", "form", "dl", "dt", "dd", "time", "em", "code", "main", "td", "tr")},
    **{tag: ROLES[tag] for tag in ("h1", "h2", "h3", "h4")},
    "a": "link",
    "button": "button",
}
"""Roles of the most frequent elements when nothing in their attributes changes them; '' without a node."""
NO_PROPERTIES: dict[str, Any] = {}
NO_CHILDREN: list[Node] = []
"""Shared by all texts, which never have any."""
FROM_ITS_CONTENTS, NAMES_NOTHING = 1, 2
Plan = tuple[str, str, int, bool, bool | None, bool]
"""Role, display, what its contents name, whether it is one of `SCOPES`, `preformatted` where a style decides it, and
whether `is_special` must be asked."""
PREFORMATTED = ("pre", "pre-wrap", "break-spaces")
"""Values of `white-space` that keep spaces and lines as they are written."""
WHITE = " \n\t\r\f"


class Builder:
    """One walk over a document."""

    def __init__(self, document: Document, state: State, styles: Styles) -> None:
        self.document, self.state, self.styles = document, state, styles
        self.names, self.roles = Names(document), Roles()
        self.line_start = True
        self.last: Node | None = None
        """The last text of the line, whose space at the end goes when the line ends."""
        self.collectors: list[list[Node | str]] = []
        self.label_texts: set[int] = set()
        """Which lists are the texts of labels: controls add nothing to them."""
        self.after_atom = False
        self.named: list[tuple[Node, Element | None, list[Node | str] | None]] = []
        """Nodes to be named when all is read, inner ones first; without an element, only their contents count."""
        self.data_table = False
        """Whether the table around holds data."""
        self.preformatted = False
        self.disabled = False
        self.list_style = ""
        self.depth_of_lists = 0

    def build(self) -> Node:
        """The whole tree."""
        root = Node("RootWebArea", self.document.title, {"focused": True}, [], self.document.root)
        self.children(self.document.root, root.children, "block", self.styles.top)
        self.boundary()
        by_others: list[tuple[Node, Element, list[Node | str] | None]] = []
        for node, element, items in self.named:
            if element is None:
                node.name = join(items or [])
            elif element in self.names.labels or "aria-labelledby" in element.attributes:
                by_others.append((node, element, items))
            else:
                node.name = self.names.of(node, element, items)
        for node, element, items in by_others:
            node.name = self.names.of(node, element, items)
        return root

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

    def children(self, element: Element, out: list[Node] | None, display: str, place: Place) -> None:
        """What is in an element, in order."""
        apart, inner = display in FLEXIBLE, place.inner
        for child in element.children:
            if isinstance(child, str):
                if not (self.line_start and not self.preformatted and not child.strip(WHITE)):
                    self.text(child, element, out)
                continue
            if apart:
                self.boundary()
            here = inner.get(child.key) or self.styles.place(place, child)
            if not (child.plain and out is not None and self.plain(child, out, here)):
                self.element(child, out, here)
            if apart:
                self.boundary()

    def element(self, element: Element, out: list[Node] | None, place: Place) -> None:
        """One element and what is in it, the long way: `plain` is for most of them."""
        tag, attributes = element.tag, element.attributes
        if tag in NEVER_SHOWN:
            return
        style = with_own(place.style, element)
        if is_hidden(element, style):
            return
        if attributes.get("aria-hidden") == "true":
            out, kept = None, self.collectors
            self.collectors = []
            self.inside(element, out, style, self.display(element, style), place)
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
            self.add_replaced(element, out)
            return
        if tag == "label" and out is not None and self.is_redundant(element):
            hidden: list[Node] = []
            self.collect(element, hidden, style, place)
            out.extend(node for node in hidden if node.role in ("checkbox", "radio"))
            return
        role = self.roles.of(element)
        node = None
        if role and out is not None:
            node = Node(role, "", {}, [], element)
            add_properties(node, element, self.state, self.disabled)
        if node is None:
            if tag == "label" or attributes.get("id") in self.document.referenced:
                self.collect(element, out, style, place)
            else:
                self.inside(element, out, style, self.display(element, style), place)
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
        if (
            role in FROM_CONTENTS
            or attributes.get("id") in self.document.referenced
            or tag in ("legend", "caption", "label")
        ):
            items = self.names.collected[element] = []
            self.collectors = [*self.collectors, items]
            if tag == "label":
                self.label_texts.add(id(items))
        self.inside(element, node.children, style, display, place)
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

    def plain(self, element: Element, out: list[Node], place: Place) -> bool:
        """The short way for frequent elements without anything special; False where there is something."""
        plan: Plan | None = place.plan
        if plan is UNPLANNED:
            plan = place.plan = self.plan(element, place.style)
        if plan is None or element is self.state.focus:
            return False
        role, display, naming, scoped, preformatted, is_careful = plan
        if is_careful and self.is_special(element):
            return False
        around, outer_format = self.collectors, self.preformatted
        if preformatted is not None:
            self.preformatted = preformatted
        if role:
            node = Node(role, "", {}, [], element)
            out.append(node)
            out = node.children
            if naming == FROM_ITS_CONTENTS:
                items: list[Node | str] = []
                self.collectors = [items]
            elif naming == NAMES_NOTHING:
                self.collectors = []
        self.roles.scopes += scoped
        if display == "inline":
            self.children(element, out, display, place)
        elif display in INLINE_OUTSIDE:
            self.box(element, out, display, place)
            if naming == NAMES_NOTHING:
                self.spaces(around)
        else:
            self.boundary()
            self.children(element, out, display, place)
            self.boundary()
        self.roles.scopes -= scoped
        self.preformatted, self.collectors = outer_format, around
        if naming == FROM_ITS_CONTENTS:
            # A button without words is named by nothing, a link by the space that is in it.
            self.named.append((node, element if role == "button" else None, items))
            for collector in around:
                collector.extend((node,) if display == "inline" else (BREAK, node, BREAK))
        return True

    def plan(self, element: Element, style: dict[str, str]) -> Plan | None:
        """How plain elements in this one's place are added the short way; None for the long one."""
        tag = element.tag
        display = style.get("display") or self.display(element, style)
        if tag not in PLAIN or display == "none" or "visibility" in style or "list-style" in style:
            return None
        role, space = PLAIN[tag], style.get("white-space")
        naming = FROM_ITS_CONTENTS if role in FROM_CONTENTS else NAMES_NOTHING if role in NEVER_CONTRIBUTE else 0
        preformatted = None if space is None else space in PREFORMATTED
        is_careful = tag in ("a", "button", "li", "td", "tr") or bool(element.key[2])
        return role, display, naming, tag in SCOPES, preformatted, is_careful

    def is_special(self, element: Element) -> bool:
        """Whether what stands around an element, or what points at it, asks for the long way."""
        match element.tag:
            case "a":
                special = "href" not in element.attributes
            case "button":
                special = self.disabled
            case "li":
                special = "none" not in self.list_style
            case "td" | "tr":
                special = not self.data_table
            case _:
                special = False
        return special or bool(self.document.referenced and "id" in element.attributes)

    def box(self, element: Element, out: list[Node] | None, display: str, place: Place) -> None:
        """The contents of a box that stands in the line like a letter."""
        self.space()
        self.last, self.line_start = None, True
        self.contents(element, out, display, place)
        self.boundary()
        self.line_start, self.after_atom = False, True

    def collect(self, element: Element, out: list[Node] | None, style: dict[str, str], place: Place) -> None:
        """An element that has no node but whose text names another."""
        items = self.names.collected[element] = []
        if element.tag == "label":
            self.label_texts.add(id(items))
        self.collectors = [*self.collectors, items]
        self.inside(element, out, style, self.display(element, style), place)
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

    def inside(
        self, element: Element, out: list[Node] | None, style: dict[str, str], display: str, place: Place
    ) -> None:
        """The contents of an element in its own kind of box."""
        tag = element.tag
        saved = (self.preformatted, self.disabled, self.list_style, self.depth_of_lists)
        space = style.get("white-space")
        if tag == "pre" or space is not None:
            self.preformatted = (space or "pre") in PREFORMATTED
        outer_table = self.data_table
        if tag == "table":
            self.data_table = self.roles.holds_data(element) and not element.attributes.get("role")
        if tag in SCOPES:
            self.roles.scopes += 1
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
            self.box(element, out, display, place)
        elif display == "inline":
            self.contents(element, out, display, place)
        else:
            self.boundary()
            self.contents(element, out, display, place)
            self.boundary()
        if tag in SCOPES:
            self.roles.scopes -= 1
        self.data_table = outer_table
        self.preformatted, self.disabled, self.list_style, self.depth_of_lists = saved

    def contents(self, element: Element, out: list[Node] | None, display: str, place: Place) -> None:
        """What is in an element; closed details show their summary only, items begin with their marker."""
        tag = element.tag
        if tag == "details" and not self.state.is_open(element):
            summary = next((c for c in element.children if isinstance(c, Element) and c.tag == "summary"), None)
            if summary is not None:
                self.element(summary, out, self.styles.place(place, summary))
            return
        if tag == "li" and out is not None and "none" not in self.list_style:
            out.append(Node("ListMarker", self.marker(element), {}, [], element))
        if tag == "q":
            self.text("“", element, out)
        self.children(element, out, display, place)
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

    def add_replaced(self, element: Element, out: list[Node] | None) -> None:
        """An element that stands in the line as a whole: a control, an image, a frame."""
        is_labelled = element in self.names.labels
        node = control(element, self.state, self.disabled, is_labelled)
        if node is None:
            return
        self.named.append((node, element, None))
        self.atom(contribution(node, element, self.state, is_labelled))
        if out is not None and node.role:
            out.append(node)


def tree(document: Document, state: State, styles: Styles) -> Node:
    """The accessibility tree of a document as a person left it."""
    return Builder(document, state, styles).build()
