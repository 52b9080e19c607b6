//! The door over real sockets: logins, limits, bad input, clients that do not read, and an end.

mod dialogues;
mod fixture;

use daemon::{config::TimeSpan, lifecycle::Ending};
use tokio::io::AsyncWriteExt as _;

use self::fixture::Site;
use super::session::work::Work;

#[tokio::test]
async fn a_certificate_over_tls_is_all_a_login_needs() {
    let site = Site::open(|_| {}).await;
    let mut client = site.login().await;
    assert_eq!(client.ask("PASS whatever").await, 230);
    assert_eq!(client.ask("PWD").await, 257);
    assert_eq!(client.ask("QUIT").await, 221);
    assert_eq!(client.code().await, 0);
    site.until_sessions(0).await;
}

#[tokio::test]
async fn whoever_is_not_known_is_told_why_and_stays_outside() {
    let site = Site::open(|_| {}).await;
    let mut clear = site.connect().await;
    assert_eq!(clear.ask("USER alice").await, 530);
    assert_eq!(clear.ask("RETR /etc/passwd").await, 530);
    let mut nobody = site.secure(None).await;
    assert_eq!(nobody.ask("USER anonymous").await, 530);
    let mut mallory = site.secure(Some("Mallory")).await;
    for _ in 0..3 {
        assert_eq!(mallory.ask("USER alice").await, 530);
    }
    assert_eq!((mallory.code().await, mallory.code().await), (421, 0));
    let mut stranger = site.secure(Some("Stranger")).await;
    stranger.send(b"USER alice\r\n").await;
    let refusal = stranger.reply().await.unwrap();
    assert!(refusal.code() == 530 && refusal.text().contains("not among the trusted authorities"), "{refusal}");
    let logins = site.behaviour.asked().iter().filter(|work| matches!(work, Work::Login(_))).count();
    assert_eq!(logins, 3, "only a trusted certificate is looked up");
}

#[tokio::test]
async fn bytes_in_clear_behind_auth_end_the_connection_unread() {
    let site = Site::open(|_| {}).await;
    let mut client = site.connect().await;
    client.send(b"AUTH TLS\r\nUSER alice\r\nDELE /x\r\n").await;
    assert_eq!((client.code().await, client.code().await), (234, 0));
    assert!(site.behaviour.asked().is_empty());
}

#[tokio::test]
async fn a_failed_handshake_is_the_end_of_that_connection_only() {
    let site = Site::open(|_| {}).await;
    let mut client = site.connect().await;
    assert_eq!(client.ask("AUTH TLS").await, 234);
    client.send(b"this is no TLS record at all\r\n").await;
    assert_eq!(site.login().await.ask("NOOP").await, 200);
    drop(client);
    site.until_sessions(0).await;
}

#[tokio::test]
async fn an_endless_command_line_gets_one_500_and_the_session_lives() {
    let site = Site::open(|_| {}).await;
    let mut client = site.login().await;
    let chunk = vec![b'a'; 1 << 20];
    for _ in 0..8 {
        client.send(&chunk).await;
    }
    client.send(b"\r\nNOOP\r\n").await;
    assert_eq!((client.code().await, client.code().await), (500, 200));
}

#[tokio::test]
async fn bad_lines_are_answered_one_by_one() {
    let site = Site::open(|_| {}).await;
    let mut client = site.login().await;
    for (line, code) in [
        (&b"\r\n"[..], 500),
        (b"\xff\xfe\r\n", 500),
        (b"CWD a\0b\r\n", 500),
        (b"CWD a\rDELE b\r\n", 500),
        (b"FROBNICATE\r\n", 500),
        (b"CWD\r\n", 501),
        (b"PORT 1,2,3\r\n", 501),
        (b"REST x\r\n", 501),
        (b"REST 99999999999999999999999\r\n", 501),
        (b"ALLO -1\r\n", 501),
        (b"EPRT |3|x|1|\r\n", 522),
        (b"MODE Q\r\n", 504),
        (b"OPTS RETR Parallelism=0,0,0;\r\n", 504),
        (b"NOOP\r\n", 200),
    ] {
        client.send(line).await;
        assert_eq!(client.code().await, code, "{:?}", String::from_utf8_lossy(line));
    }
    let long = format!("CWD {}\r\n", "a/".repeat(2040));
    client.send(long.as_bytes()).await;
    assert_eq!(client.code().await, 250);
    assert_eq!(client.ask(&format!("CWD {}", "b/".repeat(2040))).await, 553, "both together are too long");
}

