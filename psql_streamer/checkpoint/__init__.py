"""What is durable in every sink, and how that is stored: the tracker, LMDB, storing and confirming."""
