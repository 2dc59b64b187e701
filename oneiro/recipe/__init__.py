"""Typed recipes: YAML, overlaid by what a model needs, by presets and by `key=value`; every mistake is one line.

    file  <  models: {NAME: ...}  <  presets: {NAME: ...}  <  key=value

A recipe file holds the fields of its system's recipe class and two sections of its own: `presets`, chosen by
`preset=smoke` (or `preset=smoke,paper`), and `models`, applied by itself when the recipe's model has that name; another
pretrained model takes the settings of SmolLM2-135M, fitted to its size (`pretrained`). A preset may have `models` too:
what it sets otherwise for a model. A preset or a model may have a `base`, settings in a file beside the recipe that lie
below its own (`base: _published/spa`: what `spa` is in `_published.yaml`). A setting that is null is back at its
default, unless null is a value of its own.

A section with a `name` is about the thing named: naming another one drops the settings of the first, and a bare
`model: tiny` means `model: {name: tiny}`.
"""

from __future__ import annotations

import pkgutil
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from oneiro.recipe import pretrained
from oneiro.recipe.mistakes import explain
from oneiro.runtime import plugins
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.runtime.files import NAME
from oneiro.runtime.processes import checked_workers

SHIPPED = Path(__file__).parents[1] / "recipes"
"""The recipes that come with the package, one YAML file each."""


def _check_name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError("expected a name: letters, digits, spaces and . + - = @ , after a letter or digit")
    return text


Name = Annotated[str, AfterValidator(_check_name)]
"""What a person calls a thing in a recipe."""
Workers = Annotated[int | str, AfterValidator(checked_workers)]
"""Who works elsewhere: N processes of this machine, or `ray`, `ray://HOST:PORT?actors=N` (`runtime.processes`)."""
Plain = dict[str, Any]
Built = TypeVar("Built", bound=BaseModel)


class Settings(BaseModel):
    """Base of every section of a recipe: typed, closed to unknown keys, never changed after it was read."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) and "name" in cls.model_fields else data


class Recipe(Settings):
    """What every system's recipe has. A system extends it beside its pipeline (`oneiro/systems/`)."""

    pipeline: ClassVar[str] = ""
    """The module whose `run(recipe, run)` carries it out; by default the module of the class."""
    system: str
    """The pipeline that runs it, a key of `oneiro.systems.SYSTEMS`."""
    about: str = ""
    """One line: what it shows."""
    needs: str = ""
    """Hardware and downloads, in words."""
    takes: str = ""
    """How long it runs, and on what."""
    next: list[str] = []
    """What to look at and to try afterwards, a line each; `{run}` is the run's folder."""
    seed: int = 0
    """Everything random in the run derives from it."""
    checkpoint_minutes: float | None = Field(10.0, gt=0)
    """Training saves a checkpoint after so many minutes, besides the ones by steps; None: by steps only."""
    profile: bool = False
    """Say where each step's time went."""
    threads: int | None = Field(None, ge=1)
    """Threads of one operation on a processor; by default as the model's size and the cores say (`runtime.threads`)."""
    track: list[str] = []
    """Where metrics go besides `metrics.jsonl`: tensorboard, wandb, trackio."""

    def check_places(self) -> None:
        """See that models, folders and views it names are there, before anything runs; one line where one is not."""

    @property
    def weights(self) -> tuple[str, ...]:
        """Models that it begins with, each by its name, its folder or its name on the hub."""
        return ()

    @property
    def parameters(self) -> int | None:
        """Size of the model where the recipe tells it; None: known when it is loaded, and taken for large."""
        return None


@dataclass(frozen=True)
class RecipeCard:
    """One line of `oneiro recipes`."""

    name: str
    about: str
    needs: str
    takes: str
    presets: tuple[str, ...]
    models: tuple[str, ...] = ()
    """Models that it has settings for, and which."""


def load(name: str, overrides: Sequence[str] = (), recipe_class: type[Recipe] | None = None) -> Recipe:
    """The recipe called `name` (`group/name`, or a path to a YAML file) with its overlays and overrides.

    Without `recipe_class` the file's `system` decides it.
    """
    return load_explained(name, overrides, recipe_class)[0]


def load_explained(
    name: str, overrides: Sequence[str] = (), recipe_class: type[Recipe] | None = None
) -> tuple[Recipe, str]:
    """The same, and in one line which settings its model gets and why; nothing where the file has no choice of them."""
    path = find(name)
    data = read(path)
    presets, models = _take_section(data, "presets", name), _take_section(data, "models", name)
    chosen, changes = _split(overrides, presets)
    layers = [_pick(presets, preset, f"preset of {name}") for preset in chosen]
    for layer in layers:
        _take_section(dict(layer), "models", f"a preset of {name}")
    if recipe_class is None:
        # Found by name when asked for: systems stand above recipes, and importing one may import torch.
        recipe_class = pkgutil.resolve_name("oneiro.systems:recipe_class")(str(data.get("system", "")))
    resolved, why = _overlay(data, models, layers, changes, recipe_class, path.parent)
    return build(recipe_class, resolved), why


