//! What crosses a process boundary in Penstock, and nothing else.
//!
//! Pure: no tokio, no sqlx, no clock, no I/O. Gateway, mover and client meet only here, so that each can run on
//! another host, in another version, or in a simulation.
//!
//! - [`admin`]: bodies of the admin door.
//! - [`id`]: identifiers of everything that has one.
//! - [`extent`]: byte ranges, extents and coverage: all offset arithmetic of the project.
//! - [`checksum`]: the sums Penstock keeps, and how the sums of parts make the sum of the whole.
//! - [`ftp`]: commands and replies of the control connection.
//! - [`mode_e`]: GridFTP's blocks with offsets.
//! - [`mover`]: the conversation between a gateway and a mover.

pub mod admin;
pub mod checksum;
pub mod extent;
pub mod ftp;
pub mod id;
pub mod mode_e;
pub mod mover;
