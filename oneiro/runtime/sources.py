"""Where published data comes from: addresses, sizes, licences, and checksums where they are known."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from oneiro.runtime.download import Unreachable, download
from oneiro.runtime.errors import OneiroError, nearest

MB, GB = 10**6, 10**9
SECONDS_A_FILE = 3600.0


@dataclass(frozen=True)
class File:
    """One file of a source."""

    name: str
    url: str
    most: int
    """Bytes it may have at most."""
    sha256: str = ""
    """Empty where none is known."""


@dataclass(frozen=True)
class Source:
    """A published dataset."""

    name: str
    about: str
    page: str
    licence: str
    size: int
    """Bytes in all, about; 0 where it is not known."""
    files: tuple[File, ...]
    use: str
    """The command that reads it; `{folder}` is where it lies."""
    shards: int = 0
    """How many files at the end are shards of the data, of which some alone are of use."""

    def chosen(self, shards: int | None) -> tuple[File, ...]:
        """All files, or only so many shards of them."""
        if shards is None or not self.shards:
            return self.files
        return self.files[: len(self.files) - self.shards + min(shards, self.shards)]

    def bytes(self, shards: int | None) -> int:
        """About how much the chosen files have."""
        return self.size * len(self.chosen(shards)) // len(self.files)


@dataclass(frozen=True)
class Got:
    """A file that is here now."""

    path: Path
    how: str
    """kept, resumed or new"""
    checked: bool
    """Whether a checksum was known, and right."""


def known() -> dict[str, Source]:
    """Every source by its name."""
    return {source.name: source for source in SOURCES}


def find(name: str) -> Source:
    sources = known()
    if name not in sources:
        raise OneiroError(f"no data called '{name}'{nearest(name, sources)}")
    return sources[name]


def get(
    source: Source,
    folder: Path,
    shards: int | None = None,
    advance: Callable[[File, int, int | None], None] | None = None,
    seconds: float = SECONDS_A_FILE,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Got]:
    """Bring a source's files into `folder`, one after the other; the same call goes on where it broke off.

    `advance` is told a file's bytes, `tell` what is waited for.
    """
    files = source.chosen(shards)
    _need_room(source, folder, files, source.bytes(shards))
    for file in files:
        path = folder / file.name

        def told(here: int, total: int | None, file: File = file) -> None:
            if advance is not None:
                advance(file, here, total)

        try:
            how = download(file.url, path, most=file.most, seconds=seconds, sha256=file.sha256, advance=told, tell=tell)
        except Unreachable as error:
            raise OneiroError(
                f"{error}; get it from {source.page} elsewhere, put it at {path}, and run the same command again"
            ) from error
        yield Got(path, how, bool(file.sha256))


def _need_room(source: Source, folder: Path, files: Sequence[File], size: int) -> None:
    there = next(place for place in (folder, *folder.absolute().parents) if place.is_dir())
    here = sum((folder / file.name).stat().st_size for file in files if (folder / file.name).is_file())
    free = shutil.disk_usage(there).free
    if size - here > free:
        fewer = "; take fewer with --shards" if source.shards else ""
        raise OneiroError(
            f"{source.name} has about {amount(size)}, and {there} has {amount(free)} free: choose another --out{fewer}"
        )


def amount(size: int) -> str:
    """`124 GB`, `4.9 MB`; `?` for 0."""
    if not size:
        return "?"
    unit, name = (GB, "GB") if size >= GB else (MB, "MB")
    return f"{size / unit:.3g} {name}"


def _hub(dataset: str, *names: str) -> tuple[File, ...]:
    return tuple(File(name, f"https://huggingface.co/datasets/{dataset}/resolve/main/{name}", 2 * GB) for name in names)


def _drive(name: str, key: str, sha256: str) -> File:
    return File(name, f"https://drive.google.com/uc?export=download&id={key}", 100 * MB, sha256)


def _gsm8k(name: str, sha256: str) -> File:
    commit = "3101c7d5072418e28b9008a6636bde82a006892c"
    where = f"https://raw.githubusercontent.com/openai/grade-school-math/{commit}/grade_school_math/data/"
    return File(name, where + name, 50 * MB, sha256)


def _rlds(where: str, name: str, **splits: int) -> tuple[File, ...]:
    """The two descriptions of a dataset, then the shards of its splits."""
    shards = [f"{name}-{split}.tfrecord-{i:05d}-of-{n:05d}" for split, n in splits.items() for i in range(n)]
    return tuple(
        [File(file, f"{where}/{file}", 50 * MB) for file in ("dataset_info.json", "features.json")]
        + [File(file, f"{where}/{file}", 4 * GB) for file in shards]
    )


SOURCES = (
    Source(
        "bytesized32",
        "text-game transitions (train, test), reasoned answers",
        "https://huggingface.co/datasets/thuml/bytesized32-world-model-cot",
        "see its page",
        0,
        _hub(
            "thuml/bytesized32-world-model-cot",
            "test_state_difference.parquet",
            "generated_cot.parquet",
            "train_state_difference_gold.parquet",
            "train_state_difference_non_gold.parquet",
        ),
        "oneiro data bytesized32 --from {folder} --out data/bytesized32",
    ),
    Source(
        "bridge",
        "BridgeData V2, RLDS",
        "https://rail-berkeley.github.io/bridgedata/",
        "CC BY 4.0",
        124 * GB,
        _rlds(
            "https://rail.eecs.berkeley.edu/datasets/bridge_release/data/tfds/bridge_dataset/1.0.0",
            "bridge_dataset",
            train=1024,
            val=128,
        ),
        "oneiro data rlds --from {folder} --out data/bridge",
        shards=1152,
    ),
    Source(
        "rt1",
        "RT-1, RLDS",
        "https://robotics-transformer-x.github.io/",
        "CC BY 4.0",
        111 * GB,
        _rlds(
            "https://storage.googleapis.com/gresearch/robotics/fractal20220817_data/0.1.0",
            "fractal20220817_data",
            train=1024,
        ),
        "oneiro data rlds --from {folder} --out data/rt1",
        shards=1024,
    ),
    Source(
        "webshop",
        "1,000 products, instructions",
        "https://github.com/princeton-nlp/WebShop",
        "research only",
        10 * MB,
        (
            _drive(
                "items_shuffle_1000.json",
                "1EgHdxQ_YxqIQlvvq5iKlCrkEKR6-j0Ib",
                "30a4765c3a327af72d9a9a95a6b2486d516f0fa1d3ecd83681901ce82a21b269",
            ),
            _drive(
                "items_ins_v2_1000.json",
                "1IduG0xl544V_A_jv3tHXC0kyFi7PnyBu",
                "f88a36314a397b53b3d9c3fa5878e5f7b26d35019a51ec83fbedeca61a948f6f",
            ),
            _drive(
                "items_human_ins.json",
                "14Kb5SPBk_jfdLZ_CDBNitW98QLDlKR5O",
                "cf78667548a71786e1d9049c24b802e48e1084ad4bb021cae56ce1f6d96954a3",
            ),
        ),
        "oneiro check webshop products={folder}/items_shuffle_1000.json instructions={folder}/items_ins_v2_1000.json",
    ),
    Source(
        "gsm8k",
        "8,792 word problems",
        "https://github.com/openai/grade-school-math",
        "MIT",
        5 * MB,
        (
            _gsm8k("train.jsonl", "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465"),
            _gsm8k("test.jsonl", "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"),
        ),
        "oneiro check math path={folder}/train.jsonl eval_path={folder}/test.jsonl",
    ),
    Source(
        "miniwob",
        "MiniWoB++, 130 web tasks",
        "https://pypi.org/project/miniwob/1.1.0/",
        "MIT",
        2 * MB,
        (
            File(
                "miniwob-1.1.0-py3-none-any.whl",
                "https://files.pythonhosted.org/packages/py3/m/miniwob/miniwob-1.1.0-py3-none-any.whl",
                20 * MB,
                "297006e84219d56ad037e843527ed773a4a82509dc43b6031ec4a3ad3e3e61d9",
            ),
        ),
        "pip install {folder}/miniwob-1.1.0-py3-none-any.whl",
    ),
)
