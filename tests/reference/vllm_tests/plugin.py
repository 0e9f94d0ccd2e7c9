"""A plugin of pytest under which vLLM's own server tests ask tito.

It stands in for vLLM's modules, keeps only the tests that start a server, and writes what became of each to VLLM_TESTS_OUTCOMES.
"""

import functools
import inspect
import json
import os
import pathlib
import re
import sys
import types

import pytest

sys.path.append(str(pathlib.Path(__file__).parent))

import launch  # noqa: E402
import stand_ins  # noqa: E402

SOURCE = pathlib.Path(os.environ["VLLM_TESTS_SOURCE"])
MODEL = pathlib.Path(os.environ["VLLM_TESTS_MODEL"])
ADAPTER = pathlib.Path(os.environ["VLLM_TESTS_ADAPTER"])
NOT_RUN = json.loads(os.environ["VLLM_TESTS_NOT_RUN"])
OUTCOMES = pathlib.Path(os.environ["VLLM_TESTS_OUTCOMES"])
VERSION = os.environ["VLLM_TESTS_VERSION"]

launcher = launch.Launcher(os.environ["TITO_BIN"], MODEL, os.environ["VLLM_TESTS_LOGS"])
SERVERS = launch.server_classes(launcher)
outcomes = {}


class Platform:
    """vLLM's word for the hardware: a GPU of NVIDIA, which most tests are made for."""

    device_type = "cuda"
    is_cuda = is_cuda_alike = staticmethod(lambda: True)
    has_device_capability = staticmethod(lambda *_, **__: False)
    device_count = staticmethod(lambda: 1)

    def __getattr__(self, name):
        return lambda *_, **__: False


class Hub:
    """The hub has one model and one adapter."""

    @staticmethod
    def snapshot_download(repo_id="", **_):
        return str(ADAPTER if any(word in repo_id.lower() for word in ("lora", "cognition", "adapter")) else MODEL)


def from_model(kind):
    """Has a class of transformers read the one model, whatever model a test names."""
    original = kind.from_pretrained

    def read(name, *arguments, **named):
        named.pop("revision", None)
        return original(name if pathlib.Path(name).is_dir() else MODEL, *arguments, **named)

    kind.from_pretrained = read


def tokenizer(tokenizer_name=None, *_, **__):
    import transformers

    return transformers.AutoTokenizer.from_pretrained(MODEL)


def unchanged(function=None, *_, **__):
    return function if isinstance(function, types.FunctionType) else unchanged


def several_gpus(*_, **__):
    return pytest.mark.skip(reason="needs several GPUs")


def stand_in():
    """The names that tests of servers use for more than their decorators."""
    of_tests = {**SERVERS, "VLLM_PATH": SOURCE, "ROCM_EXTRA_ARGS": [], "ROCM_ENV_OVERRIDES": {}}
    of_tests |= {"create_new_process_for_each_test": unchanged, "fork_new_process_for_each_test": unchanged, "multi_gpu_only": several_gpus}
    of_tests |= {"multi_gpu_test": several_gpus, "large_gpu_test": several_gpus, "large_gpu_mark": several_gpus, "single_gpu_only": unchanged}
    of_tests["requires_fp8"] = pytest.mark.skip(reason="needs FP8 on a GPU")
    cuda = types.SimpleNamespace(is_available=lambda: False, device_count=lambda: 1)
    integers = types.SimpleNamespace(min=-(2**63), max=2**63 - 1)
    stand_ins.install(
        {
            "tests.utils": of_tests,
            "torch": {"cuda": cuda, "iinfo": lambda *_: integers, "long": "int64", "__version__": "2.15.0"},
            "vllm": {"__version__": VERSION},
            "vllm.version": {"__version__": VERSION, "_prev_minor_version": lambda: f"0.{int(VERSION.split('.')[1]) - 1}"},
            "vllm.platforms": {"current_platform": Platform()},
            "vllm.tokenizers": {"get_tokenizer": tokenizer},
            "vllm.transformers_utils.repo_utils": {"hf_api": Hub},
            "vllm.utils.network_utils": {"get_open_port": launch.free_port},
            "vllm.model_executor.model_loader.weight_utils": {"download_weights_from_hf": lambda *_, **__: str(MODEL)},
        }
    )


