"""Crates of the program: those that are linked, and those that only take part in the build."""

import json
import re
import tomllib
from pathlib import Path
from urllib.parse import quote

from components import ROOT, Component, Incomplete, licence_files, run

PACKAGE = "repot"


def collect(triple):
    """The program itself, what is linked into it, what only builds it, and who needs whom by purl."""
    linked = tree(triple, "normal,no-proc-macro")
    builders = tree(triple, "normal,build") - linked
    metadata = json.loads(
        run("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", triple)
    )
    checksums = read_checksums()
    packages = {}
    for package in metadata["packages"]:
        key = (package["name"], package["version"])
        if key in linked or key in builders:
            packages[package["id"]] = component(package, checksums)
    found = {(one.name, one.version) for one in packages.values()}
    if missing := (linked | builders) - found:
        raise Incomplete(f"cargo metadata does not know {sorted(missing)}")
    edges = {
        packages[node["id"]].purl: sorted(packages[dep].purl for dep in needed(node) if dep in packages)
        for node in metadata["resolve"]["nodes"]
        if node["id"] in packages
    }
    by_name = sorted(packages.values(), key=lambda one: (one.name, one.version))
    main = next(one for one in by_name if one.name == PACKAGE)
    main.properties = {"rustc": run("rustc", "--version").strip(), "target": triple}
    inside = [one for one in by_name if (one.name, one.version) in linked and one is not main]
    outside = [one for one in by_name if (one.name, one.version) in builders]
    return main, inside, outside, edges


def tree(triple, edges):
    """Names and versions of the packages that `cargo tree` finds, with the features that are compiled."""
    lines = run(
        "cargo", "tree", "--locked", "--package", PACKAGE, "--edges", edges, "--target", triple, "--prefix", "none",
        "--format", "{p}",
    ).splitlines()
    packages = (line.split() for line in lines if line)
    return {(words[0], words[1].removeprefix("v")) for words in packages}


def needed(node):
    """Packages that a package needs, apart from those of its tests."""
    return [dep["pkg"] for dep in node["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]


def read_checksums():
    with open(ROOT / "Cargo.lock", "rb") as file:
        packages = tomllib.load(file)["package"]
    return {(one["name"], one["version"]): one.get("checksum", "") for one in packages}


def component(package, checksums):
    name, version = package["name"], package["version"]
    directory = Path(package["manifest_path"]).parent
    ours = package["source"] is None
    sha256 = checksums.get((name, version), "")
    if not ours and not (package["source"].startswith("registry+") and sha256):
        raise Incomplete(f"crate {name} {version} is from {package['source']}, without a checksum in Cargo.lock")
    files = [ROOT / "LICENSE"] if ours else licence_files(directory)
    if not ours and package["license_file"]:
        files = sorted({*files, directory / package["license_file"]})
    licence = re.sub(r"\s*/\s*", " OR ", package["license"] or "")
    if not files and not licence:
        raise Incomplete(f"crate {name} {version} has neither a licence text nor an SPDX expression")
    return Component(
        name, version, f"pkg:cargo/{name}@{quote(version)}", licence, sha256, package["authors"], files
    )
