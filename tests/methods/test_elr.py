import math

import pytest
import torch
from sklearn.metrics import roc_auc_score

import noisegate as ng
from noisegate.errors import InputError
from noisegate.methods.elr import MARGIN, EarlyLearning, Remembering, early_learning_term


class Table(torch.nn.Module):
    """A network whose outputs are its parameters, one row an example."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = torch.nn.Parameter(outputs)

    def forward(self, x):
        return self.outputs[x]


@pytest.fixture
def table(make_batch):
    """Six examples of three classes; a batch is given by its rows."""
    torch.manual_seed(0)
    module = Remembering(Table(2 * torch.randn(6, 3)), ng.CrossEntropy(3), torch.zeros(6, 3), 3.0, 0.7)
    y = torch.tensor([0, 1, 2, 0, 1, 2])

    def step(rows, weight=None):
        index = torch.tensor(rows)
        return module(make_batch(index, y[index], index=index, weight=weight))

    return module, y, step


def test_the_moving_average_follows_its_formula(table):
    module, _, step = table
    p = module.network.outputs.detach().softmax(1)
    expected = torch.zeros(6, 3)
    for rows in ([4, 1, 0], [1, 2], [1, 4, 5]):
        step(rows)
        for row in rows:
            expected[row] = 0.7 * expected[row] + 0.3 * p[row]
        torch.testing.assert_close(module.targets, expected)
    assert (module.targets[3] == 0).all()
    assert not module.targets.requires_grad


def test_the_gradient_of_the_term_is_the_papers():
    """d/df_k log(1 - <p, t>) = p_k / (1 - <p, t>) sum_j (t_j - t_k) p_j."""
    torch.manual_seed(0)
    f = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    t = 0.9 * torch.randn(5, 4, dtype=torch.float64).softmax(1)
    early_learning_term(f.softmax(1), t).sum().backward()
    p = f.detach().softmax(1)
    for i in range(5):
        inner = (p[i] * t[i]).sum()
        for k in range(4):
            pull = sum((t[i, j] - t[i, k]) * p[i, j] for j in range(4))
            assert float(f.grad[i, k]) == pytest.approx(float(p[i, k] / (1 - inner) * pull), abs=1e-12)


def test_the_loss_uses_the_updated_average_and_the_weights(table):
    module, y, step = table
    step([0, 1, 2, 3, 4, 5])
    weight = torch.tensor([1.0, 0.0, 3.0])
    loss = step([5, 3, 1], weight)
    p = module.network.outputs.softmax(1)
    t = 0.7 * 0.3 * p.detach() + 0.3 * p.detach()
    each = -p[range(6), y].log() + 3.0 * (1 - (p * t).sum(1)).log()
    torch.testing.assert_close(loss, (each[5] + 3 * each[1]) / 4)
    # The average itself passes no gradient.
    (ours,) = torch.autograd.grad(loss, module.network.outputs, retain_graph=True)
    (theirs,) = torch.autograd.grad((each[5] + 3 * each[1]) / 4, module.network.outputs)
    torch.testing.assert_close(ours, theirs)


def test_certainty_leaves_loss_and_gradient_finite(table):
    module, _, step = table
    with torch.no_grad():
        module.network.outputs.copy_(1e4 * torch.eye(3).repeat(2, 1))
        module.targets.copy_(torch.eye(3).repeat(2, 1))
    loss = step([0, 1, 2, 3])
    loss.backward()
    assert loss.isfinite()
    assert module.network.outputs.grad.isfinite().all()
    assert (module.targets <= 1.0).all()
    assert loss.item() == pytest.approx(3.0 * math.log(MARGIN), abs=3.0)


def test_without_the_term_it_is_cross_entropy_bit_for_bit(noisy_digits):
    recipe = ng.Recipe(epochs=2, batch_size=64)
    plain, other = (
        ng.train(noisy_digits, method, "mlp-16", recipe, seed=3, device="cpu", evaluate_every=0)
        for method in ("ce", EarlyLearning(strength=0.0))
    )
    for a, b in zip(plain.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.fixture(scope="module")
def fitted(fit_digits):
    return fit_digits("elr")


def test_it_memorises_fewer_wrong_labels_than_cross_entropy(fitted, cross_entropy):
    assert cross_entropy.metrics["train_memorised"] > 0.4
    assert fitted.metrics["train_memorised"] < 0.15
    assert fitted.metrics["train_recovered"] > cross_entropy.metrics["train_recovered"] + 0.3
    assert fitted.metrics["test_accuracy"] > cross_entropy.metrics["test_accuracy"] + 0.05


def test_its_memory_tells_wrong_labels_from_right_ones(fitted, noisy_digits):
    right = noisy_digits.train.y == noisy_digits.train.clean
    agreement = fitted.extras["agreement"].numpy()
    assert agreement.shape == right.shape
    assert ((agreement >= 0) & (agreement <= 1)).all()
    assert roc_auc_score(right, agreement) > 0.95


def test_a_row_that_was_never_seen_has_no_opinion(noisy_digits):
    recipe = ng.Recipe(steps=1, epochs=None, batch_size=64)
    fitted = ng.train(noisy_digits, "elr", "mlp-8", recipe, device="cpu", evaluate_every=0)
    agreement = fitted.extras["agreement"]
    assert ((agreement - 0.1).abs() < 1e-7).sum() == len(noisy_digits.train) - 64


def test_what_makes_no_sense_is_refused(noisy_digits, job_for):
    job = job_for(noisy_digits)
    for strength in (-1.0, float("nan")):
        with pytest.raises(InputError, match="strength must be a finite number that is not negative"):
            next(EarlyLearning(strength=strength).phases(job))
    for beta in (-0.1, 1.0):
        with pytest.raises(InputError, match=r"beta must lie in \[0, 1\)"):
            next(EarlyLearning(beta=beta).phases(job))
