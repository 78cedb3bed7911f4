"""`kvcompass lab up`: a fleet that stays, and how to talk to it."""

import os
import time
from pathlib import Path

from rich.console import Console

from lab.env_file import write_env
from lab.fleet import Fleet
from lab.ports import LoopbackPorts
from lab.supervisor import AFTER_S, Supervisor
from lab.three_regions import MODEL, LabOptions, three_regions
from lab.warm import warm_kernels

_CHECK_PERIOD_S = 0.5


def stay_up(options: LabOptions, ports: LoopbackPorts, *, env_path: Path, keep: bool) -> None:
    """Starts the fleet, writes its endpoints to `env_path` and holds it until interrupted.

    A process that ends is started again, so that what operations.md says can be tried. Errors: LabError when
    one ends as soon as it is started.
    """
    console = Console(highlight=False, soft_wrap=True)
    console.print("loading kernels ...")
    warm_kernels()
    blueprint = three_regions(options, ports)
    with Fleet(blueprint, on_step=lambda step: console.print(f"starting {step} ..."), keep=keep) as fleet:
        write_env(fleet, env_path)
        console.print(endpoints(fleet), markup=False)
        console.print(f"The same as shell variables: . {env_path}", markup=False)
        console.print(f"Ctrl-C, or kill {os.getpid()}, ends it all.", markup=False)
        supervisor = Supervisor(fleet.processes, lambda line: console.print(line, markup=False))
        try:
            while True:
                supervisor.look(time.monotonic())
                time.sleep(_CHECK_PERIOD_S)
        finally:
            env_path.unlink(missing_ok=True)


def endpoints(fleet: Fleet) -> str:
    """Where everything listens, and commands to paste."""
    blueprint = fleet.blueprint
    plan = blueprint.plan
    ops = "\n".join(f"  {name:<12} http://{address}" for name, address in blueprint.ops_addresses.items())
    edges = "\n".join(f"  {region:<12} {url}" for region, url in fleet.base_urls.items())
    engines = "\n".join(f"  {worker.id:<14} {worker.url}" for worker in plan.workers)
    first, second = plan.edges[0], plan.edges[1]
    return f"""
The fleet is up: {len(plan.regions)} regions, {len(plan.workers)} workers, policy {blueprint.policy}.

OpenAI base URLs, one a region (model {MODEL}; any API key or none, lab mode is on):
{edges}
Engines:
{engines}
/ready and /metrics:
{ops}
Relay between regions: http://{blueprint.relay_control}/state
  curl -X PUT http://{blueprint.relay_control}/partition/us/eu cuts one direction, -X DELETE heals it
Logs and settings: {fleet.directory}
Break something: pkill -9 -f {fleet.directory}/unit-0.toml
  or another, as the logs are named; -STOP and -CONT hang it. What ends is started again after {AFTER_S:g} s

Ask something long in {first.region}, and see who answered (the x-kvcompass-* headers):

  PROMPT="$(seq -s ' ' 1 4000)"
  BODY='{{"model":"{MODEL}","messages":[{{"role":"user","content":"'"$PROMPT"'"}}],"max_tokens":16}}'
  curl -si http://{first.address}/v1/chat/completions -H 'content-type: application/json' -d "$BODY"

Ask where the same prompt would go from {second.region}, and why (nothing is forwarded):

  curl -s http://{second.address}/v1/kvcompass/route -d "$BODY" | python3 -m json.tool

How everything is: kvcompass status {fleet.directory}/plan.toml
Everything an edge knows: curl -s http://{first.address}/v1/kvcompass/state
"""
