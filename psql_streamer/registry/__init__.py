"""Schema registries: their client, ids of schemas, frames around records, and records to JSON by their schemas."""
