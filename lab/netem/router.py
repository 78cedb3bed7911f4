"""One router: its addresses, its shaper, its cuts and its echo, and how they change while it runs."""

import contextlib
import threading
from collections.abc import Callable, Mapping

from lab.netem import names
from lab.netem.addressing import Addressing
from lab.netem.echo import Echo
from lab.netem.log import say
from lab.netem.netfilter import Netfilter, Rule, rules
from lab.netem.nfqueue_shaper import NfqueueShaper
from lab.netem.report import Direction, Report
from lab.netem.settings import RouterSettings, check_regions
from lab.netem.shaper import Shaper, kernel_has_netem
from lab.netem.tc_shaper import TcShaper
from lab.netem.wan_state import WanState
from lab.wan_profiles import load_profile


class Router:
    """Methods may be called from any thread. `failed` is called when the shaper dies.

    Raises: RouterError when this network namespace is not a router's.
    """

    def __init__(self, settings: RouterSettings, failed: Callable[[], None]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._state = WanState.begin(settings.region, settings.profile)
        self._addressing = Addressing(settings)
        self._netfilter = Netfilter()
        self._shaper = self._choose(failed)
        peers = {name: network.gateway for name, network in settings.others.items()}
        self._echo = Echo(settings.own.gateway, peers)

    def start(self) -> None:
        """Shapes, then routes; what an earlier life left is replaced, and until then nothing passes.

        Raises: RouterError, OSError.
        """
        unshaped = dict.fromkeys(self._state.links)
        self._netfilter.install(list(rules(self._state.closed(), self._settings.regions, unshaped)))
        TcShaper(self._addressing.wan_device, {}).stop()
        self._shaper.start(self._state.links)
        self._netfilter.install(self._rules(self._state))
        self._addressing.add()
        self._echo.start()
        say(
            "shaping",
            region=self._settings.region,
            shaper=self._shaper.name,
            why=_WHY[self._shaper.name] if self._settings.shaper == "auto" else "the settings say so",
            profile=self._state.profile.name,
            one_way_ms={region: link.one_way_ms for region, link in self._state.links.items()},
        )

    def stop(self) -> None:
        """Takes back what `start` did, also where that came to nothing."""
        with contextlib.ExitStack() as undone:  # from the last line to the first, whatever fails
            undone.callback(self._shaper.stop)
            undone.callback(self._netfilter.remove)
            undone.callback(self._addressing.remove)
            undone.callback(self._echo.stop)

    def cut(self, region: str, *, one_way: bool) -> None:
        """Starts a partition. Raises: WanError, RouterError; so for all changes."""
        with self._lock:
            self._move(self._state.cut(region, one_way=one_way))
        say("cut", region=region, one_way=one_way)

    def heal(self, region: str, *, one_way: bool) -> None:
        """Ends it."""
        with self._lock:
            self._move(self._state.heal(region, one_way=one_way))
        say("healed", region=region, one_way=one_way)

    def change(self, region: str, values: Mapping[str, object]) -> None:
        """Changes figures of the link to `region`."""
        with self._lock:
            self._move(self._state.change(region, values))
        say("changed", region=region, values=values)

    def use_profile(self, name: str) -> None:
        """Takes another profile's links."""
        profile = load_profile(name, self._settings.directory)
        check_regions(profile, self._settings.regions)
        with self._lock:
            self._move(self._state.use(profile))
        say("profile", profile=profile.name)

    def report(self) -> Report:
        """What it does now, with counters. Costs one or two processes. Raises: RouterError."""
        with self._lock:
            state = self._state
            counts = self._shaper.counts()
            drops = self._netfilter.dropped()
        rtts_ms = self._echo.rtts_ms()
        directions: dict[tuple[str, str], Direction] = {}
        for pair, partitioned in state.partitioned().items():
            origin, destination = pair
            if origin != state.region:
                directions[pair] = Direction(partitioned, drops.get(pair, 0))
                continue
            directions[pair] = Direction(
                partitioned,
                drops.get(pair, 0),
                state.links[destination],
                rtts_ms.get(destination),
                counts[destination].packets,
                counts[destination].shaped_drops,
            )
        return Report(state.region, self._shaper.name, state.profile.name, state.profile.source, directions)

    def _move(self, state: WanState) -> None:
        """Makes the kernel do what `state` says, whatever a change that failed has left. The lock is held."""
        before = self._state
        self._shaper.change(state.links)
        self._netfilter.install(self._rules(state))
        self._state = state
        for region, link in state.links.items():
            if link != before.links[region]:
                self._echo.forget(region)

    def _rules(self, state: WanState) -> list[Rule]:
        queue_rules = {region: self._shaper.queue_rule(region) for region in state.links}
        return list(rules(state, self._settings.regions, queue_rules))

    def _choose(self, failed: Callable[[], None]) -> Shaper:
        wanted = self._settings.shaper
        if wanted == "auto":
            wanted = "tc" if kernel_has_netem() else "nfqueue"
        assert wanted in names.SHAPERS
        if wanted == "tc":
            subnets = {name: network.subnet for name, network in self._settings.others.items()}
            return TcShaper(self._addressing.wan_device, subnets)
        return NfqueueShaper(tuple(self._settings.others), self._settings.random_seed, failed)


_WHY = {"tc": "this kernel has netem", "nfqueue": "this kernel lacks netem"}
