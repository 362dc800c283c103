"""Go modules of etcd's programs, as the programs themselves name them."""

import json
import re
from pathlib import Path
from urllib.parse import quote

from components import ROOT, Component, Incomplete, allowed_licences, licence_files, run

PINS = ROOT / "tests" / "go" / "etcd"
# What a licence text says, by its SPDX identifier. Spaces are single and letters small.
PHRASES = {
    "Apache-2.0": "apache license version 2.0",
    "MIT": "permission is hereby granted, free of charge",
    "ISC": "permission to use, copy, modify, and",
    "MPL-2.0": "mozilla public license",
    "BSD-3-Clause": "redistribution and use in source and binary forms",
}


def collect(programs):
    """etcd itself, and the modules of all programs."""
    modules, versions = {}, set()
    for program in programs:
        go, found = read_build_info(program)
        versions.add(go)
        modules.update(found)
    if len(versions) != 1:
        raise Incomplete(f"programs of etcd are built by different versions of Go: {sorted(versions)}")
    go = versions.pop()
    named = [f"{path}@{version}" for path, version in sorted(modules)]
    answers = run("go", "mod", "download", "-json", *named, directory=PINS)
    parts = [component(answer, modules) for answer in decode_all(answers)]
    parts.append(standard_library(go))
    check(parts)
    main = next(one for one in parts if one.name == "go.etcd.io/etcd/server/v3")
    etcd = Component("etcd", main.version, f"pkg:golang/go.etcd.io/etcd@{main.version}", main.licence)
    etcd.properties = {"go": go}
    return etcd, parts


def read_build_info(program):
    """The version of Go and the sums of modules, by path and version."""
    first, *lines = run("go", "version", "-m", str(program)).splitlines()
    modules = {}
    last = None
    for line in lines:
        words = line.split()
        if words[0] in ("mod", "dep"):
            last = (words[1], words[2])
            modules[last] = words[3] if len(words) > 3 else ""
        elif words[0] == "=>":
            del modules[last]
            modules[words[1], words[2]] = words[3]
    if without := sorted(key for key, total in modules.items() if not total):
        raise Incomplete(f"{program} has modules without a sum: {without}")
    return first.rsplit(" ", 1)[1], modules


def decode_all(text):
    decoder, found = json.JSONDecoder(), []
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


def component(answer, modules):
    path, version = answer["Path"], answer["Version"]
    files = licence_files(answer["Dir"], depth=2)
    if answer["Sum"] != modules[path, version]:
        raise Incomplete(f"module {path} {version} has the sum {answer['Sum']}, and the program was built with another")
    return Component(
        path, version, f"pkg:golang/{quote(path.lower(), safe='/')}@{quote(version)}", identify(path, files),
        sources=files, properties={"go.sum": answer["Sum"]},
    )


def standard_library(go):
    licence = Path(run("go", "env", "GOROOT").strip()) / "LICENSE"
    version = go.removeprefix("go")
    return Component("std", version, f"pkg:golang/std@{version}", identify("Go", [licence]), sources=[licence])


def identify(name, files):
    """The SPDX expression of licence texts: that of the first file of the package, and what others add."""
    found = set()
    for file in files:
        text = re.sub(r"[\s,]+", " ", file.read_text("utf-8", "replace").lower())
        known = {spdx for spdx, phrase in PHRASES.items() if re.sub(r"[\s,]+", " ", phrase) in text}
        if "BSD-3-Clause" in known and "neither the name" not in text:
            known = known - {"BSD-3-Clause"} | {"BSD-2-Clause"}
        found |= known
    if not found:
        raise Incomplete(f"module {name} has no licence text that is known: {[str(file) for file in files]}")
    return " AND ".join(sorted(found))


def check(parts):
    allowed = allowed_licences()
    for one in parts:
        if refused := set(one.licence.split(" AND ")) - allowed:
            raise Incomplete(f"module {one.name} has a licence that deny.toml does not allow: {sorted(refused)}")
