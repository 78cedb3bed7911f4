"""The chain of a router over its life: counters survive every change, once each, and a change that fails."""

import pytest

from lab.netem import netfilter
from lab.netem.errors import RouterError
from lab.netem.netfilter import CHAIN, Netfilter

THERE, BACK = ("us", "eu"), ("eu", "us")
CUT = [(THERE, "-d 10.214.2.0/24 -j DROP"), (BACK, "-s 10.214.2.0/24 -j DROP")]
QUEUE = (None, "-d 10.214.2.0/24 -j NFQUEUE --queue-num 100")


class Kernel:
    """A mangle table with one chain of ours."""

    def __init__(self) -> None:
        self.rules: dict[str, int] = {}
        """Packets that met each."""
        self.hooks: set[str] = set()
        self.refuses = False

    def call(self, *command: str, stdin: str = "") -> str:
        if command[0] == "iptables-restore":
            if self.refuses:
                raise RouterError("refused", field="iptables")
            prefix = f"-A {CHAIN} "
            bodies = [line.removeprefix(prefix) for line in stdin.splitlines() if line.startswith(prefix)]
            self.rules = dict.fromkeys(bodies, 0)
        elif "-S" in command:
            lines = [f"-N {CHAIN} -c 0 0"]
            for body, packets in self.rules.items():
                match, _, target = body.partition(" -j ")
                lines.append(f"-A {CHAIN} {match} -c {packets} {60 * packets} -j {target}")
            return "\n".join(lines)
        elif "-I" in command:
            self.hooks.add(command[command.index("-I") + 1])
        return ""

    def succeeds(self, *command: str, stdin: str = "") -> bool:
        if "-C" in command:
            return command[command.index("-C") + 1] in self.hooks
        if "-D" in command:
            hook = command[command.index("-D") + 1]
            hooked = hook in self.hooks
            self.hooks.discard(hook)
            return hooked
        if "-F" in command:
            self.rules = {}
        return True


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(netfilter, "call", kernel.call)
    monkeypatch.setattr(netfilter, "succeeds", kernel.succeeds)
    return kernel


def test_what_met_a_cut_is_counted_over_every_change(kernel: Kernel) -> None:
    chain = Netfilter()
    chain.install([*CUT, QUEUE])
    assert kernel.hooks == {"PREROUTING", "OUTPUT"}
    kernel.rules |= {CUT[0][1]: 5, CUT[1][1]: 2, QUEUE[1]: 100}
    assert chain.dropped() == {THERE: 5, BACK: 2}
    assert chain.dropped() == {THERE: 5, BACK: 2}
    chain.install([CUT[0], QUEUE])
    kernel.rules[CUT[0][1]] = 1
    assert chain.dropped() == {THERE: 6, BACK: 2}
    chain.install([QUEUE])
    assert chain.dropped() == {THERE: 6, BACK: 2}


def test_a_change_that_the_kernel_refuses_changes_no_count(kernel: Kernel) -> None:
    chain = Netfilter()
    chain.install([CUT[0]])
    kernel.rules[CUT[0][1]] = 5
    kernel.refuses = True
    with pytest.raises(RouterError):
        chain.install([QUEUE])
    kernel.rules[CUT[0][1]] = 7
    assert chain.dropped() == {THERE: 7}
    kernel.refuses = False
    chain.install([QUEUE])
    assert chain.dropped() == {THERE: 7}


def test_nothing_remains(kernel: Kernel) -> None:
    chain = Netfilter()
    chain.install(CUT)
    chain.remove()
    assert (kernel.rules, kernel.hooks) == ({}, set())


def test_without_iptables_it_says_what_is_missing(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netfilter, "succeeds", lambda *_command: False)
    with pytest.raises(RouterError, match="NET_ADMIN"):
        Netfilter().install(CUT)
