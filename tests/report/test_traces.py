"""The viewer of decisions: what was predicted beside what came, hostile text kept as text, damage told in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oneiro.report import episodes as traces
from oneiro.report import page
from oneiro.runtime.errors import OneiroError
from tests.report.test_page import HOSTILE, make_run, outline

TURN = {
    "state": "P _ G",
    "candidates": [
        {"action": "Right", "predicted": "_ P G", "value": 0.9},
        {"action": "Left", "predicted": None, "value": -0.95},
    ],
    "choice": "Right",
    "plan": ["Right", "Right"],
    "tokens": 12,
    "ended": "goal",
    "next_state": "_ P O",
}
TRACE = {"label": "search", "world": "lake", "task": "a1", "seed": 0, "success": True, "turns": [TURN]}


def test_predictions_are_marked_against_the_state_and_the_truth_against_the_prediction() -> None:
    decision = traces.show_trace(TRACE).decisions[0]
    right, left = decision.candidates
    assert [(span.text, span.differs) for span in right.predicted or ()] == [
        ("_", True),
        (" ", False),
        ("P", True),
        (" G", False),
    ]
    assert right.chosen and not left.chosen and left.predicted is None
    assert [(span.text, span.differs) for span in decision.truth] == [("_ P ", False), ("O", True)]
    assert decision.verdict == "not as predicted"
    exact = traces.show_trace({**TRACE, "turns": [{**TURN, "next_state": "_ P G"}]}).decisions[0]
    assert exact.verdict == "as predicted" and not any(span.differs for span in exact.truth)
    unread = traces.show_trace({**TRACE, "turns": [{**TURN, "choice": "Left"}]}).decisions[0]
    assert unread.verdict == "" and unread.truth[0].text == "_ P O"


def test_hostile_text_stays_text_and_long_traces_are_cut(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", word="plain")
    candidates = [{"action": HOSTILE, "predicted": HOSTILE, "value": 0.5}] * 30
    turn = {
        **TURN,
        "state": HOSTILE,
        "candidates": candidates,
        "choice": HOSTILE,
        "plan": [HOSTILE],
        "next_state": "x" * 10**5,
    }
    (run / "traces.json").write_text(json.dumps({"traces": [{**TRACE, "label": HOSTILE, "turns": [turn] * 60}] * 3}))
    before = outline(page.render(page.one(page.find(make_run(tmp_path / "plain", word="plain")))))
    text = page.render(page.one(page.find(run)))
    found = outline(text)
    assert found.tags.count("script") == before.tags.count("script") and "img" not in found.tags[len(before.tags) :]
    assert "<script>alert" not in text and "49" not in traces.show_trace(TRACE).label
    assert "18 more candidates" in text and "20 more decisions" in text
    assert len(text) < 8_000_000


@pytest.mark.parametrize("text", ["[]", '{"traces": [{}]}', '{"traces": [{"turns": [{"state": 1}]}]}', '{"traces": 3}'])
def test_a_damaged_file_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "traces.json").write_text(text)
    with pytest.raises(OneiroError, match=r"traces\.json"):
        traces.read_traces(tmp_path)
    assert traces.read_traces(tmp_path / "nowhere") == []
