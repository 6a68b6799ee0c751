"""What the service reaches, beside what the machine allows: `python -m benchmarks`."""
