"""Recorded tokens as a page shows them: the ids that were stored, each with its text; no template is applied again."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oneiro.board.folders import RunFolder
from oneiro.board.reading import remember
from oneiro.models.locate import newest_weights
from oneiro.rundir.tokens import SAMPLED, TokenRow, read_tokens, token_file
from oneiro.runtime.errors import OneiroError

MAX_TOKENS = 6000  # of an episode, on the page
AUTHORS = ("given", "sampled", "forced")


@dataclass(frozen=True)
class ShownToken:
    text: str
    author: str
    heat: int
    """0 (expected) to 9 (a surprise), for sampled tokens."""
    note: str


def token_rows(run: RunFolder, stage: str, step: int, episode: int) -> list[list[ShownToken]]:
    """The token rows of an episode; none where the run stored none."""
    path = token_file(run.path, stage, step)
    if not path.exists():
        return []
    tokenizer, room = _tokenizer(run, stage), MAX_TOKENS
    rows = []
    for row in read_tokens(run.file("episodes", path.name), episode):
        rows.append(_shown(row, tokenizer)[: max(0, room)])
        room -= len(row.ids)
    return [row for row in rows if row]


def _shown(row: TokenRow, tokenizer: Any) -> list[ShownToken]:
    texts = split_text(row.ids, tokenizer)
    shown = []
    for token, author, logprob, text in zip(row.ids, row.authors, row.logprobs, texts, strict=True):
        share = math.exp(min(0.0, logprob))
        sampled = author == SAMPLED
        note = f"id {token}, {AUTHORS[author]}" + (f", log-probability {logprob:.3f} ({share:.1%})" if sampled else "")
        shown.append(ShownToken(text, AUTHORS[author], min(9, int(10 * (1 - share))) if sampled else 0, note))
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
