"""Templates composed from a site's schema: entities x ways to choose some of their rows x verbs.

A site says once what its lists hold, how they are filtered and sorted, and what can be done with a row:

    Entity("orders", "order", site="shopping_admin", source="SELECT ...", way=[click("link", "Orders")], ...)

and `compose` makes of it a template for each combination: its intents from a small grammar, its grader, its script. So
templates share their parts, and a combination that nobody trained on is made of parts that everybody trained on.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any, Literal
from urllib.parse import urlencode

import numpy as np

from oneiro_web.grading.values import names
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.table import Allowed, Change, Step, choose, enter, write

Row = dict[str, Any]
TRIES = 12
"""Values of filters that a draw tries before it gives up."""
MANY = 10**6
HELD_OUT = 6
"""One combination in so many is never trained on."""
MOST_ACTIONS = 8
"""Longer scripts are left out."""


@dataclass(frozen=True)
class Filter:
    """A way to narrow a list."""

    name: str
    phrases: tuple[str, ...]
    """How an intent says it after the noun, with `{name}` for the value: `with the status "{status}"`."""
    kind: Literal["text", "choice", "from", "named"] = "text"
    """`text` finds a part, `choice` is one of a drop-down list, `from` a lower bound; `named` only names what the list
    shows anyway.
    """
    label: str = ""
    """Of the form's field."""
    column: str = ""
    """Of the source; the name if empty."""
    param: str = ""
    """In the list's address; the column if empty."""
    searched: tuple[str, ...] = ()
    """Columns in which the site looks for a text; the column if empty."""
    read: Callable[[Any], Any] = lambda value: value
    """A row's value as it is compared."""
    shown: Callable[[Any], str] = str
    """A value as it is written into the form and the intent."""
    unique: bool = False
    """No two rows share a value."""
    narrow: bool = False
    """A choice of which a list has only a few rows."""
    tells: tuple[str, ...] = ()
    """Other columns that a value gives away."""

    def value(self, row: Row) -> Any:
        """By which a row is found; None where it has none."""
        raw = row[self.column or self.name]
        return None if raw in (None, "") else self.read(raw)

    def fits(self, row: Row, value: Any) -> bool:
        """Whether the list shows a row when this value is asked for."""
        if self.kind == "text":
            return any(str(value).lower() in str(row[name]).lower() for name in self.searched or (self._column,))
        own = self.value(row)
        return own is not None and bool(own >= value if self.kind == "from" else own == value)

    @property
    def _column(self) -> str:
        return self.column or self.name

    def step(self, alone: bool) -> list[Step]:
        """Into the form; a single text is sent by Enter."""
        text = f"{{{self.name}}}"
        if self.kind == "named":
            return []
        if self.kind == "choice":
            return [choose(self.label, text)]
        return [enter(self.label, text) if alone else write(self.label, text)]

    def query(self, value: Any) -> tuple[str, str]:
        """In the address of the list."""
        return self.param or self._column, str(value) if self.kind == "choice" else self.shown(value)


@dataclass(frozen=True)
class Sort:
    """An order of the list; the first row is meant."""

    name: str
    phrases: tuple[str, ...]
    """After the noun: `with the highest price`."""
    column: str
    steps: tuple[Step, ...]
    down: bool = True
    """The largest first."""
    in_form: bool = False
    """The steps fill the filters' form; it is still to be sent."""


@dataclass(frozen=True)
class Field:
    """What a row says and a task may ask for."""

    column: str
    words: str
    kind: str = "text"
    """Of the answer, as in `says`; `number` and `money` can be compared and added."""
    read: Callable[[Any], Any] = lambda value: value
    on_page: bool = False
    """Not in the list, but on the row's own page."""


@dataclass(frozen=True)
class Act:
    """What can be done with a row. `{row}` in the phrases is the row; `:rowid` in SQL its id, and so on."""

    name: str
    phrases: tuple[str, ...]
    steps: tuple[Step, ...]
    when: Callable[[Row], bool] = lambda row: True
    texts: tuple[str, ...] = ()
    """One of them is the slot `text`."""
    fill: Callable[[Content, Row, Slots], Slots | None] = lambda content, row, slots: slots
    """More slots; None where the row will not do."""
    rows: Mapping[str, tuple[Any, ...]] | Callable[[Slots], list[Check]] | None = None
    changes: Mapping[str, str] | Callable[[Slots], Allowed] | None = None
    edits: str = ""
    in_list: bool = False
    """Done in the list, not on the row's own page."""
    rare: bool = False
    """For so few rows that the first one of a list is hardly ever among them."""


