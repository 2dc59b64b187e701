"""run, recipes, report, episodes, export, board: from a recipe to a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from oneiro.cli.show import JsonFile
from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import unwritable, write_json


class Overridden(TyperCommand):
    """A command with settings as `key=value`: an option that it does not have was meant as one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            name = str(getattr(error, "option_name", "") or "")
            # `seed` is a setting of every recipe, though an option --seeds exists.
            if (getattr(error, "possibilities", None) and name != "--seed") or not name.startswith("--"):
                raise
            place = next(i for i, word in enumerate(given) if word.partition("=")[0] == name)
            words = [*given[place].partition("=")[2:], *given[place + 1 :], "VALUE"]
            value = next(word for word in words if word and not word.startswith("-"))
            raise OneiroError(
                f"no option is called {name}; settings are written {name[2:].replace('-', '_')}={value}"
            ) from error


def offer(app: typer.Typer) -> None:
    app.command(cls=Overridden)(run)
    app.command()(recipes)
    app.command()(report)
    app.command()(episodes)
    app.command()(export)
    app.command()(board)


def run(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE|DIR", help="A recipe, a YAML file, or a run to go on with.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes to the recipe; preset=NAME first chooses a preset."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the run lives. Default: runs/NAME-N.")] = None,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", min=2, help="Run it with N seeds, and show the means over them.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved recipe and do nothing.")] = False,
    json: JsonFile = None,
) -> None:
    """Carry out a recipe: train, evaluate, report.

    A run that was stopped or killed goes on when the same command is given again, or with its directory alone.

    \b
    oneiro run spa/frozen-lake --out runs/lake
    oneiro run spa/frozen-lake preset=smoke seed=1 --out runs/quick-look
    oneiro run spa/frozen-lake model=smollm2-135m --dry-run
    oneiro run runs/lake
    oneiro run spa/frozen-lake --seeds 8 --out runs/lake-seeds
    """
    from oneiro import recipe as recipes_
    from oneiro import systems
    from oneiro.rundir.run import holds_run

    if dry_run:
        name = f"{recipe}/recipe.yaml" if holds_run(recipe) else recipe
        resolved, why = recipes_.load_explained(name, overrides or ())
        systems.check(resolved)
        if why:
            typer.echo(f"# model {why}")
        typer.echo(recipes_.dump(resolved), nl=False)
        if json is not None:
            write_json(json, recipes_.plain(resolved))
        return
    if seeds is not None:
        from oneiro.cli.show import show
        from oneiro.systems.seeds import run_seeds

        show(run_seeds(recipe, seeds, out, overrides or ()), json)
        return
    done = systems.run(recipe, out, overrides or ())
    if json is not None:
        from oneiro.report import page

        write_json(json, {"run": str(done.path), "tables": [table.data() for table in page.tables(done.path)]})


def recipes(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One recipe: all that is known of it.")] = None,
    json: JsonFile = None,
) -> None:
    """List the recipes, one line each, or say what one needs, takes and offers.

    \b
    oneiro recipes spa/frozen-lake   what it needs, how long it takes, its presets
    oneiro run NAME --dry-run        shows all settings of one
    oneiro run NAME preset=smoke     runs a very small version of it
    """
    import shutil
    import textwrap

    from oneiro.recipe import find, listing

    cards, columns = listing(), shutil.get_terminal_size().columns
    if name is not None:
        find(name)  # says what was meant
        cards = [card for card in cards if card.name == name] or cards
        for key, value in vars(cards[0]).items():
            lines = value if key == "models" else [", ".join(value) if isinstance(value, tuple) else value]
            for number, line in enumerate(lines):
                label = "" if number else key
                typer.echo(
                    textwrap.fill(
                        f"{label:<8} {line}",
                        columns,
                        subsequent_indent=" " * 9,
                        break_on_hyphens=False,
                        break_long_words=False,
                    ).rstrip()
                )
    else:
        widest = max(len(card.name) for card in cards)
        for card in cards:
            typer.echo(f"{card.name:<{widest}}  {_shorten(card.about, columns - widest - 2)}")
        typer.echo("oneiro recipes NAME: the whole text, needs, time, presets and models")
    if json is not None:
        table = Table("Recipes", ["recipe", "about", "needs", "takes", "presets"])
        for card in cards:
            table.add(card.name, card.about, card.needs, card.takes, ", ".join(card.presets))
        write_json(json, table.data())


def _shorten(text: str, width: int) -> str:
    """The text in one line of so many columns, cut at a word."""
    if len(text) <= width:
        return text
    return text[: max(width - 4, 20)].rpartition(" ")[0] + " ..."


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: DIR/report.html, or comparison.html for several.")
    ] = None,
) -> None:
    """Write a run's report.html again, or one page that compares several runs.

    \b
    oneiro report runs/lake
    oneiro report runs/lake-* --out lakes.html
    """
    from oneiro.report import page

    new = out is not None and not out.absolute().parent.exists()
    written = page.write(runs, out)
    typer.echo(f"{written} (the folder {written.parent} is new)" if new else written)


def episodes(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="FILE.parquet, or FILE.eval for Inspect AI.")],
    stage: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this stage; may be repeated.")] = None,
) -> None:
    """Write the episodes of a run as one Parquet file, a row for each: prompts, replies, actions, rewards.

    With --out FILE.eval: the episodes of one stage as a log of Inspect AI (pip install inspect-ai).

    \b
    oneiro episodes runs/lake --out episodes.parquet
    oneiro episodes runs/lake --stage rl-spa --out rl.parquet
    """
    from oneiro.report.episodes import episodes_to_parquet

    if reason := "it is a folder" if out.is_dir() else unwritable(out):
        raise OneiroError(f"cannot write --out {out}: {reason}; choose another place")
    if out.suffix == ".eval":
        return _episodes_to_eval(run, out, stage or [])
    count, columns = episodes_to_parquet(run, out, stage or ())
    typer.echo(f"{out}: {count:,} episodes with {', '.join(columns)}")
    typer.echo(f'next: datasets.load_dataset("parquet", data_files="{out}")')


def export(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories; several share the figures.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the files go.")],
    figures: Annotated[bool, typer.Option("--figures", help="Curves as SVG, PDF and CSV; tables as CSV.")] = False,
    videos: Annotated[
        bool, typer.Option("--videos", help="Videos as MP4 (needs ffmpeg) and as contact sheets.")
    ] = False,
) -> None:
    """Write what a paper needs of runs: figures with their numbers beside them, and videos.

    \b
    oneiro export runs/lake --figures --out figures
    oneiro export runs/lake-1 runs/lake-2 --figures --out figures   one line for each run
    oneiro export runs/video --videos --out videos
    """
    from oneiro.report.figures import write_figures, write_videos

    if not (figures or videos):
        raise OneiroError("say what to export: --figures, --videos or both")
    written = [*(write_figures(runs, out) if figures else ()), *(write_videos(runs, out) if videos else ())]
    typer.echo("\n".join(map(str, written)))


def _episodes_to_eval(run: Path, out: Path, stages: list[str]) -> None:
    if len(stages) > 1:
        raise OneiroError("a log of Inspect AI has one stage; give --stage once")
    try:
        from oneiro.adapters.inspect import episodes_to_eval
    except ModuleNotFoundError as error:
        raise OneiroError(f"{out} needs Inspect AI ({error}); pip install inspect-ai") from error
    count = episodes_to_eval(run, out, *stages)
    typer.echo(f"{out}: {count:,} episodes")
    typer.echo(f"next: inspect view --log-dir {out.parent}")


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
