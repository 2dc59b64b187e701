"""Templates as tables. A row says what is asked, how its slots are drawn, the way through the pages, and the answer:

Question(
    "gitlab/milestone-due",
    'When is the milestone "{milestone}" of {project} due?',
    'On which date does the milestone "{milestone}" in {project} end?',
    skills="search read",
    draw=pick("SELECT p.title AS project, m.title AS milestone, m.due FROM milestone m JOIN project p ..."),
    way=[enter("Search projects", "{project}"), click("link", "{project}"), click("link", "Milestones")],
    answer="date due",
)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from oneiro_web.actions import Action
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, Template, counts, holds, quoted, says
from oneiro_web.templates.script import Script, View

Draw = Callable[[Content, np.random.Generator], Slots | None]
Step = Callable[[View, Slots], Action | Script]
"""Part of a way. It looks at the page when its turn comes, so it is a function and no action yet."""


class TableTemplate(Template):
    """One row of a table: a template without a class of its own.

    `answer` has a type and a slot for each value that is asked for: `"yes_no merged, date day"`. Types are those of
    `says`, and besides `counts` (numbers in their order), `minutes` (a duration) and `last` (the last text of a list).
    """

    def __init__(
        self,
        name: str,
        *intents: str,
        skills: str,
        draw: Draw,
        way: Sequence[Step],
        answer: str = "",
        start: str = "",
        held_out: bool = False,
    ) -> None:
        self.name, self.site = name, name.partition("/")[0]
        if intents:
            self.intents = intents
        self.skills, self.start, self.held_out = tuple(skills.split()), start, held_out
        self._draw, self.way = draw, way
        self.answers = [part.split() for part in answer.split(",") if part]

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return self._draw(content, rng)

    def checks(self, slots: Slots) -> list[Check]:
        return [check(kind, slots[slot]) for kind, slot in self.answers]

    def script(self, see: View, slots: Slots) -> Script:
        for step in self.way:
            done = step(see, slots)
            if isinstance(done, Action):
                yield done
            else:
                yield from done
        yield see.stop(", ".join(written(kind, slots[slot]) for kind, slot in self.answers))


class Question(TableTemplate):
    """A task that asks for values and changes nothing."""


class ShowPage(TableTemplate):
    """A task that asks for a page: `page` is its path, with slots, or a function of them."""

    def __init__(self, *name_and_intents: str, page: str | Callable[[Slots], str], **row: Any) -> None:
        super().__init__(*name_and_intents, **row)
        self.page = page

    def url(self, slots: Slots) -> str:
        return self.page.format_map(slots) if isinstance(self.page, str) else self.page(slots)


Allowed = dict[str, str | None]
BESIDE = ("held_status", "updated_at")
"""Columns that the sites write by themselves when others of the row are edited."""


class Change(TableTemplate):
    """A task that changes the database.

    `rows` are queries, each with the one row that it must give at the end, and `changes` the tables that may differ,
    each with a condition on the rows; `table(column, ...)` where rows that are there may differ in some columns alone.
    `:slot` stands for a slot's value, in SQL as a literal. Values of a row may also
    be functions of the slots, and so may `rows` and `changes` as a whole.

    `edits`, as `"product id"`, names a table and the slot (or number) of one of its rows: that row may differ, and at
    the end it must be what the slot `row` says.
    """

    def __init__(
        self,
        *name_and_intents: str,
        rows: Mapping[str, tuple[Any, ...]] | Callable[[Slots], list[Check]] | None = None,
        changes: Mapping[str, str] | Callable[[Slots], Allowed] | None = None,
        edits: str = "",
        **row: Any,
    ) -> None:
        super().__init__(*name_and_intents, **row)
        self.rows, self.conditions, self.edits = rows or {}, changes or {}, edits.split()

    def checks(self, slots: Slots) -> list[Check]:
        checks = super().checks(slots)
        if callable(self.rows):
            checks += self.rows(slots)
        else:
            for query, row in self.rows.items():
                expected = tuple(resolved(value, slots) for value in row)
                checks.append(holds(self.site, literal(query, slots), expected))
        if self.edits:
            table, number = self.edits
            columns = ", ".join(slots["row"])
            query = f"SELECT {columns} FROM {table} WHERE id = {slots.get(number, number)}"
            checks.append(holds(self.site, query, tuple(slots["row"].values())))
        return checks

    def changes(self, slots: Slots) -> Allowed:
        if callable(self.conditions):
            return self.conditions(slots)
        allowed: Allowed = {table: literal(condition, slots) for table, condition in self.conditions.items()}
        if self.edits:
            table, number = self.edits
            columns = ", ".join((*slots["row"], *BESIDE))
            allowed[f"{table}({columns})"] = f"id = {slots.get(number, number)}"
        return allowed


def literal(sql: str, slots: Slots) -> str:
    """SQL with the values of its `:slot`s."""

    def value(name: re.Match[str]) -> str:
        given = slots[name[1]]
        values = given if isinstance(given, list) else [given]  # a list is one for IN (...)
        return ", ".join(quoted(one) if isinstance(one, str) else str(one) for one in values)

    return re.sub(r":([a-z]+)", value, sql)


def resolved(value: Any, slots: Slots) -> Any:
    """A value of a row: itself, a slot, or a function of the slots."""
    if callable(value):
        return value(slots)
    return slots[value[1:]] if isinstance(value, str) and value.startswith(":") else value


def check(kind: str, value: Any) -> Check:
    """What the answer must say."""
    match kind:
        case "counts":
            return counts(*value)
        case "minutes":
            return says("duration", 60 * value)
        case "last":
            return says("text", value[-1])
    return says(kind, value)


def written(kind: str, value: Any) -> str:
    """A value as the oracle says it."""
    match kind:
        case "yes_no" if isinstance(value, bool):
            return "Yes" if value else "No"
        case "minutes":
            return f"{value} minutes"
        case "last":
            return str(value[-1])
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# Draws ---------------------------------------------------------------------------------------------------------------


def pick(sql: str, **convert: Callable[[Any], Any]) -> Draw:
    """One row of a query (which must have an order): its columns are the slots, converted where that is said."""

    def draw(content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(rng, sql)
        return converted(dict(row), convert) if row else None

    return draw


def add(draw: Draw, sql: str, **convert: Callable[[Any], Any]) -> Draw:
    """The slots of another draw and the columns of the first row that a query over them (`:slot`) gives.

    A column `rank` is no slot: no answer is unique where the second row has the same.
    """

    def both(content: Content, rng: np.random.Generator) -> Slots | None:
        slots = draw(content, rng)
        rows = [dict(row) for row in content.db.execute(sql, slots).fetchmany(2)] if slots is not None else []
        if slots is None or not rows:
            return None
        ranks = [row.pop("rank", None) for row in rows]
        if ranks[0] is not None and (len(rows) < 2 or ranks[0] == ranks[1]):
            return None
        return {**slots, **converted(rows[0], convert)}

    return both


def converted(slots: Slots, convert: dict[str, Callable[[Any], Any]]) -> Slots:
    return {name: convert[name](value) if name in convert else value for name, value in slots.items()}


def split(mark: str) -> Callable[[str], list[str]]:
    """The parts of a text (of `group_concat`), sorted."""
    return lambda text: sorted(text.split(mark))


# Steps ---------------------------------------------------------------------------------------------------------------


def click(role: str, name: str, within: str = "") -> Step:
    return lambda see, slots: see.click(
        role, name.format_map(slots), within=within.format_map(slots) if within else None
    )


def write(field: str, text: str) -> Step:
    """Type into an empty field."""
    return lambda see, slots: see.type(field, text.format_map(slots))


def enter(field: str, text: str) -> Step:
    """Type into an empty field, then Enter."""
    return lambda see, slots: see.type(field, text.format_map(slots), enter=True)


def refill(field: str, text: str) -> Step:
    """Type into a field, whatever it holds."""
    return lambda see, slots: see.fill(field, text.format_map(slots))


def choose(field: str, option: str) -> Step:
    """An option of a drop-down list."""
    return lambda see, slots: see.select(field, option.format_map(slots))


def choose_capital(field: str, slot: str) -> Step:
    """The same, where the list writes a slot's value with a capital."""
    return lambda see, slots: see.select(field, slots[slot].capitalize())


def by(part: Callable[..., Action | Script], *texts: str) -> Step:
    """A part that scripts share, called with these texts."""
    return lambda see, slots: part(see, *(text.format_map(slots) for text in texts))
