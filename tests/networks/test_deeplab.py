"""DeepLabv3+ and its encoders: counts of parameters, shapes, dilations, weights of other libraries."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import noisegate as ng
from noisegate.errors import InputError
from noisegate.networks import build
from noisegate.networks.deeplab import DeepLab, ResNetEncoder
from noisegate.networks.pretrained import pretrained
from noisegate.networks.registry import find_head
from noisegate.networks.xception import Xception65


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_the_xception_has_as_many_parameters_as_published():
    # timm's model card of xception65: 39.9 million, of which 2048 * 1000 + 1000 are its classifier
    # (https://huggingface.co/timm/xception65.tf_in1k; TensorFlow's weights of DeepLab, ported). Counted there:
    # 39,916,312.
    with torch.device("meta"):
        network = DeepLab((3, 513, 513), 21)
    assert count(network.encoder) == 39_916_312 - (2048 * 1000 + 1000)

    # And by hand what DeepLabv3+ adds: separable convolutions of 3 x 3, normalised twice.
    def pointwise(a, b):
        return a * b + 2 * b

    def separable(a, b):
        return 9 * a + 2 * a + pointwise(a, b)

    pyramid = 2 * pointwise(2048, 256) + 3 * separable(2048, 256) + pointwise(5 * 256, 256)
    decoder = pointwise(256, 48) + separable(304, 256) + separable(256, 256) + 257 * 21
    assert count(network) - count(network.encoder) == pyramid + decoder


@pytest.mark.parametrize(("stride", "side"), [(16, 5), (8, 9), (32, 3)])
def test_output_strides(stride, side):
    x = torch.zeros(1, 3, 65, 65)
    for encoder, (n_low, n_high) in (
        (Xception65(3, stride), (256, 2048)),
        (ResNetEncoder(18, 3, stride), (64, 512)),
    ):
        with torch.no_grad():
            low, high = encoder.eval()(x)
        assert low.shape == (1, n_low, 17, 17)
        assert high.shape == (1, n_high, side, side)


def test_a_dilation_in_place_of_a_stride_sees_the_same_neighbours():
    torch.manual_seed(0)
    strided, dilated = ResNetEncoder(18, 3, 32).eval(), ResNetEncoder(18, 3, 16).eval()
    dilated.load_state_dict(strided.state_dict())
    x = torch.randn(1, 3, 97, 97)
    with torch.no_grad():
        coarse, fine = strided(x)[1], dilated(x)[1]
    torch.testing.assert_close(fine[:, :, ::2, ::2], coarse, rtol=1e-3, atol=1e-4)


def test_by_name_with_maps_as_output_whose_head_the_objective_initialises():
    objective = ng.Heteroscedastic(5, n_samples=4)
    network = build("deeplab-resnet18-os32", (3, 40, 52), objective.n_outputs)
    objective.init_head_(find_head(network, objective.n_outputs))
    assert network.head.weight[5:].abs().mean() > 0.01
    x, y = torch.randn(2, 3, 40, 52), torch.randint(0, 5, (2, 40, 52))
    outputs = network(x)
    assert outputs.shape == (2, 10, 10, 13)
    objective(outputs, y).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in network.parameters())
    assert network(torch.randn(2, 3, 64, 32)).shape == (2, 10, 16, 8)


def test_what_it_does_not_take():
    with pytest.raises(InputError, match="at least 16 x 16"):
        build("deeplab-resnet18", (3, 8, 40), 5)
    with pytest.raises(InputError, match="output_stride must be one of 8, 16, 32"):
        ResNetEncoder(18, 3, 4)


def test_weights_of_torchvision_and_timm_by_their_names(tmp_path):
    torch.manual_seed(0)
    plain = build("resnet18-imagenet", (3, 32, 32), 10)
    from noisegate.networks.pretrained import torchvision_name

    state = {torchvision_name(f"body.{k}", plain): v for k, v in plain.body.state_dict().items()}
    save_file(state | {"fc.weight": torch.zeros(1000, 512)}, tmp_path / "resnet18.safetensors")
    network = pretrained("deeplab-resnet18", tmp_path / "resnet18.safetensors")((3, 64, 64), 4)
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        expected = plain.eval().body[:6](x)
        torch.testing.assert_close(network.eval().encoder(x)[0], expected)
    torch.manual_seed(1)
    source = Xception65()
    state = {k: v.clone() for k, v in source.state_dict().items()} | {
        "head.fc.weight": torch.zeros(1000, 2048)
    }
    save_file(state, tmp_path / "xception65.safetensors")
    loaded = pretrained("deeplab-xception65", tmp_path / "xception65.safetensors")((3, 64, 64), 4)
    assert all(torch.equal(v, loaded.encoder.state_dict()[k]) for k, v in source.state_dict().items())
    with pytest.raises(InputError, match="does not fit the network"):
        pretrained("deeplab-resnet34", tmp_path / "resnet18.safetensors")((3, 64, 64), 4)


def test_the_xception_computes_what_timms_does():
    timm = pytest.importorskip("timm")
    other = timm.create_model("xception65", num_classes=0, global_pool="").eval()
    ours = Xception65(3, 32).eval()
    for layer in other.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.eps = 1e-3
    ours.load_state_dict(other.state_dict())
    x = torch.randn(1, 3, 65, 65)
    with torch.no_grad():
        torch.testing.assert_close(ours(x)[1], other(x), rtol=1e-4, atol=1e-4)


def test_a_segformer_of_transformers_joins_as_a_function():
    transformers = pytest.importorskip("transformers")

    class Logits(nn.Module):
        def __init__(self, network):
            super().__init__()
            self.network = network

        def forward(self, x):
            return self.network(x).logits

    def segformer(input_shape, n_outputs):
        config = transformers.SegformerConfig(
            num_channels=input_shape[0],
            num_labels=n_outputs,
            depths=[1, 1, 1, 1],
            hidden_sizes=[8, 16, 24, 32],
            num_attention_heads=[1, 1, 2, 2],
            decoder_hidden_size=16,
        )
        return Logits(transformers.SegformerForSemanticSegmentation(config))

    objective = ng.Heteroscedastic(3, n_samples=4)
    network = segformer((3, 64, 64), objective.n_outputs)
    outputs = network(torch.randn(2, 3, 64, 64))
    assert outputs.shape == (2, 6, 16, 16)
    objective(outputs, torch.randint(0, 3, (2, 64, 64))).backward()
    assert find_head(network, 6) is network.network.decode_head.classifier
