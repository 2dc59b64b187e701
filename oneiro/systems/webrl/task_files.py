"""WebRL's task configs, lists of failures, and sharegpt SFT data, read and written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError
from oneiro.systems.webrl.formats import Plain, Problem, Trace, json_lines, policy_prompt, wrong_field
from oneiro_web.tasks import Task

SITES = ("shopping", "shopping_admin", "reddit", "gitlab", "map")


# Task configs ---------------------------------------------------------------------------------------------------------


def task_config(intent: str, site: str, number: int) -> Plain:
    """A generated instruction as a WebArena task, as the release writes them: its graders are dummies."""
    if site not in SITES:
        raise OneiroError(f"no site is called '{site}'; WebArena has {', '.join(SITES)}")
    return {
        "sites": [site],
        "task_id": number,
        "require_login": True,
        "storage_state": f"./.auth/{site}_state.json" if site != "map" else None,
        "start_url": f"__{site.upper()}__",
        "geolocation": None,
        "intent_template": "",
        "instantiation_dict": {},
        "intent": intent,
        "require_reset": False,
        "eval": {
            "eval_types": ["string_match"],
            "reference_answers": {"exact_match": "N/A"},
            "reference_url": "",
            "program_html": [],
            "string_note": "",
            "reference_answer_raw_annotation": "",
        },
        "intent_template_id": 0,
    }


def write_configs(folder: Path, configs: Sequence[Plain]) -> None:
    """`0.json`, `1.json`, ... and all of them in `tasks.json`."""
    for number, config in enumerate(configs):
        files.write_json(folder / f"{number}.json", config)
    files.write_json(folder / "tasks.json", list(configs))


def own_config(task: Task) -> Plain:
    """One of our own tasks in WebArena's layout, with its graders in `spec`."""
    return task.model_dump(mode="json")


def read_failures(path: Path) -> tuple[list[tuple[str, str]], list[Problem]]:
    """The release's list of failed tasks, `{"web": site, "task": intent}` a line."""
    names = {"cms": "shopping_admin", "oss": "shopping"}  # the release uses both spellings
    problems: list[Problem] = []
    tasks = []
    for number, row in json_lines(path, problems):
        if row is None:
            continue
        reason = wrong_field(row, {"web": str, "task": str})
        site = names.get(row["web"], row["web"]) if reason is None else ""
        if reason is None and site not in SITES:
            reason = f"no site is called '{row['web']}'"
        if reason is not None:
            problems.append(Problem(path, number, reason))
        else:
            tasks.append((site, row["task"]))
    return tasks, problems


# SFT data -------------------------------------------------------------------------------------------------------------


def sharegpt(trace: Trace) -> list[Plain]:
    """A record a step: the prompt, and the response to be learned."""
    past: list[str] = []
    rows = []
    for step in trace.steps:
        turns = [
            {"from": "human", "value": policy_prompt(trace.target, past, step.html)},
            {"from": "gpt", "value": step.response},
        ]
        rows.append({"conversations": turns})
        past.append(step.response)
    return rows
