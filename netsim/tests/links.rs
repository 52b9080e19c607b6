//! Links as real sockets see them. Needs root: the tests make network namespaces of their own.

use std::{
    io::{Read, Write},
    net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant, SystemTime},
};

use nix::sys::{
    socket::{
        AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recvmsg, sendto,
        setsockopt, socket,
        sockopt::{ReceiveTimeout, ReceiveTimestampns},
    },
    time::{TimeSpec, TimeVal, TimeValLike},
};

use netsim::{Lab, Link, Medium, Profile, Topology};

const MEGABIT: f64 = 1e6;

fn lab(link: Link, medium: Medium, movers: usize) -> Lab {
    Lab::start(&Topology::client_and_site(link, medium, movers)).expect("root, /dev/net/tun and iproute2")
}

/// Answers every datagram until the lab ends.
fn echo(lab: &Lab, host: &str) -> SocketAddr {
    let address = SocketAddr::from((lab.host(host).address(), 7));
    let (ready, when_ready) = std::sync::mpsc::channel();
    lab.host(host)
        .spawn(move || {
            let socket = UdpSocket::bind(address).expect("a free port");
            socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
            ready.send(()).expect("the test waits");
            let mut buffer = [0; 2048];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                if length == 0 || socket.send_to(&buffer[..length], peer).is_err() {
                    break;
                }
            }
        })
        .expect("a thread");
    when_ready.recv().expect("the echo is up");
    address
}

/// The median round trip of `count` datagrams.
fn round_trip(lab: &Lab, from: &str, to: SocketAddr, count: usize) -> Duration {
    lab.host(from)
        .spawn(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
            socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a time-out");
            let mut times: Vec<_> = (0..count)
                .map(|_| {
                    let began = Instant::now();
                    socket.send_to(&[1; 64], to).expect("sent");
                    socket.recv(&mut [0; 64]).expect("answered");
                    began.elapsed()
                })
                .collect();
            times.sort();
            times[times.len() / 2]
        })
        .expect("a thread")
        .join()
        .expect("measured")
}

/// The median round trip of `count` pings, measured as `ping` does it: the other host's kernel answers, and this one's
/// says when the answer came. So no other process that wants the processor lies between the link and the clock.
fn ping(lab: &Lab, from: &str, to: &str, count: u16) -> Duration {
    let to = SockaddrIn::from(SocketAddrV4::new(lab.host(to).address(), 0));
    lab.host(from)
        .spawn(move || {
            run_before_others();
            let socket = socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Icmp)
                .expect("root may make raw sockets");
            setsockopt(&socket, ReceiveTimestampns, &true).expect("the kernel says when a packet came");
            setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(5)).expect("a time-out");
            let mut times: Vec<_> = (0..count).map(|number| ping_once(&socket, &to, number)).collect();
            times.sort();
            times[times.len() / 2]
        })
        .expect("a thread")
        .join()
        .expect("measured")
}

fn ping_once(socket: &OwnedFd, to: &SockaddrIn, number: u16) -> Duration {
    let [high, low] = number.to_be_bytes();
    // An echo request (RFC 792): type, code, checksum, identifier, number. Only the number is added up, so the checksum
    // is the complement of type and number.
    let [sum_high, sum_low] = (!(0x0800_u32 + u32::from(number)) as u16).to_be_bytes();
    let began = SystemTime::now();
    sendto(socket.as_raw_fd(), &[8, 0, sum_high, sum_low, 0, 0, high, low], to, MsgFlags::empty()).expect("sent");
    loop {
        let mut answer = [0; 64];
        let mut control = nix::cmsg_space!(TimeSpec);
        let mut pieces = [std::io::IoSliceMut::new(&mut answer)];
        let came = recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut pieces, Some(&mut control), MsgFlags::empty())
            .expect("answered");
        let stamp = came.cmsgs().expect("control messages fit").find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
            _ => None,
        });
        // Twenty bytes of IP header come first; an answer has type 0.
        if answer[20] == 0 && answer[26..28] == [high, low] {
            let arrived = SystemTime::UNIX_EPOCH + stamp.expect("asked for");
            return arrived.duration_since(began).expect("the clock goes forward");
        }
    }
}

/// The stopwatch is not to wait for the processor; on a machine that refuses, it may.
#[allow(unsafe_code)]
fn run_before_others() {
    let priority = libc::sched_param { sched_priority: 5 };
    // SAFETY: concerns the calling thread only, and reads its argument before it returns.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority);
    }
}

