#!/bin/sh
# `strandline reconcile`, with its options, while this pod's node runs: as an observer with a data
# directory, an id and a port of its own.
set -eu
STRANDLINE_NODE__DATA_DIR=/var/lib/strandline/reconcile-$CLUSTER_ID
STRANDLINE_QUORUM__LISTEN=127.0.0.1:9482
STRANDLINE_KAFKA__LOG_DIRS='[]'
export STRANDLINE_NODE__DATA_DIR STRANDLINE_QUORUM__LISTEN STRANDLINE_KAFKA__LOG_DIRS
unset STRANDLINE_QUORUM__ADVERTISED STRANDLINE_KAFKA__BROKER
if [ ! -e "$STRANDLINE_NODE__DATA_DIR/meta.properties" ]; then
  # Above every broker's id and every observer's.
  strandline format --cluster-id "$CLUSTER_ID" --kafka-cluster-id "$KAFKA_CLUSTER_ID" \
    --node-id $((2000 + ${POD_NAME##*-})) --no-initial-voters >&2
fi
exec strandline reconcile "$@"
