"""Schema registries: their client, the frame that it gives records, and records to JSON by the schemas."""
