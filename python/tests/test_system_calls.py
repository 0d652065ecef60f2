"""System calls that are given compressed arrays: right bytes or an exception, never zeros."""

import io
import socket
import warnings

import numpy as np
import pytest
import zfold
from conftest import memory

SIZE = 1 << 20
DATA = np.random.default_rng(3).integers(1, 256, SIZE, dtype="u1").tobytes()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(DATA)
    return path


def stored(mem):
    """An array whose pages are compressed."""
    a = mem.array(np.arange(SIZE, dtype="u4").astype("u1") | 1)
    mem.pageout(a)
    # All but what was on its way just then.
    assert mem.stats()["stored_bytes"] >= SIZE * 7 // 8
    return a


def into_stored(mem, call):
    """Has `call` fill an array; what it says that it filled must be right, and the rest as it was."""
    a = stored(mem)
    before = a.copy()
    mem.pageout(a)
    try:
        count = call(a)
    except OSError as error:
        assert mem.faults == "signal", error
        return
    assert count > 0 and a[:count].tobytes() == DATA[:count]
    if mem.faults == "threads":
        assert count == SIZE
    else:
        assert np.array_equal(a[count:], before[count:])


def test_readinto(mem, path):
    with open(path, "rb", buffering=0) as file:
        into_stored(mem, file.readinto)
    with open(path, "rb") as file:
        into_stored(mem, file.readinto)


def test_recv_into(mem):
    left, right = socket.socketpair()
    with left, right:

        def receive(a):
            view, count = memoryview(a), 0
            for part in range(0, SIZE, 65536):
                left.sendall(DATA[part : part + 65536])
                while count < part + 65536:
                    count += right.recv_into(view[count : part + 65536])
            return count

        into_stored(mem, receive)


def test_tofile_and_write_write_what_the_array_holds(mem, tmp_path):
    for write in [
        lambda a, path: a.tofile(path),
        lambda a, path: open(path, "wb", buffering=0).write(a),
        lambda a, path: np.save(path, a),
    ]:
        a, path = stored(mem), tmp_path / "out.npy"
        try:
            count = write(a, path)
        except OSError as error:
            assert mem.faults == "signal", error
            continue
        written = path.read_bytes()[-SIZE:] if count is None else path.read_bytes()
        assert len(written) == SIZE or (mem.faults == "signal" and len(written) == count)
        assert written == a[: len(written)].tobytes()


def test_pinned_arrays_take_system_calls_with_either_kind_of_fault(faults, path):
    mem = memory(faults, resident="4MiB")
    a = mem.zeros(SIZE, "u1")
    mem.pageout(a)
    with mem.pin(a), open(path, "rb", buffering=0) as file:
        assert file.readinto(a) == SIZE
    assert a.tobytes() == DATA


def test_fromfile_under_placement_reads_right_bytes(threads, path):
    with threads.numpy(min="4KiB"):
        a = np.fromfile(path, dtype="u1")
        b = np.frombuffer(io.BytesIO(DATA).read(), dtype="u1") + np.uint8(0)
    assert a in threads and b in threads
    assert a.tobytes() == DATA == b.tobytes()


def test_placement_is_refused_where_fromfile_would_read_zeros():
    mem = memory("signal")
    with pytest.raises(RuntimeError, match="fromfile"):
        with mem.numpy():
            pass


def test_auto_warns_where_system_calls_can_fail(script):
    # A user who may not open /dev/userfaultfd, in a process of its own.
    status, out, err = script(
        "import os, sys, warnings, zfold\n"
        "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "warnings.simplefilter('always')\n"
        "mem = zfold.Memory(resident='1MiB')\n"
        "print(mem.faults, int(mem.full(1_000_000, 2.0).sum()))\n"
        "try: zfold.Memory(resident='1MiB', faults='threads')\n"
        "except PermissionError as e: print('refused' if 'setfacl' in str(e) else e)\n"
    )
    if out.startswith("threads"):
        pytest.skip("faults by threads are permitted to everybody here")
    assert (status, out) == (0, "signal 2000000\nrefused\n"), err
    assert "SystemCallWarning" in err and "mem.pin" in err


def test_threads_do_not_warn(threads):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert zfold.Memory(resident="1MiB").faults == "threads"
