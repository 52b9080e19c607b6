//! What real clients say, in their order: recorded against a Globus server (`docs/protocol/ftp.md`), here over TLS.
//!
//! These hold the order and the codes; the programs themselves run in `tests/tests/`.

use super::fixture::Site;

/// Runs lines of `command > codes`.
async fn play(script: &str) {
    let site = Site::open(|config| config.third_party_transfers = true).await;
    let mut client = site.secure(Some("Alice")).await;
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (command, codes) = line.split_once(" > ").expect("command > codes");
        let expected: Vec<u16> = codes.split(' ').map(|code| code.parse().unwrap()).collect();
        assert_eq!(client.transfer(command).await, expected, "{command}");
    }
}

#[tokio::test]
async fn curl_gets_resumes_and_puts() {
    play(
        "USER anonymous > 232
         PBSZ 0 > 200
         PROT C > 200
         PWD > 257
         CWD data > 250
         CWD src > 250
         EPSV > 229
         TYPE I > 200
         SIZE 10m > 213
         REST 5000000 > 350
         RETR 10m > 150 226
         CWD / > 250
         EPRT |1|127.0.0.1|46537| > 200
         TYPE A > 200
         LIST > 150 226
         EPSV > 229
         TYPE I > 200
         STOR up > 150 226
         SIZE up > 213
         EPSV > 229
         APPE up > 150 226
         MDTM up > 213
         REST 0 > 350
         QUIT > 221",
    )
    .await;
}

#[tokio::test]
async fn lftp_lists_mirrors_and_resumes() {
    play(
        "FEAT > 211
         LANG > 200
         OPTS UTF8 ON > 200
         USER alice > 232
         PASS x > 230
         PBSZ 0 > 200
         PROT P > 200
         LANG > 200
         OPTS UTF8 ON > 200
         OPTS MLST Type;Size;Modify;Perm;UNIX.mode;UNIX.owner;UNIX.uid;UNIX.group;UNIX.gid; > 200
         PWD > 257
         MKD //data > 257
         CWD / > 250
         PASV > 229
         MLSD > 150 226
         TYPE I > 200
         PASV > 229
         REST 5000000 > 350
         STOR //data/dst/up > 150 226
         MFMT 20261130124056 //data/dst/up > 213
         RNFR //data/dst/x > 350
         RNTO //data/dst/y > 250
         SITE CHMOD 600 //data/dst/y > 250
         DELE //data/dst/y > 250
         RMD //data/dst/q > 250
         SITE HELP > 214
         STAT //data/src > 250
         QUIT > 221",
    )
    .await;
}

#[tokio::test]
async fn globus_url_copy_without_dcau() {
    play(
        "USER :globus-mapping: > 232
         PASS dummy > 230
         SITE HELP > 214
         FEAT > 211
         SITE CLIENTINFO scheme=gsiftp;appname=\"globus-url-copy\";appver=\"10.12\"; > 250
         TYPE I > 200
         DCAU N > 200
         MODE E > 200
         OPTS RETR Parallelism=4,4,4; > 200
         PBSZ 1048576 > 200
         PORT 127,0,0,1,171,157 > 200
         RETR /data/src/10m > 150 226
         RETR /data/src/11m > 150 226
         ERET P 1000 5000000 /data/src/10m > 150 226
         SPAS > 229
         ALLO 10485760 > 200
         STOR /data/dst/10m > 150 226
         ESTO A 1000 /data/dst/10m > 150 226
         SPOR 127,0,0,2,171,157 127,0,0,3,171,158 > 200
         REST 0-6198132736 > 350
         RETR /data/src/10m > 150 226
         SITE STORBUFSIZE 1048576 > 200
         CKSM MD5 0 -1 /data/dst/10m > 213
         QUIT > 221",
    )
    .await;
}

#[tokio::test]
async fn gfal_and_arc_with_delayed_passive() {
    play(
        "USER :globus-mapping: > 232
         PASS user@ > 230
         DCAU N > 200
         MLST /data/dst/10m > 250
         OPTS PASV AllowDelayed=1; > 200
         PASV > 200
         STOR /data/dst/10m > 150 226
         EPSV > 200
         RETR /data/dst/10m > 150 226
         TYPE A > 200
         PASV > 200
         NLST /data/dst/t > 150 226
         TYPE I > 200
         CKSM ADLER32 0 -1 /data/dst/10m > 213
         SITE USAGE TOKEN t /data > 250
         QUIT > 221",
    )
    .await;
}

#[tokio::test]
async fn globus_url_copy_pipelines_many_small_files() {
    let site = Site::open(|_| {}).await;
    let mut client = site.login().await;
    for line in ["TYPE I", "MODE E", "PORT 127,0,0,1,171,157"] {
        assert_eq!(client.ask(line).await, 200);
    }
    let lines: String = (0..60).map(|number| format!("RETR /many/f{number}\r\n")).collect();
    client.send(lines.as_bytes()).await;
    for number in 0..60 {
        assert_eq!((client.code().await, client.code().await), (150, 226), "file {number}");
    }
    assert_eq!(client.ask("QUIT").await, 221);
}
