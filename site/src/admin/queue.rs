//! Files, and the queue of work on them.

use std::{collections::BTreeSet, time::Duration};

use daemon::config::TimeSpan;
use hyper::Method;
use wire::{
    admin::{
        files::{Deleted, Info, Restore, Restored},
        queue::{
            Answer, Cancel, Cancelled, Entry, Page, PathResult, Paths, Pin, Replicate, Scrub, ScrubResult, ScrubScope,
            Stage, StartScrub, State,
        },
    },
    extent::Place,
    id::RequestId,
};

use super::{
    AdminError, Connection, Output,
    command::{PathArguments, QueueCommand, ScrubCommand},
    show::{bytes, now_us, or_dash, percent, span, table, word, write},
};

/// How often something that is waited for is asked about.
const POLL_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn run(command: QueueCommand, connection: &mut Connection, output: Output) -> Result<(), AdminError> {
    match command {
        QueueCommand::Queue { kind, account, ended, limit } => {
            let parameters = [
                ("kind", kind.map(|kind| kind.as_str().to_owned())),
                ("account", account.map(String::from)),
                ("ended", Some(ended.to_string())),
            ];
            let entries = pages(connection, &parameters, limit).await?;
            output.print(&entries, show_queue)
        }
        QueueCommand::Stage { files, lifetime, deadline, priority, wait } => {
            let stage = Stage {
                files: paths(files),
                lifetime_s: seconds(lifetime),
                deadline_s: seconds(deadline),
                priority,
                account: None,
            };
            let answers: Vec<Answer> = connection.send(Method::POST, "/v1/stage", &stage).await?;
            answered(output, &answers)?;
            if wait { wait_for_requests(connection, &answers, output).await } else { Ok(()) }
        }
        QueueCommand::Release(files) => act(connection, output, "/v1/release", &paths(files)).await,
        QueueCommand::Pin { files, lifetime } => {
            act(connection, output, "/v1/pin", &Pin { files: paths(files), lifetime_s: seconds(lifetime) }).await
        }
        QueueCommand::Unpin(files) => act(connection, output, "/v1/unpin", &paths(files)).await,
        QueueCommand::Migrate { files, wait } => {
            let files = paths(files);
            let answers: Vec<Answer> = connection.send(Method::POST, "/v1/migrate", &files).await?;
            answered(output, &answers)?;
            if wait { wait_for_tape(connection, &answers, output).await } else { Ok(()) }
        }
        QueueCommand::Replicate { files, copies } => {
            act(connection, output, "/v1/replicate", &Replicate { files: paths(files), copies }).await
        }
        QueueCommand::Purge(files) => act(connection, output, "/v1/purge", &paths(files)).await,
        QueueCommand::Cancel { requests, work } => {
            if requests.is_empty() && work.is_empty() {
                return Err(AdminError::Usage("say which requests to cancel; `queue` shows their numbers".to_owned()));
            }
            let cancelled: Vec<Cancelled> =
                connection.send(Method::POST, "/v1/cancel", &Cancel { requests, work }).await?;
            output.print(&cancelled, |cancelled| {
                table(["number", "result"], cancelled.iter().map(|one| [one.id.to_string(), one.message.clone()]))
            })?;
            partly(cancelled.iter().filter(|one| !one.cancelled).count(), cancelled.len())
        }
        QueueCommand::File { path } => {
            let info: Info = connection.query("/v1/files", &[("path", Some(path))]).await?;
            output.print(&info, show_file)
        }
        QueueCommand::Deleted { path } => {
            let deleted: Vec<Deleted> = connection.query("/v1/deleted", &[("path", Some(path))]).await?;
            output.print(&deleted, show_deleted)
        }
        QueueCommand::Undelete { bitfile, to } => {
            let path = format!("/v1/deleted/{bitfile}/restore");
            let restored: Restored = connection.send(Method::POST, &path, &Restore { path: to }).await?;
            output.print(&restored, |restored| format!("{} is back", restored.path))
        }
        QueueCommand::Scrub(command) => scrub(command, connection, output).await,
    }
}

fn paths(arguments: PathArguments) -> Paths {
    Paths { paths: arguments.paths, recursive: arguments.recursive }
}

fn seconds(span: Option<TimeSpan>) -> Option<u64> {
    span.map(|span| span.duration().as_secs())
}

