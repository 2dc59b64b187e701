"""The public layout of this task: parquet files with a prompt, a ground truth and the present state in every row.

Columns: `data_source`, `prompt` (chat messages), `ability`, `reward_model` = {style, ground_truth: next state as JSON
text}, `extra_info` = {split, index, data_state: present state as JSON text, data_action}; states carry the score as
their last entry. Files written here have some more entries in `extra_info`, so that they read back exactly; public
files lack them, and what can be known of them is the state, the command, the next state and, from the prompt, the
UUID base. Which questions stand on both sides of the split is found where both sides are imported together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError
from oneiro.tasks.textgame.predictor import TextGamePredictor
from oneiro.tasks.textgame.prompt import full_state
from oneiro.worlds.textgame.dataset import EXAMPLE, Dataset, Report, checked_state, open_dataset, splits, write_dataset
from oneiro.worlds.textgame.state import Score, State, Transition

SOURCE = "llm_simulator"
BATCH = 512
Lookup = dict[bytes, list[tuple[Dataset, int]]]
"""Where a question stands in data that is at hand."""
_BASE = re.compile(r"UUID base\D{0,20}(\d{1,9})", re.IGNORECASE)

_EXTRA = ("id", "game", "task", "uuid_base", "duplicate")
"""What public files leave out, and files written here or data at hand can tell."""

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
                    ("on_plan", pa.bool_()),
                    ("observation", pa.string()),
                ]
            ),
        ),
    ]
)


def write_parquet(
    path: Path,
    cases: Iterable[Transition],
    task: TextGamePredictor,
    *,
    answers: bool = False,
    advance: Callable[[int], None] = lambda rows: None,
) -> int:
    """Write transitions with the task's prompts, streaming; returns the rows.

    The ground truth is the next state; with `answers` it is the text SFT trains on, as in the public SFT file.
    `advance` is told of rows as they are written.
    """
    if task.config.transition != "full" and not answers:
        raise OneiroError("the public layout has whole steps as its ground truth; write it with transition=full")
    count = 0
    with files.atomic(path) as part, pq.ParquetWriter(part, _SCHEMA, compression="zstd") as writer:
        batch: list[dict[str, Any]] = []
        for case in cases:
            batch.append(_row(case, count, task, answers))
            count += 1
            if len(batch) == BATCH:
                writer.write_batch(pa.RecordBatch.from_pylist(batch, _SCHEMA))
                advance(len(batch))
                batch = []
        writer.write_batch(pa.RecordBatch.from_pylist(batch, _SCHEMA))
        advance(len(batch))
    return count


def _row(case: Transition, index: int, task: TextGamePredictor, answers: bool) -> dict[str, Any]:
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
            "on_plan": case.on_plan,
            "observation": case.observation,
        },
    }


def read_parquet(path: Path, known: Dataset | None = None) -> Iterator[Transition]:
    """The transitions of a file in the public layout, one at a time.

    Rows that say nothing of their game are looked up by split, state, score and command in `known`, if given; else
    their game is "unknown" and their id is the file's name with their number.
    """
    return _read(path, _lookup([known] if known is not None else []))


def _lookup(known: Iterable[Dataset]) -> Lookup:
    places: Lookup = {}
    for data in known:
        for number, case in enumerate(data):
            places.setdefault(_question(case.split, case.state, case.score, case.action), []).append((data, number))
    return places


def _read(path: Path, lookup: Lookup) -> Iterator[Transition]:
    with _explain_damage(path):
        source = pq.ParquetFile(path)
        columns = [name for name in ("prompt", "reward_model", "extra_info") if name in source.schema_arrow.names]
        rows = (row for batch in source.iter_batches(BATCH, columns=columns) for row in batch.to_pylist())
        for number, row in enumerate(rows):
            yield _transition(row, f"{Path(path).stem}/{number}", lookup)


@contextmanager
def _explain_damage(path: Path) -> Iterator[None]:
    """Turns what may go wrong with a file into a line that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise OneiroError(f"{path} does not exist; give a parquet file of text-game transitions") from error
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise OneiroError(f"{path} is not in the public text-game layout ({type(error).__name__}: {error})") from error


