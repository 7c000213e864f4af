"""`Job`: what a method gets to train with: rows with observed labels, networks, predictions."""

from __future__ import annotations

import contextlib
import math
import re
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisegate import networks
from noisegate._turns import TURN
from noisegate.data.dataset import Dataset, Inputs
from noisegate.data.loader import Rows, fetch
from noisegate.errors import InputError
from noisegate.evaluation.passes import predict
from noisegate.networks.prepare import Prepared
from noisegate.noise.base import VOID
from noisegate.objectives import Objective
from noisegate.training.augment import (
    cut,
    flip,
    mirrored,
    random_crop,
    random_flip,
    random_scale_and_crop,
    windows,
)
from noisegate.training.recipe import Recipe

NetworkSpec = str | Callable[[tuple[int, ...], int], nn.Module]
#: The network that "auto" chooses for data with a label for every pixel.
MAP_NETWORK = "deeplab-resnet18"
#: The mean and standard deviation of larger inputs are estimated from this many rows.
STATISTICS_ROWS = 10_000
#: Numbers of the inputs per block when moments are computed: 64 MiB in float64.
MOMENT_NUMBERS = 2**23


class Job:
    """Everything that a method may use to train. It holds no clean labels.

    Parameters
    ----------
    train : Rows
        Training inputs and observed labels.
    validation : Rows or None
        Held-out rows; their labels are as noisy as those of the training rows.
    n_classes : int
        Number of classes K.
    network : str or function (input_shape, n_outputs) -> nn.Module
        Name of a network, "auto", or a factory. Not a module: the method decides how many outputs
        the network needs.
    recipe : Recipe
        Settings of the training.
    seed : int
        Random seed of the run.
    device : torch.device
        Where networks are trained.

    Attributes
    ----------
    network_name : str or function
        The resolved network: `network`, or the name that "auto" stands for.
    network_is_auto : bool
        Whether `network` was "auto".
    """

    def __init__(
        self,
        train: Rows,
        validation: Rows | None,
        n_classes: int,
        network: NetworkSpec,
        recipe: Recipe,
        seed: int,
        device: torch.device,
    ) -> None:
        if isinstance(network, nn.Module):
            raise InputError(
                "network must be a name or a function (input_shape, n_outputs) -> nn.Module, got a module itself: "
                "the method decides how many outputs it needs"
            )
        self.train, self.validation = train, validation
        self.n_classes, self.recipe, self.seed, self.device = n_classes, recipe, seed, device
        self.network_is_auto = isinstance(network, str) and network == "auto"
        automatic = MAP_NETWORK if train.maps else networks.auto_name(self.input_shape, device.type)
        self.network_name = automatic if self.network_is_auto else network
        self._statistics: tuple[Tensor, Tensor] | None = None
        self._handed_out: list[weakref.ref[Tensor]] = []

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input as the network sees it, after cropping."""
        shape = self.train.shape
        if self.recipe.crop_to is None or len(shape) != 3:
            return shape
        return (shape[0], min(shape[1], self.recipe.crop_to), min(shape[2], self.recipe.crop_to))

    def network(self, outputs: Objective | int) -> Prepared:
        """Build a freshly initialised network on the device, behind its input preparation.

        Parameters
        ----------
        outputs : Objective or int
            The number of outputs, or the objective that reads them. An objective with more than one
            slice also initialises the last layer.
        """
        n_outputs = outputs if isinstance(outputs, int) else outputs.n_outputs
        if isinstance(self.network_name, str):
            net = networks.build(self.network_name, self.input_shape, n_outputs)
        else:
            net = self.network_name(self.input_shape, n_outputs)
            if not isinstance(net, nn.Module):
                raise InputError(
                    f"the network factory must return a torch.nn.Module, got {type(net).__name__}"
                )
        if isinstance(outputs, Objective) and len(outputs.slices) > 1:
            # A user's network may not end in a layer that can be found: keep its own
            # initialisation.
            with contextlib.suppress(InputError):
                outputs.init_head_(networks.find_head(net, n_outputs))
        name = self.network_name if isinstance(self.network_name, str) else None
        return self.prepared(net, name, n_outputs)

    def prepared(self, network: nn.Module, spec: str | Mapping[str, Any] | None, n_outputs: int) -> Prepared:
        """Put a network behind its input preparation and move both to the device.

        Parameters
        ----------
        network : nn.Module
            Maps prepared inputs to outputs.
        spec : str, mapping or None
            How a stored model rebuilds the network: a name, the result of `Ensemble.spec`, or None
            for a user's own network.
        n_outputs : int
            Number of outputs of the network.
        """
        mean, std = self._input_statistics()
        pixels = len(self.input_shape) == 3 and self.train.source.dtype == np.uint8
        described: dict[str, Any] = {
            "network": spec,
            "input_shape": list(self.input_shape),
            "raw_shape": list(self.train.shape),
            "n_outputs": n_outputs,
            "pixels": pixels,
        }
        if self.train.maps:
            described["maps"] = True
        return Prepared(network, mean, std, described).to(self.device)

    def layers(self) -> str | None:
        """Describe the network of a factory as text; None for a network chosen by name.

        It is part of a run's identity, so that a folder is not resumed with another architecture.
        """
        if isinstance(self.network_name, str):
            return None
        with TURN, torch.random.fork_rng(devices=[]):
            network = self.network_name(self.input_shape, self.n_classes)
        if not isinstance(network, nn.Module):
            return None  # `network` raises the error when the network is needed
        shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
        # A repr may show memory addresses, which differ from process to process: remove them.
        return re.sub(r" at 0x[0-9a-f]+", "", f"{network!r} {shapes}")

    def augment(self, x: Tensor, recipe: Recipe | None = None) -> Tensor:
        """Crop and flip a batch of images at random, as the recipe says; return vectors unchanged.

        Parameters
        ----------
        x : tensor (B, C, H, W) or (B, d)
            Raw inputs.
        recipe : Recipe, default=None
            None: the recipe of the job.
        """
        recipe = recipe or self.recipe
        if x.dim() != 4:
            return x
        if recipe.crop or x.shape[1:] != self.input_shape:
            x = random_crop(x, recipe.crop, self.input_shape[1:])  # type: ignore[arg-type]
        return random_flip(x) if recipe.flip else x

    def augment_maps(self, x: Tensor, y: Tensor, recipe: Recipe) -> tuple[Tensor, Tensor]:
        """Scale, crop and flip images `(B, C, H, W)` and their label maps `(B, H, W)` alike."""
        size = (self.input_shape[1], self.input_shape[2])
        if recipe.scales:
            x, y = random_scale_and_crop(x, y, recipe.scales, size)
        elif recipe.crop or tuple(x.shape[2:]) != size:
            where = windows(x, recipe.crop, size)
            x, y = cut(x, recipe.crop, *where), cut(y.unsqueeze(1), recipe.crop, *where, VOID).squeeze(1)
        if recipe.flip:
            which = mirrored(x)
            x, y = flip(x, which), flip(y.unsqueeze(1), which).squeeze(1)
        return x, y

    def predict(self, network: nn.Module, objective: Objective, rows: Rows | None = None) -> Tensor:
        """Predict the probabilities of the clean class, `(N, K)`, on the device.

        Parameters
        ----------
        network : nn.Module
        objective : Objective
            Turns the network's outputs into probabilities.
        rows : Rows, default=None
            None: the training rows.
        """
        return predict(network, objective, self.train if rows is None else rows)

    def per_example(self, width: int, fill: float = 0.0) -> Tensor:
        """Create state for every training row, `(N, width)`: a buffer for the phase's module.

        In a run on several processes each process writes the rows that it trains on; the rows of
        the others are merged at the end of the epoch.

        Parameters
        ----------
        width : int
            Numbers per row.
        fill : float, default=0.0
            Initial value.
        """
        state = torch.full((len(self.train), width), fill, device=self.device)
        self._handed_out = [ref for ref in self._handed_out if ref() is not None] + [weakref.ref(state)]
        return state

    def is_per_example(self, tensor: Tensor) -> bool:
        """Whether `per_example` returned this very tensor."""
        return any(ref() is tensor for ref in self._handed_out)

    def _input_statistics(self) -> tuple[Tensor, Tensor]:
        if self._statistics is None:
            self._statistics = input_statistics(self.train.source, self.recipe.normalize)
        return self._statistics


def input_statistics(x: Inputs, normalize: str) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation per channel `(C, 1, 1)` or per feature `(d,)`.

    Pixels are scaled to [0, 1] first. For images, and for inputs that are read from disk, more than
    10,000 rows are represented by a fixed sample of 10,000.

    Parameters
    ----------
    x : array (N, d) or (N, C, H, W), or a source of such rows
    normalize : {"auto", "none"}
        "none" returns zeros and ones.
    """
    shape = x.shape[1:] if isinstance(x, np.ndarray) else x.shape
    kept = (shape[0], 1, 1) if len(shape) == 3 else tuple(shape)
    if normalize == "none":
        return torch.zeros(kept), torch.ones(kept)
    rows = np.arange(len(x))
    if len(x) > STATISTICS_ROWS and (len(shape) == 3 or not isinstance(x, np.ndarray)):
        rows = np.sort(np.random.default_rng(0).permutation(len(x))[:STATISTICS_ROWS])
    mean, std = _moments(x, rows, (0, 2, 3) if len(shape) == 3 else (0,))
    # A constant feature has standard deviation 0: divide it by 1 instead.
    std = np.where(std > 0, std, 1.0)
    return torch.from_numpy(mean).reshape(kept), torch.from_numpy(std).reshape(kept)


