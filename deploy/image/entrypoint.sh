#!/bin/sh
# numba wants to write beside the kernels it loads, and a root file system may be read-only: links to the image's kernels
# in a folder of the container's own.
set -eu
mkdir -p "$KVCOMPASS_KERNEL_CACHE"
cp -Rsf /opt/kvcompass/kernels/. "$KVCOMPASS_KERNEL_CACHE"
exec "$@"
