"""What vLLM's tests import, without vLLM: modules that have every name.

Tests that ask a server need few of these names for more than their decorators; `named` has those. Every other name is `Nothing`, so that
the file can be imported; a test that computes with one fails, and the list of outcomes says so.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types

# Modules of which nothing is taken from the source distribution or from an installation.
PACKAGES = ("vllm", "torch", "torchvision", "PIL", "soundfile", "librosa", "av", "lm_eval")
MODULES = ("tests.utils", "tests.conftest", "tests.models")


class Nothing:
    """Is false, empty, callable, and a decorator that changes nothing."""

    def __init__(self, name):
        self.__name__ = self.__qualname__ = name

    def __repr__(self):
        return f"<nothing: {self.__name__}>"

    def __bool__(self):
        return False

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing(f"{self.__name__}.{name}")

    def __getitem__(self, key):
        return Nothing(f"{self.__name__}[…]")

    def __call__(self, *arguments, **named):
        if len(arguments) == 1 and not named and isinstance(arguments[0], types.FunctionType | type):
            return arguments[0]
        return Nothing(f"{self.__name__}(…)")

    def __or__(self, other):
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases):
        return ()


class StandIn(types.ModuleType):
    """A module with the names that are known, and `Nothing` under all others."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if full in sys.modules or full in self.__spec__.loader.named:
            return importlib.import_module(full)
        # A name that is raised or expected has to be a class.
        value = type(name, (Exception,), {}) if name.endswith(("Error", "Exception")) else Nothing(full)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds stand-ins before anything that lies in a folder."""

    def __init__(self, named):
        self.named = named

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in PACKAGES or any(name == module or name.startswith(f"{module}.") for module in MODULES):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        vars(module).update(self.named.get(module.__name__, {}))


def install(named):
    """Puts the stand-ins before all other modules; `named` has names with their values by module."""
    sys.meta_path.insert(0, Finder(named))
