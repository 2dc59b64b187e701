"""The two scorers: the published edge cases, the strict rules, and hostile predictions within 50 ms."""

from __future__ import annotations

import time

import pytest

from oneiro.tasks.base import Flaw, Malformed
from oneiro.tasks.webpage import score
from oneiro.tasks.webpage.command import score_pair
from oneiro.tasks.webpage.parse import PagePrediction, parse, record
from oneiro.tasks.webpage.score import PageScore, judge, official_score, precision_recall_f1
from oneiro_web.diff import Diff, Item

A, B, C = "[1273] StaticText 'Vortex Running Shoes'", "[1272] button 'Search'", "[12] textbox 'q' focused: True"
TRUTH = f"New items:\n{A}\n{B}\n\nDeleted items:\nNone\n\nUpdated items:\n{C}"
NOTHING = "New items:\nNone\n\nDeleted items:\nNone\n\nUpdated items:\nNone"
EMPTY = "New items:\n\nDeleted items:\n\nUpdated items:\n"
END = "<|im_end|>"
BOLD = TRUTH.replace(" items:", " items:**").replace("New", "**New").replace("Del", "**Del").replace("Upd", "**Upd")
OTHER = "New items:\n[1] link 'x'\n\nDeleted items:\n[2] link 'y'\n\nUpdated items:\nNone".replace("\nNone", f"\n{C}")


@pytest.mark.parametrize(
    ("prediction", "truth", "score"),
    [
        (TRUTH, TRUTH, 1.0),
        (TRUTH + END, TRUTH, 0.75),
        (NOTHING, NOTHING, 1.0),
        (NOTHING + END, NOTHING, 2 / 3),
        ("", TRUTH, 0.0),
        ("", NOTHING, 0.0),
        (EMPTY, EMPTY, 0.0),
        (NOTHING, TRUTH, 2 / 7),
        ("New items: None\nDeleted items: None\nUpdated items: None", NOTHING, 0.0),
        (BOLD, TRUTH, 0.0),
        (TRUTH.replace("[", "- ["), TRUTH, 0.25),
        (TRUTH.replace(A, f"{A}\n{A}"), TRUTH, 1.0),
        (f"Updated items:\n{C}\n\nNew items:\n{B}\n{A}\n\nDeleted items:\nNone", TRUTH, 1.0),
        (f"{TRUTH}\nThis is all that changes.", TRUTH, 8 / 9),
        (f"I think.\nNew items: some\none\ntwo\nthree\n{TRUTH}", TRUTH, 8 / 11),
        (f"{OTHER}\n{TRUTH}", TRUTH, 0.8),
    ],
)  # fmt: skip
def test_the_published_edge_cases(prediction: str, truth: str, score: float) -> None:
    assert official_score(prediction, truth).f1 == pytest.approx(score)


def strict(prediction: str, truth: str = TRUTH) -> PageScore:
    found = score_pair(prediction, truth, "strict")
    assert isinstance(found, PageScore)
    return found


def test_the_strict_scorer_cuts_thinking_and_counts_no_none() -> None:
    assert strict(TRUTH).f1 == 1.0
    assert strict(f"New items:\nmaybe\n</think>{TRUTH}").f1 == 1.0
    assert strict(f"{OTHER}\n{TRUTH}").f1 == 1.0  # the last answer counts
    assert strict(NOTHING, NOTHING).f1 == strict(EMPTY, NOTHING).f1 == 1.0
    assert strict(NOTHING).f1 == strict(TRUTH, NOTHING).f1 == 0.0


def test_precision_recall_and_f1_by_hand() -> None:
    found = strict(f"New items:\n{A}\n[9] link 'z'\n\nDeleted items:\nNone\n\nUpdated items:\n{C}\nand so on")
    assert (found.precision, found.recall) == (2 / 4, 2 / 3)
    assert found.f1 == pytest.approx(2 * (1 / 2) * (2 / 3) / (1 / 2 + 2 / 3))
    assert precision_recall_f1(0, 0, 0) == (1.0, 1.0, 1.0) and precision_recall_f1(0, 3, 0) == (0.0, 0.0, 0.0)


def test_ids_count_except_in_the_id_free_figure_where_repeats_count() -> None:
    shifted = TRUTH.replace("[1273]", "[7]")
    assert strict(shifted).f1 == pytest.approx(2 / 3) and strict(shifted).id_free_f1 == 1.0
    twice = f"New items:\n{A}\n[5] StaticText 'Vortex Running Shoes'\n\nDeleted items:\nNone\n\nUpdated items:\n{C}"
    assert strict(twice).id_free_f1 == pytest.approx(2 / 3)
    moved = f"New items:\n{B}\n\nDeleted items:\n{A}\n\nUpdated items:\n{C}"
    assert strict(moved).f1 == strict(moved).id_free_f1 == pytest.approx(2 / 3)  # the block counts


