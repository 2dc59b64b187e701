"""Steps of the web as parquet files with the published columns.

Published columns: `task_id`, `step_idx`, `previous_actions`, `next_state_acctree`, `refined_tao`, `raw_prediction`,
`next_state_description_with_tao`, `new_items`, `updated_items`, `deleted_items`, `question`, `answer`, `data_source`,
`prompt`, `ability`, `reward_model` and `extra_info`. Three of them are prose of a language model in the published data
and empty here. `extra_info` holds besides everything that a file needs to read back exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError
from oneiro.tasks.webpage.predictor import WebPagePredictor
from oneiro.tasks.webpage.prompt import NONE
from oneiro.tasks.webpage.state import PageState, PageTransition
from oneiro_web.diff import Item, Items

SOURCE = "web_agent"
BATCH = 256
_FACTS = ("site", "objective", "action", "valid", "probe", "done", "reward", "id", "episode", "template", "content")
_EXTRA = pa.struct(
    [
        ("split", pa.string()),
        ("index", pa.int64()),
        ("site", pa.string()),
        ("objective", pa.string()),
        ("action", pa.string()),
        ("valid", pa.bool_()),
        ("probe", pa.bool_()),
        ("done", pa.bool_()),
        ("reward", pa.float64()),
        ("id", pa.string()),
        ("episode", pa.string()),
        ("template", pa.string()),
        ("content", pa.int64()),
        ("before", pa.string()),
        ("after", pa.string()),
        ("matched", pa.string()),
    ]
)
_TEXTS = (
    "next_state_acctree",
    "refined_tao",
    "raw_prediction",
    "next_state_description_with_tao",
    "new_items",
    "updated_items",
    "deleted_items",
    "question",
    "answer",
    "data_source",
)
_SCHEMA = pa.schema(
    [
        ("task_id", pa.int64()),
        ("step_idx", pa.int64()),
        ("previous_actions", pa.list_(pa.string())),
        *((name, pa.string()) for name in _TEXTS),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        ("extra_info", _EXTRA),
    ]
)


def write_parquet(path: Path, cases: Iterable[PageTransition], task: WebPagePredictor | None = None) -> int:
    """Write steps with the task's prompts and answers, streaming; returns the rows."""
    task, count, tasks, batch = task or WebPagePredictor(), 0, dict[str, int](), list[dict[str, Any]]()
    with files.atomic(path) as part, pq.ParquetWriter(part, _SCHEMA, compression="zstd") as writer:
        for case in cases:
            batch.append(_row(case, count, tasks.setdefault(case.episode, len(tasks)), task))
            count += 1
            if len(batch) == BATCH:
                writer.write_batch(pa.RecordBatch.from_pylist(batch, _SCHEMA))
                batch = []
        writer.write_batch(pa.RecordBatch.from_pylist(batch, _SCHEMA))
    return count


def _row(case: PageTransition, index: int, number: int, task: WebPagePredictor) -> dict[str, Any]:
    change, target, messages = task.truth(case), task.target(case), task.prompt(case)
    return {
        "task_id": number,
        "step_idx": case.step,
        "previous_actions": list(case.previous) or [NONE],
        "next_state_acctree": "\n".join("\t" * item.depth + str(item) for item in case.after.items),
        **dict.fromkeys(("refined_tao", "raw_prediction", "next_state_description_with_tao"), ""),
        "new_items": _block(change.new),
        "updated_items": _block(change.updated),
        "deleted_items": _block(change.deleted),
        "question": messages[0]["content"],
        "answer": target,
        "data_source": SOURCE,
        "prompt": messages,
        "ability": "world model",
        "reward_model": {"style": "rule", "ground_truth": target},
        "extra_info": {
            "split": case.split,
            "index": index,
            **{name: getattr(case, name) for name in _FACTS},
            "before": _page(case.state),
            "after": _page(case.after),
            "matched": json.dumps(case.matched),
        },
    }


def _block(items: Items) -> str:
    return "\n".join(map(str, items)) or NONE


def _page(state: PageState) -> str:
    return json.dumps([state.url, state.items])


def read_parquet(path: str | Path) -> list[PageTransition]:
    """The steps of a file that was written here."""
    try:
        return list(_read(Path(path)))
    except FileNotFoundError as error:
        raise OneiroError(f"{path} does not exist; write one with: oneiro data web --out {path}") from error
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        reason = json.dumps(str(error).split("\n")[0][:120])
        raise OneiroError(
            f"{path} is no file of web steps with their pages ({type(error).__name__}: {reason}); write one with: "
            "oneiro data web"
        ) from error


def _read(path: Path) -> Iterator[PageTransition]:
    columns = ["step_idx", "previous_actions", "extra_info"]
    page = lru_cache(maxsize=64)(_state)  # a page is mostly the one after the step before
    for batch in pq.ParquetFile(path).iter_batches(BATCH, columns=columns):
        for row in batch.to_pylist():
            extra, previous = row["extra_info"], tuple(row["previous_actions"])
            yield PageTransition(
                **{name: extra[name] for name in _FACTS},
                state=page(extra["before"]),
                after=page(extra["after"]),
                matched=tuple(json.loads(extra["matched"])),
                previous=() if previous == (NONE,) else previous,
                step=row["step_idx"],
                split=extra["split"],
            )


def _state(text: str) -> PageState:
    url, items = json.loads(text)
    return PageState(url, tuple(Item(number, line, depth) for number, line, depth in items))
