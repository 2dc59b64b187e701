"""The command line: what it prints, what it writes, how it ends. In real processes where what is imported counts."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import sys
import time
import tomllib
import unittest.mock
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.main import get_command

from oneiro import cli, systems
from oneiro.cli import show, video
from oneiro.recipe import find as find_recipe
from oneiro.recipe import listing, load, read
from oneiro.rundir.records import read_log
from oneiro.runtime import progress
from oneiro.runtime.errors import OneiroError

ROOT = Path(__file__).parents[2]
TOY = "system: toy\nabout: a toy\nlearn: {steps: 4}\npresets: {smoke: {learn: {steps: 2}}}\n"


@pytest.fixture(autouse=True)
def _toy_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy system beside the real ones, on lines of one length."""
    monkeypatch.setitem(systems.SYSTEMS, "toy", "tests.toy_system:ToyRecipe")
    monkeypatch.setenv("COLUMNS", "200")


def oneiro(*arguments: object, cwd: Path | None = None, text: str = "") -> subprocess.CompletedProcess[str]:
    """The command in this process, and what a process of its own would have left: exit code, output, errors."""
    words, out, err = [str(word) for word in arguments], io.StringIO(), io.StringIO()
    place = contextlib.chdir(cwd) if cwd is not None else contextlib.nullcontext()
    with (
        place,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        unittest.mock.patch("sys.stdin", io.StringIO(text)),
    ):
        code = cli.main(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def mistake(*arguments: object, cwd: Path | None = None) -> str:
    """The one line that a mistaken command answers with, and exit code 2."""
    done = oneiro(*arguments, cwd=cwd)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr.strip()


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(TOY)
    return path


def test_a_run_prints_its_table_writes_it_and_points_to_the_report(toy: Path, tmp_path: Path) -> None:
    done = oneiro("run", toy, "preset=smoke", "--out", tmp_path / "run", "--json", tmp_path / "run.json")
    assert done.returncode == 0, done.stderr
    assert "Toy" in done.stdout and "report.html shows the run" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(f"its numbers mean nothing; a result: oneiro run {toy}")
    written = json.loads((tmp_path / "run.json").read_text())
    assert written["run"] == str(tmp_path / "run")
    assert [row["arm"] for row in written["tables"][0]["rows"]] == ["toy"]
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    assert "<title>run" in (tmp_path / "run" / "report.html").read_text()


def test_a_run_goes_on_by_its_directory_alone(toy: Path, tmp_path: Path) -> None:
    assert oneiro("run", toy, "--out", tmp_path / "run").returncode == 0
    again = oneiro("run", tmp_path / "run")
    assert again.returncode == 0 and "Toy" in again.stdout and "smoke" not in again.stdout
    assert oneiro("run", toy, "preset=smoke", "seed=2", "--out", tmp_path / "smoke").returncode == 0
    assert oneiro("run", tmp_path / "smoke").stdout.endswith(f"a result: oneiro run {toy} seed=2\n")
    assert "keeps its recipe" in mistake("run", tmp_path / "run", "seed=3")
    assert "seed was 0, now 3" in mistake("run", toy, "seed=3", "--out", tmp_path / "run")


def test_a_dry_run_prints_the_resolved_recipe_and_does_nothing(toy: Path, tmp_path: Path) -> None:
    done = oneiro("run", toy, "learn.lr=1e-4", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0
    (tmp_path / "resolved.yaml").write_text(done.stdout)
    resolved = read(tmp_path / "resolved.yaml")
    assert resolved["learn"] == {"steps": 4, "lr": 1e-4, "save_every": 5} and "presets" not in resolved
    assert not (tmp_path / "runs").exists()


def test_mistakes_are_one_line_and_exit_2(toy: Path, tmp_path: Path) -> None:
    assert mistake("run", toy, "learn.stps=3") == "unknown key 'learn.stps'; did you mean 'learn.steps'?"
    assert mistake("run", toy, "learn.steps=many").endswith("learn.steps: got 'many', expected a whole number")
    assert "does not exist" in mistake("run", tmp_path / "none.yaml")
    assert "no recipe called 'spa/frozenlake'" in mistake("run", "spa/frozenlake")
    assert "no such command 'rum'" in mistake("rum").lower()
    assert "no such option: --outt" in mistake("run", toy, "--outt", "x").lower()
    assert mistake("run", toy, "--preset", "smoke") == "no option is called --preset; settings are written preset=smoke"
    assert mistake("run", toy, "--seed=3", "--out", "x").endswith("settings are written seed=3")
    assert mistake("report", tmp_path) == (
        f"{tmp_path} is not a run directory: it has no recipe.yaml; give one that `oneiro run` made"
    )
    assert mistake("report", "mine/nothing") == "there is no folder mine/nothing; give one that `oneiro run` made"
    (tmp_path / "all" / "lake").mkdir(parents=True)
    (tmp_path / "all" / "lake" / "recipe.yaml").touch()
    assert mistake("report", "all", cwd=tmp_path).endswith("did you mean all/lake?")
    assert "toy.yaml" in mistake("recipes", "--json", toy / "inside-a-file.json")
    assert "either --model DIR_OR_NAME or --policy" in mistake("eval", "agent", "--world", "frozen-lake")
    assert "did you mean 'oracle'" in mistake("eval", "agent", "--world", "frozen-lake", "--policy", "oracel")
    assert "did you mean 'frozen-lake'" in mistake("check", "frozen-lak")
    assert "did you mean 'smollm2-135m'" in mistake("models", "get", "smollm2")
    assert "choose another --out" in mistake("run", toy, "--out", toy)


def test_a_defect_of_ours_keeps_its_traceback_and_a_full_disk_inside_a_library_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cli.explain(KeyError("oops")) is None
    assert cli.explain(OneiroError("two\nlines")) == "two lines"
    wrapped = RuntimeError("I/O error")
    wrapped.__cause__ = OSError(28, "No space left on device")
    assert "no space left" in str(cli.explain(wrapped))
    wrapped.__cause__.filename = "/a/file"
    assert str(cli.explain(wrapped)).startswith("/a/file: no space left")
    monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=0 if place == Path.cwd() else 1 << 40))
    unnamed = Exception("Error while serializing: No space left on device (os error 28)")
    assert str(cli.explain(unnamed)).startswith(f"the disk of {Path.cwd()}: no space left")


