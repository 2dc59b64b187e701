"""Episodes for reading: what differs from the truth is marked, nothing a model writes can hurt."""

from __future__ import annotations

import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from oneiro.recipe import Recipe
from oneiro.report.episodes import (
    MAX_CHARACTERS,
    MAX_EPISODES,
    MAX_PICTURE,
    MAX_PICTURES,
    MAX_TURNS,
    Span,
    compare,
    sample,
    show,
)
from oneiro.rundir.run import Run


def test_grids_of_one_shape_are_compared_cell_by_cell() -> None:
    assert compare("_P\nG_", "__\nGP") == [Span("_"), Span("P", True), Span("\nG"), Span("_", True)]
    assert compare("same", "same") == [Span("same")]


def test_texts_of_another_shape_are_aligned_word_by_word() -> None:
    assert compare("the box is red", "the big box is blue") == [
        Span("the"),
        Span("␣", True),
        Span(" box is "),
        Span("red", True),
    ]


@settings(deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_a_text_is_marked_exactly_when_it_differs(shown: str, truth: str) -> None:
    spans = compare(shown, truth)
    assert any(span.differs for span in spans) == (shown != truth)
    assert compare(truth, truth) in ([], [Span(truth)])


def test_long_hostile_texts_are_compared_in_no_time() -> None:
    started = time.process_time()
    compare("a b " * 20_000, "b a " * 20_001)
    compare("ab" * 2000, "ba" * 2001)
    assert time.process_time() - started < 10


def test_panels_stand_in_order_and_say_whether_they_are_exact() -> None:
    turn = {
        "state": "P_G",
        "observation": "P_G",
        "prediction": "__P",
        "next_state": "_PG",
        "reply": "go",
        "actions": ["Right"],
    }
    (turn_shown,) = show({"turns": [turn]}).turns
    assert [(panel.title, panel.verdict) for panel in turn_shown.panels] == [
        ("State", ""),
        ("Seen by the agent", "exact"),
        ("Predicted by the agent", "differs"),
        ("Next state", ""),
    ]


def test_an_agent_without_inner_pictures_gets_no_panels_for_them() -> None:
    turn = {"state": "P_G", "observation": None, "prediction": None, "next_state": "_PG"}
    assert [panel.title for panel in show({"turns": [turn]}).turns[0].panels] == ["State", "Next state"]


def test_reward_terms_are_summed_over_turns() -> None:
    assert show({"terms": {"format": [-0.5, -0.25], "goal": 1}}).terms == {"format": -0.75, "goal": 1.0}


def test_endless_episodes_are_cut_to_a_readable_size() -> None:
    shown = show({"turns": [{"state": "x" * 10_000, "reply": "y" * 10_000}] * 100})
    assert (len(shown.turns), shown.hidden_turns) == (MAX_TURNS, 100 - MAX_TURNS)
    assert len(shown.turns[0].reply) < MAX_CHARACTERS + 30 and "6,000 more" in shown.turns[0].reply


def test_the_sample_has_first_middle_and_last_step_and_both_outcomes(tmp_path: Path) -> None:
    with Run.open(tmp_path, Recipe(system="toy")) as run:
        for step in range(1, 10):
            run.episodes("rl", step, [{"task": str(task), "success": task % 10 == 0} for task in range(40)])
    found = sample(tmp_path, [])
    assert sorted({episode.step for episode in found}) == [1, 5, 9]
    first = [episode for episode in found if episode.step == 1]
    assert [episode.task for episode in first] == ["0", "10", "20", "1", "2", "3"]
    assert [episode.success for episode in first] == [True] * 3 + [False] * 3


def test_a_run_of_many_stages_is_sampled_evenly(tmp_path: Path) -> None:
    with Run.open(tmp_path, Recipe(system="toy")) as run:
        for stage in range(20):
            run.episodes(f"stage{stage}", 1, [{"task": str(task)} for task in range(9)])
    found = sample(tmp_path, ["stage3", "stage17"])
    assert [episode.stage for episode in found[:6:3]] == ["stage17", "stage3"]
    assert len(found) == MAX_EPISODES
    assert len({episode.stage for episode in found}) == 20


def test_pictures_are_shown_within_bounds_and_nothing_else_in_their_place(tmp_path: Path) -> None:
    hostile = ["x' onerror='1", "a" * (MAX_PICTURE + 1), None, "=="]
    shown = show({"turns": [{"picture": one} for one in ["QUJD", *hostile]]})
    assert [turn.picture for turn in shown.turns] == ["QUJD", "", "", "", ""]
    with Run.open(tmp_path, Recipe(system="toy")) as run:
        run.episodes("rl", 1, [{"turns": [{"picture": "QUJD"}] * MAX_TURNS, "success": n % 2 == 0} for n in range(6)])
    pictures = [bool(turn.picture) for one in sample(tmp_path, ["rl"]) for turn in one.turns]
    assert len(pictures) == 6 * MAX_TURNS
    assert pictures == [True] * MAX_PICTURES + [False] * (6 * MAX_TURNS - MAX_PICTURES)
