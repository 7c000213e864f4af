"""Networks that start from ImageNet weights: ResNets in the layout of torchvision and timm, Xception in timm's."""

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
    """A factory (input_shape, n_outputs) -> network whose weights come from a file.

    Its last layer is fresh.

    Parameters
    ----------
    name : str
        resnet18, resnet34 or resnet50, for which the ImageNet stem is meant whatever the size of
        the images; or a deeplab network, whose encoder is loaded.
    path : path
        A safetensors file with the names of torchvision's state dict; for xception65 those of
        timm's.

    Attributes
    ----------
    __qualname__ : str
        Network, file name and a hash of the content: what makes two runs with such a network the
        same one, wherever the file lies.
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
    """What a file calls the parameters and buffers of an encoder: torchvision's names, of the Xception timm's."""
    if isinstance(encoder, Xception65):
        return {key: key for key in encoder.state_dict()}
    body = (key for key in encoder.state_dict() if key.startswith("body."))
    return {key: torchvision_name(key, encoder) for key in body}


def pretrained(name: str, path: str | Path) -> Pretrained:
    """The factory of a ResNet that starts from the weights in a file.

    A missing file is refused at once.
    """
    return Pretrained(name, path)


def torchvision_name(key: str, network: ResNet | ResNetEncoder) -> str:
    """The name in torchvision of a parameter or buffer of our ResNet's body.

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
    # A branch is convolution, normalisation, ReLU, convolution, ...: three places a pair.
    kind = "conv" if int(index) % 3 == 0 else "bn"
    return f"layer{stage}.{block}.{kind}{int(index) // 3 + 1}.{last}"


def _read(path: Path, wanted: dict[str, Tensor]) -> dict[str, Tensor]:
    """Read some tensors of a file.

    Missing ones and other shapes raise an error; other tensors are ignored.
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
