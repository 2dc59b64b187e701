"""data webrl: the published files of WebRL, and what its processing and task scripts do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from oneiro.cli.show import JsonFile, show, warn
from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError


def offer(parent: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Read and write WebRL's files, process rollouts, grow tasks.")
    group.command("import")(import_)
    group.command()(export)
    group.command()(process)
    group.command()(generate)
    parent.add_typer(group, name="webrl")


def import_(
    source: Annotated[
        Path,
        typer.Option("--from", metavar="DIR|FILE", help="A run with traces/ and actions/; or a .pt or .jsonl file."),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The processed trajectories, as JSON lines.")],
    sharegpt: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the steps of successes as SFT data too.")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Import WebRL's rollouts or processed files. What is malformed is named by file and line, and left out.

    \b
    oneiro data webrl import --from results/run --out phase1.jsonl
    oneiro data webrl import --from phase1.pt --out phase1.jsonl
    """
    from oneiro.runtime import files
    from oneiro.systems.webrl import formats, task_files

    if source.is_dir():
        read = formats.read_traces(source)
        _name(read.problems)
        trajectories = [formats.process_trace(trace, trace.score >= 1) for trace in read.traces]
        skipped = len(read.problems)
        if sharegpt is not None:
            rows = [row for trace in read.traces if trace.score >= 1 for row in task_files.sharegpt(trace)]
            files.write_json(sharegpt, rows)
    else:
        trajectories, problems = formats.read_processed(source)
        _name(problems)
        skipped = len(problems)
    formats.write_processed(out, trajectories)
    table = Table(f"Trajectories in {out}", ["trajectories", "steps", "successes", "problems"])
    done = sum(bool(steps[-1]["trajectory_reward"]) for steps in trajectories)
    table.add(len(trajectories), sum(map(len, trajectories)), done, skipped)
    show([table], json)


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run of a webrl recipe.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where traces/ and actions/ go.")],
    phase: Annotated[int, typer.Option(min=0, help="Whose rollouts; 0: those of the SFT model.")] = 1,
    json: JsonFile = None,
) -> None:
    """Write a phase's rollouts as WebRL's traces.

    \b
    oneiro data webrl export runs/webrl-sandbox-1 --phase 1 --out traces
    """
    from oneiro.agents.reply import action_in
    from oneiro.systems.webrl import episodes as records
    from oneiro.systems.webrl import formats
    from oneiro.systems.webrl.episodes import intent_of, key_of, turns_of

    trajectories = records.read_folder(run / f"phase_{phase}" / "rollouts")
    if not trajectories:
        raise OneiroError(f"{run} has no rollouts of phase {phase}; see {run}/phase_*/rollouts")
    traces = []
    for t in trajectories:
        steps = [formats.TraceStep(i, turn["state"], action_in(turn["reply"])) for i, turn in enumerate(turns_of(t))]
        traces.append(formats.Trace(key_of(t), intent_of(t), steps, float(t.success)))
    table = Table(f"Traces in {out}", ["traces", "successes"])
    table.add(formats.write_traces(out, traces), sum(t.success for t in trajectories))
    show([table], json)


