"""Finding products by words: BM25 (Robertson and Zaragoza 2009), with the settings of the original shop's index."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from math import log

K1, B = 0.9, 0.4  # of BM25, as Anserini has them, which WebShop searches with
MAX_QUERY_CHARS = 300
"""Characters of a query that are read: it is what a model wrote."""

STOPWORDS = frozenset(
    (
        *("a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not"),
        *("of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was"),
        *("will", "with", "i", "me", "my", "am", "looking", "find", "want", "need", "would", "like"),
    )
)


def terms(text: str) -> list[str]:
    """The words that count: lower case, no stopwords, a plural s taken off."""
    words = (word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in STOPWORDS)
    return [word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word for word in words]


class Index:
    """An inverted index over documents; results are their numbers."""

    def __init__(self, documents: Sequence[str]) -> None:
        counts = [Counter(terms(document)) for document in documents]
        lengths = [count.total() for count in counts]
        mean = sum(lengths) / max(1, len(lengths)) or 1.0
        self._weights: dict[str, list[tuple[int, float]]] = defaultdict(list)
        frequency = Counter(term for count in counts for term in count)
        for number, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            for term, times in count.items():
                rarity = log(1 + (len(documents) - frequency[term] + 0.5) / (frequency[term] + 0.5))
                weight = rarity * times * (K1 + 1) / (times + K1 * (1 - B + B * length / mean))
                self._weights[term].append((number, weight))

    def search(self, query: str, limit: int) -> list[int]:
        """The best documents first; equals in the order of the documents."""
        scores: dict[int, float] = defaultdict(float)
        for term, times in Counter(terms(query[:MAX_QUERY_CHARS])).items():
            for number, weight in self._weights.get(term, ()):
                scores[number] += times * weight
        return sorted(scores, key=lambda number: (-scores[number], number))[:limit]
