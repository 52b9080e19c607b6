# The two commands of the README, and what developers call often.

.PHONY: demo test bench lint doc s3-tests

# A whole site on loopback, real files through disk and tape and back. FILES="a b" moves those instead.
demo:
	cargo run --release --bin penstock -- demo $(FILES)

# Installs what the tests need (as root; otherwise says what is missing and fails), then runs every test.
test:
	tests/prepare
	tests/run

# Side-by-side measurements as ratios and medians, into docs/benchmarks.md. QUICK=1 for a short run that is only printed;
# ONLY="get-1 wan" for some of them (ONLY=wan: the published measurements over links with delay).
bench:
	tests/prepare bench
	cargo build --release --package penstock-site --package penstock-client --package penstock-tests
	cargo run --release --package penstock-tests --bin bench -- $(ONLY) $(if $(QUICK),--quick,--markdown docs/benchmarks.md)

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked
	cargo deny check bans licenses sources

# ceph/s3-tests, unmodified, from a checkout of yours: make s3-tests S3TESTS=DIR. Fails for what the baseline has as passed.
s3-tests:
	@test -n "$(S3TESTS)" || { echo "say where ceph/s3-tests is: make s3-tests S3TESTS=DIR" >&2; exit 2; }
	cargo build --package penstock-site --bin penstock
	python3 -m venv target/s3-tests
	target/s3-tests/bin/pip install --quiet --requirement tests/s3/requirements.txt
	target/s3-tests/bin/python tests/s3/run "$(S3TESTS)"
