"""The move from Kafka's own metadata topic, as a node and the brokers' plug-ins see it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool

from api.models.base import OffsetOrNull, Wire, known
from api.models.cluster_parts import NodePartView
from api.models.node import Why
from api.models.views import NodeId
from rlm.migration.acknowledgements import Acknowledgement
from rlm.migration.switching import Attempt
from rlmm.migration_phase import Migration, MigrationPhase

PhaseName = Annotated[
    Literal["none", "kafka", "switching", "quorum", "done", "back"],
    Field(
        description="The authoritative metadata. `kafka`: the topic; `switching`: the topic, "
        "which is frozen and being imported; `quorum`: the metadata log, which is copied to the "
        "topic; `done`: the metadata log alone; `back`: the metadata log, which is frozen. "
        "`none`: no move was begun."
    ),
]


def phase_name(phase: MigrationPhase) -> PhaseName:
    """The phase as the interface writes it."""
    name: PhaseName = phase.name.lower()  # type: ignore[assignment]
    return name


class BridgeView(Wire):
    """The last request of the bridge in this node's broker, since the node's start."""

    broker_id: int
    plugin_version: Annotated[str, Field(description="Empty: the broker has not announced it yet.")]
    seen: Annotated[
        PhaseName | None,
        Field(description="The phase that the broker has seen and acts by; null: none yet."),
    ]
    outstanding: Annotated[
        int, Field(description="Changes of the broker that may still be written to the topic.")
    ]
    confirms: Annotated[
        bool,
        Field(
            description="True if the request came after the record of the present phase, "
            "reported that phase as seen, and nothing as outstanding."
        ),
    ]
    age_ms: Annotated[int, Field(description="Milliseconds since the request.")]
    has_lease: Annotated[
        bool,
        Field(
            description="False: no request came for 10 s, and the bridge changes nothing until "
            "it sees the phase again."
        ),
    ]

    @classmethod
    def of_last(cls, last: Acknowledgement, migration: Migration, now_s: float) -> Self:
        """The view of a broker's last acknowledgement at a moment of the node's monotonic clock."""
        return cls(
            broker_id=last.broker_id,
            plugin_version=last.plugin_version,
            seen=None if last.seen < 0 else phase_name(MigrationPhase(last.seen)),
            outstanding=last.outstanding,
            confirms=last.confirms(migration),
            age_ms=round(last.age_s(now_s) * 1000),
            has_lease=last.has_lease(now_s),
        )


class AttemptView(Wire):
    """The switch or way back that this node, which leads the quorum, carries out."""

    step: Annotated[str, Field(examples=["importing"])]
    share: Annotated[float, Field(description="Progress of the step, 0 to 1.")]
    waits_for: Annotated[str, Field(description="What the step waits for; empty: nothing.")]


class ComparedView(Wire):
    """A partition of Kafka's metadata topic whose records equal the metadata log."""

    metadata_partition: int
    end: Annotated[
        int, Field(description="The topic partition was read up to this offset (exclusive).")
    ]
    partitions: Annotated[
        int, Field(description="Partitions of other topics that its records describe.")
    ]
    segments: Annotated[
        dict[str, int],
        Field(
            description="Number of segments by state; ids, sizes, epochs and times were "
            "compared, too."
        ),
    ]
    epochs: Annotated[int, Field(description="Leader epochs whose highest offset was compared.")]
    highest_offset: Annotated[
        int | None, Field(description="The largest of these offsets; null: there is none.")
    ]


class ComparisonView(Wire):
    """The partitions that the last switch or way back on this node found to be equal."""

    since: Annotated[int, Field(description="Metadata offset of that attempt's phase.")]
    topic: Annotated[
        list[ComparedView],
        Field(description="Partitions whose records describe no partition are left out."),
    ]

    @classmethod
    def of_attempt(cls, attempt: Attempt) -> Self:
        """The comparison of an attempt so far."""
        return cls(
            since=attempt.standing.since,
            topic=[
                ComparedView.of(
                    each,
                    segments={state.name: count for state, count in sorted(each.segments.items())},
                )
                for each in attempt.compared
                if each.partitions
            ],
        )


class NodeMigrationView(Wire):
    """The move as in this node's metadata, and the bridge in its broker."""

    phase: PhaseName
    since: Annotated[
        OffsetOrNull,
        Field(description="Metadata offset of the phase's record; null: there is none."),
    ]
    since_ms: Annotated[int | None, Field(description="Time of that, by the quorum's leader.")]
    kafka_cluster_id: Annotated[str | None, Field(description="The cluster of the topic.")]
    who: str | None
    why: str | None
    bridge: Annotated[
        BridgeView | None,
        Field(
            description="Null: no bridge has sent a request since the node's start, or the node "
            "serves no broker."
        ),
    ]
    attempt: Annotated[
        AttemptView | None, Field(description="Null: no attempt is under way on this node.")
    ]
    has_broker: Annotated[
        bool,
        Field(
            description="False: the node has no `kafka.broker`. As leader of the quorum it can "
            "neither carry out a switch nor keep the topic up to date, so it hands the "
            "leadership to a voter that can."
        ),
    ]
    comparison: Annotated[
        ComparisonView | None,
        Field(description="Null: no attempt was under way since the node's start."),
    ]

    @classmethod
    def of_migration(
        cls,
        migration: Migration,
        last: Acknowledgement | None,
        attempt: Attempt | None,
        now_s: float,
        *,
        ended: Attempt | None,
        has_broker: bool,
    ) -> Self:
        """The view of the move. `last` is the last request of the broker's bridge, `ended` the last
        attempt here.
        """
        shown = attempt or ended
        recorded = migration.phase is not MigrationPhase.NONE
        return cls(
            phase=phase_name(migration.phase),
            since=known(migration.since),
            since_ms=migration.since_ms if recorded else None,
            kafka_cluster_id=migration.kafka_cluster_id if recorded else None,
            who=migration.who if recorded else None,
            why=migration.why if recorded else None,
            bridge=None if last is None else BridgeView.of_last(last, migration, now_s),
            attempt=None
            if attempt is None
            else AttemptView(step=attempt.step, share=attempt.share, waits_for=attempt.trouble),
            has_broker=has_broker,
            comparison=None if shown is None else ComparisonView.of_attempt(shown),
        )


class MigrationOfNode(NodeMigrationView):
    """The move as one node sees it."""

    node: NodeId


class WholeMigrationView(Wire):
    """The move as all nodes that answered see it."""

    nodes: list[NodePartView]
    seen: Annotated[list[MigrationOfNode], Field(description="By node; some nodes may lag.")]


class PhaseRequest(Wire):
    """The phase to begin. `kafka` begins a move, `done` ends it for good."""

    phase: Annotated[Literal["kafka", "switching", "back", "done"], Field(examples=["switching"])]
    why: Why = ""
    dry_run: StrictBool = False


class PhaseChanged(NodeMigrationView):
    """The present state of the move."""

    dry_run: bool
    in_the_way: Annotated[
        list[str], Field(description="Why the phase can't begin; only a dry run has any.")
    ]
