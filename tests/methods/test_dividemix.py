import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture

import noisegate as ng
from noisegate.errors import InputError
from noisegate.methods.dividemix import DivideMix, Dividing, Warmup, clean_probability, sharpen
from noisegate.methods.mixup import symmetric_beta


def bimodal(n=2000, share=0.35, gap=3.0, seed=0):
    rng = np.random.default_rng(seed)
    wrong = rng.random(n) < share
    return np.where(wrong, gap + 0.8 * rng.standard_normal(n), 0.5 + 0.4 * rng.standard_normal(n)), wrong


@pytest.mark.parametrize(("share", "gap"), [(0.35, 3.0), (0.1, 4.0), (0.8, 2.5)])
def test_the_mixture_is_scikit_learns(share, gap):
    losses, wrong = bimodal(share=share, gap=gap)
    ours = clean_probability(torch.from_numpy(losses), torch.ones(len(losses))).numpy()
    scaled = ((losses - losses.min()) / (losses.max() - losses.min()))[:, None]
    model = GaussianMixture(2, reg_covar=5e-4, tol=1e-12, max_iter=5000, random_state=0).fit(scaled)
    theirs = model.predict_proba(scaled)[:, model.means_.argmin()]
    np.testing.assert_allclose(ours, theirs, atol=2e-3)
    assert ((ours < 0.5) == wrong).mean() > 0.95


def test_the_mixture_counts_rows_by_weight_and_does_not_depend_on_scale():
    losses, _ = bimodal(n=300)
    values, weights = torch.from_numpy(losses), torch.randint(1, 4, (300,), generator=torch.manual_seed(0))
    once = clean_probability(values, weights)
    repeated = clean_probability(values.repeat_interleave(weights), torch.ones(int(weights.sum())))
    torch.testing.assert_close(once.repeat_interleave(weights), repeated)
    torch.testing.assert_close(clean_probability(7 * values - 3, weights), once)
    assert (once - clean_probability(values, torch.ones(300))).abs().max() > 1e-4


def test_equal_losses_give_no_nan():
    assert clean_probability(torch.full((9,), 0.3), torch.ones(9)).isfinite().all()


def test_sharpening():
    p = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0], [0.34, 0.33, 0.33]])
    torch.testing.assert_close(sharpen(p, 1.0), p)
    torch.testing.assert_close(sharpen(p, 0.5), p**2 / (p**2).sum(1, keepdim=True))
    assert (sharpen(p, 1e-4).max(1).values == 1).all()


@pytest.fixture
def dividing(noisy_digits, job_for):
    """The second phase's module with a division of our own, and a batch's inputs and labels."""

    def make(method, clean=None, n=12):
        torch.manual_seed(0)
        job = job_for(noisy_digits)
        objective = ng.CrossEntropy(10)
        networks = [job.network(objective), job.network(objective)]
        clean = torch.rand(len(job.train), 2) if clean is None else clean
        module = Dividing(networks, objective, clean, None, method)
        return module, torch.from_numpy(noisy_digits.train.x[:n].copy()), job.train.y[:n]

    return make


def test_each_network_trains_on_the_division_of_the_other(dividing, noisy_digits, make_batch):
    clean = torch.zeros(len(noisy_digits.train), 2)
    clean[:, 0] = 1.0
    # By the losses of the first network all labels are right; only the second one may use them.
    module, x, y = dividing(DivideMix(lambda_u=0.0, balance=0.0), clean)
    module(make_batch(x, y)).backward()
    first, second = ([p.grad for p in network.parameters()] for network in module.networks)
    assert all((g == 0).all() for g in first)
    assert all((g != 0).any() for g in second)


def test_targets_are_refined_or_guessed(dividing):
    module, _, _ = dividing(DivideMix(threshold=0.5, temperature=0.5))
    torch.manual_seed(0)
    y, trust = torch.tensor([3, 1, 0]), torch.tensor([[0.9], [0.5], [0.2]])
    own, both = torch.randn(3, 10).softmax(1), torch.randn(3, 10).softmax(1)
    found = module.targets(y, trust, own, both)
    for i in range(3):
        label = torch.eye(10)[y[i]]
        raw = trust[i] * label + (1 - trust[i]) * own[i] if trust[i] >= 0.5 else both[i]
        torch.testing.assert_close(found[i], raw**2 / (raw**2).sum())


