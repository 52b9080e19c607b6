//! FTP clients that nobody here wrote, against a whole site: explicit TLS with a client certificate, active and passive.
//!
//! A missing program is a failed test, not a skipped one: what is not run is not known to work.

mod curl;
mod elsewhere;
mod lftp;
mod programs;
