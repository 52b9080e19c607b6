//! Why a mover did not do what it was asked.

use std::{fmt, time::Duration};

use wire::{
    id::MoverId,
    mover::{Fault, FaultKind},
};

use crate::failure::{Failure, FailureKind};

/// Why a mover did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoverError {
    /// No mover of that name is in the configuration.
    #[error("there is no mover {mover} in the gateway's configuration")]
    Unknown {
        /// Its name.
        mover: MoverId,
    },
    /// The mover is not connected, or went away before it answered; it may come back.
    #[error("mover {mover} is away: {why}")]
    Away {
        /// Its name.
        mover: MoverId,
        /// What the connection's end said.
        why: String,
    },
    /// The mover said no.
    #[error("mover {mover}: {fault}")]
    Refused {
        /// Its name.
        mover: MoverId,
        /// What it said.
        fault: Fault,
    },
}

impl MoverError {
    pub(super) fn away(mover: &MoverId, why: impl fmt::Display) -> Self {
        Self::Away { mover: mover.clone(), why: why.to_string() }
    }

    /// The mover's fault kind, if it said one.
    #[must_use]
    pub const fn fault(&self) -> Option<FaultKind> {
        match self {
            Self::Refused { fault, .. } => Some(fault.kind),
            Self::Unknown { .. } | Self::Away { .. } => None,
        }
    }

    /// Whether another mover or volume may do what this one did not.
    #[must_use]
    pub const fn worth_trying_elsewhere(&self) -> bool {
        match self {
            Self::Unknown { .. } | Self::Away { .. } => true,
            Self::Refused { fault, .. } => !fault.kind.is_peers() && !matches!(fault.kind, FaultKind::Cancelled),
        }
    }
}

impl From<MoverError> for Failure {
    fn from(error: MoverError) -> Self {
        match error {
            MoverError::Refused { fault, .. } => fault.into(),
            MoverError::Away { .. } => Self::new(
                FailureKind::Unavailable,
                format_args!("{error}; what it holds can be reached again when it is back: try again later"),
            )
            .retry_after(Duration::from_secs(30)),
            MoverError::Unknown { .. } => {
                Self::new(FailureKind::Internal, format_args!("{error}: the operator adds it under [[movers]]"))
            }
        }
    }
}
