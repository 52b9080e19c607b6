//! lftp.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::programs::{Programs, write};

/// A tree with what trees have: empty files and directories, spaces, names that look like options.
fn make_tree(root: &Path) -> Result<()> {
    for (number, (name, bytes)) in
        [("a", 0), ("b c", 10), ("-dash", 4096), ("sub/deep/x", 300_000), ("sub/ü", 77), ("z.bin", 1_500_000)]
            .into_iter()
            .enumerate()
    {
        write(&root.join(name), bytes, number as u64)?;
    }
    std::fs::create_dir_all(root.join("empty"))?;
    Ok(())
}

fn same_tree(left: &Path, right: &Path) -> Result<()> {
    let output = std::process::Command::new("diff").arg("-r").arg(left).arg(right).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lftp_mirrors_a_tree_there_and_back_passive_and_active() -> Result<()> {
    let site = Programs::start().await?;
    let tree = site.path("tree");
    make_tree(&tree)?;
    for (number, mode) in ["yes", "no"].into_iter().enumerate() {
        let back = site.path(&format!("back{number}"));
        let script = format!(
            "set ftp:passive-mode {mode}; mirror -R {} t{number}; mirror t{number} {}",
            tree.display(),
            back.display()
        );
        site.lftp(&script).await?.good()?;
        same_tree(&tree, &back)?;
    }
    // A second mirror has nothing to do: sizes and times are as they were set.
    let again = site.lftp(&format!("mirror -R --verbose {} t0", tree.display())).await?.good()?;
    ensure!(!again.contains("Transferring"), "{again}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lftp_lists_renames_removes_and_changes_modes() -> Result<()> {
    let site = Programs::start().await?;
    site.write("local", 12_345, 1)?;
    let script = format!(
        "mkdir -p d/e; put {} -o d/file; chmod 640 d/file; mv d/file d/e/moved; cls -l d/e; ls d; rm -r d; cls -1",
        site.path("local").display()
    );
    let said = site.lftp(&script).await?.good()?;
    ensure!(said.contains("rw-r-----") && said.contains("12345") && said.contains("moved"), "{said}");
    ensure!(said.contains("drwxr-xr-x"), "{said}");
    let missing = site.lftp("get nothing").await?;
    ensure!(missing.status != Some(0) && missing.err.contains("nothing"), "{}", missing.err);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lftp_gets_in_pieces_and_resumes_both_ways() -> Result<()> {
    let site = Programs::start().await?;
    let data = site.write("local", 4_000_000, 2)?;
    site.lftp(&format!("put {} -o f", site.path("local").display())).await?.good()?;
    let pieces = site.path("pieces");
    site.lftp(&format!("pget -n 4 f -o {}", pieces.display())).await?.good()?;
    ensure!(std::fs::read(&pieces)? == data, "four pieces make the file");
    let part = site.path("part");
    std::fs::write(&part, &data[..1_000_000])?;
    site.lftp(&format!("get -c f -o {}", part.display())).await?.good()?;
    ensure!(std::fs::read(&part)? == data, "the rest was fetched");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lftp_resumes_an_upload_that_was_cut() -> Result<()> {
    let site = Programs::start().await?;
    let data = site.write("local", 8_000_000, 3)?;
    let local = site.path("local");
    site.cut(site.lftp_command(&format!("set net:limit-rate 0:2000000; put {} -o cut", local.display()))).await?;
    site.lftp(&format!("reput {} -o cut", local.display())).await?.good()?;
    let back = site.path("back");
    site.lftp(&format!("get cut -o {}", back.display())).await?.good()?;
    ensure!(std::fs::read(&back)? == data, "the whole file");
    Ok(())
}
