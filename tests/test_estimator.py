"""The scikit-learn estimator: scikit-learn's own checks, and the ways people use one."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs, make_moons
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import noisegate as ng
from noisegate.errors import DamagedFileError, InputError, MissingDataError, UnknownNameError

QUICK = {"epochs": 10}


def expected_failures(estimator):
    return {
        "check_sample_weight_equivalence_on_dense_data": "a mini-batch of repeated rows is not a weighted one",
        "check_sample_weight_equivalence_on_sparse_data": "a mini-batch of repeated rows is not a weighted one",
    }


@parametrize_with_checks(
    [ng.NoisyLabelClassifier(method="ln"), ng.NoisyLabelClassifier(method="ce", recipe={"epochs": 50})],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
