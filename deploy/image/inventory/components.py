"""A component is one part of an image: a crate, a Go module, a package of Debian."""

import os
import re
import subprocess
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TRIPLES = {"amd64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}
# Names of files that contain a licence, or notices that a licence asks to keep.
LICENCE_FILE = re.compile(r"(?i)^(un)?(licen[cs]e|copying|copyright|notice)s?([-._].*)?$")
NO_LICENCE = (".rs", ".go", ".c", ".h", ".py", ".toml", ".json")
FOREIGN_DIRECTORIES = {"tests", "test", "benches", "bench", "examples", "testdata", "docs", "node_modules"}


class Incomplete(Exception):
    """Something that the inventory must say is not known; the message names what."""


@dataclass
class Component:
    """`licence` is an SPDX expression; `sources` the directory or the files with licence texts."""

    name: str
    version: str
    purl: str
    licence: str = ""
    sha256: str = ""
    authors: list = field(default_factory=list)
    sources: list = field(default_factory=list)
    properties: dict = field(default_factory=dict)

    def title(self):
        return f"{self.name} {self.version}"


def run(*command, directory=ROOT, **variables):
    """The standard output of a command, which must succeed."""
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, env={**os.environ, **variables}
    )
    if done.returncode != 0:
        raise Incomplete(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout


def licence_files(directory, depth=4):
    """Files with licence texts in a package, in the order of their paths; those of its tests are left out."""
    found = []
    for entry in sorted(Path(directory).iterdir()):
        if entry.is_dir() and depth > 1 and entry.name not in FOREIGN_DIRECTORIES:
            found += licence_files(entry, depth - 1)
        elif entry.is_file() and LICENCE_FILE.match(entry.name) and entry.suffix not in NO_LICENCE:
            found.append(entry)
    return found


def allowed_licences():
    """The licences that deny.toml allows."""
    with open(ROOT / "deny.toml", "rb") as file:
        return set(tomllib.load(file)["licenses"]["allow"])
