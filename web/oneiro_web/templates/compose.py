"""Templates composed from a site's schema: entities x ways to choose some of their rows x verbs.

A site says once what its lists hold, how they are filtered and sorted, and what can be done with a row:

    Entity("orders", "order", site="shopping_admin", source="SELECT ...", way=[click("link", "Orders")], ...)

and `compose` makes of it a template for each combination: its intents from a small grammar, its grader, its script. So
templates share their parts, and a combination that nobody trained on is made of parts that everybody trained on.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any
from urllib.parse import urlencode

import numpy as np

from oneiro_web.grading.values import names
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.schema import Act, Entity, Field, Filter, Row, Sort, rows_of
from oneiro_web.templates.table import Change, Step

TRIES = 12
"""Values of filters that a draw tries before it gives up."""
MANY = 10**6
"""Rows that a verb takes at most where it takes any number: more than any list has."""
HELD_OUT = 6
"""One combination in so many is never trained on."""
GUESSABLE = frozenset(
    {
        "gitlab/closed-requests.assignee.list",
        "gitlab/open-requests.assignee.latest-creation-date",
        "reddit/found-posts.title.read-forum",
        "shopping/my-orders.status.read-order-number",
        "shopping_admin/customers.since.count",
        "shopping_admin/terms.results.count",
    }
)
"""Combinations that are left out: one answer would be right in more than a tenth of their draws."""
MOST_ACTIONS = 8
"""Longer scripts are left out."""


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
    used = {name for one in filters for name in (one.source_column, *one.tells)}
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
    if all(one.kind in ("choice", "from") and not one.narrow for one in filters):
        return  # too many rows to read
    words = title.words
    phrases = (f"List the {words}s of all {{many}}.", f"Which {{many}} are there? Give their {words}s.")
    yield Verb("list", phrases, 2, 4, title, sorted, "names")
    for one in entity.fields:
        if one.column in used or one.on_page or one.kind not in ("number", "money", "date"):
            continue
        high, low = ("latest", "earliest") if one.kind == "date" else ("highest", "lowest")
        for word, find in ((high, max), (low, min)):
            extreme = f"{word} {one.words}"
            phrases = (f"What is the {extreme} of the {{many}}?", f"Of the {{many}}, give the {extreme}.")
            yield Verb(hyphenate(extreme), phrases, 2, 6, one, find, one.kind)
        if one.kind == "money":
            phrases = (
                f"What do the {one.words}s of the {{many}} add up to?",
                f"Add up the {one.words}s of the {{many}}.",
            )
            yield Verb(f"sum-{hyphenate(one.words)}", phrases, 2, 3, one, sum, "money")


def verbs_of_a_row(entity: Entity, used: set[str], sort: Sort | None) -> Iterator[Verb]:
    """What can be asked of one row."""
    least, most = (2, MANY) if sort else (1, 1)
    for one in (entity.title, *entity.fields):
        if one.column in used or (sort and one is not entity.title and one.column != sort.column):
            continue
        phrases = (
            f"What is the {one.words} of {{row}}?",
            f"Give the {one.words} of {{row}}.",
            f"Look up {{row}}: what is its {one.words}?",
        )
        yield Verb(
            f"read-{hyphenate(one.words)}",
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
        yield Verb(act.name, act.phrases, act=act, opens=not act.in_list, least=least, most=most)


def first(values: list[Any]) -> Any:
    return values[0]


def hyphenate(words: str) -> str:
    return words.replace(" ", "-")


class Composed(Change):
    """An entity, a choice of its rows, and a verb."""

    def __init__(self, entity: Entity, filters: tuple[Filter, ...], sort: Sort | None, verb: Verb) -> None:
        self.entity, self.filters, self.sort, self.verb = entity, filters, sort, verb
        self.choice = "+".join([*(one.name for one in filters), *([sort.name] if sort else [])])
        act = verb.act
        super().__init__(
            f"{entity.site}/{entity.name}.{self.choice}.{verb.name}",
            skills=" ".join(
                [entity.name, *(f"by-{one.name}" for one in filters), *([sort.name] if sort else []), verb.name]
            ),
            draw=self._draw_slots,
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

    @cached_property
    def intents(self) -> tuple[str, ...]:  # type: ignore[override]
        """Each way to say the verb with each way to say which rows; made when they are first asked for."""
        entity, sort = self.entity, self.sort
        many = entity.many or f"{entity.one}s"
        intents = []
        variants = max(len(one.phrases) for one in (*self.filters, *([sort] if sort else ())))
        for number, phrase in product(range(variants), self.verb.phrases):
            after = [one.phrases[number % len(one.phrases)] for one in self.filters]
            after += [sort.phrases[number % len(sort.phrases)]] if sort else []
            which = f"{entity.of[number % len(entity.of)]} {' '.join(after)}"
            intents.append(phrase.replace("{many}", f"{many}{which}").replace("{row}", f"the {entity.one}{which}"))
        return tuple(dict.fromkeys(intents))

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

    def _draw_slots(self, content: Content, rng: np.random.Generator) -> Slots | None:
        """Values of the filters that choose as many rows as the verb wants."""
        rows = rows_of(self.entity, content.seed)
        keys = list(dict.fromkeys(self._key(row) for row in rows))
        keys = [key for key in keys if None not in key]
        for _ in range(TRIES if keys else 0):
            key = one_of(rng, keys)
            slots = self._fill_slots(content, rng, rows, key)
            if slots is not None:
                return slots
        return None

    def _key(self, row: Row) -> tuple[Any, ...]:
        return (*(row[name] for name in self.entity.scope), *(one.value(row) for one in self.filters))

    def _fill_slots(
        self, content: Content, rng: np.random.Generator, rows: Sequence[Row], key: tuple[Any, ...]
    ) -> Slots | None:
        entity, verb = self.entity, self.verb
        scope, values = dict(zip(entity.scope, key, strict=False)), key[len(entity.scope) :]
        pairs = list(zip(self.filters, values, strict=True))
        here = rows
        for name, value in scope.items():
            here = [row for row in here if row[name] == value]
        matches = list(here)
        for one, value in pairs:
            matches = one.matching(matches, value)
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
            return self._fill_act(content, rng, matches[0], slots)
        if verb.find and verb.field:
            raw = [row[verb.field.column] for row in (matches[:1] if self.sort else matches)]
            answer = verb.find(raw)
            answers = answer if isinstance(answer, list) else [] if verb.name == "count" else [answer]
            if None in raw or any(map(verb.field.is_guessable, answers)):
                return None
            if isinstance(answer, list):
                answer = [str(verb.field.read(one)) for one in answer]
                if not are_names(answer):
                    return None
            elif verb.name != "count":
                answer = verb.field.read(answer)
            slots["answer"] = answer
            if self._gives_away(slots):
                return None
        return slots

    def _gives_away(self, slots: Slots) -> bool:
        """Whether the intent already says the answer."""
        if self.verb.name == "count":
            return False
        answers = slots["answer"] if isinstance(slots["answer"], list) else [slots["answer"]]
        given = [str(slots[name]).lower() for name in (*self.entity.scope, *(one.name for one in self.filters))]
        return any(str(answer).lower() in text for answer in answers for text in given)

    def _fill_act(self, content: Content, rng: np.random.Generator, row: Row, slots: Slots) -> Slots | None:
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
    templates = [
        Composed(entity, filters, sort, verb)
        for entity in entities
        for filters, sort in entity.choices()
        for verb in verbs(entity, filters, sort)
    ]
    templates = [one for one in templates if len(one.way) < MOST_ACTIONS and one.name not in GUESSABLE]
    hold_out(templates)
    return templates


def hold_out(templates: Sequence[Composed]) -> None:
    """Mark combinations whose parts others teach: of the same entity, this choice with another verb and this verb with
    another choice.
    """
    trained = Counter[tuple[str, str, str]]()
    for one in templates:
        trained.update(_parts_taught(one))
    wanted = len(templates) // HELD_OUT
    for one in sorted(templates, key=lambda one: hashlib.blake2b(one.name.encode(), digest_size=8).digest()):
        if wanted and all(trained[part] > 1 for part in _parts_taught(one)):
            trained.subtract(_parts_taught(one))
            one.held_out, wanted = True, wanted - 1


def _parts_taught(one: Composed) -> list[tuple[str, str, str]]:
    entity, choice, verb = one.parts
    return [(entity, "choice", choice), (entity, "verb", verb)]
