"""What is in the wheel: the package, its licences and the command, and nothing else."""

import importlib.metadata
import re

FILES = importlib.metadata.distribution("zfold").files


def test_the_licences_are_in_it():
    texts = {file.name: file.read_text() for file in FILES if file.parent.name == "licenses"}
    assert texts.keys() == {"LICENSE-APACHE", "LICENSE-MIT"}
    assert "Apache License" in texts["LICENSE-APACHE"]
    assert "Permission is hereby granted" in texts["LICENSE-MIT"]


def test_nothing_else_is_in_it():
    expected = re.compile(
        r"zfold/([a-z_/]+\.pyi?|py\.typed|_zfold\.abi3\.so)|zfold-[^/]+\.dist-info/.*|.*/bin/zfold"
    )
    # What Python compiled meanwhile is not of the wheel.
    files = [str(file) for file in FILES if file.suffix != ".pyc"]
    assert [file for file in files if not expected.fullmatch(file)] == []


def test_it_is_for_all_versions_of_python_from_3_11():
    wheel = importlib.metadata.distribution("zfold").read_text("WHEEL")
    assert re.search(r"^Tag: cp311-abi3-\w*linux", wheel, re.MULTILINE), wheel