#[tokio::test]
async fn a_client_that_reads_no_replies_stops_being_read_and_is_dropped() {
    let site = Site::open(|config| config.unread_limit = TimeSpan::milliseconds(300)).await;
    let mut client = site.login().await;
    let flood = b"HELP\r\n".repeat(10_000);
    let mut taken = 0;
    // Ends with an error once the server has closed.
    while client.stream.write_all(&flood).await.is_ok() {
        taken += flood.len();
    }
    site.until_sessions(0).await;
    // What both kernels' buffers hold; the answers would be a hundred times as much.
    assert!(taken < 32 << 20, "{taken} bytes of commands were read");
}

#[tokio::test]
async fn a_long_reply_waits_for_its_reader() {
    let site = Site::open(|config| config.unread_limit = TimeSpan::milliseconds(500)).await;
    let mut client = site.login().await;
    client.send(b"MLSC /\r\n").await;
    let listing = client.reply().await.unwrap();
    assert_eq!((listing.code(), listing.middle().len()), (250, 3_000));
    // Without a reader the work waits, and then ends.
    client.send(b"MLSC /endless\r\n").await;
    site.until_sessions(0).await;
    assert_eq!(site.shutdown.finish().await, Ending::Clean);
}

#[tokio::test]
async fn abor_with_a_telnet_synch_stops_a_transfer() {
    let site = Site::open(|_| {}).await;
    let mut client = site.login().await;
    client.ask("EPSV").await;
    assert_eq!(client.ask("RETR held").await, 150);
    client.send(b"\xff\xf4\xff\xf2ABOR\r\n").await;
    assert_eq!((client.code().await, client.code().await), (426, 226));
    assert_eq!(client.ask("NOOP").await, 200);
}

#[tokio::test]
async fn stat_tells_how_far_a_transfer_is_while_it_moves() {
    let site = Site::open(|_| {}).await;
    let mut client = site.login().await;
    client.ask("EPSV").await;
    assert_eq!(client.ask("STOR /d/held").await, 150);
    client.send(b"STAT\r\n").await;
    let status = client.reply().await.unwrap();
    assert!(status.code() == 211 && status.text().contains("STOR /d/held: 4711 bytes"), "{status}");
    site.behaviour.go.notify_one();
    assert_eq!(client.code().await, 226);
}

#[tokio::test]
async fn a_client_that_vanishes_takes_its_transfer_with_it() {
    let site = Site::open(|_| {}).await;
    let mut client = site.login().await;
    client.ask("EPSV").await;
    assert_eq!(client.ask("RETR held").await, 150);
    drop(client);
    site.until_sessions(0).await;
    site.shutdown.stop();
    assert_eq!(site.shutdown.finish().await, Ending::Clean, "no work is left behind");
    assert!(*site.behaviour.drops.lock().unwrap() > 0);
}

#[tokio::test]
async fn a_mistake_of_ours_costs_one_command_not_the_session() {
    let site = Site::open(|_| {}).await;
    let mut client = site.login().await;
    assert_eq!(client.ask("CWD panic").await, 451);
    assert_eq!(client.ask("CWD ok").await, 250);
}

