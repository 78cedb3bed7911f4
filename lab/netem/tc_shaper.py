"""Shapes with the kernel's netem queues, on the way out of the device that faces the other regions."""

import json
from collections.abc import Mapping
from ipaddress import IPv4Network

from kvcompass.wan.link import Link
from lab.netem import tc_commands
from lab.netem.shaper import Counts
from lab.netem.shell import call, succeeds


class TcShaper:
    """A `Shaper`. Counters live in the kernel and are read by `counts`."""

    name = "tc"

    def __init__(self, device: str, subnets: Mapping[str, IPv4Network]) -> None:
        self._device = device
        self._subnets = dict(subnets)
        self._links: dict[str, Link] = {}

    def start(self, links: Mapping[str, Link]) -> None:
        """Replaces whatever root qdisc the device has. Raises: RouterError."""
        self.stop()
        for command in tc_commands.setup(self._device, self._subnets, links):
            call(*command)
        self._links = dict(links)

    def change(self, links: Mapping[str, Link]) -> None:
        """Changes the queues in place, of the links that differ. Raises: RouterError."""
        for index, region in enumerate(self._subnets):
            if links[region] != self._links[region]:
                call(*tc_commands.change(self._device, index, links[region]))
                self._links[region] = links[region]

    def queue_rule(self, region: str) -> None:
        """Filters of the device do it."""

    def counts(self) -> Mapping[str, Counts]:
        """Asks the kernel; costs a process. Raises: RouterError."""
        handles = {
            entry["handle"]: Counts(entry["packets"] + entry["drops"], entry["drops"])
            for entry in json.loads(call("tc", "-s", "-j", "qdisc", "show", "dev", self._device))
            if entry["kind"] == "netem"
        }
        return {
            region: handles[f"{tc_commands.class_number(index)}:"]
            for index, region in enumerate(self._subnets)
        }

    def stop(self) -> None:
        """Gives the device its default qdisc back."""
        succeeds("tc", "qdisc", "del", "dev", self._device, "root")
