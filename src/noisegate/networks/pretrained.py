"""Networks with ImageNet weights from files of torchvision (ResNets) or timm (Xception)."""

from __future__ import annotations

import hashlib
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from noisegate.errors import DamagedFileError, InputError, MissingDataError
from noisegate.networks.deeplab import DeepLab, ResNetEncoder
from noisegate.networks.registry import build
from noisegate.networks.resnet import ResNet
from noisegate.networks.xception import Xception65

#: Blocks of the four stages by their total: ResNet-18 has 8, ResNet-34 and -50 have 16.
_STAGES = {8: (2, 2, 2, 2), 16: (3, 4, 6, 3)}


class Pretrained:
    """A factory (input_shape, n_outputs) -> network that loads weights from a file.

    The last layer is freshly initialised.

    Parameters
    ----------
    name : str
        resnet18, resnet34 or resnet50, which get the ImageNet stem whatever the size of the images;
        or a deeplab network, whose encoder is loaded.
    path : path
        A safetensors file with the names of torchvision's state dict, or timm's for xception65.

    Attributes
    ----------
    __qualname__ : str
        Network, file name and a hash of the content. It is part of a run's identity, and does not
        depend on the folder of the file.
    """

    def __init__(self, name: str, path: str | Path) -> None:
        self.name, self.path = name, Path(path)
        if not self.path.is_file():
            raise MissingDataError(f"there is no file of pretrained weights {self.path}; {_advice(name)}")
        with self.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self.__qualname__ = f"pretrained {name} {self.path.name} {digest[:16]}"

    def __call__(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        plain = self.name in ("resnet18", "resnet34", "resnet50")
        network = build(f"{self.name}-imagenet" if plain else self.name, input_shape, n_outputs)
        encoder = network.encoder if isinstance(network, DeepLab) else network
        if not isinstance(encoder, ResNet | ResNetEncoder | Xception65):
            raise InputError(
                "pretrained weights are for resnet18, resnet34, resnet50 and the encoders of deeplab networks, "
                f"not {self.name!r}"
            )
        stored = _stored_names(encoder)
        found = _read(
            self.path, {stored[key]: value for key, value in encoder.state_dict().items() if key in stored}
        )
        encoder.load_state_dict({key: found[name] for key, name in stored.items()}, strict=False)
        return network

    def __repr__(self) -> str:
        return f"pretrained({self.name!r}, {str(self.path)!r})"


def _stored_names(encoder: ResNet | ResNetEncoder | Xception65) -> dict[str, str]:
    """Map the names of an encoder's parameters and buffers to those in the file."""
    if isinstance(encoder, Xception65):
        return {key: key for key in encoder.state_dict()}
    body = (key for key in encoder.state_dict() if key.startswith("body."))
    return {key: torchvision_name(key, encoder) for key in body}


def pretrained(name: str, path: str | Path) -> Pretrained:
    """Return the factory of a network that starts from the weights in a file: see `Pretrained`.

    A missing file raises an error at once.
    """
    return Pretrained(name, path)


def torchvision_name(key: str, network: ResNet | ResNetEncoder) -> str:
    """Convert the name of a parameter or buffer of our ResNet's body to torchvision's name.

    >>> from noisegate.networks import build
    >>> network = build("resnet18-imagenet", (3, 64, 64), 2)
    >>> torchvision_name("body.5.branch.3.weight", network), torchvision_name("body.6.shortcut.1.bias", network)
    ('layer1.1.conv2.weight', 'layer2.0.downsample.1.bias')
    """
    _, place, rest = key.split(".", 2)
    blocks = [i for i, layer in enumerate(network.body) if hasattr(layer, "branch")]
    if int(place) < blocks[0]:
        return f"{'conv1' if place == '0' else 'bn1'}.{rest}"
    places = [(stage, i) for stage, count in enumerate(_STAGES[len(blocks)], 1) for i in range(count)]
    stage, block = places[int(place) - blocks[0]]
    part, index, last = rest.split(".")
    if part == "shortcut":
        return f"layer{stage}.{block}.downsample.{index}.{last}"
    # A branch is convolution, normalisation, ReLU, convolution, ...: three layers per number.
    kind = "conv" if int(index) % 3 == 0 else "bn"
    return f"layer{stage}.{block}.{kind}{int(index) // 3 + 1}.{last}"


def _read(path: Path, wanted: dict[str, Tensor]) -> dict[str, Tensor]:
    """Read the tensors `wanted` from a file; other tensors in the file are ignored.

    A missing tensor or another shape raises InputError.
    """
    found: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            for name, own in wanted.items():
                if name not in names:
                    raise InputError(f"{path} does not fit the network: it has no {name}")
                found[name] = file.get_tensor(name)
                if found[name].shape != own.shape:
                    raise InputError(
                        f"{path} does not fit the network: {name} has shape {tuple(found[name].shape)}, "
                        f"expected {tuple(own.shape)}"
                    )
    except SafetensorError as error:
        raise DamagedFileError(f"{path} is not a safetensors file, or it is damaged ({error})") from None
    return found


def _advice(name: str) -> str:
    return (
        'write it on a machine that has torchvision and safetensors: python -c "import safetensors.torch as s, '
        f"torchvision as t; s.save_file(t.models.get_model('{name.split('-')[0]}', weights='IMAGENET1K_V1')"
        ".state_dict(), 'weights.safetensors')\", and put it there"
    )
