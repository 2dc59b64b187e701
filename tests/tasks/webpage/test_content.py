"""Steps that a page's content decides, and the reward that pays nothing for deleting everything: worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from oneiro.tasks.webpage.data import PageContent, decided_by_content, numbers_in, site_names
from oneiro.tasks.webpage.predictor import WebPagePredictor, WebPagePredictorConfig
from oneiro.tasks.webpage.record import TRIED, recorded_web, tinkering
from oneiro.tasks.webpage.state import PageState, PageTransition
from tests.tasks.webpage.cases import state, step

TASK = WebPagePredictor(WebPagePredictorConfig(brief=True, reward="content"))
SITE = frozenset({"", "Upvote", "Delete", "Sort", "Your cart"})
BEFORE = state("main ''", "heading 'Your cart'", "StaticText '12'", "button 'Delete'", "StaticText '30'")
CART = "http://shop.com/cart"


def answer(new: str = "None", deleted: str = "None", updated: str = "None") -> str:
    return f"New items:\n{new}\n\nDeleted items:\n{deleted}\n\nUpdated items:\n{updated}"


def earns(text: str, case: PageTransition) -> float:
    return TASK.reward(text, case).value


LEFT = PageTransition(
    "shop", "", BEFORE, "click [4]", after=state("main ''", "StaticText 'Bye'", url=CART), matched=(-1, -1)
)
"""Another page: all five lines go, two come."""


def test_deleting_everything_pays_more_than_half_under_f1_and_nothing_under_content() -> None:
    everything = TASK.delete_all(LEFT)
    assert TASK.judge(everything, LEFT).f1 == pytest.approx(2 * (5 / 5) * (5 / 7) / (5 / 5 + 5 / 7))  # 5 of 7 items
    assert earns(everything, LEFT) == 0.0 == earns(TASK.no_change(LEFT), LEFT)
    assert earns(TASK.target(LEFT), LEFT) == 1.0


def test_content_is_the_f1_of_what_comes_times_how_well_deletions_are_told_by_hand() -> None:
    gone = "\n".join(map(str, BEFORE.items))
    half = answer("[1] main ''\n[2] StaticText 'Hello'", gone)
    assert earns(half, LEFT) == pytest.approx(0.5)  # one of two new lines right
    missed = answer("[1] main ''\n[2] StaticText 'Bye'", "\n".join(map(str, BEFORE.items[:3])))
    assert earns(missed, LEFT) == pytest.approx(3 / 5)
    prose = answer("[1] main ''\n[2] StaticText 'Bye'\nand so on", gone)
    assert earns(prose, LEFT) == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))


def test_a_deleted_row_must_be_told_from_the_rows_that_stay() -> None:
    case = step(BEFORE, "click [4]", state("main ''", "heading 'Your cart'", "StaticText '30'"))
    lines = [str(item) for item in BEFORE.items]
    assert [item.id for item in TASK.truth(case).deleted] == [3, 4]
    assert earns(TASK.target(case), case) == 1.0
    assert earns(TASK.delete_all(case), case) == 0.0 == earns(TASK.no_change(case), case)
    assert earns(answer(deleted=lines[2]), case) == pytest.approx(1 / 2)
    assert earns(answer(deleted="\n".join(lines[1:4])), case) == pytest.approx(2 / 2 - 1 / 3)  # one of three kept lines
    assert earns(answer(deleted=f"{lines[2]}\n{lines[3]}\nno item"), case) == pytest.approx(1 - 1 / 3)


def test_on_a_page_that_does_not_change_only_no_change_is_paid() -> None:
    still = step(BEFORE, "click [2]", BEFORE)
    assert earns(TASK.no_change(still), still) == 1.0
    assert earns(TASK.delete_all(still), still) == 0.0 == earns("no answer", still)
    assert earns(answer(deleted=str(BEFORE.items[4])), still) == pytest.approx(1 - 1 / 5)
    assert earns(answer(new="[9] link 'x'"), still) == 0.0


def changed(*lines: str, action: str = "click [4]", url: str = "http://reddit.com/") -> bool:
    return decided_by_content(step(BEFORE, action, state(*lines, url=url)), 0, SITE)


def test_content_decides_where_what_changes_is_a_copy_a_permutation_or_a_sum() -> None:
    head = ("main ''", "heading 'Your cart'")
    assert changed(*head, "StaticText '13'", "button 'Delete'", "StaticText '30'")  # a counter: 12 + 1
    assert changed(*head, "StaticText '42'", "button 'Delete'", "StaticText '30'")  # a total: 12 + 30
    assert changed(*head, "StaticText '360'", "button 'Delete'", "StaticText '30'")  # a product: 12 * 30
    assert changed(*head, "StaticText '30'", "button 'Delete'", "StaticText '12'", url="http://reddit.com/?sort=low")
    assert changed(*head, "StaticText '30'")  # a row goes
    typed = ("StaticText '12'", "StaticText 'a mug'", "button 'Delete'", "StaticText '30'")
    assert changed(*head, *typed, action="type [4] [a mug] [0]")


def test_content_does_not_decide_what_the_page_cannot_tell() -> None:
    head = ("main ''", "heading 'Your cart'")
    assert not changed(*head, "StaticText '57'", "button 'Delete'", "StaticText '30'")  # follows from nothing shown
    assert not changed(*head, "StaticText '12'", "button 'Upvote'", "StaticText '30'")  # the site's own words
    assert not changed(*head, "StaticText '13'", "button 'Delete'", "StaticText '30'", url=CART)  # another page
    assert not changed(*head, "StaticText '12'", "button 'Delete'", "StaticText '30'", "StaticText 'fresh news'")
    assert not changed(*head, "StaticText '13'", action="stop []")


def test_numbers_are_read_and_names_are_quoted() -> None:
    assert numbers_in("$1,204.50 for 3") == [1204.5, 3.0]
    shown = PageContent(["Blue Mug", "$4.10", "$2.05", "4 votes"], SITE)
    assert shown.tells("You added Blue Mug to your cart.") and shown.tells("$6.15") and shown.tells("5 votes")
    assert PageContent(["Bob"], SITE).tells("Bob") and not PageContent(["Bob"], SITE).tells(
        "Bobby"
    )  # too short to be quoted
    assert not shown.tells("6 votes total") and not shown.tells("7 votes") and not shown.tells("Red Mug")


def test_a_name_belongs_to_the_site_where_three_contents_have_it() -> None:
    def page(name: str, content: int) -> PageTransition:
        same: PageState = state("link 'Home'", f"link '{name}'")
        return step(same, "click [1]", same, content=content)

    steps = [page("Ann", 1), page("Ann", 1), page("Ann", 2), page("Bob", 3)]
    assert site_names(steps) == {"Home"}


def test_tinkering_acts_on_controls_of_the_pages_own_part() -> None:
    world = recorded_web("web:gitlab")
    world.reset(seed=0, options={"split": "train"})
    rng, policy = np.random.default_rng(0), tinkering(0.0)
    above, below = PageState.of(world.page).frame()
    inside = range(above + 1, below + 1)
    actions = [policy(world, rng) for _ in range(60)]
    ids = [int(action.split("[")[1].split("]")[0]) for action in actions]
    roles = [world.page.nodes[number].role for number in ids]
    world.close()
    assert set(ids) <= set(inside) and len(set(ids)) > 5
    # Each kind of control equally often, however many there are of it; only what takes a text is typed into.
    kinds = {node.role for node in list(world.page.nodes.values())[above:below]} & set(TRIED)
    assert len(kinds) > 2 and all(abs(roles.count(kind) - 60 / len(kinds)) < 12 for kind in kinds)
    typed = [role in ("textbox", "searchbox") for role in roles]
    assert typed == [action.startswith("type [") for action in actions]
    texts = [action.split("[")[2].split("]")[0] for action in actions if action.startswith("type [")]
    assert 0 < sum(text.isdigit() for text in texts) < len(texts) and all(text.isalnum() for text in texts)
