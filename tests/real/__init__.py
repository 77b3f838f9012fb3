"""The real parts tests run against: stock Kafka, MinIO, LocalStack, fetched into a cached folder."""
