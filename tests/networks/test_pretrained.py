"""Pretrained ResNets: torchvision's names and shapes, written here by hand, computed with plain functions."""

import re
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from noisegate.errors import DamagedFileError, InputError, MissingDataError
from noisegate.networks.pretrained import pretrained
from noisegate.training.checkpoint import RunFolder

BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}


def torchvision_state(name, seed=0):
    """A state dict in the layout that torchvision documents, with random numbers in it."""
    generator = torch.Generator().manual_seed(seed)
    state = {}

    def add_conv(key, n_out, n_in, size):
        scale = (2 / (n_in * size * size)) ** 0.5
        state[f"{key}.weight"] = scale * torch.randn(n_out, n_in, size, size, generator=generator)

    def add_norm(key, n):
        for part in ("weight", "bias", "running_mean", "running_var"):
            state[f"{key}.{part}"] = torch.rand(n, generator=generator) * 0.5 + 0.25
        state[f"{key}.num_batches_tracked"] = torch.tensor(7)

    bottleneck = name == "resnet50"
    add_conv("conv1", 64, 3, 7)
    add_norm("bn1", 64)
    n_in = 64
    for stage, count in enumerate(BLOCKS[name]):
        width = 64 * 2**stage
        n_out = 4 * width if bottleneck else width
        for block in range(count):
            key = f"layer{stage + 1}.{block}"
            sizes = (
                [(width, n_in, 1), (width, width, 3), (n_out, width, 1)]
                if bottleneck
                else [(width, n_in, 3), (width, width, 3)]
            )
            for i, (after, before, size) in enumerate(sizes, 1):
                add_conv(f"{key}.conv{i}", after, before, size)
                add_norm(f"{key}.bn{i}", after)
            if block == 0 and (stage or bottleneck):
                add_conv(f"{key}.downsample.0", n_out, n_in, 1)
                add_norm(f"{key}.downsample.1", n_out)
            n_in = n_out
    state["fc.weight"], state["fc.bias"] = torch.randn(1000, n_in, generator=generator), torch.zeros(1000)
    return state


def features(state, x):
    """What torchvision's network computes before its last layer, in evaluation mode."""

    def norm(key, x):
        parts = (state[f"{key}.{p}"] for p in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, *parts)

    def conv(key, x, stride=1):
        weight = state[f"{key}.weight"]
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    x = F.max_pool2d(F.relu(norm("bn1", conv("conv1", x, 2))), 3, 2, 1)
    bottleneck = "layer1.0.conv3.weight" in state
    keys = dict.fromkeys(m[0] for k in state if (m := re.match(r"layer\d\.\d+", k)))
    for key in keys:
        stride = 2 if key.endswith(".0") and key[5] != "1" else 1
        strides = (1, stride, 1) if bottleneck else (stride, 1)
        y = x
        for i, s in enumerate(strides, 1):
            y = norm(f"{key}.bn{i}", conv(f"{key}.conv{i}", y, s))
            y = F.relu(y) if i < len(strides) else y
        if f"{key}.downsample.0.weight" in state:
            x = norm(f"{key}.downsample.1", conv(f"{key}.downsample.0", x, stride))
        x = F.relu(x + y)
    return x.mean((2, 3))


@pytest.fixture(scope="module")
def state18():
    return torchvision_state("resnet18")


