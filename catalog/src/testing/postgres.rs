//! A PostgreSQL cluster of a test's own: private socket, no TCP, no fsync, gone afterwards.
//!
//! Owns a temporary folder and a shell that owns the server. The shell waits for the end of its standard input,
//! which comes when the cluster is dropped *or this process dies in whatever way*; then it stops the server and
//! removes the folder.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};

/// Where Debian puts the server's programs, by version.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// Who the server runs as when we are root, which it refuses to run as.
const SERVER_USER: &str = "postgres";
/// How long a cluster may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Stops the server and removes the folder when standard input ends. `$1` is the folder, the rest starts the server.
const KEEPER: &str = r#"
folder=$1; shift
trap '' INT TERM HUP
"$@" </dev/null >"$folder/server.log" 2>&1 &
server=$!
while read -r _; do :; done
kill -QUIT "$server" 2>/dev/null
wait "$server"
rm -rf "$folder"
"#;

/// Why a cluster could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The server's programs are not installed.
    #[error("no PostgreSQL server below {PROGRAMS}: install it (Debian: apt-get install postgresql)")]
    NotInstalled,
    /// A program could not be run.
    #[error("run {program}")]
    Run {
        /// Which.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A program failed.
    #[error("{program} failed: {output}")]
    Failed {
        /// Which.
        program: String,
        /// What it said.
        output: String,
    },
    /// The server answers nothing.
    #[error("PostgreSQL did not start within a minute; its log: {log}")]
    Silent {
        /// The end of its log.
        log: String,
    },
}

/// A running cluster; it is stopped and removed when this is dropped.
#[derive(Debug)]
pub struct PostgresCluster {
    folder: PathBuf,
    keeper: Child,
    databases: AtomicU64,
}

impl PostgresCluster {
    /// The cluster that all tests of this process share while any of them runs.
    ///
    /// # Errors
    ///
    /// [`ClusterError`], with what to install if that is missing.
    pub async fn shared() -> Result<Arc<Self>, ClusterError> {
        static SHARED: Mutex<Weak<PostgresCluster>> = Mutex::new(Weak::new());
        let cluster = {
            let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
            match shared.upgrade() {
                Some(cluster) => cluster,
                None => {
                    let cluster = Arc::new(Self::launch(false)?);
                    *shared = Arc::downgrade(&cluster);
                    cluster
                }
            }
        };
        cluster.wait().await?;
        Ok(cluster)
    }

    /// Starts a cluster. With `durable` it syncs every commit, for measurements; without it is faster.
    ///
    /// # Errors
    ///
    /// [`ClusterError`], with what to install if that is missing.
    pub async fn start(durable: bool) -> Result<Self, ClusterError> {
        let cluster = Self::launch(durable)?;
        cluster.wait().await?;
        Ok(cluster)
    }

    fn launch(durable: bool) -> Result<Self, ClusterError> {
        let programs = programs().ok_or(ClusterError::NotInstalled)?;
        let folder = new_folder().map_err(|source| run_error("mkdir", source))?;
        let as_root = is_root();
        if as_root {
            run(Command::new("chown").arg(SERVER_USER).arg(&folder))?;
        }
        let data = folder.join("data");
        let mut initdb = as_server(as_root, &programs.join("initdb"));
        initdb.arg("-D").arg(&data).args(["-U", "penstock", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]);
        run(initdb.current_dir(&folder))?;

        let server = as_server(as_root, &programs.join("postgres"));
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "keeper"]).arg(&folder).arg(server.get_program()).args(server.get_args());
        keeper.arg("-D").arg(&data).arg("-k").arg(&folder).args(["-h", "", "-c", "max_connections=200"]);
        if !durable {
            keeper.args(["-F", "-c", "full_page_writes=off", "-c", "synchronous_commit=off"]);
        }
        let keeper = keeper
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| run_error("sh", source))?;
        Ok(Self { folder, keeper, databases: AtomicU64::new(0) })
    }

    /// Waits until the server answers.
    async fn wait(&self) -> Result<(), ClusterError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(conn) = PgConnection::connect(&self.url("postgres")).await {
                let _ = conn.close().await;
                return Ok(());
            }
            if Instant::now() > deadline {
                let log = std::fs::read_to_string(self.folder.join("server.log")).unwrap_or_default();
                return Err(ClusterError::Silent { log });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Makes a new, empty database and returns its URL.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Failed`] if the server refuses.
    pub async fn database(&self) -> Result<String, ClusterError> {
        let failed = |error: sqlx::Error| ClusterError::Failed {
            program: "CREATE DATABASE".to_owned(),
            output: error.to_string(),
        };
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut conn = PgConnection::connect(&self.url("postgres")).await.map_err(failed)?;
        let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::query(create).execute(&mut conn).await.map_err(failed)?;
        let _ = conn.close().await;
        Ok(self.url(&name))
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://penstock@localhost/{database}?host={}", self.folder.display())
    }
}

impl Drop for PostgresCluster {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(PROGRAMS).ok()?.filter_map(Result::ok);
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let installed = versions.map(|entry| entry.path()).filter(|path| path.join("bin/postgres").exists());
    installed.max_by_key(|path| version(path)).map(|path| path.join("bin"))
}

fn new_folder() -> io::Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    // Short: a socket's path has 107 bytes at most.
    let folder = std::env::temp_dir().join(format!("penstock-pg-{}-{number}", std::process::id()));
    std::fs::create_dir(&folder)?;
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
    Ok(folder)
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn as_server(as_root: bool, program: &Path) -> Command {
    if !as_root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", SERVER_USER, "--regid", SERVER_USER, "--init-groups"]).arg(program);
    command
}

fn run(command: &mut Command) -> Result<(), ClusterError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } =
        command.stdin(Stdio::null()).output().map_err(|source| run_error(&program, source))?;
    if status.success() {
        return Ok(());
    }
    let output = [stdout, stderr].concat();
    Err(ClusterError::Failed { program, output: String::from_utf8_lossy(&output).into_owned() })
}

fn run_error(program: &str, source: io::Error) -> ClusterError {
    ClusterError::Run { program: program.to_owned(), source }
}
