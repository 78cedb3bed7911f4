"""Units and plans: who is registered, what is kept on disk, which version runs, who speaks for whom."""

from kvcompass.roles.worker_source import Registration
from lab.dashboards import signals
from lab.dashboards.panels import Colour, Panel, Query, Row, Shape, Unit, Words, steps
from lab.dashboards.promql import Expressions

REGISTRATIONS = {
    Registration.LIVE: Colour.GOOD,
    Registration.AWAITED: Colour.NEUTRAL,
    Registration.SILENT: Colour.WATCH,
    Registration.ABSENT: Colour.ACT,
    Registration.ENDED: Colour.ACT,
}


def keeping(metrics: Expressions) -> Row:
    """Registrations, snapshots, plan versions."""
    return Row(
        700,
        "Units and plans",
        (
            Panel(
                id=701,
                title="Workers at the units",
                description="How each worker stands at its worst unit. awaited: its full report is still to "
                "come. silent: its stream broke, and its lease runs. ended, absent: nobody is routed to its "
                "cache until its engine and its agent are back.",
                unit=Unit.STATE,
                queries=(
                    Query(
                        metrics.state(
                            "kvcompass_maintenance_worker_registration",
                            [each.value for each in REGISTRATIONS],
                            "worker",
                        ),
                        "{{worker}}",
                    ),
                ),
                shape=Shape.STATES,
                words={
                    code: Words(each.value, colour)
                    for code, (each, colour) in enumerate(REGISTRATIONS.items())
                },
            ),
            Panel(
                id=702,
                title="Age of units' own snapshots",
                description="In periods at which they are to be written. More than three: the disk is full "
                "or slow, or the unit has not settled; a restart would begin with old tables, and agents "
                "correct them. Its log names the error.",
                unit=Unit.COUNT,
                queries=(Query(signals.snapshot_periods(metrics, "instance"), "{{instance}}"),),
                steps=steps(watch=2, act=signals.SNAPSHOT_PERIODS_ACT),
                nothing="no unit keeps one",
            ),
            Panel(
                id=703,
                title="Size of units' own snapshots",
                description="Of the files on disk: 12 bytes an entry, 16 with 32 workers a table. It grows "
                "with what workers hold; at 64 bytes for each entry that the plan allows, a start refuses "
                "the file.",
                unit=Unit.BYTES,
                queries=(
                    Query(metrics.max("kvcompass_unit_snapshot_size_bytes", "instance"), "{{instance}}"),
                ),
                nothing="no unit keeps one",
            ),
            Panel(
                id=704,
                title="Time that snapshots take",
                description="To write the unit's own file, and to load a shard at an edge, the newest of "
                "each. An edge is not ready until every shard is loaded; a slow one is the WAN's doing.",
                unit=Unit.SECONDS,
                queries=(
                    Query(
                        metrics.max("kvcompass_unit_snapshot_write_seconds", "instance"),
                        "{{instance}} written",
                    ),
                    Query(
                        metrics.max("kvcompass_edge_view_snapshot_seconds", "region", "shard"),
                        "{{region}} shard {{shard}} loaded",
                    ),
                ),
            ),
            Panel(
                id=705,
                title="Plan versions",
                description="The plan that each process runs. Two versions side by side work together, and "
                "are right while a plan is being applied; for longer, run kvcompass plan apply of the "
                "newer one again: it goes on where it ended.",
                unit=Unit.COUNT,
                queries=(Query(metrics.max("kvcompass_plan_version", "instance"), "{{instance}}"),),
            ),
            Panel(
                id=706,
                title="Two that speak for one",
                description="Times, a minute, that an open stream of a worker or an edge was replaced by "
                "one of another process. Once at a restart is right. Again and again: two agents serve one "
                "worker, or somebody forges; find the second one, and give the fleet TLS. Those of one "
                "epoch: a connection that broke at one side alone.",
                unit=Unit.EVENTS_A_MINUTE,
                queries=(
                    Query(
                        metrics.a_minute(
                            "kvcompass_edge_superseded_load_streams_total", "source", process="another"
                        ),
                        "load of an {{source}}",
                    ),
                    Query(
                        metrics.a_minute("kvcompass_maintenance_superseded_agents_total", "instance"),
                        "reports at {{instance}}",
                    ),
                    Query(
                        metrics.a_minute("kvcompass_maintenance_superseded_streams_total", "instance"),
                        "reports at {{instance}}, same epoch",
                    ),
                    Query(
                        metrics.a_minute("kvcompass_maintenance_superseded_subscribers_total", "instance"),
                        "subscribers of {{instance}}",
                    ),
                ),
                steps=steps(watch=1),
            ),
            Panel(
                id=707,
                title="Processor",
                description="Cores that each process uses. An edge or a unit is one loop: near 1 it is what "
                "requests and patches wait for; start another edge. An agent near 1 serves too many engines.",
                unit=Unit.COUNT,
                queries=(Query(metrics.rate("process_cpu_seconds_total", "instance"), "{{instance}}"),),
                width=12,
                steps=steps(watch=0.7, act=0.95),
                nothing="not on Linux",
            ),
            Panel(
                id=708,
                title="Memory",
                description="Resident, of each process. An edge's grows with the index, an agent's with the "
                "blocks of its engines (memory.blocks bounds them), a unit's with its shard.",
                unit=Unit.BYTES,
                queries=(Query(metrics.max("process_resident_memory_bytes", "instance"), "{{instance}}"),),
                width=12,
                nothing="not on Linux",
            ),
        ),
    )
