"""Runs: whole at every instant, resumed exactly, held by one process."""

from __future__ import annotations

import gzip
import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from oneiro import systems
from oneiro.rundir.records import changes_no_result, read_lines
from oneiro.rundir.run import Run
from oneiro.runtime import interrupt, progress
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import read_json
from tests import toy_system
from tests.commands import mistake, oneiro
from tests.toy_system import ToyLearn, ToyRecipe

RECIPE = ToyRecipe(system="toy")


@pytest.fixture(autouse=True)
def with_toy_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(systems.SYSTEMS, "toy", "tests.toy_system:ToyRecipe")
    monkeypatch.setattr(toy_system, "sleep", lambda seconds: None)  # nobody interrupts it in this process


TOY = "system: toy\nlearn: {steps: 20, save_every: 7}\npause: 0.05\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the recipe leaves when nobody disturbs it."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "toy.yaml").write_text(TOY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(systems.SYSTEMS, "toy", "tests.toy_system:ToyRecipe")
        patch.setattr(toy_system, "sleep", lambda seconds: None)
        return systems.run(folder / "toy.yaml", folder / "run").path


def result(path: Path) -> dict[str, bytes]:
    """Every file of a run whose bytes must not depend on interruptions."""
    files = [path / "recipe.yaml", path / "metrics.jsonl", path / "timings.jsonl", path / "summary.json"]
    files += sorted((path / "episodes").iterdir()) + sorted((path / "checkpoints").rglob("*.json"))
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def test_a_stage_is_done_once_and_its_result_is_kept(tmp_path: Path) -> None:
    calls = []
    for _ in range(2):
        with Run.open(tmp_path / "run", RECIPE) as run:
            first = run.stage("count", lambda: calls.append(1) or {"value": np.float32(0.5), "pair": (1, 2)})
            assert first == {"value": 0.5, "pair": [1, 2]}
            assert run.done("count") and not run.done("other")
            assert run.stage("nothing", lambda: None) == {}
    assert len(calls) == 1


def test_a_stage_that_fails_is_done_again_and_its_time_adds_up(tmp_path: Path) -> None:
    def fail() -> None:
        time.sleep(0.05)
        raise ValueError("broken")

    with Run.open(tmp_path, RECIPE) as run, pytest.raises(ValueError, match="broken"):
        run.stage("work", fail)
    assert read_json(tmp_path / "run.json")["stages"]["work"]["status"] == "stopped"
    with Run.open(tmp_path, RECIPE) as run:
        run.stage("work", lambda: time.sleep(0.05))
        record = run.info["stages"]["work"]
    assert (record["status"], record["starts"]) == ("done", 2)
    assert 0.1 <= record["seconds"] < 1


def test_metrics_are_sorted_lines_of_plain_numbers(tmp_path: Path) -> None:
    with Run.open(tmp_path, RECIPE) as run:
        run.log("rl", 3, {"b": np.float64(0.25), "a": 2, "nan": float("nan")})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"stage": "rl", "step": 3, "a": 2, "b": 0.25, "nan": null}\n'


def test_episodes_written_twice_are_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"task": "a", "turns": [{"reply": "☃"}]}, {"task": "b"}]
    written = []
    for name in ("one", "two"):
        with Run.open(tmp_path / name, RECIPE) as run:
            run.episodes("rl", 7, iter(rows))
        written.append((tmp_path / name / "episodes" / "rl-000007.jsonl.gz").read_bytes())
        monkeypatch.setattr(time, "time", lambda now=time.time(): now + 2)  # gzip notes the second by itself
    assert written[0] == written[1]
    lines = gzip.decompress(written[0]).decode().splitlines()
    assert [json.loads(line) for line in lines] == [{"stage": "rl", "step": 7, **row} for row in rows]
    assert list(read_lines(tmp_path / "one" / "episodes" / "rl-000007.jsonl.gz")) == [
        json.loads(line) for line in lines
    ]


def test_rewind_forgets_one_stage_after_one_step_and_nothing_else(tmp_path: Path) -> None:
    with Run.open(tmp_path, RECIPE) as run:
        for stage in ("rl", "rl-plain"):
            for step in (1, 2, 3):
                run.log(stage, step, {"x": 1})
                run.time(stage, step, {"s": 1})
                run.episodes(stage, step, [])
        run.rewind("rl", 1)
        for name in ("metrics.jsonl", "timings.jsonl"):
            left = [(row["stage"], row["step"]) for row in read_lines(tmp_path / name)]
            assert left == [("rl", 1), ("rl-plain", 1), ("rl-plain", 2), ("rl-plain", 3)]
        assert sorted(path.name for path in (tmp_path / "episodes").iterdir()) == [
            "rl-000001.jsonl.gz",
            *(f"rl-plain-00000{step}.jsonl.gz" for step in (1, 2, 3)),
        ]
        run.rewind("rl-plain", -1)
        assert [row["stage"] for row in read_lines(tmp_path / "metrics.jsonl")] == ["rl"]


