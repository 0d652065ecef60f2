"""Arrays: what NumPy does with them, and where their memory is."""

import gc
import pickle
import threading

import numpy as np
import pytest
import zfold
from conftest import memory

MIB = 1 << 20


def prices(count):
    """Numbers with two decimals, which compress about by half."""
    return np.round(np.random.default_rng(7).normal(100, 20, count), 2)


def test_an_array_eight_times_the_limit_is_as_in_plain_numpy(mem):
    plain = prices(MIB)
    a = mem.array(plain)
    assert type(a) is np.ndarray and a.flags.aligned and a.flags.writeable
    assert np.array_equal(a, plain)
    a *= 2
    plain *= 2
    assert a.sum() == plain.sum() and a.std() == plain.std()
    assert np.array_equal(np.sort(a), np.sort(plain))
    assert np.array_equal(a[::-7], plain[::-7])
    stats = mem.stats()
    assert stats["resident_bytes"] <= stats["limit_bytes"] == MIB
    assert stats["stored_bytes"] > 6 * MIB and stats["evictions_total"] > 1000


@pytest.mark.parametrize("dtype", ["u1", "<i2", "f4", "c16", "M8[ns]", "U5", [("a", "i4"), ("b", "f8")]])
@pytest.mark.parametrize("shape", [(), 5, (3, 4), (0,), (2, 0, 3), (3000, 7)])
def test_shapes_and_types(mem, dtype, shape):
    a = mem.zeros(shape, dtype)
    plain = np.zeros(shape, dtype)
    assert (a.shape, a.dtype, a.flags.c_contiguous) == (plain.shape, plain.dtype, True)
    assert a.strides == plain.strides or a.size == 0
    assert a.tobytes() == plain.tobytes()


def test_orders_are_those_of_numpy(mem):
    for order in "CF":
        plain = np.asarray(np.arange(12.0).reshape(3, 4), order=order)
        assert mem.array(plain).strides == plain.strides
        assert mem.empty((3, 4), order=order).strides == plain.strides
        assert np.array_equal(mem.array(plain), plain)
    assert mem.full((2, 2), 3).dtype == np.full((2, 2), 3).dtype
    assert mem.full(3, 1, dtype="f4").tolist() == [1, 1, 1]


def test_what_cannot_be_an_array_is_refused_by_name(mem):
    with pytest.raises(TypeError, match="Python objects"):
        mem.empty(3, dtype=object)
    with pytest.raises(ValueError, match="negative"):
        mem.empty(-1)
    with pytest.raises(MemoryError, match="capacity"):
        mem.empty(1 << 60)
    with pytest.raises(MemoryError):
        mem.empty((1 << 62, 1 << 62))
    with pytest.raises(TypeError, match="process"):
        pickle.dumps(mem)


def test_an_array_is_brought_before_it_is_touched(mem):
    a = mem.full((64, 512), 3.5)
    mem.pageout(a)
    before = mem.stats()
    mem.prefetch(a[:32])
    after = mem.stats()
    assert 0 < after["stored_bytes"] < before["stored_bytes"]
    faults = after["faults_total"]
    assert a[:32].sum() == 32 * 512 * 3.5
    assert mem.stats()["faults_total"] == faults
    with pytest.raises(ValueError, match="not in this Memory"):
        mem.prefetch(np.zeros(10))


def test_memory_lives_as_long_as_a_view_and_then_goes(mem):
    a = mem.full((512, 512), 3.5)
    view = a[100:, ::2].T
    mem.pageout(a)
    del a
    gc.collect()
    assert view.min() == view.max() == 3.5
    assert mem.stats()["arrays"] == 1
    del view
    gc.collect()
    stats = mem.stats()
    assert (stats["arrays"], stats["array_bytes"], stats["stored_bytes"]) == (0, 0, 0)


def test_arrays_outlive_their_memory(mem):
    a = mem.full(MIB, 7, dtype="u1")
    del mem
    gc.collect()
    assert a.sum() == 7 * MIB


def test_thousands_of_arrays_keep_their_values(mem):
    arrays = [mem.full(1 + n % 900, n, dtype="i4") for n in range(6000)]
    assert mem.stats()["regions"] == 1
    del arrays[::2]
    arrays += [mem.zeros(1 + n % 700, dtype="i8") for n in range(3000)]
    assert all((a == n).all() for a, n in zip(arrays, range(1, 6000, 2)))
    assert not any(a.any() for a in arrays[3000:])


