"""dask's cache: results are kept, and what has left is computed again."""

import threading

import numpy as np
import pytest

dask = pytest.importorskip("dask", reason="no dask: pip install dask cachey")
pytest.importorskip("cachey", reason="no cachey: pip install cachey")

import zfold.dask  # noqa: E402


def counted(count):
    """Returns delayed arrays, and the list of those that were computed."""
    computed = []

    def make(i):
        computed.append(i)
        return np.random.default_rng(i).integers(0, 1 << 62, 50_000)

    return [dask.delayed(make)(i, dask_key_name=f"make-{i}") for i in range(count)], computed


def results(values):
    return [int(x[0]) for x in dask.compute(*values, scheduler="sync")]


def test_results_are_computed_once():
    values, computed = counted(4)
    with zfold.dask.cache("16MiB") as kept:
        first = results(values)
        assert results(values) == first and sorted(computed) == [0, 1, 2, 3]
        assert len(kept.cache.data) >= 4
    assert results(values) == first and len(computed) == 8


def test_what_has_left_is_computed_again():
    values, computed = counted(20)
    with zfold.dask.cache("2MiB") as kept:
        first = results(values)
        assert kept.cache.data.cache.currsize <= 2 << 20
        assert results(values) == first
    assert 20 < len(computed) <= 40


def test_what_cannot_be_pickled_is_not_kept():
    values = [dask.delayed(lambda: (lambda: 7))()]
    with zfold.dask.cache("2MiB") as kept:
        (function,) = dask.compute(*values, scheduler="sync")
        assert function() == 7 and len(kept.cache.data) == 0


def test_a_value_is_popped_by_one_thread():
    kept, keys = zfold.dask.Objects(zfold.Cache("64MiB")), range(200)
    popped, together = [], threading.Barrier(4)
    for key in keys:
        kept[key] = key, bytes(200_000)

    def work():
        for key in keys:
            together.wait()
            value = kept.pop(key)
            if value is not None:
                popped.append(value[0])

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert sorted(popped) == list(keys)
