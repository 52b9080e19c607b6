//! The live stream: one JSON value a line, until the reader goes.

use std::convert::Infallible;

use axum::{
    body::Body,
    extract::State as Axum,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use wire::admin::events::{Event, Stamped};

use super::State;
use crate::hsm::Live;

/// What the content is: newline-delimited JSON.
const CONTENT_TYPE: &str = "application/x-ndjson";

pub(super) async fn stream(Axum(state): Axum<State>) -> Response {
    let live = state.hsm.live().clone();
    let events = live.watch();
    let hello = stream::iter([line(&live.hello())]);
    let rest = stream::unfold((live, events), |(live, mut events)| async move {
        let stamped = next(&live, &mut events).await?;
        Some((line(&stamped), (live, events)))
    });
    let body = Body::from_stream(hello.chain(rest).map(Ok::<_, Infallible>));
    ([(header::CONTENT_TYPE, CONTENT_TYPE), (header::CACHE_CONTROL, "no-store")], body).into_response()
}

async fn next(live: &Live, events: &mut Receiver<Stamped>) -> Option<Stamped> {
    match events.recv().await {
        Ok(stamped) => Some(stamped),
        Err(RecvError::Lagged(events)) => Some(live.stamped(Event::Missed { events })),
        Err(RecvError::Closed) => None,
    }
}

fn line(stamped: &Stamped) -> Bytes {
    let mut text = serde_json::to_vec(stamped).expect("an event has text keys and finite numbers");
    text.push(b'\n');
    text.into()
}
