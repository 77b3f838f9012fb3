#!/usr/bin/env bash
# Start LocalStack's S3 on 127.0.0.1, without Docker, and create a bucket in it. Ctrl-C stops it.
#
#   localstack/start.sh [PORT] [BUCKET] [DATA_FOLDER]     default: 4566 strandline, a temporary folder
#
# Objects live in memory and in DATA_FOLDER's cache; they are gone when it stops.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
port=${1:-4566}
bucket=${2:-strandline}
data=${3:-$(mktemp -d)}
environment=$("$here/install.sh")

export SERVICES=s3 EAGER_SERVICE_LOADING=1 DISABLE_EVENTS=1 SKIP_SSL_CERT_DOWNLOAD=1
export GATEWAY_LISTEN=127.0.0.1:$port LOCALSTACK_VOLUME_DIR=$data
export PATH=$environment/bin:$PATH

# The bucket is created beside it, as soon as it answers; the server takes this shell's place.
"$here/create-bucket.sh" "http://127.0.0.1:$port" "$bucket" &
exec python -m localstack.runtime.main
