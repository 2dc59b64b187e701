"""`make mutants`: put one error at a time into what computes a number and see whether a test fails.

    python -m tests.mutants.run [--sample 300] [--seed 0] [--only PATH] [--survivors] [--workers 2] [--fresh]

Everything heavy is imported once. Every mutant is a fork of that process which compiles the changed tree in place of
the module, imports the package, and runs the tests that run the changed line, quickest first, to the first failure.
`accepted.yaml` lists mutants that no test can or should notice, each with the reason. The report is build/mutants.md;
the exit code is 1 where fewer than 95 % were noticed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.mutants.lines import Coverage, Marks, Recorder
from tests.mutants.mutate import Mutant, mutants_of
from tests.mutants.serve import Served, module_name

ROOT = Path(__file__).resolve().parents[2]
EXCLUDED = ("oneiro/learning/kernels.py", "oneiro/models/kernels", "oneiro/sampling/kernels.py")
"""Kernels that run on a GPU only: their tests (tests/sampling/test_gpu.py and others) are skipped elsewhere."""
CORE = (
    "tests/learning", "tests/models", "tests/sampling", "tests/agents", "tests/runtime/test_threads.py",
    "tests/diagnosis/test_models.py", "tests/docs/test_docs_tables.py",
)  # fmt: skip
MUTATED = {
    "oneiro/learning": CORE,
    "oneiro/models": CORE,
    "oneiro/sampling": CORE,
    "oneiro/episode.py": CORE,
    "oneiro/agents": ("tests/agents", "tests/systems/plan"),
    "oneiro/tasks": ("tests/tasks", "tests/agents/planning"),
    "oneiro/systems": ("tests/systems", "tests/rundir/test_run.py"),
    "oneiro/report/stats.py": ("tests/report", "tests/systems/test_seeds.py"),
    "oneiro/worlds/shop/webshop.py": ("tests/worlds/shop",),
    "oneiro/worlds/textgame/state.py": ("tests/worlds/textgame", "tests/tasks/textgame"),
    "oneiro/diagnosis/plan.py": ("tests/diagnosis/test_plan.py",),
}
"""What computes a number, and the tests of it: an error in one part need not be found by the tests of another."""
TESTS = tuple(dict.fromkeys(test for tests in MUTATED.values() for test in tests))
WARM = (
    "torch", "numpy", "pytest", "hypothesis", "peft", "pydantic", "transformers.models.auto",
    "transformers.models.llama.modeling_llama", "transformers.models.qwen3.modeling_qwen3",
    "transformers.generation.utils", "transformers.tokenization_utils_tokenizers",
)  # fmt: skip
FOLDER = ROOT / "build" / "mutants"
REPORT = ROOT / "build" / "mutants.md"
SURVIVORS = FOLDER / "survivors.json"
ACCEPTED = Path(__file__).with_name("accepted.yaml")
GOAL = 0.95
TEST_SECONDS = 40.0
"""Processor time of tests, as measured without an error, that a mutant is given at most."""
FIRST_SECONDS = 2.0
"""That of the tests which are run before all others."""
MEMORY = 16 << 30
QUIET = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not published and not slow and not thorough"]


@dataclass(frozen=True)
class Result:
    mutant: Mutant
    verdict: str
    """killed, timeout, survived, unreached, or accepted."""
    reason: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    os.chdir(ROOT)
    FOLDER.mkdir(parents=True, exist_ok=True)
    warm_up()
    chosen = survivors() if options.survivors else sample(all_mutants(options.only), options.sample, options.seed)
    coverage = Coverage.of(covered(options.fresh, {test for path, _, _ in chosen for test in tests_of(path)}))
    results = judge(chosen, coverage, options.workers)
    left = [(r.mutant.where, r.mutant.change) for r in results if r.verdict in ("survived", "unreached")]
    SURVIVORS.write_text(json.dumps(left), encoding="utf-8")
    REPORT.write_text(report(results, options), encoding="utf-8")
    rate = noticed(results)
    print(f"{len(results)} mutants, {rate:.1%} noticed; {REPORT.relative_to(ROOT)}")
    return 0 if rate >= GOAL else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=0, help="so many mutants, drawn by the seed; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--survivors", action="store_true", help="those that survived the last time")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="find out again which tests run which lines")
    return parser.parse_args(arguments)


# What is mutated ------------------------------------------------------------------------------------------------------


def files() -> list[Path]:
    found = [path for name in MUTATED for path in sorted((ROOT / name).rglob("*.py")) or [ROOT / name]]
    return [path for path in found if not str(path.relative_to(ROOT)).startswith(EXCLUDED)]


def tests_of(path: Path) -> tuple[str, ...]:
    """Where the tests of a file are."""
    shown = str(path.relative_to(ROOT))
    return next(tests for part, tests in MUTATED.items() if shown == part or shown.startswith(f"{part}/"))


def all_mutants(only: str = "") -> list[tuple[Path, int, Mutant]]:
    """(file, number in the file, mutant without its tree): a tree is made again in the fork that needs it."""
    return [
        (path, number, mutant)
        for path in files()
        if only in str(path)
        for number, mutant in enumerate(mutants_of(path, str(path.relative_to(ROOT))))
    ]


def sample(found: list[tuple[Path, int, Mutant]], size: int, seed: int) -> list[tuple[Path, int, Mutant]]:
    if not size or size >= len(found):
        return found
    # In the order in which they are drawn: what is done when somebody stops it is a sample too.
    return [found[place] for place in random.Random(seed).sample(range(len(found)), size)]


def survivors() -> list[tuple[Path, int, Mutant]]:
    """What no test noticed the last time, as far as it is still there."""
    last = (
        {tuple(entry) for entry in json.loads(SURVIVORS.read_text(encoding="utf-8"))} if SURVIVORS.exists() else set()
    )
    return [found for found in all_mutants() if (found[2].where, found[2].change) in last]


# Tests in forks -------------------------------------------------------------------------------------------------------


def warm_up() -> None:
    """Import what every test needs, but nothing of this package: a fork imports that with the error in it."""
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    for name in WARM:
        importlib.import_module(name)
    import hypothesis
    import torch

    torch.set_num_threads(1)
    hypothesis.settings.register_profile(
        "mutants", deadline=None, derandomize=True, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    hypothesis.settings.load_profile("mutants")
    assert "oneiro" not in sys.modules


def covered(fresh: bool, needed: Iterable[str]) -> dict[str, Any]:
    """Which lines the needed tests run: from the last time, but for test files that have changed since or are new; all
    anew where a source has changed.
    """
    kept = FOLDER / "lines.json"
    tests = {path for name in needed for path in [ROOT / name, *(ROOT / name).rglob("*.py")] if path.is_file()}
    common = [*files(), *(path for path in tests if not path.name.startswith("test_"))]
    before = kept.stat().st_mtime if kept.exists() and not fresh else 0.0
    known: dict[str, Any] = {"seconds": {}, "lines": {}, "traced": {}}
    if max(path.stat().st_mtime for path in common) <= before:
        known = json.loads(kept.read_text())
    changed = sorted(
        path
        for path in tests
        if path.name.startswith("test_")
        and (path.stat().st_mtime > before or str(path.relative_to(ROOT)) not in known["traced"])
    )
    if changed:
        print(f"finding out which lines {len(changed)} files of tests run; this takes some minutes", flush=True)
        pid = os.fork()
        if pid == 0:
            names = {str(path.relative_to(ROOT)) for path in changed}
            leave(collect(kept, sorted(names), without(known, names)))
        if os.waitpid(pid, 0)[1] != 0 or not kept.exists():
            raise SystemExit("the tests could not be traced; see build/mutants/tests.txt")
    found: dict[str, Any] = json.loads(kept.read_text())
    return found


def without(data: dict[str, Any], test_files: set[str]) -> dict[str, Any]:
    """What is known about tests, but for those of some files, and of files that are gone."""

    def stays(test: str) -> bool:
        file = test.partition("::")[0]
        return file not in test_files and (ROOT / file).is_file()

    return {
        "seconds": {test: seconds for test, seconds in data["seconds"].items() if stays(test)},
        "lines": {key: found for key, found in data["lines"].items() if stays(key.partition(":")[2])},
        "traced": {test: True for test in data["traced"] if stays(test)},
    }


def collect(kept: Path, tests: Sequence[str], known: dict[str, Any]) -> int:
    import pytest

    redirect(FOLDER / "tests.txt")
    marks = Marks({str(path): str(path.relative_to(ROOT)) for path in files()})
    sys.meta_path.insert(0, Served({module_name(path, ROOT): path for path in files()}, marks.code, **marks.names))
    recorder = Recorder(marks)
    code = pytest.main([*QUIET[1:], *tests], plugins=[recorder])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        found = recorder.data() | {"traced": dict.fromkeys(tests, True)}
        kept.write_text(json.dumps({part: known[part] | found[part] for part in known}))
        return 0
    return 1


def redirect(path: Path) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)


def leave(code: int) -> None:
    """End a fork at once: nothing of the parent's is to be closed twice."""
    sys.stdout.flush()
    os._exit(code)


