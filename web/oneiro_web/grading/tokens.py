"""Words of an answer, as NLTK's `word_tokenize` cuts them, without its data files.

The rules are those of its Treebank tokenizer. Its sentence splitter is left out but for what matters to tokens: a full
stop that ends a word is a token of its own. NLTK keeps it on the word after known abbreviations (`mr.`) and after
numbers that begin a list (`5. apples`).
"""

from __future__ import annotations

import re
from functools import lru_cache

_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"([«“‘„]|`+)", r" \1 "),
        (r"^\"", "`` "),
        (r"([ (\[{<])(\"|'{2})", r"\1 `` "),
        (r"(?i)(')(?!re|ve|ll|m|t|s|d|n)(\w)\b", r"\1 \2"),
        (r"([:,])([^\d])", r" \1 \2"),
        (r"([:,])$", r" \1 "),
        (r"\.{2,}", r" \g<0> "),
        (r"[;@#$%&]", r" \g<0> "),
        (r"([^.])(\.)([\])}>\"'»”’ ]*)(?=\s|$)", r"\1 \2 \3 "),
        (r"[?!]", r" \g<0> "),
        (r"([^'])' ", r"\1 ' "),
        (r"[*]", r" \g<0> "),
        (r"[\]\[(){}<>]", r" \g<0> "),
        (r"--", " -- "),
        (r"$|^", " "),
        (r"([»”’])", r" \1 "),
        (r"''", " '' "),
        (r"\"", " '' "),
        (r"\s+", " "),
        (r"([^' ])('[sS]|'[mM]|'[dD]|') ", r"\1 \2 "),
        (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
        (r"(?i)\b(can)(not)\b", r" \1 \2 "),
        (r"(?i)\b(d)('ye)\b", r" \1 \2 "),
        (r"(?i)\b(gim|lem)(me)\b", r" \1 \2 "),
        (r"(?i)\b(gon|wan)(na)\b", r" \1 \2 "),
        (r"(?i)\b(got)(ta)\b", r" \1 \2 "),
        (r"(?i)\b(more)('n)\b", r" \1 \2 "),
        (r"(?i) ('t)(is|was)\b", r" \1 \2 "),
    )
)


@lru_cache(maxsize=32)
def tokens(text: str) -> tuple[str, ...]:
    """The words and signs of a text."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return tuple(text.split())
