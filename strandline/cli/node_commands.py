"""Commands that prepare a node: `format` and `random-uuid`."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from rlmm.log.quorum_records import Voter
from strandline.cli.config_option import ConfigOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import print_text
from strandline.node import ambient
from strandline.node.formatting import NewNode, format_for
from strandline.settings.loading import load_settings
from strandline.settings.voter_text import parse_voters

STARTS_WITH_ALL = (
    "a new quorum's first election needs all of these voters: start them all. If this one has run "
    "before and lost its disk, do not start it: remove it from the quorum, format it with "
    "--no-initial-voters, and add it again"
)

TAKEN_OVER = (
    "this cluster has taken the prefix over; nothing is deleted until it is reconciled: run "
    "`strandline reconcile`"
)

StandaloneOption = Annotated[
    bool,
    typer.Option(
        "--standalone",
        help="Make a quorum of this node alone although a cluster id, `quorum.bootstrap` or, "
        "with --from-snapshot, `quorum.listen` suggests that there are other nodes.",
    ),
]
FromSnapshotOption = Annotated[
    str | None,
    typer.Option(
        help="After a disaster: a snapshot file of the lost cluster, or `latest` for the "
        "newest in the stores. A new cluster begins with it and takes the prefix over."
    ),
]
YesOption = Annotated[
    bool,
    typer.Option(
        "--yes",
        help="With --from-snapshot: take over the prefix of a cluster that has no node left.",
    ),
]


def format_command(
    config: ConfigOption = None,
    cluster_id: Annotated[
        str | None, typer.Option(help="Id of the Strandline cluster; default: a new one.")
    ] = None,
    kafka_cluster_id: Annotated[
        str | None,
        typer.Option(help="Id of the Kafka cluster; default: that of the log directories."),
    ] = None,
    node_id: Annotated[
        int | None,
        typer.Option(help="Node id of the broker; default: that of the log directories."),
    ] = None,
    initial_voters: Annotated[
        str | None,
        typer.Option(
            help="Voters of a new quorum, `id@host:port:directory-id,...`; the same on each of "
            "them, once in a node's life. Default: this node alone."
        ),
    ] = None,
    no_initial_voters: Annotated[
        bool, typer.Option("--no-initial-voters", help="Let this node join an existing quorum.")
    ] = False,
    standalone: StandaloneOption = False,
    from_snapshot: FromSnapshotOption = None,
    yes: YesOption = False,
) -> int:
    """Make the node's data directory, once, as mkfs makes a file system.

    Example: `strandline format --config strandline.toml`
    """
    settings = load_settings(config).settings
    if (initial_voters is not None) + no_initial_voters + standalone > 1:
        ways = "--initial-voters, --no-initial-voters, --standalone"
        raise InvalidRequest("these exclude each other: give one of them", field=ways)
    if yes and from_snapshot is None:
        raise InvalidRequest("it confirms --from-snapshot: leave it out", field="--yes")
    voters: tuple[Voter, ...] | None = () if no_initial_voters else None
    if initial_voters is not None:
        voters = parse_voters(initial_voters, field="--initial-voters")
    format_for(
        settings,
        NewNode(
            initial_voters=voters,
            standalone=standalone,
            cluster_id=None if cluster_id is None else Uuid.parse(cluster_id),
            kafka_cluster_id=kafka_cluster_id,
            node_id=node_id,
        ),
        from_snapshot=from_snapshot,
        confirmed=yes,
    )
    print_text(f"formatted {settings.node.data_dir}")
    if initial_voters is not None and from_snapshot is None:
        print_text(STARTS_WITH_ALL)
    if from_snapshot is not None:
        print_text(TAKEN_OVER)
    return ExitCode.OK


def random_uuid_command() -> int:
    """Print a new UUID in Kafka's form, for cluster and directory ids.

    Example: `strandline format --cluster-id $(strandline random-uuid)`
    """
    typer.echo(str(ambient.new_uuid()))
    return ExitCode.OK
