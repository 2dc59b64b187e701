"""Every page works as printed: its Python runs, its commands are carried out, its settings exist, its links lead on."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oneiro.rundir.records import read_lines
from tests.docs.pages import DOCS, ROOT, Reader, blocks, entry_points, pages, preset_of, prose, title
from tests.docs.settings import unknown_settings
from tests.interruption import Forked

EXTENDING = DOCS / "extending.md"


def follow_alone(page: Path, place: Path, runs: Path) -> None:
    """In a process of its own, for a page that makes a package: Oneiro looks for packages when it is imported.

    A copy of this one that forgets Oneiro has the libraries, which take longest to import.
    """
    ours = ("oneiro", "oneiro_web", "tests")

    def follow() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
            del sys.modules[name]
        os.chdir(place)
        sys.path[:0] = [str(place), str(ROOT)]
        importlib.import_module("tests.docs.follow").follow(page, place, runs)

    log = place / "follow.log"
    assert Forked(follow, log).wait() == 0, log.read_text()[-6000:]


LONG = [DOCS / f"{name}.md" for name in ("dyna", "planning", "rlvr", "robot", "video", "worlds")]


def followed() -> list[Any]:
    """Every page with blocks. Two workers begin with every other one: long ones first, that wait for no same run."""
    first = [ROOT / "README.md", EXTENDING, DOCS / "tutorial.md"]
    found = sorted(
        (page for page in pages() if blocks(page)),
        key=lambda page: first.index(page) if page in first else len(first),
    )
    return [pytest.param(page, marks=pytest.mark.thorough if page in LONG else (), id=title(page)) for page in found]


@pytest.mark.slow
@pytest.mark.parametrize("page", followed())
def test_a_reader_can_follow_the_page(page: Path, tmp_path: Path, finished: Callable[[str, str], Path]) -> None:
    if entry_points(page):
        follow_alone(page, tmp_path, finished("spa/frozen-lake", "smoke").parent)
    else:
        Reader(page, tmp_path, lambda name: finished(name, preset_of(name))).follow()
    if page == EXTENDING:
        lines = read_lines(tmp_path / "runs/best-of-group/metrics.jsonl")
        updates = [line for line in lines if line["stage"] == "rl-spa" and line["groups_kept"]]
        assert updates and all(line["grad_norm"] > 0 for line in updates)
        assert (tmp_path / "runs/next-number/rl/step-000002/model/config.json").exists()


@pytest.mark.parametrize("page", pages(), ids=title)
def test_every_setting_that_a_page_names_exists(page: Path) -> None:
    project = entry_points(page) or {}
    own = [name for points in project.get("entry-points", {}).values() for name in points]
    assert unknown_settings(prose(page), own) == []


@pytest.mark.parametrize("page", pages(), ids=title)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?://|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", prose(found), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings], target


@pytest.mark.parametrize(
    "page", [p for p in pages() if any(c.program == "make" for b in blocks(p) for c in b.commands)], ids=title
)
def test_make_knows_every_target_that_a_page_shows(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for command in (command for block in blocks(page) for command in block.commands if command.program == "make"):
        done = subprocess.run(["make", "-n", *shlex.split(command.text)[1:]], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert all(f"\n{name} ?=" in makefile for name in re.findall(r"\b([A-Z]+)=", command.text)), command


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    assert [page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).as_posix() not in nav] == []


def test_every_page_begins_with_what_it_does_and_shows_something_to_run() -> None:
    for page in DOCS.glob("*.md"):
        first = page.read_text().splitlines()
        assert first[0].startswith("# ") and first[2] and not first[2].startswith(("|", "```", "#")), page.name


def test_pictures_are_small() -> None:
    for picture in (DOCS / "images").iterdir():
        assert picture.stat().st_size < 300_000, picture
