"""The little of CSS that decides what an accessibility tree says: display, list style, white space, visibility."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from oneiro_web.browsers.text.document import Element, Key

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
COMPOUND = re.compile(r"([a-z][a-z0-9]*|\*)?((?:[.#][\w-]+)*)")
PART = re.compile(r"[.#][\w-]+")
READ = ("display", "list-style", "list-style-type", "white-space", "visibility")
MAX_SHEET_CHARS = 1 << 18  # the rest of a longer style sheet is not read
MOST_RULES = 2000

BLOCK = frozenset(
    (
        "#document", "html", "body", "address", "article", "aside", "blockquote", "caption", "center", "dd", "details",
        "dialog", "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3",
        "h4", "h5", "h6", "header", "hgroup", "hr", "legend", "li", "main", "menu", "nav", "ol", "optgroup", "option",
        "p", "pre", "search", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
    )
)  # fmt: skip
ATOMIC = frozenset(
    ("button", "canvas", "iframe", "img", "input", "meter", "object", "progress", "select", "svg", "textarea", "video")
)
NEVER_SHOWN = frozenset(
    (
        "area", "base", "datalist", "head", "link", "meta", "noscript", "param", "rp", "script", "source", "style",
        "template", "title", "track",
    )
)  # fmt: skip
FLEXIBLE = frozenset(("flex", "grid", "inline-flex", "inline-grid"))
"""Displays whose children are laid out like blocks."""
INLINE_OUTSIDE = frozenset(("inline-block", "inline-flex", "inline-grid", "inline-table"))


class Selector:
    """A chain of compounds (`header nav`, `.row > form`), the last one first."""

    def __init__(self, chain: list[tuple[str, str, frozenset[str], str]]) -> None:
        self.chain = chain
        """Combinator before it, tag, classes, id."""
        self.weight = (
            sum(bool(name) for _, _, _, name in chain),
            sum(len(classes) for _, _, classes, _ in chain),
            sum(bool(tag) for _, tag, _, _ in chain),
        )

    def matches(self, element: Element) -> bool:
        """Whether the element and those around it fit; like all of this, without attributes and pseudo-classes."""
        here: Element | None = element
        for position, compound in enumerate(self.chain):
            if position:
                child = self.chain[position - 1][0] == ">"
                here = here.parent if here is not None else None
                while here is not None and not child and not _fits(compound, here):
                    here = here.parent
            if here is None or not _fits(compound, here):
                return False
        return True


def _fits(compound: tuple[str, str, frozenset[str], str], element: Element) -> bool:
    _, tag, classes, name = compound
    if (tag and element.tag != tag) or (name and element.attributes.get("id") != name):
        return False
    return not classes or classes <= set(element.attributes.get("class", "").split())


class Place:
    """Where elements stand, as far as selectors can tell: their tags, classes and ids and those of all around them.
    Elements in one place have one style, so that it is found out once for all pages of a site.
    """

    __slots__ = ("inner", "plan", "style")

    def __init__(self, style: dict[str, str]) -> None:
        self.style = style
        """What the rules declare for them."""
        self.inner: dict[Key, Place] = {}
        self.plan: Any = UNPLANNED
        """What the tree's builder remembers of them."""


UNPLANNED = object()


def with_own(style: dict[str, str], element: Element) -> dict[str, str]:
    """A style with what an element says of itself."""
    attributes = element.attributes
    return {**style, **declarations(attributes["style"])} if "style" in attributes else style


Candidates = tuple[dict[str, str], list[tuple[Selector, dict[str, str]]]]
NOTHING: dict[str, str] = {}
MOST_KNOWN = 10_000


