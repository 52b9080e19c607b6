//! One connection of a gateway: frames in, frames out.
//!
//! Owns the connection. Talks to the hub. Never interprets a request but the first.
//!
//! Invariant: a message is bounded before it is read; a gateway that does not read what it is told is disconnected, and
//! hears the rest when it is back.

use bytes::BytesMut;
use daemon::Shutdown;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use wire::{
    id::GatewayId,
    mover::{
        Event, Fault, FaultKind, PROTOCOL_VERSION, Request,
        frame::{self, FrameError},
    },
};

use super::hub::HubHandle;

/// Events that may wait for a gateway to read them.
const QUEUE: usize = 4096;

/// How much is written in one go, where several events wait.
const WRITE_BYTES: usize = 256 << 10;

/// How long the first request may take, and the last event.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// The hub's way to tell one connection something.
pub(super) struct Listener {
    pub(super) events: mpsc::Sender<Event>,
    /// Ends the connection.
    pub(super) close: CancellationToken,
}

/// Serves a connection to its end. `gateway` is the name in its certificate.
pub(super) async fn run(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    gateway: GatewayId,
    hub: &HubHandle,
    shutdown: &Shutdown,
) {
    let (mut input, mut output) = tokio::io::split(stream);
    let mut buffer = BytesMut::new();
    let first = tokio::time::timeout(PATIENCE, next(&mut input, &mut buffer)).await;
    let epoch = match hello(first, &gateway) {
        Ok(epoch) => epoch,
        Err(fault) => {
            info!(%gateway, fault = fault.message, "gateway refused");
            let _ = tokio::time::timeout(PATIENCE, write_one(&mut output, &Event::Refused { fault })).await;
            return;
        }
    };
    let (events, told) = mpsc::channel(QUEUE);
    let close = CancellationToken::new();
    let session = match hub.hello(gateway.clone(), epoch, Listener { events, close: close.clone() }).await {
        Ok(session) => session,
        Err(fault) => {
            info!(%gateway, %epoch, fault = fault.message, "gateway refused");
            let _ = tokio::time::timeout(PATIENCE, write_one(&mut output, &Event::Refused { fault })).await;
            return;
        }
    };
    info!(%gateway, %epoch, "gateway connected");
    let reading = async {
        loop {
            let request = next(&mut input, &mut buffer).await?;
            if !hub.request(session, request).await {
                return Ok(());
            }
        }
    };
    let end: Result<(), Broken> = tokio::select! {
        end = reading => end,
        end = write(&mut output, told) => end.map_err(Broken::Io),
        () = close.cancelled() => Ok(()),
        () = shutdown.cutting() => Ok(()),
    };
    let why = end.err().map(|broken| broken.to_string());
    info!(%gateway, why, "gateway disconnected");
    hub.gone(session).await;
}

#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("it closed the connection")]
    Closed,
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

async fn next(input: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> Result<Request, Broken> {
    loop {
        if let Some(body) = frame::split(buffer)? {
            return Ok(frame::decode(&body)?);
        }
        buffer.reserve(16 << 10);
        if input.read_buf(buffer).await? == 0 {
            return Err(Broken::Closed);
        }
    }
}

fn hello<E>(first: Result<Result<Request, Broken>, E>, gateway: &GatewayId) -> Result<wire::id::Epoch, Fault> {
    let bad = |message: String| Err(Fault::new(FaultKind::BadRequest, message));
    match first {
        Err(_) => bad("no hello came in time".to_owned()),
        Ok(Err(Broken::Frame(error))) => Err(Fault::new(FaultKind::Version, error)),
        Ok(Err(error)) => bad(error.to_string()),
        Ok(Ok(Request::Hello { version, .. })) if version != PROTOCOL_VERSION => {
            let message =
                format!("the gateway speaks version {version}, this mover {PROTOCOL_VERSION}; update the older one");
            Err(Fault::new(FaultKind::Version, message))
        }
        Ok(Ok(Request::Hello { gateway: name, epoch, .. })) if name == *gateway => Ok(epoch),
        Ok(Ok(Request::Hello { gateway: name, .. })) => {
            bad(format!("it says it is {name}, its certificate says {gateway}"))
        }
        Ok(Ok(_)) => bad("the first request must be a hello".to_owned()),
    }
}

/// Writes what comes, several events at a time where they wait.
async fn write(output: &mut (impl AsyncWrite + Unpin), mut told: mpsc::Receiver<Event>) -> std::io::Result<()> {
    let mut buffer = BytesMut::new();
    while let Some(event) = told.recv().await {
        put(&event, &mut buffer);
        while buffer.len() < WRITE_BYTES {
            let Ok(event) = told.try_recv() else { break };
            put(&event, &mut buffer);
        }
        output.write_all(&buffer).await?;
        output.flush().await?;
        buffer.clear();
        if buffer.capacity() > WRITE_BYTES * 2 {
            buffer = BytesMut::new();
        }
    }
    // The hub has let go: say goodbye.
    let _ = tokio::time::timeout(PATIENCE, output.shutdown()).await;
    Ok(())
}

fn put(event: &Event, buffer: &mut BytesMut) {
    if let Err(error) = frame::encode(event, buffer) {
        // The pieces of a job came in one frame; what is said of them is not much longer.
        warn!(%error, "an event is too long for a frame and was left out");
    }
}

async fn write_one(output: &mut (impl AsyncWrite + Unpin), event: &Event) -> std::io::Result<()> {
    let mut buffer = BytesMut::new();
    put(event, &mut buffer);
    output.write_all(&buffer).await?;
    output.shutdown().await
}
