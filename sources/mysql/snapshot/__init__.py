"""Rows that the tables of a MySQL or MariaDB server have already, read in chunks beside its binary log."""
