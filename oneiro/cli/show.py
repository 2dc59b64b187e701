"""What commands share: printing tables and warnings, and writing tables with `--json`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import unwritable, write_json

if TYPE_CHECKING:
    from oneiro.runtime.progress import Bar


def _can_be_written(path: Path | None) -> Path | None:
    """Said before the work and not after it."""
    if path is not None and (reason := "it is a folder" if path.is_dir() else unwritable(path)):
        raise OneiroError(f"cannot write --json {path}: {reason}; choose another place")
    return path


JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the printed table as data.",
        show_default=False,
        callback=_can_be_written,
    ),
]
KeyValues = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings over the defaults.", show_default=False)
]


WorldSettings = Annotated[
    list[str] | None,
    typer.Option("--settings", metavar="KEY=VALUE", help="A setting of the world; may be repeated."),
]
TaskSettings = Annotated[
    list[str] | None, typer.Option("--settings", metavar="KEY=VALUE", help="A setting of the task; may be repeated.")
]


def show(tables: Sequence[Table], json: Path | None) -> None:
    """Print tables; with `json`, write the one table, or `{"tables": [...]}` where there are several."""
    from oneiro.runtime.progress import console

    for table in tables:
        console().print(table)
    if json is not None:
        data = [table.data() for table in tables]
        write_json(json, data[0] if len(data) == 1 else {"tables": data})


def progress(title: str, total: int) -> Bar:
    """A bar of a command, which keeps no log."""
    from oneiro.runtime.progress import Bar, console

    return Bar(title, total, 0, console(), lambda line: None)


def warn(line: str) -> None:
    """What a person should know, though the work goes on."""
    typer.secho(line, fg="yellow", err=True)


@contextmanager
def at_work(title: str) -> Iterator[None]:
    """A line every ten seconds while something takes its time."""
    import time

    from oneiro.runtime.progress import Heartbeat, clock

    began = time.monotonic()
    with Heartbeat(lambda: warn(f"{title}: at work for {clock(time.monotonic() - began)}")):
        yield
