"""Hashed n-grams against scikit-learn's, counted one by one."""

import collections
import itertools
import re

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from noisegate.data.tables import ngrams
from noisegate.data.tables.ngrams import word_and_character_counts

TEXTS = ["The cat sat.", "the CAT sat on the mat!", "", "Ọyọ gé ₦282bn owó", "don't", "a", "  two\n lines "]
BUCKETS = 2**22  # no two of so few n-grams meet


def test_counts_are_those_of_words_and_pairs():
    words, _ = word_and_character_counts(TEXTS, BUCKETS, 2)
    for row, text in enumerate(TEXTS):
        found = re.findall(r"[\ẉ́̀]+|[^\w\s]", text.lower())
        expected = collections.Counter(found) + collections.Counter(itertools.pairwise(found))
        assert sorted(words[[row]].data.tolist()) == sorted(map(float, expected.values()))


def test_characters_are_those_of_scikit_learn():
    _, characters = word_and_character_counts(TEXTS, 2, BUCKETS)
    oracle = CountVectorizer(analyzer="char_wb", ngram_range=(2, 5)).fit_transform(TEXTS)
    for row in range(len(TEXTS)):
        assert sorted(characters[[row]].data.tolist()) == sorted(map(float, oracle[[row]].data.tolist()))
    assert characters[[0]].multiply(characters[[1]]).sum() > 0


def test_equal_texts_have_equal_rows_wherever_they_stand(monkeypatch):
    whole = word_and_character_counts(TEXTS * 3, 2**12, 2**12)
    monkeypatch.setattr(ngrams, "BLOCK", 20)
    for one, other in zip(whole, word_and_character_counts(TEXTS * 3, 2**12, 2**12), strict=True):
        assert not (one != other).nnz
        assert not (one[: len(TEXTS)] != one[len(TEXTS) : 2 * len(TEXTS)]).nnz


def test_case_and_composition_do_not_matter():
    words, _ = word_and_character_counts(["Ọjọ́", "ọjọ́", "ỌJỌ́"], BUCKETS, 2)
    assert len(np.unique(words.indices)) == 1
    assert words.shape == (3, BUCKETS)
