"""Templates as rows of tables: what they draw, how they answer, and what they let change."""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oneiro_web.templates.base import Content
from oneiro_web.templates.table import Change, Question, ShowPage, add, literal, pick, split


@pytest.fixture
def content(monkeypatch: pytest.MonkeyPatch) -> Content:
    """Three towns with their places."""
    db = sqlite3.connect(":memory:")
    db.row_factory = sqlite3.Row
    db.executescript(
        "CREATE TABLE town (name TEXT, size INTEGER); CREATE TABLE place (town TEXT, name TEXT, stars INTEGER);"
        "INSERT INTO town VALUES ('Oak', 3), ('Elm', 5), ('Ash', 1);"
        "INSERT INTO place VALUES ('Oak', 'Inn', 4), ('Oak', 'Bar', 2), ('Elm', 'Mill', 3), ('Elm', 'Dam', 3)"
    )
    monkeypatch.setattr("oneiro_web.templates.base.original", lambda site, seed: db)
    return Content("map", 0)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def town(name: str) -> Any:
    return lambda content, rng: {"town": name}


def test_columns_of_a_drawn_row_are_slots_and_are_converted(content: Content) -> None:
    draw = pick(
        "SELECT town, group_concat(name) AS names FROM place WHERE town = 'Oak' GROUP BY town", names=split(",")
    )
    assert draw(content, rng()) == {"town": "Oak", "names": ["Bar", "Inn"]}
    assert pick("SELECT name FROM town WHERE size > 9")(content, rng()) is None


@pytest.mark.parametrize(("name", "best"), [("Oak", {"town": "Oak", "best": "Inn"}), ("Elm", None), ("Ash", None)])
def test_only_a_first_row_that_outranks_the_second_is_an_answer(
    content: Content, name: str, best: dict[str, str] | None
) -> None:
    """Elm's places have the same stars; Ash has no place."""
    sql = "SELECT name AS best, stars AS rank FROM place WHERE town = :town ORDER BY stars DESC"
    assert add(town(name), sql)(content, rng()) == best
    assert add(lambda content, rng: None, sql)(content, rng()) is None


def test_a_row_without_rank_needs_no_second_one(content: Content) -> None:
    draw = add(town("Ash"), "SELECT size FROM town WHERE name = :town", size=lambda size: 10 * size)
    assert draw(content, rng()) == {"town": "Ash", "size": 10}


@pytest.mark.parametrize(
    ("answer", "slots", "text", "expected"),
    [
        ("text name", {"name": "Inn"}, "Inn", ["Inn"]),
        ("counts times", {"times": [2, 5]}, "2, 5", [("2", "5")]),
        ("yes_no open, date day", {"open": False, "day": "2026-06-15"}, "No, 2026-06-15", [False, "2026-06-15"]),
        ("minutes gap", {"gap": 7}, "7 minutes", [420]),
        ("last tried", {"tried": ["Mill", "Dam"]}, "Dam", ["Dam"]),
    ],
)
def test_an_answer_is_written_and_checked_by_its_type(
    answer: str, slots: dict[str, Any], text: str, expected: list[Any]
) -> None:
    question = Question("map/x", "What?", skills="read", draw=town("Oak"), way=[], answer=answer)
    assert [check.expected for check in question.checks(slots)] == expected  # type: ignore[union-attr]
    see = SimpleNamespace(stop=lambda text: text)
    assert list(question.script(see, slots)) == [text]  # type: ignore[arg-type]


def test_values_in_sql_are_literals_whatever_they_hold() -> None:
    slots = {"title": "it's :user's", "user": "eve", "number": 7}
    sql = "project = :number AND title = :title AND day < '24:00'"
    assert literal(sql, slots) == "project = 7 AND title = 'it''s :user''s' AND day < '24:00'"
    assert literal("id IN (:ids)", {"ids": [4, 9]}) == "id IN (4, 9)"


def test_a_change_names_its_rows_and_what_else_may_differ() -> None:
    change = Change(
        "reddit/x",
        "Say {text}.",
        skills="write",
        draw=town("Oak"),
        way=[],
        rows={"SELECT body, votes FROM post WHERE id = :post": (":text", lambda slots: -slots["votes"])},
        changes={"post": "id = :post"},
    )
    slots = {"post": 4, "text": "Hello", "votes": 2}
    (check,) = change.checks(slots)
    assert (check.site, check.query, check.rows) == (  # type: ignore[union-attr]
        "reddit",
        "SELECT body, votes FROM post WHERE id = 4",
        (("Hello", -2),),
    )
    assert change.changes(slots) == {"post": "id = 4"} and change.site == "reddit"


def test_an_edited_row_may_differ_and_must_say_what_it_should() -> None:
    change = Change("shopping/x", "Do.", skills="edit", draw=town("Oak"), way=[], edits="product id")
    slots = {"id": 3, "row": {"name": "Mug", "price": 250}}
    (check,) = change.checks(slots)
    assert (check.query, check.rows) == (  # type: ignore[union-attr]
        "SELECT name, price FROM product WHERE id = 3",
        (("Mug", 250),),
    )
    assert change.changes(slots) == {"product(name, price, held_status, updated_at)": "id = 3"}
    own = Change("shopping/x", "Do.", skills="edit", draw=town("Oak"), way=[], edits="customer 1")
    assert own.changes(slots) == {"customer(name, price, held_status, updated_at)": "id = 1"}


def test_a_change_may_ask_for_an_answer_too() -> None:
    change = Change(
        "map/x", "Do.", skills="edit", draw=town("Oak"), way=[], answer="yes_no first", rows={"SELECT 1": (1,)}
    )
    answer, row = change.checks({"first": "no"})
    assert (answer.expected, row.rows) == ("no", ((1,),))  # type: ignore[union-attr]


def test_a_page_is_a_path_with_slots_or_a_function() -> None:
    row = {"skills": "navigate", "draw": town("Oak"), "way": []}
    assert ShowPage("map/x", "Go.", page="/place/{place}", **row).url({"place": 3}) == "/place/3"
    assert ShowPage("map/x", "Go.", page=lambda slots: f"/{slots['a'] + 1}", **row).url({"a": 1}) == "/2"