@dataclass(frozen=True, eq=False)
class Entity:
    """A kind of rows and the list that shows them."""

    name: str
    one: str
    """In an intent: `order`."""
    site: str
    source: str
    """A query with an order; its column `id` names a row."""
    title: Field
    """By which answers name a row."""
    way: tuple[Step, ...]
    """From the first page to the list."""
    many: str = ""
    submit: tuple[Step, ...] = ()
    """Sends the filters' form."""
    scope: tuple[str, ...] = ()
    """Columns that say which list it is, slots of their own: a project, a forum."""
    of: tuple[str, ...] = ("",)
    """After the noun: ` of {project}`."""
    start: str = ""
    """The first page, with slots of the scope."""
    fields: tuple[Field, ...] = ()
    filters: tuple[Filter, ...] = ()
    pairs: tuple[str, ...] = ()
    """Filters that are used together: `status+customer`."""
    sorts: tuple[Sort, ...] = ()
    sorted: tuple[str, ...] = ()
    """Filters that are used together with an order."""
    acts: tuple[Act, ...] = ()
    counts: tuple[str, ...] = ()
    """Choices by filters of which the list says how many there are, and so many different numbers that none is a good
    guess.
    """
    page: str = ""
    """The list's address, where a task may ask for it."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """What else stands in the query of that address."""
    open: tuple[Step, ...] = ()
    """From the list to a row's page."""
    opens: Callable[[Row], bool] = lambda row: True
    """Whether that is the way to this row's page."""
    row_page: str = ""
    size: int = 20
    """Rows of a page of the list."""

    def choices(self) -> Iterator[tuple[tuple[Filter, ...], Sort | None]]:
        """Every way to choose rows: filters, and perhaps an order whose first row is meant."""
        by_name = {one.name: one for one in self.filters}
        for one in self.filters:
            yield (one,), None
        for pair in self.pairs:
            yield tuple(by_name[name] for name in pair.split("+")), None
        for sort in self.sorts:
            if self.scope:
                yield (), sort
            for name in self.sorted:
                if (by_name[name].column or name) != sort.column:
                    yield (by_name[name],), sort


@lru_cache(maxsize=256)
def rows_of(entity: Entity, content: int) -> tuple[Row, ...]:
    """The rows of a kind on a content."""
    return tuple(dict(row) for row in Content(entity.site, content).rows(entity.source))


@dataclass(frozen=True)
class Verb:
    """What is asked of the rows that were chosen."""

    name: str
    phrases: tuple[str, ...]
    """`{many}` or `{row}` stands for the noun with everything after it."""
    least: int = 1
    most: int = 1
    """Rows that may be chosen."""
    field: Field | None = None
    find: Callable[[list[Any]], Any] | None = None
    """The answer from the values of the field; None without an answer."""
    kind: str = ""
    """Of the answer."""
    opens: bool = False
    act: Act | None = None


def verbs(entity: Entity, filters: Sequence[Filter], sort: Sort | None) -> Iterator[Verb]:
    """What can be asked of rows that were chosen so."""
    used = {name for one in filters for name in (one.column or one.name, *one.tells)}
    title = entity.title
    if sort or any(one.kind in ("text", "named") or one.narrow for one in filters):
        yield from verbs_of_a_row(entity, used, sort)
    if sort or any(one.unique for one in filters):
        return
    if "+".join(one.name for one in filters) in entity.counts:
        phrases: tuple[str, ...] = ("How many {many} are there?", "Count the {many}.", "Give the number of {many}.")
        yield Verb("count", phrases, 2, MANY, title, len, "number")
    if any(one.kind == "named" for one in filters):
        return
    if entity.page:
        phrases = ("Show the list of {many}.", "Open the list of {many}.", "Filter the list to show the {many}.")
        yield Verb("show", phrases, 1, MANY)
    if all(one.kind == "choice" and not one.narrow for one in filters):
        return  # too many rows to read
    words = title.words
    phrases = (f"List the {words}s of all {{many}}.", f"Which {{many}} are there? Give their {words}s.")
    yield Verb("list", phrases, 2, 4, title, sorted, "names")
    for one in entity.fields:
        if one.column in used or one.on_page or one.kind not in ("number", "money", "date"):
            continue
        high, low = ("latest", "earliest") if one.kind == "date" else ("highest", "lowest")
        for word, find in ((high, max), (low, min)):
            asked = f"{word} {one.words}"
            phrases = (f"What is the {asked} of the {{many}}?", f"Of the {{many}}, give the {asked}.")
            yield Verb(dashed(asked), phrases, 2, 6, one, find, one.kind)
        if one.kind == "money":
            phrases = (
                f"What do the {one.words}s of the {{many}} add up to?",
                f"Add up the {one.words}s of the {{many}}.",
            )
            yield Verb(f"sum-{dashed(one.words)}", phrases, 2, 3, one, sum, "money")


