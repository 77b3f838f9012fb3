"""The real parts tests run against: stock Kafka, MinIO, LocalStack, kept in a cached folder."""
