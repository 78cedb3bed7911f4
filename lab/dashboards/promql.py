"""Expressions over metrics that exist: a wrong name, kind or label is an error here, not an empty panel."""

from collections.abc import Iterable
from dataclasses import dataclass

from kvcompass.errors import KVCompassError
from lab.dashboards.catalogue import Family, Kind, families

Where = str | Iterable[str]
"""A label's value, or the values it may have."""


class ExpressionError(KVCompassError):
    """An expression asks for what no service exports."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which series expressions read, and over what time they take rates."""

    matchers: tuple[str, ...]
    """PromQL label matchers for every series; what they name, every metric has."""
    window: str


DASHBOARD = Scope(('region=~"$region"',), "$__rate_interval")
"""Both are variables that Grafana fills in."""
ALERTS = Scope((), "2m")
"""Long against the scrape interval, so that a missed scrape or two fires nothing."""


@dataclass(frozen=True, slots=True)
class Expressions:
    """Writes PromQL. `by`: labels that are kept; keywords: values that labels must have."""

    scope: Scope

    def sum(self, name: str, *by: str, **where: Where) -> str:
        """Of a gauge."""
        return self._gauge("sum", name, by, where)

    def max(self, name: str, *by: str, **where: Where) -> str:
        """Of a gauge."""
        return self._gauge("max", name, by, where)

    def min(self, name: str, *by: str, **where: Where) -> str:
        """Of a gauge."""
        return self._gauge("min", name, by, where)

    def count(self, name: str, *by: str, **where: Where) -> str:
        """Series of a gauge."""
        return self._gauge("count", name, by, where)

    def rate(self, name: str, *by: str, **where: Where) -> str:
        """Of a counter, a second."""
        family = _family(name, Kind.COUNTER)
        _check_labels(family, by)
        return aggregate("sum", f"rate({self._select(family, name, where)}[{self.scope.window}])", *by)

    def a_minute(self, name: str, *by: str, **where: Where) -> str:
        """Of a counter, a minute: for what should be rare."""
        return f"60 * {self.rate(name, *by, **where)}"

    def quantile(self, q: float, name: str, *by: str, **where: Where) -> str:
        """Of a histogram, by linear interpolation inside a bucket; no value without observations."""
        family = _family(name, Kind.HISTOGRAM)
        _check_labels(family, by)
        series = self._select(family, f"{name}_bucket", where)
        buckets = aggregate("sum", f"rate({series}[{self.scope.window}])", "le", *by)
        return f"histogram_quantile({q:g}, {buckets}) >= 0"

    def state(self, name: str, states: Iterable[str], *by: str) -> str:
        """Of a gauge that is 1 for the state something is in: the state's place in `states`, best first.

        Where `by` lumps several things together, the worst of them.
        """
        family = _family(name, Kind.GAUGE)
        _check_labels(family, by)
        codes = (
            f"{code} * {self._select(family, name, {'state': state})}" for code, state in enumerate(states)
        )
        return aggregate("max", " or ".join(codes), *by)

    def _gauge(self, how: str, name: str, by: tuple[str, ...], where: dict[str, Where]) -> str:
        family = _family(name, Kind.GAUGE)
        _check_labels(family, by)
        return aggregate(how, self._select(family, name, where), *by)

    def _select(self, family: Family, series: str, where: dict[str, Where]) -> str:
        _check_labels(family, where)
        matchers = [*self.scope.matchers, *(_matcher(label, values) for label, values in where.items())]
        return f"{series}{{{', '.join(matchers)}}}" if matchers else series


def aggregate(how: str, expression: str, *by: str) -> str:
    """`how by (by) (expression)`."""
    return f"{how} by ({', '.join(by)}) ({expression})" if by else f"{how}({expression})"


def share(part: str, whole: str) -> str:
    """0 to 1, and no value at all while the whole is 0: nothing is no share."""
    return f"({part}) / ({whole} > 0)"


def _matcher(label: str, values: Where) -> str:
    if isinstance(values, str):
        return f'{label}="{values}"'
    return f'{label}=~"{"|".join(values)}"'


def _family(name: str, kind: Kind) -> Family:
    family = families().get(name)
    if family is None:
        raise ExpressionError(f"no service exports {name!r}", field="metric")
    if family.kind is not kind:
        raise ExpressionError(f"{name} is a {family.kind}, not a {kind}", field="metric")
    return family


def _check_labels(family: Family, labels: Iterable[str]) -> None:
    unknown = sorted(set(labels) - family.labels)
    if unknown:
        known = ", ".join(sorted(family.labels))
        raise ExpressionError(
            f"{family.name} has no label {', '.join(unknown)}; it has {known}", field="label"
        )