def test_the_loss_term_by_term(dividing):
    method = DivideMix(lambda_u=20.0, rampup_epochs=8, balance=0.7)
    module, _, _ = dividing(method)
    torch.manual_seed(0)
    log_p, targets = torch.randn(6, 10).log_softmax(1), torch.randn(6, 10).softmax(1)
    labelled = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    weights = torch.tensor([1.0, 2.0, 0.5, 0.0, 1.0, 1.0])
    p, w, t = log_p.exp().double().numpy(), weights.double().numpy(), targets.double().numpy()
    supervised = -(w[0] * t[0] @ np.log(p[0]) + w[2] * t[2] @ np.log(p[2])) / (w[0] + w[2])
    squares = ((p - t) ** 2).sum(1)
    unsupervised = (w[[1, 4, 5]] * squares[[1, 4, 5]]).sum() / w[[1, 4, 5]].sum()
    mean = (w[:, None] * p).sum(0) / w.sum()
    imbalance = (0.1 * np.log(0.1 / mean)).sum()
    for epoch, strength in ((0, 0.0), (2, 5.0), (8, 20.0), (50, 20.0)):
        found = module.mixed_loss(log_p, targets, labelled, weights, torch.tensor(epoch))
        assert float(found) == pytest.approx(supervised + strength * unsupervised + 0.7 * imbalance, rel=1e-5)


def test_a_whole_step_with_two_views_row_by_row(dividing, make_batch):
    """Everything between the inputs and the loss, written out with loops and the same random numbers."""
    method = DivideMix(lambda_u=3.0, rampup_epochs=0, balance=0.5, alpha=0.8)
    module, x, y = dividing(method, n=5)
    module.n_views, calls = 2, []

    def augment(inputs):
        calls.append(len(calls) % 2)
        return inputs + calls[-1]

    module.augment = augment
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0, 1.5])
    torch.manual_seed(3)
    found = module(make_batch(x, y, weight=weight))
    views = module.networks[0].prepare(torch.cat([x, x + 1]))
    guesses = [net.network(views).softmax(1).view(2, 5, 10).mean(0) for net in module.networks]
    torch.manual_seed(3)
    expected = 0.0
    for k, network in enumerate(module.networks):
        share = symmetric_beta(0.8, weight)
        share, order = max(share, 1 - share), torch.rand(10).argsort()
        trust = module.clean[:5, 1 - k]
        targets = module.targets(y, trust.unsqueeze(1), guesses[k], (guesses[0] + guesses[1]) / 2)
        rows = []
        for i in range(10):
            j = int(order[i])
            a, b = share * weight[i % 5], (1 - share) * weight[j % 5]
            outputs = network.network((share * views[i] + (1 - share) * views[j]).unsqueeze(0))
            target = (a * targets[i % 5] + b * targets[j % 5]) / (a + b)
            rows.append((outputs.log_softmax(1)[0], target, (trust[i % 5] >= 0.5).float(), a + b))
        parts = [torch.stack(part) for part in zip(*rows, strict=True)]
        expected += module.mixed_loss(*parts, torch.tensor(0))
    assert 0 < (module.clean[:5] >= 0.5).sum() < 10
    torch.testing.assert_close(found, expected)


def test_labels_of_rows_without_weight_play_no_part(dividing, make_batch):
    module, x, y = dividing(DivideMix(rampup_epochs=0), torch.full((10_000, 2), 0.8))
    weight = torch.ones(12)
    weight[[2, 5]] = 0.0

    def loss(labels, weights):
        torch.manual_seed(4)
        return module(make_batch(x, labels, weight=weights)).item()

    other = y.clone()
    other[[2, 5]] = (other[[2, 5]] + 1) % 10
    assert loss(y, weight) == loss(other, weight)
    assert loss(y, torch.ones(12)) != loss(other, torch.ones(12))


