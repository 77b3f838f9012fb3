"""Seeds that show planted mistakes: `assert_found` tries them before it searches, and needs one run
instead of up to a hundred. A seed whose draws have moved costs its run, and the search goes on.
"""

SEEN_AT = {
    # sim.core
    "votes go to logs that are behind": 12,
    "truncation ignores the high watermark": 3,
    "a stale flush completion is believed": 214,
    "two voter changes at once": 20,
    "a commit of an earlier epoch allows a voter change": 126,
    "the leader takes any fetch offset for valid": 3,
    "the follower ignores divergence": 3,
    "snapshot ids are not compared": 91,
    "a barrier asks no majority": 12,
    "a cut tail is forgotten": 46,
    "a voter formatted again takes itself for new": 64,
    "a voter formatted again counts at once": 69,
    "a wiped disk counts as the old replica": 24,
    "a commit is believed in any epoch": 24,
    "truncation does not undo a voter change": 24,
    # sim.nodes
    "a failed write is repeated behind its torn half": 28,
    "an installed snapshot leaves the view's rows": 9,
    "a snapshot is named before it is durable": 5,
    "a snapshot ends inside a batch": 7,
    # sim.tier
    "a lost answer is cleaned up after": 17,
    "two copies of a partition are in flight": 3,
    "log start moves after the delete": 5,
    "the collector deletes what is foreign": 13,
    "a gap is passed over in silence": 2,
    "a pass goes on by a policy that was replaced": 245,
    "links of what the broker has count in the hold": 9,
    "what an earlier leader lost is lost for good": 146,
    "what is copied in part is held no more": 1,
    "what an open transaction keeps back is not held": 4,
    "what is copied anew is not read back": 2,
    "a gap in a segment is passed over": 1,
    "what is held is not looked at before others are asked": 38,
    "a held file is linked again once it seems to reach further": 2,
    "what moved in another leader epoch is followed": 2,
    "whether the broker still leads is not asked again": 12,
    "LOSS-1: a replica that stopped is deleted": 1,
    "what is gone at the head of a log is lost at once": 17,
    "a log start on the border of a segment is followed": 7,
    "what the first look finds is followed": 3,
    "nothing proves DeleteRecords": 2,
}
