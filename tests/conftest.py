"""Small real models for tests: random weights, a tokenizer trained on a line of text, no download."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from filelock import FileLock
from hypothesis import HealthCheck, settings

import oneiro
from oneiro.agents.reply import TAG_TOKENS
from oneiro.models import language as models
from oneiro.models.language import LanguageModel, ModelSettings, create_tiny

TEXTS = ["P _ O G\n_ _ _ _\nLeft || Right || Up || Down user assistant system\n0123456789 hello world"] * 3


# One thread each: tests run side by side, and some fork, which OpenMP's threads do not survive.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)

# The same examples in every run, and no limit in seconds: a busy machine is no error.
settings.register_profile("oneiro", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("oneiro")

SHORTER = {
    f"spa/{world}": ["variants=[spa]"] for world in ("2048", "bandit", "countdown", "cube", "math", "sokoban", "sudoku")
}
"""What a finished run leaves out: the control runs in the demo's recipe, and nothing of it depends on the world."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first, every other one in either half: each of two workers begins with a half, and towards the end
    they take quick ones from one another.
    """
    quick = [item for item in items if item.get_closest_marker("slow") is None]
    slow, half = [item for item in items if item.get_closest_marker("slow") is not None], len(quick) // 2
    items[:] = [*slow[::2], *quick[:half], *slow[1::2], *quick[half:]]


def pytest_collection_finish() -> None:
    """What is loaded by now stays: the collector need not look at it again and again, and did not while it grew."""
    gc.collect()
    gc.freeze()
    gc.enable()


def global_generators() -> tuple[object, ...]:
    """The states of those that a whole process shares. Not Python's: libraries draw from it when they are imported."""
    return torch.get_rng_state().tolist(), str(np.random.get_state())  # noqa: NPY002


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Callable[[str, str], Path]:
    """A recipe and one of its presets -> a finished run, made once for all tests and workers. Read it, or copy it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "finished"

    folder.mkdir(exist_ok=True)
    return functools.partial(finished_run, folder)


def finished_run(folder: Path, recipe: str, preset: str) -> Path:
    """The run below `folder`, made by whoever comes first; processes wait for one another."""
    out = folder / f"{recipe.replace('/', '-')}-{preset}"
    with FileLock(f"{out}.lock"):
        if not (out / "report.html").exists():
            before = global_generators()
            oneiro.run(recipe, out=out, overrides=[f"preset={preset}", *SHORTER.get(recipe, ())])
            assert global_generators() == before, f"{recipe} drew from a generator that is not its own"
    return out


def pytest_configure(config: pytest.Config) -> None:
    """Shells let background processes ignore Ctrl-C, and children inherit it: tests that send it need it heard."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.fsync = lambda descriptor: None  # a fifth of the time of tests that write; only a power cut would show it
    gc.disable()  # until everything is imported
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        # What all workers import is compiled once, here; in a fresh environment they would all compile it at once.
        make_tiny()


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tests run side by side; two workers with two threads each would only wait for one another."""
    torch.set_num_threads(1)
    # A product in bfloat16, where the processor has none, switches oneDNN off for the rest of the process.
    torch.backends.mkldnn.enabled = True


ADMITTED = set[str]()


def make_tiny(seed: int = 1, **settings: int) -> LanguageModel:
    sizes = {"layers": 2, "width": 32, "heads": 4, "mlp": 64} | settings
    # The very model passed admission in this process before: that takes twice as long as to make it.
    known = patch.object(models, "admit") if (name := f"{seed} {sizes}") in ADMITTED else contextlib.nullcontext()
    with known:
        language = create_tiny(ModelSettings(**sizes), TEXTS, seed, TAG_TOKENS)
    ADMITTED.add(name)
    # A fresh tiny model starts as the identity; give every weight a say, so that a wrong one shows.
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in language.backbone.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator).to(parameter.device))
    return language


@pytest.fixture
def tiny() -> LanguageModel:
    return make_tiny()