class Styles:
    """The style sheets of a page, asked element by element."""

    def __init__(self, sheets: Sequence[str]) -> None:
        rules = [rule for sheet in sheets for rule in read(sheet)]
        order = sorted(range(len(rules)), key=lambda index: (rules[index][0].weight, index))
        self.rules = [rules[index] for index in order]
        self.last: dict[str, list[int]] = {}
        for index, (selector, _) in enumerate(self.rules):
            _, tag, classes, name = selector.chain[0]
            key = f"#{name}" if name else f".{min(classes)}" if classes else tag
            self.last.setdefault(key, []).append(index)
        self.known: dict[tuple[str, str, str], Candidates] = {}
        self.top = Place(NOTHING)
        """Around the whole page."""
        self.places = 0

    def place(self, around: Place, element: Element) -> Place:
        """The place of an element within another's."""
        known = around.inner.get(element.key)
        if known is None:
            known = Place(self.by_rules(element))
            if self.places < MOST_KNOWN:  # hostile pages have no end of them
                around.inner[element.key] = known
                self.places += 1
        return known

    def of(self, element: Element) -> dict[str, str]:
        """The declarations that win for an element, without inherited ones."""
        return with_own(self.by_rules(element), element)

    def by_rules(self, element: Element) -> dict[str, str]:
        """The same without what the element says of itself."""
        key = element.key
        known = self.known.get(key)
        if known is None:
            if len(self.known) > MOST_KNOWN:
                self.known.clear()
            known = self.known[key] = self.candidates(key)
        fixed, rules = known
        if rules:
            fixed = dict(fixed)
            for rule, said in rules:
                if rule.matches(element):
                    fixed.update(said)
        return fixed

    def candidates(self, key: tuple[str, str, str]) -> Candidates:
        """For elements of one kind: what holds for all of them, and the rules that depend on where they stand."""
        names = ("", key[0], *(f".{name}" for name in key[1].split()), f"#{key[2]}")
        rules = [self.rules[index] for index in sorted(index for name in names for index in self.last.get(name, ()))]
        if any(len(rule.chain) > 1 for rule, _ in rules):
            return NOTHING, rules
        declared: dict[str, str] = {}
        alone = Element(key[0], {"class": key[1], "id": key[2]}, None, 0)
        for rule, said in rules:
            if rule.matches(alone):
                declared.update(said)
        return declared or NOTHING, []


@lru_cache(maxsize=256)
def read(sheet: str) -> list[tuple[Selector, dict[str, str]]]:
    """The rules of a sheet that say something of interest. Those for other media than a wide screen are left out."""
    rules: list[tuple[Selector, dict[str, str]]] = []
    for selectors, body in RULE.findall(_without_media(COMMENT.sub("", sheet[:MAX_SHEET_CHARS]))):
        declared = declarations(body)
        if not declared:
            continue
        for text in selectors.split(","):
            chain = selector(text.strip())
            if chain is not None and len(rules) < MOST_RULES:
                rules.append((Selector(chain), declared))
    return rules


def _without_media(sheet: str) -> str:
    kept, depth, skipping = [], 0, False
    for part in re.split(r"([{}])", sheet):
        if part == "{":
            depth += 1
        elif part == "}":
            depth -= 1
            if skipping and depth == 0:
                skipping = False
                continue
        elif depth == 0 and part.strip().startswith("@"):
            skipping = True
        if not skipping:
            kept.append(part)
    return "".join(kept)


def declarations(body: str) -> dict[str, str]:
    """Property and value of those that are read."""
    declared = {}
    for piece in body.split(";"):
        key, _, value = piece.partition(":")
        key = key.strip().lower()
        if key in READ:
            declared["list-style" if key == "list-style-type" else key] = (
                value.replace("!important", "").strip().lower()
            )
    return declared


def selector(text: str) -> list[tuple[str, str, frozenset[str], str]] | None:
    """A selector as a chain, or None for one with attributes, pseudo-classes or siblings."""
    chain = []
    combinator = ""
    for piece in text.replace(">", " > ").split():
        if piece == ">":
            combinator = ">"
            continue
        compound = COMPOUND.fullmatch(piece)
        if compound is None:
            return None
        parts = PART.findall(compound[2])
        tag = "" if compound[1] in (None, "*") else compound[1]
        classes = frozenset(part[1:] for part in parts if part[0] == ".")
        name = next((part[1:] for part in parts if part[0] == "#"), "")
        chain.append((combinator, tag, classes, name))
        combinator = ""
    return chain[::-1] or None