/// Moves bytes over TCP (cubic) for a while and returns the rate of the last second, bits a second.
fn tcp_rate(lab: &Lab, from: &str, to: &str) -> f64 {
    let address = SocketAddr::from((lab.host(to).address(), 5001));
    let (ready, when_ready) = std::sync::mpsc::channel();
    let receiver = lab
        .host(to)
        .spawn(move || {
            run_before_others();
            let listener = TcpListener::bind(address).expect("a free port");
            ready.send(()).expect("the test waits");
            let (mut stream, _) = listener.accept().expect("the sender connects");
            let mut buffer = vec![0; 1 << 18];
            let began = Instant::now();
            let mut counted = 0;
            let (skip, all) = (Duration::from_millis(700), Duration::from_millis(1700));
            while began.elapsed() < all {
                match stream.read(&mut buffer) {
                    Ok(length) if length > 0 => counted += if began.elapsed() > skip { length } else { 0 },
                    _ => break,
                }
            }
            counted as f64 * 8.0 / (all - skip).as_secs_f64()
        })
        .expect("a thread");
    when_ready.recv().expect("the receiver is up");
    let sender = lab
        .host(from)
        .spawn(move || {
            run_before_others();
            let mut stream = TcpStream::connect(address).expect("connected");
            set_cubic(&stream);
            let block = vec![7; 1 << 18];
            while stream.write_all(&block).is_ok() {}
        })
        .expect("a thread");
    let rate = receiver.join().expect("received");
    sender.join().expect("sent");
    rate
}

#[allow(unsafe_code)]
fn set_cubic(stream: &TcpStream) {
    // Loopback's default here may be bbr, which hides loss.
    let name = c"cubic";
    // SAFETY: the socket is open, and the kernel reads five bytes of the name.
    unsafe {
        libc::setsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_ptr().cast(), 5);
    }
}

#[test]
fn every_profile_has_its_round_trip_time() {
    for profile in Profile::ALL {
        let clean = Link { loss: 0.0, ..profile.link() };
        let lab = lab(clean, Medium::Switched, 1);
        let count = if profile.rtt() > Duration::from_millis(100) { 5 } else { 40 };
        let allowed = (profile.rtt().mul_f64(0.03)).max(Duration::from_micros(200));
        // A loaded machine wakes the emulator late now and then, so a round that was disturbed is measured again; a
        // link that is wrong is wrong in every round.
        let asked = profile.rtt();
        let mut rounds = Vec::new();
        let close = (0..10).any(|_| {
            let measured = ping(&lab, "client", "mover1", count);
            assert!(measured >= asked - Duration::from_micros(20), "{profile}: {measured:?} is too fast");
            rounds.push(measured);
            measured.abs_diff(asked) <= allowed
        });
        assert!(close, "{profile}: {rounds:?}, {asked:?} was asked");
    }
}

#[test]
fn tcp_gets_the_rate_of_the_link_and_no_more() {
    let link = Link::new(Duration::from_millis(2), 100_000_000);
    let lab = lab(link, Medium::Switched, 1);
    // 1448 of 1538 bytes of each frame are TCP's payload. Processes that wait for a busy processor leave the link idle,
    // so a round that was disturbed is measured again; none may be too fast.
    let mut rounds = Vec::new();
    let close = (0..5).any(|_| {
        let rate = tcp_rate(&lab, "mover1", "client") / MEGABIT;
        assert!(rate < 94.15 * 1.03, "{rate:.1} of 94.1 Mb/s");
        rounds.push(rate);
        rate > 94.15 * 0.97
    });
    assert!(close, "{rounds:.1?} of 94.1 Mb/s");
}

