"""web, and eval web-tasks: our own sites for a person, for scripted agents, and beside Chromium."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from oneiro.cli.show import JsonFile, at_work, show, warn
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.terminal import printable

if TYPE_CHECKING:
    from oneiro.report.table import Table
    from oneiro_web.validate import Played


def offer(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Our own web: serve its sites, compare browsers on them.")
    group.command()(serve)
    group.command()(parity)
    app.add_typer(group, name="web")


def serve(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where to listen, on this machine only.")] = 8000,
    content: Annotated[int, typer.Option(min=0, help="Seed of the content: other products, people, projects.")] = 0,
) -> None:
    """Serve the five sites on this machine, for your own browser.

    \b
    oneiro web serve --port 8000        then open http://localhost:8000/
    """
    from oneiro_web.sites.serve import listen
    from oneiro_web.sites.serve import serve as answer

    listening = listen(port)
    typer.echo(f"http://localhost:{port}/ lists the sites; Ctrl-C ends")
    answer(listening, content)


def parity(
    pages: Annotated[int, typer.Option(min=1, help="Pages to compare, of all types.")] = 300,
    seed: Annotated[int, typer.Option(help="Seed of the crawl and of the content.")] = 0,
    site: Annotated[list[str] | None, typer.Option(help="Only pages of this site; may be repeated.")] = None,
    json: JsonFile = None,
) -> None:
    """Compare the text browser's page with Chromium's, line by line, on a crawl over all types of pages.

    Exit code 1 if a line differs.
    """
    _need_playwright()
    from oneiro.report.table import Table
    from oneiro.runtime.files import write_json
    from oneiro_web.browsers.chromium.browser import ChromiumBrowser
    from oneiro_web.browsers.parity import compare
    from oneiro_web.browsers.text.browser import TextBrowser

    with at_work("parity"), TextBrowser() as text, ChromiumBrowser() as chromium:
        result = compare(text, chromium, pages, seed, site)
    table = Table("The text browser beside Chromium", ["pages", "types", "equal pages", "lines", "equal lines"])
    kinds, equal = {page.kind for page in result.pages}, len(result.pages) - len(result.different)
    table.add(len(result.pages), len(kinds), equal, result.lines, result.equal_lines)
    show([table], None)
    for page in result.different:
        typer.echo(printable("\n".join([page.url, *page.differences])))
    if json is not None:
        write_json(json, result.as_json())
    if result.different:
        raise typer.Exit(1)


def web_tasks(
    agent: Annotated[str, typer.Option(help="oracle, random, idle, exit, na, cheat-file ...; or all of them: all.")],
    browser: Annotated[str, typer.Option(metavar="text|chromium", help="What the agent acts in.")] = "text",
    tasks: Annotated[int, typer.Option(min=1, help="Tasks of each template.")] = 2,
    site: Annotated[list[str] | None, typer.Option(help="Only tasks on this site; may be repeated.")] = None,
    view: Annotated[
        str, typer.Option(metavar="accessibility|aria|html", help="WebArena's tree, an aria snapshot, or WebRL's HTML.")
    ] = "accessibility",
    seed: Annotated[int, typer.Option(help="Seed of the drawn tasks.")] = 0,
    json: JsonFile = None,
) -> None:
    """Let a scripted agent do tasks of every template. The oracle must score 1 everywhere, all others 0.

    \b
    oneiro eval web-tasks --agent oracle
    oneiro eval web-tasks --agent all --tasks 1
    oneiro eval web-tasks --agent oracle --browser chromium
    """
    if browser == "chromium":
        _need_playwright()
    from oneiro.recipe import build
    from oneiro.runtime.progress import Bar, console
    from oneiro_web.env import WebConfig, chosen_templates
    from oneiro_web.validate import AGENTS, examine, known_agent, template_tasks

    chosen_templates(tuple(site or ()), ())
    config = build(WebConfig, {"browser": browser, "view": view})
    agents = AGENTS if agent == "all" else (known_agent(agent),)
    drawn = list(template_tasks(tasks, site or (), seed))
    played = {}
    with Bar("tasks", len(agents) * len(drawn), 0, console(), lambda line: None) as bar:
        for name in agents:
            played[name] = examine(name, drawn, config, lambda one: bar.advance(1))
    show([_table(played)], json)
    wrong = [row for name, rows in played.items() for row in rows if row.score != (1.0 if name == "oracle" else 0.0)]
    for row in wrong[:20]:
        warn(f"{row.task.task_id}: {row.score:g} after {row.actions} actions; {'; '.join(row.reasons)}")
    if wrong:
        raise typer.Exit(1)


def _table(played: Mapping[str, Sequence[Played]]) -> Table:
    """How each agent did, by site: the share of tasks with score 1."""
    from oneiro.report.table import Table

    first = next(iter(played.values()))
    sites = list(dict.fromkeys(row.task.sites[0] for row in first))
    title = f"{len(first)} tasks of {len({row.template for row in first})} templates: tasks with score 1, of all"
    table = Table(title, ["agent", *sites, "all", "mean score", "actions"])
    for agent, rows in played.items():
        cells = []
        for site in sites:
            own = [row for row in rows if row.task.sites[0] == site]
            cells.append(f"{sum(row.score == 1.0 for row in own)} / {len(own)}")
        solved = sum(row.score == 1.0 for row in rows)
        mean = sum(row.score for row in rows) / len(rows)
        actions = sum(row.actions for row in rows) / len(rows)
        table.add(agent, *cells, f"{solved} / {len(rows)}", round(mean, 4), round(actions, 1))
    return table


def _need_playwright() -> None:
    from importlib.util import find_spec

    if find_spec("playwright") is None:
        raise OneiroError("Chromium is driven by playwright, which is not installed; pip install playwright")
