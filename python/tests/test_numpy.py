"""NumPy's own allocations in compressed memory."""

import contextvars
import threading

import numpy as np
import pandas as pd
import pytest
from conftest import memory


def test_arrays_of_enough_bytes_are_placed_and_small_ones_not(threads):
    with threads.numpy(min="64KiB"):
        large, small = np.arange(100_000), np.arange(100)
        result = large * 2.5
    after = np.arange(100_000)
    assert large in threads and result in threads
    assert small not in threads and after not in threads
    assert np.array_equal(large, after) and result.sum() == (after * 2.5).sum()
    del large, result
    assert threads.stats()["arrays"] == 0


def test_arrays_grow_shrink_and_move(threads):
    with threads.numpy(min="4KiB"):
        a = np.arange(100)
        for count in [5000, 100_000, 99_000, 3000, 10, 300_000]:
            kept = min(count, a.size)
            a.resize(count, refcheck=False)
            assert (a in threads) == (count * 8 >= 4096)
            assert a[:10].tolist() == list(range(10)) and not a[kept:].any()


def test_zeros_are_zeros_in_memory_that_was_used(threads):
    with threads.numpy(min=1):
        for count in [10, 1000, 100_000]:
            for _ in range(20):
                a = np.full(count, 9)
                del a
                assert not np.zeros(count).any()


def test_an_array_outlives_block_and_memory():
    mem = memory("threads")
    with mem.numpy(min="4KiB"):
        a = np.full(1_000_000, 3.0)
    del mem
    assert a.sum() == 3_000_000
    a.resize(2_000_000, refcheck=False)
    assert a.sum() == 3_000_000


def test_placement_nests_and_ends_with_an_exception(threads):
    other = memory("threads")
    with pytest.raises(KeyError):
        with threads.numpy(min="4KiB"):
            with other.numpy(min="4KiB"):
                inner = np.ones(10_000)
            outer = np.ones(10_000)
            raise KeyError
    assert inner in other and outer in threads
    plain = np.ones(10_000)
    assert plain not in threads and plain not in other


def test_other_threads_allocate_as_before(threads):
    """The limit that the documentation names: the handler is one of the context."""
    made = {}

    def make(name):
        made[name] = np.ones(100_000)

    with threads.numpy(min="4KiB"):
        context = contextvars.copy_context()
        plain = threading.Thread(target=make, args=("plain",))
        inside = threading.Thread(target=context.run, args=(make, "context"))
        [(t.start(), t.join()) for t in (plain, inside)]
    assert made["context"] in threads
    assert made["plain"] not in threads or hasattr(threading.Thread, "context")


def test_pandas_frames_are_as_without():
    threads = memory("threads", resident="2MiB")

    def work():
        rng = np.random.default_rng(11)
        frame = pd.DataFrame({
            "price": np.round(rng.normal(100, 20, 100_000), 2),
            "kind": rng.integers(0, 20, 100_000),
        })
        return frame, frame.groupby("kind")["price"].agg(["mean", "max"]), frame.sort_values("price")

    plain = work()
    with threads.numpy(min="64KiB"):
        placed = work()
    assert placed[0]["kind"].to_numpy() in threads
    for ours, theirs in zip(placed, plain):
        pd.testing.assert_frame_equal(ours, theirs)
    assert threads.stats()["evictions_total"] > 500
