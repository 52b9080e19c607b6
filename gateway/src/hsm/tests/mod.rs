//! The services over a real catalogue and a fake fleet: each test is a promise to a user or an operator.

mod draining;
pub(crate) mod fake;
mod recalls;
mod replicas;
mod scrubbing;
mod sinking;
pub(crate) mod site;
