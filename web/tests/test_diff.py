"""Page diffs: what counts as new, deleted and updated, and that carrying a diff out gives the next page."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from oneiro_web.diff import Diff, Item, Items, apply, compare, diff, items_of, match
from oneiro_web.env import WebConfig, WebEnv
from oneiro_web.seeds import generator


def page(*lines: str, first: int = 1) -> Items:
    return tuple(Item(first + place, line) for place, line in enumerate(lines))


def written(change: Diff) -> tuple[list[str], list[str], list[str]]:
    return [str(i) for i in change.new], [str(i) for i in change.deleted], [str(i) for i in change.updated]


def test_a_vote_updates_the_button_and_the_count_and_an_alert_is_new() -> None:
    before = page("main ''", "heading 'Cats'", "button 'Upvote'", "StaticText '404'", "button 'Downvote'")
    after = page(
        "main ''", "alert ''", "heading 'Cats'", "button 'Retract upvote'", "StaticText '405'", "button 'Downvote'"
    )
    change = diff(before, after)
    assert written(change) == (["[2] alert ''"], [], ["[3] button 'Retract upvote'", "[4] StaticText '405'"])
    assert apply(before, change) == after


def test_lines_of_another_role_or_other_words_are_no_update() -> None:
    before = page("main ''", "heading 'All forums'", "link 'books'", "link 'space'", "contentinfo ''")
    after = page("main ''", "StaticText 'All forums'", "textbox 'Name'", "contentinfo ''")
    change = diff(before, after)
    assert written(change) == (
        ["[2] StaticText 'All forums'", "[3] textbox 'Name'"],
        ["[2] heading 'All forums'", "[3] link 'books'", "[4] link 'space'"],
        [],
    )


def test_properties_alone_are_an_update_and_equal_pages_have_no_diff() -> None:
    before = page("textbox 'Name' required: True", "textbox 'Title' focused: True required: True")
    after = page("textbox 'Name' focused: True required: True", "textbox 'Title' required: True")
    assert written(diff(before, after)) == ([], [], [f"[{i.id}] {i.line}" for i in after])
    assert not diff(before, before)


def test_the_browsers_identity_of_a_node_goes_before_its_text() -> None:
    before, after = page("StaticText 'a'", "StaticText 'b'"), page("StaticText 'b'", "StaticText 'c'")
    assert match(before, after) == [1, -1]
    assert match(before, after, ["one", "two"], ["one", "two"]) == [0, 1]
    assert match(before, after, ["one", "two"], ["two", "one"]) in ([1, -1], [-1, 0])  # order is kept


lines = st.lists(
    st.sampled_from(["main ''", "link 'a b'", "link 'a c'", "StaticText '1'", "StaticText '2'", "x"]), max_size=12
)


depths = st.lists(st.integers(0, 3), min_size=12, max_size=12)


@settings(max_examples=60, deadline=None)
@given(lines, lines, st.integers(1, 40), depths, depths)
def test_a_diff_carried_out_is_the_next_page(
    before: list[str], after: list[str], first: int, deep_before: list[int], deep_after: list[int]
) -> None:
    old, new = (
        tuple(item._replace(depth=depth) for item, depth in zip(page(*text, first=first), deep, strict=False))
        for text, deep in ((before, deep_before), (after, deep_after))
    )
    assert apply(old, diff(old, new), first) == new
    assert not diff(old, old)


def test_an_item_that_moves_deeper_is_no_change_that_an_answer_writes() -> None:
    before = page("main ''", "link 'a'")
    after = (before[0], before[1]._replace(depth=1))
    change = diff(before, after)
    assert not change and written(change) == ([], [], []) and apply(before, change) == after


def test_unrelated_pages_of_the_sites_are_read_back_from_their_diffs() -> None:
    pages: list[Items] = []
    for site in ("reddit", "gitlab", "map"):
        world = WebEnv(WebConfig(sites=(site,)))
        for seed in range(3):
            world.reset(seed=seed, options={"split": "train"})
            pages.append(items_of(world.page))
        world.close()
    for before in pages:
        for after in pages:
            assert apply(before, diff(before, after), after[0].id) == after


@settings(max_examples=60, deadline=None)
@given(
    lines,
    *(st.lists(st.builds(Item, st.integers(0, 10**9), st.sampled_from(["a", "link 'b'"])), max_size=6) for _ in "nud"),
)
def test_any_diff_can_be_carried_out(
    before: list[str], new: list[Item], deleted: list[Item], updated: list[Item]
) -> None:
    found = apply(page(*before), Diff(tuple(new), tuple(deleted), tuple(updated)))
    assert [item.id for item in found] == list(range(1, len(found) + 1))
    kept = len(before) - len({item.id for item in deleted} & set(range(1, len(before) + 1)))
    assert len(found) == kept + len({item.id for item in new})


def test_true_steps_on_every_site_are_read_back_from_their_diffs() -> None:
    for site in ("reddit", "gitlab", "map"):
        world = WebEnv(WebConfig(sites=(site,)))
        world.reset(seed=3, options={"split": "train"})
        rng = generator("diff", site)
        for _ in range(6):
            before = world.page
            world.step(world.oracle() or world.random_action(rng))
            change = diff(items_of(before), items_of(world.page), compare(before, world.page))
            assert apply(items_of(before), change) == items_of(world.page)
            if world.over:
                break
        world.close()


def test_enormous_pages_are_compared_in_bounded_time() -> None:
    began = time.process_time()
    old = page(*(f"link 'item {number}'" for number in range(20_000)))
    new = page(*(f"link 'item {number + number // 10_000}'" for number in range(20_000)))
    assert apply(old, diff(old, new)) == new
    assert time.process_time() - began < 20
