#!/bin/sh
# Makes the node's data directory where there is none, and runs the node in it.
set -eu
data_dir=/var/lib/strandline/data
if [ ! -e "$data_dir/meta.properties" ]; then
  # Above every broker's id: observer 0 is node 1000.
  strandline format --cluster-id "$CLUSTER_ID" --kafka-cluster-id "$KAFKA_CLUSTER_ID" \
    --node-id $((1000 + ${POD_NAME##*-})) --no-initial-voters
fi
exec strandline node
