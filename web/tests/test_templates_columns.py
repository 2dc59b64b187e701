"""Tasks that change the database: a value that the task did not ask for fails it, in whatever column it stands."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

import pytest

from oneiro_web.actions import Kind
from oneiro_web.env import WebEnv
from oneiro_web.grading import evaluate
from oneiro_web.sites import SITES
from oneiro_web.tasks import Task
from oneiro_web.templates.registry import TEMPLATES
from oneiro_web.templates.table import Change
from oneiro_web.validate import drawn_task

CHANGES = [name for name, template in TEMPLATES.items() if isinstance(template, Change)]
WRITTEN_BY_SITES = re.compile(
    r"(.*\.)?(id|rowid|created|created_at|updated|updated_at|added_at|since|joined|edited|sha|iid|slug|position|hot"
    r"|held_status|number)|order_item\.(sku|name|price)|sales_order\.(customer_name|customer_email|discount|shipping"
    r"|total)|order_comment\.(status|notified|text)|wishlist_item\.comment|address\.country|todo\.(action|state)"
    r"|(forum|post|comment)\.(subscribers|submissions|upvotes|downvotes|score|comments)"
    r"|project\.(stars|forks|forked_from|language|branch)|(revision|file|branch)\..*|product\.category_id"
)
"""Columns that no form has (ids, times, what a site works out from others), and a category, which a form demands."""


@pytest.fixture(scope="module")
def world() -> Iterator[WebEnv]:
    world = WebEnv()
    yield world
    world.close()


def solved(world: WebEnv, name: str) -> tuple[Task, str]:
    """A task as its script leaves it before the end, and the answer."""
    task = drawn_task(TEMPLATES[name], 0, 0)
    world.reset(seed=0, options={"task": task})
    assert task.spec is not None
    for action in TEMPLATES[name].script(world.see, task.spec.slots):
        if action.kind is Kind.STOP:
            return task, action.text
        world.step(world.grammar.write(action))
    raise AssertionError("a script without an end")


def score(world: WebEnv, task: Task, answer: str) -> float:
    assert world.session is not None
    return evaluate(task, world.session, answer, web=world.web).score


def blind_columns(world: WebEnv, name: str) -> list[str]:
    """The columns of the rows that may change in which another value goes unnoticed."""
    task, answer = solved(world, name)
    assert score(world, task, answer) == 1 and world.web is not None and task.spec is not None
    db = world.web.database(SITES[TEMPLATES[name].site])
    blind = []
    for written, rule in TEMPLATES[name].changes(task.spec.slots).items():
        table = written.partition("(")[0]
        for column, kind in [(row[1], row[2]) for row in db.execute(f"PRAGMA table_info({table})")]:
            value = f"coalesce({column}, 0) + 1" if kind == "INTEGER" else f"{column} || '1'"
            db.execute("SAVEPOINT before")
            try:
                rows = db.execute(f"UPDATE {table} SET {column} = {value} WHERE {rule or 1}").rowcount
            except sqlite3.IntegrityError:
                rows = 0
            if rows and score(world, task, answer) == 1:
                blind.append(f"{table}.{column}")
            db.execute("ROLLBACK TO before")
            db.execute("RELEASE before")
    return [column for column in blind if not WRITTEN_BY_SITES.fullmatch(column)]


NAMED = ("gitlab/star", "gitlab/status", "shopping/checkout", "shopping_admin/create-product", "reddit/vote")
"""The others are for the thorough run."""


@pytest.mark.parametrize(
    "name", [one if one in NAMED else pytest.param(one, marks=pytest.mark.thorough) for one in CHANGES]
)
def test_no_column_is_beyond_the_grader(world: WebEnv, name: str) -> None:
    assert not blind_columns(world, name)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("gitlab/star", "UPDATE project SET visibility = 'private' WHERE id = {number}"),
        ("gitlab/star", "DELETE FROM project WHERE id = {number}"),
        ("gitlab/status", "UPDATE user SET password = 'x' WHERE status = '{text}'"),
        ("shopping/checkout", "UPDATE sales_order SET ship_city = 'Elsewhere' WHERE id > {last}"),
        ("shopping_admin/create-product", "UPDATE product SET brand = 'Other' WHERE id > {last}"),
    ],
)
def test_a_solved_task_fails_by_a_value_beside(world: WebEnv, name: str, change: str) -> None:
    task, answer = solved(world, name)
    assert world.web is not None and task.spec is not None
    assert score(world, task, answer) == 1
    world.web.database(SITES[TEMPLATES[name].site]).execute(change.format(**task.spec.slots))
    assert score(world, task, answer) == 0
