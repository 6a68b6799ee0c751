"""HTTP: health, status, statistics, metrics, and the page for browsers."""
