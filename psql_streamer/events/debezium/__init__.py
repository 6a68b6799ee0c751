"""The `debezium` format."""
