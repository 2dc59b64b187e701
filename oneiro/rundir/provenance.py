"""What a run was begun with: its recipe, versions and commit; and what may differ when it goes on."""

from __future__ import annotations

import contextlib
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oneiro.recipe import Recipe

PACKAGES = ("oneiro", "torch", "transformers", "numpy")
ASIDE = ("about", "needs", "takes", "next", "track", "profile", "checkpoint_minutes", "evaluation.every")
"""Settings that change no result: a run may be resumed with others."""
INTERVALS = ("checkpoint_every", "keep_checkpoints", "keep_episodes_every", "parallel", "workers", "worker_timeout_s")
"""The same in every section that has them."""


def first_difference(path: str | Path, recipe: Recipe) -> str:
    """How `recipe` differs from the one stored in the run at `path`: the first key and both values, or nothing."""
    from oneiro import recipe as recipes

    stored = recipes.flat(recipes.read(Path(path) / "recipe.yaml"))
    given = recipes.flat(recipes.plain(recipe))
    for key in [*given, *stored]:
        before, now = stored.get(key), given.get(key)
        if before != now and not changes_no_result(key, given):
            return f"{key} was {_or_unset(before)}, now {_or_unset(now)}"
    return ""


def changes_no_result(key: str, recipe: Mapping[str, Any]) -> bool:
    """Whether a setting changes no result. With `async_rollout` a checkpoint decides which weights play next."""
    section, _, name = key.rpartition(".")
    if name == "checkpoint_every" and recipe.get(f"{section}.async_rollout"):
        return False
    return key in ASIDE or name in INTERVALS


def _or_unset(value: Any) -> Any:
    return "unset" if value is None else value


def read_versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def read_commit() -> str | None:
    """The commit of this source tree, with a + where files differ from it; None outside a repository."""
    folder = Path(__file__).resolve().parent
    git = ["git", "-C", str(folder)]
    try:
        tracked = subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True, timeout=10)
        if tracked.returncode:
            return None
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
        changes = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return commit.stdout.strip() + ("+" if changes.returncode else "")
