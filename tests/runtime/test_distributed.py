"""Ranks divide work and agree; the main process writes; a rank that is lost is one line, and torchrun starts again."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oneiro import cli
from oneiro.learning.finite import NotFiniteError
from oneiro.rundir.records import read_lines
from oneiro.rundir.run import Run
from oneiro.runtime import distributed, files, interrupt
from oneiro.runtime.errors import OneiroError
from tests.ranks import SECONDS, on_every_rank, start
from tests.toy_system import ToyRecipe


def test_one_process_has_everything_to_itself() -> None:
    assert (distributed.rank(), distributed.world_size(), distributed.is_main_process()) == (0, 1, True)
    assert distributed.gather(3) == [3] and distributed.broadcast(3) == 3 and distributed.split(2) == [[0, 1]]
    assert distributed.divide([[0, 1]], lambda own: [place + 5 for place in own]) == [5, 6]
    assert distributed.on_main_process(lambda: 4) == 4
    with distributed.setup():
        assert distributed.world_size() == 1  # torchrun did not start this


def test_work_is_divided_and_every_rank_gets_all_of_it_in_order() -> None:
    def work() -> dict[str, Any]:
        own: list[int] = []
        parts = [[0, 3], [1], [2, 4]]

        def square(places: Sequence[int]) -> list[int]:
            own.extend(places)
            # Inside its share a rank is alone: nothing in there may wait for the others.
            assert (distributed.rank(), distributed.world_size()) == (0, 1)
            return distributed.divide(distributed.split(len(places)), lambda inner: [places[i] ** 2 for i in inner])

        squares = distributed.divide(parts, square)
        main = distributed.on_main_process(lambda: (os.getpid(), distributed.world_size()))
        return {
            "squares": squares,
            "own": own,
            "split": distributed.split(7),
            "gathered": distributed.gather(distributed.rank()),
            "broadcast": distributed.broadcast(f"of rank {distributed.rank()}"),
            "any": [distributed.any_rank(distributed.rank() == 2), distributed.any_rank(False)],
            "main": main,
            "is_main": distributed.is_main_process() and main[0] == os.getpid(),
        }

    ranks = on_every_rank(3, work)
    assert [found.pop("own") for found in ranks] == [[0, 3], [1], [2, 4]]
    assert [found.pop("is_main") for found in ranks] == [True, False, False]
    assert ranks[0] == ranks[1] == ranks[2]
    assert ranks[0]["squares"] == [0, 1, 4, 9, 16] and ranks[0]["split"] == [[0, 1], [2, 3], [4, 5, 6]]
    assert ranks[0]["gathered"] == [0, 1, 2] and ranks[0]["broadcast"] == "of rank 0"
    assert ranks[0]["any"] == [True, False] and ranks[0]["main"][1] == 1


def test_an_error_in_one_share_or_of_the_main_process_is_raised_on_all_ranks() -> None:
    def share(own: Sequence[int]) -> list[int]:
        if 3 in own:
            raise NotFiniteError("row 3")
        return list(own)

    def refuse() -> None:
        raise OneiroError("no such file")

    def work() -> list[str]:
        errors = []
        for failing in (lambda: distributed.divide(distributed.split(4), share), lambda: on_main(refuse)):
            try:
                failing()
            except OneiroError as error:
                errors.append(f"{type(error).__name__}: {error}")
        return [*errors, str(distributed.divide(distributed.split(3), share))]

    on_main = distributed.on_main_process
    expected = ["NotFiniteError: row 3", "OneiroError: no such file", "[0, 1, 2]"]
    assert on_every_rank(2, work) == [expected] * 2


def test_a_collective_that_waits_too_long_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # Also the time to join in: a busy machine may take more than one second.
    monkeypatch.setattr(distributed, "TIMEOUT", timedelta(seconds=5))

    def work() -> None:
        if distributed.rank() == 0:
            distributed.barrier()
        else:
            time.sleep(SECONDS)

    ranks, pipes = start(2, work)
    try:
        assert pipes[0].poll(SECONDS)
        error = pickle.loads(pipes[0].recv_bytes())[1].splitlines()[0]
        assert "rank 0 of 2 lost the others (" in error and "imed out" in error
    finally:
        for process in ranks:
            process.kill()


def test_the_first_to_fail_speaks_and_everybody_where_the_store_went_with_rank_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Kept:
        """torchrun's, which outlives every rank."""

        count = 0

        def add(self, key: str, amount: int) -> int:
            self.count += amount
            return self.count

    assert distributed.is_first_to_fail()  # one process alone
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setattr(distributed, "_store", [Kept()])
    assert [distributed.is_first_to_fail() for _ in range(3)] == [True, False, False]
    monkeypatch.setattr(distributed, "_store", [None])  # cannot be asked
    assert distributed.is_first_to_fail()
    monkeypatch.setattr(distributed, "_store", [])  # they never met
    assert not distributed.is_first_to_fail()
    monkeypatch.setenv("RANK", "0")
    assert distributed.is_first_to_fail()


def test_a_thread_in_the_background_does_not_meet_the_collectives_of_the_main_one() -> None:
    def work() -> tuple[list[str], list[str]]:
        behind: list[list[str]] = []
        begun = threading.Event()

        def play() -> None:
            with distributed.background():
                begun.set()
                behind.append(distributed.gather("played"))

        thread = threading.Thread(target=play)
        if distributed.rank() == 1:  # here the thread comes first, on the other rank last
            thread.start()
            begun.wait()
        learned = distributed.gather("learned")
        if distributed.rank() == 0:
            thread.start()
        thread.join()
        return learned, behind[0]

    assert on_every_rank(2, work) == [(["learned"] * 2, ["played"] * 2)] * 2


