import threading

import numpy as np
import pytest
import torch

from noisegate.data.loader import PREFETCH, Rows

CPU = torch.device("cpu")


class Slow:
    """Lazy inputs that note what is read, and by whom."""

    shape, dtype = (2,), np.dtype(np.float32)

    def __init__(self, n=100, fail_at=None):
        self.n, self.read, self.fail_at = n, [], fail_at
        self.threads = set()

    def __len__(self):
        return self.n

    def fetch(self, index):
        self.threads.add(threading.current_thread().name)
        self.read.append(index.tolist())
        if self.fail_at is not None and self.fail_at in index:
            raise ValueError("a broken image")
        return np.stack([index, -index], 1).astype(np.float32)

    def take(self, index):
        raise NotImplementedError


def collected(rows, order, size):
    return [(i.tolist(), (rows.gather(i) if x is None else x).tolist()) for i, x in rows.batches(order, size)]


def test_streamed_and_resident_batches_are_the_same():
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    streamed = Rows(Slow(), None, CPU)
    resident = Rows(Slow(), None, CPU, resident=True)
    assert (streamed.resident, resident.resident) == (False, True)
    assert collected(streamed, order, 16) == collected(resident, order, 16)
    assert [len(i) for i, _ in collected(streamed, order, 16)] == [16] * 6 + [4]


def test_streaming_reads_a_few_batches_ahead_and_no_more():
    source = Slow(1000)
    batches = Rows(source, None, CPU).batches(torch.arange(1000), 10)
    next(batches)
    assert len(source.read) <= PREFETCH
    next(batches)
    assert len(source.read) <= PREFETCH + 1
    batches.close()
    assert not any("MainThread" in name for name in source.threads)


def test_an_error_while_reading_reaches_the_caller():
    rows = Rows(Slow(fail_at=50), None, CPU)
    with pytest.raises(ValueError, match="a broken image"):
        list(rows.batches(torch.arange(100), 10))


def test_a_read_only_array_is_taken():
    x = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    x.flags.writeable = False
    rows = Rows(x, np.array([0, 1, 0]), CPU)
    assert torch.cat(list(rows.inputs(2))).tolist() == x.tolist()
    assert rows.shape == (2,)
    assert len(rows) == 3


def test_labels_are_copied():
    y = np.array([0, 1, 0])
    rows = Rows(np.zeros((3, 2), np.float32), y, CPU)
    y[:] = 9
    assert rows.y.tolist() == [0, 1, 0]
