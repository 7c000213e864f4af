"""The numbers of the paper, as it prints them."""

from __future__ import annotations

from noisegate.studies.papers.numbers import table

# Test accuracy (%) on ImageNet.
TABLE2 = table(
    ["α = 0.0", "α = 0.1", "α = 0.2", "α = 0.4", "α = 0.6"],
    """
    LS | 70.86 71.12 71.55 70.95 70.59
    FC | 70.86 73.04 73.17 73.35 72.92
    """,
)
# Accuracy (%) of label smoothing on parts of the training set of CIFAR-100, ResNet-32.
TABLE3 = table(
    ["train_clean_accuracy", "train_right_accuracy", "train_recovered", "train_memorised"],
    """
    α = 0.0 | 77.39 86.75 39.92 17.88
    α = 0.1 | 80.11 87.99 48.58 12.27
    α = 0.2 | 81.22 88.27 53.01  8.32
    """,
)
# Expected calibration error of 100 bins on the test set of CIFAR-100, ResNet-32.
TABLE4 = table(
    ["LS", "FC", "BC"],
    """
    α = 0.0 | 0.111 0.111 0.111
    α = 0.1 | 0.108 0.153 0.214
    α = 0.2 | 0.156 0.165 0.266
    """,
)
# Test accuracy (%) of distilled students.
TABLE5 = table(
    ["Vanilla distillation", "LS on teacher", "LS on student", "FC on teacher", "FC on student"],
    """
    CIFAR-100 ResNet-32 | 63.98±0.26 64.48±0.25 63.83±0.28 66.65±0.18 63.94±0.34
    CIFAR-100 ResNet-56 | 64.31±0.26 65.63±0.24 64.50±0.32 66.35±0.20 64.24±0.26
    CIFAR-10 ResNet-32  | 80.44±0.64 86.95±1.82 85.72±2.61 86.81±1.86 86.92±2.11
    CIFAR-10 ResNet-56  | 77.98±0.25 87.10±1.66 86.98±1.71 86.88±1.80 86.82±1.76
    """,
)
# Test accuracy (%) of label smearing, and of corrections by an estimated matrix.
TABLE7 = table(
    ["Baseline", "LS", "FC smoothing", "BC smoothing", "FC Patrini", "BC Patrini"],
    """
    CIFAR-100 ResNet-32 | 57.06±0.38 60.70±0.28 61.29±0.38 53.91±0.40 57.25±0.24 55.89±0.33
    CIFAR-100 ResNet-56 | 54.93±0.37 59.04±0.53 60.00±0.31 52.25±0.51 55.09±0.39 55.00±0.13
    CIFAR-10 ResNet-32  | 80.44±0.63 83.95±0.18 80.78±0.42 77.23±0.72 80.33±0.29 80.65±0.59
    CIFAR-10 ResNet-56  | 77.98±0.24 80.98±0.48 79.66±0.26 77.32±0.35 77.97±0.45 77.66±0.44
    """,
)
