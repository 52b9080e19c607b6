//! One connection: a request, its answer, and the next.
//!
//! Owns the connection. Never holds more of a client's than one head.

use std::sync::Arc;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use wire::{
    extent::ByteRange,
    mover::{Fault, FaultKind, Grant},
};

use super::{
    HEAD_LIMIT, House,
    head::{self, Asked, Bad, MAX_HEAD_BYTES},
    reply::{self, Reply},
};
use crate::{
    data::{self, Flow, Link},
    job::Dealer,
    metrics::{self, Direction},
};

/// Serves a connection to its end.
pub(super) async fn serve(mut link: Link, house: &House) {
    let peer = link.peer();
    let mut input = Vec::new();
    loop {
        let asked = tokio::select! {
            asked = timeout(HEAD_LIMIT, next(&mut link, &mut input)) => asked,
            () = house.env.shutdown.stopping() => return,
        };
        let asked = match asked {
            Ok(Ok(Some(asked))) => asked,
            // It has closed, or says nothing any more.
            Ok(Ok(None)) | Err(_) => return,
            Ok(Err(bad)) => {
                let _ = say(&mut link, &reply::bad(bad), house).await;
                // It may still be sending what is refused; its answer must not be lost by a reset.
                let _ = link.end();
                let _ = timeout(HEAD_LIMIT, link.linger()).await;
                return;
            }
        };
        match answer(link, &asked, house).await {
            Ok(back) if asked.keep => link = back,
            Ok(back) => {
                data::send_end(back).await;
                return;
            }
            Err(fault) => {
                debug!(%peer, fault = fault.message, "HTTP connection broken off");
                return;
            }
        }
    }
}

/// The next request; `None` if the client has closed.
async fn next(link: &mut Link, input: &mut Vec<u8>) -> Result<Option<Asked>, Bad> {
    loop {
        if let Some((asked, length)) = head::parse(input)? {
            input.drain(..length);
            return Ok(Some(asked));
        }
        match link.read(input, MAX_HEAD_BYTES - input.len().min(MAX_HEAD_BYTES)).await {
            Ok(1..) => {}
            _ => return Ok(None),
        }
    }
}

/// Answers one request and gives the connection back.
async fn answer(mut link: Link, asked: &Asked, house: &House) -> Result<Link, Fault> {
    let grant = match house.grant(asked.grant.as_deref()) {
        Ok(grant) => grant,
        Err(text) => {
            say(&mut link, &reply::refusal(403, text, asked), house).await?;
            return Ok(link);
        }
    };
    let reply = reply::reply(asked, &grant);
    let Some(range) = reply.bytes else {
        say(&mut link, &reply, house).await?;
        return Ok(link);
    };
    match send(link, &reply, &grant, range, house).await {
        Ok(link) => {
            metrics::http_answered(&house.env.mover, reply.status);
            Ok(link)
        }
        Err((fault, None)) => Err(fault),
        // The file was purged or moved since the gateway looked.
        Err((fault, Some(mut link))) => {
            debug!(fault = fault.message, "a granted file cannot be read");
            let text = match fault.kind {
                FaultKind::BadRequest => "what the grant names is not here any more: ask the gateway again",
                _ => "the file cannot be read here now: ask the gateway again",
            };
            say(&mut link, &reply::refusal(503, text, asked), house).await?;
            Ok(link)
        }
    }
}

async fn send(link: Link, reply: &Reply, grant: &Grant, range: ByteRange, house: &House) -> Result<Link, data::Unsent> {
    let env = &house.env;
    let pieces = match reply::pieces(grant, range) {
        Ok(pieces) => pieces,
        Err(fault) => return Err((fault, Some(link))),
    };
    let over = CancellationToken::new();
    let flow = Flow::new(env.mover.clone(), Direction::Sent, env.totals.clone(), None, over);
    let dealer = Dealer::new(env.volumes.clone(), pieces, u64::MAX);
    let (head, turns) = (reply.head.clone(), env.turns.clone());
    data::answer(link, head, Arc::new(dealer), Arc::new(flow), turns, house.stall_limit).await
}

/// Sends an answer that is in memory.
async fn say(link: &mut Link, reply: &Reply, house: &House) -> Result<(), Fault> {
    metrics::http_answered(&house.env.mover, reply.status);
    let bytes = [&reply.head[..], reply.text.as_bytes()].concat();
    timeout(house.stall_limit, data::send_bytes(link, &bytes))
        .await
        .unwrap_or_else(|_| Err(Fault::new(FaultKind::PeerStalled, "the client takes no answer")))
}
