"""Topics for which a changed setting would start or stop tiering, on the disks of this node or of
all nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from api.http.admission import Context
from api.http.asking_all import Question, ask_all, parts_of
from api.http.cursors import CursorKey, decode_cursor, encode_cursor
from api.http.listing import page_after
from api.http.merging import merge
from api.http.validation import PAGE_LIMIT_DEFAULT, PageCursor, PageLimit
from api.models.cluster_parts import NodePartView
from api.models.cluster_settings import ChangedTopic, NodeTieringEffect, TieringEffect
from rlm.cluster_settings.in_force import tiered_with
from rlm.cluster_settings.known_settings import Setting, check_setting
from rlmm.records.setting_scope import of_topic

router = APIRouter(tags=["cluster"])
_LISTING = "tiering effect"
_SHAPE = (str, int)


@dataclass(frozen=True, slots=True)
class Choice:
    """Topics by name or glob pattern, and their new setting; None: it is removed."""

    name: str
    tiered: bool | None

    @property
    def query(self) -> dict[str, object]:
        """The choice as query parameters."""
        tiered = None if self.tiered is None else str(self.tiered).lower()
        return {"name": self.name, "tiered": tiered}


async def _choice(
    name: Annotated[
        str, Query(max_length=249, description="Topic name or glob pattern.", examples=["logs.*"])
    ],
    tiered: Annotated[
        bool | None, Query(description="Left out: as if the setting were removed.")
    ] = None,
) -> Choice:
    check_setting(Setting.TIERED, of_topic(name), None)
    return Choice(name, tiered)


Chosen = Annotated[Choice, Depends(_choice)]


@router.get(
    "/node/tiering-effect", summary="Topics on this node's disks that a change would affect"
)
async def node_tiering_effect(
    context: Context,
    choice: Chosen,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> NodeTieringEffect:
    """The topics for which tiering would start or stop, by name; nothing is changed."""
    last = None if cursor is None else decode_cursor(_LISTING, choice.query, cursor, _SHAPE)
    settings, node_id = context.settings, context.identity.node_id
    after = tiered_with(settings, of_topic(choice.name), choice.tiered)
    changed = [
        ChangedTopic.of_topic(each, node=node_id, tiered=after(each.topic))
        for each in context.rlm.local_topics()
        if after(each.topic) != (settings.why_left_out(each.topic) is None)
    ]
    page, more = page_after(changed, attrgetter("key"), last, limit)
    return NodeTieringEffect(
        topics=list(page), next_cursor=_cursor_of(choice, page[-1].key if more else None)
    )


@router.get(
    "/cluster/tiering-effect", summary="Topics on all nodes' disks that a change would affect"
)
async def whole_tiering_effect(
    request: Request,
    context: Context,
    choice: Chosen,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> TieringEffect:
    """The effect that `topics enable --dry-run` shows, on the nodes that answered; `nodes` lists
    the ones that did not.
    """
    told = await ask_all(
        request,
        Question(
            "/v1/node/tiering-effect",
            lambda _: {**choice.query, "limit": limit, "cursor": cursor},
            NodeTieringEffect,
        ),
        lambda: node_tiering_effect(context, choice, limit, cursor),
    )
    groups, more = merge(
        ((each.topics, each.next_cursor is not None) for each in parts_of(told)),
        attrgetter("key"),
        limit,
    )
    page = [group[0] for group in groups]
    return TieringEffect(
        nodes=NodePartView.all_of(told),
        topics=page,
        next_cursor=_cursor_of(choice, page[-1].key if more else None),
    )


def _cursor_of(choice: Choice, last: CursorKey | None) -> str | None:
    return None if last is None else encode_cursor(_LISTING, choice.query, last)
