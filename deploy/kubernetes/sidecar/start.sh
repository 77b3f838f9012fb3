#!/bin/sh
# Makes the node's data directory, once, and runs the node in it. One that was lost is made to join:
# never as a voter again, which would have forgotten its votes (docs/OPERATIONS.md).
set -eu
data_dir=/var/lib/strandline/data
log_dir=/var/lib/kafka/data
if [ ! -e "$data_dir/meta.properties" ]; then
  # Fails until the broker has made its log directory; the container is then started anew.
  node_id=$(sed -n 's/^node\.id=//p' "$log_dir/meta.properties")
  case ",${INITIAL_VOTERS:-}" in
    *",$node_id@"*) strandline format --cluster-id "$CLUSTER_ID" --initial-voters "$INITIAL_VOTERS" ;;
    *) strandline format --cluster-id "$CLUSTER_ID" --no-initial-voters ;;
  esac
fi
exec strandline node
