# A client with the tools of libnbd, QEMU and the kernel, for compose and Kubernetes. It stands for the program that
# uses the memory.
ARG RUN_BASE=debian:12-slim
FROM ${RUN_BASE}
# nbdinfo runs `file` to describe the contents of an export.
RUN apt-get update && apt-get install -y --no-install-recommends libnbd-bin file qemu-utils nbd-client e2fsprogs \
    && rm -rf /var/lib/apt/lists/*
USER 10809:10809
CMD ["sleep", "infinity"]
