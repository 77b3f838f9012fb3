"""The tier's part of an answer to a consumer."""
