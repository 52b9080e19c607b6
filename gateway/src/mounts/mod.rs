//! Drives and cartridges: who gets the next mount.
//!
//! - [`model`]: what is known, what happens, what must be done: plain values.
//! - [`state`] and [`plan`]: the pure state machine and what it decides.
//! - [`view`]: why somebody waits, what every drive does.
//! - `ledger`: what the catalogue is told of cartridges and asked about them.
//! - [`reconcile`]: whether a tape's end agrees with the catalogue.
//! - [`fleet`]: the movers as they are needed here, and the seam for tests.
//!
//! The owner's task talks to movers below and hands out [`Grant`]s to the services of [`crate::hsm`]. It never moves
//! data and never chooses what to recall or to migrate.

pub mod fleet;
mod ledger;
pub mod model;
mod owner;
mod plan;
pub mod reconcile;
mod state;
pub mod view;

pub use self::{
    fleet::{Endpoint, Fleet, Moving},
    model::{Action, Event, Grant, GrantId, Mounts, Purpose, Released, Rules, Want, WantId},
    owner::{Mount, MountService, Pending, Pools, Wish},
    view::Why,
};
