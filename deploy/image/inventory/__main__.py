"""Says what the container images consist of: bills of materials in CycloneDX, and the licences of everything in them.

Usage: python3 deploy/image/inventory {repot|etcd|join} ... (called by deploy/image/pack)
"""

import argparse
import sys
from pathlib import Path

import components
import crates
import go_modules
import licences
import sbom
import system


def parse_arguments():
    parser = argparse.ArgumentParser(prog="inventory", description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("repot", "etcd"):
        command = commands.add_parser(name)
        command.add_argument("--arch", required=True, choices=sorted(components.TRIPLES))
        command.add_argument("--sbom", required=True, type=Path, help="the file that is written")
        command.add_argument("--licences", required=True, type=Path, help="the directory that is written")
    commands.choices["repot"].add_argument("--program", required=True, type=Path)
    commands.choices["repot"].add_argument("--glibc", required=True, type=Path, help="what deploy/image/glibc fetched")
    commands.choices["etcd"].add_argument("--programs", required=True, type=Path)
    join = commands.add_parser("join")
    join.add_argument("--name", required=True)
    join.add_argument("--sbom", required=True, type=Path)
    join.add_argument("parts", nargs="+", type=Path)
    return parser.parse_args()


def inventory_of_repot(arguments):
    main, linked, excluded, edges = crates.collect(components.TRIPLES[arguments.arch])
    parts = linked + system.collect(arguments.arch, arguments.glibc, linked)
    licences.write(arguments.licences, parts, components.ROOT / "LICENSE")
    sbom.write(arguments.sbom, main, [arguments.program], parts, excluded, edges)


def inventory_of_etcd(arguments):
    programs = [arguments.programs / name for name in ("etcd", "etcdctl", "etcdutl")]
    main, parts = go_modules.collect(programs)
    licences.write(arguments.licences, parts)
    sbom.write(arguments.sbom, main, programs, parts, [], {})


def main():
    arguments = parse_arguments()
    if arguments.command == "repot":
        inventory_of_repot(arguments)
    elif arguments.command == "etcd":
        inventory_of_etcd(arguments)
    else:
        sbom.join(arguments.sbom, arguments.name, arguments.parts)


try:
    main()
except components.Incomplete as incomplete:
    sys.exit(f"deploy/image/inventory: {incomplete}")