def test_a_line_cut_short_is_dropped_and_left_over_parts_are_removed(tmp_path: Path) -> None:
    with Run.open(tmp_path, RECIPE) as run:
        run.log("rl", 1, {"x": 1})
        part = run.checkpoint_dir("rl") / ".state.json.99.part"
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "rl", "st')
    part.write_text("half")
    assert len(list(read_lines(tmp_path / "metrics.jsonl"))) == 1
    with Run.open(tmp_path) as run:
        run.log("rl", 2, {"x": 1})
    assert [row["step"] for row in read_lines(tmp_path / "metrics.jsonl")] == [1, 2]
    assert not part.exists()


def test_another_recipe_is_refused_with_the_first_key_that_differs(tmp_path: Path) -> None:
    with Run.open(tmp_path, RECIPE) as run:
        run.stage("first", dict)
    other = RECIPE.model_copy(update={"learn": ToyLearn(lr=0.5)})
    with pytest.raises(OneiroError, match=r"learn\.lr was 0\.1, now 0\.5; choose another --out"):
        Run.open(tmp_path, other)
    reworded = RECIPE.model_copy(update={"about": "the same in other words", "profile": True})
    Run.open(tmp_path, reworded).close()


def test_a_run_without_a_finished_stage_takes_a_mended_recipe(tmp_path: Path) -> None:
    Run.open(tmp_path, RECIPE).close()
    other = RECIPE.model_copy(update={"learn": ToyLearn(lr=0.5)})
    with Run.open(tmp_path, other) as run:
        assert run.recipe["learn"]["lr"] == 0.5


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match=r"no recipe\.yaml"):
        Run.open(tmp_path)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(OneiroError, match="not empty and holds no run"):
        Run.open(tmp_path, RECIPE)
    with pytest.raises(OneiroError, match="cannot use"):
        Run.open(tmp_path / "thesis.tex", RECIPE)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_run_json_tells_versions_seed_and_stages(tmp_path: Path) -> None:
    with Run.open(tmp_path, RECIPE.model_copy(update={"seed": 5})) as run:
        run.stage("work", lambda: {"x": 1})
    info = read_json(tmp_path / "run.json")
    assert set(info["versions"]) == {"python", "oneiro", "torch", "transformers", "numpy"}
    assert (info["seed"], info["versions"]["numpy"], info["status"]) == (5, np.__version__, "running")
    assert info["stages"]["work"]["result"] == {"x": 1}


def test_resuming_with_other_versions_is_said_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run.open(tmp_path, RECIPE).close()
    info = read_json(tmp_path / "run.json")
    info["versions"]["numpy"] = "1.0"
    (tmp_path / "run.json").write_text(json.dumps(info))
    Run.open(tmp_path, RECIPE).close()
    assert f"numpy 1.0 -> {np.__version__}" in capsys.readouterr().out


def test_what_is_said_is_printed_and_kept_without_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Run.open(tmp_path, RECIPE) as run:
        run.say("[red]a reply[/red] of the model")
    assert capsys.readouterr().out == "[red]a reply[/red] of the model\n"
    assert (tmp_path / "log.txt").read_text().endswith("  [red]a reply[/red] of the model\n")


def test_progress_is_a_line_where_nobody_watches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Run.open(tmp_path, RECIPE) as run, run.progress("sft", total=30, done=10) as bar:
        for _ in range(20):
            bar.advance(loss=0.5)
    line = capsys.readouterr().out.strip()
    assert line.startswith("sft: 30/30 in 0:00, ") and line.endswith("loss 0.5")
    assert line in (tmp_path / "log.txt").read_text()


def test_rate_and_time_left_count_from_where_the_loop_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Run.open(tmp_path, RECIPE) as run, run.progress("sft", total=100) as bar:
        now[0] = 500.0  # loading the model
        bar.begin(80)  # steps of an earlier process
        for _ in range(10):
            now[0] += 2.0
            bar.advance()
        bar.expect(90)
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0] == "sft: 85/100 in 0:10, 2 s each, 0:30 left"
    assert lines[-1] == "sft: 90/100 in 0:20, 2 s each, 0:20 left"


