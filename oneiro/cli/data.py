"""data: bring real data to this machine, in the form that recipes and evaluations read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oneiro.cli.show import JsonFile, show


def offer(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Import real data.")
    group.command()(bytesized32)
    group.command()(robot)
    group.command()(rlds)
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


def robot(
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes the folder should hold.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder; files that are there are kept.")],
    task: Annotated[str, typer.Option(metavar="drawer-open|drawer-close", help="What the arm tries.")] = "drawer-open",
    policies: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Grades of players; all of them if left out.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that play at once.")] = 2,
    size: Annotated[int, typer.Option(min=16, max=1024, help="Side of a frame, in pixels.")] = 64,
    seed: Annotated[int, typer.Option(help="Decides starts, grades and luck.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Another setting of the collection; may be repeated.")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Let players of every grade work a drawer in the simulator, and write what they saw and did.

    \b
    oneiro data robot --task drawer-open --episodes 600 --out data/drawer
    oneiro data robot --task drawer-close --episodes 600 --out data/drawer --policies expert,noisy,random
    """
    from oneiro.progress import Bar, console
    from oneiro.recipe import assignments
    from oneiro.report.table import Table
    from oneiro.worlds.robot.collect import CollectSettings, collect

    chosen = {"task": task, "size": size, "seed": seed} | assignments(settings or ())
    if policies:
        chosen["policies"] = [name.strip() for name in policies.split(",")]
    made = CollectSettings(**chosen)
    with Bar("episodes", episodes, 0, console(), lambda line: None) as bar:
        done = collect(made, episodes, out, workers, bar.advance)
    table = Table(f"Episodes of {task} in {out}", ["written", "kept", "in all"])
    table.add(done.written, done.kept, episodes)
    show([table], json)


def rlds(
    source: Annotated[Path, typer.Option("--from", metavar="DIR", help="The folder with features.json.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the episodes go; files that are there are kept.")],
    image: Annotated[str | None, typer.Option(metavar="FIELD", help="The camera, as observation/image_0.")] = None,
    action: Annotated[
        list[str] | None, typer.Option(metavar="FIELD", help="Field or group of the action; may be repeated, in order.")
    ] = None,
    instruction: Annotated[str | None, typer.Option(metavar="FIELD", help="The field of the instruction.")] = None,
    json: JsonFile = None,
) -> None:
    """Import real robot episodes (Open X-Embodiment's TFRecords); no TensorFlow is needed.

    Fields are found by themselves where they have their usual names, and for RT-1. Damaged records are named.

    \b
    oneiro data rlds --from bridge_rlds --out data/bridge
    oneiro data rlds --from kuka/0.1.0 --out data/kuka --image observation/image --action action/world_vector
    """
    from oneiro.progress import console
    from oneiro.report.table import Table
    from oneiro.worlds.robot.rlds import import_rlds

    with console().status("reading") as status:
        read = 0

        def count(more: int) -> None:
            nonlocal read
            read += more
            status.update(f"reading: {read:,} episodes")

        done = import_rlds(source, out, image=image, action=action or (), instruction=instruction, advance=count)
    for line in done.damaged:
        typer.secho(f"skipped: {line}", fg="yellow", err=True)
    table = Table(f"RLDS episodes in {out}", ["written", "kept", "damaged", "frames"])
    table.add(done.written, done.kept, len(done.damaged), done.frames)
    show([table], json)
