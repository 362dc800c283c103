"""What is in the program without being a crate: libraries of C, Rust's standard library, and authorities for TLS."""

import re
from pathlib import Path
from urllib.parse import quote

from components import Component, Incomplete, run

COMMON = Path("/usr/share/common-licenses")
GNU = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}


def collect(arch, fetched, crates):
    """`fetched`: where deploy/image/glibc has put the libc6-dev of another architecture, if it was needed."""
    compiler = f"{GNU[arch]}-gcc" if (fetched / "version").is_file() else "cc"
    return [
        glibc(arch, fetched),
        libgcc(arch, compiler),
        rust_standard_library(),
        authorities(),
        aws_lc(crates),
        zstd(crates),
    ]


def glibc(arch, fetched):
    texts = [COMMON / "LGPL-2.1"]
    if (fetched / "version").is_file():
        version = (fetched / "version").read_text("utf-8").strip()
        texts.insert(0, fetched / "files/usr/share/doc/libc6-dev/copyright")
    else:
        version = version_of("libc6-dev")
        texts.insert(0, Path("/usr/share/doc/libc6-dev/copyright"))
    return debian("libc6-dev", version, arch, "LGPL-2.1-or-later", texts)


def libgcc(arch, compiler):
    archive = Path(run(compiler, "-print-file-name=libgcc_eh.a").strip()).resolve()
    package = run("dpkg", "-S", str(archive)).split(":", 1)[0]
    texts = [Path("/usr/share/doc") / package / "copyright", COMMON / "GPL-3"]
    return debian(package, version_of(package), arch, "GPL-3.0-or-later WITH GCC-exception-3.1", texts)


def authorities():
    texts = [Path("/usr/share/doc/ca-certificates/copyright"), COMMON / "MPL-2.0"]
    return debian("ca-certificates", version_of("ca-certificates"), "all", "MPL-2.0", texts)


def version_of(package):
    return run("dpkg-query", "--show", "--showformat=${Version}", package)


def debian(package, version, arch, licence, texts):
    present(package, texts)
    purl = f"pkg:deb/debian/{package}@{quote(version)}?arch={arch}"
    return Component(package, version, purl, licence, sources=texts)


def rust_standard_library():
    version = run("rustc", "--version").split()[1]
    texts = [Path(run("rustc", "--print", "sysroot").strip()) / "share/doc/rust/COPYRIGHT-library.html"]
    present("Rust's standard library", texts)
    return Component("rust-std", version, f"pkg:generic/rust-std@{version}", "MIT OR Apache-2.0", sources=texts)


def aws_lc(crates):
    crate = named(crates, "aws-lc-sys")
    header = directory(crate) / "aws-lc/include/openssl/base.h"
    version = re.search(r'AWSLC_VERSION_NUMBER_STRING "([0-9.]+)"', header.read_text("utf-8"))
    if not version:
        raise Incomplete(f"no version of AWS-LC in {header}")
    return Component(
        "aws-lc", version[1], f"pkg:github/aws/aws-lc@v{version[1]}", crate.licence, sources=crate.sources
    )


def zstd(crates):
    crate = named(crates, "zstd-sys")
    version = crate.version.partition("+zstd.")[2]
    if not version:
        raise Incomplete(f"no version of zstd in that of zstd-sys: {crate.version}")
    return Component("zstd", version, f"pkg:github/facebook/zstd@v{version}", "BSD-3-Clause", sources=crate.sources)


def named(crates, name):
    found = [one for one in crates if one.name == name]
    if len(found) != 1:
        raise Incomplete(f"{len(found)} crates {name} are linked")
    return found[0]


def directory(crate):
    """The directory of a crate: the last one on the path of a licence text that bears its name."""
    return next(up for up in crate.sources[0].parents if up.name.startswith(f"{crate.name}-{crate.version}"))


def present(name, texts):
    if missing := [str(text) for text in texts if not text.is_file()]:
        raise Incomplete(f"licence texts of {name} are missing: {', '.join(missing)}")