def run_tests(path: Path, number: int, tests: Sequence[str], first: int, seconds: int) -> int:
    """In a fork: 0 when every test passes. The `first` ones by themselves: most errors are found by then, and files of
    tests that need not run need not be imported.
    """
    import pytest

    os.setsid()
    redirect(Path(os.devnull))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    found = next(m for n, m in enumerate(mutants_of(path, str(path.relative_to(ROOT)))) if n == number)
    changed = compile(found.tree, str(path), "exec")
    sys.meta_path.insert(0, Served({module_name(path, ROOT): path}, lambda _: changed))
    return int(any(pytest.main([*QUIET, *part]) != 0 for part in (tests[:first], tests[first:]) if part))


def judge(chosen: Sequence[tuple[Path, int, Mutant]], coverage: Coverage, workers: int) -> list[Result]:
    accepted = yaml.safe_load(ACCEPTED.read_text(encoding="utf-8")) or []
    results: list[Result] = []
    running: dict[int, tuple[Mutant, float]] = {}
    waiting = list(chosen)
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                path, number, mutant = waiting.pop(0)
                if reason := accepted_reason(mutant, accepted):
                    results.append(Result(mutant, "accepted", reason))
                    continue
                named = naming(mutant.scope.partition(".")[0])
                tests = few(coverage.tests(mutant.path, mutant.lines, at_import(mutant), named), coverage)
                if not tests:
                    results.append(Result(mutant, "unreached"))
                    continue
                first = len(few(tests, coverage, FIRST_SECONDS))
                seconds = int(20 + 5 * sum(coverage.seconds[test] for test in tests))
                pid = os.fork()
                if pid == 0:
                    code = 1  # an error while importing is noticed too
                    try:
                        code = run_tests(path, number, tests, first, seconds)
                    finally:
                        leave(code)
                running[pid] = mutant, time.monotonic() + 10 * seconds
            for result in ended(running):
                results.append(result)
                if result.verdict == "survived":
                    print(f"{len(results)}/{len(chosen)} {result.mutant.where}, {result.mutant.change}", flush=True)
                elif len(results) % 10 == 0:
                    print(f"{len(results)}/{len(chosen)}, {noticed(results):.0%} noticed", flush=True)
            time.sleep(0.05)
    except KeyboardInterrupt:
        for pid in running:
            os.killpg(pid, signal.SIGKILL)
    return results


