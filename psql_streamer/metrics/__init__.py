"""What Prometheus reads: counters of tables, lag, and the parts' own numbers."""
