"""The endpoints of a lab that stays up, as shell variables: `. out/lab.env`, then paste from the README."""

from pathlib import Path

from lab.fleet import Fleet
from lab.three_regions import MODEL


def env_lines(fleet: Fleet) -> str:
    """`export` lines: US, EU, ASIA (base URLs of the edges), MODEL, RELAY, PLAN and the key to change it."""
    edges = {edge.region.upper(): f"http://{edge.address}" for edge in fleet.blueprint.plan.edges}
    values = {
        **edges,
        "MODEL": MODEL,
        "RELAY": f"http://{fleet.blueprint.relay_control}",
        "PLAN": fleet.directory / "plan.toml",
        "KVCOMPASS_PLAN_KEY": fleet.blueprint.plan_key,
    }
    return "".join(f"export {name}={value}\n" for name, value in values.items())


def write_env(fleet: Fleet, path: Path) -> None:
    """Writes the file, and its folder when there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(env_lines(fleet), "utf-8")
