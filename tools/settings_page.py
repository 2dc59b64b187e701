"""The page of settings, made from the recipe classes when the site is built (a hook of mkdocs.yml)."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "web")]  # mkdocs runs the file alone

from oneiro.recipe import Recipe  # noqa: E402
from oneiro.recipe.mistakes import models_in  # noqa: E402
from oneiro.systems import SYSTEMS, recipe_class  # noqa: E402
from oneiro.worlds import registry  # noqa: E402

PAGE = "api/settings.md"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """What mkdocs calls for every page."""
    return markdown + "\n" + "\n".join(lines()) if page.file.src_uri == PAGE else markdown


def lines() -> Iterator[str]:
    """One section per class, systems first; a class that several systems share stands once."""
    for kind, places in classes().items():
        yield f"## {kind.__name__}\n"
        yield ", ".join(f"`{place}`" for place in places[:6]) + (", and others" if len(places) > 6 else "") + "\n"
        yield "| setting | default | meaning |\n|---|---|---|"
        texts = meanings(kind)
        # What all recipes have stands once, under Recipe.
        shared = Recipe.model_fields if kind is not Recipe and issubclass(kind, Recipe) else {}
        for name, field in ((name, field) for name, field in kind.model_fields.items() if name not in shared):
            inner = [f"[{model.__name__}](#{model.__name__.lower()})" for model in models_in(field.annotation)]
            meaning = " ".join(texts.get(name, "").split()) or ", ".join(inner)
            yield f"| `{name}` | {default(field)} | {meaning.replace('|', chr(92) + '|')} |"
        yield ""


def classes() -> dict[type[BaseModel], list[str]]:
    """Every class of settings -> where it stands: `spa: rl.learner.optimiser`."""
    places: dict[type[BaseModel], list[str]] = {Recipe: ["every recipe"]}

    def walk(kind: type[BaseModel], system: str, path: str) -> None:
        place = f"{system}: {path}" if path else system
        known = places.setdefault(kind, [])
        if place in known:
            return
        known.append(place)
        for name, field in kind.model_fields.items():
            for model in models_in(field.annotation):
                walk(model, system, f"{path}.{name}" if path else name)

    for system in SYSTEMS:
        walk(recipe_class(system), system, "")
    for name, world in registry.classes().items():
        walk(world.Config, f"world: {name}", "")
    # Recipes first, then what they are made of, each in the order in which it is met.
    return dict(sorted(places.items(), key=lambda item: all(":" in place for place in item[1])))


@functools.cache
def meanings(kind: type[BaseModel]) -> dict[str, str]:
    """Field -> its description, or the string below it in the source, those of parent classes included."""
    texts = {name: field.description for name, field in kind.model_fields.items() if field.description}
    for parent in reversed(kind.__mro__):
        if parent is BaseModel or not issubclass(parent, BaseModel):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(parent))).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in zip(definition.body, definition.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = text
    return texts


def default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        return ""
    if value is None or value == "" or value == [] or value == () or value == {}:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
