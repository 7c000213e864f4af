"""CausalNL against brute force, quadrature and its own definition, variant by variant."""

import numpy as np
import pytest
import torch
from torch import distributions as D

import noisegate as ng
from noisegate.data.dataset import Dataset, Split
from noisegate.errors import InputError
from noisegate.methods.causalnl import Branch, CausalNL, LabelledPosterior
from noisegate.methods.co_teaching import Peers
from noisegate.networks.causal import Terms, gaussian_kl
from noisegate.training.job import make_job
from noisegate.training.phase import Phase
from noisegate.training.phase_run import PhaseRun
from noisegate.training.randomness import seeded

VARIANTS = ("paper", "elbo", "code")


def vectors(n=60, k=3, d=2, seed=0):
    """Blobs on a triangle, some labels wrong."""
    rng = np.random.default_rng(seed)
    clean = rng.integers(0, k, n)
    angle = 2 * np.pi * clean / k
    x = np.stack([np.cos(angle), np.sin(angle)], 1) * 3 + 0.5 * rng.standard_normal((n, 2))
    x = np.concatenate([x, rng.standard_normal((n, d - 2))], 1).astype(np.float32)
    return Dataset(
        "blobs", Split(x, (clean + (rng.random(n) < 0.2)) % k), Split(x, clean), classes=tuple("abc")[:k]
    )


