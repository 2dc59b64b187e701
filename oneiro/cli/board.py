"""board: a local page over runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oneiro.runtime.errors import OneiroError


def offer(app: typer.Typer) -> None:
    app.command()(board)


def board(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUNS...", help="Run directories, or folders that hold some.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where to listen. Anything but this machine asks for the token in the printed address.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 7780,
) -> None:
    """Open a page over runs: curves, episodes and tokens; and play in a learned world beside the true one.

    It reads files only and follows runs that are at work. Click a point of a curve to see the episodes of that step;
    tick two runs to compare them case by case. J and K walk through lists, Esc goes back, / searches.

    \b
    oneiro board runs                 every run below runs/
    oneiro board runs/demo            one run; its page offers to play in what it learned
    oneiro board runs --host 0.0.0.0  also for other machines, with a token
    """
    try:
        from oneiro.board.server import serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise OneiroError(f"the board needs {error.name}; pip install 'oneiro[board]'") from error
    serve(runs or [Path("runs")], host, port, typer.echo)
