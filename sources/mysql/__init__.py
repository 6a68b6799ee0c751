"""The `mysql` source: the binary log of MySQL and MariaDB."""
