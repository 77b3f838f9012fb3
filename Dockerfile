# syntax=docker/dockerfile:1
FROM python:3.11-slim-bookworm AS build
# A C compiler, so that the wheel carries the pipeline's compiled modules.
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev
WORKDIR /src
COPY requirements/wheel.txt requirements/runtime.txt requirements/
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --no-deps -q -r requirements/wheel.txt
RUN python -m venv /opt/strandline \
 && /opt/strandline/bin/pip install --no-cache-dir --no-deps -q -r requirements/runtime.txt
# Compiled in a step of their own, which runs again only when one of these files changes.
WORKDIR /compiled
COPY hatch_build.py ./
COPY pipeline/decode/kernel.pyx pipeline/decode/
COPY pipeline/jobs/log_scan.pyx pipeline/jobs/
COPY pipeline/rebuild/usual_manifest.pyx pipeline/rebuild/
RUN COMPILED_MODULES_CACHE=/compiled/cache /opt/build/bin/python hatch_build.py
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY strandline strandline
COPY api api
COPY kafka_listener kafka_listener
COPY rlm rlm
COPY rlmm rlmm
COPY kafka_client kafka_client
COPY rsm_backends rsm_backends
COPY kafka_formats kafka_formats
COPY pipeline pipeline
COPY pyspark_strandline pyspark_strandline
RUN COMPILED_MODULES_CACHE=/compiled/cache /opt/build/bin/python -m hatchling build -t wheel -d /src/wheel \
 && /opt/strandline/bin/pip install --no-cache-dir --no-deps -q /src/wheel/*.whl

FROM python:3.11-slim-bookworm
# The broker's log directories are mounted; give this user's group read access to them. To hold beside
# them, run as the broker's user (docs/OPERATIONS.md).
RUN groupadd --gid 10001 strandline \
 && useradd --uid 10001 --gid strandline --no-create-home --home-dir /var/lib/strandline strandline \
 && install -d -o strandline -g strandline -m 0750 /var/lib/strandline
COPY --from=build /opt/strandline /opt/strandline
# All addresses of the container, since its loopback is nobody else's. Without a tokens_file nobody
# may ask anything there but the health routes. With the host's network, set it to 127.0.0.1.
ENV PATH=/opt/strandline/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    STRANDLINE_CONFIG=/etc/strandline/strandline.toml \
    STRANDLINE_HTTP__HOST=0.0.0.0
USER strandline
WORKDIR /var/lib/strandline
VOLUME /var/lib/strandline
EXPOSE 9480
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
  CMD ["python", "-m", "strandline.node.health_check"]
ENTRYPOINT ["strandline"]
CMD ["node"]
