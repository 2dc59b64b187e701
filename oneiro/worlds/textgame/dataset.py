"""A folder of transitions: every distinct state once, and rows that point to them.

    states.jsonl.gz   one state a line
    SPLIT.jsonl.gz    one transition a line, states by their line number
    rules.json.gz     {"human" | "llm": {game: {"object", "action", "score"}}}
    data.json         format, name, games with their tasks, rows per split; written last, so its presence means whole

The 153,626 ByteSized32 transitions have 2,753 distinct states, so the whole folder is about a megabyte and fits in
memory: any row can be had by its number, in any order.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.worlds.textgame.state import Score, State, Transition

FORMAT = "oneiro-textgame-1"
_SPLIT = re.compile(r"(?!states$)[A-Za-z0-9_-]{1,40}")
"""Names of splits: each is that of a file beside `states.jsonl.gz`."""
_MANIFEST = {"name": str, "splits": dict, "tasks": dict, "scores": list}
"""What `data.json` has besides its format."""
EXAMPLE = "example"
"""The split whose rows only serve as examples inside prompts."""

Rules = dict[str, dict[str, dict[str, str]]]
"""Who wrote them ("human", "llm") -> game -> "object", "action", "score" -> text."""


@dataclass(frozen=True, slots=True)
class TransitionRow:
    """A transition as it is stored: states and scores by number."""

    id: str
    game: str
    action: str
    uuid_base: int
    state: int
    after_action: int
    after: int
    score: int
    score_after: int
    duplicate: int | None
    on_plan: int
    observation: str = ""


@dataclass(frozen=True)
class Dataset(Sequence[Transition]):
    """The transitions of one split, by number. Built by `open_dataset`."""

    name: str
    split: str
    tasks: dict[str, str]
    states: Sequence[State]
    scores: Sequence[Score]
    rows: Sequence[TransitionRow]
    rules: Rules = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._transition(row) for row in self.rows[index]]
        return self._transition(self.rows[index])

    def __iter__(self) -> Iterator[Transition]:
        return map(self._transition, self.rows)

    @property
    def games(self) -> list[str]:
        """The games that occur in this split, sorted."""
        return sorted({row.game for row in self.rows})

    def only(self, games: Iterable[str]) -> Dataset:
        """The rows of some games; with `games` of the complement it makes a held-out split."""
        wanted = set(games)
        if unknown := sorted(wanted - set(self.games)):
            raise OneiroError(f"no game '{unknown[0]}' in {self.name}/{self.split}{nearest(unknown[0], self.games)}")
        rows = [row for row in self.rows if row.game in wanted]
        return Dataset(self.name, self.split, self.tasks, self.states, self.scores, rows, self.rules)

    def _transition(self, row: TransitionRow) -> Transition:
        return Transition(
            id=row.id,
            split=self.split,
            game=row.game,
            task=self.tasks[row.game],
            state=self.states[row.state],
            score=self.scores[row.score],
            action=row.action,
            uuid_base=row.uuid_base,
            after_action=self.states[row.after_action],
            after=self.states[row.after],
            score_after=self.scores[row.score_after],
            duplicate=None if row.duplicate is None else bool(row.duplicate),
            on_plan=bool(row.on_plan),
            observation=row.observation,
        )


class _Table:
    """Distinct values by number, recognised by their JSON text."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def number(self, value: Any) -> int:
        return self.texts.setdefault(json.dumps(value, separators=(",", ":")), len(self.texts))


def write_dataset(
    out: str | Path, name: str, transitions: Iterable[Transition], rules: Rules, example: Iterable[Transition] = ()
) -> dict[str, int]:
    """Write transitions of any splits to the folder `out`, streaming; returns rows per split.

    `example` transitions go to the split of that name, whatever their own says. The manifest is written last.
    """
    out = Path(out)
    manifest = out / "data.json"
    if manifest.exists() and files.read_json(manifest).get("format") != FORMAT:
        raise OneiroError(f"{out} holds something else than text-game data; choose another folder")
    # Old rows with a new manifest, or half of each, would read as whole.
    manifest.unlink(missing_ok=True)
    states, scores, tasks = _Table(), _Table(), dict[str, str]()
    lines: dict[str, list[str]] = {}
    for split, transition in _tag(transitions, example):
        if split not in lines and not _SPLIT.fullmatch(split):
            raise OneiroError(f"{transition.id} is of the split '{split[:40]}', which is no name for a file")
        tasks[transition.game] = transition.task
        numbers = [states.number(s) for s in (transition.state, transition.after_action, transition.after)]
        numbers += [scores.number(s) for s in (transition.score, transition.score_after)]
        flags = [None if transition.duplicate is None else int(transition.duplicate), int(transition.on_plan)]
        words = [transition.observation] if transition.observation else []
        row = [transition.id, transition.game, transition.action, transition.uuid_base, *numbers, *flags, *words]
        lines.setdefault(split, []).append(json.dumps(row, separators=(",", ":")))
    for split, texts in lines.items():
        _write_lines(out / f"{split}.jsonl.gz", texts)
    _write_lines(out / "states.jsonl.gz", states.texts)
    _write_lines(out / "rules.json.gz", [json.dumps(rules)])
    counts = {split: len(texts) for split, texts in sorted(lines.items())}
    described = {"format": FORMAT, "name": name, "splits": counts, "tasks": tasks}
    files.write_json(manifest, described | {"scores": [json.loads(text) for text in scores.texts]})
    return counts


