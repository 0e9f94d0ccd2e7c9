# Where things are kept and how steps are announced; sourced by the scripts next to it.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# What is fetched lies outside the checkout, so that every clone shares it.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tito
if [[ -z ${CARGO_TARGET_DIR:-} ]]; then
    CARGO_TARGET_DIR=$root/target
    [[ -d $cache/target ]] && CARGO_TARGET_DIR=$cache/target
fi
export CARGO_TARGET_DIR
# For those who source this.
# shellcheck disable=SC2034
release=$CARGO_TARGET_DIR/release/tito

# say TEXT: one line that tells what happens next.
say() {
    printf '==> %s\n' "$*" >&2
}

# fail TEXT: the reason to stop, and what to do about it.
fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# need COMMAND PACKAGE: stops unless the command is there; the package is Debian's.
need() {
    command -v "$1" >/dev/null || fail "$1 is missing; on Debian: apt-get install $2"
}

# Compiling needs Rust, and a C and C++ compiler for the tokenizer's regular expressions and for TLS.
need_compilers() {
    command -v cargo >/dev/null || fail "cargo is missing; see https://rustup.rs"
    need cc build-essential
    need c++ build-essential
}
