# The steps of scripts/test one by one, for a shorter way to each.

# Lists what there is.
default:
    @just --list

# Runs every check and every test, as CI does.
test:
    scripts/test

# Shows a conversation of two turns.
demo *flags:
    scripts/demo {{ flags }}

# Runs the tests that need neither a model nor the adapter.
quick:
    cargo nextest run --locked --no-default-features

# Formats.
fmt:
    cargo fmt

# Lints everything but the adapter.
clippy:
    cargo clippy --locked --no-default-features --all-targets -- -D warnings

# Rewrites snapshots that changed, the OpenAPI document among them.
snapshots:
    UPDATE_EXPECT=1 cargo nextest run --locked --no-default-features

# Opens the documentation of the code.
doc:
    cargo doc --locked --no-default-features --no-deps --document-private-items --open

# Runs the benches.
bench:
    cargo bench --locked --no-default-features --features internals
