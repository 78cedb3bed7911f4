# One image for every process of KVCompass; the command says which. Builds alike with BuildKit and the classic builder.
#
#   docker build -t kvcompass .
#   docker run --rm kvcompass kvcompass-edge --settings /etc/kvcompass/settings/edge.toml

# The dependencies, without what no service reads. This stage stays cached until a lock changes.
FROM python:3.11-slim-bookworm AS dependencies
RUN apt-get update \
 && apt-get install --yes --no-install-recommends binutils \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv --without-pip /opt/kvcompass/venv \
 && python3 -m venv --without-pip /build/venv
COPY requirements/build.lock requirements/lab.lock /build/
RUN pip="python3 -m pip --disable-pip-version-check --no-cache-dir" \
 && $pip --python /build/venv/bin/python install --quiet --require-hashes -r /build/build.lock \
 && $pip --python /opt/kvcompass/venv/bin/python install --quiet --no-compile --only-binary :all: --require-hashes -r /build/lab.lock
COPY deploy/image/trim.sh deploy/image/bytecode.py /build/
RUN bash /build/trim.sh /opt/kvcompass/venv \
 && /opt/kvcompass/venv/bin/python /build/bytecode.py aiohttp fastapi google.protobuf.descriptor_pb2 google.protobuf.internal.builder grpc.aio \
    httptools httpx jinja2.sandbox msgspec numpy.ma numpy.typing openai orjson prometheus_client.parser rich.progress rich.table \
    structlog tokenizers uvicorn.protocols.http.httptools_impl uvloop zmq.asyncio

# The kernels, compiled for any processor of this architecture (docs/decisions/0920). Stays cached until the index changes.
FROM dependencies AS kernels
ENV NUMBA_CPU_NAME=generic KVCOMPASS_KERNEL_CACHE=/opt/kvcompass/kernels
COPY kvcompass/*.py /opt/kvcompass/app/kvcompass/
COPY kvcompass/fleet /opt/kvcompass/app/kvcompass/fleet
COPY kvcompass/keys /opt/kvcompass/app/kvcompass/keys
COPY kvcompass/kernels /opt/kvcompass/app/kvcompass/kernels
COPY kvcompass/levels /opt/kvcompass/app/kvcompass/levels
COPY kvcompass/plan /opt/kvcompass/app/kvcompass/plan
COPY kvcompass/index /opt/kvcompass/app/kvcompass/index
COPY kvcompass/score /opt/kvcompass/app/kvcompass/score
RUN cd /opt/kvcompass/app && /opt/kvcompass/venv/bin/python -B -c "from kvcompass.warm import warm; warm()"

# The product.
FROM dependencies AS product
WORKDIR /build/source
COPY pyproject.toml README.md LICENSE ./
COPY kvcompass kvcompass
COPY services services
COPY simulator simulator
COPY lab lab
COPY cli cli
RUN python3 -m pip --disable-pip-version-check --python /build/venv/bin/python install --quiet --no-index --no-build-isolation \
    --no-deps --no-compile --target /opt/kvcompass/app . \
 && sed -i '1s|.*|#!/opt/kvcompass/venv/bin/python|' /opt/kvcompass/app/bin/* \
 && /opt/kvcompass/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/kvcompass/app

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="KVCompass" \
      org.opencontainers.image.description="A discovery plane for prefix caches across regions" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin kvcompass
COPY --from=dependencies /opt/kvcompass/venv /opt/kvcompass/venv
COPY --from=kernels /opt/kvcompass/kernels /opt/kvcompass/kernels
COPY deploy/image/entrypoint.sh deploy/image/probe.sh /opt/kvcompass/bin/
COPY --from=product /opt/kvcompass/app /opt/kvcompass/app
ENV PATH=/opt/kvcompass/app/bin:/opt/kvcompass/venv/bin:$PATH \
    PYTHONPATH=/opt/kvcompass/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NUMBA_CPU_NAME=generic \
    KVCOMPASS_KERNEL_CACHE=/tmp/kvcompass-kernels \
    OPENBLAS_NUM_THREADS=1 \
    KVCOMPASS_PROBE=9000/ready
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["/opt/kvcompass/bin/entrypoint.sh"]
CMD ["kvcompass", "--help"]
# The port and path of the process that runs: KVCOMPASS_PROBE.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 CMD ["bash", "/opt/kvcompass/bin/probe.sh"]
