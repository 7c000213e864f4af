"""An objective in a Hugging Face Trainer: override `compute_loss`, and ask the model for `n_outputs` labels.

    python examples/huggingface_trainer.py        (needs: pip install transformers accelerate)

With a pretrained model it is the same: `AutoModelForSequenceClassification.from_pretrained(name,
num_labels=objective.n_outputs)`; here a small network stands in, so that nothing is downloaded.
"""

import sys
import tempfile
from typing import Any

import torch
from torch import nn

import noisegate as ng

try:
    from transformers import Trainer, TrainingArguments
except ImportError:
    sys.exit("this example needs Transformers: pip install transformers accelerate")


class NoisyTrainer(Trainer):
    """A Trainer that leaves the meaning of the logits to an objective."""

    def __init__(self, *args: Any, objective: ng.objectives.Objective, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.objective = objective.to(self.args.device)

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **_: Any
    ) -> Any:
        labels = inputs["labels"]
        outputs = model(inputs["x"])
        self.objective.train(model.training)
        loss = self.objective(outputs["logits"], labels)
        return (loss, outputs) if return_outputs else loss


class Network(nn.Module):
    """What a Hugging Face model looks like from outside: a dict with logits."""

    def __init__(self, n_outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, n_outputs)
        )

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        return {"logits": self.body(x)}


def main(epochs: int = 60) -> float:
    """Clean test accuracy of Logistic-Normal on digits with 40 % wrong labels."""
    data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4, include_self=False), seed=0)
    rows = [
        {"x": torch.from_numpy(x), "labels": int(y)} for x, y in zip(data.train.x, data.train.y, strict=True)
    ]
    objective = ng.LogisticNormal(10)
    torch.manual_seed(0)
    model = Network(objective.n_outputs)
    objective.init_head_(model.body[-1])
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=64,
            learning_rate=3e-3,
            lr_scheduler_type="constant",
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            logging_strategy="no",
            use_cpu=True,
        )
        NoisyTrainer(model=model, args=arguments, train_dataset=rows, objective=objective).train()
    with torch.no_grad():
        predicted = objective.probs(model(torch.from_numpy(data.test.x))["logits"]).argmax(1)
    return (predicted == torch.from_numpy(data.test.y)).float().mean().item()


if __name__ == "__main__":
    print(f"LogisticNormal   {main():.3f}")
