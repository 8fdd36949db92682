# Kappa with Java, for compose.yaml. No broker is started in it: KAPPA__KAFKA__BOOTSTRAP_SERVERS names the cluster.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/kappa
# Packages first: they change less often than the code.
COPY requirements ./requirements
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements/build.lock \
    && pip install --no-cache-dir --no-deps --require-hashes --no-build-isolation -r requirements/run.lock
COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation -e . && pip check

# Jars and Spark's class archive are part of the image, so that a container starts at once: those
# for a root in a bucket, too, whatever bucket it will be.
ENV XDG_CACHE_HOME=/opt/cache
# Whatever user a container has: compiled loops are used only from a folder that can be written.
RUN KAPPA__ROOT=s3://bucket/root python -m kappa.setup && chmod -R a+rwX /opt/cache

# A project is mounted or copied to /project, and its root is a volume. Spark starts for a user with a name only,
# so another uid needs a user of its own.
RUN useradd --uid 10001 --user-group --create-home kappa \
    && install -d -o kappa -g kappa /project /var/lib/kappa
USER kappa
WORKDIR /project
# Spark on Kubernetes starts its executors with this image, too.
ENTRYPOINT ["/opt/kappa/deploy/entrypoint.sh"]
CMD ["up"]