HEAVY = {"torch", "transformers", "pyarrow", "pandas", "matplotlib", "jinja2", "playwright"}
SETTINGS = {"numpy", "gymnasium", "yaml", "oneiro.recipe"}
"""What reads and checks recipes: half a second that only recipes need."""
FORMATTING = {"rich.markdown", "pygments"}
"""What a page of help is set with."""


def imported(*commands: Sequence[object], of: set[str]) -> tuple[list[int], set[str], list[str]]:
    """Commands in one new process: their exit codes, which of these modules it has in the end, and its mistakes."""
    words = [[str(word) for word in command] for command in commands]
    program = (
        "import json, sys\nfrom oneiro.cli import main\n"
        f"codes = [main(words) for words in {words!r}]\n"
        f"print(json.dumps([codes, [name for name in {sorted(of)!r} if name in sys.modules]]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    codes, found = json.loads(done.stdout.splitlines()[-1])
    return codes, set(found), done.stderr.splitlines()


def test_the_help_and_a_mistyped_command_load_no_library_that_they_do_not_need() -> None:
    assert imported(["--help"], of=HEAVY | SETTINGS) == ([0], set(), [])
    assert imported(["rnu"], ["run", "--nothing"], of=HEAVY | SETTINGS | FORMATTING)[:2] == ([2, 2], set())


def test_recipes_are_listed_and_a_wrong_name_is_said_without_worlds_and_arrays() -> None:
    commands = (["recipes"], ["recipes", "spa/sokoban"], ["run", "spa/frozn-lake"], ["run", "spa/none.yaml"])
    assert imported(*commands, of=HEAVY | FORMATTING | {"numpy", "gymnasium"})[:2] == ([0, 0, 2, 2], set())


def test_a_command_is_built_alone_and_the_help_knows_them_all() -> None:
    everything = list(get_command(cli.app).commands)  # type: ignore[attr-defined]
    assert {"run", "recipes", "report", "worlds", "check-model", "eval", "data", "doctor"} <= set(everything)
    for name in everything:
        assert list(get_command(cli._only(name)).commands) == [name]  # type: ignore[attr-defined]
    assert cli._only("rnu") is cli._only("") is cli._only("--help") is cli.app


MISTAKES = {
    "sft.lrr=3": "unknown key 'sft.lrr'",
    "nonsense=null": "unknown key 'nonsense'",
    "rl.algorithm.lam=1": "unknown key 'rl.algorithm.lam' of 'grpo': ppo, state-grpo have it",
    "track=[tensorbord]": "did you mean 'tensorboard'",
    "model=smollm": "no model folder at 'smollm' (did you mean 'smollm2-135m'?)",
    "model=./nowhere": "no model folder at './nowhere'",
    "world.view=nope": "world 'frozen-lake' has no view 'nope'",
}


def test_a_dry_run_finds_mistakes_in_names_without_loading_torch(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text("{}")
    wordless = f"model={tmp_path / 'weights'}"
    cases = [("spa/frozen-lake", text, said) for text, said in (MISTAKES | {wordless: "has no tokenizer"}).items()]
    cases += [
        (name, "data.name=/nowhere", "data.name: nothing is at") for name in ("rlvr/text-game", "rlvr/video-multi")
    ]
    commands = [["run", name, change, "--dry-run"] for name, change, _ in cases]
    codes, heavy, lines = imported(*commands, of=HEAVY | FORMATTING)
    assert set(codes) == {2} and heavy == set()
    assert len(lines) == len(cases)
    for line, (_, _, said) in zip(lines, cases, strict=True):
        assert said in line


def test_recipes_are_one_line_each_and_one_recipe_is_told_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = oneiro("recipes").stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [card.name for card in listing()]
    assert all(len(line) <= 80 for line in lines)
    assert any(line.endswith("...") for line in lines) and "oneiro recipes NAME" in lines[-1]
    told = oneiro("recipes", "spa/frozen-lake").stdout
    assert all(len(line) <= 80 for line in told.splitlines())
    assert "needs    2 CPU cores" in told and "presets  smoke" in told and "smollm2-135m" in told
    card = next(card for card in listing() if card.name == "spa/frozen-lake")
    assert card.about in " ".join(told.split())
    assert "Qwen/Qwen2.5-0.5B-Instruct (protocol spa)" in told and "any other pretrained model" in told


def test_which_settings_a_model_gets_is_said_at_the_start_of_a_run_and_of_a_dry_run(toy: Path, tmp_path: Path) -> None:
    overrides = ["model=org/thing", "sft.learner.optimiser.lr=1e-4", "rl.learner.optimiser.lr=1e-5"]
    dry = oneiro("run", "spa/bandit", *overrides, "--dry-run").stdout
    assert dry.startswith("# model org/thing: general settings, those of smollm2-135m")
    (tmp_path / "again.yaml").write_text(dry)  # the line is a comment
    assert load(str(tmp_path / "again.yaml")) == load("spa/bandit", overrides)
    toy.write_text(f"{TOY}model: tiny\nmodels: {{other: {{seed: 4}}}}\n")
    done = oneiro("run", toy, "model=other", "--out", tmp_path / "run")
    assert "model other: settings that this recipe has for it" in done.stdout.splitlines()[1]


def test_a_json_file_that_cannot_be_written_is_noticed_before_the_run(toy: Path, tmp_path: Path) -> None:
    said = mistake("run", toy, "--out", tmp_path / "run", "--json", tmp_path)
    assert "is a folder" in said and not (tmp_path / "run").exists()
    assert "is no folder" in mistake("run", toy, "--out", tmp_path / "run", "--json", toy / "x.json")
    assert not (tmp_path / "run").exists()


def test_control_c_while_the_command_is_loaded_and_at_its_end_leaves_no_traceback_and_promises_nothing() -> None:
    """A signal meets the loading of the commands, then that of one command's work, then the end of the process."""
    doctor = "oneiro.diagnosis.doctor"
    loading = {"oneiro.cli": (-signal.SIGINT, ""), doctor: (130, "stopped"), "": (-signal.SIGINT, "")}
    for module, expected in loading.items():
        program = (
            "import atexit, os, signal, sys, oneiro.__main__\n"
            "def interrupt(): os.kill(os.getpid(), signal.SIGINT)\n"
            "class Late:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            f"        if name == {module!r}: interrupt()\n"
            "sys.meta_path.insert(0, Late()); sys.argv = ['oneiro', 'doctor' if {0} else '--version']\n"
            "if not {0}: atexit.register(interrupt)\n"
            "sys.exit(oneiro.__main__.main())"
        ).replace("{0}", str(bool(module)))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert (done.returncode, done.stderr.strip()) == expected


def test_the_entry_point_imports_nothing_of_ours_that_control_c_could_meet() -> None:
    program = "import sys, oneiro.__main__; print(*(name for name in sys.modules if name.startswith('oneiro')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["oneiro", "oneiro.__main__"]


def test_measurements_that_take_hours_are_smaller_without_a_gpu_unless_asked_for() -> None:
    left_out = {"segments": None, "runs": None, "lpips": "vgg"}
    assert video.defaults(video.FRAMES, left_out, gpu=True) == ({"segments": 200, "runs": 3, "lpips": "vgg"}, "")
    small, said = video.defaults(video.FRAMES, left_out, gpu=False)
    assert small == {"segments": 24, "runs": 1, "lpips": "vgg"}
    assert said == "no GPU: --segments 24, --runs 1; the full measurement is --segments 200 --runs 3, in hours"
    assert video.defaults(video.ROLLOUTS, {"starts": 9}, gpu=False) == ({"starts": 9}, "")


def test_a_command_that_takes_its_time_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.1)
    with show.at_work("check of robot"):
        time.sleep(0.3)
    assert capsys.readouterr().err.startswith("check of robot: at work for 0:0")


def test_a_place_that_holds_no_run_and_no_recipe_is_called_so(tmp_path: Path) -> None:
    assert "is a folder but no run" in mistake("run", tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "notes").touch()
    give = "; give a recipe (`oneiro recipes` lists them), a YAML file or a run"
    for place in ("/missing/path", "./lake", "~/lake", "../lake", "runs/lake"):
        assert mistake("run", place, cwd=tmp_path) == f"nothing is at {place}{give}"
    said = mistake("run", "runs/notes", cwd=tmp_path)
    assert said == f"runs/notes is a file that does not end in .yaml{give}"
    assert "did you mean 'spa/frozen-lake'" in mistake("run", "spa/frozn-lake", cwd=tmp_path)


def test_a_model_that_cannot_be_loaded_is_said_before_torch_and_leaves_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    for stage in ("rl-spa", "rl-control"):
        (tmp_path / "several/checkpoints" / stage / "step-000001/model").mkdir(parents=True)
    run = ["run", "spa/frozen-lake", "--out", tmp_path / "run"]
    evaluation = ["eval", "agent", "--world", "frozen-lake", "--model"]
    codes, heavy, lines = imported(
        [*run, "model=Qwen/Qwen3-0.6B", "sft.learner.optimiser.lr=1e-4", "rl.learner.optimiser.lr=1e-5"],
        [*run, f"model={tmp_path / 'several'}"],
        [*evaluation, "Qwen/Qwen3-0.6B"],
        [*evaluation, tmp_path / "several"],
        [*evaluation, tmp_path],
        of=HEAVY,
    )
    assert codes == [2] * 5 and heavy == set()
    assert not (tmp_path / "run").exists()
    assert lines[0] == lines[2] and "'Qwen/Qwen3-0.6B', and the Hugging Face hub is switched off" in lines[0]
    assert lines[1] == lines[3] and "holds several models; name one of " in lines[1]
    assert "holds no model" in lines[4]


def test_importing_the_package_loads_no_library() -> None:
    code = f"import sys, oneiro; print({HEAVY | SETTINGS | {'pydantic', 'typer'}} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_several_reports_become_one_comparison(toy: Path, tmp_path: Path) -> None:
    for seed in (1, 2):
        assert oneiro("run", toy, f"seed={seed}", "--out", tmp_path / f"run-{seed}").returncode == 0
    done = oneiro("report", tmp_path / "run-1", tmp_path / "run-2", "--out", tmp_path / "both.html")
    assert done.stdout.strip() == str(tmp_path / "both.html")
    new = tmp_path / "new" / "one.html"
    assert oneiro("report", tmp_path / "run-1", "--out", new).stdout == f"{new} (the folder {new.parent} is new)\n"
    page = (tmp_path / "both.html").read_text()
    assert "run-1" in page and "run-2" in page and "Where the recipes differ" in page


def test_the_worlds_are_listed_with_their_variants(tmp_path: Path) -> None:
    done = oneiro("worlds", "--json", tmp_path / "worlds.json")
    assert done.returncode == 0, done.stderr
    rows = {row["world"]: row for row in json.loads((tmp_path / "worlds.json").read_text())["rows"]}
    assert {"frozen-lake", "sokoban", "webshop"} <= set(rows) and "harder" in rows["sokoban"]["variants"]


def test_it_says_its_version() -> None:
    assert oneiro("--version").stdout.startswith("oneiro 0.")


def test_a_world_is_checked_with_settings_and_the_findings_are_data(tmp_path: Path) -> None:
    done = oneiro("check", "frozen-lake", "size=5", "--json", tmp_path / "check.json")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "check.json").read_text())["rows"]
    assert {row["status"] for row in rows} <= {"ok", "warning"} and len(rows) > 5


