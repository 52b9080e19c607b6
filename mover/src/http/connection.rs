//! One connection: a request, its answer, and the next.
//!
//! Owns the connection. Never holds more of a client's than one head.

use std::{sync::Arc, time::Duration};

use tokio::{sync::oneshot, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use wire::{
    extent::ByteRange,
    mover::{Admission, Fault, FaultKind, Grant, Ticket},
};

use super::{
    HEAD_LIMIT, House,
    head::{self, Asked, Bad, MAX_HEAD_BYTES},
    reply::{self, Reply},
};
use crate::{
    data::{self, Flow, Length, Link, Offered, Returned},
    job::Dealer,
    metrics::{self, Direction},
};

/// How long a gateway may take to say what became of a body, its catalogue's and its own absence included.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A connection behind an answer, and whether it can carry another request.
type Behind = (Link, bool);

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
                part(link).await;
                return;
            }
        };
        let answered = match asked.body {
            None => answer(link, &asked, house).await.map(|link| (link, true)),
            Some(length) => take(link, &asked, length, &mut input, house).await,
        };
        match answered {
            Ok((back, true)) if asked.keep => link = back,
            Ok((back, true)) => {
                data::send_end(back).await;
                return;
            }
            Ok((back, false)) => {
                part(back).await;
                return;
            }
            Err(fault) => {
                debug!(%peer, fault = fault.message, "HTTP connection broken off");
                return;
            }
        }
    }
}

/// Ends a connection whose client may still be sending what nobody reads: its answer must not be lost by a reset.
async fn part(link: Link) {
    let _ = link.end();
    let _ = timeout(HEAD_LIMIT, link.linger()).await;
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

/// Takes one body and answers what its gateway says of it.
async fn take(
    mut link: Link,
    asked: &Asked,
    length: Length,
    input: &mut Vec<u8>,
    house: &House,
) -> Result<Behind, Fault> {
    let admission = match house.ticket(asked.grant.as_deref()) {
        Ok(Ticket::Write(admission)) => admission,
        Ok(Ticket::Read(_)) => return refused(link, "the grant is one to read: ask the gateway", asked, house).await,
        Err(text) => return refused(link, text, asked, house).await,
    };
    let (back, returned) = oneshot::channel();
    // What is behind the body, if a client sends before it is answered, is not taken for a request: the body's reader sees
    // that there is more, and the connection ends.
    let offered = Offered { link, length, early: std::mem::take(input), waits: asked.waits, back };
    let Admission { channel, .. } = admission;
    let answer = match house.hub.offer(channel, Box::new(offered)).await {
        Ok(answer) => answer,
        Err((offered, text)) => return refused(offered.link, text, asked, house).await,
    };
    let ended = |_| Fault::new(FaultKind::PeerLost, "the transfer of a body ended with its connection");
    let clean;
    Returned { link, clean } = returned.await.map_err(ended)?;
    let keep = clean && asked.keep;
    let reply = match timeout(ANSWER_LIMIT, answer).await {
        Ok(Ok(answer)) => reply::given(answer, keep),
        // It may have been published all the same: who asks again finds out.
        _ => reply::refusal(503, "the gateway went away before it said what became of this: ask again", asked),
    };
    say(&mut link, &reply, house).await?;
    Ok((link, clean))
}

/// Refuses a body without reading it.
async fn refused(mut link: Link, text: &str, asked: &Asked, house: &House) -> Result<Behind, Fault> {
    let last = Asked { keep: false, ..asked.clone() };
    say(&mut link, &reply::refusal(403, text, &last), house).await?;
    Ok((link, false))
}

/// Answers one request and gives the connection back.
async fn answer(mut link: Link, asked: &Asked, house: &House) -> Result<Link, Fault> {
    let grant = match house.ticket(asked.grant.as_deref()) {
        Ok(Ticket::Read(grant)) => grant,
        Ok(Ticket::Write(_)) => {
            say(&mut link, &reply::refusal(403, "the grant is one to write: ask the gateway", asked), house).await?;
            return Ok(link);
        }
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