def chosen_presets(overrides: Sequence[str]) -> list[str]:
    """The presets that `preset=NAME` or `preset=NAME,NAME` asks for."""
    return _split(overrides)[0]


def build(settings_class: type[Built], data: Mapping[str, Any]) -> Built:
    """Validate plain data; a mistake becomes one line that names the full dotted key."""
    try:
        return settings_class.model_validate(data)
    except ValidationError as error:
        raise OneiroError(explain(error, settings_class, data)) from error


def dump(recipe: Recipe) -> str:
    """The resolved recipe as YAML that `load` reads back to an equal recipe."""
    return yaml.dump(recipe.model_dump(mode="json"), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def plain(recipe: Recipe) -> Plain:
    """The resolved recipe as the mapping that its YAML reads back to."""
    return typing.cast(Plain, yaml.load(dump(recipe), _Loader))


def assignments(texts: Sequence[str]) -> Plain:
    """`["size=6", "slip.left=0.1"]` -> `{"size": 6, "slip": {"left": 0.1}}`."""
    return _change({}, _split(texts)[1])


def flat(data: Mapping[str, Any], prefix: str = "") -> Plain:
    """`{"sft": {"lr": 1}}` -> `{"sft.lr": 1}`."""
    values: Plain = {}
    for key, value in data.items():
        values |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {prefix + key: value}
    return values


def listing() -> list[RecipeCard]:
    """Every recipe of this package and of others, by name."""
    cards = []
    for name, path in sorted(_named_files().items()):
        try:
            data = read(path)
            presets, models = (_take_section(data, section, str(path)) for section in ("presets", "models"))
        except OneiroError as error:
            plugins.skip(error)
            continue
        words = {field: str(data.get(field, "")) for field in ("about", "needs", "takes")}
        cards.append(RecipeCard(name, presets=tuple(presets), models=pretrained.choices(models), **words))
    return cards


def find(name: str) -> Path:
    """The file of a recipe of this package or of another one, or the path itself when it is one."""
    if name.endswith((".yaml", ".yml")):
        if not Path(name).is_file():
            raise OneiroError(f"recipe file {name} does not exist")
        return Path(name)
    known = _named_files()
    if name not in known and Path(name).is_dir():
        raise OneiroError(f"{name} is a folder but no run: it has no recipe.yaml (`oneiro recipes` lists recipes)")
    if name not in known and _looks_like_a_path(name):
        wrong = f"{name} is a file that does not end in .yaml" if Path(name).exists() else f"nothing is at {name}"
        raise OneiroError(f"{wrong}; give a recipe (`oneiro recipes` lists them), a YAML file or a run")
    if name not in known:
        raise OneiroError(f"no recipe called '{name}'{nearest(name, known)} (`oneiro recipes` lists them)")
    return known[name]


def _looks_like_a_path(name: str) -> bool:
    """Whether someone meant a place on the disk: written as one, or inside a folder that is there."""
    return name.startswith(("/", ".", "~")) or Path(name).exists() or ("/" in name and Path(name).parent.is_dir())


def read(path: Path) -> Plain:
    """A YAML file as a plain mapping."""
    try:
        # The parser in C is eight times faster, but deep nesting crashes it: it gets our own files only.
        data = yaml.load(path.read_text(encoding="utf-8"), _QuickLoader if SHIPPED in path.parents else _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise OneiroError(f"cannot read {path}: {error}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: a date that is none
        raise OneiroError(f"{path} is not valid YAML: {_one_line(error)[:200]}") from error
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise OneiroError(f"{path} is not a recipe: expected lines of `key: value`")
    return data


class _Loader(yaml.SafeLoader):
    """Safe YAML in which 1e-4 is a number, as everyone means it (YAML 1.1 asks for 1.0e-4)."""


class _QuickLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same for files that are known to be sound."""


class _Dumper(yaml.SafeDumper):
    """Its counterpart, which therefore quotes the text '1e-4'."""


for _class in (_Loader, _QuickLoader, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
    )


def _named_files() -> dict[str, Path]:
    """`group/name` -> file. Other packages add folders (`oneiro.runtime.plugins`); shipped names stay what they are."""
    folders = {**{f"{name}/": folder for name, folder in plugins.recipe_folders().items()}, "": SHIPPED}
    return {
        prefix + path.relative_to(folder).with_suffix("").as_posix(): path
        for prefix, folder in folders.items()
        for path in folder.rglob("*.yaml")
        if not path.name.startswith("_")  # what recipes share
    }


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


# Overlays ------------------------------------------------------------------------------------------------------------


def _split(overrides: Sequence[str], known: Iterable[str] = ()) -> tuple[list[str], list[tuple[list[str], Any]]]:
    """`["preset=smoke", "sft.epochs=2"]` -> the chosen presets, and the other overrides as (path, value).

    `known` are the presets that a bare word may have meant.
    """
    if isinstance(overrides, str):
        raise OneiroError(f"overrides: expected a list of texts, write [{overrides!r}]")
    presets: list[str] = []
    changes: list[tuple[list[str], Any]] = []
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not all(key.split(".")):
            meant = f"preset={override}" if override in known else "key=value, for instance seed=1"
            raise OneiroError(f"{override!r} is not an override; write {meant}")
        if key == "preset":
            presets += [name.strip() for name in text.strip("[]").split(",") if name.strip()]
            continue
        try:
            changes.append((key.split("."), yaml.load(text, _Loader)))
        except yaml.YAMLError as error:
            raise OneiroError(f"cannot read the value of {override!r}: {_one_line(error)}") from error
    # Sections before what is inside them, so that the order on the command line does not matter.
    return presets, sorted(changes, key=lambda change: len(change[0]))


def _overlay(
    file: Plain, models: Plain, presets: list[Plain], changes: list[Any], recipe_class: type[Recipe], folder: Path
) -> tuple[Plain, str]:
    """Merge the layers. The model's own overlay lies low, but its name may be decided by any layer above it.

    Beside it, which settings the model gets.
    """
    fitted = [preset.get("models") or {} for preset in presets]
    presets = [{key: value for key, value in preset.items() if key != "models"} for preset in presets]
    named = _merge_all(file, *presets)
    written, final = _model_name(named, recipe_class), _model_name(_change(named, changes), recipe_class)
    if final != written:
        # Presets speak about the model of the file: what they set in its section does not fit another one.
        presets = [{key: value for key, value in preset.items() if key != "model"} for preset in presets]
    general = pretrained.stands_in(final, models)
    known = pretrained.TEMPLATE if general else final
    model = [{"model": final}, _pick(models, known, "model overlay")] if known in models else []
    for number, own in enumerate(fitted):
        if known in own:
            presets[number] = merge(presets[number], _pick(own, known, "model overlay of a preset"))
    layers = [*model, *presets]
    result = _merge_all(file, *(part for layer in layers for part in _parts(layer, folder)))
    published = next((base for layer in reversed(layers) if (base := pretrained.base_name(layer))), "")
    why = pretrained.reason(final, written, models, published)
    if not models and final == written:
        why = ""  # nothing to choose from: also the stored recipe of a run
    if general and not published:  # a published protocol has its own learning rates, whatever the model
        result = pretrained.fit(result, final, flat(_change({}, changes)))
    result = _change(result, changes)
    return {key: value for key, value in result.items() if value is not None or _allows_null(recipe_class, key)}, why


def _parts(layer: Plain, folder: Path) -> list[Plain]:
    """A layer in the order in which it is laid: what it resets, its base, its own settings."""
    own = {key: value for key, value in layer.items() if key != "base"}
    if "base" not in layer:
        return [own]
    file, _, name = str(layer["base"]).rpartition("/")
    base = _pick(read(folder / f"{file}.yaml"), name, f"group of settings in {file}.yaml")
    return [
        {key: None for key, value in own.items() if value is None},
        base,
        {k: v for k, v in own.items() if v is not None},
    ]


def _allows_null(recipe_class: type[Recipe], key: str) -> bool:
    field = recipe_class.model_fields.get(key)
    return field is None or field.annotation is Any or type(None) in typing.get_args(field.annotation)


def _take_section(data: Plain, section: str, where: str) -> Plain:
    """Take `presets` or `models` out of a recipe: names -> settings."""
    groups = data.pop(section, None) or {}
    if not isinstance(groups, dict) or not all(isinstance(name, str) for name in groups):
        raise OneiroError(f"{section} of {where}: expected a name for each group of settings, got {str(groups)[:60]!r}")
    return groups


def _merge_all(*layers: Plain) -> Plain:
    result: Any = {}
    for layer in layers:
        result = merge(result, layer)
    return typing.cast(Plain, result)


def merge(below: Any, above: Any) -> Any:
    """Deep merge of plain data; a section that is given another `name` starts afresh."""
    if isinstance(below, Mapping) and isinstance(above, str) and "name" in below:
        return dict(below) if below["name"] == above else {"name": above}
    if isinstance(below, str) and isinstance(above, Mapping):
        below = {"name": below}
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return above
    if "name" in above and above["name"] != below.get("name", above["name"]):
        return dict(above)
    return {**below, **{key: merge(below[key], value) if key in below else value for key, value in above.items()}}


def _change(data: Plain, changes: Sequence[tuple[list[str], Any]]) -> Plain:
    for path, value in changes:
        layer = value
        for key in reversed(path):
            layer = {key: layer}
        data = merge(data, layer)
    return data


def _model_name(data: Plain, recipe_class: type[Recipe]) -> str:
    """The name of the recipe's model: as written, else the class's default; "" where it has none."""
    section = data.get("model")
    if section is None and "model" in recipe_class.model_fields:
        section = recipe_class.model_fields["model"].get_default(call_default_factory=True, validated_data={})
    if isinstance(section, Mapping):
        section = section.get("name")
    return str(getattr(section, "name", section) or "")


def _pick(overlays: Any, name: str, what: str) -> Plain:
    if not isinstance(overlays, dict) or name not in overlays:
        raise OneiroError(f"no {what} called '{name}'{nearest(name, overlays or ())}")
    if not isinstance(overlays[name] or {}, dict):
        raise OneiroError(f"the {what} called '{name}' is not a mapping of settings")
    return overlays[name] or {}
