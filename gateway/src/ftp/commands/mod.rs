//! What each piece of work does with the rest of the gateway.
//!
//! - `names`: directories, deletes, renames, attributes.
//! - `questions`: sizes, facts, sums, usage, listings in a reply.
//! - `transfers`: files and listings over data connections; `port`: those connections; `markers`: 111 and 112.
//! - `listing`: directories as text.
//! - `stage`: SITE STAGE.
//! - `refusal`: failures as replies.
//!
//! Owns who is logged in on one connection, and its data port. Talks to identity, files, transfer and hsm. Never
//! decides whether a command may come: the session has.

mod listing;
mod markers;
mod names;
mod port;
mod questions;
mod refusal;
mod stage;
mod transfers;

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use catalog::{Catalog, TreePath};
use daemon::{Clock, trust::Identity};
use futures::future::BoxFuture;
use tracing::info;
use wire::{
    ftp::{Reply, Text},
    id::AccountName,
};

use self::{
    port::{Ports, Terms, class_name},
    refusal::refusal,
};
use super::{
    config::FtpConfig,
    desk::{Desk, Voice},
    path::AbsolutePath,
    presence::Line,
    session::work::{Login, Outcome, Work},
};
use crate::{
    failure::{Failure, FailureKind},
    files::Files,
    identity::{Identities, Principal},
    transfer::{Stager, Transfers},
};

/// What the door needs of the gateway. Cheap to clone.
#[derive(Clone)]
pub struct Services {
    /// Who is behind a certificate.
    pub identities: Identities,
    /// Names.
    pub files: Files,
    /// Data.
    pub transfers: Transfers,
    /// The recall queue.
    pub stager: Arc<dyn Stager>,
    /// Usage of accounts.
    pub catalog: Catalog,
    /// The time.
    pub clock: Clock,
}

/// Does the work of one connection.
pub(super) struct Commands {
    services: Services,
    config: Arc<FtpConfig>,
    peer: SocketAddr,
    /// The client's presence; gone with the connection.
    line: Weak<Line>,
    /// The address of the control connection on our side.
    local: IpAddr,
    identity: Mutex<Option<Identity>>,
    who: Mutex<Option<Principal>>,
    ports: Ports,
}

impl Commands {
    pub(super) fn new(
        services: Services,
        config: Arc<FtpConfig>,
        peer: SocketAddr,
        local: IpAddr,
        line: Weak<Line>,
    ) -> Self {
        Self {
            services,
            config,
            peer,
            line,
            local,
            identity: Mutex::default(),
            who: Mutex::default(),
            ports: Ports::default(),
        }
    }

    /// Who is logged in. The session lets nothing through before.
    fn who(&self) -> Result<Principal, Failure> {
        let who = self.who.lock().unwrap_or_else(PoisonError::into_inner).clone();
        who.ok_or_else(|| Failure::new(FailureKind::NotLoggedIn, "log in first"))
    }

    fn tree(&self, path: &AbsolutePath) -> Result<TreePath, Failure> {
        Files::path(&TreePath::root(), path.as_str())
    }

    fn port_terms(&self) -> Terms {
        let identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        Terms {
            peer: self.peer.ip(),
            foreign: self.config.third_party_transfers,
            subject: identity.as_ref().map(|identity| identity.subject.to_string()),
            rate_limit: self.config.rate_limit.map(|limit| limit.bytes()),
        }
    }

    /// A name that nobody has, for `STOU`: in time and random enough that two clients do not meet.
    fn new_name(&self, directory: &AbsolutePath) -> Result<AbsolutePath, Failure> {
        let name = format!("stou-{:x}-{:x}", self.services.clock.now_us(), self.peer.port());
        directory.join_text(&name).map_err(|error| Failure::new(FailureKind::BadName, error))
    }

    async fn login(&self, login: Login) -> Outcome {
        let principal = match login {
            Login::Certificate { account } => self.by_certificate(account).await,
            Login::Anonymous => self.anonymous().await,
        };
        let entered = async {
            let principal = principal?;
            let home = self.services.files.home(&principal).await?;
            let home = AbsolutePath::root().join_text(&home.to_string());
            Ok((principal, home.map_err(|error| Failure::new(FailureKind::BadName, error))?))
        };
        let (principal, home) = match entered.await {
            Ok(entered) => entered,
            Err(failure) => {
                let failure: Failure = failure;
                info!(reason = failure.message(), "login refused");
                return Outcome::LoginRefused(refusal(&failure, "login"));
            }
        };
        let account = principal.account.clone();
        *self.who.lock().unwrap_or_else(PoisonError::into_inner) = Some(principal);
        // RFC 4217 section 14: 232 where the certificate was enough, 230 behind a password.
        let code = if matches!(self.config_login(), How::Certificate) { 232 } else { 230 };
        let reply = Reply::new(code, format!("Logged in as {account}; {home} is the current directory."));
        Outcome::LoggedIn { account, home, reply }
    }

    fn config_login(&self) -> How {
        let identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        if identity.is_some() { How::Certificate } else { How::Anonymous }
    }

    async fn by_certificate(&self, account: Option<AccountName>) -> Result<Principal, Failure> {
        let identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let identity = identity.ok_or_else(|| Failure::new(FailureKind::NotLoggedIn, "no certificate was shown"))?;
        self.services.identities.principal(identity.subject.as_str(), account.as_ref()).await
    }

    async fn anonymous(&self) -> Result<Principal, Failure> {
        let nobody = || Failure::new(FailureKind::NotLoggedIn, "nobody is let in without a certificate");
        let name = self.config.anonymous_account.as_ref().ok_or_else(nobody)?;
        self.services.identities.account(name).await
    }

    async fn choose_cos(&self, class: &Text) -> Outcome {
        let chosen = async {
            let name = class_name(class.as_str())?;
            self.services.files.class(&name).await
        };
        match chosen.await {
            Ok(class) => {
                let text = format!("Files are stored with class of service {} from now on.", class.name);
                Outcome::CosChosen(class.name, Reply::new(200, text))
            }
            Err(failure) => Outcome::Replied(Reply::new(504, refusal::sentence(failure.message()))),
        }
    }
}

enum How {
    Certificate,
    Anonymous,
}

impl Desk for Commands {
    fn met(&self, identity: Option<Identity>) {
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = identity;
    }

    fn work(self: Arc<Self>, work: Work, voice: Voice) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            match work {
                Work::Login(login) => self.login(login).await,
                Work::Names(work) => self.names(work).await,
                Work::Ask(question) => self.ask(question).await,
                Work::Show { path, form } => self.show(path, form, voice).await,
                Work::ChooseCos(class) => self.choose_cos(&class).await,
                Work::Stage { path, wait_seconds } => self.stage(path, wait_seconds, voice).await,
                Work::Listen { port, form } => self.listen(port, form).await,
                Work::Retrieve(retrieve) => self.retrieve(retrieve, voice).await,
                Work::Store(store) => self.store(store, voice).await,
                Work::List(list) => self.list(list, voice).await,
            }
        })
    }

    fn drop_port(&self) {
        self.ports.drop_port();
    }
}