@pytest.fixture(scope="session")
def local_asset_server():
    """Serves the images of tests in vLLM's own conftest.py; tests of texts ask for it too."""
    return types.SimpleNamespace()


def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


@functools.cache
def starts_server(function):
    """Whether a function starts a server, itself or through other functions of the tests."""
    return _starts_server(function, set())


def _starts_server(function, seen):
    function = inspect.unwrap(function)
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType) or function in seen:
        return False
    seen.add(function)
    for code in codes(function.__code__):
        if any(isinstance(text, str) and text.startswith("vllm.entrypoints.") for text in code.co_consts) and "Popen" in code.co_names:
            return True
        for name in code.co_names:
            known = function.__globals__.get(name)
            if isinstance(known, type) and known in SERVERS.values():
                return True
            if getattr(known, "__module__", "").startswith("tests.") and callable(known) and _starts_server(known, seen):
                return True
    return False


def asks_server(item):
    fixtures = [definition.func for definitions in item._fixtureinfo.name2fixturedefs.values() for definition in definitions]
    return any(starts_server(function) for function in [item.function, *fixtures])


def name_of(nodeid):
    return nodeid.removeprefix("tests/")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config, parser, args):
    """A conftest.py beside a file that is named is loaded before anything is configured."""
    # It asks whether torch is there.
    import transformers  # noqa: F401

    stand_in()


def pytest_configure(config):
    import transformers

    launch.patch_processes(launcher)
    from_model(transformers.AutoTokenizer)
    from_model(transformers.AutoConfig)


def mentions_server(file):
    """Whether a file of tests, or the conftest.py beside or above it, knows of a server; the others need not be imported."""
    folders = [folder for folder in file.parents if folder != SOURCE and folder.is_relative_to(SOURCE / "tests" / "entrypoints")]
    texts = [one.read_text() for one in (file, *(folder / "conftest.py" for folder in {*folders, file.parent})) if one.exists()]
    return any(re.search(r"Remote\w+Server|vllm\.entrypoints\.openai\.api_server", text) for text in texts)


def pytest_ignore_collect(collection_path, config):
    if not collection_path.is_relative_to(SOURCE / "tests"):
        return None
    if str(collection_path.relative_to(SOURCE / "tests")) in NOT_RUN:
        return True
    of_tests = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if of_tests and not mentions_server(collection_path) else None


def pytest_collection_modifyitems(config, items):
    asking = [item for item in items if asks_server(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in asking])
    items[:] = [item for item in asking if item.nodeid.split("[")[0].removeprefix("tests/") not in NOT_RUN]


def pytest_collectreport(report):
    if report.failed:
        outcomes[name_of(report.nodeid)] = {"outcome": "not collected", "message": str(report.longrepr).strip().splitlines()[-1]}


def message_of(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    return " ".join((crash.message if crash else str(report.longrepr)).split())[:600]


def pytest_runtest_logreport(report):
    name = name_of(report.nodeid)
    if report.failed:
        outcomes[name] = {"outcome": "failed", "message": f"{'' if report.when == 'call' else report.when + ': '}{message_of(report)}"}
    elif report.skipped and name not in outcomes:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
        outcomes[name] = {"outcome": "skipped", "message": " ".join(str(reason).split())[:200]}
    elif report.when == "call":
        outcomes.setdefault(name, {"outcome": "passed"})
    # Written as they come, so that a run that is ended has left what it knows.
    if report.when == "teardown":
        OUTCOMES.write_text(json.dumps(outcomes, indent=1))


def pytest_sessionfinish():
    OUTCOMES.write_text(json.dumps(outcomes, indent=1))
