"""Networks from inputs to `n_outputs` numbers; each ends in a linear layer `head`."""

from __future__ import annotations

from noisegate.networks.cnn9 import CNN9
from noisegate.networks.lenet import LeNet5
from noisegate.networks.mlp import MLP
from noisegate.networks.registry import NETWORKS, auto_name, build, check_name, find_head, register
from noisegate.networks.resnet import CifarResNet, ResNet, ResNetV2
from noisegate.networks.wide_resnet import WideResNet

__all__ = [
    "CNN9",
    "MLP",
    "NETWORKS",
    "CifarResNet",
    "LeNet5",
    "ResNet",
    "ResNetV2",
    "WideResNet",
    "auto_name",
    "build",
    "check_name",
    "find_head",
    "register",
]
