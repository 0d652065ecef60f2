"""The store for zarr: zarr's own tests of stores, arrays, and what becomes of values at the limit."""

import asyncio

import numpy as np
import pytest

import zfold

zarr = pytest.importorskip("zarr", minversion="3.0", reason="no zarr 3: pip install zarr")
testing = pytest.importorskip("zarr.testing.store", reason="zarr's tests need pytest-asyncio")

from zarr.core.buffer import cpu  # noqa: E402
from zarr.storage import MemoryStore  # noqa: E402

from zfold.zarr import Store  # noqa: E402


class TestStore(testing.StoreTests[Store, cpu.Buffer]):
    store_cls = Store
    buffer_cls = cpu.Buffer

    async def set(self, store, key, value):
        store.cache[key] = value.to_bytes()
        store._written.add(key)

    async def get(self, store, key):
        return self.buffer_cls.from_bytes(store.cache[key])

    @pytest.fixture
    def store_kwargs(self):
        return {"cache": zfold.Cache("16MiB")}

    @pytest.fixture
    def store(self, store_kwargs):
        return Store(**store_kwargs)

    def test_store_repr(self, store):
        assert "zfold.zarr.Store" in repr(store)

    def test_store_supports_writes(self, store):
        assert store.supports_writes

    def test_store_supports_listing(self, store):
        assert store.supports_listing

    def test_serializable_store(self, store):
        import pickle

        with pytest.raises(TypeError, match="process"):
            pickle.dumps(store)


def test_what_another_writes_after_the_look_is_not_replaced():
    class Raced(Store):
        async def exists(self, key):
            self.cache[key] = b"first"
            return False

    store = Raced("16MiB")
    asyncio.run(store.set_if_not_exists("key", cpu.Buffer.from_bytes(b"second")))
    assert store.cache["key"] == b"first"


def array(store, values):
    made = zarr.create_array(store, shape=values.shape, chunks=1000, dtype="i8", compressors=None)
    made[:] = values
    return made


def test_arrays_are_compressed():
    store, values = Store("16MiB"), np.arange(100_000)
    assert np.array_equal(array(store, values)[:], values)
    assert store.cache.currsize < values.nbytes * 0.9
    assert np.array_equal(zarr.open_array(store.with_read_only(True), mode="r")[:], values)


def test_what_has_left_is_an_error_and_no_fill_values():
    values = np.random.default_rng(1).integers(1, 1 << 62, 200_000)
    made = array(Store("512KiB"), values)
    with pytest.raises(LookupError, match="resize"):
        made[:]


def test_a_layer_over_another_store_may_lose_values():
    layers = pytest.importorskip("zarr.experimental.cache_store", reason="no CacheStore in zarr")
    values = np.random.default_rng(1).integers(1, 1 << 62, 200_000)
    below = MemoryStore()
    array(below, values)
    layer = layers.CacheStore(below, cache_store=Store("512KiB", lossy=True))
    made = zarr.open_array(layer, mode="r")
    for _ in range(2):
        assert np.array_equal(made[:], values)
