"""Each row of the README that has a model becomes a repository by one command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from tools.checkpoints import main
from tools.results import ROOT, read

CLAIM = {
    "order": 1,
    "what": "w",
    "compared": "c",
    "ours": "o",
    "page": "docs/page.md",
    "checkpoint": "checkpoints/rl-spa",
}
FACTS = {"about": "A.", "commit": "abc", "weights": "random", "hardware": "a core", "columns": [], "rows": []}


def test_a_row_becomes_a_repository_of_its_first_seed(
    finished: Callable[[str, str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = FACTS | {"command": "oneiro run spa/frozen-lake preset=smoke seed=S --seeds 2", "seeds": [0, 1]}
    (tmp_path / "results").mkdir()
    (tmp_path / "results/lake.json").write_text(json.dumps(row | {"claim": CLAIM}))
    # The run is there, as after an interruption; with another seed it would be refused.
    shutil.copytree(finished("spa/frozen-lake", "smoke"), tmp_path / "made/runs/lake")
    assert main(["--out", str(tmp_path / "made")], tmp_path / "results") == 0
    assert "Stage `rl-spa`" in (tmp_path / "made/lake/README.md").read_text()
    AutoModelForCausalLM.from_pretrained(tmp_path / "made/lake")
    assert main(["other"], tmp_path / "results") == 2
    assert "known: lake" in capsys.readouterr().err


def test_rows_with_a_trained_model_name_its_checkpoint() -> None:
    claims = {name: one.claim for name, one in read(ROOT / "results").items() if one.claim}
    models = {name for name, one in read(ROOT / "results").items() if one.claim and "oneiro run" in (one.command or "")}
    audited = {"bytesized32"}  # the row is a lookup's
    assert {name for name, claim in claims.items() if claim.checkpoint} == models - audited
