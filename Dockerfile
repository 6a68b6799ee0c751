# psql-streamer with everything that it runs on: Python, a Java for Spark, and the locked versions of its libraries.
#
#   docker build --tag psql-streamer .
#   docker run -e PG_HOST=... -e PG_DATABASE=... -e KAFKA_BROKERS=... -v positions:/var/lib/psql-streamer psql-streamer
#
# `--build-arg SPARK=no` leaves out Spark and Java, for sinks with handlers = ["passthrough"].
#
# Of the base image the minor version and the Debian release are pinned; a rebuild brings their security fixes.

FROM python:3.13-slim-bookworm AS build

ARG SPARK=yes
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /build

# The libraries come first, in a layer of their own: it stays in the cache until their versions change.
COPY requirements.lock pyproject.toml ./
RUN pip install --constraint requirements.lock setuptools \
    && python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*project['dependencies'], *project['optional-dependencies']['registry'], sep='\n')" > requirements.all \
    && if [ "${SPARK:-yes}" = no ]; then grep -v '^pyspark' requirements.all > requirements.in; else cp requirements.all requirements.in; fi \
    && pip wheel --no-build-isolation --wheel-dir /wheels --constraint requirements.lock --requirement requirements.in \
    && rm -f /wheels/setuptools-*.whl

COPY README.md LICENSE ./
COPY psql_streamer psql_streamer
COPY sources sources
COPY sinks sinks
# The environment that goes into the image has neither pip nor setuptools.
RUN pip wheel --no-build-isolation --no-deps --wheel-dir /wheels . \
    && python -m venv --without-pip /opt/psql-streamer \
    && pip --python /opt/psql-streamer/bin/python install --no-index --no-deps /wheels/*.whl


FROM python:3.13-slim-bookworm

LABEL org.opencontainers.image.title="psql-streamer" \
      org.opencontainers.image.description="Change data capture from PostgreSQL, MySQL, SQL and Kafka: typed, enriched events in Kafka" \
      org.opencontainers.image.licenses="Apache-2.0"

ARG SPARK=yes
# Spark's JVM. Debian removes a package's old version when it has a newer one: a pinned version would not build for long.
# hadolint ignore=DL3008
RUN if [ "$SPARK" = no ]; then exit 0; fi \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

# The user is a number below, so that Kubernetes can see that it is not root. Its home, the volume, is the only place
# that is written to besides /tmp.
RUN groupadd --system --gid 10001 psql-streamer \
    && useradd --system --uid 10001 --gid psql-streamer --home-dir /var/lib/psql-streamer --shell /usr/sbin/nologin psql-streamer \
    && install --directory --owner=psql-streamer --group=psql-streamer --mode=0750 /var/lib/psql-streamer \
    && install --directory /etc/psql-streamer

COPY --from=build /opt/psql-streamer /opt/psql-streamer
# Spark's classes as its JVM has them in memory: it starts in some half of the time. An image without them works, too.
RUN if [ "$SPARK" = no ]; then exit 0; fi \
    && /opt/psql-streamer/bin/python -m psql_streamer.spark.class_archive /opt/psql-streamer/spark.jsa \
    || echo "no archive of Spark's classes: starts of the service take longer"
COPY --chmod=0755 deploy/entrypoint.sh /usr/local/bin/entrypoint.sh

# PSQL_STREAMER__HTTP wins over the configuration file: a service that listens on its own loopback could not be reached.
# XDG_STATE_HOME puts the position on the volume when there is no file that says where it goes.
ENV PATH=/opt/psql-streamer/bin:$PATH \
    HOME=/var/lib/psql-streamer \
    PSQL_STREAMER__HTTP=:8080 \
    PYTHONUNBUFFERED=1 \
    SPARK_SUBMIT_OPTS=-XX:SharedArchiveFile=/opt/psql-streamer/spark.jsa \
    XDG_STATE_HOME=/var/lib

USER 10001:10001
WORKDIR /var/lib/psql-streamer
VOLUME /var/lib/psql-streamer
EXPOSE 8080

# The service handles SIGTERM as process 1: it installs its own handlers, and the kernel withholds only signals that
# have none. An init in front of it is not needed.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client, os, sys; api = http.client.HTTPConnection('127.0.0.1', int(os.environ['PSQL_STREAMER__HTTP'].rpartition(':')[2]), timeout=4); api.request('GET', '/health'); sys.exit(api.getresponse().status != 200)"]

ENTRYPOINT ["entrypoint.sh"]
CMD ["run"]
