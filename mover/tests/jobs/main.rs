//! Whole jobs on a real mover: a small gateway of the test asks over mutual TLS, and data goes over loopback sockets.
//!
//! Each test has its own mover, authority and folder. Nothing here waits for a while: it waits for an event, within a limit
//! that only a failure reaches.

#![allow(clippy::unwrap_used, reason = "a failed expectation is what a test is for")]

mod channels;
mod copies;
mod http;
mod kit;
mod peers;
mod rates;
mod restart;
mod send;
mod tape;
mod upload;
