"""ByteSized32: 32 small text games by other hands, as recorded transitions in JSON lines.

The source folder has `test.jsonl.gz` (the official test rows), `train_changed.jsonl.gz`, `train_unchanged.jsonl.gz`,
`example_dishwasher.jsonl.gz` and `examples.jsonl.gz` (the game that only serves inside prompts), `rules.json.gz` and
`meta.json`. Everything is streamed: unpacked, the unchanged rows alone are more than a gigabyte.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from oneiro.runtime.errors import OneiroError
from oneiro.worlds.textgame.dataset import Rules, write_dataset
from oneiro.worlds.textgame.state import State, Transition

ROWS = ("test.jsonl.gz", "train_changed.jsonl.gz", "train_unchanged.jsonl.gz")
EXAMPLES = "examples.jsonl.gz"
"""The few transitions of the example game that prompts show."""

Report = Callable[[str, int], None]
"""Told the file that is read and how many of its rows are done."""


def read_transitions(path: str | Path) -> Iterator[Transition]:
    """The transitions of one file of JSON lines, plain or gzipped, one at a time."""
    path = Path(path)
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rt", encoding="utf-8") as handle:
            for line in handle:
                yield transition(json.loads(line))
                number += 1
    except FileNotFoundError as error:
        raise OneiroError(f"{path} does not exist; give the folder that holds {', '.join(ROWS)}") from error
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OneiroError(
            f"{path} is damaged after row {number} ({type(error).__name__}: {error}); get a fresh copy"
        ) from error


def transition(record: dict[str, Any]) -> Transition:
    """One record of the source files."""
    return Transition(
        id=record["id"],
        split=record["split"],
        game=record["game"],
        task=record["task"],
        state=checked_state(record["state"]),
        score=dict(record["score"]),
        action=str(record["action"]),
        uuid_base=int(record["uuid_base"]),
        after_action=checked_state(record["state_after_action"]),
        after=checked_state(record["state_after_tick"]),
        score_after=dict(record["score_after"]),
        duplicate=None if record.get("cross_split_dup") is None else bool(record["cross_split_dup"]),
        on_plan=bool(record.get("is_gold_action")),
        observation=str(record.get("observation", "")),
    )


def checked_state(objects: Any) -> State:
    """A state as it was recorded; ValueError, KeyError or TypeError where it is none."""
    for thing in objects:
        if not isinstance(thing["uuid"], int) or not isinstance(thing["properties"], dict):
            raise ValueError("an object has no whole uuid or no properties")
        if not isinstance(thing["contains"], list):
            raise ValueError("an object has no contents")
    return list(objects)


def read_rules(source: str | Path) -> Rules:
    """The rules of every game, written by people ("human") and by a language model ("llm")."""
    path = Path(source) / "rules.json.gz"
    try:
        with gzip.open(path, "rt", encoding="utf-8") as handle:
            rules: Rules = json.load(handle)
    except FileNotFoundError as error:
        raise OneiroError(f"{path} does not exist; give the folder of the ByteSized32 transitions") from error
    except (OSError, EOFError, ValueError) as error:
        raise OneiroError(f"{path} is damaged ({error}); get a fresh copy") from error
    return rules


def import_bytesized32(source: str | Path, out: str | Path, report: Report | None = None) -> dict[str, int]:
    """Import the transitions into the folder `out` (see `dataset`); returns rows per split."""
    source = Path(source)
    missing = [name for name in (*ROWS, EXAMPLES) if not (source / name).is_file()]
    if missing:
        raise OneiroError(
            f"{source} lacks {', '.join(missing)}; give the folder of the ByteSized32 transitions, or parquet files"
        )
    rules = read_rules(source)
    rows = (t for name in ROWS for t in _read_with_report(source / name, report))
    return write_dataset(out, "bytesized32", rows, rules, example=_distinct(read_transitions(source / EXAMPLES)))


def _read_with_report(path: Path, report: Report | None) -> Iterator[Transition]:
    for number, transition in enumerate(read_transitions(path), 1):
        if report is not None and number % 1000 == 0:
            report(path.name, number)
        yield transition


def _distinct(transitions: Iterable[Transition]) -> Iterator[Transition]:
    """The examples name one transition once for each role it plays; keep it once."""
    seen = set()
    for transition in transitions:
        if transition.id not in seen:
            seen.add(transition.id)
            yield transition
