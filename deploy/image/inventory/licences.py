"""Writes the licences of components into a directory of an image."""

import re
import shutil
from pathlib import Path

from components import Incomplete, run

LINE = "=" * 80


def write(directory, parts, own=None):
    """Writes `third-party.txt`, Rust's own page, and the licence of this repository as `LICENSE`."""
    directory.mkdir(parents=True)
    if own:
        shutil.copyfile(own, directory / "LICENSE")
    texts, without = {}, []
    for one in sorted(parts, key=lambda part: (part.name, part.version)):
        pages = [file for file in one.sources if file.suffix == ".html"]
        for page in pages:
            shutil.copyfile(page, directory / f"{one.name}.html")
        found = [file for file in one.sources if file.suffix != ".html"]
        if not found and not pages:
            without.append(one)
        for file in found:
            text = file.read_text("utf-8", "replace").strip()
            key = re.sub(r"\s+", " ", text)
            texts.setdefault(key, (text, []))[1].append(one.title())
    content = [contents(parts), standard_texts(without)]
    content += [f"Licence or notice of {', '.join(dict.fromkeys(users))}\n\n{text}\n" for text, users in texts.values()]
    (directory / "third-party.txt").write_text(f"\n{LINE}\n".join(content), "utf-8")


def contents(parts):
    lines = sorted(f"{one.title()}: {one.licence or 'see its text'}" for one in parts)
    return "Software in this image, with its licences as SPDX expressions. The texts follow.\n\n" + "\n".join(lines) + "\n"


def standard_texts(parts):
    """The usual text of the licences of packages that come without one, where Rust's documentation has it."""
    folder = Path(run("rustc", "--print", "sysroot").strip()) / "share/doc/rust/licenses"
    text = "These packages come without a licence text. What they say about it themselves:\n\n"
    names = set()
    for one in parts:
        if not one.licence:
            raise Incomplete(f"{one.title()} has neither a licence text nor an SPDX expression")
        text += f"{one.title()}: {one.licence}" + (f", by {', '.join(one.authors)}" if one.authors else "") + "\n"
        names.update(re.findall(r"[A-Za-z0-9.-]+", one.licence))
    for name in sorted(names - {"OR", "AND", "WITH"}):
        file = folder / f"{name}.txt"
        if file.is_file():
            text += f"\nThe text of {name}:\n\n{file.read_text('utf-8').strip()}\n"
    return text
