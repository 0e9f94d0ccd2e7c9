"""mistral.rs computes what transformers computes for each model that tito takes it for, and tito takes it for no other.

The models of tests/golden/mistralrs are made here, from the names and shapes of their tensors. UPDATE_EXPECT=1 writes
what was found to measured.json beside them and to the list of docs/models.md, instead of comparing it with these.
"""

import json
import os
import subprocess

import pytest

from conftest import REPOSITORY, Server, note
from drawn_models import TOLERANCE, deviation, write

GOLDEN = REPOSITORY / "tests" / "golden" / "mistralrs"
MEASURED = GOLDEN / "measured.json"
DOCS = REPOSITORY / "docs" / "models.md"
UPDATE = os.environ.get("UPDATE_EXPECT") == "1"
AGREES = "agrees"
LEFT_OUT = "this build leaves the mistralrs engine out"
UNPROVEN = "--unproven-models"

CASES = {path.stem: json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*.json")) if path != MEASURED}
measured = {} if UPDATE else json.loads(MEASURED.read_text())


def flags(case, *more):
    length = case["max_model_len"]
    length = [] if length is None else ["--max-model-len", str(length)]
    return ["--engine", "mistralrs", "--device", "cpu", *length, *more]


def last_error(directory, *flags):
    """The one line that a start ends with which fails."""
    command = [os.environ["TITO_BIN"], "serve", str(directory), "--host", "127.0.0.1", "--port", "0", *flags]
    # Not even where backtraces are asked for.
    asking = {**os.environ, "RUST_BACKTRACE": "1"}
    run = subprocess.run(
        command, env=asking, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 1, run.stderr
    for word in ("panicked", "backtrace", "   0: ", "rust_begin"):
        assert word not in run.stderr, run.stderr
    *_, last = run.stderr.splitlines()
    assert last.startswith("error: "), run.stderr
    if LEFT_OUT in last:
        note("SKIPPED: mistral.rs was NOT compared with transformers: this build leaves it out")
        pytest.skip(LEFT_OUT)
    return last.removeprefix("error: ")


def verdict(directory, case, *more):
    """Whether the model is computed right, by how much it is not, or how it fails."""
    try:
        server = Server(*flags(case, *more), model=str(directory))
    except AssertionError:
        return f"fails: {last_error(directory, *flags(case, *more))}"
    try:
        found = deviation(server, case)
    except AssertionError as error:
        found = error
    server.stop()
    if isinstance(found, AssertionError):
        return f"fails: {str(found).splitlines()[0]}"
    return AGREES if found <= TOLERANCE else f"off by {found:.1g}"


@pytest.mark.parametrize("name", CASES)
def test_a_model_is_computed_as_transformers_does_or_refused_by_its_name(name, tmp_path):
    case = CASES[name]
    write(tmp_path, case)
    found = verdict(tmp_path, case, UNPROVEN)
    if UPDATE:
        measured[name] = found
        return
    assert found == measured[name]
    if found == AGREES:
        assert verdict(tmp_path, case) == AGREES
        return
    refusal = last_error(tmp_path, *flags(case))
    assert case["config"]["architectures"][0] in refusal
    assert "has not been shown to compute" in refusal
    assert UNPROVEN in refusal or "--engine native serves it" in refusal


def test_an_unproven_model_is_marked_wherever_one_looks(tmp_path):
    case = CASES["gemma2_window"]
    write(tmp_path, case)
    last_error(tmp_path, *flags(case))
    server = Server(*flags(case, UNPROVEN), model=str(tmp_path))
    try:
        [card] = json.loads(server.get("/v1/models"))["data"]
        assert "Gemma2ForCausalLM with `sliding_window` 16" in card["unproven"]
        assert "WARN" in server.logged() and card["unproven"] in server.logged()
    finally:
        server.stop()


def test_a_proven_model_is_not_marked(tmp_path):
    case = CASES["gemma2_within_window"]
    write(tmp_path, case)
    server = Server(*flags(case), model=str(tmp_path))
    try:
        [card] = json.loads(server.get("/v1/models"))["data"]
        assert "unproven" not in card
    finally:
        server.stop()


def test_an_architecture_that_nobody_knows_is_refused_whatever_is_asked(tmp_path):
    case = CASES["gemma"]
    config = {**case["config"], "architectures": ["Olmo2ForCausalLM"]}
    write(tmp_path, {**case, "config": config})
    for more in ([], [UNPROVEN]):
        refusal = last_error(tmp_path, *flags(case, *more))
        assert "mistral.rs does not know the architecture Olmo2ForCausalLM" in refusal
        assert UNPROVEN not in refusal


def test_a_gguf_file_is_not_served_with_rounded_activations():
    gguf = os.environ["TITO_TEST_GGUF"]
    refusal = last_error(gguf, "--engine", "mistralrs", "--device", "cpu", "--gguf-weights", "native")
    assert "mistral.rs rounds activations to 8 bits" in refusal
    assert refusal.endswith("; --engine native serves it")


def label(name, prefix):
    return name.removeprefix(prefix).strip("_").replace("_", " ") or "plain"


def table(verdicts):
    """An item for each architecture: its variants that agree, and the others with what is wrong with them."""
    names = {}
    for name, case in CASES.items():
        names.setdefault(case["config"]["architectures"][0], []).append(name)
    rows = []
    for architecture in sorted(names):
        model_type = CASES[names[architecture][0]]["config"]["model_type"]
        right, wrong = [], []
        for name in names[architecture]:
            text = label(name, model_type)
            if verdicts[name] == AGREES:
                right.append(text)
            else:
                wrong.append(f"{text} ({verdicts[name].split(':')[0]})")
        otherwise = f" Otherwise: {', '.join(wrong)}." if wrong else ""
        rows.append(f"- `{architecture}`: {', '.join(right) or 'nothing'}.{otherwise}")
    return "\n".join(rows) + "\n"


def test_the_table_in_the_docs_is_what_was_measured():
    before, rest = DOCS.read_text().split("<!-- measured -->\n")
    written, after = rest.split("<!-- end -->\n")
    if UPDATE and measured.keys() == CASES.keys():
        MEASURED.write_text(json.dumps(measured, indent=1) + "\n")
        DOCS.write_text(f"{before}<!-- measured -->\n{table(measured)}<!-- end -->\n{after}")
        return
    assert written == table(measured)
