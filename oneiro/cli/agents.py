"""eval and score: how good an agent, a model or a prediction is, beside chance, ceiling and what needs no model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from oneiro.cli import video, web
from oneiro.cli.show import JsonFile, TaskSettings, WorldSettings, progress, show, warn
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.runtime.files import write_json

if TYPE_CHECKING:
    from oneiro.tasks.textgame.predictor import Scorer


def offer(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Measure something trained, beside chance and ceiling.")
    group.command()(agent)
    group.command("text-game")(text_game)
    group.command("video")(video.video)
    group.command("policy")(video.policy)
    group.command("web-tasks")(web.web_tasks)
    group.command("web-page")(web.web_page)
    group.command("rt1")(video.robot_policy)
    app.add_typer(group, name="eval")
    scores = typer.Typer(no_args_is_help=True, help="Score predictions of any model, beside no change and lookups.")
    scores.command("text")(score_text)
    scores.command("page")(score_page)
    scores.command("video")(score_video)
    app.add_typer(scores, name="score")


def agent(
    world: Annotated[str, typer.Option(help="The world to play in; or module:Class.")],
    model: Annotated[
        str | None, typer.Option(metavar="DIR|NAME", help="A checkpoint, a model folder or a model's name.")
    ] = None,
    policy: Annotated[str | None, typer.Option(metavar="random|oracle|mixture", help="A scripted policy.")] = None,
    oracle_share: Annotated[
        float | None, typer.Option(min=0, max=1, help="Part of a mixture's actions that are the oracle's.")
    ] = None,
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="An OpenAI-compatible server, up to and including /v1.")
    ] = None,
    server_model: Annotated[str | None, typer.Option(metavar="NAME", help="The server's name of the model.")] = None,
    server_settings: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Of the server: temperature, max_tokens, api_key_env, concurrency ..."),
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="NAME", help="A test split that the world or the model names: test-unseen ...")
    ] = None,
    browser: Annotated[str | None, typer.Option(metavar="text|chromium", help="Of the web: which browser.")] = None,
    levels: Annotated[int, typer.Option(min=1, help="Unseen levels to play.")] = 256,
    samples: Annotated[int, typer.Option(min=1, help="Attempts at each level.")] = 8,
    settings: WorldSettings = None,
    dialogue: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="How a model or server is asked: max_turns, actions_per_turn ..."),
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(metavar="beam|mpc", help="Search in the model instead of asking it for actions; needs --model."),
    ] = None,
    depth: Annotated[int | None, typer.Option(min=1, help="Actions that --plan looks ahead.")] = None,
    plan_settings: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Of --plan: width, proposals, sequences, outcomes, max_tokens ..."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the agent's sampling.")] = 0,
    json: JsonFile = None,
) -> None:
    """Let an agent play unseen levels: success, pass@k and how true its inner pictures are, with 95 % intervals.

    \b
    oneiro eval agent --world frozen-lake --model runs/demo/checkpoints/rl-spa
    oneiro eval agent --world frozen-lake --policy oracle --levels 64 --settings size=6
    oneiro eval agent --world sokoban --policy mixture --oracle-share 0.4
    oneiro eval agent --world frozen-lake --model runs/plan/checkpoints/world-model-0 --plan beam --depth 10
    oneiro eval agent --world sokoban --server http://127.0.0.1:8000/v1 --server-model qwen --levels 32 --samples 1
    oneiro eval agent --world web --model runs/a/phase_3/actor --split test-unseen --levels 100 --samples 1
    """
    from oneiro.recipe import assignments, build
    from oneiro.worlds.baselines import require_script

    if sum(player is not None for player in (model, policy, server)) != 1:
        raise OneiroError("say who plays: either --model DIR_OR_NAME or --policy random|oracle|mixture or --server URL")
    require_script(policy)
    if oracle_share is not None and policy != "mixture":
        raise OneiroError("--oracle-share belongs to --policy mixture")
    if (server is None) != (server_model is None):
        raise OneiroError("--server URL and --server-model NAME go together")
    if server_settings and server is None:
        raise OneiroError("--server-settings belong to --server URL")
    if plan is None and (depth is not None or plan_settings):
        raise OneiroError("--depth and --plan-settings belong to --plan beam|mpc")
    if plan is not None and model is None:
        raise OneiroError("--plan searches in a world model: give it with --model DIR")
    from oneiro.agents.planning.base import PlannerSettings

    given = {"name": plan, **({} if depth is None else {"depth": depth}), **assignments(plan_settings or ())}
    planner = build(PlannerSettings, given) if plan is not None else None
    from oneiro.models.locate import require_model
    from oneiro.worlds.registry import adopt, world_class

    world = adopt(world)
    world_class(world)
    if model is not None:
        require_model(model, ask_hub=True)  # said before torch is loaded
    from oneiro.agents.evaluate import evaluate_agent
    from oneiro.runtime.progress import Bar, console
    from oneiro.sampling.server import ServerConfig

    server_options = assignments(server_settings or ())
    screen = console()
    with Bar("episodes", None, 0, screen, lambda line: None) as bar:
        table = evaluate_agent(
            world,
            model,
            policy,
            levels,
            samples,
            assignments(settings or ()) | ({"browser": browser} if browser else {}),
            seed,
            split=split,
            server=build(ServerConfig, {**server_options, "base_url": server, "model": server_model})
            if server
            else None,
            oracle_share=0.5 if oracle_share is None else oracle_share,
            dialogue=assignments(dialogue or ()),
            plan=planner,
            say=lambda line: screen.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True),
            advance=bar.advance,
            expect=bar.expect,
        )
    show([table], json)


SCORERS = ("strict", "official")


def text_game(
    data: Annotated[Path, typer.Option(metavar="DIR", help="A folder of transitions (see oneiro data).")],
    answers: Annotated[
        str | None,
        typer.Option(
            metavar="perfect|no-change|lookup|FILE", help='What to score; FILE: {"id", "answer"} a line, raw outputs.'
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="DIR|NAME", help="A run, a model folder or a model's name.")
    ] = None,
    scorer: Annotated[str, typer.Option(metavar="strict|official", help="What counts as exact.")] = "strict",
    split: Annotated[str, typer.Option(help="Which rows of the data.")] = "test",
    rows: Annotated[int, typer.Option(min=0, help="With --model: at most so many rows; 0: all.")] = 0,
    held_out: Annotated[
        str,
        typer.Option(metavar="GAME,...", help="Games that training never saw, reported apart; a model names its own."),
    ] = "",
    depth: Annotated[int, typer.Option(min=0, help="With --model: steps of recorded winning plans to simulate.")] = 8,
    settings: TaskSettings = None,
    keep: Annotated[Path | None, typer.Option(metavar="FILE", help="With --model: where its raw outputs go.")] = None,
    json: JsonFile = None,
) -> None:
    """Score predicted next states beside "no change", a lookup among training rows and "perfect", with 95 % intervals.

    \b
    oneiro eval text-game --data DATA --answers perfect --scorer strict
    oneiro eval text-game --data DATA --answers answers.jsonl --json scores.json
    oneiro eval text-game --data DATA --model runs/games --keep answers.jsonl
    """
    from oneiro.recipe import assignments

    if scorer not in SCORERS:
        raise OneiroError(f"no scorer called '{scorer}'{nearest(scorer, SCORERS)}")
    if (model is None) == (answers is None):
        raise OneiroError("say what is scored: either --model DIR_OR_NAME or --answers perfect|no-change|lookup|FILE")
    chosen: Scorer = "official" if scorer == "official" else "strict"
    task = assignments(settings or ())
    if "scorer" in task:
        raise OneiroError("the scorer is no setting here; give --scorer strict or --scorer official")
    task["scorer"] = scorer
    from oneiro.runtime.progress import console
    from oneiro.tasks.textgame import command
    from oneiro.tasks.textgame.evaluation import step_tables
    from oneiro.tasks.textgame.rollout import find_plans

    unseen = [name.strip() for name in held_out.split(",") if name.strip()]
    if model is not None:
        evaluation, predictor = command.open_model(data, model, split, rows, task, held_out=unseen)
        plans = find_plans(data, split, depth, held_out=evaluation.held_out)
        train = command.training_rows(data, split, evaluation.held_out)
        with progress("answers", len(evaluation.rows)) as bar:
            compared = command.score_model(
                evaluation, predictor, Path(model).name, chosen, keep, bar.advance, plans, train
            )
    else:
        evaluation = command.open_evaluation(data, split, held_out=unseen)
        train = command.training_rows(data, split, unseen)
        compared = command.score_answers(evaluation, str(answers), chosen, task, train)
    tables = step_tables(compared)
    for table in tables:
        console().print(table)
    if json is not None:
        write_json(json, {"tables": [table.data() for table in tables], **compared})


# score: anyone's predictions beside what needs no model ---------------------------------------------------------------

Pairs = Annotated[Path, typer.Option(metavar="FILE", help="JSON lines, a step each, with predictions.")]
Train = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The steps that the model was trained on, for the lookups.")
]
NO_TRAIN = "without --train FILE there is no lookup: a model that only remembers its training steps is not found out"


def score_text(pairs: Pairs, train: Train = None, json: JsonFile = None) -> None:
    """Score predicted next states, texts or JSON: exact, and precision, recall and F1 of what changes.

    \b
    A line of FILE: {"episode": "7", "state": ..., "action": "open door", "next": ..., "prediction": ...}
    oneiro score text --pairs predictions.jsonl --train train.jsonl --json scores.json
    """
    _show_scores("text", pairs, train, json)


def score_page(pairs: Pairs, train: Train = None, json: JsonFile = None) -> None:
    """Score predicted next pages: a line for each element, ids in brackets at its beginning count for nothing.

    \b
    oneiro score page --pairs predictions.jsonl --train train.jsonl
    """
    _show_scores("page", pairs, train, json)


def score_video(pairs: Pairs, train: Train = None, json: JsonFile = None) -> None:
    """Score predicted frames: PSNR, SSIM, mean absolute and squared error.

    \b
    A line of FILE: {"episode": "7", "frames": "7.npy", "given": 2, "prediction": "7-mine.npy", "actions": [[...]]}
    oneiro score video --pairs predictions.jsonl --train train.jsonl
    """
    _show_scores("video", pairs, train, json)


def _show_scores(subject: Literal["text", "page", "video"], pairs: Path, train: Path | None, json: Path | None) -> None:
    if train is None:
        warn(NO_TRAIN)
    if subject == "video":
        from oneiro.tasks.video import scorer as frames

        tables = frames.score(pairs, train)
    else:
        from oneiro.tasks import scorer

        tables = scorer.score(subject, pairs, train)
    show(tables, json)
