"""pyspark's daemon, from which the JVM gets its processes for Python code, with modules looked for as in the service.

The JVM runs it with its own working folder and the service's PYTHONPATH.
"""

from psql_streamer import launcher

if __name__ == "__main__":
    launcher.put_path_in_order()
    from pyspark.daemon import manager

    manager()