#[test]
fn frames_are_lost_at_the_rate_that_was_asked() {
    let link = Link { loss: 0.05, ..Link::new(Duration::from_micros(200), 1_000_000_000) };
    let lab = lab(link, Medium::Switched, 1);
    let target = SocketAddr::from((lab.host("mover1").address(), 9));
    lab.host("client")
        .spawn(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
            for _ in 0..4_000 {
                socket.send_to(&[0; 100], target).expect("sent");
                std::thread::sleep(Duration::from_micros(20));
            }
        })
        .expect("a thread")
        .join()
        .expect("sent");
    let passed = loop {
        let counters = lab.counters("home-centre");
        if counters.frames + counters.lost >= 4_000 {
            break counters;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let share = passed.lost as f64 / 4_000.0;
    assert!((0.036..0.064).contains(&share), "lost {share}, 0.05 was asked: four standard deviations are 0.014");
}

/// Packets of 16 KiB that the kernel hands over whole are cut where a frame of them is lost: what arrives must be what was
/// sent all the same.
#[test]
fn a_lossy_link_carries_what_was_sent_over_both_versions_of_ip() {
    let link = Link { loss: 0.01, ..Link::new(Duration::from_millis(1), 500_000_000) };
    let lab = lab(link, Medium::Switched, 1);
    let (client, mover) = (lab.host("client"), lab.host("mover1"));
    let v4 = SocketAddr::from((client.address(), 5002));
    let v6 = client.address6().map(|address| SocketAddr::from((address, 5002)));
    assert_eq!(v6.is_some(), fs_has("/proc/net/if_inet6"), "where the kernel has version 6, hosts have it too");
    for address in [Some(v4), v6].into_iter().flatten() {
        let before = lab.counters("centre-home");
        let data: Vec<u8> = (0..4_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let (ready, when_ready) = std::sync::mpsc::channel();
        let receiver = client
            .spawn(move || {
                let listener = TcpListener::bind(address).expect("a free port");
                ready.send(()).expect("the test waits");
                let (mut stream, _) = listener.accept().expect("the sender connects");
                let mut came = Vec::new();
                stream.read_to_end(&mut came).expect("it comes whole");
                came
            })
            .expect("a thread");
        when_ready.recv().expect("the receiver is up");
        let sent = data.clone();
        let sender = mover
            .spawn(move || TcpStream::connect(address).and_then(|mut stream| stream.write_all(&sent)))
            .expect("a thread");
        let came = receiver.join().expect("received");
        sender.join().expect("a sender").expect("sent");
        assert!(came == data, "{address}: {} of {} bytes, or others", came.len(), data.len());
        let counted = wait_for(&lab, |now| now.frames - before.frames >= 2_700);
        assert!(counted.lost > before.lost, "{address}: nothing was lost, so nothing was cut: {counted:?}");
    }
    // Far more frames than packets: the kernel did hand over large pieces.
    let statistics = lab.statistics();
    let frames: u64 = ["centre-home", "home-centre"].iter().map(|name| lab.counters(name).frames).sum();
    assert!(frames > statistics.packets * 2, "{frames} frames in {} packets", statistics.packets);
}

fn fs_has(path: &str) -> bool {
    std::path::Path::new(path).exists()
}

/// Counters are published every tenth of a second.
fn wait_for(lab: &Lab, done: impl Fn(&netsim::fabric::Counters) -> bool) -> netsim::fabric::Counters {
    let began = Instant::now();
    loop {
        let counters = lab.counters("centre-home");
        if done(&counters) {
            return counters;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{counters:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_link_can_go_down_and_come_back() {
    let link = Link::new(Duration::from_millis(1), 1_000_000_000);
    let mut lab = lab(link.clone(), Medium::Switched, 1);
    let target = echo(&lab, "mover1");
    assert!(round_trip(&lab, "client", target, 3) >= Duration::from_millis(1));
    lab.set_link("home", "centre", &Link { down: true, ..link.clone() });
    let silent = lab
        .host("client")
        .spawn(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
            socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time-out");
            socket.send_to(&[1], target).expect("sent");
            socket.recv(&mut [0; 8]).is_err()
        })
        .expect("a thread")
        .join()
        .expect("tried");
    assert!(silent, "a datagram passed a link that is down");
    lab.set_link("home", "centre", &Link { rtt: Duration::from_millis(30), ..link });
    assert!(round_trip(&lab, "client", target, 3) >= Duration::from_millis(30));
}

#[test]
fn labs_side_by_side_do_not_meet() {
    let link = Link::new(Duration::from_millis(1), 1_000_000_000);
    let labs: Vec<_> = (0..3).map(|_| lab(link.clone(), Medium::Switched, 1)).collect();
    for lab in &labs {
        let target = echo(lab, "mover1");
        assert!(round_trip(lab, "client", target, 3) < Duration::from_millis(50));
    }
    for lab in &labs {
        assert_eq!(lab.counters("home-centre").lost, 0);
    }
}

#[test]
fn a_full_queue_holds_what_it_should_and_drops_the_rest() {
    // 10 Mb/s and 20 kB: a queue of 16 ms.
    let link = Link { queue_bytes: 20_000, ..Link::new(Duration::from_millis(1), 10_000_000) };
    let mut topology = Topology::client_and_site(link, Medium::Switched, 1);
    topology.set_nic("mover1", 1_000_000_000);
    let lab = Lab::start(&topology).expect("root, /dev/net/tun and iproute2");
    let target = SocketAddr::from((lab.host("client").address(), 9));
    lab.host("mover1")
        .spawn(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
            for _ in 0..400 {
                socket.send_to(&[0; 1000], target).expect("sent");
            }
        })
        .expect("a thread")
        .join()
        .expect("sent");
    let counters = loop {
        let counters = lab.counters("centre-home");
        if counters.frames + counters.dropped_full >= 400 {
            break counters;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    // What came at once beyond the queue is lost; what waited was never more than the queue, but for the packet that is
    // on the wire.
    assert!(counters.dropped_full > 200, "{counters:?}");
    assert!((15_000..=22_000).contains(&counters.longest_queue_bytes), "{counters:?}");
}

#[test]
fn a_service_ends_with_the_thread_that_started_it() {
    let lab = lab(Link::new(Duration::from_millis(1), 1_000_000_000), Medium::Switched, 1);
    let mut command = lab.host("mover1").service("sleep").expect("a command");
    let mut child =
        std::thread::spawn(move || command.arg("600").spawn().expect("sleep runs")).join().expect("started");
    let status = child.wait().expect("it ends");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL), "{status}");
}

#[test]
fn a_command_runs_on_its_host() {
    let lab = lab(Link::new(Duration::from_millis(1), 1_000_000_000), Medium::Switched, 1);
    let output =
        lab.host("mover1").command("ip").expect("a command").args(["-br", "address"]).output().expect("ip runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(&lab.host("mover1").address().to_string()), "{said}");
    assert!(!said.contains(&lab.host("client").address().to_string()), "{said}");
}
