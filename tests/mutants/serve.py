"""Modules of the package with code of our own making: one with an error in it, or all with marks on their lines."""

from __future__ import annotations

import importlib.abc
import importlib.util
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any


class Served(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Put first into `sys.meta_path`, it loads these modules from what `code` makes of their files."""

    def __init__(self, modules: dict[str, Path], code: Callable[[Path], CodeType], **names: Any) -> None:
        self.modules, self.code, self.names = modules, code, names

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        file = self.modules.get(name)
        if file is None:
            return None
        folders = [str(file.parent)] if file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, file, loader=self, submodule_search_locations=folders)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update(self.names)
        exec(self.code(self.modules[module.__name__]), module.__dict__)


def module_name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
