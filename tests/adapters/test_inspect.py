"""The door to Inspect AI, with the library itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oneiro.rundir.records import read_lines


@pytest.mark.thorough
def test_inspect_reads_the_episodes_of_a_stage(
    with_library: Callable[..., Any], finished: Callable[[str, str], Path]
) -> None:
    run = finished("spa/frozen-lake", "smoke")
    result = json.loads(with_library("inspect-ai")("inspect_reads.py", run).split("RESULT ")[1])
    episodes = [row for file in (run / "episodes").glob("evaluate-spa-*") for row in read_lines(file)]
    assert result["status"] == "success" and result["task"] == "oneiro/frozen-lake"
    rows = {(row["task"], row["epoch"]): row for row in result["rows"]}
    assert len(rows) == len(episodes) > 0
    for episode in episodes:
        row = rows[episode["task"], episode["member"] + 1]
        assert (row["success"], row["return"]) == (float(episode["success"]), pytest.approx(episode["score"]))
        assert row["replies"] == [turn["reply"] for turn in episode["turns"]]
    assert result["means"]["success"] == pytest.approx(np.mean([episode["success"] for episode in episodes]))
    code, error = result["several"]
    assert code == 2 and "choose one with --stage NAME" in error and error.count("\n") == 1