#[tokio::test]
async fn too_many_connections_are_turned_away_with_a_word() {
    let site = Site::open(|config| {
        config.max_sessions = 3;
        config.max_logins_pending = 2;
    })
    .await;
    let first = site.connect().await;
    let second = site.connect().await;
    let mut third = site.connect_silently().await;
    assert_eq!((third.code().await, third.code().await), (421, 0), "two may wait for a login");
    drop((first, second));
    site.until_sessions(0).await;
    let inside = [site.login().await, site.login().await, site.login().await];
    let mut fourth = site.connect_silently().await;
    assert_eq!(fourth.code().await, 421);
    drop(inside);
    site.until_sessions(0).await;
    assert_eq!(site.login().await.ask("NOOP").await, 200, "seats are given back");
}

#[tokio::test]
async fn whoever_takes_too_long_is_told_and_let_go() {
    let site = Site::open(|config| {
        config.login_limit = TimeSpan::milliseconds(2_000);
        config.idle_limit = TimeSpan::milliseconds(100);
    })
    .await;
    let mut idle = site.login().await;
    assert_eq!((idle.code().await, idle.code().await), (421, 0));
    let mut slow = site.connect().await;
    assert_eq!((slow.code().await, slow.code().await), (421, 0));
    let mut mute = site.connect().await;
    assert_eq!(mute.ask("AUTH TLS").await, 234);
    assert_eq!(mute.code().await, 0, "a handshake has the same limit");
}

#[tokio::test]
async fn a_gateway_that_stops_finishes_what_moves_and_says_goodbye() {
    let site = Site::open(|_| {}).await;
    let mut idle = site.login().await;
    let mut busy = site.login().await;
    busy.ask("EPSV").await;
    assert_eq!(busy.ask("STOR held").await, 150);
    site.shutdown.stop();
    assert_eq!((idle.code().await, idle.code().await), (421, 0));
    busy.send(b"STOR more\r\n").await;
    site.behaviour.go.notify_one();
    let codes = [busy.code().await, busy.code().await, busy.code().await, busy.code().await];
    assert!(matches!(codes, [226, 421, 421, 0] | [226, 421, 0, 0]), "{codes:?}");
    assert_eq!(site.shutdown.finish().await, Ending::Clean);
}

#[test]
fn idle_sessions_and_endless_lines_take_little_memory() {
    // In a process of its own, where no other test takes memory.
    let program = std::env::current_exe().unwrap();
    let name = "ftp::tests::memory_of_a_process_that_does_nothing_else";
    let output = std::process::Command::new(program).args(["--exact", name, "--ignored"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[tokio::test]
#[ignore = "run by the test above"]
async fn memory_of_a_process_that_does_nothing_else() {
    const SESSIONS: usize = 60;
    let site = Site::open(|_| {}).await;
    let mut clients = vec![site.login().await];
    let before = resident_bytes();
    for _ in 0..SESSIONS {
        clients.push(site.login().await);
    }
    let each = resident_bytes().saturating_sub(before) / SESSIONS;
    // 1,000 sessions are to stay under 200 MiB; here the client's side counts too.
    assert!(each < 150 * 1024, "{each} bytes for each session");
    assert_eq!(site.door.sessions(), SESSIONS + 1);
    let before = resident_bytes();
    let chunk = vec![b'a'; 1 << 20];
    for _ in 0..32 {
        clients[0].send(&chunk).await;
    }
    assert_eq!(clients[0].code().await, 500);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 8 << 20, "a line of 32 MiB took {grown} bytes");
}

/// Memory of this process.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test]
async fn nothing_is_asked_of_the_desk_twice() {
    let site = Site::open(|_| {}).await;
    let mut client = site.login().await;
    client.send(b"CWD a\r\nCWD b\r\nNOOP\r\nPWD\r\n").await;
    for code in [250, 250, 200, 257] {
        assert_eq!(client.code().await, code);
    }
    let enters = site.behaviour.asked().iter().filter(|work| matches!(work, Work::Names(_))).count();
    assert_eq!(enters, 2);
}
