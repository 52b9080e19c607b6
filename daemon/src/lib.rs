//! What every Penstock process needs: configuration, tracing, TLS and X.509 trust, shutdown, clock.
