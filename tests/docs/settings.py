"""Every dotted setting that prose names (`rl.steps=3`, `rl.learner.optimiser.lr`) against the recipe classes."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache

from pydantic import BaseModel

from oneiro.recipe import Recipe, find, listing, load, read
from oneiro.recipe.mistakes import models_in
from oneiro.runtime.errors import OneiroError
from oneiro.systems import recipe_class

SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
KEY = re.compile(r"[a-z_]+(?:\.[a-z_0-9]+)+(?:=.*)?$")
FOREIGN = re.compile(r"\b(?:TRL|verl|vLLM|SGLang|Hydra|peft)\b[^|\n;]*?: [^|\n;]*")
SUFFIXES = ("py", "md", "yaml", "json", "jsonl", "html", "txt", "svg", "npz", "parquet", "toml")
"""`rollout.py` is a file, not a setting."""


@cache
def recipes() -> dict[str, type[Recipe]]:
    """Every shipped recipe -> its class."""
    return {card.name: recipe_class(str(read(find(card.name))["system"])) for card in listing()}


def known(key: str, kind: type[BaseModel]) -> bool:
    """Whether the dotted key exists in a settings class; a section that is open to any key knows all of them."""
    head, _, rest = key.partition(".")
    if head not in kind.model_fields:
        return kind.model_config.get("extra") == "allow"
    if not rest:
        return True
    annotation = kind.model_fields[head].annotation
    return any(known(rest, section) for section in models_in(annotation)) or "dict" in str(annotation)


@cache
def sections() -> frozenset[str]:
    """The names that a dotted setting may begin with."""
    kinds = set(recipes().values())
    return frozenset(name for kind in kinds for name, f in kind.model_fields.items() if any(models_in(f.annotation)))


def unknown_settings(text: str, own: Collection[str] = ()) -> list[str]:
    """The settings in code spans of `text` that no recipe has, or whose value no recipe takes.

    `own` are values that the page brings itself. What another library is said to call something is its own.
    """
    found: list[str] = []
    for span in SPAN.findall(FOREIGN.sub("", text)):
        words = [word for word in span.split() if _is_setting(word)]
        unknown = [word for word in words if not takers(word)]
        found += [f"no recipe has the setting {word.partition('=')[0]}" for word in unknown]
        if words and not unknown and all(_has_value(word, own) for word in words):
            found += _refused(words)
    return found


def _is_setting(word: str) -> bool:
    head, *rest = word.partition("=")[0].split(".")
    return bool(KEY.match(word)) and bool(rest) and head in sections() and rest[-1] not in SUFFIXES


def takers(word: str) -> list[str]:
    """The recipes that have the setting."""
    return [recipe for recipe, kind in recipes().items() if known(word.partition("=")[0], kind)]


def _has_value(word: str, own: Collection[str]) -> bool:
    """Whether a value is written out: neither a placeholder nor something that the page makes."""
    value = word.partition("=")[2]
    return bool(value) and "..." not in value and not re.search(r"[A-Z]{2,}|\|", value) and value not in own


def _refused(words: list[str]) -> list[str]:
    """Why no recipe takes these settings together, if none does."""
    problem = ""
    for recipe in set.intersection(*(set(takers(word)) for word in words)):
        try:
            load(recipe, words)
            return []
        except OneiroError as error:
            problem = str(error)
    # A key of another choice than the recipe's own (`rl.algorithm.lam` where the algorithm has none) does exist.
    return [] if problem.startswith("unknown key") else [problem]
