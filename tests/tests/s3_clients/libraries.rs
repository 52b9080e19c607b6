//! Libraries of Python: boto3 and minio-py, each with a script that does what their users do.
//!
//! `tests/prepare` installs them into a folder of their own, beside what cargo builds.

use anyhow::{Result, ensure};

use crate::programs::{Programs, installed, run};

impl Programs {
    /// The standard output of one of this folder's scripts, by a Python that has the libraries.
    async fn script(&self, name: &str) -> Result<String> {
        self.script_with(name, &[&self.door(), &self.key, &self.secret]).await
    }

    /// The same, with these arguments.
    pub(crate) async fn script_with(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let mut command = self.program(&installed("python")?);
        command.arg(format!("{}/tests/s3_clients/{name}", env!("CARGO_MANIFEST_DIR")));
        command.args(arguments).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("AWS_EC2_METADATA_DISABLED", "true");
        run(command).await?.good()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn boto3_writes_copies_versions_presigns_and_deletes() -> Result<()> {
    let programs = Programs::start().await?;
    let said = programs.script("boto3_client.py").await?;
    ensure!(said.trim() == "all is well", "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn minio_py_writes_lists_tags_and_removes() -> Result<()> {
    let programs = Programs::start().await?;
    let said = programs.script("minio_client.py").await?;
    ensure!(said.trim() == "all is well", "{said}");
    Ok(())
}