def test_images_have_two_views_and_vectors_one(noisy_digits, job_for, run_phases, make_batch):
    def widths(data, recipe, network):
        job = job_for(data, recipe, network=network)
        phases, _ = run_phases(DivideMix(warmup_epochs=1), job)
        module, seen = phases[1].module, []
        module.networks[0].network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        rows = torch.arange(5)
        module(make_batch(job.train.gather(rows), job.train.y[rows]))
        return phases, seen

    recipe = ng.Recipe(epochs=2, batch_size=400)
    _, seen = widths(noisy_digits, recipe, "mlp-8")
    assert [len(x) for x in seen] == [5, 5]
    images = ng.data.load("digits", as_images=True)
    phases, seen = widths(images, recipe.replace(crop=2, flip=True), "lenet5")
    assert [len(x) for x in seen] == [10, 10]
    assert (seen[0][:5] != seen[0][5:]).any()
    # The trainer augments the warm-up; in the second phase the module does it itself.
    assert [(phase.recipe.crop, phase.recipe.flip) for phase in phases] == [(2, True), (0, False)]


def test_the_recipe_is_cut_in_two(noisy_digits, job_for):
    def lengths(recipe, **params):
        first, second = DivideMix(**params)._recipes(job_for(noisy_digits, recipe))
        assert first.schedule == "constant"
        assert first.patience is None
        return [(r.epochs, r.steps) for r in (first, second)], second.milestones

    step = ng.Recipe(epochs=40, schedule="step", milestones=(3, 20), batch_size=100)
    assert lengths(step) == ([(10, None), (30, None)], (0, 10))
    assert lengths(step.replace(epochs=24)) == ([(8, None), (16, None)], (0, 12))
    assert lengths(step, warmup_epochs=4) == ([(4, None), (36, None)], (0, 16))
    # 1347 rows: 13 steps an epoch.
    in_steps = ng.Recipe(epochs=None, steps=100, batch_size=100, schedule="step", milestones=(50,))
    assert lengths(in_steps, warmup_epochs=2) == ([(None, 26), (None, 74)], (24,))
    assert lengths(in_steps) == ([(None, 33), (None, 67)], (17,))
    assert lengths(in_steps.replace(steps=1000)) == ([(None, 130), (None, 870)], (0,))
    assert lengths(ng.Recipe(epochs=1)) == ([(1, None), (1, None)], ())
    with pytest.raises(
        InputError, match="warmup_epochs must be shorter than the recipe, got 40 epochs of 40"
    ):
        lengths(step, warmup_epochs=40)


def test_the_warm_up_is_cross_entropy_of_both_and_may_reward_entropy(noisy_digits, job_for, make_batch):
    job = job_for(noisy_digits)
    objective = ng.CrossEntropy(10)
    networks = [job.network(objective), job.network(objective)]
    x, y = torch.from_numpy(noisy_digits.train.x[:8].copy()), job.train.y[:8]
    weight = torch.linspace(0.0, 2.0, 8)
    expected = {False: 0.0, True: 0.0}
    for network in networks:
        p = network(x).softmax(1)
        cost, negative_entropy = -p[range(8), y].log(), (p * p.log()).sum(1)
        expected[False] += (weight * cost).sum() / weight.sum()
        expected[True] += (weight * (cost + negative_entropy)).sum() / weight.sum()
    for penalty, value in expected.items():
        module = Warmup(networks, objective, penalty)
        torch.testing.assert_close(module(make_batch(x, y, weight=weight)), value)


@pytest.fixture(scope="module")
def fitted(fit_digits):
    return fit_digits("dividemix")


def test_rows_that_it_takes_for_clean_are_clean(fitted, noisy_digits):
    right = noisy_digits.train.y == noisy_digits.train.clean
    clean = fitted.extras["clean_probability"].numpy()
    assert right.mean() < 0.65
    assert right[clean >= 0.5].mean() > 0.93
    assert (clean >= 0.5)[right].mean() > 0.8
    assert roc_auc_score(right, clean) > 0.95


def test_it_beats_cross_entropy_by_a_margin(fitted, cross_entropy):
    assert fitted.metrics["test_accuracy"] > cross_entropy.metrics["test_accuracy"] + 0.07
    assert fitted.metrics["train_memorised"] < 0.05


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"warmup_epochs": 0}, "warmup_epochs must be at least 1"),
        ({"threshold": 1.5}, r"threshold must lie in \[0, 1\]"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"alpha": -1.0}, "alpha must be positive"),
        ({"lambda_u": -1.0}, "lambda_u must be a finite number that is not negative"),
        ({"balance": float("nan")}, "balance must be a finite number"),
        ({"n_views": 0}, "n_views must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(params, message, noisy_digits, job_for):
    with pytest.raises(InputError, match=message):
        next(DivideMix(**params).phases(job_for(noisy_digits)))
