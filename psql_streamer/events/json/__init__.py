"""JSON text by columns."""
