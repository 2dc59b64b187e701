"""Threads: how many, how they wait, and that a run keeps its count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from bench import load
from bench.load import Choice
from bench.step import StepSettings
from oneiro import systems
from oneiro.models.language import ModelSettings, create_tiny
from oneiro.recipe import load as load_recipe
from oneiro.report.table import Cell
from oneiro.runtime import threads
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import read_json, write_json
from tests.toy_system import ToyRecipe

RECIPE = ToyRecipe(system="toy")


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody has set anything, no container limits this process, and it may use eight cores."""
    monkeypatch.setitem(systems.SYSTEMS, "toy", "tests.toy_system:ToyRecipe")
    for name in (*threads.SPINNING, threads.COUNT):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))


def test_a_small_model_has_one_thread_and_a_large_one_all_cores() -> None:
    assert [threads.choose(n) for n in (1, 7_999_999, 8_000_000, 14_000_000, 63_999_999, 10**9)] == [1, 1, 2, 2, 8, 8]
    assert threads.choose() == 8
    assert load_recipe("spa/frozen-lake").parameters < 1_000_000
    assert load_recipe("spa/frozen-lake", ["model=smollm2-135m"]).parameters is None
    assert load_recipe("rlvr/text-game").parameters is not None


def test_the_size_of_a_tiny_model_is_known_before_it_is_made() -> None:
    settings = ModelSettings(layers=3, width=64, heads=4, mlp=192, vocabulary=300)
    made = create_tiny(settings, ["the ice is cold"] * 3, 0).backbone.shape.parameters
    assert settings.parameters == pytest.approx(made, rel=0.05)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": "6400000 100000\n"}, 8),
        ({"cpu.max": "damaged"}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "0\n"}, 8),
    ],
)
def test_a_containers_share_bounds_the_cores(files: dict[str, str], expected: int) -> None:
    for name, text in files.items():
        (threads.CGROUP / name).parent.mkdir(parents=True, exist_ok=True)
        (threads.CGROUP / name).write_text(text)
    assert threads.cores() == expected


@pytest.mark.parametrize(("said", "found"), [("3", 3), ("4,2", 4), ("0", None), ("many", None), ("", None)])
def test_the_users_count_wins(said: str, found: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.COUNT, said)
    assert threads.forced_count(os.environ) == found
    assert threads.choose(1) == (1 if found is None else found)


SHOWN = (*threads.SPINNING, threads.COUNT, threads.ONE_TEXT_AT_A_TIME[0])


def environment_after_prepare(**given: str) -> list[str]:
    """The variables in a fresh process, after a container of two cores' share was found."""
    code = (
        "import os, sys, pathlib; from oneiro.runtime import threads; threads.CGROUP = pathlib.Path(sys.argv[1])\n"
        "os.sched_getaffinity = lambda process: set(range(8)); threads.prepare()\n"
        f"print([os.environ.get(name) for name in {SHOWN}])"
    )
    environment = {k: v for k, v in os.environ.items() if k not in SHOWN}
    command = [sys.executable, "-c", code, str(threads.CGROUP)]
    done = subprocess.run(command, env=environment | given, capture_output=True, text=True, check=True)
    return yaml.safe_load(done.stdout)


def test_threads_sleep_while_they_wait_unless_the_user_says_how() -> None:
    assert environment_after_prepare() == ["PASSIVE", "None", "None", "None", "false"]
    assert environment_after_prepare(GOMP_SPINCOUNT="7") == ["None", "7", "None", "None", "false"]
    assert environment_after_prepare(OMP_WAIT_POLICY="ACTIVE") == ["ACTIVE", "None", "None", "None", "false"]
    threads.CGROUP.mkdir()
    (threads.CGROUP / "cpu.max").write_text("200000 100000")
    assert environment_after_prepare(KMP_BLOCKTIME="1") == ["None", "None", "1", "2", "false"]
    assert environment_after_prepare(OMP_NUM_THREADS="5", TOKENIZERS_PARALLELISM="true") == [
        "PASSIVE",
        "None",
        "None",
        "5",
        "true",
    ]


def test_once_torch_is_imported_the_environment_stays() -> None:
    threads.prepare()
    assert not any(name in os.environ for name in (*threads.SPINNING, threads.COUNT))


def test_the_command_line_prepares_before_it_imports_torch() -> None:
    code = (
        "import sys; sys.argv = ['oneiro', 'recipes']; from oneiro.cli import main\n"
        "assert 'torch' not in sys.modules; main()\n"
        "import os; print(os.environ['OMP_WAIT_POLICY'])"
    )
    environment = {k: v for k, v in os.environ.items() if k not in threads.SPINNING}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "PASSIVE"


