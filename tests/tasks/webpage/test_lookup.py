"""Training steps as a page predictor, by hand."""

from __future__ import annotations

import pytest

from oneiro.tasks.webpage.lookup import keys, page_type, transplant
from oneiro.tasks.webpage.state import PageState
from oneiro_web.diff import Diff, Item
from tests.tasks.webpage.cases import state, step


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://shop.test/", "shop.test//2/"),
        ("http://shop.test/teapots/red.html?page=2#top", "shop.test/teapots/3/"),
        ("http://shop.test/teapots?next=/a/b/c", "shop.test/teapots/2/"),
        ("http://shop.test/teapots#a/b/c", "shop.test/teapots/2/"),
        ("http://forum.test/f/books/123456-why-read", "forum.test/f/4/0-why-read"),
        ("http://forum.test/f/books/78-what-nobody-reads?sort=new", "forum.test/f/4/0-what-nobod"),
    ],
)
def test_pages_of_one_type_have_one_address_without_numbers_and_queries(url: str, expected: str) -> None:
    assert page_type(PageState(url, ())) == expected


def test_a_change_of_one_page_is_made_where_another_has_the_same_lines() -> None:
    there = [Item(3, "link 'a'"), Item(4, "link 'b'"), Item(5, "link 'b'"), Item(6, "text 'c'")]
    here = [Item(10, "link 'b'"), Item(11, "text 'c'", 1), Item(12, "link 'b'")]
    change = Diff(
        new=(Item(1, "link 'n'"), Item(7, "link 'm'")),
        deleted=(Item(4, "link 'b'"), Item(3, "link 'a'"), Item(5, "link 'b'")),
        updated=(Item(6, "text 'd'"),),
    )
    found = transplant(change, there, here)
    # Ids begin seven later here; the first free line of a text is taken, and what is not here stays out.
    assert found.new == (Item(8, "link 'n'"), Item(14, "link 'm'"))
    assert found.deleted == (here[0], here[2])
    assert found.updated == (Item(11, "text 'd'", 1),)
    # An empty page begins with 1, and no id is below that.
    for here in ([], [Item(1, "x")]):
        assert [item.id for item in transplant(change, there, here).new] == [1, 5]
    assert [item.id for item in transplant(change, [], [Item(9, "x")]).new] == [9, 15]


def test_a_step_is_looked_for_by_what_is_done_and_to_what() -> None:
    page = state("link 'a'", "textbox 'b'")
    clicked, typed, unread = (keys(step(page, action, page), 9) for action in ("click [1]", "type [2] [x] [1]", "fly"))
    assert clicked[2:] == [
        ("reddit", "click", "link 'a'"), ("reddit", page_type(page), "click", "link"), ("reddit", "click", "link"),
        ("click", "link"), ("click",),
    ]  # fmt: skip
    assert (typed[-2:], unread[-2:]) == ([("type", "textbox"), ("type",)], [("malformed", "absent"), ("malformed",)])
