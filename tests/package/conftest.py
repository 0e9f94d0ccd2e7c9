"""The packages of scripts/package, installed into empty folders, and the real model where any user can read it.

TITO_PACKAGES is the folder of packages and TITO_TEST_MODEL the model directory; scripts/test sets both.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# What runs a program as somebody who may do nothing.
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
sys.path.insert(0, str(REPOSITORY / "tests" / "notes"))

from notes import (  # noqa: E402, F401
    note,
    pytest_runtest_logreport,
    pytest_runtest_setup,
    pytest_sessionstart,
    pytest_terminal_summary,
)


def run(*command, **options):
    """What a program prints, which has to end well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


def package(pattern):
    """The only package of its kind."""
    (found,) = pathlib.Path(os.environ["TITO_PACKAGES"]).glob(pattern)
    return found


@pytest.fixture(scope="session")
def public():
    """A folder that any user can read."""
    with tempfile.TemporaryDirectory(prefix="tito-packages-") as folder:
        path = pathlib.Path(folder)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="session")
def model(public):
    """The real model, and a template that shows tools."""

    def put(source, target):
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)

    copied = public / "model"
    shutil.copytree(os.environ["TITO_TEST_MODEL"], copied, copy_function=put)
    copied.chmod(0o755)
    shutil.copyfile(REPOSITORY / "tests" / "golden" / "template" / "hermes.jinja", public / "hermes.jinja")
    return copied


@pytest.fixture(scope="session")
def wheel(public):
    """An environment of its own with the wheel."""
    folder = public / "wheel"
    run(sys.executable, "-m", "venv", folder)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, "--no-index", package("*.whl"))
    return folder


@pytest.fixture(scope="session")
def programs(public, wheel):
    """The program of each package."""
    run("dpkg-deb", "--extract", package("*.deb"), public / "deb")
    (public / "tarball").mkdir()
    run("tar", "--extract", "--file", package("*.tar.gz"), "--directory", public / "tarball")
    (unpacked,) = (public / "tarball").glob("*/tito")
    return {"wheel": wheel / "bin" / "tito", "deb": public / "deb" / "usr" / "bin" / "tito", "tarball": unpacked}


@pytest.fixture(scope="session")
def tito(wheel):
    """The module of the wheel, as whoever installed it has it."""
    (packages,) = wheel.glob("lib/python*/site-packages")
    sys.path.insert(0, str(packages))
    import tito

    assert pathlib.Path(tito.__file__).is_relative_to(wheel)
    yield tito
    sys.path.remove(str(packages))


@pytest.fixture(scope="session")
def as_nobody(public):
    """Gives a program that runs another one as a user who may do nothing; as this one, where it is no root."""

    def wrap(name, program):
        wrapped = public / f"{name}-as-nobody"
        prefix = []
        if os.geteuid() == 0 and shutil.which("setpriv"):
            prefix = AS_NOBODY
        elif os.geteuid() == 0:
            note(f"NOT TRIED: {name} as another user than root: there is no setpriv")
        wrapped.write_text(f'#!/bin/sh\nexec {" ".join(prefix)} "{program}" "$@"\n')
        wrapped.chmod(0o755)
        return wrapped

    return wrap
