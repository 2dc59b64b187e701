"""What a mistake in a recipe is called: one line, with the full key and what may have been meant."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from oneiro.runtime.errors import nearest

RENAMED = {
    "adversary": "discriminator",
    "canvas": "mean_frame",
    "courses": "trajectories",
    "draw": "sampler",
    "fold": "merge_lora",
    "given": "init_from",
    "glance": "eval_subset",
    "groups": "prompts_per_step",
    "hold": "action_repeat",
    "ignore_end": "ignore_eos",
    "lessons": "sft_data",
    "limits": "sampling",
    "members": "group_size",
    "overlap": "async_rollout",
    "primed": "response_prefix",
    "reach": "context_offset",
    "recompute": "gradient_checkpointing",
    "shared_body": "shared_backbone",
    "slots": "max_batch_size",
    "spread": "min_std",
    "strips": "sample_videos",
    "together": "rows_per_state",
    "watch": "collapse_monitor",
}
"""Settings of earlier recipes -> their present names, for the message."""
GONE = {
    "protocol": "leave it out; a preset or a model takes a published protocol with `base: _published/spa`",
    "retold": "leave it out; states with other names, numbers and order did not help",
}
"""Settings of earlier recipes -> what is to be done without them."""
RENAMED_VALUES = {"curious": "exploration", "gigpo": "state-grpo", "release": "official", "sound": "strict"}
EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
    "dict": "a section, whose settings are written section.key=value",
    "model": "a section, whose settings are written section.key=value",
    "list": "a list in brackets, [a,b]",
    "tuple": "a list in brackets, [a,b]",
}
"""What a value of a type is called."""
WRONG_TYPE = re.compile("_(type|parsing|from_float|attributes_type)$")


def explain(error: ValidationError, recipe_class: type[BaseModel], data: Any) -> str:
    """The first mistake in one line, with the full dotted key."""
    problems = error.errors(include_url=False)
    first = problems[0]
    path = _path(first["loc"], data)
    key = ".".join(path)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    if first["type"] == "extra_forbidden":
        if path[:1] == ["model"] and "model" not in recipe_class.model_fields:
            return f"this recipe has no language model to choose; leave out model=...{more}"
        if key in GONE:
            return f"{key!r} is no setting any more: {GONE[key]}{more}"
        hint = _renamed_key(path, recipe_class) or _elsewhere(path, recipe_class, data)
        return hint or f"unknown key {key!r}{_nearest_key(path, recipe_class)}{more}"
    if first["type"] == "literal_error" and first["input"] in RENAMED_VALUES:
        return f"{key}: {first['input']!r} is now called {RENAMED_VALUES[first['input']]!r}"
    if first["type"] == "missing":
        return f"missing key {key!r}: give it as {key}=value{more}"
    if first["type"] == "union_tag_invalid":
        names = [name.strip(" '") for name in first["ctx"]["expected_tags"].split(",")]
        return f"{key}: nothing is called {first['ctx']['tag']!r}{nearest(first['ctx']['tag'], names)}{more}"
    if first["type"] == "list_type" and isinstance(first["input"], str):
        return f"{key}: expected a list; write {key}=[{first['input']}]{more}"
    message = first["msg"].removeprefix("Value error, ")
    plainly = EXPECTED.get(first["type"].partition("_")[0]) if WRONG_TYPE.search(first["type"]) else None
    expected = f"expected {plainly}" if plainly else re.sub(r"^Input should be ", "expected ", message)
    given = repr(first["input"])
    return f"{key or 'recipe'}: got {given if len(given) <= 60 else given[:57] + '...'}, {expected}{more}"


def _path(loc: tuple[int | str, ...], data: Any) -> list[str]:
    """The keys a person wrote. pydantic also lists the branches of unions it tried: those are not in the data."""
    path = []
    loc = tuple(part for part in loc if part != "[key]")  # said of a key that is wrong itself
    for depth, part in enumerate(loc):
        inside = isinstance(data, Mapping) and part in data
        if inside or (isinstance(data, list) and isinstance(part, int) and part < len(data)):
            data = data[part]
        elif depth < len(loc) - 1 or not isinstance(data, Mapping):
            continue
        path.append(str(part))
    return path


def _renamed_key(path: list[str], recipe_class: type[BaseModel]) -> str | None:
    """What to say of a key that had another name once, where its section knows the new one."""
    new = [*path[:-1], RENAMED.get(path[-1], "")]
    known = ".".join(new) in _keys(recipe_class)
    return f"{'.'.join(path)!r} is now called {'.'.join(new)!r}" if known else None


def _elsewhere(path: list[str], recipe_class: type[BaseModel], data: Any) -> str | None:
    """What to say of a key that the section has under another `name`, as `lam` belongs to some algorithms."""
    sections: list[type[BaseModel]] = [recipe_class]
    for part in path[:-1]:
        fields = [section.model_fields[part] for section in sections if part in section.model_fields]
        sections = [inner for field in fields for inner in models_in(field.annotation)]
        data = data.get(part) if isinstance(data, Mapping) else None
    owners = [section.model_fields.get("name") for section in sections if path[-1] in section.model_fields]
    names = sorted(str(field.default) for field in owners if field is not None)
    if not names:
        return None
    chosen = data.get("name") if isinstance(data, Mapping) else None
    here = f" of {chosen!r}" if chosen else ""
    return f"unknown key {'.'.join(path)!r}{here}: {', '.join(names)} {'have' if len(names) > 1 else 'has'} it"


def _nearest_key(path: list[str], recipe_class: type[BaseModel]) -> str:
    """A key of the same section that looks alike, else a key of that name in another section."""
    known = [key.rpartition(".") for key in _keys(recipe_class)]
    siblings = [leaf for section, _, leaf in known if section == ".".join(path[:-1])]
    alike = difflib.get_close_matches(path[-1], siblings, n=1)
    if alike:
        return f"; did you mean '{'.'.join([*path[:-1], alike[0]])}'?"
    namesakes = ["".join(key) for key in known if key[2] == path[-1]]
    return f"; did you mean '{namesakes[0]}'?" if namesakes else f"; known: {', '.join(sorted(siblings))}"


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every dotted key of a recipe class."""
    for name, field in model.model_fields.items():
        yield prefix + name
        for section in models_in(field.annotation):
            yield from _keys(section, f"{prefix}{name}.")


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models inside an annotation such as `PpoConfig | GrpoConfig | None`; containers are left out."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif typing.get_origin(annotation) not in (list, dict, tuple, set):
        for inner in typing.get_args(annotation):
            yield from models_in(inner)
