//! A client that leaves a door with its body, and the answer that follows it to the mover.
//!
//! Whatever a door does of a PUT is one piece of work: it checks, chooses a mover, waits for the bytes, publishes them, and
//! makes an answer. Where the client is sent away in the middle of that, the door answers 307 at once and the work goes on
//! by itself; its answer is what the mover says to the client behind the last byte. So there is one way to write, and an
//! answer has the same status, headers and text on both.
//!
//! Owns nothing. Talks to [`crate::movers`], which carries the answer.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use daemon::Shutdown;
use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Limited};
use hyper::{Response, body::Body};
use tokio::sync::oneshot;
use wire::{
    id::{ChannelId, MoverId},
    mover::{Admission, HttpAnswer, HttpDoor, Ticket, http::MAX_ANSWER_BYTES},
};

use super::{base, location};
use crate::movers::Movers;

/// Lies in a request's extensions where its client may be sent away. Cheap to clone; it works once.
#[derive(Clone)]
pub(crate) struct Exit(Arc<Mutex<Option<oneshot::Sender<Departure>>>>);

/// A client is told to go there.
pub(crate) struct Departure {
    pub(crate) location: String,
    movers: Movers,
    mover: MoverId,
    channel: ChannelId,
}

/// A way out, and where it is seen that somebody took it.
pub(crate) fn exit() -> (Exit, oneshot::Receiver<Departure>) {
    let (sender, receiver) = oneshot::channel();
    (Exit(Arc::new(Mutex::new(Some(sender)))), receiver)
}

impl Exit {
    /// Sends the client away; whether it was still there.
    pub(crate) fn leave(&self, departure: Departure) -> bool {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        sender.is_some_and(|sender| sender.send(departure).is_ok())
    }
}

impl Departure {
    /// The way to a mover's door for a request with this path. `None` if there is none with the security that the client
    /// has.
    pub(crate) fn to(door: &HttpDoor, secure: bool, path: &str, admission: Admission, movers: &Movers) -> Option<Self> {
        let (mover, channel) = (admission.mover.clone(), admission.channel);
        let ticket = Ticket::Write(admission).encode()?;
        let location = location(base(door, secure)?, path, &door.key, &ticket);
        Some(Self { location, movers: movers.clone(), mover, channel })
    }

    /// Tells the client what came of its body.
    async fn answer<B, E>(self, answered: Result<Response<B>, E>)
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        E: Debug,
    {
        let answer = match answered {
            Ok(response) => told(response).await,
            Err(error) => {
                tracing::error!(?error, "an upload has no answer");
                HttpAnswer { status: 500, headers: Vec::new(), body: Vec::new() }
            }
        };
        self.movers.answer(&self.mover, self.channel, answer);
    }
}

/// Does a request's work and gives its answer; or, if the client is sent away meanwhile, the address that it is told. The work
/// goes on then, and its answer goes to the mover.
pub(crate) async fn attend<B, E>(
    mut work: BoxFuture<'static, Result<Response<B>, E>>,
    left: oneshot::Receiver<Departure>,
    shutdown: &Shutdown,
) -> Result<Result<Response<B>, E>, String>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    E: Debug + Send + 'static,
{
    tokio::select! {
        biased;
        answered = &mut work => Ok(answered),
        Ok(departure) = left => {
            let location = departure.location.clone();
            shutdown.spawn_until_cut(async move { departure.answer(work.await).await });
            Err(location)
        }
    }
}

/// An answer as a mover gives it.
async fn told<B>(response: Response<B>) -> HttpAnswer
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = response.into_parts();
    let text = |value: &hyper::header::HeaderValue| value.to_str().ok().map(str::to_owned);
    let headers = parts.headers.iter().filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?)));
    let headers = headers.collect();
    let body = match Limited::new(body, MAX_ANSWER_BYTES).collect().await {
        Ok(body) => body.to_bytes().to_vec(),
        Err(error) => {
            tracing::warn!(%error, "the text of an answer to an upload is left out");
            Vec::new()
        }
    };
    HttpAnswer { status: parts.status.as_u16(), headers, body }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use hyper::header::{ETAG, HeaderValue};

    use super::*;

    #[tokio::test]
    async fn an_answer_keeps_its_status_headers_and_text() {
        let mut response = Response::new(Full::new(Bytes::from_static(b"<Error/>")));
        *response.status_mut() = hyper::StatusCode::PRECONDITION_FAILED;
        response.headers_mut().insert(ETAG, HeaderValue::from_static("\"a\""));
        let headers = vec![("etag".to_owned(), "\"a\"".to_owned())];
        assert_eq!(told(response).await, HttpAnswer { status: 412, headers, body: b"<Error/>".to_vec() });
        let long = Response::new(Full::new(Bytes::from(vec![0; MAX_ANSWER_BYTES + 1])));
        assert!(told(long).await.body.is_empty());
    }

    #[tokio::test]
    async fn work_that_sends_nobody_away_gives_its_answer_to_whoever_waits() {
        let shutdown = Shutdown::new(std::time::Duration::from_secs(1));
        let (exit, left) = exit();
        let work: BoxFuture<'static, Result<_, String>> = Box::pin(async move {
            // The way out is dropped unused.
            drop(exit);
            tokio::task::yield_now().await;
            Ok(Response::new(Full::new(Bytes::from_static(b"done"))))
        });
        let answered = attend(work, left, &shutdown).await.expect("nobody left").expect("an answer");
        assert_eq!(answered.into_body().collect().await.expect("a body").to_bytes(), "done");
    }
}
