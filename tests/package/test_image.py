"""What the Dockerfile copies is there: in the context that .dockerignore leaves, and in the tarball.

Docker is not needed. tests/package/image asks an image that was built; .github/workflows/release.yml does so.
"""

import re
import tarfile

from conftest import REPOSITORY, package, run

COPY = re.compile(r"^COPY\s+(?:--from=(?P<stage>\S+)\s+)?(?:--\S+\s+)*(?P<files>.+)$", re.MULTILINE)


def copied(stage):
    """The sources of the COPY lines from a stage; from the context, where it is None."""
    lines = COPY.finditer((REPOSITORY / "Dockerfile").read_text())
    return {file for line in lines if line["stage"] == stage for file in line["files"].split()[:-1]}


def test_the_context_of_the_image_has_what_is_copied_and_nothing_else():
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert {line.removeprefix("!") for line in ignored[1:]} == copied(None)
    assert [file for file in copied(None) if not (REPOSITORY / file).exists()] == []


def test_the_image_finds_its_program_and_its_licences_in_the_tarball():
    with tarfile.open(package("*.tar.gz")) as tarball:
        held = {name.partition("/")[2] for name in tarball.getnames()}
    # As the workflow unpacks it: without the folder.
    assert copied("program") == {"tito", "LICENSE", "THIRD-PARTY-LICENSES"} and copied("program") <= held


def test_packages_say_who_publishes_as_cargo_does():
    manifest = (REPOSITORY / "Cargo.toml").read_text()
    from_cargo = {
        "Maintainer": re.search(r'^maintainer = "(.*)"$', manifest, re.MULTILINE)[1],
        "Homepage": re.search(r'^repository = "(.*)"$', manifest, re.MULTILINE)[1],
    }
    control = run("dpkg-deb", "--field", package("*.deb"))
    for field, value in from_cargo.items():
        assert f"{field}: {value}\n" in control, field
