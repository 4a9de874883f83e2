# gpunbd and mkfs.ext4, for a privileged container that attaches an export as a disk and mounts it.
ARG GPUNBD=gpunbd
FROM ${GPUNBD}
USER root
RUN apt-get update && apt-get install -y --no-install-recommends e2fsprogs mount util-linux \
    && rm -rf /var/lib/apt/lists/*
ENTRYPOINT []
CMD ["sleep", "infinity"]
