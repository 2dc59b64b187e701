"""doctor and bench: what this machine has, and how fast it is."""

from __future__ import annotations

import pkgutil
from typing import Annotated

import typer

from oneiro.cli.show import JsonFile, show


def offer(app: typer.Typer) -> None:
    app.command()(doctor)


def offer_bench(app: typer.Typer) -> None:
    app.command()(bench)


def doctor(json: JsonFile = None) -> None:
    """Say what this machine has and lacks: processor, memory, disk, GPU, packages, model hub.

    Exit code 1 if Oneiro cannot work here.
    """
    from oneiro.doctor import examine
    from oneiro.report.table import Table

    findings = examine()
    table = Table("This machine", ["what", "found", "advice"])
    for finding in findings:
        table.add(finding.what, finding.found, finding.advice)
    show([table], json)
    if any(finding.fatal for finding in findings):
        raise typer.Exit(1)


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which benchmark.")],
    model: Annotated[str | None, typer.Option(metavar="NAME|DIR", help="The model to measure with.")] = None,
    json: JsonFile = None,
) -> None:
    """Measure this engine and learner beside their peers, in one process, on the same weights and work.

    \b
    oneiro bench cpu --json cpu.json
    """
    show(pkgutil.resolve_name("oneiro.bench:run")(name, model), json)
