"""A store for zarr 3 in compressed memory.

>>> import numpy, zarr, zfold.zarr
>>> store = zfold.zarr.Store("64MiB")
>>> a = zarr.create_array(store, shape=1_000_000, chunks=100_000, dtype="i8", compressors=None)
>>> a[:] = numpy.arange(1_000_000)
>>> int(a[-1]), store.cache.currsize < 7_000_000
(999999, True)
"""

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.abc.store import Store as _Store
from zarr.core.buffer import Buffer, default_buffer_prototype

from ._cache import Cache


class Store(_Store):
    """Keeps what zarr writes in a `zfold.Cache`, which compresses it: give arrays no compressors.

    cache   a `zfold.Cache` of its own, or the limit of one to make
    lossy   what becomes of values that leave at the limit. False: a read of them raises
            LookupError, because for zarr a missing chunk is one of fill values. True: they are
            missing; for a layer over another store, such as zarr's CacheStore.

    It belongs to its process, and cannot be pickled.
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, cache="1GiB", *, lossy=False, read_only=False):
        super().__init__(read_only=read_only)
        self.cache = cache if isinstance(cache, Cache) else Cache(limit=cache)
        self.lossy = lossy
        # What was written and not deleted, unless it may be missing.
        self._written = set()

    def with_read_only(self, read_only=False):
        other = type(self)(self.cache, lossy=self.lossy, read_only=read_only)
        other._written = self._written
        return other

    def __eq__(self, other):
        same = isinstance(other, type(self)) and self.cache is other.cache
        return same and (self.lossy, self.read_only) == (other.lossy, other.read_only)

    def __repr__(self):
        return f"<zfold.zarr.Store of {self.cache!r}>"

    def _names(self):
        return list(self.cache) if self.lossy else list(self._written)

    async def get(self, key, prototype=None, byte_range=None):
        await self._ensure_open()
        try:
            value = self.cache[key]
        except KeyError:
            if key in self._written:
                raise LookupError(
                    f"{key!r} has left the store at its limit of {self.cache.maxsize} bytes: raise "
                    "it by store.cache.resize(), and write the array again"
                ) from None
            return None
        buffer = (prototype or default_buffer_prototype()).buffer
        return buffer.from_bytes(value[_range(byte_range)])

    async def get_partial_values(self, prototype, key_ranges):
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    async def exists(self, key):
        return key in self.cache or key in self._written

    async def set(self, key, value):
        await self._set(key, value, self.cache.__setitem__)

    async def set_if_not_exists(self, key, value):
        if not await self.exists(key):
            await self._set(key, value, self.cache.setdefault)

    async def _set(self, key, value, call):
        self._check_writable()
        await self._ensure_open()
        if not isinstance(value, Buffer):
            raise TypeError(f"value is a {type(value).__name__}, not a Buffer of zarr")
        if not self.lossy:
            self._written.add(key)
        call(key, value.to_bytes())

    async def delete(self, key):
        self._check_writable()
        self._written.discard(key)
        self.cache.pop(key, None)

    async def clear(self):
        self._check_writable()
        self._written.clear()
        self.cache.clear()

    async def list(self):
        for name in self._names():
            yield name

    async def list_prefix(self, prefix):
        for name in self._names():
            if name.startswith(prefix):
                yield name

    async def list_dir(self, prefix):
        folder = prefix.rstrip("/") + "/" if prefix.rstrip("/") else ""
        below = (name.removeprefix(folder) for name in self._names() if name.startswith(folder))
        for name in {name.split("/", 1)[0] for name in below}:
            yield name


def _range(request):
    """Returns a request for a part of a value as a slice."""
    match request:
        case None:
            return slice(None)
        case RangeByteRequest(start=start, end=end):
            return slice(start, end)
        case OffsetByteRequest(offset=offset):
            return slice(offset, None)
        case SuffixByteRequest(suffix=0):
            return slice(0, 0)
        case SuffixByteRequest(suffix=suffix):
            return slice(-suffix, None)
        case _:
            raise ValueError(f"Unexpected byte_range, got {request!r}")