def test_a_world_is_played_from_the_terminal() -> None:
    done = oneiro("play", "frozen-lake", text="zz\nh\nL\nr\nn\nq\n")
    assert done.returncode == 0, done.stderr
    assert "'zz' was not understood; actions: Left" in done.stdout and "the oracle: " in done.stdout
    assert oneiro("play", "frozen-lake", text="").returncode == 0


def test_the_oracle_is_evaluated_beside_chance_and_ceiling(tmp_path: Path) -> None:
    arguments = ["--world", "frozen-lake", "--policy", "oracle", "--levels", 8, "--samples", 2]
    done = oneiro("eval", "agent", *arguments, "--json", tmp_path / "eval.json")
    assert done.returncode == 0, done.stderr
    rows = {row["agent"]: row["success"] for row in json.loads((tmp_path / "eval.json").read_text())["rows"]}
    assert list(rows) == ["random", "oracle", "ceiling"]
    assert rows["oracle"]["value"] == rows["ceiling"]["value"] and rows["random"]["n"] == 8


def test_the_doctor_finds_what_the_tests_run_with(tmp_path: Path) -> None:
    done = oneiro("doctor", "--json", tmp_path / "doctor.json")
    assert done.returncode == 0, done.stdout
    found = {row["what"]: row["found"] for row in json.loads((tmp_path / "doctor.json").read_text())["rows"]}
    offered = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras = {name.removeprefix("extra [").rstrip("]") for name in found if name.startswith("extra [")}
    assert extras == set(offered) - {"docs", "dev"}
    assert {"robot frames", "browser"} <= set(found)
    assert found["Python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"torch", "memory", "disk", "model hub"} <= found.keys()


# Every recipe that is shipped ----------------------------------------------------------------------------------------

RECIPES = [card.name for card in listing()]


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_says_what_it_is_and_has_a_smoke_preset(name: str) -> None:
    data = read(find_recipe(name))
    assert all(data.get(word) for word in ("about", "needs", "takes"))
    smoke = data["presets"]["smoke"]
    assert "minute" in smoke["takes"] and "minute" not in smoke["about"]  # its time is said once
    assert cli.main(["run", name, "--dry-run"]) == 0


WORLDS = ("2048", "bandit", "countdown", "cube", "math", "physics", "sokoban", "sudoku", "webshop")
SIMILAR = [*(f"spa/{world}" for world in WORLDS), "rlvr/video-single", "rlvr/video-multi"]
"""The demo's recipe with another world, and the video recipes, whose toy presets run in tests/tasks/video."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough) if name in SIMILAR else name for name in RECIPES]
)
def test_every_recipe_runs_its_smoke_preset(name: str, finished: Callable[[str, str], Path]) -> None:
    run = finished(name, "smoke")
    assert (run / "report.html").exists()
    assert json.loads((run / "run.json").read_text())["status"] == "done"
    assert all(table["rows"] for table in json.loads((run / "summary.json").read_text())["tables"])
    gradients: dict[str, list[float]] = {}
    for row in read_log(run / "metrics.jsonl"):
        if {"grad_norm", "groups_kept"} & set(row):
            gradients.setdefault(row["stage"], []).append(row.get("grad_norm") or 0.0)
    # What never learns proves little about killing, resuming and ranks.
    assert all(max(norms) > 0 for norms in gradients.values()), gradients


OWN = """
from oneiro.worlds.grid.frozen_lake.world import FrozenLake

class Pond(FrozenLake):
    name = "pond"
"""


def test_a_world_of_ones_own_is_checked_by_its_import_path(tmp_path: Path) -> None:
    (tmp_path / "waters").mkdir()
    (tmp_path / "waters" / "pond.py").write_text(OWN)
    done = oneiro("check", "waters.pond:Pond", "size=3", "--json", tmp_path / "check.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    table = json.loads((tmp_path / "check.json").read_text())
    assert table["title"] == "Check of pond"
    assert {"status": "ok", "finding": "same seed, same episode in another process"} in table["rows"]
    for path, said in {
        "waters.pond:Pond:slipery": "world 'pond' has no variant 'slipery'; did you mean 'slippery'?",
        "waters.pond:Lake": "has no attribute 'Lake'",
        "waters.lake:Pond": "No module named 'waters.lake'",
        "waters.pond": "write package.module:Class",
        "waters/pond.py:Pond": "write waters.pond:Pond",
        "waters.pond:FrozenLake.x": "write package.module:Class",
        "pathlib:Path": "is not a World class",
        "frozen-lak:slippery": "did you mean 'frozen-lake'?",
    }.items():
        assert said in mistake("check", path, cwd=tmp_path)
