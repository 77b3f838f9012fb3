"""The rows in RocksDB."""
