"""The public layout of this task: parquet files with a prompt, a ground truth and the present state in every row.

Columns: `data_source`, `prompt` (chat messages), `ability`, `reward_model` = {style, ground_truth: next state as JSON
text}, `extra_info` = {split, index, data_state: present state as JSON text, data_action}; states carry the score as
their last entry. Files written here have some more entries in `extra_info`, so that they read back exactly; public
files lack them, and what can be known of them is the state, the command, the next state and, from the prompt, the
UUID base.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from oneiro import files
from oneiro.errors import OneiroError
from oneiro.predictors.textgame import TextGame
from oneiro.predictors.textgame_prompt import full_state
from oneiro.worlds.textgame.dataset import Dataset
from oneiro.worlds.textgame.state import Score, State, Transition

SOURCE = "llm_simulator"
BATCH = 512
_BASE = re.compile(r"UUID base\D{0,20}(\d{1,9})", re.IGNORECASE)

_SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        (
            "extra_info",
            pa.struct(
                [
                    ("split", pa.string()),
                    ("index", pa.int64()),
                    ("data_state", pa.string()),
                    ("data_action", pa.string()),
                    ("id", pa.string()),
                    ("game", pa.string()),
                    ("task", pa.string()),
                    ("uuid_base", pa.int64()),
                    ("state_after_action", pa.string()),
                    ("duplicate", pa.bool_()),
                ]
            ),
        ),
    ]
)


def write_parquet(path: Path, cases: Iterable[Transition], task: TextGame, *, answers: bool = False) -> int:
    """Write transitions with the task's prompts, streaming; returns the rows.

    The ground truth is the next state; with `answers` it is the text SFT trains on, as in the public SFT file.
    """
    count = 0
    with files.atomic(path) as part, pq.ParquetWriter(part, _SCHEMA, compression="zstd") as writer:
        batch: list[dict[str, Any]] = []
        for case in cases:
            batch.append(_row(case, count, task, answers))
            count += 1
            if len(batch) == BATCH:
                writer.write_batch(pa.RecordBatch.from_pylist(batch, _SCHEMA))
                batch = []
        writer.write_batch(pa.RecordBatch.from_pylist(batch, _SCHEMA))
    return count


def _row(case: Transition, index: int, task: TextGame, answers: bool) -> dict[str, Any]:
    truth = task.target(case) if answers else json.dumps(full_state(case.after, case.score_after))
    return {
        "data_source": SOURCE,
        "prompt": task.prompt(case),
        "ability": "world model",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {
            "split": case.split,
            "index": index,
            "data_state": json.dumps(full_state(case.state, case.score)),
            "data_action": case.action,
            "id": case.id,
            "game": case.game,
            "task": case.task,
            "uuid_base": case.uuid_base,
            "state_after_action": json.dumps(case.after_action),
            "duplicate": case.duplicate,
        },
    }


def read_parquet(path: Path, known: Dataset | None = None) -> Iterator[Transition]:
    """The transitions of a file in the public layout, one at a time.

    Rows that say nothing of their game are looked up by state and command in `known`, if given; else their game is
    "unknown".
    """
    lookup = {_question(case.state, case.action): case for case in known or ()}
    try:
        source = pq.ParquetFile(path)
        columns = [name for name in ("prompt", "reward_model", "extra_info") if name in source.schema_arrow.names]
        rows = (row for batch in source.iter_batches(BATCH, columns=columns) for row in batch.to_pylist())
        for number, row in enumerate(rows):
            yield _transition(row, number, lookup)
    except FileNotFoundError as error:
        raise OneiroError(f"{path} does not exist; give a parquet file of text-game transitions") from error
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError, IndexError) as error:
        raise OneiroError(f"{path} is not in the public text-game layout ({type(error).__name__}: {error})") from error


def _transition(row: dict[str, Any], number: int, lookup: dict[str, Transition]) -> Transition:
    extra = row["extra_info"]
    state, score = _split(json.loads(extra["data_state"]))
    after, score_after = _split(json.loads(row["reward_model"]["ground_truth"]))
    found = lookup.get(_question(state, extra["data_action"]))
    bases = _BASE.findall(row["prompt"][-1]["content"]) if row.get("prompt") else []
    known = {name: getattr(found, name) for name in ("id", "game", "task", "uuid_base")} if found is not None else {}
    given = {name: extra[name] for name in ("id", "game", "task", "uuid_base") if extra.get(name) is not None}
    middle = extra.get("state_after_action")
    guessed: dict[str, Any] = {
        "id": f"public/{extra.get('index', number)}",
        "game": "unknown",
        "task": "",
        "uuid_base": int(bases[-1]) if bases else 1 + max(thing["uuid"] for thing in state),
    }
    return Transition(
        **(guessed | known | given),
        split=str(extra.get("split", "train")),
        state=state,
        score=score,
        action=str(extra["data_action"]),
        after_action=json.loads(middle) if middle else found.after_action if found is not None else after,
        after=after,
        score_after=score_after,
        duplicate=bool(extra.get("duplicate", False)),
    )


def _split(found: dict[str, Any]) -> tuple[State, Score]:
    """A state with its score as the last entry, taken apart."""
    *objects, score = found["game_state"]
    if "uuid" in score or not all("uuid" in thing for thing in objects):
        raise ValueError("a state without a score as its last entry")
    return objects, score


def _question(state: State, action: str) -> str:
    return json.dumps([state, action], sort_keys=True)