def threads_of(path: Path, recipe: ToyRecipe = RECIPE) -> int:
    systems.run(recipe, path)
    assert read_json(path / "run.json")["threads"] == torch.get_num_threads()
    return torch.get_num_threads()


def test_a_resumed_run_keeps_the_count_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.COUNT, "2")
    assert threads_of(tmp_path / "run") == 2
    monkeypatch.setenv(threads.COUNT, "1")
    assert threads_of(tmp_path / "run") == 2
    assert threads_of(tmp_path / "other") == 1
    assert "2 threads on 8 cores" in (tmp_path / "run/log.txt").read_text()


def test_the_recipes_count_wins_over_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.COUNT, "1")
    assert threads_of(tmp_path / "run", RECIPE.model_copy(update={"threads": 3})) == 3
    with pytest.raises(OneiroError, match="threads was 3, now unset"):
        threads_of(tmp_path / "run")


def test_a_run_of_an_earlier_version_goes_on_as_it_began(tmp_path: Path) -> None:
    """Its files name no threads, and torch chose them."""
    threads_of(tmp_path)
    recipe = yaml.safe_load((tmp_path / "recipe.yaml").read_text())
    del recipe["threads"]
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    info = read_json(tmp_path / "run.json")
    del info["threads"]
    write_json(tmp_path / "run.json", info)
    torch.set_num_threads(2)
    assert threads_of(tmp_path) == 2


# What a busy neighbour costs ----------------------------------------------------------------------------------------


def test_both_choices_are_measured_as_if_nobody_had_set_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.setenv(threads.COUNT, "5")
    torchs, own = load.choices(1_000_000)
    assert (torchs.threads, own.threads) == (8, 1)
    assert "OMP_WAIT_POLICY" not in torchs.environment and own.environment["OMP_WAIT_POLICY"] == "PASSIVE"


def test_the_table_compares_rounds_with_each_other() -> None:
    tried = [Choice("torch's default", 2, {}, [1.0, 2.0], [8.0, 12.0]), Choice("own", 1, {}, [1.0, 1.0], [2.0, 4.0])]
    rows = load.table("tiny", tried).data()["rows"]
    assert [row["times slower beside"]["value"] for row in rows] == [(8 + 6) / 2, (2 + 4) / 2]
    assert rows[1]["times torch's speed beside"] == {**vars_of(Cell(3.5, 3.0, 4.0, 2))}


def vars_of(cell: Cell) -> dict[str, object]:
    return {"value": cell.value, "low": cell.low, "high": cell.high, "n": cell.n}


@pytest.mark.thorough
def test_a_neighbour_is_measured_for_real_and_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    settings = StepSettings(
        prompts=1, group=2, prompt_tokens=4, new_tokens=4, rounds=1, threads=1, patience=120, device="cpu"
    )
    rows = load.compare("tiny", settings).data()["rows"]
    assert [row["threads"] for row in rows] == ["torch's default", "Oneiro's choice"]
    assert all(row["seconds alone"]["value"] > 0 and row["seconds beside"]["n"] == 1 for row in rows)
    with pytest.raises(ZeroDivisionError), load.busy_neighbour() as neighbour:
        assert neighbour.poll() is None
        raise ZeroDivisionError
    assert neighbour.poll() is not None


def test_the_threads_are_set_where_only_the_pipeline_brings_torch(tmp_path: Path) -> None:
    """A recipe is read without torch; the count must be set after it came, and before it computes."""
    (tmp_path / "late.py").write_text(
        "from typing import ClassVar\nfrom oneiro.recipe import Recipe\n"
        "class LateRecipe(Recipe):\n    pipeline: ClassVar[str] = 'late_pipeline'\n"
    )
    (tmp_path / "late_pipeline.py").write_text(
        "import torch\ndef run(recipe, run):\n    run.stage('count', lambda: {'threads': torch.get_num_threads()})\n"
    )
    program = (
        "import sys, late\nfrom oneiro import systems\nassert 'torch' not in sys.modules\n"
        "systems.SYSTEMS['late'] = 'late:LateRecipe'\n"
        "print(systems.run(late.LateRecipe(system='late', threads=3), 'run').info['stages']['count']['result'])"
    )
    place = os.pathsep.join([str(tmp_path), str(Path(systems.__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": place, threads.COUNT: "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "{'threads': 3}", done.stderr
