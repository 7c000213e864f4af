import subprocess
import sys

import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.training import optimizers
from noisegate.training.optimizers import Adam, AdamOfTorch, build_optimizer, has_kernels, parameter_groups


@pytest.fixture(autouse=True, params=["kernels", "torch.optim"])
def way(request, monkeypatch):
    """By torch's private kernels, and as where torch has none."""
    if request.param == "torch.optim":
        monkeypatch.setattr(optimizers, "has_kernels", lambda name: False)
    return request.param


REFERENCES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, weight_decay=0.1, foreach=False),
    "nesterov": lambda p: torch.optim.SGD(
        p, lr=0.05, momentum=0.8, weight_decay=0.1, nesterov=True, foreach=False
    ),
    "adam": lambda p: torch.optim.Adam(
        p, lr=0.05, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.1, foreach=False
    ),
    "adamw": lambda p: torch.optim.AdamW(
        p, lr=0.05, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.1, foreach=False
    ),
    "lars": lambda p: PlainLars(p),
}


class PlainLars:
    """Equation (6) of You et al. (2017), one parameter after the other."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.velocity = [torch.zeros_like(p) for p in self.parameters]

    def step(self):
        for p, v in zip(self.parameters, self.velocity, strict=True):
            local = 1e-3 * p.data.norm() / (p.grad.norm() + 0.1 * p.data.norm()) if p.data.norm() > 0 else 1.0
            v.mul_(0.8).add_(0.05 * local * (p.grad + 0.1 * p.data))
            p.data.sub_(v)

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None


def small_network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3))


def recipe_for(name, **more):
    return ng.Recipe(
        epochs=1, optimizer=name, lr=0.05, momentum=0.8, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.1, **more
    )


def losses(network, step):
    generator = torch.Generator().manual_seed(step)
    return network(torch.randn(8, 4, generator=generator)).square().sum()


@pytest.mark.parametrize("name", REFERENCES)
def test_each_optimizer_takes_the_steps_of_its_reference(name):
    ours, theirs = small_network(), small_network()
    optimizer = build_optimizer(ours, recipe_for(name), torch.tensor(0.05))
    reference = REFERENCES[name](theirs.parameters())
    for step in range(6):
        for network, o in ((ours, optimizer), (theirs, reference)):
            o.zero_grad()
            losses(network, step).backward()
            o.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("skipped", [{0}, {2, 3}])
def test_a_skipped_update_leaves_weights_moments_and_decay_untouched(name, skipped):
    marked, without = small_network(), small_network()
    first = build_optimizer(marked, recipe_for(name), torch.tensor(0.05))
    second = build_optimizer(without, recipe_for(name), torch.tensor(0.05))
    for step in range(5):
        first.zero_grad()
        losses(marked, step).backward()
        first.found_inf = torch.tensor(1.0 if step in skipped else 0.0)
        first.step()
        if step not in skipped:
            second.zero_grad()
            losses(without, step).backward()
            second.step()
    for p, q in zip(marked.parameters(), without.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_the_learning_rate_is_read_from_the_tensor():
    network, lr = small_network(), torch.tensor(0.0)
    optimizer = build_optimizer(network, ng.Recipe(optimizer="sgd"), lr)
    before = [p.detach().clone() for p in network.parameters()]
    losses(network, 0).backward()
    optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(network.parameters(), before, strict=True))
    lr.fill_(0.1)
    optimizer.step()
    assert not any(torch.equal(p, q) for p, q in zip(network[3].parameters(), before[4:], strict=True))


def test_norm_and_bias_can_be_spared_from_decay():
    network = small_network()
    network[0].weight.requires_grad_(False)
    groups = parameter_groups(network, recipe_for("sgd", decay_norm_and_bias=False))
    decayed, spared = ([id(p) for p in group["params"]] for group in groups)
    assert decayed == [id(network[3].weight)]
    assert set(spared) == {
        id(network[0].bias),
        id(network[1].weight),
        id(network[1].bias),
        id(network[3].bias),
    }
    assert groups[1]["weight_decay"] == 0.0
    (everything,) = parameter_groups(network, recipe_for("sgd"))
    assert len(everything["params"]) == 5


FUSED = {
    "sgd": lambda g, lr: torch.optim.SGD(g, lr=lr, momentum=0.8, weight_decay=0.1, fused=True),
    "nesterov": lambda g, lr: torch.optim.SGD(
        g, lr=lr, momentum=0.8, weight_decay=0.1, nesterov=True, fused=True
    ),
    "adam": lambda g, lr: torch.optim.Adam(
        g, lr=lr, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.1, fused=True
    ),
    "adamw": lambda g, lr: torch.optim.AdamW(
        g, lr=lr, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.1, fused=True
    ),
}


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("everything", [True, False])
def test_steps_are_those_of_torchs_fused_optimizers_bit_for_bit(name, everything):
    """With groups, a changing rate, updates that are skipped, and a parameter that has no gradient at times."""
    ours, theirs, lr = small_network(), small_network(), torch.tensor(0.05)
    recipe = recipe_for(name, decay_norm_and_bias=everything)
    optimizer = build_optimizer(ours, recipe, lr)
    groups = [{k: v for k, v in g.items() if k != "adapt"} for g in parameter_groups(theirs, recipe)]
    reference = FUSED[name](groups, lr)
    for p in (p for group in reference.param_groups for p in group["params"]):
        # As ours has it from the start.
        kinds = ("exp_avg", "exp_avg_sq") if name.startswith("adam") else ("momentum_buffer",)
        reference.state[p] = {kind: torch.zeros_like(p) for kind in kinds}
        if name.startswith("adam"):
            reference.state[p]["step"] = torch.zeros(())
    for step in range(6):
        lr.fill_(0.05 / (step + 1))
        for network, o in ((ours, optimizer), (theirs, reference)):
            o.zero_grad()
            losses(network, step).backward()
            if step == 3:
                network[0].bias.grad = None
            o.found_inf = torch.tensor(float(step == 4))
            o.step()
    assert all(torch.equal(p, q) for p, q in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_parameters_of_several_types_are_updated():
    network = small_network()
    network[3].double()
    before = [p.detach().clone() for p in network.parameters()]
    optimizer = build_optimizer(network, recipe_for("adam"), torch.tensor(0.05))
    network[3](network[:3](torch.randn(8, 4)).double()).square().sum().backward()
    optimizer.step()
    assert not any(torch.equal(p, q) for p, q in zip(network.parameters(), before, strict=True))


@pytest.mark.parametrize("name", REFERENCES)
def test_another_goes_on_from_its_state(name):
    def network():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 3))

    def step(network, optimizer, number):
        optimizer.zero_grad()
        x = torch.randn(5, 2, 4, 4, generator=torch.Generator().manual_seed(number))
        network(x).square().sum().backward()
        optimizer.step()

    one, other = network(), network().to(memory_format=torch.channels_last)
    first = build_optimizer(one, recipe_for(name), torch.tensor(0.05))
    for number in range(3):
        step(one, first, number)
    second = build_optimizer(other, recipe_for(name), torch.tensor(0.05))
    other.load_state_dict(one.state_dict())
    second.load([{k: v.clone() for k, v in state.items()} for state in first.state])
    # Kernels walk through parameter, gradient and state side by side.
    shaped = [t for t in second.state[0].values() if t.dim() == 4]
    assert shaped
    assert all(t.stride() == other[0].weight.stride() for t in shaped)
    for number in range(3, 6):
        step(one, first, number)
        step(other, second, number)
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_training_on_a_cpu_does_not_load_the_compiler(way):
    """It takes longer than a small fit."""
    if way == "torch.optim":
        pytest.skip("torch.optim loads it")
    program = (
        "import sys, noisegate as ng\n"
        "data = ng.data.load('digits').corrupt(ng.noise.Symmetric(0.2), seed=0)\n"
        "for method in ('ln', 'het', 'co-teaching', 'forward'):\n"
        "    ng.train(data, method, 'mlp-4', {'epochs': 1, 'clip_norm': 1.0, 'ema': 0.9}, device='cpu')\n"
        "print([name for name in ('torch._dynamo', 'torch._inductor') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_torchs_classes_are_used_where_a_kernel_is_missing_or_takes_other_arguments(monkeypatch, way):
    if way == "torch.optim":
        pytest.skip("this is about how the way is chosen")
    has_kernels.cache_clear()
    assert type(build_optimizer(small_network(), recipe_for("adam"), torch.tensor(0.05))) is Adam
    for other in (None, lambda *args, rate: None):
        has_kernels.cache_clear()
        with monkeypatch.context() as patch:
            if other is None:
                patch.delattr(torch, "_fused_adam_")
            else:
                patch.setattr(torch, "_fused_adam_", other)
            kind = type(build_optimizer(small_network(), recipe_for("adam"), torch.tensor(0.05)))
        assert kind is AdamOfTorch
    has_kernels.cache_clear()
