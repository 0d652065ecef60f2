"""The example beside its rivals runs, and all ways have the same answers."""

import pathlib
import subprocess
import sys

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "larger_than_memory.py"


def test_an_image_stack_larger_than_its_memory():
    ways = ["numpy", "zfold", "np.memmap"]
    command = [sys.executable, EXAMPLE, "--size", "64MiB", "--only", ",".join(ways)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    head, _, *rows = done.stdout.splitlines()
    assert head == "32 frames, 64 MiB, of which 16 MiB may be resident"
    assert [row.split()[0] for row in rows] == ways
    assert all("s" in row.split()[1] for row in rows), rows


def test_what_the_guide_to_the_libraries_shows(script):
    text = (pathlib.Path(__file__).parents[2] / "docs/use/libraries.md").read_text()
    _, shown = text.split("```python\n")
    status, out, err = script(shown.split("```")[0])
    assert status == 0, err
    assert out.startswith("1024.0 <zfold.Memory: "), out
