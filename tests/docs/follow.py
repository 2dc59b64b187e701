"""Follow a page that makes a package with entry points: Oneiro looks for them when it is imported, so not yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conftest import finished_run
from tests.docs.pages import Reader, blocks, entry_points, preset_of


def install(project: dict[str, Any], place: Path) -> None:
    """What `pip install --editable .` would leave: metadata with entry points, found on the path."""
    metadata = place / f"{project['name']}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    sections = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in project.get("entry-points", {}).items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(sections))


def follow(page: Path, place: Path, runs: Path) -> None:
    """Its files, its package, then every block; finished runs of shipped recipes lie below `runs`."""
    reader = Reader(page, place, lambda name: finished_run(runs, name, preset_of(name)))
    for block in blocks(page):
        if block.file:
            reader.write(block)
    project = entry_points(page)
    if project is not None:
        install(project, place)
    reader.follow()
