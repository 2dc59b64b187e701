"""Files that are either whole or absent: write beside the target, flush, rename."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oneiro.errors import OneiroError


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it replaces `path`, on failure it is removed."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        reason = error.strerror or error
        raise OneiroError(f"cannot write {path}: {reason}; free some space or choose another --out") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: str | Path, text: str) -> None:
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, data: Any) -> None:
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False, default=_plain) + "\n")


def read_json(path: str | Path) -> Any:
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise OneiroError(f"{path} does not exist") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise OneiroError(f"{path} is not valid JSON ({error}); if it was cut short, delete or restore it") from error


def write_with(path: str | Path, save: Callable[[Path], None]) -> None:
    """Atomic write through any `save(path)` function, e.g. safetensors'."""
    with atomic(path) as temporary:
        save(temporary)


def _plain(value: Any) -> Any:
    """numpy scalars and arrays as plain JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
