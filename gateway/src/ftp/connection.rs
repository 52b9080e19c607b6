//! One control connection's driver: events in, actions out.
//!
//! Owns the control connection, the session and the tokens of the work under way. Talks to the [`Desk`] that does the
//! work. Never decides what a command means; it only waits, writes and starts tasks.
//!
//! Invariant: a client that does not read replies stops us from reading its commands and from listening to its work,
//! so that nothing is kept for it beyond [`HIGH_WATER_BYTES`] and one event.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use daemon::{
    Shutdown,
    tls::{self, Clients, Peer},
};
use futures::FutureExt as _;
use metrics::{counter, histogram};
use rustls::ServerConfig;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info, info_span, warn};
use wire::ftp::Reply;

use super::{
    control::{Control, Happened},
    desk::{Desk, Voice},
    door::Seat,
    presence::Line,
    session::{
        Action, Event, Limit, Rules, Session, Shown, Ticket,
        work::{Outcome, Work},
    },
};

/// Replies waiting for the client beyond which nothing more is said.
const HIGH_WATER_BYTES: usize = 64 * 1024;

/// Events of work under way that wait for the driver.
const EVENTS: usize = 16;

/// How connections are run, the same for all of a door.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) tls: Arc<ServerConfig>,
    pub(super) clients: Clients,
    pub(super) login_limit: Duration,
    pub(super) idle_limit: Duration,
    pub(super) unread_limit: Duration,
}

/// One connection from its greeting to its end.
pub(super) struct Connection<D> {
    terms: Terms,
    control: Control,
    /// For those who want to know whether the client is still there; ends with the connection.
    _line: Arc<Line>,
    session: Session,
    desk: Arc<D>,
    shutdown: Shutdown,
    seat: Seat,
    events: (mpsc::Sender<Event>, mpsc::Receiver<Event>),
    under_way: HashMap<Ticket, CancellationToken>,
    began: Instant,
    /// When the client last did something, or something of its ended.
    active: Instant,
    secure: bool,
    close: bool,
    /// The last reply was the answer to QUIT.
    goodbye: bool,
    stopping: bool,
}

impl<D: Desk> Connection<D> {
    /// Greets.
    pub(super) fn new(
        (control, line): (Control, Arc<Line>),
        rules: Rules,
        desk: Arc<D>,
        terms: Terms,
        seat: Seat,
        shutdown: Shutdown,
    ) -> Self {
        let (session, greeting) = Session::new(rules);
        let now = Instant::now();
        let mut connection = Self {
            terms,
            control,
            _line: line,
            session,
            desk,
            shutdown,
            seat,
            events: mpsc::channel(EVENTS),
            under_way: HashMap::new(),
            began: now,
            active: now,
            secure: false,
            close: false,
            goodbye: false,
            stopping: false,
        };
        connection.perform(greeting);
        connection
    }

    /// Runs until the connection ends. What is committing then goes on in tasks of its own.
    pub(super) async fn run(mut self) {
        while !self.close {
            if self.secure && !self.handshake().await {
                break;
            }
            let unsent = self.control.unsent_bytes();
            let want_line = self.session.wants_line() && unsent < HIGH_WATER_BYTES;
            let limit = self.session.limit();
            let deadline = limit.map(|limit| match limit {
                Limit::Login => self.began + self.terms.login_limit,
                Limit::Idle => self.active + self.terms.idle_limit,
            });
            let unread = self.control.unread_since().map(|since| since + self.terms.unread_limit);
            let event = tokio::select! {
                () = self.shutdown.cutting() => break,
                () = self.shutdown.stopping(), if !self.stopping => {
                    self.stopping = true;
                    Event::Stopping
                }
                Some(event) = self.events.1.recv(), if unsent < HIGH_WATER_BYTES => event,
                happened = self.control.next(want_line) => match happened {
                    Happened::Flushed => continue,
                    Happened::Line(line) => Event::Line(line),
                    Happened::Ended(error) => {
                        debug!(error = error.map(tracing::field::display), "control connection closed by the client");
                        Event::Left
                    }
                },
                Some(()) = at(deadline) => match limit {
                    Some(limit) => Event::Expired(limit),
                    None => continue,
                },
                Some(()) = at(unread) => {
                    info!(unsent, "client leaves replies unread");
                    break;
                }
            };
            self.take(event);
            // What work said meanwhile goes out with it.
            while !self.secure
                && self.control.unsent_bytes() < HIGH_WATER_BYTES
                && let Ok(event) = self.events.1.try_recv()
            {
                self.take(event);
            }
        }
        // Whatever the reason was: what moves stops, and what commits goes on.
        let last = self.session.apply(Event::Left);
        self.perform(last);
        self.control.close(self.goodbye).await;
    }

