//! Data on another host than the control connection: the gateway on 127.0.0.1, its movers on 127.0.0.2.
//!
//! EPSV names a port only, on the address of the control connection (RFC 2428 section 3). It is refused here, and clients
//! have to go on with PASV by themselves.

use anyhow::{Result, ensure};
use tests::Site;

use crate::programs::{Programs, run};

async fn start() -> Result<Programs> {
    let elsewhere = |_: usize, config: &mut mover::MoverConfig| {
        config.data.listen = vec![[127, 0, 0, 2].into()];
    };
    Programs::of(Site::builder().mover(elsewhere).start().await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_goes_on_with_pasv_where_epsv_cannot_name_the_mover() -> Result<()> {
    let site = start().await?;
    let data = site.write("local", 300_001, 1)?;
    let (local, url) = (site.path("local").display().to_string(), site.url("up"));
    // Since 7.74 curl connects to the control connection's host, whatever a 227 says, unless told not to.
    let way = ["--ssl-reqd", "--no-ftp-skip-pasv-ip", "-v"];
    let said = run(site.curl_as_alice(way.iter().chain(&["-T", &local, &url]))).await?;
    ensure!(said.status == Some(0), "{}", said.err);
    ensure!(said.err.contains("< 522 ") && said.err.contains("< 227 "), "{}", said.err);
    let said = run(site.curl_as_alice(way.iter().chain(&[url.as_str()]))).await?;
    ensure!(said.status == Some(0) && said.out == data, "{}", said.err);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lftp_gets_and_puts_where_the_data_is_on_another_host() -> Result<()> {
    let site = start().await?;
    let data = site.write("local", 300_001, 2)?;
    let (local, back) = (site.path("local"), site.path("back"));
    // lftp takes another loopback address in a 227 for a mistake, and then goes on with PORT; turning away from EPSV
    // counts as a retry.
    for (prefer_epsv, fix) in [("no", "no"), ("yes", "no"), ("no", "yes")] {
        let _ = std::fs::remove_file(&back);
        let script = format!(
            "set net:max-retries 4; set net:reconnect-interval-base 1; set ftp:prefer-epsv {prefer_epsv}; \
             set ftp:fix-pasv-address {fix}; put {} -o up; get up -o {}; bye",
            local.display(),
            back.display()
        );
        site.lftp(&script).await?.good()?;
        ensure!(std::fs::read(&back)? == data, "prefer-epsv {prefer_epsv}, fix-pasv-address {fix}");
    }
    Ok(())
}
