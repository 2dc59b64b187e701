"""Damaged run folders: one line that names the file, exit code 2, nothing lost; what can be mended silently, is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from oneiro import systems
from oneiro.cli import main
from oneiro.recipe import build
from oneiro.rundir.records import read_log, write_episodes
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError, printable
from oneiro.systems.spa.recipe import SpaRecipe
from tests.chaos.folders import FINISHED, LOGS, REPORT_FILES, RUN_FILES
from tests.toy_system import ToyRecipe


@pytest.fixture(autouse=True)
def with_toy_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(systems.SYSTEMS, "toy", "tests.toy_system:ToyRecipe")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose last stage was stopped in the middle."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(systems.SYSTEMS, "toy", "tests.toy_system:ToyRecipe")
        systems.run(ToyRecipe(system="toy"), out=folder)
    info = json.loads((folder / "run.json").read_text())
    info["status"], info["stages"]["learn"]["status"] = "running", "running"
    (folder / "run.json").write_text(json.dumps(info))
    return folder


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    code = main(words)
    return code, capsys.readouterr().err.strip().splitlines()


@pytest.mark.parametrize("what", [*RUN_FILES, *REPORT_FILES])
def test_a_damaged_run_is_one_line_that_names_the_file(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    case = (RUN_FILES | REPORT_FILES)[what]
    run = shutil.copytree(stopped, tmp_path / "run")
    case.damage(run)
    asked = [("report", str(run)), *([("run", str(run))] if what in RUN_FILES else [])]
    for words in asked:
        if words[0] == "report" and case.file == "timings.jsonl":
            continue  # it does not read them
        code, said = command(capsys, *words)
        if case.mended:
            assert (code, said) == (0, [])
        else:
            assert code == 2 and len(said) == 1 and case.file in said[0] and len(said[0]) < 500, said


@pytest.mark.parametrize("what", LOGS)
def test_a_log_that_somebody_cut_or_altered_is_noticed_before_a_run_goes_on(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    run = shutil.copytree(stopped, tmp_path / "run")
    LOGS[what].damage(run)
    code, lines = command(capsys, "run", str(run))
    if LOGS[what].mended:
        assert (code, lines) == (0, [])
        return
    assert code == 2 and len(lines) == 1
    assert "metrics.jsonl is not what the run wrote" in lines[0] and "of 20 lines are missing or altered" in lines[0]
    (run / ".metrics-lines").unlink()  # as the line says
    assert command(capsys, "run", str(run)) == (0, [])


@pytest.mark.parametrize("what", FINISHED)
def test_a_finished_run_whose_weights_are_not_what_it_wrote_says_so(
    finished: Callable[[str, str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    run = shutil.copytree(finished("spa/frozen-lake", "smoke"), tmp_path / "run", symlinks=True)
    FINISHED[what].damage(run)
    code, lines = command(capsys, "run", str(run))
    assert code == 2 and len(lines) == 1 and "is finished, but" in lines[0] and FINISHED[what].file in lines[0], lines


def test_a_half_character_and_a_terminal_code_are_written_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Run.open(tmp_path / "run", ToyRecipe(system="toy")) as run:
        run.say("red: \x1b[31m\x9b half: \ud800 turned: \u202e café\tend")
        run.episodes("rl", 1, [{"reply": "\ud800\x1b"}])
        run.summary({"notes": ["\ud800"]})
    shown = r"red: \x1b[31m\x9b half: \ud800 turned: \u202e café"
    assert shown in capsys.readouterr().out and shown in (tmp_path / "run" / "log.txt").read_text()
    assert main(["report", str(tmp_path / "run")]) == 0
    assert printable("plain\ttext\né 日本") == "plain\ttext\né 日本"


@pytest.mark.parametrize("name", ["x/../../../escaped", "..", "/etc", "", "a\nb", "a\0b", "-rf", "x" * 100])
def test_a_variant_s_name_is_never_a_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match="expected a name"):
        build(SpaRecipe, {"system": "spa", "define": {name: {}}, "variants": [name]})
    with Run.open(tmp_path / "run", ToyRecipe(system="toy")) as run, pytest.raises(OneiroError, match="no name"):
        run.checkpoint_dir(f"../{name}")
    with pytest.raises(OneiroError, match="no name"):
        write_episodes(tmp_path, f"../{name}", 0, [])
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_ordinary_names_are_names() -> None:
    for name in ("my-variant", "spa_2", "größer", "lr=1e-4, b", "v1.5+x"):
        assert build(SpaRecipe, {"system": "spa", "define": {name: {}}, "variants": [name]}).variants == [name]


def test_numbers_of_any_ordinary_size_are_no_damage(tmp_path: Path) -> None:
    with Run.open(tmp_path / "run", ToyRecipe(system="toy")) as run:
        run.log("rl", 1, {"big": 1e307, "nan": float("nan"), "n": 2**62})
        run.rewind("rl", 1)
    assert [row["big"] for row in read_log(tmp_path / "run" / "metrics.jsonl")] == [1e307]
