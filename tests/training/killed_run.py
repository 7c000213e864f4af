"""Train a run of several mechanisms in a child process that is killed again and again; print what comes out.

Run as a script by test_resume.py: one interpreter, many forks, so that torch is imported once.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass

import torch

import noisegate as ng
from noisegate._io import files
from noisegate.methods.base import Method
from noisegate.objectives import weighted_mean
from noisegate.training import trainer
from noisegate.training.phase import Phase, PhaseModule
from noisegate.training.phase_run import PhaseRun
from noisegate.training.update import Step


class Remembering(PhaseModule):
    """Per-example state, work between epochs and a network of its own."""

    def __init__(self, network, objective, losses):
        super().__init__()
        self.network, self.objective = network, objective
        self.register_buffer("losses", losses)
        self.register_buffer("threshold", torch.zeros(()))

    def forward(self, batch):
        losses = self.objective(self.network(batch.x), batch.y, reduction="none")
        self.losses[batch.index] = 0.7 * self.losses[batch.index] + 0.3 * losses.detach().unsqueeze(1)
        kept = (self.losses[batch.index, 0] <= self.threshold).float()
        return weighted_mean(losses, batch.weight * (0.5 + 0.5 * kept))

    def predictor(self):
        return self.network, self.objective

    def begin_epoch(self, epoch, job):
        self.threshold.fill_(float(self.losses.quantile(0.6)) + 0.01 * random.random())


@dataclass
class ThreePhases(Method):
    """Several phases, a decision between them, the best epoch, a moving average, dropout-like randomness."""

    def phases(self, job):
        first = ng.CrossEntropy(job.n_classes)
        network = job.network(first)
        yield Phase(ng.methods.Direct(network, first), job.recipe, keep="best")
        sure = job.predict(network, first).max(1).values > 0.3 + 0.1 * float(torch.rand(()))
        second = ng.LogisticNormal(job.n_classes)
        student = job.network(second)
        rows = torch.nonzero(sure).squeeze(1)
        noisy = ng.methods.Direct(student, second)
        yield Phase(noisy, job.recipe.replace(ema=0.9), rows=rows, keep="ema")
        module = Remembering(student, second, job.per_example(1, fill=1.0))
        history = yield Phase(module, job.recipe.replace(optimizer="nesterov", lr=0.01, patience=50))
        return ng.Fitted(student, second, epochs=len(history), losses=module.losses)


def train(folder, method=None):
    data = ng.data.load("digits", as_images=True).corrupt(ng.noise.Symmetric(0.4), seed=0).hold_out(0.2)
    if method is None:
        method, network = ThreePhases(), "lenet5"
        recipe = ng.Recipe(epochs=6, batch_size=64, lr=2e-3, crop=1, flip=True)
    else:
        network, recipe = "mlp-32", ng.Recipe(epochs=3, batch_size=64, lr=2e-3)
    fitted = ng.train(data, method, network, recipe, 3, "cpu", folder=folder)
    digest = hashlib.sha256()
    for value in [*fitted.network.state_dict().values(), *fitted.extras.values()]:
        if isinstance(value, torch.Tensor):
            digest.update(value.detach().contiguous().numpy().tobytes())
    timeless = [
        [{k: v for k, v in epoch.items() if not k.endswith("seconds")} for epoch in phase]
        for phase in fitted.history
    ]
    metrics = {k: v for k, v in fitted.metrics.items() if k != "seconds"}
    return {"weights": digest.hexdigest(), "history": timeless, "metrics": metrics}


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def arm(plan):
    """Make this process kill itself at the n-th step, or before or after the n-th file is put in place."""
    kind, _, count = plan.partition(":")
    left = [int(float(count))]

    def counted(function, before):
        def wrapper(*args, **kwargs):
            left[0] -= 1
            if before and left[0] <= 0:
                die()
            result = function(*args, **kwargs)
            if left[0] <= 0:
                die()
            return result

        return wrapper

    if kind == "step":
        Step.on = counted(Step.on, before=False)
    elif kind == "phase":
        begin = PhaseRun._begin_epoch

        def begin_epoch(run):
            if run.number == int(count) and run.epoch == 0:
                left[0] = 30  # in the second of its three epochs of 16 or 17 steps
                Step.on = counted(Step.on, before=False)
            return begin(run)

        PhaseRun._begin_epoch = begin_epoch
    elif kind in ("before-rename", "after-rename"):
        files.os = type("os", (), {**vars(os), "replace": staticmethod(counted(os.replace, kind[0] == "b"))})


def in_child(folder, plan, result=None, method=None):
    """Fork, train there, and return the process id. The parent never trains: torch cannot be forked after that."""
    pid = os.fork()
    if pid == 0:
        arm(plan)
        outcome = train(folder, method)
        if result:
            with open(result, "w") as file:
                json.dump(outcome, file)
        os._exit(0)
    return pid


def finished(folder, result, method=None):
    _, status = os.waitpid(in_child(folder, "never:1", result, method), 0)
    if status:
        raise SystemExit(f"a run that nobody killed ended with status {status}")
    with open(result) as file:
        return json.load(file)


def kill_in_last_phase(work, method):
    """Train a registered method undisturbed, then once more, killed in the middle of its last phase."""
    result = os.path.join(work, "result.json")
    undisturbed = finished(os.path.join(work, f"{method}-undisturbed"), result, method)
    folder = os.path.join(work, method)
    _, status = os.waitpid(in_child(folder, f"phase:{len(undisturbed['history']) - 1}", method=method), 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return {"undisturbed": undisturbed, "resumed": finished(folder, result, method), "killed": killed}


def main(work, *methods):
    torch.set_num_threads(1)
    trainer.CHECKPOINT_SECONDS = 0.0
    if methods:
        print(json.dumps({method: kill_in_last_phase(work, method) for method in methods}))
        return
    result = os.path.join(work, "result.json")
    undisturbed = finished(os.path.join(work, "undisturbed"), result)
    folder = os.path.join(work, "killed")
    plans = [
        "step:5",
        "step:30",
        "before-rename:1",
        "after-rename:1",
        "step:30",
        "before-rename:2",
        "step:25",
    ]
    deaths = 0
    for plan in [*plans, "wait:0.25", "step:20", "after-rename:2", "wait:0.4"]:
        pid = in_child(folder, plan)
        if plan.startswith("wait"):
            time.sleep(float(plan.partition(":")[2]))
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        deaths += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    resumed = finished(folder, result)
    print(json.dumps({"undisturbed": undisturbed, "resumed": resumed, "deaths": deaths}))


if __name__ == "__main__":
    main(*sys.argv[1:])
