"""Recorded tokens as a page shows them: the ids that were stored, each with its text; no template is applied again."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oneiro.board.episodes import remember
from oneiro.board.folders import RunFolder
from oneiro.models.locate import newest_weights
from oneiro.rundir.records import SAMPLED, TokenRow, read_tokens, token_file
from oneiro.runtime.errors import OneiroError

MAX_TOKENS = 6000  # of an episode, on the page
AUTHORS = ("given", "sampled", "forced")


COLOURS = {
    "logprob": "log-probability",
    "entropy": "entropy",
    "advantage": "advantage",
    "author": "who wrote it",
}
"""What the colour of a token can say, as the page names it."""


@dataclass(frozen=True)
class ShownToken:
    text: str
    author: str
    sign: str
    """`up` or `down` for the sign of an advantage."""
    heat: int
    """0 (nothing to see) to 9: how unexpected a sampled token was, how open the choice, how large its advantage."""
    note: str


@dataclass(frozen=True)
class ShownTokens:
    """The token rows of an episode in one colouring."""

    rows: list[list[ShownToken]]
    colours: dict[str, str]
    """The colourings that this episode has."""
    colour: str
    largest: float
    """Entropy or advantage that has the full colour."""


def token_rows(run: RunFolder, stage: str, step: int, episode: int, colour: str = "") -> ShownTokens | None:
    """The token rows of an episode; None where the run stored none."""
    path = token_file(run.path, stage, step)
    if not path.exists():
        return None
    stored = read_tokens(run.file("episodes", path.name), episode)
    columns = {"entropy": "entropies", "advantage": "advantages"}
    lacking = {name for name, column in columns.items() if all(getattr(row, column) is None for row in stored)}
    colours = {key: name for key, name in COLOURS.items() if key not in lacking}
    colour = colour if colour in colours else "logprob"
    values = [value for row in stored for value in getattr(row, columns.get(colour, ""), None) or ()]
    largest = max((abs(value) for value in values), default=0.0)
    tokenizer, room, rows = _tokenizer(run, stage), MAX_TOKENS, []
    for row in stored:
        rows.append(_colour_tokens(row, tokenizer, colour, largest)[: max(0, room)])
        room -= len(row.ids)
    return ShownTokens([row for row in rows if row], colours, colour, largest)


def _colour_tokens(row: TokenRow, tokenizer: Any, colour: str, largest: float) -> list[ShownToken]:
    texts, shown = split_text(row.ids, tokenizer), []
    nothing = [0.0] * len(row.ids)
    values = zip(row.logprobs, row.entropies or nothing, row.advantages or nothing, strict=True)
    for token, author, text, (logprob, entropy, advantage) in zip(row.ids, row.authors, texts, values, strict=True):
        note, heat = f"id {token}, {AUTHORS[author]}", 0.0
        if author == SAMPLED:
            chance = math.exp(min(0.0, logprob))
            note += f", log-probability {logprob:.3f} ({chance:.1%})"
            note += f", entropy {entropy:.3f}" if row.entropies else ""
            note += f", advantage {advantage:+.3f}" if row.advantages else ""
            part = {"logprob": 1 - chance, "entropy": entropy / (largest or 1), "advantage": advantage / (largest or 1)}
            heat = part.get(colour, 0.0)
        sign = "" if colour != "advantage" else "up" if heat > 0 else "down" if heat < 0 else ""
        shown.append(ShownToken(text, AUTHORS[author], sign, min(9, int(10 * abs(heat))), note))
    return shown


def split_text(ids: list[int], tokenizer: Any) -> list[str]:
    """The text of each token. A character of several tokens stands with its last one; without a tokenizer, the ids."""
    if tokenizer is None:
        return [f"{token} " for token in ids]
    texts: list[str] = []
    waiting: list[int] = []
    for token in ids:
        waiting.append(token)
        text = tokenizer.decode(waiting, skip_special_tokens=False)
        if text.endswith("\ufffd") and len(waiting) < 4:
            texts.append("")
            continue
        texts.append(text)
        waiting = []
    return texts


def _tokenizer(run: RunFolder, stage: str) -> Any:
    """The one beside the stage's weights, or beside those the run began with."""
    for folder in (stage, "base"):
        with contextlib.suppress(OneiroError, OSError):
            file = newest_weights(run.file("checkpoints", folder)) / "tokenizer.json"
            return _load_tokenizer(run.file(str(file.relative_to(run.path))))
    return None


@remember(8)
def _load_tokenizer(path: Path) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare exceptions
        raise OneiroError(f"{path} is no tokenizer") from error