def images(n=40, size=16, seed=0):
    """A bright top or bottom half of random brightness, uint8."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = np.zeros((n, 1, size, size), np.uint8)
    for row, label in zip(x, y, strict=True):
        half = slice(0, size // 2) if label else slice(size // 2, size)
        row[0, half] = rng.integers(60, 255)
    return Dataset("halves", Split(x, y), Split(x, y), classes=("bottom", "top"))


@pytest.fixture
def module_for(job_for):
    """The module of the one phase that a method with a given rate has."""

    def make(data=None, network="mlp-8", **params):
        torch.manual_seed(0)
        params = {"noise_rate": 0.3, "widths": [8, 8], **params}
        job = job_for(data or vectors(), network=network)
        phase = next(CausalNL(**params).phases(job))
        return phase.module, job

    return make


@pytest.fixture
def batch_of(make_batch):
    def make(job, n=20, epoch=0):
        index = torch.arange(n)
        return make_batch(job.train.gather(index), job.train.y[index], epoch=epoch)

    return make


# -- one update or two -----------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_updates_share_the_losses_of_one(module_for, batch_of, variant):
    module, job = module_for(variant=variant, updates="two")
    batch = batch_of(job, epoch=20)
    first, second = module.updates()
    torch.manual_seed(1)
    apart = first.loss(batch) + second.loss(batch)
    torch.manual_seed(1)
    torch.testing.assert_close(apart, module(batch))
    assert {id(p) for p in second.trained.parameters()} == {id(p) for p in module.parameters()}
    classifiers = [*module.first.classifier.parameters(), *module.second.classifier.parameters()]
    assert [id(p) for p in first.trained.parameters()] == [id(p) for p in classifiers]
    assert len(module_for(variant=variant)[0].updates()) == 1


def test_the_terms_move_the_classifier_as_far_as_co_teaching_does_in_two_updates(module_for):
    def moved(updates, **weights):
        module, job = module_for(updates=updates, **weights)
        run = PhaseRun(Phase(module, job.recipe), job, 0, None, 0)
        torch.manual_seed(2)
        run.step.on(torch.arange(20), None)
        return module.first.classifier.network.head.weight.detach().clone()

    none = {f"{name}_weight": 0.0 for name in ("reconstruction", "label", "prior", "kl")}
    start = module_for()[0].first.classifier.network.head.weight.detach()
    alone = moved("one", **none)
    by_one, by_two = ((moved(updates) - alone).norm() for updates in ("one", "two"))
    # Adam's first step is lr times the sign of the gradient.
    assert by_two > 0.5 * (alone - start).norm()
    assert by_one < 0.3 * by_two


def test_one_update_is_no_part_of_the_settings():
    assert "updates" not in CausalNL().settings()
    assert CausalNL(updates="two").settings()["updates"] == "two"


def test_two_updates_train_and_an_unknown_number_is_refused():
    recipe = {"epochs": 2, "batch_size": 20}
    fitted = ng.train(vectors(), CausalNL(noise_rate=0.2, updates="two"), "mlp-8", recipe)
    assert fitted.history[-1][-1]["loss"] > 0
    with pytest.raises(InputError, match="updates"):
        ng.train(vectors(), CausalNL(noise_rate=0.2, updates="three"), "mlp-8", recipe)


# -- what sets the variants apart ----------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_the_noisy_label_decoder_sees(module_for, batch_of, variant):
    module, job = module_for(variant=variant)
    seen, rebuilt = [], []
    module.first.annotator.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    module.first.decoder.register_forward_hook(lambda _, __, output: rebuilt.append(output))
    batch = batch_of(job)
    module(batch)
    if variant == "elbo":
        torch.testing.assert_close(
            seen[0], module.first.target(batch.x)[:, None].expand(-1, 3, -1).flatten(0, 1)
        )
    else:
        assert seen[0] is rebuilt[0]


@pytest.mark.parametrize(
    ("variant", "mean", "std"), [("paper", 0, 1), ("elbo", 0, 1), ("code", 0.5, 12**-0.5)]
)
def test_the_noise_of_z(module_for, batch_of, monkeypatch, variant, mean, std):
    module, job = module_for(variant=variant, z_dim=50)
    name = "exact_terms" if variant == "elbo" else "sampled_terms"
    original, seen = getattr(module.first, name), []
    monkeypatch.setattr(
        module.first, name, lambda *args, **more: seen.append(args[-1]) or original(*args, **more)
    )
    module(batch_of(job))
    assert bool((seen[0].min() >= 0) & (seen[0].max() <= 1)) == (variant == "code")
    assert seen[0].mean().item() == pytest.approx(mean, abs=0.1)
    assert seen[0].std().item() == pytest.approx(std, rel=0.1)


def test_the_prior_maximises_entropy_and_has_no_gradient_in_the_code(module_for, batch_of):
    def gradient(variant, weight):
        module, job = module_for(variant=variant, prior_weight=weight)
        torch.manual_seed(0)
        module(batch_of(job)).backward()
        return module.first.classifier.network.head.weight.grad

    torch.testing.assert_close(gradient("code", 0.0), gradient("code", 50.0))
    module, job = module_for(variant="paper")
    log_q = (3 * torch.randn(20, 3)).log_softmax(1).requires_grad_()
    batch = batch_of(job)
    (slope,) = torch.autograd.grad(
        module.first.terms(module.first.target(batch.x), batch.y, log_q).prior.sum(), log_q
    )
    entropy = D.Categorical(logits=log_q.detach()).entropy()
    assert (D.Categorical(logits=log_q.detach() - 0.05 * slope).entropy() > entropy).all()
    assert (gradient("paper", 0.0) - gradient("paper", 50.0)).abs().max() > 1e-3


def test_the_loss_of_the_code_by_hand(module_for, batch_of, monkeypatch):
    """Against the published formulas: sums and means as they stand there."""
    module, job = module_for(variant="code", z_dim=2, noise_rate=0.4, gradual=5)
    functional = torch.nn.functional
    for epoch, forget in enumerate([*np.linspace(0, 0.4, 5).tolist(), 0.4]):
        batch = batch_of(job, epoch=epoch)
        seen = []
        for branch in (module.first, module.second):
            original = branch.sampled_terms
            monkeypatch.setattr(
                branch,
                "sampled_terms",
                lambda *a, seen=seen, original=original, **k: seen.append(a) or original(*a, **k),
            )
        loss = module(batch)
        monkeypatch.undo()
        outputs = [branch.classifier(batch.x) for branch in (module.first, module.second)]
        kept = int((1 - forget) * len(batch.y))
        order = [functional.cross_entropy(out, batch.y, reduction="none").argsort()[:kept] for out in outputs]
        expected = 0.0
        for branch, out, (x, _, _, y, noise), easy in zip(
            (module.first, module.second), outputs, seen, order[::-1], strict=True
        ):
            mean, log_variance = branch.encoder(x, y)
            rebuilt = branch.decoder(y, mean + noise * log_variance.exp().sqrt())
            expected += functional.cross_entropy(out[easy], batch.y[easy]) / kept
            expected += 0.1 * functional.mse_loss(rebuilt, x)
            expected += 0.1 * functional.nll_loss(branch.annotator(rebuilt, y), batch.y)
            expected += 1e-5 * (out.softmax(1) * out.log_softmax(1)).sum(1).mean()  # no gradient flows here
            expected -= 0.01 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
        torch.testing.assert_close(loss, expected)


def test_the_paper_terms_by_hand(module_for, batch_of):
    module, job = module_for(variant="paper", z_dim=2)
    branch, batch = module.first, batch_of(job)
    x, y, noise = branch.target(batch.x), torch.eye(3)[batch.y], torch.randn(20, 2)
    log_q = branch.posterior(branch.classifier(batch.x), batch.y)
    mean, log_variance = branch.encoder(x, y)
    rebuilt = branch.decoder(y, mean + noise * log_variance.exp().sqrt())
    terms = branch.sampled_terms(x, batch.y, log_q, y, noise)
    torch.testing.assert_close(terms.reconstruction, (x - rebuilt).abs().sum(1) / 2)
    torch.testing.assert_close(
        terms.label, torch.nn.functional.nll_loss(branch.annotator(rebuilt, y), batch.y, reduction="none")
    )
    torch.testing.assert_close(terms.prior, -D.Categorical(logits=log_q).entropy())
    torch.testing.assert_close(terms.kl, gaussian_kl(mean, log_variance))


@pytest.mark.parametrize("variant", ["paper", "elbo"])
@pytest.mark.parametrize("epoch", [0, 50])
def test_without_the_terms_it_is_co_teaching(module_for, batch_of, variant, epoch):
    none = dict.fromkeys(("reconstruction_weight", "label_weight", "prior_weight", "kl_weight"), 0.0)
    module, job = module_for(variant=variant, **none)
    first, second = (b.classifier for b in (module.first, module.second))
    peers = Peers(first, second, ng.CrossEntropy(3), job.per_example(2), rate=0.3)
    batch = batch_of(job, epoch=epoch)
    torch.testing.assert_close(module(batch), peers(batch))
    module.rate = 0.0
    assert (module(batch) > peers(batch)) == (epoch > 0)


def test_the_loss_is_the_weighted_sum_and_in_elbo_per_number_of_the_input(module_for, batch_of, monkeypatch):
    for variant, divisor in (("paper", 1), ("elbo", 2)):
        weights = {"reconstruction_weight": 1, "label_weight": 2, "prior_weight": 4, "kl_weight": 8}
        module, job = module_for(variant=variant, **weights)
        fixed = Terms(*(torch.full((20,), float(i)) for i in (1, 2, 3, 4)))
        monkeypatch.setattr(Branch, "terms", lambda *_, fixed=fixed: fixed)
        batch = batch_of(job)
        each = module.negative_bound(module.first, batch, module.first.classifier(batch.x))
        torch.testing.assert_close(each, torch.full((20,), (1 + 4 + 12 + 32) / divisor))


def test_in_the_warm_up_the_terms_do_not_reach_the_classifier(module_for, batch_of):
    for epoch, reached in ((4, False), (5, True)):
        module, job = module_for(variant="elbo", warmup_epochs=5)
        batch = batch_of(job, epoch=epoch)
        module.negative_bound(module.first, batch, module.first.classifier(batch.x)).sum().backward()
        slopes = [p.grad.abs().sum().item() for p in module.first.classifier.parameters()]
        assert all(slope > 0 for slope in slopes) == reached
        assert any(slope > 0 for slope in slopes) == reached
        assert module.first.encoder.head.weight.grad.abs().sum() > 0


# -- all of it -----------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("label_posterior", [False, True])
@pytest.mark.parametrize("kind", ["vectors", "images"])
def test_every_parameter_of_all_eight_networks_has_a_gradient(
    module_for, batch_of, variant, label_posterior, kind
):
    data, network, widths = (
        (images(), "lenet5", [4, 8, 8, 8]) if kind == "images" else (None, "mlp-8", [8, 8])
    )
    module, job = module_for(
        data, network, variant=variant, label_posterior=label_posterior, widths=widths, warmup_epochs=0
    )
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.add_(0.01)  # no unit of these small networks is dead for all rows
    module(batch_of(job)).backward()
    for branch in (module.first, module.second):
        assert {n for n, _ in branch.named_children()} >= {"classifier", "encoder", "decoder", "annotator"}
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    scales = [name for name, _ in module.named_parameters() if "log_scale" in name]
    assert len(scales) == (2 if variant == "elbo" else 0)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("label_posterior", [False, True])
@pytest.mark.parametrize("kind", ["vectors", "images", "bf16"])
def test_steps_are_capture_safe(job_for, capture_guard, variant, label_posterior, kind):
    options = (
        {"precision": "bf16"} if kind == "bf16" else {"crop": 1, "flip": True} if kind == "images" else {}
    )
    recipe = ng.Recipe(epochs=3, batch_size=10, **options)
    network, widths = ("lenet5", [4, 8, 8, 8]) if kind == "images" else ("mlp-8", [8])
    job = job_for(images() if kind == "images" else vectors(), recipe, network=network)
    method = CausalNL(variant=variant, noise_rate=0.3, widths=widths, label_posterior=label_posterior)
    run = PhaseRun(next(method.phases(job)), job, 0, None, 0)
    run.step.on(torch.arange(10), None)
    traces = []
    for shift in (0, 7):
        run.step.epoch.fill_(3 * shift)
        with capture_guard() as guard:
            run.step.on((torch.arange(10) + shift) % len(job.train))
        traces.append(guard.seen)
    assert len(traces[0]) > 50
    assert traces[0] == traces[1]


@pytest.mark.parametrize("size", [16, 28])
def test_the_reconstruction_is_an_image_of_the_inputs_shape(module_for, size):
    module, job = module_for(images(size=size), "lenet5", widths=[4, 8, 8, 8], z_dim=None)
    branch = module.first
    assert branch.encoder.z_dim == 25
    x = branch.target(job.train.gather(torch.arange(5)))
    assert x.max() <= 1
    assert x.max() > 0.1
    y = torch.eye(2)[torch.zeros(5, dtype=torch.int64)]
    rebuilt = branch.decoder(y, branch.encoder(x, y)[0])
    assert rebuilt.shape == x.shape == (5, 1, size, size)
    assert rebuilt.min() > 0
    assert rebuilt.max() < 1


def test_vectors_are_standardised_and_z_is_half_as_long(module_for):
    module, job = module_for(vectors(d=5, n=400))
    x = module.first.target(job.train.gather(torch.arange(400)))
    torch.testing.assert_close(x.mean(0), torch.zeros(5), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.std(0), torch.ones(5), atol=1e-2, rtol=0)
    assert module.first.encoder.z_dim == 2


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_matrix_of_an_example_has_clean_rows_and_observed_columns(module_for, variant):
    module, job = module_for(variant=variant)
    branch = module.first
    x = branch.target(job.train.gather(torch.arange(7)))
    matrix = branch.transition(x)
    torch.testing.assert_close(matrix.sum(2), torch.ones(7, 3))
    for i in range(3):
        y = torch.eye(3)[i].expand(7, -1)
        shown = x if variant == "elbo" else branch.decoder(y, branch.encoder(x, y)[0])
        torch.testing.assert_close(matrix[:, i], branch.annotator(shown, y).exp())


def arcs(n=400, seed=0):
    """Three arcs far apart; a third of the labels of class 0 are given as 1, no others are wrong."""
    rng = np.random.default_rng(seed)
    clean = rng.integers(0, 3, n)
    t = rng.uniform(-1, 1, n)
    angle = 2 * np.pi * clean / 3
    x = 4 * np.stack([np.cos(angle), np.sin(angle)], 1) + np.stack([t, t**2], 1) * 1.5
    x = (x + 0.05 * rng.standard_normal(x.shape)).astype(np.float32)
    y = np.where((clean == 0) & (rng.random(n) < 1 / 3), 1, clean)
    return Dataset("arcs", Split(x, y, clean), Split(x, clean), classes=tuple("abc"))


@pytest.fixture(scope="module")
def trained():
    """Equation 6 trained on the arcs, once: what the method returned, the first branch, the job."""
    recipe = ng.Recipe(epochs=40, batch_size=50, lr=5e-3, schedule="cosine")
    job = make_job(arcs(), "mlp-32", recipe, 0, torch.device("cpu"))
    with seeded(0):
        phases = CausalNL(variant="elbo", noise_rate=0.1, scale=0.1).phases(job)
        phase = next(phases)
        run = PhaseRun(phase, job, 0, None, 0)
        while not run.done:
            run.run_epoch()
        with pytest.raises(StopIteration) as stop:
            phases.send(run.finish())
    return stop.value.value, phase.module.first, job


def test_the_transition_matrix_is_in_our_orientation(trained):
    fitted, _, _ = trained
    matrix = fitted.extras["transition"]
    torch.testing.assert_close(matrix.sum(1), torch.ones(3, dtype=torch.float64))
    data = arcs()
    assert (fitted.predict(data.test.x) == data.test.y).mean() > 0.97
    wanted = torch.tensor([[2 / 3, 1 / 3, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    assert (matrix - wanted).abs().max() < 0.1
    assert fitted.extras["noise_rate"] == 0.1


@torch.no_grad()
def test_the_bound_that_is_reported(trained):
    fitted, branch, job = trained
    raw, labels = job.train.gather(torch.arange(len(job.train))), job.train.y
    log_q = branch.posterior(branch.classifier(raw), labels)
    x = branch.target(raw)
    draws = [torch.stack(branch.terms(x, labels, log_q)).sum(0).mean().item() for _ in range(50)]
    assert fitted.extras["bound"] == pytest.approx(-np.mean(draws), abs=5 * float(np.std(draws)))
    assert fitted.extras["bound"] > -3.0


@torch.no_grad()
def test_z_carries_information(trained):
    """Along an arc only z can tell where a point lies."""
    fitted, branch, job = trained
    raw = job.train.gather(torch.arange(len(job.train)))
    x, y = branch.target(raw), torch.eye(3)[branch.classifier(raw).argmax(1)]
    mean, _ = branch.encoder(x, y)
    error = (x - branch.decoder(y, mean)).abs().mean()
    assert fitted.extras["kl"] > 1.0
    assert fitted.extras["reconstruction_error"] == pytest.approx(error.item(), rel=1e-3)
    shuffled = (x - branch.decoder(y, mean[torch.randperm(len(mean))])).abs().mean()
    assert shuffled > 2 * error
    # What a decoder without z could give at best: the middle of each arc.
    arc = [x[y.argmax(1) == label] for label in range(3)]
    assert error < 0.6 * torch.cat([part - part.median(0).values for part in arc]).abs().mean()


# -- footnote 2 ----------------------------------------------------------------------------------


def test_footnote_2_sums_over_the_observed_label(tmp_path):
    objective, outputs = LabelledPosterior(3), torch.randn(5, 12)
    q_clean = outputs[:, :9].view(5, 3, 3).softmax(2)  # [:, observed, clean]
    q_observed = outputs[:, 9:].softmax(1)
    wanted = torch.stack([sum(q_clean[:, i, j] * q_observed[:, i] for i in range(3)) for j in range(3)], 1)
    torch.testing.assert_close(objective.probs(outputs), wanted)
    torch.testing.assert_close(objective.observed_log_probs(outputs).exp(), q_observed)
    fitted = ng.train(
        vectors(),
        CausalNL(label_posterior=True, noise_rate=0.2, widths=[8]),
        "mlp-8",
        {"epochs": 2},
        device="cpu",
    )
    fitted.save(tmp_path)
    x = vectors().test.x
    np.testing.assert_allclose(ng.Fitted.load(tmp_path).predict_proba(x), fitted.predict_proba(x))


def test_footnote_2_gives_the_terms_the_posterior_of_the_observed_label(module_for, batch_of):
    module, job = module_for(label_posterior=True)
    batch = batch_of(job)
    outputs = module.first.classifier(batch.x)
    log_q = module.first.posterior(outputs, batch.y)
    for row in range(20):
        wanted = outputs[row, :9].view(3, 3)[batch.y[row]].log_softmax(0)
        torch.testing.assert_close(log_q[row], wanted)


# -- as a method ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"variant": "papper"}, "variant must be one of 'paper', 'elbo', 'code'"),
        ({"z_dim": 0}, "z_dim must be a whole number of at least 1"),
        ({"widths": [8, 0]}, "widths must be a whole number"),
        ({"widths": []}, "widths must be"),
        ({"kl_weight": -1.0}, "kl_weight must be a number of at least 0"),
        ({"reconstruction_weight": "a"}, "reconstruction_weight must be a number"),
        ({"scale": 0.0}, "scale must be a number of at least 0.001"),
        ({"temperature": 0.0}, "temperature must be a number of at least 0.001"),
        ({"noise_rate": 1.0}, "noise_rate must be a number"),
        ({"noise_rate": "guess"}, "noise_rate must be one of 'estimate'"),
        ({"gradual": 0}, "gradual must be a whole number"),
        ({"folds": 1}, "folds must be a whole number"),
        ({"warmup_epochs": -1}, "warmup_epochs must be a whole number"),
        ({"label_posterior": "yes"}, "label_posterior must be one of"),
    ],
)
def test_parameters_are_checked_when_training_begins(job_for, params, words):
    method = CausalNL(**{"noise_rate": 0.3, **params})
    with pytest.raises(InputError, match=words):
        next(method.phases(job_for(vectors())))


def test_defaults_follow_the_variant(module_for):
    assert module_for(variant="paper")[0].weights == (0.1, 0.1, 1e-5, 0.01)
    assert module_for(variant="code", label_weight=2)[0].weights == (0.1, 2, 1e-5, 0.02)
    module = module_for(variant="elbo", gradual=7)[0]
    assert (module.weights, module.warmup) == ((1.0, 1.0, 1.0, 1.0), 7)
    assert module_for(variant="paper")[0].warmup == 0
    scales = {None: 0.5, 0.2: 0.2}
    for given, found in scales.items():
        assert module_for(variant="elbo", scale=given)[0].first.log_scale.exp().item() == pytest.approx(found)
    pixels = module_for(images(), "lenet5", variant="elbo", widths=[4, 8])[0].first
    assert pixels.log_scale.exp().item() == pytest.approx(0.1)


def test_an_unknown_rate_is_estimated_first(job_for, run_phases):
    method = CausalNL(folds=2, widths=[8])
    phases, fitted = run_phases(method, job_for(vectors(), ng.Recipe(epochs=10, batch_size=20, lr=1e-2)))
    assert [p.name for p in phases] == ["fold 1 of 2", "fold 2 of 2", "causalnl"]
    assert 0.05 < fitted.extras["noise_rate"] < 0.4


def test_larger_images_are_cropped_to_their_centre(job_for, run_phases):
    job = job_for(images(size=20), ng.Recipe(epochs=1, batch_size=20, crop_to=16), network="lenet5")
    _, fitted = run_phases(CausalNL(noise_rate=0.1, widths=[4, 8, 8, 8]), job)
    assert fitted.extras["transition"].shape == (2, 2)
    assert "bound" not in fitted.extras
    assert fitted.predict_proba(images(size=20).test.x).shape == (40, 2)
