"""Arrays in compressed memory."""

import contextlib
import math
import os
import sys
import warnings

import numpy as np

from . import _sizes, _zfold

try:
    from numpy.lib.array_utils import byte_bounds as _byte_bounds
except ImportError:  # NumPy 1
    from numpy import byte_bounds as _byte_bounds


class SystemCallWarning(RuntimeWarning):
    """System calls that are given compressed arrays can fail in this process."""


def _shares(resident, store_limit, limit):
    """Returns the bytes that pages may take uncompressed, and compressed (None: any)."""
    if limit is None:
        resident = _sizes.parse("2GiB" if resident is None else resident, "resident")
        if store_limit is not None:
            store_limit = _sizes.parse(store_limit, "store_limit")
        return resident, store_limit
    limit = _sizes.parse(limit, "limit")
    resident = limit // 2 if resident is None else _sizes.parse(resident, "resident")
    if resident >= limit:
        raise ValueError("resident: compressed pages need a part of limit, too; give less")
    return resident, limit - resident


class Memory:
    """Memory for arrays of which at most `resident` bytes are uncompressed.

    Arrays are real `numpy.ndarray`s. What was not used for a while is compressed, and comes back
    when it is touched. An array's memory lives as long as the array or a view of it.

    resident     the most that may be uncompressed, as int or text; at least 256 KiB. None: 2 GiB, or
                 half of `limit`
    codec        "lz4", "page" (denser), "zstd:3" ...; `zfold compare --file` says what each makes of data
    store_limit  the most that compressed pages may take; None: no limit. When it is hit and room is
                 needed, they go to `backing`, or the process ends.
    backing      path of a file for pages that the store has no room for; needs `store_limit` and
                 faults by threads. Its content is of use to this process only. One that exists is
                 taken if only its owner, who runs this, may open it, and zfold made it.
    backing_size the size of that file; None: it exists and keeps its size
    force        overwrite a file of `backing` that zfold did not make
    limit        the most that uncompressed and compressed pages may take together, in place of
                 `store_limit`: compressed ones get what `resident` leaves. With `backing`, the
                 process needs no more than that for its arrays, whatever is in them
    capacity     the most that all arrays may have together; costs address space only
    faults       "threads": threads bring pages back, so system calls (reading a file into an array)
                 work; needs the right to use /dev/userfaultfd. "signal": a handler of SIGBUS does;
                 faster, but system calls on missing pages fail, so `pin` first. "auto": threads
                 where that is permitted, else signal, with a SystemCallWarning.

    Raises ValueError for a value out of range, PermissionError for "threads" without the right,
    FileExistsError for a file of `backing` that is somebody's, OSError for one that cannot be used, and
    where the kernel is too old (Linux 6.8).

    >>> import zfold
    >>> mem = zfold.Memory(resident="1MiB")
    >>> a = mem.array([[1, 2], [3, 4]], dtype="int32")
    >>> (a * 2).tolist()
    [[2, 4], [6, 8]]
    >>> mem.stats()["arrays"]
    1
    """

    def __init__(
        self,
        resident=None,
        codec="lz4",
        store_limit=None,
        backing=None,
        *,
        limit=None,
        backing_size=None,
        force=False,
        capacity="256GiB",
        faults="auto",
    ):
        if faults not in ("auto", "threads", "signal"):
            raise ValueError(f"faults: {faults!r} is not 'auto', 'threads' or 'signal'")
        if limit is not None and store_limit is not None:
            raise ValueError("store_limit: it is what resident leaves of limit; give one of the two")
        if backing is not None and limit is None and store_limit is None:
            raise ValueError(
                "backing: pages go there when they hit limit or store_limit; give one"
            )
        if backing is not None and faults == "signal":
            raise ValueError("backing: pages come from a file by threads only (faults='threads')")
        resident, store_limit = _shares(resident, store_limit, limit)
        capacity = _sizes.parse(capacity, "capacity")
        if backing is not None:
            size = None if backing_size is None else _sizes.parse(backing_size, "backing_size")
            if size is None and not os.path.exists(backing):
                raise FileNotFoundError(
                    f"backing: there is no {os.fspath(backing)}; give backing_size to create it"
                )
            backing = (os.fspath(backing), size, force)
        elif force:
            raise ValueError("force: it is for a file of backing; give one")

        def make(threads):
            return _zfold.Heap(resident, codec, capacity, store_limit, backing, threads)

        self._faults = "signal" if faults == "signal" else "threads"
        try:
            self._heap = make(faults != "signal")
        except PermissionError as error:
            if faults == "threads" or backing is not None:
                raise
            warnings.warn(
                "system calls that are given arrays of this Memory, such as readinto() or tofile(), "
                "fail with EFAULT or stop short where pages are compressed: use mem.pin(array), or "
                f"get the right to bring them by threads ({error})",
                SystemCallWarning,
                stacklevel=2,
            )
            self._faults = "signal"
            self._heap = make(False)

    @property
    def faults(self):
        """How missing pages come back: "threads" or "signal"."""
        return self._faults

    def empty(self, shape, dtype=float, order="C"):
        """Returns an array, as `numpy.empty` does; its memory holds zeros at first.

        Raises MemoryError if the capacity is used up, and TypeError for types with Python objects.
        """
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            raise TypeError(f"arrays of Python objects ({dtype}) cannot be compressed")
        try:
            shape = tuple(shape)
        except TypeError:
            shape = (shape,)
        shape = tuple(int(n.__index__()) for n in shape)
        if any(n < 0 for n in shape):
            raise ValueError("negative dimensions are not allowed")
        block = self._heap.alloc(min(math.prod(shape) * dtype.itemsize, sys.maxsize))
        return np.ndarray(shape, dtype=dtype, buffer=block, order=order)

    def zeros(self, shape, dtype=float, order="C"):
        """Returns an array of zeros, as `numpy.zeros` does. Untouched pages take no memory."""
        return self.empty(shape, dtype, order)

    def full(self, shape, fill_value, dtype=None, order="C"):
        """Returns an array filled with a value, as `numpy.full` does."""
        array = self.empty(shape, np.array(fill_value).dtype if dtype is None else dtype, order)
        array[...] = fill_value
        return array

    def array(self, data, dtype=None, order="K"):
        """Returns a copy of `data` in this memory, as `numpy.array` does."""
        data = np.asanyarray(data, dtype=dtype)
        if order in ("K", "A"):
            fortran = data.flags.f_contiguous and not data.flags.c_contiguous
            order = "F" if fortran else "C"
        array = self.empty(data.shape, data.dtype, order)
        array[...] = data
        return array

    @contextlib.contextmanager
    def pin(self, array):
        """Keeps the pages of an array uncompressed in a `with` block: for system calls and devices.

        Raises MemoryError if too little of `resident` would be left, and ValueError for an array
        that is not in this memory.

        >>> import io, zfold
        >>> mem = zfold.Memory(resident="1MiB")
        >>> a = mem.zeros(1000, dtype="uint8")
        >>> with mem.pin(a):
        ...     io.BytesIO(bytes(range(100))).readinto(a)
        100
        """
        pin = self._heap.pin(*self._span(array))
        try:
            yield array
        finally:
            pin.release()

    def pageout(self, array):
        """Compresses the pages of an array now. Pinned pages stay.

        Raises ValueError for an array that is not in this memory.

        >>> import zfold
        >>> mem = zfold.Memory(resident="64MiB")
        >>> a = mem.full(1_000_000, 7.0)
        >>> mem.pageout(a)
        >>> mem.stats()["stored_bytes"] >= 7_900_000
        True
        """
        self._heap.pageout(*self._span(array))

    def prefetch(self, array):
        """Brings compressed pages of an array before they are touched, as long as there is room.

        Raises ValueError for an array that is not in this memory.

        >>> import zfold
        >>> mem = zfold.Memory(resident="64MiB")
        >>> a = mem.full(1_000_000, 7.0)
        >>> mem.pageout(a)
        >>> mem.prefetch(a)
        >>> mem.stats()["stored_bytes"] < 100_000
        True
        """
        self._heap.prefetch(*self._span(array))

    def _span(self, array):
        if isinstance(array, np.ndarray):
            low, high = _byte_bounds(array)
        else:
            view = np.frombuffer(array, dtype=np.uint8)
            low, high = _byte_bounds(view)
        if not self._heap.contains(low):
            raise ValueError("the array is not in this Memory (make it by mem.empty or mem.array)")
        return low, high - low

    def __contains__(self, array):
        """Returns whether an array lies in this memory.

        >>> import numpy, zfold
        >>> mem = zfold.Memory(resident="1MiB")
        >>> mem.zeros(10) in mem, numpy.zeros(10) in mem
        (True, False)
        """
        return isinstance(array, np.ndarray) and self._heap.contains(_byte_bounds(array)[0])

    @contextlib.contextmanager
    def numpy(self, min="1MiB"):
        """Has NumPy place arrays of `min` bytes and more in this memory, in a `with` block.

        It holds for the calling thread (or context) only, for what NumPy itself allocates. Arrays
        that were made in it stay there. Needs faults by threads, because NumPy's own functions give
        arrays to system calls.

        Raises RuntimeError where faults are signals.

        >>> import numpy, zfold
        >>> mem = zfold.Memory(resident="64MiB")
        >>> if mem.faults == "threads":
        ...     with mem.numpy(min="64KiB"):
        ...         a = numpy.arange(100_000) * 2
        ...     assert a in mem
        """
        if self._faults != "threads":
            raise RuntimeError(
                "placing NumPy's arrays needs faults by threads: numpy.fromfile would return zeros "
                "in silence (setfacl -m u:USER:rw /dev/userfaultfd)"
            )
        placement = _zfold.Placement(self._heap, _sizes.parse(min, "min"))
        before = placement.install()
        try:
            yield self
        finally:
            placement.restore(before)

    def stats(self):
        """Returns the figures of now as a dict: sizes in bytes, counters, times of faults.

        >>> import zfold
        >>> zfold.Memory(resident="1MiB").stats()["limit_bytes"]
        1048576
        """
        return self._heap.stats()

    def __repr__(self):
        try:
            stats, show = self.stats(), _sizes.show
            compressed = stats["stored_bytes"] + stats["copied_bytes"]
        except _zfold.ForkedError:
            return "<zfold.Memory of the parent process>"
        return (
            f"<zfold.Memory: {show(stats['resident_bytes'])} of {show(stats['limit_bytes'])} "
            f"resident, {show(compressed)} stored in {show(stats['store_bytes'])}, "
            f"{stats['arrays']} arrays, faults by {self._faults}>"
        )

    def __reduce__(self):
        raise TypeError("a zfold.Memory belongs to its process; its arrays can be pickled")
