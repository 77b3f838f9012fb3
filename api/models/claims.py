"""The claim of a partition, the outcome of the next one, and the partition's mode."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from api.http.validation import INT64_MAX
from api.models.base import (
    ClaimView,
    EpochOrNull,
    EpochStart,
    MetadataOffset,
    OffsetOrNull,
    PartitionName,
    Wire,
    name_of,
)
from rlm.copy.claim_outlook import ClaimCourse, ClaimOutlook, NoOutlook, ResetRefusal
from rlmm.partition_state import UNKNOWN_OFFSET, Mode, PartitionState
from rlmm.records.control_records import PartitionModeChange

OffsetIn = Annotated[StrictInt, Field(ge=0, le=INT64_MAX)]


class ClaimCourseView(Wire):
    """The outcome of a claim; the offsets are null if it is refused."""

    verdict: Annotated[
        str,
        Field(
            description="`accepted`, `no_effect`, or the reason of the refusal: `suspect` (it "
            "would cut too much), `fenced`, `invalid`, `conflict`, `gone`.",
            examples=["suspect"],
        ),
    ]
    text: str
    cut_at: Annotated[
        int | None,
        Field(
            description="Offset at which the claim would cut the lineage; null: it cuts nothing.",
            examples=[50_000],
        ),
    ]
    cut_offsets: Annotated[
        int,
        Field(
            description="Copied offsets that the cut would remove from the lineage.",
            examples=[250_000],
        ),
    ]
    log_start_offset: OffsetOrNull
    highest_copied_offset: OffsetOrNull
    next_offset: OffsetOrNull

    @classmethod
    def of_course(cls, course: ClaimCourse) -> ClaimCourseView:
        """The view of a course; a refused one has no offsets."""
        after = course.after
        return cls.of(
            course,
            verdict=course.verdict.name.lower(),
            log_start_offset=None if after is None else after.log_start_offset,
            highest_copied_offset=after.highest_copied[0]
            if after and after.highest_copied
            else None,
            next_offset=None if after is None else after.next_offset,
        )


class NextClaimView(Wire):
    """The claim that the queried node would make now."""

    leader_epoch: Annotated[int, Field(examples=[7])]
    leader_epoch_checkpoint: list[EpochStart]
    as_it_is: ClaimCourseView
    after_reset: ClaimCourseView

    @classmethod
    def of_outlook(cls, outlook: ClaimOutlook | NoOutlook) -> NextClaimView | None:
        """The view of an outlook; None if this node would make no claim."""
        if isinstance(outlook, NoOutlook):
            return None
        return cls(
            leader_epoch=outlook.leader_epoch,
            leader_epoch_checkpoint=EpochStart.all_of(outlook.checkpoint),
            as_it_is=ClaimCourseView.of_course(outlook.as_it_is),
            after_reset=ClaimCourseView.of_course(outlook.after_reset),
        )


class RefusalView(Wire):
    """The reason why a change is refused now."""

    reason: Annotated[str, Field(description="A stable word.", examples=["NOT_NEEDED"])]
    text: str


class PartitionClaimView(PartitionName):
    """The claim of a partition, and the outcome of the next one."""

    mode: Annotated[str, Field(examples=["sidecar"])]
    claim: Annotated[
        ClaimView | None,
        Field(description="The last claim; null: the partition was never claimed."),
    ]
    claim_stands: Annotated[
        bool,
        Field(
            description="True if the claim is in force. False: no node writes the partition "
            "until the next claim is accepted."
        ),
    ]
    reset_stands: Annotated[
        bool,
        Field(
            description="A reset is in force until the next claim. A claim that cuts more than it "
            "allows is refused as suspect, whichever node makes it."
        ),
    ]
    reset_cut_at: Annotated[
        OffsetOrNull,
        Field(
            description="Lowest offset at which the reset in force allows a cut; null: it allows "
            "none."
        ),
    ]
    lineage: list[EpochStart]
    log_start_offset: OffsetOrNull
    highest_copied_offset: OffsetOrNull
    highest_copied_epoch: EpochOrNull
    next_claim: Annotated[
        NextClaimView | None,
        Field(description="The next claim of the queried node; null if it would make none."),
    ]
    why_no_next_claim: str | None
    cut_off_segments: Annotated[
        int,
        Field(description="Segments that could no longer be read after a reset."),
    ]
    cut_off_bytes: int
    reset_refused: Annotated[
        RefusalView | None, Field(description="Null: a reset would be accepted.")
    ]
    metadata_offset: MetadataOffset

    @classmethod
    def of_state(
        cls,
        state: PartitionState,
        outlook: ClaimOutlook | NoOutlook,
        cut_off: tuple[int, int],
        refusal: ResetRefusal | None,
        metadata_offset: int,
    ) -> PartitionClaimView:
        """`cut_off` are segments and bytes."""
        highest = state.highest_copied
        return cls.of(
            state,
            **name_of(state.partition),
            mode=state.mode.name.lower(),
            claim=state.last_claim,
            claim_stands=state.claim is not None,
            reset_stands=state.reset_stands,
            reset_cut_at=None if state.reset_cut_at < 0 else state.reset_cut_at,
            highest_copied_offset=None if highest is None else highest[0],
            highest_copied_epoch=None if highest is None else highest[1],
            next_claim=NextClaimView.of_outlook(outlook),
            why_no_next_claim=outlook.why if isinstance(outlook, NoOutlook) else None,
            cut_off_segments=cut_off[0],
            cut_off_bytes=cut_off[1],
            reset_refused=refusal,
            metadata_offset=metadata_offset,
        )


class ClaimResetRequest(Wire):
    """A reset: the claim to void and the cut to allow, as shown by GET of the claim."""

    token: Annotated[OffsetIn, Field(description="Token of the last claim.", examples=[5231])]
    cut_at: Annotated[
        OffsetIn | None,
        Field(description="`cut_at` of the next claim after a reset.", examples=[50_000]),
    ]
    cut_offsets: Annotated[
        OffsetIn,
        Field(description="`cut_offsets` of the next claim after a reset.", examples=[250_000]),
    ]
    dry_run: Annotated[
        StrictBool, Field(description="True: change nothing, and show the effect.")
    ] = False

    def stands(self, state: PartitionState) -> bool:
        """True if this reset was made already and is in force until the next claim."""
        last = state.last_claim
        cut_at = UNKNOWN_OFFSET if self.cut_at is None else self.cut_at
        return (
            state.reset_stands
            and last is not None
            and (last.token, state.reset_cut_at) == (self.token, cut_at)
        )

    def why(self) -> str:
        """The reason for the audit."""
        cuts = "cuts nothing" if self.cut_at is None else f"may cut at {self.cut_at}"
        return f"token {self.token}; the next claim {cuts}"

    def refusal(
        self, state: PartitionState, outlook: ClaimOutlook | NoOutlook
    ) -> ResetRefusal | None:
        """The refusal of a request that does not match the present claim, or None."""
        last = state.last_claim
        if last is not None and last.token != self.token:
            return ResetRefusal(
                "CONFLICT",
                f"the last claim has token {last.token}, not {self.token}: read the claim again",
            )
        if isinstance(outlook, NoOutlook):
            return None
        after = outlook.after_reset
        if (after.cut_at, after.cut_offsets) != (self.cut_at, self.cut_offsets):
            return ResetRefusal(
                "OTHER_OFFSETS",
                f"the next claim would {_cut_text(after.cut_at, after.cut_offsets)}, not "
                f"{_cut_text(self.cut_at, self.cut_offsets)}: read the claim again, and confirm "
                "its values",
            )
        return None


def _cut_text(cut_at: int | None, offsets: int) -> str:
    if cut_at is None:
        return "cut nothing"
    return f"cut at {cut_at} and take {offsets} copied offsets out of the lineage"


class ModeRequest(Wire):
    """The mode to set."""

    mode: Annotated[
        Literal["sidecar", "delegated", "read_only", "paused"],
        Field(
            description="`sidecar`: the node beside the leader copies and expires. `delegated`: "
            "the leader's broker does, through the plug-in. `read_only`, `paused`: no node and "
            "no broker does."
        ),
    ]
    replaces_offset: Annotated[
        StrictInt | None,
        Field(
            ge=0,
            le=INT64_MAX,
            description="`mode_offset` of the mode to replace, null if none was set: 409 if a "
            "different mode is in force by then. Left out: replaces any mode.",
        ),
    ] = None
    confirm: Annotated[
        str | None,
        Field(
            max_length=1_000,
            description="The topic's name; required for `sidecar` and `delegated`.",
        ),
    ] = None
    dry_run: Annotated[
        StrictBool, Field(description="True: change nothing, and show the effect.")
    ] = False

    @property
    def wanted(self) -> Mode:
        return Mode[self.mode.upper()]

    def change(self, name: PartitionModeChange) -> PartitionModeChange:
        """The record to propose; `name` is the one that replaces any mode."""
        if "replaces_offset" not in self.model_fields_set:
            return name
        replaces = UNKNOWN_OFFSET if self.replaces_offset is None else self.replaces_offset
        return PartitionModeChange(name.partition, name.mode, replaces)


class ModeView(PartitionName):
    """A partition's mode, and the effect of a change."""

    mode: Annotated[str, Field(description="The present mode.", examples=["sidecar"])]
    mode_offset: Annotated[
        int | None,
        Field(
            description="Metadata offset of the record that set the mode; null: it was never set."
        ),
    ]
    changed: bool
    dry_run: bool
    text: Annotated[str, Field(description="Effect of the change.")]
    next_claim: Annotated[
        ClaimCourseView | None,
        Field(description="For `sidecar`: the outcome of the queried node's claim, if it leads."),
    ]