@pytest.fixture(scope="module")
def file18(state18, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "resnet18.safetensors"
    save_file(state18, path)
    return path


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_the_network_computes_what_torchvisions_would(name, tmp_path):
    state = torchvision_state(name)
    save_file(state, tmp_path / "w.safetensors")
    network = pretrained(name, tmp_path / "w.safetensors")((3, 64, 64), 5).eval()
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        seen = features(state, x)
        torch.testing.assert_close(network(x), network.head(seen), rtol=1e-4, atol=1e-4)
    assert seen.std() > 0.01
    # Every tensor of the file but the last layer's went somewhere.
    assert len(network.body.state_dict()) == len(state) - 2


def test_small_images_keep_the_imagenet_stem_and_the_head_is_fresh(state18, file18):
    factory = pretrained("resnet18", file18)
    torch.manual_seed(0)
    a, b = factory((3, 32, 32), 14), factory((3, 32, 32), 14)
    assert torch.equal(a.body[0].weight, state18["conv1.weight"])
    assert torch.equal(a.body[5].branch[4].running_var, state18["layer1.1.bn2.running_var"])
    assert a.head.weight.shape == (14, 512)
    assert not torch.equal(a.head.weight, b.head.weight)


def test_the_identity_is_the_content_not_the_place(state18, file18, tmp_path):
    moved = tmp_path / file18.name
    moved.write_bytes(file18.read_bytes())
    first = pretrained("resnet18", file18).__qualname__
    assert first == pretrained("resnet18", moved).__qualname__
    assert "resnet18" in first
    other = tmp_path / "other" / file18.name
    other.parent.mkdir()
    save_file({**state18, "fc.bias": torch.ones(1000)}, other)
    assert pretrained("resnet18", other).__qualname__ != first


def test_runs_resume_by_that_identity(file18, tmp_path):
    from noisegate.data import from_arrays
    from noisegate.runs.run import Run

    x = torch.randint(0, 256, (8, 3, 32, 32), generator=torch.Generator().manual_seed(0)).numpy().astype("u1")
    run = Run(from_arrays(x, [0, 1] * 4), "ce", pretrained("resnet18", file18), {"epochs": 1}, device="cpu")
    identity = run.record["identity"]
    assert identity["network"] == pretrained("resnet18", file18).__qualname__
    RunFolder(tmp_path / "run", identity).close()
    with pytest.raises(InputError, match="differs in network"):
        RunFolder(tmp_path / "run", {**identity, "network": "resnet18"})


def test_a_missing_file_says_how_to_write_it(tmp_path):
    with pytest.raises(MissingDataError, match="resnet18.safetensors") as error:
        pretrained("resnet18", tmp_path / "weights" / "resnet18.safetensors")
    (code,) = re.findall(r'python -c "(.*)", and put it there', str(error.value))
    assert "\n" not in code
    # The advice must at least be Python: torchvision itself is not there to run it.
    check = [sys.executable, "-c", f"import ast; ast.parse({code!r})"]
    assert subprocess.run(check, timeout=60).returncode == 0
    assert "get_model('resnet18', weights='IMAGENET1K_V1')" in code


def test_what_does_not_fit_is_refused_by_name(state18, file18, tmp_path):
    save_file({k: v for k, v in state18.items() if k != "layer3.1.bn2.bias"}, tmp_path / "less.safetensors")
    with pytest.raises(InputError, match=r"no layer3\.1\.bn2\.bias"):
        pretrained("resnet18", tmp_path / "less.safetensors")((3, 64, 64), 2)
    with pytest.raises(
        InputError, match=r"layer1\.0\.conv1\.weight has shape \(64, 64, 3, 3\), expected \(64, 64, 1"
    ):
        pretrained("resnet50", file18)((3, 64, 64), 2)
    with pytest.raises(InputError, match=r"conv1\.weight .*expected \(64, 1, 7, 7\)"):
        pretrained("resnet18", file18)((1, 64, 64), 2)
    with pytest.raises(InputError, match="not 'wrn-28-2'"):
        pretrained("wrn-28-2", file18)((3, 32, 32), 2)
    with pytest.raises(InputError, match=r"conv1\.weight .*expected \(64, 3, 3, 3\)"):
        pretrained("resnet18-cifar", file18)((3, 32, 32), 2)
    (tmp_path / "bad.safetensors").write_bytes(file18.read_bytes()[:1000])
    with pytest.raises(DamagedFileError, match=r"bad\.safetensors"):
        pretrained("resnet18", tmp_path / "bad.safetensors")((3, 64, 64), 2)
