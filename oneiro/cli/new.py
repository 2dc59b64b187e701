"""new: the beginning of a package with a world, a task or an algorithm of one's own."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from oneiro.runtime.errors import OneiroError, nearest

SKELETONS = Path(__file__).parent / "skeletons"
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
KINDS = {
    "world": ("worlds", "oneiro check $name"),
    "task": ("tasks", "python -c 'from oneiro.tasks.base import names; print(names())'"),
    "algorithm": ("algorithms", "oneiro run spa/frozen-lake preset=smoke rl.algorithm=$name --dry-run"),
}
"""What there is -> its entry-point group, and a command that shows that Oneiro has found it."""


def offer(app: typer.Typer) -> None:
    app.command()(new)


def new(
    kind: Annotated[str, typer.Argument(metavar="world|task|algorithm")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="In lower case, words joined by '-': my-world.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the package goes. Default: ./NAME.")] = None,
) -> None:
    """Write a small package with a world, a task or an algorithm that works, and its tests: change it from there.

    \b
    oneiro new world ice-rink
    cd ice-rink && pip install --editable . && pytest && oneiro check ice-rink
    """
    if kind not in KINDS:
        raise OneiroError(f"no skeleton of a '{kind}'{nearest(kind, KINDS)}")
    if not NAME.fullmatch(name):
        raise OneiroError(f"'{name}' is no name for a package: lower-case words, joined by '-', such as my-{kind}")
    typer.echo(write_package(kind, name, out or Path(name)))
    typer.echo(f"next: cd {out or name} && pip install --editable . && pytest")


def write_package(kind: str, name: str, folder: Path) -> Path:
    """A module, its test, a pyproject.toml with the entry point, and a page."""
    from oneiro.runtime.files import write_text

    if folder.exists():
        raise OneiroError(f"{folder} exists; choose another name or --out DIR")
    group, command = KINDS[kind]
    words = {"kind": kind, "name": name, "module": name.replace("-", "_"), "group": group}
    words["class"] = "".join(word.capitalize() for word in name.split("-"))
    words["command"] = Template(command).substitute(words)
    files = {
        "pyproject.toml": "pyproject",
        "README.md": "readme",
        f"{words['module']}.py": kind,
        f"test_{words['module']}.py": f"{kind}_test",
    }
    for target, skeleton in files.items():
        text = (SKELETONS / f"{skeleton}.txt").read_text(encoding="utf-8")
        write_text(folder / target, Template(text).substitute(words))
    return folder
