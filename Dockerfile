# syntax=docker/dockerfile:1
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY requirements/runtime.txt requirements/runtime.txt
RUN python -m venv /opt/strandline \
 && /opt/strandline/bin/pip install --no-cache-dir --no-deps -r requirements/runtime.txt
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY strandline strandline
COPY api api
COPY rlm rlm
COPY rlmm rlmm
COPY rsm_backends rsm_backends
COPY kafka_formats kafka_formats
COPY pipeline pipeline
COPY pyspark_strandline pyspark_strandline
RUN /opt/strandline/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim-bookworm
# The broker's log directories are mounted read-only; give this user's group read access to them.
RUN groupadd --gid 10001 strandline \
 && useradd --uid 10001 --gid strandline --no-create-home --home-dir /var/lib/strandline strandline \
 && install -d -o strandline -g strandline -m 0750 /var/lib/strandline
COPY --from=build /opt/strandline /opt/strandline
ENV PATH=/opt/strandline/bin:$PATH PYTHONUNBUFFERED=1
USER strandline
WORKDIR /var/lib/strandline
VOLUME /var/lib/strandline
EXPOSE 9480
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
  CMD ["python", "-c", "import os,urllib.request as r; r.urlopen(os.environ.get('HEALTH_URL', 'http://127.0.0.1:9480/healthz'), timeout=2)"]
ENTRYPOINT ["strandline"]
CMD ["node", "--config", "/etc/strandline/strandline.toml"]
