import numpy as np
import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.errors import InputError, UnknownNameError
from noisegate.methods import Phase
from noisegate.methods.distillation import Distillation, Imitating
from noisegate.training.phase_run import PhaseRun


@pytest.fixture(scope="module")
def moons():
    return ng.data.load("moons", n=64, n_test=64, noise=0.2)


def transition(n_classes, alpha):
    return (1 - alpha) * np.eye(n_classes) + alpha / n_classes


def softmax(outputs):
    exponentials = np.exp(outputs - outputs.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)


def expected_loss(student, f, q, alpha, weight):
    """The three students' losses, written out; f and q at their temperature."""
    n_classes = f.shape[1]
    if student == "ls":
        q = (1 - alpha) * q + alpha / n_classes
    p = softmax(f) @ transition(n_classes, alpha) if student == "fc" else softmax(f)
    losses = -(q * np.log(p)).sum(1)
    return (weight * losses).sum() / weight.sum()


@pytest.mark.parametrize("student", ["ce", "ls", "fc"])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_the_students_loss_is_the_formula(student, temperature, moons, job_for, run_phases, make_batch):
    method = Distillation(student=student, alpha=0.3, temperature=temperature)
    phases, _ = run_phases(method, job_for(moons))
    module = phases[1].module
    x = torch.from_numpy(moons.train.x[:7].copy())
    weight = torch.tensor([1.0, 2.0, 0.0, 1.0, 0.5, 1.0, 1.0])
    batch = make_batch(x, torch.zeros(7, dtype=torch.int64), weight=weight)
    with torch.no_grad():
        f, g = (net(x).double().numpy() / temperature for net in (module.student, module.teacher))
    expected = expected_loss(student, f, softmax(g), 0.3, weight.numpy())
    found = module(batch).item()
    assert found == pytest.approx(expected, rel=1e-5)
    # The given labels play no part.
    assert module(make_batch(x, torch.ones(7, dtype=torch.int64), weight=weight)).item() == found


@pytest.mark.parametrize("student", ["ce", "ls", "fc"])
def test_after_long_training_the_student_says_what_its_teacher_said(student, job_for):
    few = ng.data.load("moons", n=20, n_test=2)
    job = job_for(few, ng.Recipe(epochs=400, batch_size=20, lr=1e-2, schedule="cosine"), network="mlp-64")
    torch.manual_seed(0)
    teacher = job.network(2)
    with torch.no_grad():
        # Opinions of all kinds, none beyond what a student that is corrected can say.
        teacher.network.head.weight.mul_(6.0)
    method = Distillation(student=student, alpha=0.2)
    objective = method._objective(student, 2)
    network = job.network(objective)
    run = PhaseRun(Phase(Imitating(network, objective, teacher, 2.0), job.recipe), job, 1, None, 0)
    while not run.done:
        run.run_epoch()
    run.finish()
    x = torch.from_numpy(few.train.x.copy())
    with torch.no_grad():
        q, p = (softmax(net(x).double().numpy() / 2) for net in (teacher, network))
    assert q.std() > 0.1
    assert q.min() > 0.1
    target = 0.8 * q + 0.1 if student == "ls" else q
    said = p @ transition(2, 0.2) if student == "fc" else p
    assert abs(said - target).max() < 0.02
    # Smoothing and correction move the student itself away from the teacher, to either side.
    assert abs(p - q).max() < 0.02 or student != "ce"
    assert (student != "ls") or p.std() < 0.9 * q.std()
    assert (student != "fc") or p.std() > 1.1 * q.std()


def test_predictions_are_the_students_softmax_at_temperature_one(moons, job_for, run_phases):
    for student in ("ce", "ls", "fc"):
        phases, fitted = run_phases(Distillation(student=student), job_for(moons))
        assert fitted.network is phases[1].module.student
        with torch.no_grad():
            plain = softmax(fitted.network(torch.from_numpy(moons.test.x.copy())).double().numpy())
        np.testing.assert_allclose(fitted.predict_proba(moons.test.x), plain, atol=1e-5)


TABLE_5 = {
    "vanilla distillation": ({}, ng.CrossEntropy, ng.CrossEntropy),
    "LS on teacher": ({"teacher": "ls"}, ng.LabelSmoothing, ng.CrossEntropy),
    "LS on student": ({"student": "ls"}, ng.CrossEntropy, ng.LabelSmoothing),
    "FC on teacher": ({"teacher": "fc"}, ng.ForwardCorrection, ng.CrossEntropy),
    "FC on student": ({"student": "fc"}, ng.CrossEntropy, ng.ForwardCorrection),
}


@pytest.mark.parametrize("column", TABLE_5)
def test_the_five_columns_of_table_5(column, moons, job_for, run_phases):
    params, first, second = TABLE_5[column]
    method = ng.methods.get("distillation", **params)
    phases, fitted = run_phases(method, job_for(moons))
    assert [phase.name for phase in phases] == ["teacher", "student"]
    assert type(phases[0].module.objective) is first
    assert type(phases[1].module.objective) is type(fitted.objective) is second
    assert phases[1].module.temperature == 2.0
    for objective in (phases[0].module.objective, phases[1].module.objective):
        if isinstance(objective, ng.LabelSmoothing):
            assert objective.alpha == 0.1
        if isinstance(objective, ng.ForwardCorrection):
            np.testing.assert_allclose(objective.transition.numpy(), transition(2, 0.1))


def test_the_teacher_is_frozen_and_sees_in_evaluation_mode(moons, job_for, run_phases):
    def dropping(shape, n_outputs):
        return nn.Sequential(
            nn.Linear(shape[0], 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, n_outputs)
        )

    phases, _ = run_phases(Distillation(), job_for(moons, network=dropping))
    first, second = (phase.module for phase in phases)
    assert second.teacher is first.network
    assert second.student is not first.network
    # Neither a gradient nor one left over, which clipping would count.
    assert not any(p.requires_grad or p.grad is not None for p in second.teacher.parameters())
    second.train()
    assert second.student.training
    assert not any(module.training for module in second.teacher.modules())


def test_training_the_student_changes_nothing_of_the_teacher(moons, job_for, make_batch):
    job = job_for(moons)
    objective = ng.CrossEntropy(2)
    teacher, student = job.network(objective), job.network(objective)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    module = Imitating(student, objective, teacher, 2.0).train()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, weight_decay=0.1)
    module(
        make_batch(torch.from_numpy(moons.train.x.copy()), torch.from_numpy(moons.train.y.copy()))
    ).backward()
    optimizer.step()
    assert all(torch.equal(before[name], value) for name, value in teacher.state_dict().items())
    assert all(p.grad is not None for p in student.parameters())


def test_a_smoothed_or_corrected_teacher_is_passed_on(fit_digits, cross_entropy):
    """Distillation from a forward-corrected teacher with the true rate is far better than plain training."""
    distilled = fit_digits(Distillation(teacher="fc", alpha=0.44))
    assert distilled.metrics["test_accuracy"] > cross_entropy.metrics["test_accuracy"] + 0.03


def test_what_makes_no_sense_is_refused(moons, job_for):
    job = job_for(moons)
    with pytest.raises(UnknownNameError, match="loss of the teacher or the student 'gce'"):
        next(Distillation(teacher="gce").phases(job))
    for alpha in (-0.1, 1.0):
        with pytest.raises(InputError, match=r"alpha must lie in \[0, 1\)"):
            next(Distillation(alpha=alpha).phases(job))
    for temperature in (0.0, -1.0, float("inf")):
        with pytest.raises(InputError, match="temperature must be positive"):
            next(Distillation(temperature=temperature).phases(job))
