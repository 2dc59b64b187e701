"""Figures, tables and verdicts of page predictors, on steps and answers made up by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oneiro.tasks.webpage.evaluation import FIGURES, difference, distinct, measure, tables
from oneiro.tasks.webpage.predictor import WebPagePredictor, WebPagePredictorConfig
from oneiro.tasks.webpage.rollout import chains, errors_by_depth, page_error
from oneiro.tasks.webpage.state import PageState, PageTransition, same_items, window_before
from oneiro.tasks.webpage.task import judge_answer, verdict
from oneiro_web.diff import Item
from tests.tasks.webpage.cases import state, step

TASK = WebPagePredictor(WebPagePredictorConfig(brief=True))
PAGE, OTHER = state("main ''", "link 'a'", "link 'b'"), state("main ''", "link 'a'", "link 'b'", "alert 'new'")


def cases() -> list[PageTransition]:
    """Two that change the page, and three that do nothing: an id that is not there, a text, something else."""
    return [
        step(PAGE, "click [2]", OTHER, id="new", episode="e1"),
        step(OTHER, "click [3]", PAGE, id="gone", episode="e2"),
        step(PAGE, "click [77]", PAGE, id="absent", episode="e1", probe=True),
        step(PAGE, "click [1]", PAGE, id="static", episode="e2", probe=True),
        step(PAGE, "click [3]", PAGE, id="other", episode="e3"),
        step(PAGE, "stop []", PAGE, id="stop", episode="e3"),
    ]


def right_on(*names: str) -> Any:
    return lambda case: TASK.target(case) if case.id in names else TASK.no_change(case)


def test_actions_that_fail_are_counted_by_why_and_changes_by_whether_any_is_predicted() -> None:
    def answers(case: PageTransition) -> str:
        return TASK.target(cases()[0]) if case.id in ("new", "static") else TASK.no_change(case)

    row = measure(TASK, cases(), answers)
    failed = {name: (cell["value"], cell["n"]) for name, cell in row["failed"].items()}
    assert failed == {
        "all": (pytest.approx(2 / 3), 3), "no such id": (1.0, 1), "static text": (0.0, 1), "other": (1.0, 1),
    }  # fmt: skip
    assert (row["kept"]["value"], row["kept"]["n"]) == (0.5, 2)
    assert row["paired"] == {"f1": [1.0, 0.0], "episodes": ["e1", "e2"]}
    assert (row["changed"]["f1"]["value"], row["changed"]["f1"]["n"]) == (0.5, 2) and row["all"]["f1"]["n"] == 6
    assert row["sites"]["reddit"]["changed"]["f1"]["value"] == 0.5 and row["seen"] == {}
    unread = measure(TASK, cases(), {"new": TASK.target(cases()[0])})
    assert unread["all"]["parsed"]["value"] == pytest.approx(1 / 6) and unread["failed"]["all"]["value"] == 0.0
    still = measure(TASK, cases()[2:], TASK.no_change)
    assert still["changed"] == {} == still["kept"] and still["all"]["f1"]["value"] == 1.0


def test_questions_count_once_and_stops_only_where_they_are_asked_about() -> None:
    twice = [*cases(), *cases()]
    assert [case.id for case in distinct(twice)] == ["new", "gone", "absent", "static", "other"]
    assert [case.id for case in distinct(twice, stops=True)][-1] == "stop"


def test_tables_have_a_cell_for_every_figure_that_was_measured() -> None:
    rows = {
        name: measure(TASK, cases(), right_on(*names), lambda case: case.id == "new")
        for name, names in (("half", ("new",)), ("all", ("new", "gone")))
    }
    rows["nothing"] = measure(TASK, cases()[2:], TASK.no_change, lambda case: False)
    depth = [{"depth": 2, "value": 0.25, "low": None, "high": None, "n": 1}]
    shown = [table.data() for table in tables(TASK, rows, {"half": depth})]
    changed, every, sites, seen, failed, deep = (table["rows"] for table in shown)
    assert [row["F1"]["value"] for row in changed[:2]] == [0.5, 1.0] and changed[2]["F1"] is None
    assert shown[0]["columns"] == ["answers", "precision", "recall", "F1", "id-free F1", "content"]
    assert len(shown[0]["columns"]) == len(FIGURES) + 1
    assert every[0]["F1"]["value"] == pytest.approx(5 / 6) and every[2]["F1"]["value"] == 1.0
    assert [row["reddit"] and row["reddit"]["value"] for row in sites] == [0.5, 1.0, None]
    assert [(row["seen"]["value"], row["new"]["value"]) for row in seen[:2]] == [(1.0, 0.0), (1.0, 1.0)]
    assert seen[2]["seen"] is None is seen[2]["new"]
    assert [row["changes predicted"] and row["changes predicted"]["value"] for row in failed] == [0.5, 1.0, None]
    assert [row["all"]["value"] for row in failed] == [1.0, 1.0, 1.0]
    assert [(row["steps"], row["half"]["value"]) for row in deep] == [("2", 0.25)]


def test_a_verdict_names_what_was_gained_and_every_row_that_must_be_beaten() -> None:
    before, after = (measure(TASK, cases(), right_on(*names)) for names in (("new",), ("new", "gone")))
    rows = {"lookup": before, "delete all": after, "SFT": before, "RLVR": after}
    first, second = verdict({"SFT": {"steps": before}, "RLVR": {"steps": after}}, rows)
    assert first.startswith("On 2 test steps that change the page, of unseen tasks, SFT has F1 50.0%")
    assert "RLVR 100.0%" in first and "The lookup among training steps has 50.0%" in first
    assert "less SFT +50.0%" in second and "less delete all +0.0%" in second and "less lookup +50.0%" in second
    still = {"steps": measure(TASK, cases()[2:], TASK.no_change)}
    assert verdict({"SFT": still, "RLVR": still}, rows) == []
    assert difference(after, before).value == 0.5


def test_an_answer_is_judged_with_all_that_a_page_about_it_shows() -> None:
    case = cases()[0]
    judged = judge_answer(TASK, case, TASK.target(case))
    assert judged.success and judged.reward.value == 1.0 and judged.task == "new" and judged.world == "web page reddit"
    assert judged.turn["state"] == "[1] main ''\n[2] link 'a'\n[3] link 'b'"
    assert judged.turn["actions"] == [{"action": "click [2]"}] and judged.turn["reward"] == 1.0
    assert judged.turn["reply"] == judged.turn["prediction"] == judged.turn["next_state"] == TASK.target(case)
    assert judged.parts == {"f1_changed": 1.0, "precision_changed": 1.0, "recall_changed": 1.0}
    bad = judge_answer(TASK, case, "\x00")
    assert not bad.success and bad.turn["prediction"] is None and bad.turn["reply"] == "\x00"


def test_a_step_that_changes_nothing_is_counted_by_its_f1_alone() -> None:
    still = replace(cases()[0], after=cases()[0].state, matched=tuple(range(len(cases()[0].state.items))))
    assert judge_answer(TASK, still, TASK.no_change(still)).parts == {"f1_unchanged": 1.0}


def test_unbroken_steps_of_an_episode_are_a_chain() -> None:
    one, two = step(PAGE, "click [2]", OTHER, episode="a"), step(OTHER, "click [3]", PAGE, episode="a")
    probe, stop = step(OTHER, "click [9]", OTHER, episode="a", probe=True), step(PAGE, "stop []", PAGE, episode="a")
    broken = [step(PAGE, "click [2]", OTHER, episode="b"), step(PAGE, "click [3]", PAGE, episode="b")]
    alone = step(PAGE, "click [2]", OTHER, episode="c")
    assert chains([one, probe, two, stop, *broken, alone]) == [[one, two], [alone]]
    assert chains([stop]) == []


def test_the_error_of_an_imagined_page_is_that_of_its_lines() -> None:
    assert page_error(TASK, PAGE, PAGE) == 0.0
    assert page_error(TASK, PAGE, OTHER) == pytest.approx(1 - 2 * 3 / 7)
    framed = state("banner 'x'", "main ''", "link 'a'", "link 'b'")
    short = WebPagePredictor(WebPagePredictorConfig(brief=True, lines=2))
    assert page_error(short, framed, state("main ''", "link 'a'", "link 'c'")) == 0.0  # two lines from main on
    one, two = step(PAGE, "click [2]", OTHER, episode="a"), step(OTHER, "click [3]", PAGE, episode="a")
    rows = errors_by_depth(TASK, lambda asked: [TASK.no_change(case) for case in asked], [[one, two], [one]], (1, 2))
    assert [(row["depth"], row["value"], row["n"]) for row in rows] == [(1, pytest.approx(1 / 7), 2), (2, 0.0, 1)]


def test_a_window_follows_an_element_below_it_and_stays_on_the_page() -> None:
    long = PageState(
        "u", tuple(Item(10 + place, "main ''" if place == 2 else f"link '{place}'") for place in range(20))
    )

    def top(number: int) -> int:
        return window_before(step(long, f"click [{number}]", long), 6).top

    # The page's own part begins at place 2; eight lines further down the window moves so that it is in the middle.
    assert [top(10 + place) for place in (0, 2, 7, 8, 12, 19)] == [2, 2, 2, 5, 9, 14]
    assert top(99) == 2 and long.item(12) == long.items[2] and long.item(9) is None is long.item(30)
    gaps = PageState("u", (Item(3, "a"), Item(7, "b")))
    assert gaps.item(7) == gaps.items[1] and gaps.item(4) is None and PageState("u", ()).item(1) is None


def test_of_another_document_only_the_frame_is_the_same() -> None:
    def page(url: str, *lines: tuple[int, str]) -> PageState:
        return PageState(url, tuple(Item(place + 1, line, depth) for place, (depth, line) in enumerate(lines)))

    foot = (0, "contentinfo ''")
    one = page("u/1", (0, "link 'home'"), (0, "main ''"), (1, "heading 'x'"), foot)
    two = page("u/2", (0, "link 'home'"), (0, "main ''"), (1, "heading 'x'"), (1, "link 'y'"), foot)
    assert (one.frame(), two.frame()) == ((2, 3), (2, 4)) and PAGE.frame() == (1, 1)
    assert page("u", (0, "link 'a'")).frame() == (0, 1)
    assert same_items(one, two, ()) == (0, 1, -1, -1, 3)
    assert same_items(one, page("u/1#top", *((0, "x"),)), [0]) == (0,)


def test_accuracy_is_the_mean_f1_of_changed_and_unchanged_steps() -> None:
    from oneiro.tasks.webpage.task import WebPageTask

    class Model:
        task = TASK

        def __call__(self, asked: list[PageTransition]) -> list[str]:
            return [right_on("new")(case) for case in asked]

    own: Any = WebPageTask.__new__(WebPageTask)
    own.predictor = TASK
    assert own.accuracy(Model(), cases(), "eval") == {"eval_f1_changed": 0.5, "eval_f1_unchanged": 1.0}
    assert own.accuracy(Model(), cases()[2:], "x") == {"x_f1_unchanged": 1.0}
