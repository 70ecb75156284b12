# shellcheck shell=bash
# Packages by uv, for scripts/setup and scripts/matrix.

# Settings of pip that name package indexes, as words for `env`: uv does not read them by itself.
uv_settings() {
    .venv/bin/pip config list 2>/dev/null | sed -En "
        s/^[^.]*\.cert='(.*)'$/SSL_CERT_FILE=\1/p; s/^[^.]*\.index-url='(.*)'$/UV_DEFAULT_INDEX=\1/p
        s/^[^.]*\.extra-index-url='(.*)'$/UV_INDEX=\1/p; s/^[^.]*\.find-links='(.*)'$/UV_FIND_LINKS=\1/p
        s/^[^.]*\.constraint='(.*)'$/UV_CONSTRAINT=\1/p" | sed 's/\\n/ /g'
}

# Install into an environment with .venv's uv, with versions from all indexes, as pip takes them.
uv_install() { # folder, arguments of pip install...
    local folder=$1 settings
    shift
    mapfile -t settings < <(uv_settings)
    env UV_NO_PROGRESS=1 UV_INDEX_STRATEGY=unsafe-best-match ${settings[@]+"${settings[@]}"} \
        .venv/bin/uv pip install --python "$folder/bin/python" "$@"
}