def _moments(
    x: Inputs, rows: npt.NDArray[np.int64], axes: tuple[int, ...]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean and standard deviation over `axes`, with uint8 scaled to [0, 1].

    Blocks of rows are combined by the pairwise update of Chan et al. (1983). The first row (of
    images the first pixel of each channel) is subtracted first: sums of numbers far from zero would
    lose digits, and a constant would get a tiny deviation instead of zero.
    """
    count, mean, squares = 0, np.zeros(()), np.zeros(())
    first = fetch(x, rows[:1]).astype(np.float64)
    origin = first[:, :, :1, :1] if first.ndim == 4 else first
    size = max(1, MOMENT_NUMBERS // math.prod(x.shape[1:] if isinstance(x, np.ndarray) else x.shape))
    for start in range(0, len(rows), size):
        block = fetch(x, rows[start : start + size])
        if x.dtype != np.uint8:
            block = block - origin
        own = block.size // math.prod(n for axis, n in enumerate(block.shape) if axis not in axes)
        own_mean, own_variance = block.mean(axes, dtype=np.float64), block.var(axes, dtype=np.float64)
        total, apart = count + own, own_mean - mean
        squares = squares + own_variance * own + apart**2 * (count * own / total)
        mean = mean + apart * (own / total)
        count = total
    if x.dtype == np.uint8:
        return mean / 255, np.sqrt(squares / count) / 255
    return mean + origin.reshape(mean.shape), np.sqrt(squares / count)


def make_job(
    data: Dataset,
    network: NetworkSpec,
    recipe: Recipe,
    seed: int,
    device: torch.device,
    sample_weight: npt.ArrayLike | None = None,
) -> Job:
    """Build the job of a run: the inputs and observed labels of a dataset, on their device.

    Clean labels are left behind here.

    Parameters
    ----------
    data : Dataset
    network, recipe, seed, device
        As in `Job`.
    sample_weight : array (N,), default=None
        Non-negative weight of each training row. None: all weights are 1.
    """
    train = Rows(data.train.x, data.train.y, device, weight=sample_weight)
    held = data.validation
    validation = None if held is None else Rows(held.x, held.y, device)
    return Job(train, validation, data.n_classes, network, recipe, seed, device)
