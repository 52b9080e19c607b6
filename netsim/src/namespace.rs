//! Anonymous network namespaces: hosts that leave nothing behind.
//!
//! A namespace lives as long as a file descriptor, a thread or a process is in it. It has no name under `/run/netns`,
//! so there is nothing to clean up after a crash.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    os::unix::process::CommandExt,
    process::Command,
    thread,
};

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// A new namespace, with nothing in it but a loopback interface that is down.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` without `CAP_SYS_ADMIN`.
    pub fn new() -> io::Result<Self> {
        // On a thread of its own, which ends in the new namespace; the caller stays where it is.
        run_apart(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(Self(File::open("/proc/thread-self/ns/net")?.into()))
        })
    }

    /// Moves the calling thread into this namespace. Sockets it makes from now on are this host's.
    ///
    /// # Errors
    ///
    /// The kernel's own.
    pub fn enter(&self) -> io::Result<()> {
        setns(&self.0, CloneFlags::CLONE_NEWNET).map_err(io::Error::from)
    }

    /// Runs `work` on a thread of its own in this namespace, and waits for it.
    ///
    /// # Errors
    ///
    /// Those of `work`, and those of entering.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        run_apart(|| {
            self.enter()?;
            work()
        })
    }

    /// A command whose process will be in this namespace.
    ///
    /// # Errors
    ///
    /// If the file descriptor cannot be duplicated.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> io::Result<Command> {
        let namespace = self.0.try_clone()?;
        let mut command = Command::new(program);
        enter_before_exec(&mut command, namespace);
        Ok(command)
    }

    /// Another handle of the same namespace.
    ///
    /// # Errors
    ///
    /// If the file descriptor cannot be duplicated.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }
}

#[allow(unsafe_code)]
fn enter_before_exec(command: &mut Command, namespace: OwnedFd) {
    // SAFETY: between fork and exec the closure makes one system call, setns, and allocates nothing; an error is
    // returned by number.
    unsafe {
        command.pre_exec(move || {
            setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)
                .map_err(|error| io::Error::from_raw_os_error(error as i32))
        });
    }
}

fn run_apart<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
    })
}
