"""NumPy arrays and caches in compressed memory.

>>> import zfold
>>> mem = zfold.Memory(resident="64MiB")          # at most so much of it uncompressed
>>> a = mem.zeros((4000, 4000))                   # 122 MiB: a real numpy.ndarray
>>> a[:, 0] = 1
>>> float(a.sum())
4000.0
>>> mem.stats()["resident_bytes"] <= 64 << 20
True

`Memory` makes arrays, `Cache` keeps bytes by key, `Disk` serves a block device.
"""

from ._arrays import Memory, SystemCallWarning
from ._cache import Cache
from ._disk import Disk
from ._zfold import ForkedError, __version__

__all__ = [
    "Cache",
    "Disk",
    "ForkedError",
    "Memory",
    "SystemCallWarning",
    "__version__",
]
