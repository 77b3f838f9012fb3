#!/usr/bin/env bash
# Create a bucket for Strandline, with the lifecycle rule that ends forgotten uploads.
#
#   localstack/create-bucket.sh ENDPOINT_URL BUCKET
#
# Needs the AWS command line tool; waits up to two minutes for the store to answer. For another store
# than LocalStack set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
endpoint=$1
bucket=$2
export AWS_ACCESS_KEY_ID=${AWS_ACCESS_KEY_ID:-test}
export AWS_SECRET_ACCESS_KEY=${AWS_SECRET_ACCESS_KEY:-test}
export AWS_DEFAULT_REGION=${AWS_DEFAULT_REGION:-us-east-1}
export AWS_MAX_ATTEMPTS=1

s3api() {
    aws --endpoint-url "$endpoint" --cli-connect-timeout 5 --cli-read-timeout 30 s3api "$@"
}

for _ in $(seq 120); do
    if curl --silent --output /dev/null --max-time 5 "$endpoint"; then
        answering=1
        break
    fi
    sleep 1
done
if [ -z "${answering:-}" ]; then
    echo "no store answers at $endpoint" >&2
    exit 1
fi

# The rule comes last: whoever waits for the bucket may take it as the sign that all is done.
s3api head-bucket --bucket "$bucket" >/dev/null 2>&1 || s3api create-bucket --bucket "$bucket"
s3api put-bucket-lifecycle-configuration --bucket "$bucket" \
    --lifecycle-configuration "file://$here/bucket-lifecycle.json" >/dev/null
echo "bucket $bucket is ready at $endpoint"
