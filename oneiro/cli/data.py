"""data: bring data to this machine, real or made, in the form that recipes and evaluations read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oneiro.cli import web, webrl
from oneiro.cli.show import JsonFile, TaskSettings, WorldSettings, progress, show, warn
from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError


def offer(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Import real data, or make some.")
    group.command()(get)
    group.command()(bytesized32)
    group.command()(text_game)
    group.command("web")(web.data_web)
    group.command()(robot)
    group.command()(rlds)
    group.command()(levels)
    webrl.offer(group)
    app.add_typer(group, name="data")


def get(
    name: Annotated[str | None, typer.Argument(help="Which; all are listed if left out.", show_default=False)] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the files go; downloads/NAME if left out.")
    ] = None,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Of data in many files only so many; all if left out.")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Download published data. The same command goes on where a download broke off, and checks files put there by hand.

    \b
    oneiro data get
    oneiro data get gsm8k
    oneiro data get bridge --shards 8 --out downloads/bridge
    """
    from oneiro.runtime import download

    if name is None:
        table = Table("Published data", ["name", "what", "size", "licence", "files", "checksums"])
        pages = Table("Where it comes from", ["name", "page"])
        for source in download.load_sources().values():
            checked = "yes" if all(file.sha256 for file in source.files) else "none known"
            table.add(
                source.name, source.about, download.amount(source.size), source.licence, len(source.files), checked
            )
            pages.add(source.name, source.page)
        show([table, pages], json)
        return
    source = download.find_source(name)
    folder = out or Path("downloads") / source.name
    count, size = len(source.select(shards)), source.estimate_bytes(shards)
    typer.echo(f"{source.name}: {count} files, about {download.amount(size)}; licence: {source.licence}")
    table = Table(f"{source.name} in {folder}", ["file", "bytes", "how", "checksum"])
    with progress("megabytes", max(1, size // download.MB)) as bar:
        before = here = 0

        def advance(file: download.File, received: int, total: int | None) -> None:
            nonlocal here
            here = received
            bar.tell(file.name)
            bar.expect(max(bar.total or 0, (before + (total or 0)) // download.MB))
            bar.advance(max(0, (before + here) // download.MB - bar.done))

        for fetched in download.fetch_files(source, folder, shards, advance, tell=bar.tell):
            before, here = before + fetched.path.stat().st_size, 0
            checksum = "right" if fetched.checked else "none known"
            table.add(fetched.path.name, fetched.path.stat().st_size, fetched.how, checksum)
    show([table], json)
    typer.echo(f"next: {source.use.format(folder=folder)}")


def bytesized32(
    source: Annotated[
        Path, typer.Option("--from", metavar="DIR|FILE", help="The folder of the JSON lines; or parquet files.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the imported data goes.")],
    known: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With parquet files: imported data that knows their games.")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Import the ByteSized32 transitions: every distinct state once, about a megabyte in all.

    Parquet files in the public layout say nothing of a row's game and rules; --known names a folder that does.

    \b
    oneiro data bytesized32 --from bytesized32 --out data/bytesized32
    oneiro data bytesized32 --from test_state_difference.parquet --known data/bytesized32 --out data/public
    """
    from oneiro.runtime.progress import console
    from oneiro.tasks.textgame.parquet import import_parquet, parquet_files
    from oneiro.worlds.textgame.dataset import import_bytesized32

    columns = parquet_files(source)
    if known is not None and not columns:
        raise OneiroError("--known goes with parquet files; JSON lines name their games themselves")
    skipped: list[str] = []
    with console().status("reading") as status:

        def report(name: str, rows: int) -> None:
            status.update(f"{name}: {rows:,} rows")

        if columns:
            counts, skipped = import_parquet(source, out, known, report)
        else:
            counts = import_bytesized32(source, out, report)
    for name in skipped:
        warn(f"skipped: {name} holds answers to learn from, not next states")
    table = Table(f"ByteSized32 in {out}", ["split", "rows"])
    for split, rows in counts.items():
        table.add(split, rows)
    show([table], json)


def text_game(
    source: Annotated[Path, typer.Option("--from", metavar="DIR", help="A folder of transitions.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The parquet file to write.")],
    split: Annotated[str, typer.Option(help="Which rows of the data.")] = "train",
    answers: Annotated[bool, typer.Option("--answers", help="The ground truth is the answer SFT learns.")] = False,
    settings: TaskSettings = None,
    json: JsonFile = None,
) -> None:
    """Write transitions with their prompts as a parquet file in the public layout, for other trainers.

    \b
    oneiro data text-game --from data/bytesized32 --out train.parquet
    oneiro data text-game --from data/bytesized32 --split test --out test.parquet --settings layout=repr
    oneiro data text-game --from data/bytesized32 --out sft.parquet --answers --settings reasoning=true
    """
    from oneiro.recipe import assignments, build
    from oneiro.tasks.textgame.parquet import write_parquet
    from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
    from oneiro.worlds.textgame.dataset import EXAMPLE, open_dataset, splits

    if out.suffix != ".parquet":
        raise OneiroError(f"{out} does not end in .parquet; say --out FILE.parquet")
    data = open_dataset(source, split)
    examples = list(open_dataset(source, EXAMPLE)) if EXAMPLE in splits(source) else []
    usual = {"rules": "human" if "human" in data.rules else "none"}
    config = build(TextGamePredictorConfig, usual | assignments(settings or ()))
    task = TextGamePredictor(config, rules=data.rules, examples=examples)
    with progress("rows", len(data)) as bar:
        rows = write_parquet(out, data, task, answers=answers, advance=bar.advance)
    table = Table(f"Rows in {out}", ["split", "rows", "bytes"])
    table.add(split, rows, out.stat().st_size)
    show([table], json)


def robot(
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes the folder should hold.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder; files that are there are kept.")],
    task: Annotated[str, typer.Option(metavar="drawer-open|drawer-close", help="What the arm tries.")] = "drawer-open",
    policies: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Perturbations of the expert; all of them if left out.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that play at once.")] = 2,
    size: Annotated[int, typer.Option(min=16, max=1024, help="Side of a frame, in pixels.")] = 64,
    seed: Annotated[int, typer.Option(help="Decides starts, perturbations and noise.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Another setting of the collection; may be repeated.")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Let perturbed experts work a drawer in the simulator, and write what they saw and did.

    \b
    oneiro data robot --task drawer-open --episodes 600 --out data/drawer
    oneiro data robot --task drawer-close --episodes 600 --out data/drawer --policies expert,noisy,random
    """
    from oneiro.recipe import assignments, build
    from oneiro.worlds.robot.collect import CollectSettings, collect

    chosen = {"task": task, "size": size, "seed": seed} | assignments(settings or ())
    if policies:
        chosen["policies"] = [name.strip() for name in policies.split(",")]
    made = build(CollectSettings, chosen)
    with progress("episodes", episodes) as bar:
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
    workers: Annotated[int, typer.Option(min=1, help="Processes that read at once, a file each.")] = 2,
    json: JsonFile = None,
) -> None:
    """Import real robot episodes (Open X-Embodiment's TFRecords); no TensorFlow is needed.

    Fields are found by themselves where they have their usual names, and for RT-1. Damaged records are named, and
    files that are absent or cut, as far as the dataset says what it should hold.

    \b
    oneiro data rlds --from bridge_rlds --out data/bridge
    oneiro data rlds --from fractal20220817_data/0.1.0 --out data/rt1 --workers 16
    oneiro data rlds --from kuka/0.1.0 --out data/kuka --image observation/image --action action/world_vector
    """
    from oneiro.runtime.progress import console
    from oneiro.worlds.robot.rlds import import_rlds

    with console().status("reading") as status:
        read = 0

        def count(more: int) -> None:
            nonlocal read
            read += more
            status.update(f"reading: {read:,} episodes")

        done = import_rlds(
            source,
            out,
            image=image,
            action=action or (),
            instruction=instruction,
            workers=workers,
            advance=count,
        )
    for line in done.damaged:
        warn(f"skipped: {line}")
    for line in done.gaps:
        warn(f"missing: {line}")
    table = Table(
        f"RLDS episodes in {out}",
        ["due", "written", "kept", "damaged", "missing", "frames"],
        note="due: what dataset_info.json says the dataset has" if done.due is not None else "",
    )
    table.add(done.due, done.written, done.kept, len(done.damaged), done.missing, done.frames)
    show([table], json)


def levels(
    world: Annotated[str, typer.Argument(help="sokoban, frozen-lake or sudoku, and their variants.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the pack goes, JSON lines.")],
    levels: Annotated[int, typer.Option(min=1, help="How many.")] = 256,
    split: Annotated[str | None, typer.Option(metavar="train|eval", help="Levels of one split; else of both.")] = None,
    settings: WorldSettings = None,
    seed: Annotated[int, typer.Option(help="Of the first level.")] = 0,
) -> None:
    """Write a pack of levels, each with the length of its shortest solution: the same levels for whoever has the file.

    \b
    oneiro data levels sokoban:harder --levels 1000 --split eval --out harder.jsonl --settings max_actions=40
    oneiro eval agent --world sokoban:harder --policy oracle --settings max_actions=40 --settings pack=harder.jsonl
    """
    from oneiro import worlds
    from oneiro.recipe import assignments
    from oneiro.worlds.levels import write_pack

    written = write_pack(worlds.make(world, **assignments(settings or ())), out, levels, split, seed)
    typer.echo(f"{written:,} levels of {world} in {out}" + (": there are no more" if written < levels else ""))
