//! Buckets, and what lies in them.

use wire::admin::buckets::{Amount, Bucket, Usage};

use super::{
    AdminError, Connection, Output,
    command::BucketCommand,
    show::{bytes, now_us, or_dash, printable, span, table, word},
};

/// Buckets of one page.
const PAGE: usize = 1000;

pub(super) async fn run(command: BucketCommand, connection: &mut Connection, output: Output) -> Result<(), AdminError> {
    match command {
        BucketCommand::List => output.print(&all(connection).await?, show_list),
        BucketCommand::Show { bucket } => {
            let found: Bucket = connection.get(&format!("/v1/buckets/{}", super::connection::escape(&bucket))).await?;
            output.print(&found, show_one)
        }
    }
}

async fn all(connection: &mut Connection) -> Result<Vec<Bucket>, AdminError> {
    let mut buckets: Vec<Bucket> = Vec::new();
    loop {
        let after = buckets.last().map(|bucket| bucket.bucket.clone());
        let page: Vec<Bucket> =
            connection.query("/v1/buckets", &[("after", after), ("limit", Some(PAGE.to_string()))]).await?;
        let full = page.len() >= PAGE;
        buckets.extend(page);
        if !full {
            return Ok(buckets);
        }
    }
}

#[allow(clippy::ptr_arg, reason = "the answer's own type")]
fn show_list(buckets: &Vec<Bucket>) -> String {
    let now = now_us();
    table(
        ["bucket", "owner", "age", "versions", "objects ", "bytes ", "older ", "bytes ", "uploads ", "counted"],
        buckets.iter().map(|bucket| {
            let usage = |of: fn(&Usage) -> String| or_dash(bucket.usage.as_ref().map(of));
            [
                bucket.bucket.clone(),
                bucket.owner.to_string(),
                span(bucket.created_us, now),
                word(&bucket.versioning),
                usage(|usage| usage.current.count.to_string()),
                usage(|usage| bytes(usage.current.bytes)),
                usage(|usage| usage.noncurrent.count.to_string()),
                usage(|usage| bytes(usage.noncurrent.bytes)),
                usage(|usage| usage.uploads.to_string()),
                or_dash(bucket.usage.as_ref().map(|usage| format!("{} ago", span(usage.counted_us, now)))),
            ]
        }),
    )
}

fn show_one(bucket: &Bucket) -> String {
    let now = now_us();
    let amount = |of: Amount| format!("{} with {}", of.count, bytes(of.bytes));
    let locks = if bucket.locking { ", can be locked" } else { "" };
    let mut text = format!(
        "bucket      {}\nowner       {}\nage         {}\nversions    {}{locks}\n",
        printable(&bucket.bucket),
        bucket.owner,
        span(bucket.created_us, now),
        word(&bucket.versioning),
    );
    text.push_str(&match &bucket.usage {
        None => "counted     not yet: [s3] usage_every says how often the S3 door does\n".to_owned(),
        Some(usage) => format!(
            "objects     {}\nolder       {}, and {} delete markers\nuploads     {} under way, parts {}\ncounted     {} ago; \
             what was written since may not be in it\n",
            amount(usage.current),
            amount(usage.noncurrent),
            usage.delete_markers,
            usage.uploads,
            amount(usage.parts),
            span(usage.counted_us, now),
        ),
    });
    text
}

#[cfg(test)]
mod tests {
    use wire::admin::buckets::Versioning;

    use super::*;

    #[test]
    fn a_bucket_is_shown_with_its_count_or_that_there_is_none() {
        let mut bucket = Bucket {
            bucket: "photos".to_owned(),
            owner: "alice".parse().expect("a name"),
            created_us: now_us() - 7_260_000_000,
            versioning: Versioning::Enabled,
            locking: true,
            usage: None,
        };
        let text = show_one(&bucket);
        assert!(text.contains("owner       alice\nage         2h 1m\nversions    enabled, can be locked\n"), "{text}");
        assert!(text.contains("counted     not yet"), "{text}");
        let amount = |count, bytes| Amount { count, bytes };
        bucket.usage = Some(Usage {
            current: amount(3, 1024),
            noncurrent: amount(2, 20),
            delete_markers: 1,
            uploads: 4,
            parts: amount(5, 50),
            counted_us: now_us() - 61_000_000,
        });
        let text = show_one(&bucket);
        for line in [
            "objects     3 with 1.00 KiB",
            "older       2 with 20 B, and 1 delete markers",
            "uploads     4 under way, parts 5 with 50 B",
            "counted     1m 1s ago",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let list = show_list(&vec![bucket]);
        assert!(list.contains("photos") && list.contains("1m 1s ago") && list.contains("1.00 KiB"), "{list}");
    }
}
