"""The commands. Each parses, calls a few lines of Python that anyone may call, and prints.

A person's mistake is one red line on standard error and exit code 2. That is decided here, in one place.
"""

from __future__ import annotations

import copy
import shutil
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from oneiro.cli import agents, data, machine, models, runs, web, worlds
from oneiro.runtime import distributed, files, plugins, threads
from oneiro.runtime.errors import Notice, OneiroError, printable

STOPPED = 130  # exit code: 128 + SIGINT, as shells have it
MISTAKE = 2  # exit code of a mistake in a command, as click has it
ALMOST_FULL = 16 << 20
"""Bytes: a file that did not fit has been removed again by the time one asks."""


class Interrupted(Exception):
    """Control-C, before the command-line library turns it into an exit of its own."""


class Shell(TyperGroup):
    """The top of the command tree."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted(str(error) or "stopped") from error


app = typer.Typer(
    cls=Shell,
    name="oneiro",
    help="Train world models with verifiable rewards, and the agents that use them.",
    epilog="Start with: oneiro run spa/frozen-lake --out runs/first",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        typer.echo(f"oneiro {metadata.version('oneiro')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """Train world models with verifiable rewards, and the agents that use them."""


for room in (runs, agents, worlds, web, data, models, machine):
    room.offer(app)


def _one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """How a warning is shown: one that is meant for a person comes without the place in our code."""
    if issubclass(category, Notice):
        return f"{printable(str(message))}\n"
    return _FULL(message, category, filename, lineno, line)


_FULL = warnings.formatwarning


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point; returns the exit code."""
    threads.prepare()
    warnings.formatwarning = _one_line
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        code = _only(given[0] if given else "")(given, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except (Interrupted, KeyboardInterrupt) as error:
        return _say(str(error) or "stopped", STOPPED)
    except Exception as error:
        line = explain(error)
        if line is None:
            raise
        return _say(line, MISTAKE)


def _only(name: str) -> typer.Typer:
    """The one command of that name, or all of them: the library builds every command it has before it runs one."""
    one, named = copy.copy(app), app.registered_commands
    one.registered_commands = [info for info in named if name == (info.name or getattr(info.callback, "__name__", ""))]
    one.registered_groups = [info for info in app.registered_groups if info.name == name]
    return one if one.registered_commands or one.registered_groups else app


def explain(error: BaseException) -> str | None:
    """One line for what a person can mend; None for what is a defect of ours and deserves its traceback."""
    if isinstance(error, OneiroError):
        return printable(" ".join(str(error).split()))
    if hasattr(error, "format_message"):  # the command-line library's own kinds: unknown option, missing argument
        context, message = getattr(error, "ctx", None), error.format_message().strip()
        # An empty message: the help was shown instead.
        return message and f"{message} (see {context.command_path if context else 'oneiro'} --help)"
    if files.no_room(error):
        return f"{_full_place(error)}: no space left; free some, then the same command resumes"
    if isinstance(error, OSError) and error.errno:
        return f"cannot use {error.filename or 'this machine'}: {error.strerror}; then the same command resumes"
    if type(error).__name__ == "ValidationError" and hasattr(error, "errors"):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: got {first['input']!r}; {first['msg']}"
    if isinstance(error, ModuleNotFoundError) and error.name == plugins.WEB:
        return f"{plugins.WEB} is not installed; {plugins.GET_WEB}"
    return None


def _full_place(error: BaseException) -> str:
    """The file that could not be written. Where a library does not say, the folders whose disk is full."""
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, OSError) and chain.filename:
            return str(chain.filename)
        chain = chain.__cause__ or chain.__context__
    places = dict.fromkeys((Path.cwd(), Path(tempfile.gettempdir()), Path.home()))
    full = [str(place) for place in places if shutil.disk_usage(place).free < ALMOST_FULL]
    return f"the disk of {' and '.join(full)}" if full else "the disk of the run, its quota or the size of a file"


def _say(line: str, code: int) -> int:
    if line and distributed.is_first_to_fail():
        typer.secho(line, fg="red" if code == MISTAKE else "yellow", err=True)
    return code
