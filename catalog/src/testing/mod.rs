//! For tests and benchmarks, of this crate and of others: a PostgreSQL cluster that cleans up after itself, and a
//! generator of very many files.

mod generate;
mod postgres;

pub use generate::{Generated, generate};
pub use postgres::{ClusterError, PostgresCluster};

#[cfg(test)]
pub(crate) use generate::ALL as GENERATE;
