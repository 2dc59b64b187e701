"""What other packages add to Oneiro: worlds, algorithms, losses, systems, tasks, trackers, recipes.

A package names its parts in the entry-point group of their kind, as `name = "package.module:Class"`:

    [project.entry-points."oneiro.worlds"]
    reach = "toys.reach:Reach"

Nothing is imported before it is asked for. A package that is broken costs one warning where its part would be listed,
and one clear error where it is asked for by name; it never stops anything else.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import traceback
import warnings
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from oneiro.runtime.errors import Notice, OneiroError

Kind = Literal["worlds", "algorithms", "losses", "systems", "tasks", "trackers", "recipes"]

T = TypeVar("T")

PREFIX = "oneiro."
"""The group of a kind is this and its name."""
WEB = "oneiro_web"
GET_WEB = "the web sandbox is a package of its own: pip install 'oneiro[web]', in a clone `pip install -e web`"
"""What systems and tasks of web pages say where it is missing."""


class PluginWarning(Notice):
    """Part of another package cannot be used. The message is one line."""


@dataclass(frozen=True)
class Plugin:
    """One part that a package offers."""

    kind: str
    name: str
    target: str
    """`package.module:Class`; for recipes the package whose folder holds them."""
    package: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.kind} '{self.name}' of package '{self.package}'"


def list_offered(kind: Kind) -> dict[str, Plugin]:
    """What other packages add of this kind, by name. Of two with one name the first on the path counts."""
    plugins: dict[str, Plugin] = {}
    for plugin in _find_installed():
        if plugin.kind == kind:
            plugins.setdefault(plugin.name, plugin)
    return plugins


def with_offered(kind: Kind, shipped: Mapping[str, T]) -> dict[str, str | T]:
    """Name -> `package.module:Class` of all parts of a kind; no package can take the name of a shipped one."""
    return {**{name: plugin.target for name, plugin in list_offered(kind).items()}, **shipped}


def resolve(target: str, what: str) -> Any:
    """The object at `package.module:Class`; an error names `what` and where the code failed."""
    try:
        return pkgutil.resolve_name(target)
    except OneiroError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == WEB:
            raise OneiroError(f"{what} needs {WEB}; {GET_WEB}") from None
        raise OneiroError(f"{what} cannot be loaded from {target}: {describe(error)}") from error


def load_all(kind: Kind) -> Iterator[tuple[Plugin, Any]]:
    """Every part of this kind with its object; a warning for each that cannot be loaded."""
    for plugin in list_offered(kind).values():
        try:
            yield plugin, resolve(plugin.target, str(plugin))
        except OneiroError as error:
            skip(error)


def recipe_folders() -> dict[str, Path]:
    """Folders with recipes that other packages add: `toys = "toys.recipes"` gives `toys/NAME` for each file NAME.yaml.

    The value is a package or a plain folder inside one.
    """
    folders = {}
    for name, plugin in list_offered("recipes").items():
        try:
            spec = importlib.util.find_spec(plugin.target)
            folders[name] = Path(next(iter((spec and spec.submodule_search_locations) or ())))
        except StopIteration:
            skip(f"{plugin}: {plugin.target} is no folder of a package")
        except (Exception, SystemExit) as error:
            skip(f"{plugin} cannot be found: {describe(error)}")
    return folders


def skip(reason: object) -> None:
    """Say that a part is left out, and go on."""
    warnings.warn(f"{' '.join(str(reason).split())} (skipped)", PluginWarning, stacklevel=3)


def describe(error: BaseException, files: Container[str] = ()) -> str:
    """`ZeroDivisionError: division by zero (toys/reach.py, line 31)`.

    The line is the deepest one inside `files` if the error passed there, else the deepest one outside Python's imports.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _finds_modules(frame.filename)]
    frames = [frame for frame in frames if frame.filename in files] or frames
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"


def _finds_modules(filename: str) -> bool:
    return filename.startswith("<frozen") or filename in (__file__, pkgutil.__file__, importlib.__file__)


@cache
def _find_installed() -> tuple[Plugin, ...]:
    """Every part that an installed package offers; one scan, some milliseconds."""
    from importlib import metadata  # costs as much as the rest of `import oneiro`

    return tuple(
        Plugin(
            kind=point.group.removeprefix(PREFIX),
            name=point.name,
            target=point.value.partition("[")[0].strip(),  # behind it: extras of the package, which nobody uses
            package=str(distribution.metadata["Name"]),
        )
        for distribution in metadata.distributions()
        if f"[{PREFIX}" in (distribution.read_text("entry_points.txt") or "")
        for point in distribution.entry_points
        if point.group.startswith(PREFIX)
    )
