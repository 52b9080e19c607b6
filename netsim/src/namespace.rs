//! Anonymous network namespaces: hosts that leave nothing behind.
//!
//! A namespace lives as long as a file descriptor, a thread or a process is in it. It has no name under `/run/netns`,
//! so there is nothing to clean up after a crash.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
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

    /// The namespace behind a path such as `/proc/PID/fd/N` or `/proc/PID/ns/net`.
    ///
    /// # Errors
    ///
    /// If nothing is there.
    pub fn open(path: &std::path::Path) -> io::Result<Self> {
        Ok(Self(File::open(path)?.into()))
    }

    /// Where other processes find this namespace, as long as this one lives.
    #[must_use]
    pub fn path(&self) -> std::path::PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    /// A command whose process will be in this namespace, and is killed when the thread that started it ends, however it
    /// ends. It hears every signal, also those that this process holds back for itself.
    ///
    /// # Errors
    ///
    /// If the file descriptor cannot be duplicated.
    pub fn service(&self, program: impl AsRef<std::ffi::OsStr>) -> io::Result<Command> {
        let mut command = self.command(program)?;
        die_with_parent(&mut command);
        Ok(command)
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

#[allow(unsafe_code)]
fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec the closure makes three system calls, sigprocmask, prctl and getppid, which allocate
    // nothing; the set of signals is the closure's own, and empty.
    unsafe {
        command.pre_exec(move || {
            let none: libc::sigset_t = std::mem::zeroed();
            if libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) < 0 {
                return Err(io::Error::last_os_error());
            }
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                return Err(io::Error::last_os_error());
            }
            // It may have died before the call above.
            if u32::try_from(libc::getppid()) != Ok(parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
}

/// Makes this process root in a user namespace of its own, where it may then make network namespaces. It must not have
/// more than one thread yet.
///
/// # Errors
///
/// `PermissionDenied` where the machine does not allow user namespaces.
pub fn enter_user_namespace() -> io::Result<()> {
    let (uid, gid) = (nix::unistd::Uid::current(), nix::unistd::Gid::current());
    unshare(CloneFlags::CLONE_NEWUSER)?;
    // Linux, user_namespaces(7): groups can be mapped only after setgroups(2) is given up.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Moves this process into the user namespace of another one. It must not have more than one thread yet.
///
/// # Errors
///
/// The kernel's own.
pub fn join_user_namespace(pid: u32) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{pid}/ns/user"))?;
    setns(namespace, CloneFlags::CLONE_NEWUSER).map_err(io::Error::from)
}

fn run_apart<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
    })
}
