"""The router's rules in the kernel's packet filter: what is cut, what is doubled, and what a queue takes."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from kvcompass.wan.profile import Pair
from lab.netem.errors import RouterError
from lab.netem.settings import RegionNetwork
from lab.netem.shell import call, succeeds
from lab.netem.wan_state import WanState

Rule = tuple[Pair | None, str]
"""The direction that it cuts, if it does, and its text."""

CHAIN: Final = "KVC-WAN"
_PROBE: Final = "KVC-WAN-PROBE"
_HOOKS: Final = ("PREROUTING", "OUTPUT")
"""What comes from the region's network or from afar, and the router's own echoes."""


def rules(
    state: WanState, networks: Mapping[str, RegionNetwork], queue_rules: Mapping[str, str | None]
) -> Iterator[Rule]:
    """The rules of `CHAIN` in order.

    What is cut never reaches a queue; what is on its way when a cut begins still arrives. Second copies are
    made here, for netem refuses to make any beside other queues: they leave as packets of the router's own.
    """
    for (origin, destination), cut in state.partitioned().items():
        if cut and origin == state.region:
            yield (origin, destination), f"-d {networks[destination].subnet} -j DROP"
        elif cut:
            yield (origin, destination), f"-s {networks[origin].subnet} -j DROP"
    for destination, link in state.links.items():
        to = networks[destination]
        if link.duplicate > 0.0:
            share = f"-m statistic --mode random --probability {link.duplicate:.6f}"
            yield None, f"-d {to.subnet} {share} -j TEE --gateway {to.router}"
        queue_rule = queue_rules[destination]
        if queue_rule is not None:
            yield None, f"-d {to.subnet} -j {queue_rule}"


def restore_input(bodies: list[str]) -> str:
    """What `iptables-restore --noflush` takes to give `CHAIN` exactly these rules at once."""
    lines = ["*mangle", f":{CHAIN} - [0:0]", *(f"-A {CHAIN} {body}" for body in bodies), "COMMIT", ""]
    return "\n".join(lines)


def packet_counts(listing: str) -> list[int]:
    """Packets that met each rule, from the output of `iptables -v -S CHAIN`."""
    counts: list[int] = []
    for line in listing.splitlines():
        words = shlex.split(line)
        if words[:1] == ["-A"]:
            counts.append(int(words[words.index("-c") + 1]))
    return counts


class Netfilter:
    """One chain of this network namespace. It outlives the program, so that a crash opens nothing."""

    def __init__(self) -> None:
        self._iptables = next((tool for tool in ("iptables", "iptables-legacy") if _works(tool)), None)
        self._dropped: Counter[Pair] = Counter()
        self._cuts: list[Pair | None] = []

    def install(self, wanted: list[Rule]) -> None:
        """Replaces the chain's rules and hooks it in where it is not. Raises: RouterError."""
        tool = self._tool()
        dropped = self._count()
        call(f"{tool}-restore", "--noflush", "-w", stdin=restore_input([body for _, body in wanted]))
        self._dropped, self._cuts = dropped, [pair for pair, _ in wanted]
        for hook in _HOOKS:
            if not succeeds(tool, "-w", "-t", "mangle", "-C", hook, "-j", CHAIN):
                call(tool, "-w", "-t", "mangle", "-I", hook, "-j", CHAIN)

    def dropped(self) -> Mapping[Pair, int]:
        """Packets that met a cut, since the start. Costs a process. Raises: RouterError."""
        return self._count()

    def remove(self) -> None:
        """Takes the chain out of this namespace, also one that an earlier life left."""
        if self._iptables is None:
            return
        mangle = (self._iptables, "-w", "-t", "mangle")
        for hook in _HOOKS:
            while succeeds(*mangle, "-D", hook, "-j", CHAIN):
                pass
        succeeds(*mangle, "-F", CHAIN)
        succeeds(*mangle, "-X", CHAIN)
        self._cuts = []

    def _tool(self) -> str:
        if self._iptables is None:
            raise RouterError(
                "iptables cannot list the mangle table here; it needs NET_ADMIN", field="iptables"
            )
        return self._iptables

    def _count(self) -> Counter[Pair]:
        if not any(self._cuts):
            return self._dropped
        listed = packet_counts(call(self._tool(), "-w", "-t", "mangle", "-v", "-S", CHAIN))
        met: Counter[Pair] = Counter()
        for pair, packets in zip(self._cuts, listed, strict=True):
            if pair is not None:
                met[pair] += packets
        return self._dropped + met


def _works(tool: str) -> bool:
    """Whether a chain can be made: a kernel may know only the older of the two kinds of iptables."""
    try:
        succeeds(tool, "-w", "-t", "mangle", "-X", _PROBE)
        made = succeeds(tool, "-w", "-t", "mangle", "-N", _PROBE)
        succeeds(tool, "-w", "-t", "mangle", "-X", _PROBE)
    except RouterError:
        return False
    return made
