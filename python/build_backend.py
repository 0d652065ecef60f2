"""Builds the wheel with maturin, and puts the command `zfold` into it.

maturin puts what is in zfold.data/scripts where programs of the environment are. The command belongs
to the workspace above this folder, so it is built only from a checkout.
"""

import os
import pathlib
import shutil
import subprocess

import maturin
from maturin import (  # noqa: F401: what pip calls
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

HERE = pathlib.Path(__file__).parent
SCRIPTS = HERE / "zfold.data" / "scripts"

# maturin wants to see it even where it is only asked for the package's name.
SCRIPTS.mkdir(parents=True, exist_ok=True)


def put_command():
    """Puts the command where maturin looks for it: that of $ZFOLD_COMMAND, or else a new one."""
    built = os.environ.get("ZFOLD_COMMAND")
    if built is None:
        workspace = HERE.parent
        if not (workspace / "crates" / "cli").is_dir():
            raise RuntimeError("the wheel brings the command zfold: build it from a checkout of zfold")
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", workspace / "target")).absolute()
        cargo = ["cargo", "build", "--profile", "dist", "--locked", "-p", "zfold", "--features", "full"]
        subprocess.run([*cargo, "--target-dir", target], cwd=workspace, check=True)
        built = target / "dist" / "zfold"
    shutil.copy(built, SCRIPTS / "zfold")
    subprocess.run(["strip", "--strip-debug", SCRIPTS / "zfold"], check=True)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    put_command()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
