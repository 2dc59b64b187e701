"""`python -m tests.docs.follow PAGE PLACE RUNS`: follow a page in a process of its own.

For pages that make a package with entry points: Oneiro looks for them when it is imported.
"""

from __future__ import annotations

import sys
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


if __name__ == "__main__":
    page, place, runs = (Path(argument) for argument in sys.argv[1:])
    reader = Reader(page, place, lambda name: finished_run(runs, name, preset_of(name)))
    for block in blocks(page):
        if block.file:
            reader.write(block)
    project = entry_points(page)
    if project is not None:
        install(project, place)
    reader.follow()
