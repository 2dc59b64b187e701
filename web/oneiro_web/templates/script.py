"""What an oracle script sees and does: it looks at the page in front and names one action after another.

A script is a generator of actions. It knows the answer, and it acts only through the browser, on elements it finds by
role and name:

    def script(see: View, slots: Slots) -> Script:
        yield see.type("Search", slots["product"], enter=True)
        yield see.click("link", slots["product"])
        yield see.stop(slots["price"])
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from oneiro_web.actions import Action, Kind
from oneiro_web.page import Node, Page

Script = Generator[Action, None, None]

TYPED = ("textbox", "searchbox", "spinbutton", "Date", "combobox")
"""Roles of fields that text is typed into."""


class Lost(LookupError):
    """A script did not find on the page what it wanted."""


class View:
    """The page in front, as the session last observed it. The world puts every new observation into `page`."""

    def __init__(self, *, clears: bool) -> None:
        self.page: Page | None = None
        self._shown: tuple[Page | None, dict[str, list[Node]]] = (None, {})
        """The nodes of a page by role: a script looks for many on the same page."""
        self.clears = clears
        """WebRL's grammar, where typing empties the field first and options are chosen by a word of their own. In
        WebArena's, a field is emptied by keys and an option is clicked.
        """

    def nodes(self, role: str, name: str | None = None, *, within: str | None = None) -> list[Node]:
        """The shown nodes of this role and name, in document order. `within` names an ancestor (row, article, group,
        listitem) by a text that stands somewhere inside it: the innermost such ancestor is meant.
        """
        if self.page is None:
            raise Lost("no page was observed yet")
        if within is None:
            if self._shown[0] is not self.page:
                by_role: dict[str, list[Node]] = {}
                for node in walk(self.page.root):
                    by_role.setdefault(node.role, []).append(node)
                self._shown = self.page, by_role
            return [node for node in self._shown[1].get(role, ()) if is_it(node, role, name)]
        inside = list(walk(self._around(within, role, name)))
        named = next(place for place, node in enumerate(inside) if within in node.name)
        placed = [(place, node) for place, node in enumerate(inside) if is_it(node, role, name)]
        # Where nothing encloses both alone, as in a list whose items have no box of their own, what follows is meant.
        return [node for _, node in sorted(placed, key=lambda each: (each[0] < named, each[0]))]

    def has(self, role: str, name: str | None = None) -> bool:
        """Whether such a node is on the page."""
        return bool(self.nodes(role, name))

    def find(self, role: str, name: str | None = None, *, within: str | None = None, nth: int = 0) -> int:
        """The id of such a node; `Lost` without one."""
        nodes = self.nodes(role, name, within=within)
        if nth >= len(nodes):
            where = f" within {within!r}" if within else ""
            raise Lost(f"{self.page.url if self.page else ''}: no {role} {name!r}{where}")
        return nodes[nth].id

    def click(self, role: str, name: str | None = None, *, within: str | None = None, nth: int = 0) -> Action:
        """Click it."""
        return Action(Kind.CLICK, self.find(role, name, within=within, nth=nth))

    def field(self, name: str, *, nth: int = 0) -> Node:
        """A field that text is typed into, by its label."""
        nodes = [node for role in TYPED for node in self.nodes(role, name)]
        if nth >= len(nodes):
            raise Lost(f"{self.page.url if self.page else ''}: no field {name!r}")
        return nodes[nth]

    def type(self, name: str, text: str, *, enter: bool = False) -> Action:
        """Type into an empty field."""
        return Action(Kind.TYPE, self.field(name).id, text, clear=self.clears, enter=enter)

    def fill(self, name: str, text: str, *, enter: bool = False) -> Script:
        """Type into a field, whatever it holds."""
        if not self.clears and any(node.name for node in walk(self.field(name)) if node.role == "StaticText"):
            yield Action(Kind.CLICK, self.field(name).id)
            yield Action(Kind.PRESS, text="Control+a")
            yield Action(Kind.PRESS, text="Backspace")
        yield self.type(name, text, enter=enter)

    def select(self, name: str, option: str) -> Action:
        """Choose an option of a drop-down list by its text."""
        box = self.nodes("combobox", name)
        if not box:
            raise Lost(f"{self.page.url if self.page else ''}: no drop-down list {name!r}")
        if self.clears:
            return Action(Kind.SELECT, box[0].id, option)
        options = [node for node in walk(box[0]) if node.role == "option" and node.name == option and node.id]
        if not options:
            raise Lost(f"{self.page.url if self.page else ''}: {name!r} has no option {option!r}")
        return Action(Kind.CLICK, options[0].id)

    def goto(self, url: str) -> Action:
        """Type an address."""
        return Action(Kind.GOTO, text=url)

    def stop(self, answer: str = "") -> Action:
        """Finish, with an answer where the task asks for one."""
        return Action(Kind.STOP, text=answer)

    def turn_pages_to(self, role: str, name: str, link: str = "Next") -> Script:
        """Go on to the next page of a list until it shows this node."""
        while not self.has(role, name):
            yield self.click("link", link)

    def _around(self, text: str, role: str, name: str | None) -> Node:
        """The innermost node, first in document order, that holds both `text` and a node of this role and name."""
        assert self.page is not None

        def holds(node: Node) -> bool:
            inside = list(walk(node))
            return any(is_it(below, role, name) for below in inside) and any(text in below.name for below in inside)

        node = self.page.root
        if not holds(node):
            raise Lost(f"{self.page.url}: nothing with {text!r} and a {role} {name!r}")
        while (inner := next((child for child in node.children if holds(child)), None)) is not None:
            node = inner
        return node


def is_it(node: Node, role: str, name: str | None) -> bool:
    """Whether a node is shown, and of this role and name."""
    return bool(node.id) and node.role == role and name in (None, node.name)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, in document order."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))
