# The two commands of the README, and what developers call often.

.PHONY: demo test bench lint doc

# A whole site on loopback, real files through disk and tape and back. FILES="a b" moves those instead.
demo:
	cargo run --release --bin penstock -- demo $(FILES)

# Installs what the tests need (as root; otherwise says what is missing and fails), then runs every test.
test:
	tests/prepare
	tests/run

# Side-by-side measurements, printed as ratios and medians. QUICK=1 for a short run.
bench:
	tests/prepare bench
	cargo build --release --package penstock-site
	cargo run --release --package penstock-tests --bin bench -- $(if $(QUICK),--quick)

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked
	cargo deny check bans licenses sources