def open_dataset(folder: str | Path, split: str = "train") -> Dataset:
    """One split of a folder written by `write_dataset`."""
    folder = Path(folder)
    described = _read_description(folder)
    if split not in described["splits"]:
        raise OneiroError(f"{folder} has no split '{split}'{nearest(split, described['splits'])}")
    try:
        states = [json.loads(line) for line in _lines(folder / "states.jsonl.gz")]
        rows = [TransitionRow(*json.loads(line)) for line in _lines(folder / f"{split}.jsonl.gz")]
        rules = json.loads("".join(_lines(folder / "rules.json.gz")))
        _check(rows, described["tasks"], len(states), len(described["scores"]))
    except (OSError, EOFError, ValueError, TypeError) as error:
        raise OneiroError(f"{folder} is damaged ({error}); import the data again") from error
    if len(rows) != described["splits"][split]:
        raise OneiroError(
            f"{folder} has {len(rows)} rows of '{split}' and should have {described['splits'][split]}; import it again"
        )
    return Dataset(described["name"], split, described["tasks"], states, described["scores"], rows, rules)


def require_games(names: Iterable[str], folder: str | Path, *among: Dataset | None) -> None:
    """Refuse a game that none of some splits of a folder has: misspelt, it would be passed over without a word."""
    known = {game for data in among if data is not None for game in data.games}
    if missing := sorted(set(names) - known):
        raise OneiroError(f"no game '{missing[0]}' in {folder}{nearest(missing[0], known)}")


def splits(folder: str | Path) -> dict[str, int]:
    """Rows per split of a folder."""
    return dict(_read_description(Path(folder))["splits"])


def _read_description(folder: Path) -> dict[str, Any]:
    if not (folder / "data.json").is_file():
        raise OneiroError(
            f"{folder} holds no text-game data; make it with `oneiro data bytesized32 --from SRC --out {folder}`"
        )
    described = files.read_json(folder / "data.json")
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise OneiroError(f"{folder}/data.json is not of format {FORMAT}; import the data again")
    for key, kind in _MANIFEST.items():
        if not isinstance(described.get(key), kind):
            raise OneiroError(f"{folder}/data.json has no '{key}'; import the data again")
    return described


def _check(rows: Iterable[TransitionRow], tasks: Mapping[str, str], states: int, scores: int) -> None:
    """Whether all that rows point to is there, so that none fails later; may raise `ValueError` or `TypeError`."""
    for row in rows:
        if row.game not in tasks:
            raise ValueError(f"data.json has no task for the game '{row.game}'")
        numbers = row.state, row.after_action, row.after
        points = row.score, row.score_after
        if min(numbers + points) < 0 or max(numbers) >= states or max(points) >= scores:
            raise ValueError(f"{row.id} points to a state or score that is not there")


def _tag(transitions: Iterable[Transition], example: Iterable[Transition]) -> Iterator[tuple[str, Transition]]:
    for transition in transitions:
        yield transition.split, transition
    for transition in example:
        yield EXAMPLE, transition


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    # A fixed time stamp: the same transitions give the same bytes.
    with (
        files.atomic(path) as part,
        part.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as sink,
    ):
        for line in lines:
            sink.write(line.encode() + b"\n")


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as handle:
        yield from handle


# ByteSized32: 32 small text games by other hands, as recorded transitions in JSON lines -------------------------------

# The source folder has `test.jsonl.gz` (the official test rows), `train_changed.jsonl.gz`, `train_unchanged.jsonl.gz`,
# `example_dishwasher.jsonl.gz` and `examples.jsonl.gz` (the game that only serves inside prompts), `rules.json.gz` and
# `meta.json`. Everything is streamed: unpacked, the unchanged rows alone are more than a gigabyte.

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
