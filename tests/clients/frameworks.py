"""Trainers' own clients, out of their wheels and unchanged, without what a trainer needs besides.

TITO_TEST_FRAMEWORKS is a directory with the packages of frameworks.txt, installed without what they depend on;
scripts/test makes it. Their packages import torch, ray and more on the way to classes that only send HTTP requests:
here, a package's own `__init__` is not run, and libraries that are not installed are stood in for.
"""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import os
import pathlib
import sys
import types

import pytest

from conftest import note


class Absent(type):
    """What a library that is not installed would have: a class, a function or a decorator, whatever is asked of it."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(name, (), {"stands_in": True})

    def __call__(cls, *arguments, **named):
        if "stands_in" not in vars(cls):
            return super().__call__(*arguments, **named)
        # As a decorator, it leaves what it decorates as it is.
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) and not named else cls

    def __getitem__(cls, _):
        return cls

    def __iter__(cls):
        return iter(())

    def __or__(cls, _):
        return cls

    __ror__ = __or__


class Library(types.ModuleType):
    """A library that is not installed, or a package whose `__init__` was not run."""

    __version__ = "0.31.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        for directory in map(pathlib.Path, self.__path__):
            if (directory / f"{name}.py").exists() or (directory / name).is_dir():
                return importlib.import_module(f"{self.__name__}.{name}")
        return Absent(name, (), {"stands_in": True})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds packages of the frameworks without running their `__init__`, and stands in for what is not installed."""

    def __init__(self, root, packages, absent):
        self.root, self.packages, self.absent = root, packages, absent

    def find_spec(self, name, path=None, target=None):
        if any(name == absent or name.startswith(absent + ".") for absent in self.absent):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        directory = self.root.joinpath(*name.split("."))
        if name in self.packages and directory.is_dir():
            spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
            spec.submodule_search_locations = [str(directory)]
            return spec
        return None

    def create_module(self, spec):
        return Library(spec.name)

    def exec_module(self, module):
        """There is nothing to run."""


@contextlib.contextmanager
def importing(packages, absent):
    """While it lasts, modules of the frameworks can be imported; then they are forgotten, for the sake of other tests."""
    if "TITO_TEST_FRAMEWORKS" not in os.environ:
        note("NOT TRIED: clients of trainers: TITO_TEST_FRAMEWORKS does not say where they are")
        pytest.skip("no frameworks")
    root = pathlib.Path(os.environ["TITO_TEST_FRAMEWORKS"])
    before = dict(sys.modules)
    finder = Finder(root, packages, absent)
    sys.meta_path.insert(0, finder)
    sys.path.insert(0, str(root))
    try:
        yield importlib.import_module
    finally:
        sys.meta_path.remove(finder)
        sys.path.remove(str(root))
        for name in set(sys.modules) - set(before):
            if name.split(".")[0] in {part.split(".")[0] for part in (*packages, *absent)}:
                del sys.modules[name]
