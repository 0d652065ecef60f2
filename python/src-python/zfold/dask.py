"""dask's opportunistic cache in compressed memory. Needs cachey.

>>> import dask.array, zfold.dask
>>> x = dask.array.arange(1_000_000, chunks=100_000).sum()
>>> with zfold.dask.cache("64MiB"):
...     int(x.compute())
499999500000
"""

import pickle
from collections.abc import MutableMapping

import cachey
from dask.cache import Cache as _Callback

from . import _sizes
from ._cache import Cache


def cache(limit="1GiB", codec="lz4", *, uncompressed=None):
    """Returns dask's callback that keeps results under a limit: use it in a `with` block.

    Which results are worth their bytes, cachey decides, as for `dask.cache.Cache`; it counts them as
    they are uncompressed.

    limit         the most memory for the compressed results; the least recently used leave first
    codec         as of `zfold.Memory`
    uncompressed  the most that the results may have uncompressed; None: four times the limit
    """
    limit = _sizes.parse(limit, "limit")
    most = 4 * limit if uncompressed is None else _sizes.parse(uncompressed, "uncompressed")
    return _Callback(cachey.Cache(most, cache_data=Objects(Cache(limit, codec))))


class Objects(MutableMapping):
    """A mapping of what can be pickled, in a `zfold.Cache`. What has left it is missing."""

    def __init__(self, cache):
        self.cache = cache

    def __getitem__(self, key):
        return pickle.loads(self.cache[_name(key)])

    def __setitem__(self, key, value):
        try:
            self.cache[_name(key)] = pickle.dumps(value, protocol=5)
        except (ValueError, TypeError, AttributeError, pickle.PicklingError):
            # Too large, or nothing that can be kept: dask computes it again.
            self.cache.pop(_name(key), None)

    def __delitem__(self, key):
        del self.cache[_name(key)]

    def pop(self, key, default=None):
        """Takes a value out; `default` if it has left before."""
        value = self.cache.pop(_name(key), None)
        return default if value is None else pickle.loads(value)

    def __contains__(self, key):
        return _name(key) in self.cache

    def __iter__(self):
        return map(pickle.loads, self.cache)

    def __len__(self):
        return len(self.cache)


def _name(key):
    return pickle.dumps(key, protocol=5)
