"""A fleet by its name, or from a plan file."""

from dataclasses import replace
from pathlib import Path

from kvcompass.plan import assign_text, parse_plan
from kvcompass.plan.parse import decode_plan
from simulator.errors import SimulationError
from simulator.fleet import Fleet
from simulator.fleets.engines import A100
from simulator.fleets.named import NAMED, scale_fleet
from simulator.fleets.options import FleetOptions


def load_fleet(name_or_path: str | Path, options: FleetOptions | None = None) -> Fleet:
    """Return a named fleet, or that of a product's plan file (any path that ends in `.toml`).

    A plan says all but the engines and where requests start: its engines are A100s with the plan's own
    prefill and reload rates and block size, and each region starts as many requests as its workers' share. Of
    the options only those about engines apply.

    Raises:
        SimulationError: There is no such fleet or file.
        PlanError: The plan is faulty.
    """
    options = options or FleetOptions()
    name = str(name_or_path)
    if name.endswith(".toml"):
        return _from_file(Path(name_or_path), options)
    if name in NAMED:
        return NAMED[name](options)
    if (fleet := scale_fleet(name, options)) is not None:
        return fleet
    raise SimulationError(
        f"{name!r} is no fleet: take {', '.join(NAMED)}, scale-WxR (such as scale-1024x64) or a plan's .toml",
        field="fleet",
    )


def _from_file(path: Path, options: FleetOptions) -> Fleet:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SimulationError(f"{path}: cannot be read: {error.strerror}", field="fleet") from error
    plan = parse_plan(assign_text(decode_plan(data)))
    if options.timing == "linear":
        plan = replace(
            plan, workers=tuple(replace(each, decode_ms_per_context_token=0.0) for each in plan.workers)
        )
    gpus = map(A100.of, plan.workers)
    return Fleet(
        name=plan.fleet,
        plan=plan,
        engines=tuple(gpu.config(plan.model.block_size, options) for gpu in gpus),
        origin_weights=tuple(
            sum(worker.region == region for worker in plan.workers) / len(plan.workers)
            for region in plan.regions
        ),
    )
