#!/usr/bin/env bash
# Makes stand-ins for the base images of deploy/compose where no image registry answers, from this host's own apt sources.
# Keeps what the engine has already. Needs root and an engine; takes about a minute. Grafana has no stand-in.
set -euo pipefail
cd "$(dirname "$0")/.."

python=python:3.11-slim-bookworm
prometheus=$(sed -n 's/.*image: \(prom\/prometheus:[^ ]*\).*/\1/p' compose.yaml)
certificates=/etc/ssl/certs/ca-certificates.crt

have() { # have IMAGE
  docker image inspect "$1" >/dev/null 2>&1 && return
  [ -z "${KVCOMPASS_OFFLINE:-}" ] && timeout 120 docker pull --quiet "$1" >/dev/null 2>&1
}

need() { # need COMMAND PACKAGE
  command -v "$1" >/dev/null 2>&1 && return
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null
}

# The same Debian with Debian's own Python of the same version, and this host's certificates and pip configuration, so that
# the Dockerfile is what it is anywhere.
python_image() {
  need mmdebstrap mmdebstrap
  local mirror pip_configuration=/dev/null
  mirror=$(apt-get indextargets --format '$(SITE)' | head -n 1)
  [ -f /etc/pip.conf ] && pip_configuration=/etc/pip.conf
  mmdebstrap --quiet --variant=minbase --dpkgopt=force-unsafe-io \
    --include=ca-certificates,netbase,tzdata,python3,python3-venv,python3-pip \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/usr/lib/python3*/EXTERNALLY-MANAGED' \
    --customize-hook='ln -sf python3 "$1/usr/bin/python"' \
    --customize-hook="cp $certificates \"\$1$certificates\"; cp $pip_configuration \"\$1/etc/pip.conf\"" \
    bookworm - "$mirror" |
    docker import -c 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin' \
      -c 'ENV LANG=C.UTF-8' -c 'CMD ["python3"]' - "$1" >/dev/null
}

prometheus_image() { # Debian's Prometheus, started as the published image starts its own
  local folder
  folder=$(mktemp -d)
  chmod 755 "$folder"
  (cd "$folder" && apt-get update -qq && apt-get download -qq -o APT::Sandbox::User=root prometheus && dpkg-deb -x prometheus_*.deb tree)
  cat >"$folder/Dockerfile" <<EOF
FROM $python
COPY tree/usr/bin/prometheus tree/usr/bin/promtool /bin/
RUN mkdir -p /prometheus /etc/prometheus && chown nobody /prometheus
USER nobody
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
EOF
  DOCKER_BUILDKIT=0 docker build --quiet --tag "$1" "$folder" >/dev/null 2>&1
  rm -rf "$folder"
}

have "$python" || { echo "stand-ins: making $python"; python_image "$python"; }
have "$prometheus" || { echo "stand-ins: making $prometheus"; prometheus_image "$prometheus"; }