def test_a_step_under_way_takes_from_the_time_left_and_not_from_the_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Run.open(tmp_path, RECIPE) as run, run.progress("rl", total=3) as bar:
        now[0] = 15.0
        bar._line()
        now[0] = 20.0
        bar.advance()
        now[0] = 35.0
        bar._line()
        now[0] = 90.0
        bar._line()
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0] == "rl: 0/3 in 0:15"
    assert lines[1:3] == ["rl: 1/3 in 0:35, 20 s each, 0:25 left", "rl: 1/3 in 1:30, 20 s each, 0:00 left"]


def test_a_stage_that_says_nothing_is_heard_of_now_and_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.2)
    with Run.open(tmp_path, RECIPE) as run:
        run.stage("evaluate", lambda: time.sleep(0.7))
    said = capsys.readouterr().out.splitlines()
    assert 2 <= len([line for line in said if line.startswith("evaluate: at work for 0:0")]) <= 3


def test_a_bar_that_does_not_move_says_so_and_its_stage_keeps_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.2)

    def wait() -> None:
        with run.progress("episodes", total=9) as bar:
            bar.advance(4)
            time.sleep(0.5)

    with Run.open(tmp_path, RECIPE) as run:
        run.stage("evaluate", wait)
    said = capsys.readouterr().out.splitlines()
    assert said and all(line.startswith("episodes: 4/9 in 0:0") for line in said)


@pytest.mark.parametrize("change", ["checkpoint_minutes=3", "profile=true", "about=other", "checkpoint_minutes=null"])
def test_what_changes_no_result_can_be_changed_on_the_way(tmp_path: Path, change: str, whole: Path) -> None:
    again = systems.run(shutil.copytree(whole, tmp_path / "run"), overrides=[change])
    key, _, value = change.partition("=")
    assert str(again.recipe[key]) == {"null": "None", "true": "True", "3": "3.0"}.get(value, value)
    with pytest.raises(OneiroError, match=r"keeps its recipe \(seed was 0, now 1\)"):
        systems.run(tmp_path / "run", overrides=["seed=1"])


def test_intervals_can_be_changed_unless_they_change_the_result() -> None:
    aside = {
        key: changes_no_result(key, {})
        for key in ("rl.checkpoint_every", "sft.keep_checkpoints", "evaluation.every", "rl.lr")
    }
    assert list(aside.values()) == [True, True, True, False]
    assert not changes_no_result("rl.checkpoint_every", {"rl.async_rollout": True})
    assert not changes_no_result("rl.select.every", {}) and not changes_no_result("collapse_monitor.every", {})


# Interruptions, in real processes ------------------------------------------------------------------------------------


