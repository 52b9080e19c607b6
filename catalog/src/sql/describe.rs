//! Every statement, described by both databases: they must agree on columns and types.

use sqlx::{Column, Connection, Executor, SqlSafeStr, TypeInfo};

use crate::sql::{Conn, Statement};
use crate::testing::PostgresCluster;
use crate::{Catalog, Options};

/// Every statement of every module.
fn all() -> Vec<&'static Statement> {
    let modules = [
        crate::accounts::ALL,
        crate::batch::ALL,
        crate::catalog::ALL,
        crate::files::ALL,
        crate::leases::ALL,
        crate::migration::ALL,
        crate::names::CHANGE,
        crate::names::DELETED,
        crate::names::LISTING,
        crate::names::RESOLVE,
        crate::policies::ALL,
        crate::publish::ALL,
        crate::purge::ALL,
        crate::queue::ALL,
        crate::quota::ALL,
        crate::retire::ALL,
        crate::segments::ALL,
        crate::staging::ALL,
        crate::staging::ASK,
        crate::staging::RECORD,
        crate::statistics::ALL,
        crate::testing::GENERATE,
        crate::volumes::ALL,
    ];
    modules.into_iter().flatten().collect()
}

/// Columns as name and family; SQLite often cannot say what an expression is, which is `?`.
async fn describe(conn: &mut Conn, statement: &Statement) -> Result<Vec<(String, &'static str)>, sqlx::Error> {
    fn family(name: &str) -> &'static str {
        match name {
            "INTEGER" | "BIGINT" | "INT8" => "integer",
            "TEXT" | "VARCHAR" | "NAME" => "text",
            "NULL" => "?",
            _ => "other",
        }
    }
    Ok(match conn {
        Conn::Sqlite(conn) => {
            let described = conn.describe(statement.sqlite.into_sql_str()).await?;
            described.columns().iter().map(|one| (one.name().to_owned(), family(one.type_info().name()))).collect()
        }
        Conn::Postgres(conn) => {
            let described = conn.as_mut().describe(statement.postgres.into_sql_str()).await?;
            described.columns().iter().map(|one| (one.name().to_owned(), family(one.type_info().name()))).collect()
        }
    })
}

#[tokio::test]
async fn every_statement_has_the_same_columns_and_types_on_both_databases() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = format!("sqlite:{}", folder.path().join("catalog.db").display());
    let cluster = PostgresCluster::shared().await.unwrap_or_else(|error| panic!("{error}"));
    let postgres = cluster.database().await.expect("a database");
    for url in [&url, &postgres] {
        Catalog::open(url, Options::default()).await.expect("a catalogue").close().await;
    }
    let mut sqlite = Conn::Sqlite(sqlx::SqliteConnection::connect(&url).await.expect("SQLite"));
    let mut postgres = Conn::Postgres(Box::new(sqlx::PgConnection::connect(&postgres).await.expect("PostgreSQL")));
    let mut wrong = Vec::new();
    for statement in all() {
        let pair = (describe(&mut sqlite, statement).await, describe(&mut postgres, statement).await);
        let (left, right) = match pair {
            (Ok(left), Ok(right)) => (left, right),
            (left, right) => {
                wrong.push(format!("{}: {:?} / {:?}", statement.name, left.err(), right.err()));
                continue;
            }
        };
        let same_family = |(a, b): (&(String, &str), &(String, &str))| a.1 == b.1 || a.1 == "?";
        // Only SQLite names an expression by its text; columns and what has an `AS` must agree.
        let plain =
            |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        let same_name = |(a, b): (&(String, &str), &(String, &str))| a.0 == b.0 || !plain(&a.0);
        let known = right.iter().all(|(_, family)| matches!(*family, "integer" | "text"));
        if left.len() != right.len()
            || !known
            || !left.iter().zip(&right).all(|pair| same_family(pair) && same_name(pair))
        {
            wrong.push(format!("{}: {left:?} / {right:?}", statement.name));
        }
    }
    assert!(wrong.is_empty(), "{} statements differ:\n{}", wrong.len(), wrong.join("\n"));
}
