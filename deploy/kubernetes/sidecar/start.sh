#!/bin/sh
# Makes the node's data directory, once, and runs the node in it. One that was lost is made to join:
# never as a voter again, which would have forgotten its votes (docs/OPERATIONS.md). With SNAPSHOT,
# that of the cluster before a disaster is put aside, and the new one begins (deploy/README.md).
set -eu
data_dir=/var/lib/strandline/data
log_dir=/var/lib/kafka/data
if [ -n "${SNAPSHOT:-}" ] && [ -e "$data_dir/meta.properties" ]; then
  made_for=$(sed -n 's/^cluster\.id=//p' "$data_dir/meta.properties")
  # -T: never into a directory that was put aside before.
  [ "$made_for" = "$CLUSTER_ID" ] || mv -T "$data_dir" "$data_dir.lost-$made_for"
fi
if [ ! -e "$data_dir/meta.properties" ]; then
  # Fails until the broker has made its log directory; the container is then started anew.
  node_id=$(sed -n 's/^node\.id=//p' "$log_dir/meta.properties")
  set -- --cluster-id "$CLUSTER_ID"
  case ",${INITIAL_VOTERS:-}" in
    *",$node_id@"*) set -- "$@" --initial-voters "$INITIAL_VOTERS" ${SNAPSHOT:+--from-snapshot "$SNAPSHOT" --yes} ;;
    *) set -- "$@" --no-initial-voters ;;
  esac
  # A snapshot of a large tier is larger than /tmp may be, whose pod would be evicted, and its broker.
  # One that was killed before has left it there.
  rm -rf "$data_dir.format"
  mkdir "$data_dir.format"
  TMPDIR=$data_dir.format strandline format "$@"
  rm -rf "$data_dir.format"
fi
exec strandline node