def hear_control_c() -> None:
    """What runs in a shell's background is deaf to it, and so would be its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def command(out: Path, *overrides: str) -> list[str]:
    recipe = out.parent / "toy.yaml"
    recipe.write_text(TOY)
    return ["run", str(recipe), *overrides, "--out", str(out)]


def start(out: Path, *overrides: str, **options: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).parents[1] / "toy_system.py"), *command(out, *overrides)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **{"preexec_fn": hear_control_c, **options},  # type: ignore[call-overload]
    )


def wait_for_step(out: Path, step: int) -> None:
    while not any(row["step"] >= step for row in read_lines(out / "metrics.jsonl")):
        time.sleep(0.005)


def test_a_run_killed_again_and_again_ends_with_the_bytes_of_one_left_alone(tmp_path: Path, whole: Path) -> None:
    killed, rng = tmp_path / "killed", np.random.default_rng(0)
    for step in (3, 9):  # before and after the first checkpoint
        process = start(killed)
        wait_for_step(killed, step)
        time.sleep(float(rng.uniform(0, 0.05)))
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert oneiro(*command(killed)).returncode == 0
    assert result(killed) == result(whole)
    assert read_json(killed / "run.json")["stages"]["learn"]["starts"] == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_the_step_ends_with_130_and_a_run_that_resumes(
    tmp_path: Path, number: signal.Signals, whole: Path
) -> None:
    stopped = tmp_path / "stopped"
    process = start(stopped)
    wait_for_step(stopped, 5)
    process.send_signal(number)
    said, errors = process.communicate()
    lines = [interrupt.NOTICE.decode().strip(), "stopped; the same command resumes"]
    assert (process.returncode, errors.decode().strip().splitlines()) == (130, lines)
    assert "stage 1 of 2: gather" in said.decode() and "stage 2 of 2: learn" in said.decode()
    info = read_json(stopped / "run.json")
    assert info["status"] == info["stages"]["learn"]["status"] == "stopped"
    last = [row["step"] for row in read_lines(stopped / "metrics.jsonl")][-1]
    assert read_json(stopped / "checkpoints" / "learn" / "state.json")["step"] == last
    assert oneiro(*command(stopped)).returncode == 0
    assert read_json(stopped / "run.json")["status"] == "done"
    assert result(stopped) == result(whole)


def test_a_second_process_is_told_who_holds_the_run(tmp_path: Path) -> None:
    first = start(tmp_path / "run", "pause=0.2")
    wait_for_step(tmp_path / "run", 1)
    said = mistake(*command(tmp_path / "run", "pause=0.2"))
    assert said.endswith(f"is in use by process {first.pid}; wait for it or choose another --out")
    first.kill()
    first.wait()


def test_a_full_disk_is_one_line_and_the_run_resumes_when_there_is_room(tmp_path: Path, whole: Path) -> None:
    def small_files() -> None:
        # A limit on file size stands in for a small disk: the kernel refuses the write in the same way, with EFBIG.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, resource.RLIM_INFINITY))

    full = tmp_path / "full"
    process = start(full, preexec_fn=small_files)
    _, errors = process.communicate()
    assert process.returncode == 2
    assert len(errors.decode().strip().splitlines()) == 1 and "cannot write" in errors.decode()
    assert 1 <= len(list(read_lines(full / "metrics.jsonl"))) < 20
    assert oneiro(*command(full)).returncode == 0
    assert result(full) == result(whole)


# What starts a run ---------------------------------------------------------------------------------------------------


def test_a_run_without_out_takes_up_its_unfinished_predecessor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert systems.run(RECIPE).path == Path("runs/toy-1")
    assert systems.run(RECIPE).path == Path("runs/toy-2")
    info = read_json("runs/toy-2/run.json")
    Path("runs/toy-2/run.json").write_text(json.dumps({**info, "status": "running"}))
    assert systems.run(RECIPE.model_copy(update={"seed": 1})).path == Path("runs/toy-3")
    assert systems.run(RECIPE).path == Path("runs/toy-2")


def test_a_run_directory_resumes_by_itself_and_keeps_its_recipe(tmp_path: Path) -> None:
    done = systems.run(RECIPE, out=tmp_path / "run")
    assert read_json(done.path / "run.json")["status"] == "done"
    assert (done.path / "report.html").exists()
    assert systems.run(str(done.path)).recipe == done.recipe
    with pytest.raises(OneiroError, match="keeps its recipe"):
        systems.run(str(done.path), overrides=["seed=2"])


def test_what_a_recipe_names_is_looked_for_when_a_run_begins_and_not_when_it_goes_on(tmp_path: Path) -> None:
    recipe = RECIPE.model_copy(update={"needs": str(tmp_path / "data")})
    with pytest.raises(OneiroError, match="needs: no folder"):
        systems.run(recipe, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (tmp_path / "data").mkdir()
    done = systems.run(recipe, out=tmp_path / "run")
    (tmp_path / "data").rmdir()
    assert systems.run(done.path).recipe == done.recipe


def test_an_unknown_system_is_answered_with_the_nearest() -> None:
    with pytest.raises(OneiroError, match=r"no system called 'spaa'.*did you mean 'spa'"):
        systems.recipe_class("spaa")


# Trackers ------------------------------------------------------------------------------------------------------------


def test_tensorboard_gets_what_the_metrics_file_gets(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with Run.open(tmp_path, RECIPE.model_copy(update={"track": ["tensorboard"]})) as run:
        run.log("rl", 1, {"reward": 0.25})
        run.log("rl", 2, {"reward": 0.75, "gone": float("nan")})
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["tensors"] == ["rl/reward"]
    assert [event.step for event in events.Tensors("rl/reward")] == [1, 2]


def test_a_missing_tracker_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(OneiroError, match=r"pip install 'oneiro\[track\]'"):
        Run.open(tmp_path / "a", RECIPE.model_copy(update={"track": ["wandb"]}))
    with pytest.raises(OneiroError, match=r"no tracker called 'tensorbord'.*did you mean 'tensorboard'"):
        Run.open(tmp_path / "b", RECIPE.model_copy(update={"track": ["tensorbord"]}))
    assert not list(tmp_path.iterdir())
