# One node. Build it from the repository's root, for what it is to run on:
#   docker build -f docker/node.Dockerfile -t sluice-node .                                the compact engine on CPUs
#   docker build -f docker/node.Dockerfile --build-arg PACKAGES=cuda -t sluice-node-cuda . the same on GPUs
#   docker build -f docker/node.Dockerfile --build-arg PACKAGES=vllm -t sluice-node-vllm . vLLM on GPUs, x86-64
ARG PACKAGES=cpu

FROM python:3.11.13-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/data \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
# Kernels in C are built at the first start, those of Triton when they are first used. The
# distribution keeps no older versions, so none can be named.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --user-group --home-dir /data sluice \
    && install -d -o sluice -g sluice -m 0750 /data
WORKDIR /srv/sluice

# Of x86-64 that index has builds of torch for CPUs alone; elsewhere the public one has no others.
FROM base AS cpu-packages
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY requirements/node.txt requirements/torch.txt requirements/torch-cpu.txt requirements/
RUN if [ "$(uname -m)" = x86_64 ]; then lock=torch-cpu.txt; else lock=torch.txt TORCH_INDEX=; fi; \
    pip install --no-cache-dir --require-hashes --no-deps -r "requirements/$lock" \
        ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} \
    && pip install --no-cache-dir --require-hashes -r requirements/node.txt

FROM base AS cuda-packages
COPY requirements/node.txt requirements/torch.txt requirements/torch-cuda.txt requirements/
RUN pip install --no-cache-dir --require-hashes --no-deps \
        -r requirements/torch.txt -r requirements/torch-cuda.txt \
    && pip install --no-cache-dir --require-hashes -r requirements/node.txt

FROM base AS vllm-packages
COPY requirements/vllm.txt requirements/
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements/vllm.txt

# hadolint ignore=DL3006
FROM ${PACKAGES}-packages
WORKDIR /srv/sluice
COPY LICENSE ./
COPY inference inference
RUN python -m compileall -q inference
USER 10001:10001
VOLUME /data

# A node listens on nothing, so nobody can probe it: one that cannot serve ends by itself, and its
# exit status says whether to start it again (docs/operations.md).
STOPSIGNAL SIGTERM
HEALTHCHECK NONE
ENTRYPOINT ["python", "-m", "inference", "--log-format", "json"]
CMD ["--model", "inference/assets/sluice-5m"]
