"""The three kinds of error: programmers' (assertions), expected (values, counted) and operating (these)."""


class KVCompassError(Exception):
    """An operating error. `field` names what is wrong, the message says how to mend it."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class PlanError(KVCompassError):
    """The plan is faulty. `faults` holds one (TOML path, message) per fault."""

    def __init__(self, faults: tuple[tuple[str, str], ...]) -> None:
        super().__init__("\n".join(f"{path}: {message}" for path, message in faults), field=faults[0][0])
        self.faults = faults


class LayoutMismatchError(KVCompassError):
    """Two components disagree on a field of the layout digest; no key of one would match the other's."""


class ProtocolError(KVCompassError):
    """A peer broke the replication protocol (sequence went back without a new epoch, malformed patch)."""
