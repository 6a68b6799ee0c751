"""Configurations of Debezium's connectors, translated to configuration files of psql-streamer."""