def _transition(row: dict[str, Any], name: str, lookup: Lookup) -> Transition:
    extra = row["extra_info"]
    state, score = _split(json.loads(extra["data_state"]))
    after, score_after = _split(json.loads(row["reward_model"]["ground_truth"]))
    split = str(extra.get("split", "train"))
    places = lookup.get(_question(split, state, score, str(extra["data_action"])), [])
    # Rows of the same question take their ids in turn.
    data, number = (places.pop(0) if len(places) > 1 else places[0]) if places else (None, 0)
    imported: Transition | None = data[number] if data is not None else None
    bases = _BASE.findall(row["prompt"][-1]["content"]) if row.get("prompt") else []
    known = {name: getattr(imported, name) for name in _EXTRA} if imported is not None else {}
    given = {name: extra[name] for name in _EXTRA if extra.get(name) is not None}
    middle = extra.get("state_after_action")
    guessed: dict[str, Any] = {
        "id": name,
        "game": "unknown",
        "task": "",
        # The last one: a prompt may show examples with bases of their own before it.
        "uuid_base": int(bases[-1]) if bases else 1 + max(thing["uuid"] for thing in state),
        "duplicate": None,
    }
    return Transition(
        **(guessed | known | given),  # what a row says itself counts over what is looked up, and that over guesses
        split=split,
        state=state,
        score=score,
        action=str(extra["data_action"]),
        after_action=checked_state(json.loads(middle)) if middle else (imported.after_action if imported else after),
        after=after,
        score_after=score_after,
        on_plan=bool(extra.get("on_plan", imported is not None and imported.on_plan)),
        observation=str(extra.get("observation") or (imported.observation if imported is not None else "")),
    )


def _split(entry: dict[str, Any]) -> tuple[State, Score]:
    *objects, score = entry["game_state"]
    if not isinstance(score, dict) or "uuid" in score:
        raise ValueError("a state without a score as its last entry")
    return checked_state(objects), score


def _question(split: str, state: State, score: Score, action: str) -> bytes:
    """What makes two rows the same question, in a few bytes: there may be a hundred thousand of them."""
    return blake2b(json.dumps([split, state, score, action], sort_keys=True).encode(), digest_size=16).digest()


# Whole folders --------------------------------------------------------------------------------------------------------


def parquet_files(source: Path) -> list[Path]:
    """The parquet files that a path names: itself, or all of a folder."""
    return [source] if source.suffix == ".parquet" else sorted(source.glob("*.parquet"))


def import_parquet(
    source: str | Path, out: str | Path, known: str | Path | None = None, report: Report | None = None
) -> tuple[dict[str, int], list[str]]:
    """Import files of the public layout into the folder `out` (see `worlds.textgame.dataset`).

    `known` is a folder imported before: it tells what public files leave out. Returns rows per split, and the names of
    files that were skipped since they hold answers to learn from and not next states.
    """
    paths = parquet_files(Path(source))
    if not paths:
        raise OneiroError(f"{source} holds no parquet files; give a file of the public layout, or a folder of them")
    sets = [open_dataset(known, split) for split in splits(known) if split != EXAMPLE] if known is not None else []
    lookup, rules = _lookup(sets), sets[0].rules if sets else {}
    skipped = [path.name for path in paths if _of_answers(path)]
    if len(skipped) == len(paths):
        raise OneiroError(f"{source} holds answers to learn from and no next states; give files of transitions")

    sources = [path for path in paths if path.name not in skipped]
    shared = _on_both_sides(sources)

    def rows() -> Iterator[Transition]:
        for path in sources:
            for number, row in enumerate(_read(path, lookup), 1):
                if report is not None and number % 1000 == 0:
                    report(path.name, number)
                if row.duplicate is None and shared is not None:
                    row = replace(row, duplicate=_question("", row.state, row.score, row.action) in shared)
                yield row

    return write_dataset(out, "bytesized32", rows(), rules), skipped


def _on_both_sides(paths: Iterable[Path]) -> set[bytes] | None:
    """The questions of more than one split among rows that do not say so themselves; None where there is one split."""
    sides: dict[bytes, str] = {}
    shared: set[bytes] = set()
    for path in paths:
        with _explain_damage(path):
            for batch in pq.ParquetFile(path).iter_batches(BATCH, columns=["extra_info"]):
                for extra in batch.column("extra_info").to_pylist():
                    if extra.get("duplicate") is None:
                        split = str(extra.get("split", "train"))
                        question = _question("", *_split(json.loads(extra["data_state"])), str(extra["data_action"]))
                        if sides.setdefault(question, split) != split:
                            shared.add(question)
    return shared if len({*sides.values()}) > 1 else None


def _of_answers(path: Path) -> bool:
    """Whether a file's ground truth is text to be learned, as in the public SFT file."""
    with _explain_damage(path):
        batch = next(pq.ParquetFile(path).iter_batches(1, columns=["reward_model"]), None)
        rows = batch.to_pylist() if batch is not None else []
    try:
        return bool(rows) and "game_state" not in json.loads(rows[0]["reward_model"]["ground_truth"])
    except (ValueError, TypeError, KeyError):
        return True
