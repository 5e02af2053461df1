#!/usr/bin/env bash
# What `make test-system` needs beside Python: Chromium, PostgreSQL's server, and EGL or OSMesa. Installs what is missing where it may, and says so where not.
set -euo pipefail

missing=()
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || missing+=(chromium)
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null || missing+=(postgresql)
ldconfig -p | grep -qE 'libEGL\.so|libOSMesa\.so' || missing+=(libosmesa6)
command -v unshare >/dev/null || missing+=(util-linux)
((${#missing[@]})) || exit 0

if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "make test-system: missing here: ${missing[*]}. As root, on Debian or Ubuntu: apt-get install ${missing[*]}" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --yes --no-install-recommends "${missing[@]}"
