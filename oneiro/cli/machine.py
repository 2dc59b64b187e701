"""doctor and bench: what this machine has, and how fast it is."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from oneiro.cli.show import JsonFile, show
from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError


def offer(app: typer.Typer) -> None:
    app.command()(doctor)
    app.command()(plan)
    app.command()(bench)


def doctor(
    distributed: Annotated[
        bool, typer.Option("--distributed", help="Also look at the ranks of a torchrun: versions, clocks, bandwidth.")
    ] = False,
    json: JsonFile = None,
) -> None:
    """Say what this machine has and lacks: processor, memory, disk, GPU, packages, model hub.

    Exit code 1 if Oneiro cannot work here.

    \b
    oneiro doctor
    torchrun --nproc-per-node 2 -m oneiro doctor --distributed
    """

    if distributed:
        from oneiro.diagnosis.doctor import examine_ranks as examine
    else:
        from oneiro.diagnosis.doctor import examine
    findings = examine()
    table = Table("This machine", ["what", "found", "advice"])
    for finding in findings:
        table.add(finding.what, finding.found, finding.advice)
    if findings:  # ranks other than 0 have none
        show([table], json)
    if any(finding.fatal for finding in findings):
        raise typer.Exit(1)


def plan(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe or a YAML file.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes to the recipe.")] = None,
    gpus: Annotated[int, typer.Option(min=1, help="How many GPUs, one process each.")] = 1,
    memory: Annotated[float, typer.Option(metavar="GB", min=1, help="Memory of one.")] = 80.0,
    prompt: Annotated[int, typer.Option(metavar="TOKENS", min=1, help="Tokens that a turn shows.")] = 512,
    tflops: Annotated[float, typer.Option(min=1, help="Of matrix products, as reached in training.")] = 300.0,
    bandwidth: Annotated[float, typer.Option(metavar="TB/S", help="Of reading a GPU's memory, as reached.")] = 2.0,
    link: Annotated[float, typer.Option(metavar="GB/S", help="Between two GPUs.")] = 100.0,
    json: JsonFile = None,
) -> None:
    """Estimate the memory of each GPU and the time of an RL step, part by part, before anything is rented.

    \b
    oneiro plan spa/frozen-lake model=Qwen/Qwen2.5-1.5B-Instruct --gpus 8 --memory 80
    """
    from oneiro import recipe as recipes
    from oneiro.diagnosis import plan as capacity
    from oneiro.diagnosis.plan import Rates

    rates = Rates(tflops, bandwidth, link)
    show(capacity.plan(recipes.load(recipe, overrides or ()), gpus, memory, rates, prompt), json)


def bench(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="cpu, sample, train, step, memory, worlds, web, textgame, video or board."),
    ],
    model: Annotated[
        str | None, typer.Option(metavar="NAME|DIR", help="tiny, 14m, smollm2-135m, a folder, or shape:NAME.")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Rows of a batch; in `step`, rows the peers take at once.")] = None,
    prompts: Annotated[int | None, typer.Option(help="Prompts of a GRPO step.")] = None,
    group: Annotated[int | None, typer.Option(help="Samples of every prompt.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(help="Tokens that a turn shows.")] = None,
    new_tokens: Annotated[int | None, typer.Option(help="Tokens of a sample.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Tokens of a training row.")] = None,
    token_budget: Annotated[int | None, typer.Option(help="Tokens of a micro-batch in `train`.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of every contender. Default: all cores.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Measured rounds.")] = None,
    growth: Annotated[bool | None, typer.Option("--growth", help="Also how cost grows, three points each.")] = None,
    peers: Annotated[bool | None, typer.Option("--peers/--alone", help="A GRPO step beside peers or without.")] = None,
    turns: Annotated[
        bool | None, typer.Option("--turns/--one-by-one", help="Contenders of a GRPO step in turns, or each alone.")
    ] = None,
    lora: Annotated[int | None, typer.Option(help="Rank of an adapter to learn in a GRPO step, without peers.")] = None,
    curves: Annotated[int | None, typer.Option(metavar="N", help="`cpu`: learning curves over N steps too.")] = None,
    load: Annotated[
        bool | None, typer.Option("--load", help="`cpu`: what a busy neighbour costs, by the choice of threads.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each for the curves.")] = None,
    seconds: Annotated[float | None, typer.Option(help="`worlds`, `web`, `textgame`: seconds a rate is taken.")] = None,
    rollouts: Annotated[
        bool | None, typer.Option("--rollouts", help="`web`: an agent's episodes, with its model in the loop.")
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="N|ray", help="`web --rollouts`: also with worlds in so many workers.")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Measure this engine and learner beside their peers and the machine's limits, in one run, on the same work.

    Needs a checkout of the repository. The device is chosen by itself. A peer that is not installed has a row that says
    so.

    \b
    oneiro bench cpu --json cpu.json
    oneiro bench sample --model smollm2-135m --growth
    oneiro bench step --model shape:qwen2.5-0.5b --prompts 16 --group 16
    oneiro bench web --rollouts --json rollouts.json
    """
    given = {
        key: value for key, value in locals().items() if key not in ("name", "model", "json") and value is not None
    }
    if workers is not None and workers.isdigit():
        given["workers"] = int(workers)
    show(_load_bench().run(name, model, **given), json)


def _load_bench() -> Any:
    """The package `bench` of the checkout that this package belongs to."""
    import oneiro

    checkout = Path(oneiro.__file__).parents[1]
    if not (checkout / "bench" / "contender.py").exists():
        raise OneiroError("`oneiro bench` needs a checkout of the repository; the installed package has no benchmarks")
    sys.path.insert(0, str(checkout))  # an editable install makes `oneiro` importable, not what lies beside it
    return import_module("bench")