def at_import(mutant: Mutant) -> bool:
    """A default, a constant or a field: it takes effect when the module is imported."""
    return mutant.scope.split(".")[-1].lstrip("_")[:1].isupper() or not mutant.scope


@cache
def naming(name: str) -> frozenset[str]:
    """The files of tests in which a name stands."""
    found = [path for part in TESTS for path in [ROOT / part, *(ROOT / part).rglob("test_*.py")] if path.is_file()]
    word = re.compile(rf"\b{name}\b") if name else None
    return frozenset(str(path.relative_to(ROOT)) for path in found if word and word.search(path.read_text("utf-8")))


def few(tests: list[str], coverage: Coverage, most: float = TEST_SECONDS) -> list[str]:
    """The quickest, within so many seconds."""
    chosen, spent = [], 0.0
    for test in tests:
        spent += coverage.seconds[test]
        if chosen and spent > most:
            break
        chosen.append(test)
    return chosen


def ended(running: dict[int, tuple[Mutant, float]]) -> list[Result]:
    found = []
    for pid, (mutant, deadline) in list(running.items()):
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            del running[pid]
            # A fork that was ended by a signal ran out of time, or crashed: either is noticed.
            verdict = "timeout" if os.WIFSIGNALED(status) else "killed" if os.WEXITSTATUS(status) else "survived"
            found.append(Result(mutant, verdict))
    return found


# What comes out -------------------------------------------------------------------------------------------------------


def accepted_reason(mutant: Mutant, accepted: Iterable[dict[str, str]]) -> str:
    """An entry names a place, and, unless all of the place is meant, the change, or how it begins."""
    for entry in accepted:
        inside = mutant.where == entry["where"] or mutant.where.startswith((entry["where"] + ".", entry["where"] + ":"))
        meant = entry.get("change", mutant.change) == mutant.change
        if inside and meant and mutant.change.startswith(entry.get("begins", "")):
            return entry["reason"]
    return ""


def noticed(results: Sequence[Result]) -> float:
    """The part that tests noticed, of those that they could."""
    counted = [r for r in results if r.verdict != "accepted"]
    return sum(r.verdict in ("killed", "timeout") for r in counted) / max(1, len(counted))


def interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of `count`."""
    z = 1.96
    middle, scale = share + z * z / (2 * count), 1 + z * z / count
    half = z * (share * (1 - share) / count + z * z / (4 * count * count)) ** 0.5
    return (middle - half) / scale, (middle + half) / scale


def report(results: Sequence[Result], options: argparse.Namespace) -> str:
    drawn = f"a sample of {len(results)} (seed {options.seed})" if options.sample else "all mutants"
    drawn = "the last time's survivors" if options.survivors else drawn
    low, high = interval(noticed(results), max(1, sum(r.verdict != "accepted" for r in results)))
    lines = ["# Mutants", "", f"{noticed(results):.1%} of {drawn} noticed; 95 % interval {low:.1%} to {high:.1%}.", ""]
    lines += ["| file | killed | timeout | survived | unreached | accepted |", "|---|---|---|---|---|---|"]
    for path in sorted({r.mutant.path for r in results}):
        counts = Counter(r.verdict for r in results if r.mutant.path == path)
        numbers = [counts[name] for name in ("killed", "timeout", "survived", "unreached", "accepted")]
        lines.append(f"| {path} | {' | '.join(map(str, numbers))} |")
    for verdict, title in (("survived", "Survived"), ("unreached", "No test runs the line"), ("accepted", "Accepted")):
        lines += ["", f"## {title}", ""]
        for r in results:
            if r.verdict == verdict:
                why = f" ({r.reason})" if r.reason else ""
                lines.append(f"- {r.mutant.where}, line {r.mutant.line}{why}\n  `{r.mutant.change}`")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
