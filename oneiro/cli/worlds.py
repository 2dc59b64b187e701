"""worlds, check, play and new: what there is, does it keep its promises, how does it feel, and one of your own."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated

import typer

from oneiro.cli.show import JsonFile, KeyValues, at_work, show
from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError, nearest, printable
from oneiro.runtime.files import write_text

if TYPE_CHECKING:
    from oneiro.worlds import World

HELP = "h: hint, n: new level, q: quit"


def offer(app: typer.Typer) -> None:
    app.command()(worlds)
    app.command()(check)
    app.command()(play)
    app.command()(new)


def worlds(json: JsonFile = None) -> None:
    """List the worlds and their variants."""
    from oneiro.worlds.registry import classes

    table = Table("Worlds", ["world", "about", "variants"])
    for name, world in classes().items():
        about = world.about or (sys.modules[world.__module__].__doc__ or "").partition("\n")[0]
        table.add(name, about, ", ".join(sorted(world.variants)) or None)
    show([table], json)


def check(
    world: Annotated[str, typer.Argument(metavar="WORLD", help="A world, world:variant, or module:Class.")],
    settings: KeyValues = None,
    json: JsonFile = None,
) -> None:
    """Test whether a world keeps its promises: interface, determinism, splits, views, scores.

    The oracle must reach the ceiling, idling must earn nothing. Exit code 1 if something is wrong.

    \b
    oneiro check frozen-lake
    oneiro check frozen-lake size=6
    oneiro check mine.courier:Courier    a class of your own, by its import path
    """
    from oneiro import worlds
    from oneiro.recipe import assignments
    from oneiro.worlds.check import worst
    from oneiro.worlds.registry import adopt

    world = adopt(world)
    with at_work(f"check of {world}"):
        findings = worlds.check(world, **assignments(settings or ()))
    table = Table(f"Check of {world}", ["status", "finding"])
    for finding in findings:
        table.add(finding.status, finding.message)
    show([table], json)
    if worst(findings) == "error":
        raise typer.Exit(1)


def play(
    world: Annotated[str, typer.Argument(metavar="WORLD", help="A world, world:variant, or module:Class.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VARIANT] KEY=VALUE", help="A variant, and settings over the defaults."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The first level; each new one counts up.")] = 0,
    model: Annotated[
        str | None, typer.Option(metavar="DIR", help="robot, textgame, web: a learned model in the world's place.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="robot with --model: episodes to start from.")
    ] = None,
    episode: Annotated[int, typer.Option(min=0, help="robot with --model: which test episode.")] = 0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="robot with --model: where frames go.")] = Path("frames"),
    site: Annotated[str | None, typer.Option(help="web: tasks on this site only.")] = None,
    browser: Annotated[
        str | None,
        typer.Option(metavar="text|chromium", help="web: what to act in; miniwob and webarena-infinity need chromium."),
    ] = None,
    headed: Annotated[
        bool, typer.Option("--headed", help="web, miniwob, webarena-infinity: show Chromium's window.")
    ] = False,
) -> None:
    """Play a world yourself, in the terminal.

    Type an action, or enough letters to tell it from the others; h asks the oracle, n draws a new level, q quits.

    \b
    oneiro play frozen-lake
    oneiro play textgame brew-tea
    oneiro play textgame brew-tea --model runs/games
    oneiro play robot --model runs/video --out frames
    """
    from oneiro.worlds.registry import adopt

    world = adopt(world)
    name = world.partition(":")[0]
    if model is not None and name == "robot":
        from oneiro.cli.video import drive

        return drive(model, data, episode, out, seed)
    from oneiro import worlds
    from oneiro.recipe import assignments

    world, settings = variant(world, settings or ())
    given = {"sites": site and f"[{site}]", "browser": browser, "headed": headed and "true"}
    if (any(given.values()) and name not in ("web", "miniwob", "webarena-infinity")) or (site and name != "web"):
        raise OneiroError(f"--site, --browser and --headed belong to oneiro play web, not to '{name}'")
    settings += [f"{key}={value}" for key, value in given.items() if value]
    if model is None:
        game = worlds.make(world, **assignments(settings))
    elif name == "textgame":
        from oneiro.tasks.textgame.model import open_world

        game = open_world(model, world, assignments(settings))
    elif name == "web":
        from oneiro.tasks.webpage.world import open_world as open_page

        game = open_page(model, world, assignments(settings))
    else:
        raise OneiroError(
            f"no model of '{name}' can be played in; say oneiro play textgame NAME --model DIR, or web, or robot"
        )
    game.reset(seed=seed)
    tell(f"{game.instruction}\n\n({HELP})")
    ended, score = False, 0.0
    while True:
        tell(f"\n{game.render()}\n")
        try:
            word = input("new level: n, quit: q > " if ended else "> ").strip()
        except EOFError:
            return
        if word == "q":
            return
        if word == "n":
            seed, ended, score = seed + 1, False, 0.0
            game.reset(seed=seed)
        elif word == "h":
            tell(f"the oracle: {game.oracle() or 'has no advice here'}")
        elif word and not ended:
            _, reward, terminated, truncated, info = game.step(meant(word, game))
            score, ended = score + reward, terminated or truncated
            if info.get("malformed"):
                tell("the model's answer could not be read, or describes nothing possible: nothing happens")
            if not info["valid"]:
                known = f"actions: {', '.join(game.actions)}" if game.actions else "it means nothing here"
                tell(f"'{word}' was not understood; {known}")
            if ended:
                tell(f"{'reached the goal' if info['success'] else 'the end'}, score {score:g}")


def tell(text: str) -> None:
    """Print lines no longer than the terminal is wide, broken between words; in a pipe they stay whole."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    typer.echo("\n".join(fold_line(line, width) for line in printable(text).split("\n")))


def fold_line(line: str, width: int) -> str:
    """A line that is too long goes on below its own indent; a word that is longer than the line stays whole."""
    if not 0 < width < len(line):
        return line
    indent = line[: len(line) - len(line.lstrip())]
    parts = textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(parts)


def variant(world: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """`textgame brew-tea size=3` is `textgame:brew-tea size=3`: a first word that sets nothing names the variant."""
    if words and "=" not in words[0]:
        return f"{world}:{words[0]}", list(words[1:])
    return world, list(words)


def meant(word: str, game: World) -> str:
    """The one action that begins with `word`, whatever the case; else the word as it is."""
    begun = [action for action in game.actions or () if action.lower().startswith(word.lower())]
    return begun[0] if len(begun) == 1 else word


# new: the beginning of a package with a world, a task or an algorithm of one's own ------------------------------------


SKELETONS = Path(__file__).parent / "skeletons"
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
KINDS = {
    "world": ("worlds", "oneiro check $name"),
    "task": ("tasks", "python -c 'from oneiro.tasks.base import names; print(names())'"),
    "algorithm": ("algorithms", "oneiro run spa/frozen-lake preset=smoke rl.algorithm=$name --dry-run"),
}
"""What there is -> its entry-point group, and a command that shows that Oneiro has found it."""


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
