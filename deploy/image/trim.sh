#!/usr/bin/env bash
# trim.sh VENV: takes out of a virtual environment what no service reads. Needs `strip`.
set -euo pipefail
packages=$(echo "$1"/lib/python3.*/site-packages)

# tokenizers downloads from a hub with these; here tokenizers are files.
python3 -m pip --disable-pip-version-check --python "$1/bin/python" uninstall --quiet --yes \
  hf-xet huggingface-hub fsspec filelock pyyaml

find "$packages" -type d \( -name tests -o -name test -o -path '*/numpy/_core/include' -o -path '*/numpy/f2py' \) -prune -exec rm -rf {} +
find "$packages" -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.a' -o -name '*.c' -o -name '*.h' \) -delete
# Symbols and static code. Not of numpy: what patchelf has moved about, strip leaves unloadable.
find "$packages" -path '*/numpy*' -prune -o -type f -name '*.so' -exec strip --strip-unneeded {} +
