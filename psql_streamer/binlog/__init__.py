"""The row binlog of MySQL and MariaDB: events in, columnar changes out. No socket, no clock, no disk.

The formats are those of MySQL's and MariaDB's source (control_events.h, rows_event.h, log_event.h); names are theirs.
"""
