"""web, eval web-tasks, data web and eval web-page: our own sites for a person, for scripted agents and beside Chromium;
steps of the web as data, and predicted changes of pages scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oneiro.cli.show import JsonFile, WorldSettings, at_work, progress, show, warn
from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError, nearest, printable
from oneiro.runtime.files import write_json

if TYPE_CHECKING:
    from oneiro.tasks.webpage.predictor import Scorer
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
    from oneiro_web.env import WebConfig, chosen_templates
    from oneiro_web.validate import AGENTS, examine, known_agent, template_tasks

    chosen_templates(tuple(site or ()), ())
    config = build(WebConfig, {"browser": browser, "view": view})
    agents = AGENTS if agent == "all" else (known_agent(agent),)
    drawn = list(template_tasks(tasks, site or (), seed))
    played = {}
    with progress("tasks", len(agents) * len(drawn)) as bar:
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


SCORERS = ("strict", "official")
POLICIES = ("random", "oracle", "mixture", "tinker")
SHOWN_BAD = 20
"""Bad rows that are printed; the file of `--json` has all."""


def data_web(
    source: Annotated[str, typer.Option("--from", metavar="WORLD", help="web, web:reddit or another variant of web.")],
    policy: Annotated[
        str, typer.Option(metavar="random|oracle|mixture|tinker|MODEL", help="Who acts; MODEL is a folder.")
    ],
    episodes: Annotated[int, typer.Option(min=1, help="Tasks that are played.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The parquet file to write.")],
    split: Annotated[
        str, typer.Option(metavar="train|test", help="test: other content and templates that training never has.")
    ] = "train",
    steps: Annotated[int, typer.Option(min=0, help="Steps of an episode at most; 0: to its end.")] = 0,
    probes: Annotated[
        float, typer.Option(min=0, max=1, help="Chance, before a step, of an action that should do nothing.")
    ] = 0.15,
    oracle_share: Annotated[
        float, typer.Option(min=0, max=1, help="mixture, tinker: chance that an action is the oracle's.")
    ] = 0.85,
    seed: Annotated[int, typer.Option(help="Decides the tasks and the random actions.")] = 0,
    settings: WorldSettings = None,
    task: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of the prompts; may be repeated.")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Play tasks of a web world and write every step in the columns of the published data.

    \b
    oneiro data web --from web:reddit --policy mixture --episodes 200 --out train.parquet
    oneiro data web --from web:reddit --policy oracle --episodes 40 --split test --out test.parquet
    oneiro data web --from web --policy runs/agent --episodes 20 --out own.parquet
    """
    from oneiro.recipe import assignments, build

    if out.suffix != ".parquet":
        raise OneiroError(f"{out} does not end in .parquet; say --out FILE.parquet")
    if split not in ("train", "test"):
        raise OneiroError(f"no split called '{split}'{nearest(split, ('train', 'test'))}")
    if policy not in POLICIES and not Path(policy).expanduser().exists():
        raise OneiroError(f"no policy called '{policy}'{nearest(policy, POLICIES)}; or give a model folder")
    from oneiro.agents.learners.pages import collect_steps
    from oneiro.tasks.webpage.parquet import write_parquet
    from oneiro.tasks.webpage.predictor import WebPagePredictor, WebPagePredictorConfig
    from oneiro.tasks.webpage.record import Collection, recorded_web

    predictor = WebPagePredictor(build(WebPagePredictorConfig, assignments(task or ())))
    world = {**({"test": "unseen"} if split == "test" else {}), **assignments(settings or ())}
    recorded_web(source, world).close()  # a wrong name or setting shows before anything is played
    collection = Collection(source, world, policy, episodes, split, steps, probes, oracle_share, seed)
    kinds = {"changed": 0, "unchanged": 0, "probes": 0}
    with progress("episodes", episodes) as bar:

        def count_steps():  # type: ignore[no-untyped-def]
            for case in collect_steps(collection, bar.advance):
                kinds["changed" if predictor.changes(case) else "unchanged"] += 1
                kinds["probes"] += case.probe
                yield case

        rows = write_parquet(out, count_steps(), predictor)
    table = Table(f"Steps of {source} in {out}", ["split", "rows", *kinds, "bytes"])
    table.add(split, rows, *kinds.values(), out.stat().st_size)
    show([table], json)


def web_page(
    pairs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='JSON lines {"id", "prediction", "target"}: any model\'s raw outputs.'),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="DIR|NAME", help="A run or a model folder; goes with --data.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --model: a parquet file of oneiro data web.")
    ] = None,
    train: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --model: training steps, for the row lookup.")
    ] = None,
    scorer: Annotated[
        str, typer.Option(metavar="strict|official", help="F1 over items, or the published F1 over lines.")
    ] = "strict",
    rows: Annotated[int, typer.Option(min=0, help="With --model: at most so many steps; 0: all.")] = 0,
    json: JsonFile = None,
) -> None:
    """Score predicted changes of web pages: precision, recall and F1, with 95 % intervals.

    \b
    oneiro eval web-page --pairs pairs.jsonl --scorer strict --json scores.json
    oneiro eval web-page --pairs pairs.jsonl --scorer official
    oneiro eval web-page --model runs/pages --data runs/pages/data/test.parquet --train runs/pages/data/train.parquet
    """
    if scorer not in SCORERS:
        raise OneiroError(f"no scorer called '{scorer}'{nearest(scorer, SCORERS)}")
    if (pairs is None) == (model is None):
        raise OneiroError("say what is scored: either --pairs FILE or --model DIR with --data FILE")
    if model is not None and data is None:
        raise OneiroError("--model needs --data FILE, a parquet file of oneiro data web")

    chosen: Scorer = "official" if scorer == "official" else "strict"
    if pairs is not None:
        from oneiro.tasks.webpage.command import score_pairs

        scores = score_pairs(pairs, chosen)
        for line, reason in scores.bad[:SHOWN_BAD]:
            warn(printable(f"{pairs}, line {line}: skipped, {reason}"))
        if len(scores.bad) > SHOWN_BAD:
            warn(f"{len(scores.bad) - SHOWN_BAD} more rows skipped")
        show([scores.table()], None)
        if json is not None:
            write_json(json, scores.data())
        return
    from oneiro.models.settings import require_place

    assert model is not None and data is not None
    require_place(model)
    from oneiro.tasks.webpage.command import open_model, score_model

    opened = open_model(model, data, rows, chosen)
    with progress("answers", len(opened.cases)) as bar:
        tables = score_model(opened, Path(model).name, train, bar.advance)
    show(tables, json)