def test_the_order_of_properties_does_not_count_and_their_values_do() -> None:
    one, two = (record(Item(1, f"textbox 'a: b' {rest}")) for rest in ("x: 1 y: two words", "y: two words x: 1"))
    assert one == two and ("y", "two words") in one.properties and one.name == "'a: b'"
    assert record(Item(1, "textbox 'a' x: 2")) != record(Item(1, "textbox 'a' x: 1"))
    assert record(Item(1, 'link "it\'s"')).name == '"it\'s"'


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("", Flaw.EMPTY),
        ("the page reloads", Flaw.SHAPE),
        (f"New items:\n{A}", Flaw.SHAPE),
        (f"{TRUTH}\nDeleted items:\nNone", Flaw.CONFLICT),
        ("New items: None\n\nDeleted items: None\n\nUpdated items: None", Flaw.SHAPE),
    ],
)
def test_what_cannot_be_read_is_a_typed_flaw(text: str, flaw: Flaw) -> None:
    found = parse(text)
    assert isinstance(found, Malformed) and found.flaw is flaw and strict(text).f1 == 0.0


def test_a_deleted_item_may_be_its_id_where_the_page_is_known() -> None:
    text, item = "New items:\nNone\n\nDeleted items:\n[4]\n[5]\n\nUpdated items:\n[4]", Item(4, "link 'a'")
    found = parse(text, {4: item})
    assert isinstance(found, PagePrediction) and found.change.deleted == (item,) and found.false == (0, 1, 1)
    bare = parse(text)
    assert isinstance(bare, PagePrediction) and bare.false == (0, 2, 1)


HOSTILE = {
    "10 MB of a letter": "a" * 10_000_000,
    "10 MB of headings": "New items:\n" * 1_000_000,
    "10 MB of thinking": "</think>" * 1_250_000,
    "100,000 lines": "New items:\n" + "[1] link 'a'\n" * 100_000,
    "distinct lines": "New items:\n" + "\n".join(f"[{n}] link '{n}'" for n in range(100_000)),
    "brackets": "New items:\n" + "[" * 200_000,
    "quotes": "New items:\n[1] link '" + "\\'" * 100_000 + "\n\nDeleted items:\n\nUpdated items:\n",
    "properties": "New items:\n[1] link 'a'" + " a: b" * 40_000 + "\n\nDeleted items:\n\nUpdated items:\n",
    "spaces": "New items:\n[1] link 'a'" + " " * 200_000 + "\n\nDeleted items:\n\nUpdated items:\n",
    "words": "New items:\n[1] link 'a' x: " + "w " * 100_000 + "\n\nDeleted items:\n\nUpdated items:\n",
    "surrogates": "\ud800" * 200_000,
    "NULs": "New items:\n\x00\nDeleted items:\n\x00\nUpdated items:\n\x00",
    "huge id": "New items:\n[" + "9" * 100_000 + "] link 'a'\n\nDeleted items:\n\nUpdated items:\n",
    "other digits": "New items:\n[١٢] link 'a'\n\nDeleted items:\n\nUpdated items:\n",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("scorer", ["strict", "official"])
def test_hostile_predictions_score_nothing_in_time(name: str, scorer: str) -> None:
    began = time.process_time()  # of this process alone: a busy machine changes nothing
    found = score_pair(HOSTILE[name], TRUTH, "strict" if scorer == "strict" else "official")
    assert isinstance(found, PageScore) and found.f1 == 0.0
    assert time.process_time() - began < 2


def test_every_false_line_costs_precision_with_and_without_ids() -> None:
    """Two true items: one is right but for its id, one line is no item. Claimed 2, true 2."""
    truth = Diff(new=(Item(4, "link 'a'"), Item(5, "link 'b'")))
    predicted = PagePrediction(Diff(new=(Item(9, "link 'a'"),)), false=(1, 0, 0))
    found = judge(predicted, truth)
    assert found.f1 == 0 and found.id_free_f1 == pytest.approx(2 * 0.5 * 0.5 / (0.5 + 0.5))
    found = judge(PagePrediction(Diff(new=(Item(4, "link 'a'"),)), false=(0, 2, 1)), truth)
    assert (found.precision, found.recall) == (1 / 4, 1 / 2)
    assert found.f1 == found.id_free_f1 == pytest.approx(2 * 0.25 * 0.5 / 0.75)


def test_an_item_is_read_once_for_both_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer may have 4,096 lines, and the reading is most of its cost."""
    lines: list[str] = []
    monkeypatch.setattr(score, "record", lambda item: (lines.append(item.line), record(item))[1])
    claimed = tuple(Item(n, f"link '{n}' focused: True") for n in range(50))
    judge(PagePrediction(Diff(claimed, claimed[:5], claimed[:7])), Diff(new=claimed[:3]))
    assert len(lines) == 50 + 5 + 7 + 3
