//! A bucket mounted by s3fs, as people use it who want files: copied into, renamed, read back, removed.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use tokio::process::{Child, Command};

use crate::{
    LARGE,
    programs::{Programs, run},
};

/// How long s3fs may take to mount.
const MOUNT_LIMIT: Duration = Duration::from_secs(60);

/// A mounted bucket. It is unmounted when this is dropped, lazily if the test has failed.
struct Mounted {
    path: PathBuf,
    program: Child,
}

impl Programs {
    /// Mounts a bucket.
    async fn mount(&self, bucket: &str) -> Result<Mounted> {
        use std::os::unix::fs::PermissionsExt as _;

        let (path, keys) = (self.path("mounted"), self.path("s3fs-keys"));
        std::fs::create_dir_all(&path)?;
        std::fs::write(&keys, format!("{}:{}\n", self.key, self.secret))?;
        std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600))?;
        let mut command = self.program("s3fs");
        command.arg(bucket).arg(&path).arg("-f");
        command.arg("-o").arg(format!("url=http://{}", self.door()));
        command.arg("-o").arg(format!("passwd_file={}", keys.display()));
        command.args(["-o", "use_path_request_style", "-o", "endpoint=us-east-1", "-o", "multipart_size=6"]);
        let log = std::fs::File::create(self.path("s3fs.log"))?;
        command.stdout(Stdio::from(log.try_clone()?)).stderr(Stdio::from(log));
        let program = command.kill_on_drop(true).spawn().context("start s3fs: tests/prepare installs it")?;
        let mut mounted = Mounted { path, program };
        let until = tokio::time::Instant::now() + MOUNT_LIMIT;
        while !mounted.is_there()? {
            let ended = mounted.program.try_wait()?.is_some();
            ensure!(!ended, "s3fs ended without mounting: {}", String::from_utf8_lossy(&self.read("s3fs.log")?));
            ensure!(tokio::time::Instant::now() < until, "s3fs does not mount");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(mounted)
    }
}

impl Mounted {
    fn is_there(&self) -> Result<bool> {
        let wanted = self.path.display().to_string();
        Ok(std::fs::read_to_string("/proc/mounts")?.lines().any(|line| line.split(' ').nth(1) == Some(wanted.as_str())))
    }

    async fn unmount(mut self) -> Result<()> {
        let mut command = Command::new("umount");
        command.arg(&self.path);
        run(command).await?.good()?;
        let ended = tokio::time::timeout(MOUNT_LIMIT, self.program.wait()).await;
        ensure!(ended.context("s3fs hangs")??.success(), "s3fs ended with an error");
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_there().unwrap_or(false) {
            let _ = std::process::Command::new("umount").arg("--lazy").arg(&self.path).status();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s3fs_mounts_copies_renames_and_reads_back() -> Result<()> {
    let programs = Programs::start().await?;
    programs.curl(&["-X", "PUT"], "files").await?.good()?;
    let data = programs.write("in", LARGE, 10)?;
    let mounted = programs.mount("files").await?;
    let (first, second) = (mounted.path.join("dir/first"), mounted.path.join("dir/second"));
    tokio::fs::create_dir(mounted.path.join("dir")).await?;
    tokio::fs::copy(programs.path("in"), &first).await?;
    tokio::fs::rename(&first, &second).await?;
    ensure!(tokio::fs::read(&second).await? == data, "the file came back changed");
    ensure!(!tokio::fs::try_exists(&first).await?, "the old name is there still");
    let by_s3 = programs.curl(&[], "files/dir/second").await?;
    ensure!(by_s3.out == data, "S3 reads what the mount wrote");
    tokio::fs::remove_file(&second).await?;
    tokio::fs::remove_dir(mounted.path.join("dir")).await?;
    mounted.unmount().await?;
    let listed = programs.curl(&[], "files").await?.good()?;
    ensure!(!listed.contains("<Key>"), "{listed}");
    Ok(())
}