/// All pages of the queue, up to `limit` rows.
async fn pages(
    connection: &mut Connection,
    parameters: &[(&str, Option<String>)],
    limit: u32,
) -> Result<Vec<Entry>, AdminError> {
    let mut entries = Vec::new();
    let mut after = None;
    loop {
        let mut query = parameters.to_vec();
        let wanted = (limit as usize).saturating_sub(entries.len()).min(1000);
        query.extend([("after", after), ("limit", Some(wanted.to_string()))]);
        let page: Page = connection.query("/v1/queue", &query).await?;
        entries.extend(page.entries);
        after = page.next;
        if after.is_none() || entries.len() >= limit as usize {
            return Ok(entries);
        }
    }
}

async fn act(
    connection: &mut Connection,
    output: Output,
    route: &str,
    body: &impl serde::Serialize,
) -> Result<(), AdminError> {
    let answers: Vec<Answer> = connection.send(Method::POST, route, body).await?;
    answered(output, &answers)
}

/// Prints what became of each path; an error if any was refused.
fn answered(output: Output, answers: &Vec<Answer>) -> Result<(), AdminError> {
    output.print(answers, |answers| {
        table(
            ["path", "result"],
            answers.iter().map(|answer| {
                let result = match &answer.result {
                    PathResult::Done { message } => message.clone(),
                    PathResult::Queued { request, .. } => format!("request {request} is queued"),
                    PathResult::Refused { problem } => match &problem.next_step {
                        Some(next) => format!("refused: {}; {next}", problem.message),
                        None => format!("refused: {}", problem.message),
                    },
                };
                [answer.path.clone(), result]
            }),
        )
    })?;
    let refused = answers.iter().filter(|answer| matches!(answer.result, PathResult::Refused { .. })).count();
    partly(refused, answers.len())
}

const fn partly(failed: usize, all: usize) -> Result<(), AdminError> {
    if failed == 0 { Ok(()) } else { Err(AdminError::Partly { failed, all }) }
}

async fn wait_for_requests(connection: &mut Connection, answers: &[Answer], output: Output) -> Result<(), AdminError> {
    let mut open: BTreeSet<RequestId> = answers
        .iter()
        .filter_map(|answer| match answer.result {
            PathResult::Queued { request, .. } => Some(request),
            _ => None,
        })
        .collect();
    let (all, mut failed) = (open.len(), 0);
    while !open.is_empty() {
        tokio::time::sleep(POLL_EVERY).await;
        for request in open.clone() {
            let entry: Entry = connection.get(&format!("/v1/requests/{request}")).await?;
            match entry.state {
                State::Waiting | State::Running | State::Unknown => {}
                State::Completed => {
                    open.remove(&request);
                }
                State::Failed | State::Cancelled => {
                    open.remove(&request);
                    failed += 1;
                    write(&format!("request {request}: {}: {}", word(&entry.state), or_dash(entry.reason)))?;
                }
            }
        }
    }
    output.add(&format!("{} of {all} on disk", all - failed))?;
    partly(failed, all)
}

/// Waits until nothing is queued any more for the files that were asked for.
async fn wait_for_tape(connection: &mut Connection, answers: &[Answer], output: Output) -> Result<(), AdminError> {
    let mut open: BTreeSet<&str> = answers
        .iter()
        .filter(|answer| !matches!(answer.result, PathResult::Refused { .. }))
        .map(|answer| answer.path.as_str())
        .collect();
    let all = open.len();
    while !open.is_empty() {
        tokio::time::sleep(POLL_EVERY).await;
        for path in open.clone() {
            let info: Info = connection.query("/v1/files", &[("path", Some(path.to_owned()))]).await?;
            if info.work.is_empty() {
                open.remove(path);
            }
        }
    }
    output.add(&format!("{all} on tape"))
}

async fn scrub(command: ScrubCommand, connection: &mut Connection, output: Output) -> Result<(), AdminError> {
    match command {
        ScrubCommand::Start { paths, recursive, cos, volume, rate } => {
            let scope = match (cos, volume) {
                (Some(cos), _) => ScrubScope::Class { cos },
                (None, Some(volume)) => ScrubScope::Volume { volume },
                (None, None) => ScrubScope::Paths { paths, recursive },
            };
            let start = StartScrub { scope, rate: rate.map(daemon::config::ByteSize::bytes) };
            let started: Scrub = connection.send(Method::POST, "/v1/scrubs", &start).await?;
            output.print(&started, |started| format!("scrub {} of {} has begun", started.scrub, started.scope))
        }
        ScrubCommand::List => {
            let scrubs: Vec<Scrub> = connection.get("/v1/scrubs").await?;
            output.print(&scrubs, show_scrubs)
        }
        ScrubCommand::Results { scrub, bad } => {
            let mut results: Vec<ScrubResult> = connection.get(&format!("/v1/scrubs/{scrub}/results")).await?;
            results.retain(|result| !(bad && result.good));
            output.print(&results, |results| {
                table(
                    ["path", "volume", "result", "checked"],
                    results.iter().map(|result| {
                        [
                            result.path.clone().unwrap_or_else(|| format!("bitfile {}", result.bitfile)),
                            result.volume.to_string(),
                            if result.good { "good".to_owned() } else { or_dash(result.problem.as_ref()) },
                            format!("{} ago", span(result.checked_us, now_us())),
                        ]
                    }),
                )
            })?;
            partly(results.iter().filter(|result| !result.good).count(), results.len())
        }
    }
}

