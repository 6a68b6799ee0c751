"""The Spark handler: typed micro-batches through Spark SQL and DataFrame functions.

Only `handler` and what it imports at run time touch pyspark, and only when a handler starts.
"""
