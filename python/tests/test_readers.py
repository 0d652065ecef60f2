"""Libraries that read files into arrays by themselves: right bytes or an exception, never zeros."""

import numpy as np
import pytest
from test_system_calls import DATA, SIZE, into_stored


def test_h5py_reads_into_stored_pages(mem, tmp_path):
    h5py = pytest.importorskip("h5py", reason="no h5py: pip install h5py")
    # In one piece, which is read straight into the array; in chunks; and compressed.
    for options in [{}, {"chunks": (65536,)}, {"chunks": (65536,), "compression": "gzip"}]:
        path = tmp_path / "data.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=np.frombuffer(DATA, "u1"), **options)
        with h5py.File(path) as file:

            def read(a, file=file):
                file["x"].read_direct(a)
                return SIZE

            into_stored(mem, read)


def test_pyarrow_reads_into_stored_pages(mem, tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="no pyarrow: pip install pyarrow")
    path = tmp_path / "data"
    path.write_bytes(DATA)
    for source in (pyarrow.OSFile, pyarrow.memory_map):
        with source(str(path)) as file:
            into_stored(mem, lambda a, file=file: file.readinto(a))


def test_pyarrow_writes_and_computes_on_stored_pages(mem, tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="no pyarrow: pip install pyarrow")
    a = mem.array(np.arange(SIZE // 8))
    mem.pageout(a)
    column = pyarrow.Array.from_buffers(pyarrow.int64(), a.size, [None, pyarrow.py_buffer(a)])
    assert column[-1].as_py() == a.size - 1
    mem.pageout(a)
    path = tmp_path / "data.arrow"
    try:
        with pyarrow.OSFile(str(path), "wb") as file:
            file.write(pyarrow.py_buffer(a))
    except OSError:
        assert mem.faults == "signal"
        return
    assert path.read_bytes() == a.tobytes()