def test_threads_work_on_arrays_at_once(mem):
    arrays = [mem.zeros(MIB // 4) for _ in range(4)]

    def work(n):
        for turn in range(5):
            arrays[n] += n + turn
        scratch = [mem.full(50_000, n, dtype="i2") for _ in range(20)]
        assert all((s == n).all() for s in scratch)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert [(a.min(), a.max()) for a in arrays] == [(5 * n + 10, 5 * n + 10) for n in range(4)]


def test_pinned_arrays_stay_and_others_leave(mem):
    a, b = mem.full(20_000, 1.0), mem.full(20_000, 2.0)
    with mem.pin(a[:10_000]) as pinned:
        assert pinned.base is a or pinned.base is a.base
        mem.pageout(a)
        mem.pageout(b)
        assert mem.stats()["pinned_bytes"] >= 80_000
        assert mem.stats()["stored_bytes"] >= 200_000
    assert mem.stats()["pinned_bytes"] == 0
    with pytest.raises(MemoryError, match="pin"):
        with mem.pin(mem.zeros(MIB)):
            pass
    with pytest.raises(ValueError, match="not in this Memory"):
        mem.pageout(np.zeros(10))
    assert a in mem and np.zeros(3) not in mem


def test_options_out_of_range_are_refused_by_name():
    for options, text in [
        ({"resident": "1KiB"}, "too small"),
        ({"resident": "much"}, "resident: 'much' is not a size"),
        ({"resident": -1}, "below zero"),
        ({"codec": "zip"}, "zip"),
        ({"faults": "magic"}, "faults"),
        ({"backing": "/tmp/x"}, "store_limit"),
        ({"force": True}, "give one"),
        ({"limit": "4MiB", "store_limit": "1MiB"}, "one of the two"),
        ({"limit": "4MiB", "resident": "4MiB"}, "resident: .* give less"),
        ({"backing": "/tmp/x", "store_limit": "1MiB", "faults": "signal"}, "threads"),
    ]:
        with pytest.raises(ValueError, match=text):
            zfold.Memory(**options)
    with pytest.raises(FileNotFoundError, match="give backing_size"):
        zfold.Memory(limit="4MiB", backing="/nowhere/cold")
    assert zfold.Memory("1.5MiB").stats()["limit_bytes"] == 3 * MIB // 2


@pytest.mark.parametrize("codec", ["lz4", "page", "zstd:1"])
def test_codecs(codec):
    mem = zfold.Memory(resident="1MiB", codec=codec, faults="signal")
    plain = prices(MIB // 2)
    assert np.array_equal(mem.array(plain), plain)


def test_what_the_store_has_no_room_for_goes_to_a_file(tmp_path):
    path = tmp_path / "cold"
    mem = memory("threads", store_limit="4MiB", backing=path, backing_size="64MiB")
    plain = np.random.default_rng(1).integers(0, 256, 24 * MIB, dtype="u1")
    a = mem.array(plain)
    assert np.array_equal(a, plain)
    assert mem.stats()["store_bytes"] < 5 * MIB < 20 * MIB < mem.stats()["stored_bytes"]


def test_a_file_that_somebody_may_miss_is_overwritten_by_force_only(tmp_path):
    path, link = tmp_path / "thesis", tmp_path / "link"
    path.write_text("years of work")
    path.chmod(0o600)
    link.symlink_to(path)
    options = {"store_limit": "4MiB", "backing_size": "8MiB"}
    with pytest.raises(FileExistsError, match="force=True to overwrite it: files of earlier"):
        zfold.Memory(backing=path, **options)
    with pytest.raises(OSError, match="symbolic link"):
        zfold.Memory(backing=link, force=True, **options)
    path.chmod(0o644)
    with pytest.raises(OSError, match="chmod 600"):
        zfold.Memory(backing=path, force=True, **options)
    assert path.read_text() == "years of work"
    path.chmod(0o600)
    for force in (True, False):
        memory("threads", backing=path, force=force, **options)


def test_a_limit_is_for_all_pages_uncompressed_and_compressed(tmp_path):
    mem = memory("threads", None, limit="8MiB", backing=tmp_path / "cold", backing_size="64MiB")
    assert mem.stats()["limit_bytes"] == 4 * MIB
    plain = np.random.default_rng(1).integers(0, 256, 24 * MIB, dtype="u1")
    a = mem.array(plain)
    assert np.array_equal(a, plain)
    stats = mem.stats()
    assert stats["resident_bytes"] + stats["store_bytes"] <= 8 * MIB < stats["stored_bytes"]
    assert memory("threads", "1MiB", limit="8MiB").stats()["limit_bytes"] == MIB


# An array of 32 MiB, or the same by NumPy: answers, and by how much the process grew.
LARGE = """
import contextlib, sys
import numpy as np, pandas as pd

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))

if sys.argv[1] == "zfold":
    import zfold
    mem = zfold.Memory(limit="8MiB", backing=sys.argv[2], backing_size="128MiB", faults="threads")
    a, placed = mem.empty(1 << 22), mem.numpy(min="64KiB")
else:
    a, placed = np.empty(1 << 22), contextlib.nullcontext()
random = np.random.default_rng(7)
for part in np.split(a, 1024):
    part[:] = random.integers(0, 1000, part.size) / 4
with placed:
    s = pd.Series(a, copy=False)
    answers = a.sum(), a.std(), a[::7].max(), s.sum(), s.mean(), s.var(), (s * 2).iloc[-9:].tolist()
print(repr(answers))
print(peak())
"""


def test_a_limit_bounds_the_process_and_changes_no_answer(tmp_path, script):
    memory("threads")
    status, out, err = script(LARGE, "zfold", str(tmp_path / "cold"))
    assert status == 0, err
    answers, peak = out.splitlines()
    _, plain, err = script(LARGE, "plain")
    assert plain.splitlines()[0] == answers, err
    status, out, err = script(LARGE.split("if sys")[0] + "print(peak())")
    assert status == 0, err
    # What it had without the array, which includes no buffers of pandas', and some MiB for these.
    assert int(peak) - int(out) < 8 * MIB * 1.1 + 16 * MIB


def test_a_memory_says_what_it_holds(mem):
    a = mem.zeros(10)
    assert f"1 arrays, faults by {mem.faults}" in repr(mem) and a in mem
