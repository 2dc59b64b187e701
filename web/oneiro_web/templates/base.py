"""A template: an intent with slots, how its slots are drawn from a site's content, its checks, its oracle script."""

from __future__ import annotations

import html
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from oneiro_web.base import level_key
from oneiro_web.sites import SITES, Web
from oneiro_web.sites.web import original
from oneiro_web.tasks import AnswerCheck, Check, DatabaseCheck, DatabaseGuard, Evaluation, Spec, Task
from oneiro_web.templates.script import Script, View

Item = TypeVar("Item")
Slots = dict[str, Any]
"""Values of one task: those named in the intent, and those its checks and its script need. Plain JSON."""


class Content:
    """What a site holds when an episode begins, for drawing slots."""

    def __init__(self, site: str, seed: int) -> None:
        self.site, self.seed = site, seed
        self.db = original(site, seed)

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """All rows of a query."""
        return self.db.execute(sql, values).fetchall()

    def value(self, sql: str, *values: Any) -> Any:
        """The first column of the first row; None without a row."""
        row = self.db.execute(sql, values).fetchone()
        return row[0] if row else None

    def pick(self, rng: np.random.Generator, sql: str, *values: Any) -> sqlite3.Row | None:
        """One row of a query (which must have an order), None if it has none."""
        rows = self.rows(sql, *values)
        return rows[int(rng.integers(len(rows)))] if rows else None


class Template(ABC):
    """Tasks of one kind. Subclasses are listed in `oneiro_web.templates.registry`."""

    name: str
    """`site/what-is-asked`."""
    site: str
    intents: tuple[str, ...]
    """The intent with `{slot}`s, and other ways to say the same."""
    skills: tuple[str, ...]
    """What it takes: `search`, `filter`, `sort`, `page`, `read`, `count`, `compare`, `form`, `edit`, `delete`, ...
    Templates that share one are siblings.
    """
    start: str = ""
    """The path of the first page, perhaps with slots; the site's home if empty."""
    held_out: bool = False
    """Never trained on: one of the test-unseen templates."""

    @abstractmethod
    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        """Slots for one task, or None where this draw gives no task with a unique, non-empty answer."""

    def checks(self, slots: Slots) -> list[Check]:
        """What must hold at the end. All of them must; `changes` and `url` add theirs."""
        return []

    def changes(self, slots: Slots) -> dict[str, str | None]:
        """The tables that the task is meant to change, each with an SQL condition on the rows that may differ (None:
        any). `table(column, ...)` leaves the other columns as they are. A difference anywhere else fails the task.
        """
        return {}

    def url(self, slots: Slots) -> str | None:
        """The path (with query) where the task must end, for tasks that ask for a page."""
        return None

    def first_path(self, slots: Slots) -> str:
        """The path of the first page."""
        return (self.start or SITES[self.site].home).format_map(slots)

    @abstractmethod
    def script(self, see: View, slots: Slots) -> Script:
        """The oracle's actions, found on the pages."""

    def task(self, content: int, slots: Slots, wording: int = 0) -> Task:
        """One task, in WebArena's format with our part in it."""
        site = SITES[self.site]
        checks = (*self.checks(slots), DatabaseGuard(allow={self.site: self.changes(slots)}))
        path = self.url(slots)
        shown = {key: str(value) for key, value in slots.items() if f"{{{key}}}" in self.intents[wording]}
        spec = Spec(template_id=self.name, content=content, slots=slots, skills=self.skills, checks=checks)
        return Task(
            task_id=f"{self.name}:{content}:{level_key(repr(sorted(slots.items())))}",
            sites=(self.site,),
            intent=self.intents[wording].format(**slots),
            start_urls=(f"http://{site.host}{self.first_path(slots)}",),
            log_ins=(self.site,) if site.user else (),
            intent_template=self.intents[0],
            intent_template_id=self.name,
            instantiation_dict=shown,
            eval=path_check(f"http://{site.host}{path}") if path is not None else None,
            spec=spec,
        )

    def leaks(self, task: Task) -> bool:
        """Whether the first page already says the answer. Numbers, yes and no stand everywhere and do not count."""
        assert task.spec is not None
        answers = [check for check in task.spec.checks if isinstance(check, AnswerCheck)]
        telling = [check for check in answers if check.type in ("text", "names", "money", "date")]
        words = [word for check in telling for word in shown(check) if not (word.isdigit() and len(word) < 4)]
        if not words:
            return False
        page = first_page(self.site, self.first_path(task.spec.slots), task.spec.content)
        return all(re.search(rf"(?<!\w){re.escape(word.lower())}(?!\w)", page) for word in words)


@lru_cache(maxsize=512)
def first_page(site: str, path: str, content: int) -> str:
    """What the first page of an episode says, in lower case."""
    web = Web(content)
    cookies = web.sign_in(SITES[site])
    headers = {"cookie": "; ".join(f"{key}={value}" for key, value in cookies.items())}
    reply = web.request("GET", f"http://{SITES[site].host}{path or SITES[site].home}", headers)
    web.close()
    return html.unescape(re.sub(r"<[^>]+>", " ", reply.body.decode())).lower()


def shown(check: AnswerCheck) -> tuple[str, ...]:
    """The answer as pages write it."""
    value = check.expected
    if isinstance(value, tuple):
        return value
    if check.type == "money" and isinstance(value, int | float):
        return (f"${value:,.2f}",)
    return (str(value),)


def path_check(url: str) -> Evaluation:
    """The episode must end on this page. The order of its query and the empty fields of a form do not count."""
    return Evaluation(eval_types=("url_match",), reference_url=url, url_note="SAME PAGE")


def says(kind: str, expected: Any, tolerance: float = 0.0) -> AnswerCheck:
    """The answer is this value (`number`, `money` in units, `date`, `names`, `yes_no`, `text`, ...)."""
    return AnswerCheck.model_validate({"type": kind, "expected": expected, "tolerance": tolerance})


def counts(*numbers: int) -> AnswerCheck:
    """The answer lists these numbers in this order. A single small number is too easily guessed."""
    return AnswerCheck(type="names", expected=tuple(map(str, numbers)), ordered=True)


def holds(site: str, query: str, *rows: tuple[Any, ...]) -> DatabaseCheck:
    """The query gives exactly these rows at the end, in any order."""
    return DatabaseCheck(site=site, query=query, rows=rows)


def quoted(text: str) -> str:
    """A text as an SQL literal, for the queries of checks."""
    return "'" + text.replace("'", "''") + "'"


def one_of(rng: np.random.Generator, items: Sequence[Item]) -> Item:
    """One of them."""
    return items[int(rng.integers(len(items)))]