def process(
    source: Annotated[Path, typer.Option("--from", metavar="DIR", help="A run with traces/ and actions/.")],
    out: Annotated[Path, typer.Option(metavar="FILE.jsonl", help="Stage 1; stage 2 is FILE_filter.jsonl beside it.")],
    experience: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Stage-1 files of earlier phases; may be repeated.")
    ] = None,
    actor: Annotated[
        str | None, typer.Option(metavar="DIR|NAME", help="The model whose perplexity selects what is replayed.")
    ] = None,
    add_reward: Annotated[
        bool, typer.Option("--add-reward", help="Label by visible evidence (`rules`) instead of the stored scores.")
    ] = False,
    copied: Annotated[
        bool, typer.Option("--copied-reward", help="Put the reward on every step, as released, not on the last.")
    ] = False,
    stage: Annotated[int, typer.Option(min=1, max=2, help="The last stage to do.")] = 2,
    seed: Annotated[int, typer.Option(help="Decides which steps are replayed, and their order.")] = 0,
    json: JsonFile = None,
) -> None:
    """What WebRL's process_data.py does: rollouts into steps (stage 1), with replayed successes beside them (stage 2).

    \b
    oneiro data webrl process --from results/run --out phase2.jsonl --stage 1
    oneiro data webrl process --from results/run --out p2.jsonl --experience p1.jsonl --actor runs/a/phase_1/actor
    """
    from oneiro.systems.webrl import formats, processing

    if out.suffix != ".jsonl":
        raise OneiroError(f"{out} does not end in .jsonl; say --out FILE.jsonl")
    read = formats.read_traces(source)
    _name(read.problems)
    labels = processing.rule_labels(read.traces) if add_reward else [trace.score >= 1 for trace in read.traces]
    new = [formats.process_trace(trace, done, copied) for trace, done in zip(read.traces, labels, strict=True)]
    formats.write_processed(out, new)
    table = Table("Processed steps", ["file", "trajectories", "steps", "successes", "replayed"])
    table.add(str(out), len(new), sum(map(len, new)), sum(labels), 0)
    if stage == 2:
        past: list[list[dict[str, Any]]] = []
        for path in experience or ():
            trajectories, problems = formats.read_processed(path)
            _name(problems)
            past += trajectories
        if past and actor is None:
            raise OneiroError("stage 2 selects by perplexity: say --actor DIR, or --stage 1")
        rank = processing.ranker(actor) if past and actor is not None else None
        flat = formats.select_steps(new, past, rank, (0.5, 0.95), 2.0, seed)
        path = out.with_name(f"{out.stem}_filter.jsonl")
        formats.write_filtered(path, flat)
        table.add(str(path), len(new), len(flat), sum(labels), sum("rank_score" in step for step in flat))
    show([table], json)


def generate(
    failures: Annotated[
        Path, typer.Option(metavar="FILE", help='Failed tasks, a line each: {"web": site, "task": instruction}.')
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the task configs go, one file each.")],
    tasks: Annotated[int, typer.Option(min=1, help="How many to make.")] = 100,
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="An OpenAI-compatible server that proposes tasks.")
    ] = None,
    server_model: Annotated[str | None, typer.Option(metavar="NAME", help="The server's name of the model.")] = None,
    unmatched: Annotated[
        bool, typer.Option("--unmatched", help="Keep proposals that fit no template, with a dummy grader.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Decides which tasks grow.")] = 0,
    json: JsonFile = None,
) -> None:
    """What WebRL's gen_task.py does: new tasks from failed ones, filtered and deduplicated, in WebArena's format.

    Without a server tasks grow by operators on templates, and each has its own graders.

    \b
    oneiro data webrl generate --failures failed.jsonl --out tasks --tasks 100
    oneiro data webrl generate --failures failed.jsonl --out tasks --server http://127.0.0.1:8000/v1 --server-model qwen
    """
    from oneiro.sampling.server import ServerConfig
    from oneiro.systems.webrl import processing, task_files

    if (server is None) != (server_model is None):
        raise OneiroError("--server URL and --server-model NAME go together")
    read, problems = task_files.read_failures(failures)
    _name(problems)
    if not read:
        raise OneiroError(f"{failures} holds no failed task")
    config = ServerConfig(base_url=server, model=str(server_model)) if server else None
    made = processing.grow(read, tasks, config, unmatched, seed)
    task_files.write_configs(out, made.configs)
    for text in made.unknown:
        warn(f"no template says: {text[:100]}")
    table = Table(f"Tasks in {out}", ["tasks", "with graders", "failures that fit a template", "failures"])
    table.add(len(made.configs), made.graded, made.matched, len(read))
    show([table], json)


def _name(problems: Sequence[Any]) -> None:
    for problem in problems:
        warn(str(problem))
