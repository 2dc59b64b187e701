"""FSDP2: weights, gradients and optimiser state are sharded over the ranks, for models whose training outgrows a GPU.

The learner computes with shards, layer by layer. Beside them every rank keeps the whole model in its compute type: it
samples and is saved, and is brought up to date after each update. That is 2 bytes a parameter on a GPU, where training
alone takes 16. Shards are float32 masters; layers are gathered in the compute type and gradients are added up in
float32.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from oneiro.episode import PrefixGroup, Row, given
from oneiro.learning.batch import Batch, Example, separate_rows
from oneiro.learning.distributed.data_parallel import DataParallel
from oneiro.learning.learner import Learner
from oneiro.learning.optimiser import Optimiser
from oneiro.learning.settings import OptimiserSettings
from oneiro.models.backbone import Backbone
from oneiro.runtime.errors import OneiroError


class FullySharded(DataParallel):
    """A learner whose weights are sharded."""

    packed: bool | None = True  # a layer that runs twice in one graph cannot be sharded

    def make_optimiser(self, learner: Learner) -> Optimiser:
        if learner.settings.optimiser.name != "adamw":
            name = learner.settings.optimiser.name
            raise OneiroError(f"parallel=fsdp trains with adamw, not {name}; set rl.learner.optimiser.name=adamw")
        learner.computes = shard(learner.backbone)
        named = learner.trained_parameters(learner.computes)
        whole = dict(learner.trained_parameters(learner.backbone))
        return ShardOptimiser(named, whole, learner.settings.optimiser)

    def step(self, learner: Learner, rate: float) -> float:
        return learner.optimiser.step(rate)

    def reload(self, learner: Learner) -> None:
        assert isinstance(learner.optimiser, ShardOptimiser)
        learner.optimiser.reload()

    def pad(self, learner: Learner, batches: Iterable[Batch]) -> Iterable[Batch]:
        """As many micro-batches as the rank with most: every forward and backward gathers layers from all ranks."""
        own = list(batches)
        count = torch.tensor(len(own), device=learner.backbone.device)
        dist.all_reduce(count, dist.ReduceOp.MAX)
        return own + [empty(learner.backbone.device)] * (int(count) - len(own))


def shard(backbone: Backbone) -> Backbone:
    """A copy of a model with only this rank's part of every weight."""
    # Layers return views, and nothing is ever written into them while gradients are kept.
    warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module .* returned a view tensor")
    body = copy.deepcopy(backbone)
    device, dtype = backbone.device.type, backbone.dtype
    body.compute_dtype = dtype
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy() if dtype == torch.float32 else MixedPrecisionPolicy(dtype, torch.float32)
    layers = layers_of(body)
    for layer in layers:
        if getattr(layer, "fused", False):
            vars(layer)["projections"] = [], []  # views of the whole weights, which would keep them in memory
        fully_shard(masters(layer), mesh=mesh, mp_policy=policy)
    # The head meets hidden states outside of the model's forward: what is not in a layer stays gathered until the
    # backward pass is over.
    fully_shard(masters(body), mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    for module in [body, *layers]:
        assert isinstance(module, FSDPModule)
        module.set_gradient_divide_factor(1.0)  # a rank's loss is its part of the whole loss
        if dist.get_backend_config().find("nccl") < 0:
            module.set_force_sum_reduction_for_comms(True)
    return body


def layers_of(backbone: Backbone) -> list[nn.Module]:
    """What is gathered and given up again one after the other."""
    lists = [m for m in backbone.modules() if isinstance(m, nn.ModuleList) and len(m) == backbone.shape.layers]
    if not lists:
        raise OneiroError("parallel=fsdp finds no list of layers in this model; set rl.learner.parallel=data")
    return list(lists[0])


def masters(module: nn.Module) -> nn.Module:
    """The weights that learn in float32; the others stay as they are."""
    for parameter in module.parameters():
        if parameter.requires_grad and not isinstance(parameter, DTensor):
            parameter.data = parameter.data.float()
    return module


def empty(device: torch.device) -> Batch:
    """A micro-batch that adds nothing."""
    example = Example.of(Row([given([0, 0])]))
    made = separate_rows([example], [PrefixGroup(0, [0])], device)
    return replace(made, places=[], columns=_NoTokens(made.columns))


class _NoTokens(dict[str, Tensor]):
    """Columns of no tokens: whatever is asked for is there."""

    def __missing__(self, name: str) -> Tensor:
        return self["temperature"]


class ShardOptimiser(Optimiser):
    """The optimiser of this rank's shards. What is not sharded (a value head) is kept alike by every rank."""

    def __init__(
        self, named: list[tuple[str, nn.Parameter]], whole: dict[str, nn.Parameter], settings: OptimiserSettings
    ) -> None:
        self.every, self.whole = named, whole
        own = [(name, nn.Parameter(local(p))) for name, p in named]
        super().__init__(own, settings)

    @property
    def shapes(self) -> dict[str, torch.Size]:
        return {name: parameter.shape for name, parameter in self.whole.items()}

    def step(self, lr: float) -> float:
        square = torch.zeros((), device=self.masters[0].device)
        for (_, parameter), master in zip(self.every, self.masters, strict=True):
            if parameter.grad is None:
                continue
            master.grad, parameter.grad = local(parameter.grad).float(), None
            if not isinstance(parameter, DTensor):
                dist.all_reduce(master.grad)
            if isinstance(parameter, DTensor) or dist.get_rank() == 0:
                square += master.grad.square().sum()
        dist.all_reduce(square)
        norm = square.sqrt()
        self.apply(lr, norm)
        self.publish()
        return float(norm)

    @torch.no_grad()
    def publish(self) -> None:
        """Bring the whole model up to date."""
        for name, parameter in self.every:
            if isinstance(parameter, DTensor):
                self.whole[name].copy_(parameter.full_tensor().detach())

    @torch.no_grad()
    def reload(self) -> None:
        """Take this rank's shards of the whole model."""
        for name, parameter in self.every:
            if isinstance(parameter, DTensor):
                full = self.whole[name].detach().float()
                part = distribute_tensor(full, parameter.device_mesh, parameter.placements, src_data_rank=None)
                local(parameter).copy_(local(part))

    def state(self) -> dict[str, Tensor]:
        """Whole tensors in the host's memory, by parameter name, as one process has them. Every rank takes part, and
        only the main process keeps them.
        """
        own = super().state()
        for name, parameter in self.every:
            if isinstance(parameter, DTensor) and self.whole[name].dtype != torch.float32:
                own[f"{name}/master"] = local(parameter)
        parameters, keeps = dict(self.every), dist.get_rank() == 0
        gathered: dict[str, Tensor] = {}
        for key, value in own.items():
            tensor = whole_tensor(value, parameters[key.rpartition("/")[0]])
            if keeps:
                gathered[key] = tensor.cpu()
        return gathered

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take this rank's part of whole tensors."""
        parameters, own = dict(self.every), dict[str, Tensor]()
        for key, value in tensors.items():
            parameter = parameters[key.rpartition("/")[0]]
            if isinstance(parameter, DTensor) and value.dim():
                whole = value.to(parameter.device)
                value = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
            own[key] = local(value)
        super().restore(own)
        self.publish()


def local(tensor: Tensor) -> Tensor:
    """This rank's part, in the same memory."""
    return tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor.detach()


def whole_tensor(value: Tensor, parameter: Tensor) -> Tensor:
    """The whole of a tensor that is sharded like a parameter; every rank has its part in `value`."""
    if not isinstance(parameter, DTensor) or not value.dim():
        return value
    part = DTensor.from_local(
        value, parameter.device_mesh, parameter.placements, shape=parameter.shape, stride=parameter.stride()
    )
    return part.full_tensor()
