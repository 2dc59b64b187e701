"""eval text-game: how often a predictor, or any file of answers, gets the whole next state right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oneiro.cli.show import JsonFile

if TYPE_CHECKING:
    from oneiro.tasks.textgame.predictor import Scorer

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
    settings: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of the task; may be repeated.")
    ] = None,
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
    from oneiro.runtime.errors import OneiroError, nearest

    if scorer not in SCORERS:
        raise OneiroError(f"no scorer called '{scorer}'{nearest(scorer, SCORERS)}")
    if (model is None) == (answers is None):
        raise OneiroError("say what is scored: either --model DIR_OR_NAME or --answers perfect|no-change|lookup|FILE")
    chosen: Scorer = "official" if scorer == "official" else "strict"
    task = assignments(settings or ())
    if "scorer" in task:
        raise OneiroError("the scorer is no setting here; give --scorer strict or --scorer official")
    task["scorer"] = scorer
    from oneiro.runtime.progress import Bar, console
    from oneiro.tasks.textgame import command
    from oneiro.tasks.textgame.evaluation import step_tables
    from oneiro.tasks.textgame.rollout import find_plans

    unseen = [name.strip() for name in held_out.split(",") if name.strip()]
    if model is not None:
        evaluation, predictor = command.open_model(data, model, split, rows, task, held_out=unseen)
        plans = find_plans(data, split, depth, held_out=evaluation.held_out)
        train = command.training_rows(data, split, evaluation.held_out)
        with Bar("answers", len(evaluation.rows), 0, console(), lambda line: None) as bar:
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
        from oneiro.runtime.files import write_json

        write_json(json, {"tables": [table.data() for table in tables], **compared})
