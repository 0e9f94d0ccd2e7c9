"""What each package has, and that what it installs serves."""

import gzip
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import REPOSITORY, package, run


@pytest.mark.parametrize("kind", ["wheel", "deb", "tarball"])
def test_an_installed_package_serves_two_turns(tito, programs, model, as_nobody, public, kind):
    program = as_nobody(kind, programs[kind])
    flags = {"served_model_name": "smollm2", "engine": "native", "chat_template": public / "hermes.jinja"}
    with tito.Server(model, binary=program, environment={"HOME": "/nonexistent"}, **flags) as server:
        if os.geteuid() == 0:
            owner = pathlib.Path(f"/proc/{server.pid}").stat().st_uid
            assert owner != 0 or "setpriv" not in program.read_text()
        said = run(sys.executable, REPOSITORY / "scripts" / "two_turns.py", server.url)
        assert re.search(r"^turn 2 starts with all \d+ ids of turn 1$", said, re.MULTILINE), said
        assert server.stop() == 0


def test_all_packages_have_the_same_program(programs):
    assert len({hashlib.sha256(program.read_bytes()).hexdigest() for program in programs.values()}) == 1


def test_the_sums_are_those_of_the_packages():
    sums = package("SHA256SUMS")
    run("sha256sum", "--check", "--strict", sums.name, cwd=sums.parent)
    named = {line.split()[1] for line in sums.read_text().splitlines()}
    assert named == {path.name for path in sums.parent.iterdir()} - {sums.name}


def test_the_debian_package_can_be_installed_by_dpkg(public):
    root = public / "root"
    for folder in ("updates", "info"):
        (root / "var" / "lib" / "dpkg" / folder).mkdir(parents=True)
    (root / "var" / "lib" / "dpkg" / "status").touch()
    # What it depends on is not in that root.
    options = ["--root", root, "--log", public / "log"]
    options += ["--force-depends", "--force-not-root", "--force-bad-path", "--force-script-chrootless"]
    run("dpkg", *options, "--install", package("*.deb"))
    assert (root / "usr" / "bin" / "tito").is_file()
    control = run("dpkg-deb", "--field", package("*.deb"))
    assert "Depends: libc6 (>= 2." in control and "Conflicts: tito\n" in control


