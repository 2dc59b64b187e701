"""The processes below one, from /proc."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """One that ran a moment ago."""

    id: int
    name: str
    parent: int
    state: str


def below(root: int) -> list[Process]:
    """The children of a process, theirs, and so on."""
    everyone = [found for place in Path("/proc").glob("[0-9]*") if (found := _read(place)) is not None]
    ours, family = [root], []
    for parent in ours:
        children = [one for one in everyone if one.parent == parent]
        family += children
        ours += [one.id for one in children]
    return family


def _read(place: Path) -> Process | None:
    try:
        line = (place / "stat").read_text()
    except OSError:  # it has just ended
        return None
    name = line[line.index("(") + 1 : line.rindex(")")]
    fields = line.rpartition(")")[2].split()
    return Process(int(place.name), name, int(fields[1]), fields[0])


def memory(process: Process) -> int:
    """Bytes that it holds; what several processes share is divided among them."""
    try:
        lines = Path(f"/proc/{process.id}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
