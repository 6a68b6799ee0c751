"""Debezium's events in Avro: its Kafka Connect schemas as Avro schemas, and values in Avro's binary encoding.

Source: Avro specification 1.12, "Binary Encoding"; io.confluent.connect.avro.AvroData for what Connect's types become.
"""
