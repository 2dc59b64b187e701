"""Tables of README and docs are what `results/*.json` says, and a table says what its numbers allow."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.results import ROOT, Cell, Experiment, dump, main, read, with_runs

FACTS = {"about": "A.", "command": "c", "commit": "abc", "seeds": [0, 1, 2], "weights": "random", "hardware": "a core"}
ROWS = [
    {"name": "floor", "role": "floor", "cells": [10, None]},
    {"name": "with", "role": "ours", "cells": [{"seeds": [3.0, 5.0, 4.0]}, {"value": 0.5, "low": 0.25, "high": 1.0}]},
    {"name": "without", "role": "control", "cells": [{"seeds": [2.0, 3.0, 1.0]}, "not measured"]},
]
CLAIM = {"order": 1, "what": "w", "compared": "{without|x} s", "ours": "{with|x|interval}", "page": "docs/page.md#a"}
EXPERIMENT = FACTS | {
    "columns": ["x", "y"],
    "decimals": [1, 2],
    "rows": ROWS,
    "differences": [["with", "without", "x"]],
}


def test_the_pages_are_what_the_files_say() -> None:
    assert main(["--check"]) == 0


def test_every_file_is_written_as_the_script_writes_it() -> None:
    for name, experiment in read(ROOT / "results").items():
        assert (ROOT / "results" / f"{name}.json").read_text() == dump(experiment), name


def test_the_picture_of_the_lower_bound_shows_the_numbers_of_its_file() -> None:
    table = json.loads((ROOT / "results" / "vllm.json").read_text())
    ours, theirs, bound = (table["columns"].index(name) for name in ("Oneiro", "vLLM", "lower bound"))
    wanted = [
        f"{100 * row['cells'][sampler] / row['cells'][bound]:.0f} %"
        for sampler in (ours, theirs)
        for row in table["rows"]
    ]
    drawn = (ROOT / "docs" / "images" / "floor.svg").read_text()
    assert re.findall(r">(\d+ %)</text>", drawn) == wanted


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("docs", "results", "web"):
        (tmp_path / folder).mkdir()
    (tmp_path / "results" / "one.json").write_text(json.dumps(EXPERIMENT | {"claim": CLAIM}))
    (tmp_path / "README.md").write_text("a\n<!-- results: claims -->\n<!-- end -->\nb\n")
    (tmp_path / "web" / "README.md").write_text("")
    (tmp_path / "docs" / "page.md").write_text("# Page\n\n<!-- results: one -->\nold\n<!-- end -->\n")
    return tmp_path


def test_a_changed_number_fails_the_check_until_the_pages_are_written(project: Path) -> None:
    assert main(["--check"], project) == 1 and "old" in (project / "docs/page.md").read_text()
    assert main([], project) == 0 and main(["--check"], project) == 0
    page = project / "docs/page.md"
    page.write_text(page.read_text().replace("4.0 (", "4.1 ("))
    assert main(["--check"], project) == 1


def test_a_file_that_no_page_shows_fails_the_check(project: Path) -> None:
    (project / "docs/page.md").write_text("# Page\n")
    assert main(["--check"], project) == 1


def test_a_table_has_means_seeds_intervals_and_paired_differences() -> None:
    page = Experiment.model_validate(EXPERIMENT).page()
    assert "A. `c`. Commit abc; seeds 0, 1, 2; weights: random; a core." in page
    assert "| floor | floor | 10 |  |" in page
    assert "| **with** | ours | 4.0 (3.0, 5.0, 4.0) | 0.50 (0.25 to 1.00) |" in page
    assert "| without | control | 2.0 (2.0, 3.0, 1.0) | not measured |" in page
    # Differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), Student's quantile 4.303 for two degrees of freedom.
    assert "Differences, paired, with 95 % intervals over 3 seeds:" in page
    assert "- x: with minus without +2.0 (-0.5 to +4.5)\n" in page


def test_many_seeds_are_shown_by_their_interval_and_equal_cells_once() -> None:
    # 3 +- 2.776 * 1.581 / sqrt(5)
    assert Cell(seeds=[1.0, 2.0, 3.0, 4.0, 5.0]).text(1) == "3.0 (1.0 to 5.0)"
    rows = [{"name": "a", "cells": [{"seeds": [1.0, 2.0]}, {"seeds": [1.0, 2.0]}]}]
    page = Experiment.model_validate(EXPERIMENT | {"rows": rows, "differences": []}).page()
    assert "| a | 1.5 (1.0, 2.0) | 1.50 |" in page


def test_a_claim_may_take_the_text_of_a_cell() -> None:
    assert Experiment.model_validate(EXPERIMENT).fill("y: {without|y}") == "y: not measured"


def test_a_claim_takes_its_numbers_from_its_file(project: Path) -> None:
    main([], project)
    # 4 +- 4.303 / sqrt(3)
    assert "| [w](docs/page.md#a) | 2.0 s | 4.0 (1.5 to 6.5) |" in (project / "README.md").read_text()


def test_runs_give_numbers_seeds_and_commit(tmp_path: Path) -> None:
    for seed, value in ((4, 0.5), (5, 0.75)):
        (tmp_path / f"{seed}").mkdir()
        row = {"agent": "tiny with", "x": {"value": value, "low": 0.0, "high": 1.0}}
        table = {"columns": ["agent", "x"], "units": {"x": "%"}, "rows": [row]}
        (tmp_path / f"{seed}" / "summary.json").write_text(json.dumps({"tables": [table]}))
        (tmp_path / f"{seed}" / "run.json").write_text(json.dumps({"seed": seed, "commit": "0123456789"}))
    new = with_runs(Experiment.model_validate(EXPERIMENT), [tmp_path / "4", tmp_path / "5"])
    assert new.seeds == [4, 5] and new.commit == "0123456"
    assert new.find("with", "x") == (Cell(seeds=[50.0, 75.0]), 1)
    assert new.find("without", "x") == (Cell(seeds=[2.0, 3.0, 1.0]), 1)
    assert with_runs(new, [tmp_path / "4"]).find("with", "x")[0] == Cell(value=50.0, low=0.0, high=100.0)


def test_a_row_with_a_cell_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match="has 1 cells for 2 columns"):
        Experiment.model_validate(EXPERIMENT | {"rows": [{"name": "a", "cells": [1.0]}]})
