"""The trial's first process in the guest: loads what the routers need of the kernel, then runs the trial."""

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lab.netem.shell import call
from lab.netem.trial.__main__ import main

_NEEDED: Final = (
    "veth",
    "bridge",
    "sch_htb",
    "sch_netem",
    "cls_u32",
    "nf_tables",
    "nft_compat",
    "iptable_mangle",
    "xt_statistic",
    "xt_TEE",
)
"""iptables may be either of its two kinds."""


def in_order(wanted: tuple[str, ...], dependencies: str) -> Iterator[str]:
    """Paths of the modules and of what they need, each after what it needs; from a modules.dep."""
    needs: dict[str, list[str]] = {}
    paths: dict[str, str] = {}
    for line in dependencies.splitlines():
        path, _, needed = line.partition(":")
        needs[path] = needed.split()
        paths[Path(path).stem.replace("-", "_")] = path
    seen: set[str] = set()
    for name in wanted:
        path = paths[name]
        for each in (*reversed(needs[path]), path):
            if each not in seen:
                seen.add(each)
                yield each


def _load_modules() -> None:
    modules = Path("/usr/lib/uml/modules") / platform.release()
    for path in in_order(_NEEDED, (modules / "modules.dep").read_text("utf-8")):
        call("insmod", str(modules / path))


if __name__ == "__main__":
    _load_modules()
    main()