def verbs_of_a_row(entity: Entity, used: set[str], sort: Sort | None) -> Iterator[Verb]:
    """What can be asked of one row."""
    least, most = (2, MANY) if sort else (1, 1)
    for one in (entity.title, *entity.fields):
        if one.column in used or (sort and one is not entity.title and one.column != sort.column):
            continue
        asked = ("What is the {words} of {row}?", "Give the {words} of {row}.", "Look up {row}: what is its {words}?")
        phrases = tuple(text.replace("{words}", one.words) for text in asked)
        yield Verb(
            f"read-{dashed(one.words)}",
            phrases,
            field=one,
            kind=one.kind,
            find=first,
            opens=one.on_page,
            least=least,
            most=most,
        )
    if entity.row_page:
        phrases = ("Open the page of {row}.", "Show me {row} on its own page.", "Take me to {row}.")
        yield Verb("open", phrases, opens=True, least=least, most=most)
    for act in entity.acts:
        if not (act.rare and sort):
            yield Verb(act.name, act.phrases, act=act, opens=not act.in_list, least=least, most=most)


def first(values: list[Any]) -> Any:
    return values[0]


def dashed(words: str) -> str:
    return words.replace(" ", "-")


class Composed(Change):
    """An entity, a choice of its rows, and a verb."""

    def __init__(self, entity: Entity, filters: tuple[Filter, ...], sort: Sort | None, verb: Verb) -> None:
        self.entity, self.filters, self.sort, self.verb = entity, filters, sort, verb
        self.choice = "+".join([*(one.name for one in filters), *([sort.name] if sort else [])])
        act = verb.act
        super().__init__(
            f"{entity.site}/{entity.name}.{self.choice}.{verb.name}",
            *self._intents(),
            skills=" ".join(
                [entity.name, *(f"by-{one.name}" for one in filters), *([sort.name] if sort else []), verb.name]
            ),
            draw=self._chosen,
            way=self._way(),
            answer=f"{verb.kind} answer" if verb.kind else "",
            start=entity.start,
            rows=act.rows if act else None,
            changes=act.changes if act else None,
            edits=act.edits if act else "",
        )

    @property
    def parts(self) -> tuple[str, str, str]:
        """Entity, choice, verb: what is held out together."""
        return self.entity.name, self.choice, self.verb.name

    def _intents(self) -> list[str]:
        entity, sort = self.entity, self.sort
        many = entity.many or f"{entity.one}s"
        intents = []
        variants = max(len(one.phrases) for one in (*self.filters, *([sort] if sort else ())))
        for number, phrase in product(range(variants), self.verb.phrases):
            after = [one.phrases[number % len(one.phrases)] for one in self.filters]
            after += [sort.phrases[number % len(sort.phrases)]] if sort else []
            which = f"{entity.of[number % len(entity.of)]} {' '.join(after)}"
            intents.append(phrase.replace("{many}", f"{many}{which}").replace("{row}", f"the {entity.one}{which}"))
        return list(dict.fromkeys(intents))

    def _way(self) -> list[Step]:
        entity, sort, verb = self.entity, self.sort, self.verb
        form = [one for one in self.filters if one.kind != "named"]
        sorted_in_form = sort is not None and sort.in_form
        alone = len(form) == 1 and not sorted_in_form
        filled = [step for one in form for step in one.step(alone)]
        filled += sort.steps if sort and sort.in_form else ()
        sent = entity.submit if filled and not (alone and form[0].kind != "choice") else ()
        after = sort.steps if sort and not sort.in_form else ()
        opened = entity.open if verb.opens else ()
        return [*entity.way, *filled, *sent, *after, *opened, *(verb.act.steps if verb.act else ())]

    def url(self, slots: Slots) -> str | None:
        if self.verb.name == "open":
            return self.entity.row_page.format_map(slots)
        if self.verb.name == "show":
            return f"{self.entity.page.format_map(slots)}?{urlencode({**self.entity.fixed, **slots['query']})}"
        return None

    def _chosen(self, content: Content, rng: np.random.Generator) -> Slots | None:
        """Values of the filters that choose as many rows as the verb wants."""
        rows = rows_of(self.entity, content.seed)
        keys = list(dict.fromkeys(self._key(row) for row in rows))
        keys = [key for key in keys if None not in key]
        for _ in range(TRIES if keys else 0):
            key = one_of(rng, keys)
            slots = self._slots(content, rng, rows, key)
            if slots is not None:
                return slots
        return None

    def _key(self, row: Row) -> tuple[Any, ...]:
        return (*(row[name] for name in self.entity.scope), *(one.value(row) for one in self.filters))

    def _slots(
        self, content: Content, rng: np.random.Generator, rows: Sequence[Row], key: tuple[Any, ...]
    ) -> Slots | None:
        entity, verb = self.entity, self.verb
        scope, values = dict(zip(entity.scope, key, strict=False)), key[len(entity.scope) :]
        pairs = list(zip(self.filters, values, strict=True))
        here = [row for row in rows if all(row[name] == value for name, value in scope.items())]
        matches = [row for row in here if all(one.fits(row, value) for one, value in pairs)]
        if not verb.least <= len(matches) <= verb.most:
            return None
        if any(one.kind == "named" for one in self.filters) and not self.sort and len(here) > entity.size:
            return None  # what the first page of the list does not show
        if self.sort:
            column = self.sort.column
            matches = [row for row in matches if row[column] not in (None, "")]  # sites put those last
            matches.sort(key=lambda row: row[column], reverse=self.sort.down)
            if len(matches) < 2 or matches[0][column] == matches[1][column]:
                return None
        if verb.opens and not entity.opens(matches[0]):
            return None
        shown = {one.name: one.shown(value) for one, value in pairs}
        slots: Slots = {**scope, **shown, "query": dict(one.query(value) for one, value in pairs)}
        if verb.most == 1 or self.sort:
            slots |= {f"row{name.replace('_', '')}": value for name, value in matches[0].items()}
        if verb.act:
            return self._acted(content, rng, matches[0], slots)
        if verb.find and verb.field:
            raw = [row[verb.field.column] for row in (matches[:1] if self.sort else matches)]
            if any(value in (None, "") for value in raw):
                return None
            found = verb.find(raw)
            slots["answer"] = [str(verb.field.read(one)) for one in found] if isinstance(found, list) else (
                found if verb.name == "count" else verb.field.read(found)
            )  # fmt: skip
            if self._tells(slots) or (isinstance(found, list) and not are_names(slots["answer"])):
                return None
        return slots

    def _tells(self, slots: Slots) -> bool:
        """Whether the intent already says the answer."""
        if self.verb.name == "count":
            return False
        answers = slots["answer"] if isinstance(slots["answer"], list) else [slots["answer"]]
        given = [str(slots[name]).lower() for name in (*self.entity.scope, *(one.name for one in self.filters))]
        return any(str(answer).lower() in text for answer in answers for text in given)

    def _acted(self, content: Content, rng: np.random.Generator, row: Row, slots: Slots) -> Slots | None:
        act = self.verb.act
        assert act is not None
        if not act.when(row):
            return None
        if act.texts:
            slots["text"] = one_of(rng, act.texts)
        return act.fill(content, row, slots)


