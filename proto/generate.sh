#!/usr/bin/env bash
# Regenerates services/wire/pb from proto/. CI runs it and checks that nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-.venv/bin/python}"
out=services/wire/pb
rm -rf "$out" && mkdir -p "$out"
PATH="$(dirname "$python"):$PATH" "$python" -m grpc_tools.protoc -I proto \
  --python_out="$out" --mypy_out="$out" \
  proto/kvcompass/v1/*.proto
mv "$out"/kvcompass/v1/* "$out"/ && rm -r "$out/kvcompass"
sed -i 's/from kvcompass\.v1 import/from services.wire.pb import/; s/kvcompass\.v1\.\([a-z_]*_pb2\)/services.wire.pb.\1/; s/^import kvcompass\.v1/import services.wire.pb/' "$out"/*.py "$out"/*.pyi
echo '"""Generated from proto/kvcompass/v1 by proto/generate.sh. Do not edit."""' > "$out/__init__.py"