#[allow(clippy::ptr_arg, reason = "the answer's own type")]
fn show_queue(entries: &Vec<Entry>) -> String {
    let now = now_us();
    table(
        ["number", "kind", "state", "path", "owner", "bytes ", "age ", "position ", "in ", "volume", "why"],
        entries.iter().map(|entry| {
            [
                // A request is what its owner knows and can cancel; work without one is shown as such.
                entry.request.map_or_else(|| format!("work {}", entry.work), |request| request.to_string()),
                entry.kind.to_string(),
                word(&entry.state),
                entry.path.clone().unwrap_or_else(|| format!("bitfile {}", entry.bitfile)),
                or_dash(entry.account.as_ref()),
                bytes(entry.bytes),
                span(entry.created_us, entry.ended_us.unwrap_or(now)),
                or_dash(entry.position),
                or_dash(entry.estimate_us.map(|estimate| span(now, estimate))),
                or_dash(entry.volume.as_ref()),
                or_dash(entry.reason.as_ref()),
            ]
        }),
    )
}

fn show_file(info: &Info) -> String {
    let mut text = format!(
        "{}\nbitfile  {}, {} ({} bytes), class of service {}\nowner    {}:{}, mode {:o}\n",
        super::show::printable(&info.path),
        info.bitfile,
        bytes(info.bytes),
        info.bytes,
        info.cos,
        info.owner,
        info.group,
        info.mode,
    );
    for (algorithm, sum) in &info.sums {
        text.push_str(&format!("{:<8} {sum}\n", algorithm.to_lowercase()));
    }
    for pin in &info.pins {
        let until = pin.until_us.map(|until| format!(" for {} more", span(now_us(), until)));
        text.push_str(&format!("pinned   by {}{}\n", pin.holder, until.unwrap_or_default()));
    }
    for work in &info.work {
        text.push_str(&format!("queued   {work}\n"));
    }
    text.push('\n');
    text.push_str(&table(
        ["copy", "bytes", "volume", "place", "crc32c"],
        info.copies.iter().flat_map(|copy| {
            copy.segments.iter().map(move |segment| {
                let place = match segment.place {
                    Place::Disk { file, offset_bytes } => format!("file {file} from {offset_bytes}"),
                    Place::Tape { container, block, skip_bytes } => {
                        format!("container {container}, block {block} + {skip_bytes}")
                    }
                };
                let on_disk = matches!(segment.place, Place::Disk { .. });
                let copy_name = match copy.copy {
                    0 => "disk".to_owned(),
                    number if on_disk => format!("disk {number}"),
                    number => format!("tape {number}"),
                };
                [
                    if copy.whole { copy_name } else { format!("{copy_name} (not whole)") },
                    segment.range.to_string(),
                    segment.volume.to_string(),
                    place,
                    segment.crc32c.clone(),
                ]
            })
        }),
    ));
    text
}

#[allow(clippy::ptr_arg, reason = "the answer's own type")]
fn show_deleted(deleted: &Vec<Deleted>) -> String {
    let now = now_us();
    table(
        ["bitfile", "path", "bytes ", "owner", "deleted", "kept for"],
        deleted.iter().map(|one| {
            [
                one.bitfile.to_string(),
                one.path.clone(),
                bytes(one.bytes),
                one.owner.to_string(),
                format!("{} ago", span(one.deleted_us, now)),
                span(now, one.until_us),
            ]
        }),
    )
}

#[allow(clippy::ptr_arg, reason = "the answer's own type")]
fn show_scrubs(scrubs: &Vec<Scrub>) -> String {
    let now = now_us();
    table(
        ["scrub", "what", "state", "files ", "done ", "bad ", "age ", "ends in "],
        scrubs.iter().map(|scrub| {
            [
                scrub.scrub.to_string(),
                scrub.scope.clone(),
                word(&scrub.state),
                format!("{} of {}", scrub.done, scrub.total),
                percent(scrub.done_bytes, scrub.total_bytes),
                scrub.bad.to_string(),
                span(scrub.started_us, now),
                or_dash(scrub.ends_us.map(|ends| span(now, ends))),
            ]
        }),
    )
}
