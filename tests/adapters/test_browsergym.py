"""The door to BrowserGym, with the library itself and Chromium."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.thorough
def test_browsergym_acts_on_our_sites_and_our_graders_pay(with_library: Callable[..., Any]) -> None:
    if shutil.which("chromium") is None:
        pytest.skip("needs Chromium")
    result = json.loads(with_library("browsergym-core")("browsergym_acts.py").split("RESULT ")[1])
    assert "browsergym/oneiro" in result["names"] and "browsergym/oneiro.reddit" in result["names"]
    right, wrong, moved = result["right"], result["wrong"], result["moved"]
    assert right["goal"] == right["intent"] and right["title"] == "One Stop Market"
    assert [(step["reward"], step["done"]) for step in right["steps"]] == [(0, False), (1, True)]
    assert [(step["reward"], step["done"]) for step in wrong["steps"]] == [(0, True)]
    assert [step["title"].split(" ")[0] for step in moved["steps"]] == ["Search", "Submit", "Blocked"]
    assert not any(step["error"] for step in moved["steps"])
    # Signed in by a cookie; a form that is posted and redirected signs out.
    assert "Log out" in result["left"]["before"] and "Log out" not in result["left"]["after"], result["left"]