def are_names(answers: list[str]) -> bool:
    """Whether an answer that lists them is read as these and no others."""
    return len(set(answers)) == len(answers) and all(len(names(one)) == 1 for one in answers)


def compose(entities: Sequence[Entity]) -> list[Composed]:
    """A template for every combination of parts, with those marked that are never trained on."""
    made = []
    for entity in entities:
        for filters, sort in entity.choices():
            made += [Composed(entity, filters, sort, verb) for verb in verbs(entity, filters, sort)]
    made = [one for one in made if len(one.way) < MOST_ACTIONS]
    hold_out(made)
    return made


def hold_out(templates: Sequence[Composed]) -> None:
    """Mark combinations whose parts others teach: of the same entity, this choice with another verb and this verb with
    another choice.
    """
    trained = Counter[tuple[str, str, str]]()
    for one in templates:
        trained.update(_taught(one))
    wanted = len(templates) // HELD_OUT
    for one in sorted(templates, key=lambda one: hashlib.blake2b(one.name.encode(), digest_size=8).digest()):
        if wanted and all(trained[part] > 1 for part in _taught(one)):
            trained.subtract(_taught(one))
            one.held_out, wanted = True, wanted - 1


def _taught(one: Composed) -> list[tuple[str, str, str]]:
    entity, choice, verb = one.parts
    return [(entity, "choice", choice), (entity, "verb", verb)]