def test_only_the_main_process_writes(tmp_path: Path) -> None:
    def work() -> None:
        files.write_json(tmp_path / "who.json", distributed.rank())
        files.write_with(tmp_path / "also", lambda path: path.write_text(str(distributed.rank())) and None)

    on_every_rank(3, work)
    assert {path.name: path.read_text().strip() for path in tmp_path.iterdir()} == {"who.json": "0", "also": "0"}


def test_ranks_agree_on_the_stages_of_a_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def stages() -> dict[str, Any]:
        calls: list[str] = []

        def work(name: str) -> Callable[[], dict[str, Any]]:
            return lambda: calls.append(name) or {"rank": distributed.rank(), "ranks": distributed.world_size()}  # type: ignore[func-returns-value]

        with Run.open(tmp_path / "run", ToyRecipe(system="toy")) as run:
            results = [run.stage("all", work("all")), run.stage("main", work("main"), main_only=True)]
            run.log("all", distributed.world_size(), {"rank": distributed.rank()})
            run.say("a line")
            remembered = run.remember("port", 1000 + distributed.rank())
            run.rewind("all", 2)
            kept = [row["step"] for row in read_lines(run.path / "metrics.jsonl")]
            return {"results": results, "calls": calls, "remembered": remembered, "kept": kept}

    first = on_every_rank(2, stages)
    assert [found.pop("calls") for found in first] == [["all", "main"], ["all"]]
    expected = {"results": [{"rank": 0, "ranks": 2}, {"rank": 0, "ranks": 1}], "remembered": 1000, "kept": [2]}
    assert first == [expected] * 2
    assert capfd.readouterr().out.count("a line") == 1
    again = on_every_rank(3, stages)  # nothing is done twice, and what was logged after the second step is gone
    assert again == [{**expected, "calls": []}] * 3
    assert [row["rank"] for row in read_lines(tmp_path / "run" / "metrics.jsonl")] == [0]


def test_a_signal_to_one_rank_stops_all_after_the_same_step() -> None:
    def work() -> tuple[int, list[int]]:
        saving, saved = interrupt.Saving(), list[int]()
        try:
            with interrupt.handle(), saving.defer():
                for step in range(10):
                    if step == 3 and distributed.rank() == 1:
                        os.kill(os.getpid(), signal.SIGTERM)
                    if saving.due():
                        saved.append(step)
                    saving.stop()
        except KeyboardInterrupt:
            return step, saved
        return -1, saved

    assert on_every_rank(2, work) == [(3, [3])] * 2


def test_what_a_rank_starts_is_no_rank() -> None:
    def work() -> str:
        read, write = os.pipe()
        if not (child := os.fork()):
            os.write(write, f"{distributed.world_size()} {distributed.is_main_process()}".encode())
            os._exit(0)
        os.waitpid(child, 0)
        return os.read(read, 100).decode()

    assert on_every_rank(2, work) == ["1 True"] * 2


# torchrun -------------------------------------------------------------------------------------------------------------


def torchrun(ranks: int, *words: str, restarts: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [f"--max-restarts={restarts}", str(Path(__file__).parents[1] / "toy_system.py"), *words]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ranks_of(agent: int) -> dict[int, int]:
    """Rank -> process, of those that an agent of torchrun has started."""
    found = {}
    for child in Path(f"/proc/{agent}/task/{agent}/children").read_text().split():
        environment = dict(e.partition("=")[::2] for e in Path(f"/proc/{child}/environ").read_text().split("\0"))
        if "RANK" in environment:
            found[int(environment["RANK"])] = int(child)
    return found


def numbers(run: Path) -> list[bytes]:
    return [(run / name).read_bytes() for name in ("metrics.jsonl", "summary.json")]


@pytest.mark.thorough
def test_torchrun_starts_all_again_after_a_rank_was_killed_and_the_run_goes_on(tmp_path: Path) -> None:
    recipe, out = tmp_path / "toy.yaml", tmp_path / "killed"
    recipe.write_text("system: toy\npause: 0.1\nlearn: {steps: 40}\n")
    agent = torchrun(2, "run", str(recipe), "--out", str(out), restarts=1)
    state = out / "checkpoints" / "learn" / "state.json"
    while not state.exists():
        assert agent.poll() is None, agent.communicate()
        time.sleep(0.05)
    os.kill(ranks_of(agent.pid)[1], signal.SIGKILL)
    written, errors = agent.communicate(timeout=SECONDS)
    assert agent.returncode == 0, errors
    assert "Traceback" not in errors and written.count("stage 2 of 2: learn") == 2
    alone = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).parents[1] / "toy_system.py"),
            "run",
            str(recipe),
            "--out",
            tmp_path / "one",
        ]
    )
    assert alone.returncode == 0 and numbers(out) == numbers(tmp_path / "one")


def test_a_mistake_is_one_line_of_one_rank(tmp_path: Path) -> None:
    def work() -> tuple[int, str]:
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            return cli.main(["run", str(tmp_path / "absent.yaml")]), errors.getvalue()

    found = on_every_rank(3, work)
    assert [code for code, _ in found] == [2, 2, 2]
    (line,) = (errors for _, errors in found if errors)
    assert line.count("absent.yaml") == line.count("\n") == 1


@pytest.mark.thorough
def test_a_mistake_under_torchrun_is_one_line_of_one_rank(tmp_path: Path) -> None:
    agent = torchrun(3, "run", str(tmp_path / "absent.yaml"))
    _, errors = agent.communicate(timeout=SECONDS)
    assert agent.returncode == 1 and errors.count("absent.yaml") == 1
