"""How servers that are compared are started, and which of them are not there.

Owns their command lines, each of which is what gives that server its best figures. benches/README.md says how they are installed.
"""

import ctypes.util
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

# Tokens of the longest conversation, as `agentic` has it.
CONTEXT = 8192
# What keeps memory for vLLM; without it vLLM is slower.
ALLOCATOR = "libtcmalloc_minimal.so.4"
# llama.cpp gives each sequence its share of the context, once and for all: many short sequences, or a few long ones.
LONG = ("prefill", "multi-turn", "agentic")


@dataclass
class Start:
    """One command, and the modes that it is asked."""

    command: str
    modes: list


@dataclass
class Server:
    """A column of the table."""

    name: str
    starts: list


def words(*parts):
    """A command line of these words."""
    return shlex.join(map(str, parts))


def servers(options):
    """The servers to measure, tito first, and what is to be said loudly of the others."""
    tito = f"{words(options.tito, 'serve', options.model)} --port {{port}}"
    found = [Server("tito", [Start(tito, options.modes)])]
    for count, flags in enumerate(options.tito_flags, 1):
        # Flags may be long, and are in the command line below the table.
        name = "tito with flags" + (f" {count}" if len(options.tito_flags) > 1 else "")
        found.append(Server(name, [Start(f"{tito} {flags}", options.modes)]))
    said = []
    for name, flag, value, program, starts in (
        ("vLLM", "--vllm", options.vllm, options.vllm and Path(options.vllm, "bin", "vllm"), vllm),
        ("llama.cpp", "--llama-server and --gguf", options.llama_server, options.llama_server, llama_cpp),
    ):
        if missing := absence(flag, value, program):
            said.append(f"NOT MEASURED: {name}: {missing}")
            continue
        found.append(Server(name, starts(options)))
    if options.vllm and not ctypes.util.find_library("tcmalloc_minimal"):
        said.append(f"MEASURED WITHOUT {ALLOCATOR}: vLLM is slower than it could be")
    if missing := absence("--vllm-rs", options.vllm_rs, options.vllm_rs):
        said.append(f"NOT MEASURED: by vLLM's own client: {missing}")
        options.vllm_rs = None
    return found, said


def absence(flag, value, program):
    """Why a program is not there, or None."""
    if not value:
        return f"without {flag} (how to install it: benches/README.md)"
    if not os.access(program, os.X_OK):
        return f"{program} is no program that can be run"
    return None


def vllm(options):
    """vLLM for CPUs."""
    cores = sorted(os.sched_getaffinity(0))
    environment = {
        "HF_HUB_OFFLINE": 1,
        "VLLM_NO_USAGE_STATS": 1,
        "VLLM_CPU_KVCACHE_SPACE": 2,
        "VLLM_CPU_OMP_THREADS_BIND": f"{cores[0]}-{cores[-1]}",
        "LD_PRELOAD": f"{ALLOCATOR}:{Path(options.vllm, 'lib', 'libiomp5.so').absolute()}",
    }
    command = words(
        "env", *(f"{name}={value}" for name, value in environment.items()),
        Path(options.vllm, "bin", "vllm"), "serve", options.model, "--served-model-name", "m", "--dtype", "bfloat16",
        "--max-model-len", CONTEXT,
        # A request with a seed, whose prompt is computed in pieces, ends its engine.
        "--max-num-batched-tokens", 8192,
        "--enable-prompt-tokens-details", "--host", "127.0.0.1",
    )  # fmt: skip
    return [Start(f"{command} --port {{port}}", options.modes)]


def llama_cpp(options):
    """llama.cpp's server: for 64 short sequences at once, and for 8 long ones."""
    libraries = Path(options.llama_server).absolute().parent
    starts = []
    for sequences, wanted in ((64, lambda name: name not in LONG), (8, lambda name: name in LONG)):
        chosen = [name for name in options.modes if wanted(name)]
        command = words(
            "env", f"LD_LIBRARY_PATH={libraries}", options.llama_server, "-m", options.gguf, "--alias", "m",
            "-t", len(os.sched_getaffinity(0)), "-np", sequences, "-c", 65536, "--host", "127.0.0.1",
        )  # fmt: skip
        if chosen:
            starts.append(Start(f"{command} --port {{port}}", chosen))
    return starts
