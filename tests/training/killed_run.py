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
from noisegate import _files
from noisegate.methods.base import Method, Phase, PhaseModule
from noisegate.objectives import weighted_mean
from noisegate.training import trainer
from noisegate.training.trainer import PhaseRun


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


def train(folder, seed=3):
    data = ng.data.load("digits", as_images=True).corrupt(ng.noise.Symmetric(0.4), seed=0).hold_out(0.2)
    recipe = ng.Recipe(epochs=3, batch_size=64, lr=2e-3, crop=1, flip=True)
    network = "lenet5"
    fitted = ng.train(data, ThreePhases(), network, recipe, seed, "cpu", folder=folder)
    digest = hashlib.sha256()
    for value in [*fitted.network.state_dict().values(), fitted.extras["losses"]]:
        digest.update(value.contiguous().numpy().tobytes())
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
    left = [int(count)]

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
        PhaseRun.step = counted(PhaseRun.step, before=False)
    elif kind in ("before-rename", "after-rename"):
        _files.os = type("os", (), {**vars(os), "replace": staticmethod(counted(os.replace, kind[0] == "b"))})


def child(folder, plan):
    arm(plan)
    train(folder)
    os._exit(0)


def main(work):
    torch.set_num_threads(1)
    trainer.CHECKPOINT_SECONDS = 0.0
    undisturbed = train(os.path.join(work, "undisturbed"))
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
    for plan in [*plans, "wait:0.35", "step:20", "after-rename:2", "wait:0.6"]:
        pid = os.fork()
        if pid == 0:
            child(folder, plan)
        if plan.startswith("wait"):
            time.sleep(float(plan.partition(":")[2]))
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        deaths += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    print(json.dumps({"undisturbed": undisturbed, "resumed": train(folder), "deaths": deaths}))


if __name__ == "__main__":
    main(sys.argv[1])
