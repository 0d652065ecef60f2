"""Arrays of a process whose memory the kernel merges with equal memory: no write is lost."""

import ctypes
import os
import time

import numpy as np

PAGES = 1024
SECONDS = float(os.environ.get("ZFOLD_MARKS_SECONDS", 1))
PR_SET_MEMORY_MERGE = 67


def test_no_write_is_lost(mem):
    ctypes.CDLL(None).prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0)
    random = np.random.default_rng(os.getpid())
    ends = time.monotonic() + SECONDS / 2  # Once for each kind of faults.
    a = mem.array(np.arange(PAGES, dtype="u8").repeat(512) // 4)
    expected = a.copy()
    while time.monotonic() < ends:
        # Passes bring pages back as they were kept; then a while for those that merge.
        for _ in range(3):
            assert np.array_equal(a, expected)
        time.sleep(random.uniform(0, 0.02))
        at = random.integers(0, len(a), random.integers(1, 200))
        a[at] += 1
        expected[at] += 1
        if random.random() < 0.2:
            mem.pageout(a)
    assert np.array_equal(a, expected)
