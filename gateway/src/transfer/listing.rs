//! Sends a text that the gateway makes. It goes to a mover, which has the client's data connection, and from there on.
//!
//! This is the one thing that passes through a gateway, so that a client's data connections are always a mover's. It is
//! no file's data and does not count as relayed.

use std::{io, sync::Arc};

use bytes::Bytes;
use daemon::{
    role::Role,
    tls::{self, Expect},
};
use futures::{StreamExt as _, stream::BoxStream};
use tokio::{
    io::{AsyncWriteExt as _, BufWriter},
    net::TcpStream,
    time::timeout,
};
use wire::{
    checksum::ExtraSums,
    id::MoverId,
    mover::{Eof, Framing, Job, Sink, Source},
};

use super::{
    Step, Summary,
    crew::{Crew, Duty, News},
    plan::{ClientEnd, SideView},
    port::Ends,
    retrieve::anybody,
    task::Task,
};
use crate::{
    failure::{Failure, FailureKind},
    movers::Channel,
};

/// Gathers lines into writes of this size.
const BUFFER_BYTES: usize = 64 << 10;

pub(super) async fn run(task: Arc<Task>, text: BoxStream<'static, Result<Bytes, Failure>>) -> Result<Summary, Failure> {
    let _permit = task.permit()?;
    let mut ends = task.unless_stopped(task.port.lock()).await?;
    let sent = send(&task, &mut ends, text).await;
    match &sent {
        Ok(_) => ends.served(&task.port.spec),
        Err(_) => ends.close(),
    }
    sent
}

async fn send(
    task: &Task,
    ends: &mut Ends,
    text: BoxStream<'static, Result<Bytes, Failure>>,
) -> Result<Summary, Failure> {
    let spec = &task.port.spec;
    let wanted = match ends.view(spec)?.side {
        SideView::Active(to) => {
            let first = to.first().copied();
            let first = first.ok_or_else(|| {
                Failure::new(FailureKind::BadArgument, "there is no address to connect to: send PORT first")
            })?;
            vec![(anybody(task)?, ClientEnd::At(first))]
        }
        SideView::Untold { .. } => {
            let known = ends.told_first();
            vec![(known.map_or_else(|| anybody(task), Ok)?, ClientEnd::Comes)]
        }
        SideView::Told(movers) => movers.into_iter().map(|mover| (mover, ClientEnd::Comes)).collect(),
    };
    let ready = task.unless_stopped(ends.open(&task.inner, spec, &wanted)).await??;
    let movers: Vec<_> = wanted.iter().map(|(mover, _)| mover.clone()).collect();
    task.card().planned(movers.clone(), None);
    if let Some(addresses) = ready.tell {
        task.say(Step::Passive(addresses)).await;
    }
    let (Some(through), Some(client)) = (movers.first(), ready.channels.first().copied()) else {
        return Err(Failure::new(FailureKind::Internal, "a data channel is missing"));
    };
    let inside = task.unless_stopped(task.inner.listen_inside(through, Framing::Stream)).await??;
    let mut crew = Crew::default();
    let job = |source, channel| Job {
        source,
        sink: Sink::Channel { channel, eof: Eof::Own },
        extra_sums: ExtraSums::default(),
        rate_limit: None,
    };
    let source = Source::Channel { channel: inside.id(), expected: None };
    crew.join(Duty::Relay, task.inner.movers.start(through, job(source, client)).await?);
    // The client waits for an end at every address it was told.
    for (mover, channel) in movers.iter().zip(&ready.channels).skip(1) {
        let nothing = job(Source::Extents(Vec::new()), *channel);
        crew.join(Duty::Client(0), task.inner.movers.start(mover, nothing).await?);
    }
    task.say(Step::Opening { reused: ready.reused, bytes: None }).await;
    let bytes = follow(task, crew, write(task, &inside, through, text)).await?;
    Ok(Summary { bytes, elapsed: task.started.elapsed(), movers, relayed_bytes: 0, stored: None })
}

/// Writes the text while the mover passes it on.
async fn follow(
    task: &Task,
    mut crew: Crew,
    writing: impl Future<Output = Result<u64, Failure>>,
) -> Result<u64, Failure> {
    tokio::pin!(writing);
    let mut written = None;
    loop {
        tokio::select! {
            biased;
            failure = task.stopped() => return Err(failure),
            news = crew.next() => match news {
                Some(News::Failed { error, .. }) => return Err(error.into()),
                Some(_) => task.card().moved(crew.client_bytes()),
                None => break,
            },
            result = &mut writing, if written.is_none() => match result {
                Ok(bytes) => written = Some(bytes),
                // If the mover broke off, it says why better than a broken pipe does.
                Err(failure) => return Err(broken_off(crew).await.unwrap_or(failure)),
            },
        }
    }
    crew.settle();
    Ok(written.unwrap_or_default())
}

async fn broken_off(mut crew: Crew) -> Option<Failure> {
    crew.cancel();
    loop {
        match timeout(std::time::Duration::from_secs(1), crew.next()).await.ok()?? {
            News::Failed { error, .. } if error.fault() != Some(wire::mover::FaultKind::Cancelled) => {
                return Some(error.into());
            }
            _ => {}
        }
    }
}

async fn write(
    task: &Task,
    inside: &Channel,
    mover: &MoverId,
    mut text: BoxStream<'static, Result<Bytes, Failure>>,
) -> Result<u64, Failure> {
    let lost = |error: io::Error| {
        let why = tls::why(&error);
        Failure::new(FailureKind::Unavailable, format_args!("the listing could not be sent to mover {mover}: {why}"))
    };
    let Some(address) = inside.address() else {
        return Err(Failure::new(FailureKind::Internal, "a mover that listens said no address"));
    };
    let site = &task.inner.site;
    let expect = Expect::Role { role: Role::Mover, name: Some(mover.to_string()) };
    let config = tls::client_config(Some(&site.credential), &site.trust, &expect, &[]);
    let connecting = async {
        let stream = TcpStream::connect(address).await?;
        tls::connect(&config, &address.ip().to_string(), stream).await
    };
    let late = || io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time");
    let stream =
        timeout(task.inner.limits.data_open, connecting).await.unwrap_or_else(|_| Err(late())).map_err(lost)?;
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, stream);
    let mut bytes = 0;
    while let Some(piece) = text.next().await {
        let piece = piece?;
        bytes += piece.len() as u64;
        writer.write_all(&piece).await.map_err(lost)?;
    }
    writer.flush().await.map_err(lost)?;
    writer.shutdown().await.map_err(lost)?;
    Ok(bytes)
}
