//! A way to a PostgreSQL server that can be closed: the network between gateway and catalogue, when it breaks.
//!
//! Owns a socket in a folder of its own, as the server has one, and what goes through it. Closing cuts every connection
//! and lets nobody in; opening lets them in again.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::{
    io::copy_bidirectional,
    net::{UnixListener, UnixStream},
    task::{JoinHandle, JoinSet},
};

/// What PostgreSQL calls its socket, for the usual port.
const SOCKET: &str = ".s.PGSQL.5432";

/// A way to a server that can be closed.
pub struct Gate {
    folder: TempDir,
    server: PathBuf,
    task: Option<JoinHandle<()>>,
}

impl Gate {
    /// An open gate before the server that this URL leads to, and the URL through the gate.
    ///
    /// # Panics
    ///
    /// If the URL names no folder with a socket.
    #[must_use]
    pub fn before(url: &str) -> (Self, String) {
        let (base, server) = url.split_once("?host=").expect("a URL with a socket's folder");
        let folder = tempfile::tempdir().expect("a folder");
        let through = format!("{base}?host={}", folder.path().display());
        let mut gate = Self { folder, server: Path::new(server).join(SOCKET), task: None };
        gate.open();
        (gate, through)
    }

    /// Lets connections through.
    ///
    /// # Panics
    ///
    /// If the socket cannot be made.
    pub fn open(&mut self) {
        let listener = UnixListener::bind(self.folder.path().join(SOCKET)).expect("a socket");
        let server = self.server.clone();
        self.task = Some(tokio::spawn(async move {
            // Aborted with this task.
            let mut connections = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let server = server.clone();
                connections.spawn(async move {
                    if let Ok(mut far) = UnixStream::connect(server).await {
                        let _ = copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        }));
    }

    /// Cuts every connection and lets nobody in.
    ///
    /// # Panics
    ///
    /// If the gate is closed already.
    pub async fn close(&mut self) {
        let task = self.task.take().expect("an open gate");
        task.abort();
        let _ = task.await;
        std::fs::remove_file(self.folder.path().join(SOCKET)).expect("a socket");
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
