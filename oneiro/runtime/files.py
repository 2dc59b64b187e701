"""Files that are either whole or absent: write beside the target, flush, rename. A manifest lists the files of a
folder with sizes and checksums, so that damage is noticed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oneiro.runtime import distributed
from oneiro.runtime.errors import OneiroError

NAME = re.compile(r"\w[\w .+@=,-]{0,79}")
"""Names of users become file names: never a path."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MANIFEST = "manifest.json"
CHECKSUM = "blake2b"
"""Of the kinds that every Python has, the fastest."""
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
MAX_HEADER_BYTES = 100 << 20
"""What safetensors itself allows the list of its tensors; a damaged length would ask for any amount of memory."""


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it replaces `path`, on failure it is removed.

    Of several ranks only the main process writes: what another one wrote is removed too.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        if distributed.is_main_process():
            temporary.replace(path)
        else:
            temporary.unlink()
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if reason := unwritten(error):
            raise OneiroError(f"cannot write {path}: {reason}; free some space or choose another --out") from error
        raise


def unwritten(error: BaseException) -> str | None:
    """Why the system did not write, also where a library wrapped that in an exception of its own; None: another fault.

    Libraries leave out the path: whoever knows it says it.
    """
    if isinstance(error, OneiroError):
        return None  # has been said
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return os.strerror(errno.ENOSPC) if no_room(error) else None


def no_room(error: BaseException) -> bool:
    """Whether a disk is full."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return True
    cause = error.__cause__ or error.__context__
    return any(os.strerror(code) in str(error) for code in NO_ROOM) or (cause is not None and no_room(cause))


def unwritable(path: Path) -> str | None:
    """Why nothing can be written at `path`, asked before long work; None where it can."""
    there = path.absolute().parent
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        return f"{there} is no folder"
    return None if os.access(there, os.W_OK | os.X_OK) else f"no permission to write {there}"


def write_text(path: str | Path, text: str) -> None:
    with atomic(path) as temporary:
        # Half a character from a server has no bytes of its own; in JSON its escape means the same.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: str | Path, data: Any) -> None:
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False, default=_plain) + "\n")


def write_lines(path: str | Path, rows: Iterable[Any]) -> None:
    """A `.jsonl` file, one row a line."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False, default=_plain) + "\n" for row in rows))


def read_json(path: str | Path) -> Any:
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise OneiroError(f"{path} does not exist") from error
    except (ValueError, RecursionError) as error:
        raise OneiroError(f"{path} is not valid JSON ({error}); if it was cut short, delete or restore it") from error
    except OSError as error:
        raise OneiroError(f"cannot read {path}: {error.strerror or error}") from error


def write_with(path: str | Path, save: Callable[[Path], object]) -> None:
    """Atomic write through any `save(path)` function, e.g. safetensors'."""
    with atomic(path) as temporary:
        temporary.touch()
        usual = temporary.stat().st_mode
        save(temporary)
        temporary.chmod(usual)  # safetensors lets nobody but the owner read


def write_bytes(path: str | Path, data: bytes) -> None:
    write_with(path, lambda part: part.write_bytes(data))


def open_to_readers(folder: Path) -> None:
    """Give the files of a folder made by `mkdir` the mode that the umask gives: safetensors keeps its own private."""
    usual = folder.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(usual)


def _plain(value: Any) -> Any:
    """numpy scalars and arrays as plain JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


# Manifests -----------------------------------------------------------------------------------------------------------


def describe(path: Path, checksum: str = CHECKSUM) -> dict[str, Any]:
    """Size and checksum of a file."""
    with path.open("rb") as handle:
        return {"size": path.stat().st_size, checksum: hashlib.file_digest(handle, checksum).hexdigest()}


def write_manifest(folder: Path, **facts: Any) -> None:
    """List every file below `folder` with its size and checksum, the tensors of its weights, and `facts`."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST]
    named = {path.relative_to(folder).as_posix(): path for path in paths}
    tensors = {name: tensors_of(path) for name, path in named.items() if path.suffix == ".safetensors"}
    listed = {name: describe(path) for name, path in named.items()}
    write_json(folder / MANIFEST, {**facts, "files": listed, "tensors": tensors})


def damage(folder: Path, below: str = "", **facts: Any) -> str | None:
    """What does not fit the manifest of `folder`, in words; None where all does.

    `below` limits the look to files whose name begins so; `facts` must be those the manifest was written with.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        listed = manifest.get("files") if isinstance(manifest, dict) else None
        if not isinstance(listed, dict) or any(manifest.get(key, "") != value for key, value in facts.items()):
            return f"{MANIFEST} is not of this folder"
        for name, entry in listed.items():
            kind = CHECKSUM if CHECKSUM in entry else "sha256"
            if name.startswith(below) and (not (folder / name).is_file() or describe(folder / name, kind) != entry):
                return f"{name} is not what was written"
        # Whoever loads a folder takes every file of weights in it, also one that somebody put there.
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.suffix in WEIGHTS and name.startswith(below) and name not in listed:
                return f"{name} was not written with it"
    except FileNotFoundError:
        return f"no {MANIFEST}"
    except (ValueError, TypeError, RecursionError):
        return f"{MANIFEST} cannot be read"
    except OSError as error:  # a disk that does not answer now says nothing about the files on it
        raise OneiroError(f"cannot read {error.filename or folder}: {error.strerror or error}") from error
    return None


def tensors_of(path: Path) -> dict[str, list[Any]]:
    """Name -> [dtype, shape] of the tensors in a safetensors file, from its first bytes."""
    with path.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        header: Mapping[str, Any] = json.loads(handle.read(min(length, MAX_HEADER_BYTES)))
    return {name: [entry["dtype"], entry["shape"]] for name, entry in header.items() if name != "__metadata__"}


def require_path(key: str, name: str | None) -> None:
    """One line for a setting that names a folder or file that is not there."""
    if name is not None and not Path(name).expanduser().exists():
        raise OneiroError(f"{key}: nothing is at '{name}'; give a folder that is there")
