//! Every statement, described by both databases: they must agree on columns and types; and SQLite's plan of each: none
//! may read a whole table that grows with the number of files.

use sqlx::{AssertSqlSafe, Column, Connection, Executor, Row, SqlSafeStr, TypeInfo};

use crate::sql::{Conn, Statement};
use crate::testing::PostgresCluster;
use crate::{Catalog, Options};

/// Every statement of every module.
fn all() -> Vec<&'static Statement> {
    let mut modules = vec![
        crate::accounts::ALL,
        crate::adopt::ALL,
        crate::adopt::PLACE,
        crate::batch::ALL,
        crate::catalog::ALL,
        crate::drives::ALL,
        crate::events::QUEUE,
        crate::events::TELL,
        crate::events::WATCH,
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
        crate::queue::ENQUEUE,
        crate::quota::ALL,
        crate::relocate::ALL,
        crate::replicas::ALL,
        crate::retire::ALL,
        crate::scrubs::ALL,
        crate::segments::ALL,
        crate::staging::ALL,
        crate::staging::ASK,
        crate::staging::BULK,
        crate::staging::RECORD,
        crate::staging::RELEASE,
        crate::statistics::ALL,
        crate::testing::GENERATE,
        crate::volumes::ALL,
    ];
    modules.extend(crate::objects::ALL);
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

/// Tables that grow with the number of files or requests. The others (volumes, accounts, policies, leases) may be read
/// whole.
const LARGE: [&str; 15] = [
    "entry",
    "bitfile",
    "copy",
    "segment",
    "deleted",
    "partial",
    "pin",
    "work",
    "request",
    "object",
    "version",
    "upload",
    "bulk_file",
    "scrub_result",
    "event",
];

#[tokio::test]
async fn no_statement_reads_a_whole_large_table() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = format!("sqlite:{}", folder.path().join("catalog.db").display());
    Catalog::open(&url, Options::default()).await.expect("a catalogue").close().await;
    let mut conn = sqlx::SqliteConnection::connect(&url).await.expect("SQLite");
    let mut wrong = Vec::new();
    for statement in
        all().into_iter().filter(|statement| statement.sqlite.contains("FROM") || statement.sqlite.contains("WHERE"))
    {
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", statement.sqlite));
        let plan = sqlx::query(explain).fetch_all(&mut conn).await.expect("a plan");
        let steps: Vec<String> = plan.iter().map(|row| row.get(3)).collect();
        // A step names the alias: `SCAN w`, and says nothing of the table, so aliases are looked up in the text.
        let scans = |step: &String| {
            let alias = step.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
            let of_rows_found = statement.sqlite.contains(&format!("FROM walk {alias} "));
            !of_rows_found
                && LARGE.iter().any(|table| {
                    alias == *table
                        || [format!("{table} {alias} "), format!("{table} {alias}\n"), format!("{table} AS {alias} ")]
                            .iter()
                            .any(|text| !alias.is_empty() && statement.sqlite.contains(text.as_str()))
                })
        };
        // The totals count up to a limit.
        if statement.name != "TOTALS" && steps.iter().any(scans) {
            wrong.push(format!("{}:\n    {}", statement.name, steps.join("\n    ")));
        }
    }
    assert!(wrong.is_empty(), "{} statements read whole tables:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn a_name_is_looked_up_by_parent_and_name_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = format!("sqlite:{}", folder.path().join("catalog.db").display());
    Catalog::open(&url, Options::default()).await.expect("a catalogue").close().await;
    let mut conn = sqlx::SqliteConnection::connect(&url).await.expect("SQLite");
    for name in ["RESOLVE_PATH", "DESCEND", "LOOK", "FIND_PLACE", "LIST_DIRECTORY"] {
        let statement = all().into_iter().find(|statement| statement.name == name).expect("a statement");
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", statement.sqlite));
        let plan = sqlx::query(explain).fetch_all(&mut conn).await.expect("a plan");
        let steps: Vec<String> = plan.iter().map(|row| row.get(3)).collect();
        let by_parent = steps.iter().filter(|step| step.contains("(parent=?"));
        let (mut seen, mut both) = (0, 0);
        by_parent.for_each(|step| {
            seen += 1;
            both += usize::from(step.contains("(parent=? AND name"));
        });
        assert!(seen > 0 && seen == both, "{name}:\n{}", steps.join("\n"));
    }
}
