"""data: bring real data to this machine, in the form that recipes and evaluations read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oneiro.cli.show import JsonFile, show


def offer(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Import real data.")
    group.command()(bytesized32)
    app.add_typer(group, name="data")


def bytesized32(
    source: Annotated[Path, typer.Option("--from", metavar="DIR", help="The folder of the transitions' JSON lines.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the imported data goes.")],
    json: JsonFile = None,
) -> None:
    """Import the ByteSized32 transitions: every distinct state once, about a megabyte in all.

    \b
    oneiro data bytesized32 --from bytesized32 --out data/bytesized32
    """
    from oneiro.progress import console
    from oneiro.report.table import Table
    from oneiro.worlds.textgame.bytesized32 import import_bytesized32

    with console().status("reading") as status:
        counts = import_bytesized32(source, out, lambda name, rows: status.update(f"{name}: {rows:,} rows"))
    table = Table(f"ByteSized32 in {out}", ["split", "rows"])
    for split, rows in counts.items():
        table.add(split, rows)
    show([table], json)