    fn take(&mut self, event: Event) {
        if matches!(event, Event::Line(_) | Event::Done { .. } | Event::Received { .. }) {
            self.active = Instant::now();
        }
        if let Event::Done { ticket, .. } = &event {
            self.under_way.remove(ticket);
        }
        let logged_in = self.session.account().is_some();
        let actions = self.session.apply(event);
        if let (false, Some(account)) = (logged_in, self.session.account()) {
            self.seat.logged_in();
            tracing::Span::current().record("principal", tracing::field::display(account));
            info!("logged in");
        }
        self.perform(actions);
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(reply) => self.send(&reply),
                Action::SendText(text) => self.control.send_text(&text),
                Action::Secure => self.secure = true,
                Action::Run { ticket, work } => self.start(ticket, *work),
                Action::Cancel { ticket } => {
                    if let Some(cancel) = self.under_way.get(&ticket) {
                        cancel.cancel();
                    }
                }
                Action::DropPort => self.desk.drop_port(),
                Action::Close => self.close = true,
            }
        }
    }

    fn send(&mut self, reply: &Reply) {
        debug!(reply = %reply, "reply");
        // RFC 959 section 4.2.2: service closing control connection.
        self.goodbye = reply.code() == 221;
        counter!("penstock_ftp_replies_total", "class" => class(reply)).increment(1);
        self.control.send(reply);
    }

    /// Starts work in a task of its own, which says what came of it.
    fn start(&mut self, ticket: Ticket, work: Work) {
        let cancel = CancellationToken::new();
        self.under_way.insert(ticket, cancel.clone());
        let events = self.events.0.clone();
        let verb = verb(&work);
        let span = info_span!("ftp.work", verb, ticket = ticket.0);
        let voice = Voice::new(ticket, events.clone(), cancel);
        let task = Arc::clone(&self.desk).work(work, voice);
        let began = Instant::now();
        let task = async move {
            let outcome = AssertUnwindSafe(task).catch_unwind().await.unwrap_or_else(|_| {
                // The panic hook has said where. The session goes on.
                Outcome::Replied(Reply::new(451, "The gateway made a mistake; its log says where: tell the operator."))
            });
            histogram!("penstock_ftp_work_seconds", "verb" => verb).record(began.elapsed().as_secs_f64());
            counter!("penstock_ftp_work_total", "verb" => verb, "class" => class(outcome.reply())).increment(1);
            // Nobody listens once the connection has ended.
            let _ = events.send(Event::Done { ticket, outcome }).await;
        };
        self.shutdown.spawn_until_cut(task.instrument(span));
    }

    /// Does what AUTH TLS asked for. Whether the connection lives.
    async fn handshake(&mut self) -> bool {
        self.secure = false;
        let until = self.began + self.terms.login_limit;
        let handshake = self.control.secure(&self.terms.tls, &self.terms.clients);
        let peer = tokio::select! {
            () = self.shutdown.cutting() => return false,
            result = tokio::time::timeout_at(until, handshake) => match result {
                Ok(Ok(peer)) => peer,
                Ok(Err(error)) => {
                    let why = std::error::Error::source(&error)
                        .and_then(|source| source.downcast_ref::<std::io::Error>())
                        .map_or_else(|| error.to_string(), tls::why);
                    info!(error = why, "no TLS");
                    counter!("penstock_ftp_handshakes_total", "outcome" => "failed").increment(1);
                    return false;
                }
                Err(_) => {
                    info!("TLS handshake takes too long");
                    counter!("penstock_ftp_handshakes_total", "outcome" => "late").increment(1);
                    return false;
                }
            },
        };
        let (outcome, certificate) = match peer {
            Peer::Identified(identity) => {
                info!(subject = %identity, proxy_levels = identity.proxy_levels, "certificate trusted");
                self.desk.met(Some(identity));
                ("trusted", Shown::Trusted)
            }
            Peer::Anonymous => {
                self.desk.met(None);
                ("anonymous", Shown::Nothing)
            }
            Peer::Refused(error) => {
                warn!(%error, "certificate refused");
                self.desk.met(None);
                ("refused", Shown::Refused(error.to_string()))
            }
        };
        counter!("penstock_ftp_handshakes_total", "outcome" => outcome).increment(1);
        self.take(Event::Secured { certificate });
        true
    }
}

/// Ends at a moment; at once, with nothing, if there is none.
async fn at(moment: Option<Instant>) -> Option<()> {
    sleep_until(moment?).await;
    Some(())
}

/// The first digit of a code, as a label.
fn class(reply: &Reply) -> &'static str {
    match reply.code() / 100 {
        1 => "1yz",
        2 => "2yz",
        3 => "3yz",
        4 => "4yz",
        _ => "5yz",
    }
}

/// A name for spans and counters.
const fn verb(work: &Work) -> &'static str {
    match work {
        Work::Login(_) => "login",
        Work::Names(_) => "name",
        Work::Ask(_) => "ask",
        Work::Show { .. } => "show",
        Work::ChooseCos(_) => "setcos",
        Work::Stage { .. } => "stage",
        Work::Listen { .. } => "listen",
        Work::Retrieve(_) => "retrieve",
        Work::Store(_) => "store",
        Work::List(_) => "list",
    }
}
