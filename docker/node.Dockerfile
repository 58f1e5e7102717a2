# One node with the compact engine. Build it from the repository's root:
#   docker build -f docker/node.Dockerfile -t sluice-node .
# For GPUs name the index of CUDA builds: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128
FROM python:3.11-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/data
# The engine's kernels are C code that the machine's own compiler builds at the first start.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /srv/sluice
COPY requirements/node.txt requirements/torch.txt requirements/
RUN pip install --no-cache-dir -r requirements/torch.txt --index-url "$TORCH_INDEX" \
    && pip install --no-cache-dir --require-hashes -r requirements/node.txt
COPY inference inference
RUN useradd --system --uid 10001 --home-dir /data sluice \
    && install -d -o sluice -g sluice -m 0750 /data
USER sluice
VOLUME /data

# A node listens on nothing, so nobody can probe it: one that cannot serve ends by itself, and its
# exit status says whether to start it again (docs/operations.md).
STOPSIGNAL SIGTERM
HEALTHCHECK NONE
ENTRYPOINT ["python", "-m", "inference", "--log-format", "json"]
CMD ["--model", "inference/assets/sluice-5m"]