def test_the_service_of_the_debian_package_finds_its_program_and_its_flags(programs, public):
    root = programs["deb"].parents[2]
    unit = (root / "usr" / "lib" / "systemd" / "system" / "tito.service").read_text()
    program, flags = re.search(r"^ExecStart=(\S+) serve --config (\S+)$", unit, re.MULTILINE).groups()
    assert root / program[1:] == programs["deb"]
    run("dpkg-deb", "--control", package("*.deb"), public / "control")
    assert (public / "control" / "conffiles").read_text().split() == [flags]
    # A flag that the program does not know would be said before the model that is not there.
    done = subprocess.run(
        [programs["deb"], "serve", "--config", root / flags[1:], "--model", public / "no-model"],
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 1 and "no-model" in done.stderr, done.stderr


def test_the_debian_package_has_a_page_for_each_command_and_completions(programs):
    share = programs["deb"].parents[1] / "share"
    commands = re.findall(r"^  ([a-z]+) {2,}", run(programs["deb"], "--help"), re.MULTILINE)
    pages = {path.name for path in (share / "man" / "man1").iterdir()}
    assert pages == {"tito.1.gz"} | {f"tito-{command}.1.gz" for command in commands if command != "help"}
    assert "\\-\\-shutdown\\-delay" in gzip.decompress((share / "man" / "man1" / "tito-serve.1.gz").read_bytes()).decode()
    # As bash asks: for what begins with the second word.
    ask = 'source "$1"; COMP_WORDS=(tito serve --shutdown-d); COMP_CWORD=2; _tito tito --shutdown-d serve; echo "${COMPREPLY[@]}"'
    completions = share / "bash-completion" / "completions" / "tito"
    assert run("bash", "-c", ask, "bash", completions) == "--shutdown-delay\n"
    assert (share / "zsh" / "vendor-completions" / "_tito").read_text().startswith("#compdef tito\n")
    assert "shutdown-delay" in (share / "fish" / "vendor_completions.d" / "tito.fish").read_text()


def test_the_wheel_says_what_it_needs_and_what_it_is_made_of(wheel):
    glibc = re.search(r"libc6 \(>= 2\.(\d+)\)", run("dpkg-deb", "--field", package("*.deb"), "Depends"))[1]
    assert int(re.search(r"-manylinux_2_(\d+)_\w+\.whl$", package("*.whl").name)[1]) >= int(glibc)
    (parts,) = wheel.glob("lib/python*/site-packages/tito_server-*.dist-info/sboms/*.json")
    assert any(part["name"] == "tokenizers" for part in json.loads(parts.read_text())["components"])


def test_the_wheels_extra_for_gpus_has_what_a_build_for_gpus_opens(wheel):
    (metadata,) = wheel.glob("lib/python*/site-packages/tito_server-*.dist-info/METADATA")
    extra = dict(re.findall(r"^Requires-Dist: ([a-z-]+)(\S+) ; extra == 'cuda'$", metadata.read_text(), re.MULTILINE))
    pins = dict(re.findall(r"^([a-z-]+)==(\S+)", (REPOSITORY / "scripts" / "cuda-toolchain.txt").read_text(), re.MULTILINE))
    assert set(extra) == {"nvidia-cublas", "nvidia-cuda-nvrtc", "nvidia-curand"}
    for name, bounds in extra.items():
        least, most = sorted(re.findall(r"[\d.]+", bounds), key=lambda version: tuple(map(int, version.split("."))))
        numbers = [tuple(map(int, version.split("."))) for version in (least, pins[name], most)]
        assert numbers[0] <= numbers[1] < numbers[2], (name, bounds, pins[name])


def test_every_package_has_the_licences_of_what_it_is_made_of(wheel, programs):
    (of_wheel,) = wheel.glob("lib/python*/site-packages/tito_server-*.dist-info/licenses/THIRD-PARTY-LICENSES")
    of_deb = programs["deb"].parents[1] / "share" / "doc" / "tito-server" / "THIRD-PARTY-LICENSES"
    texts = {path.read_text() for path in (of_wheel, of_deb, programs["tarball"].parent / "THIRD-PARTY-LICENSES")}
    assert len(texts) == 1
    (text,) = texts
    for crate in ("tokio", "tokenizers", "axum"):
        assert re.search(rf"^{crate} \d+\.\d+\.\d+ \(.*(MIT|Apache-2.0).*\)$", text, re.MULTILINE), crate
    assert "Permission is hereby granted, free of charge" in text
    # C code within crates has licences of its own.
    assert re.search(r"^onig_sys .*: oniguruma/COPYING$", text, re.MULTILINE)
    assert not re.search(r"^tito", text, re.MULTILINE)


def test_a_wheel_whose_name_promises_too_much_is_refused(tmp_path):
    wheel = package("*.whl")
    needed = wheel.name.split("-none-")[1]
    for lie, said in [
        ("manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "promises glibc 2.17, and needs 2."),
        ("manylinux_2_99_x86_64.manylinux_2_17_x86_64.whl", "promises glibc 2.17, and needs 2."),
        ("linux_x86_64.whl", "does not say which glibc it needs, which is 2."),
    ]:
        renamed = tmp_path / wheel.name.replace(needed, lie)
        renamed.symlink_to(wheel.resolve())
        assert said in refused("--check", renamed)
    run(REPOSITORY / "scripts" / "package", "--check", wheel)


def test_what_is_no_program_is_not_packed(tmp_path):
    text = tmp_path / "text"
    text.touch()
    done = refused("--binary", text, "--out", tmp_path / "out")
    assert "is no program" in done
    assert "compiled already" in refused("--binary", sys.executable, "--features", "cuda")
    assert "unknown argument --binray" in refused("--binray", "a")


def refused(*arguments):
    """What scripts/package says when it packs nothing."""
    done = subprocess.run([REPOSITORY / "scripts" / "package", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    return done.stderr
