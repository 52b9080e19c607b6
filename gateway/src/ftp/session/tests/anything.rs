//! Anything in any order.

use super::*;

fn any_line() -> impl Strategy<Value = String> {
    let lines = vec![
        "AUTH TLS",
        "USER alice",
        "PASS x",
        "QUIT",
        "ABOR",
        "STAT",
        "NOOP",
        "PASV",
        "EPSV",
        "EPSV ALL",
        "SPAS",
        "PORT 192,0,2,7,8,0",
        "MODE E",
        "MODE S",
        "TYPE I",
        "PBSZ 0",
        "PROT P",
        "PROT C",
        "REST 5",
        "REST 0-5",
        "ALLO 5",
        "RETR a",
        "RETR b",
        "STOR a",
        "STOR b",
        "APPE a",
        "STOU",
        "ERET P 0 5 a",
        "ESTO A 5 a",
        "LIST",
        "MLSD",
        "NLST",
        "MLST a",
        "MLSC",
        "STAT a",
        "CWD a",
        "CDUP",
        "PWD",
        "RNFR a",
        "RNTO b",
        "DELE a",
        "MKD a",
        "OPTS PASV AllowDelayed=1;",
        "OPTS SPAS AllowDelayed=1;",
        "OPTS RETR Parallelism=4,4,4;",
        "GET path=a;mode=e;pasv;",
        "SITE STAGE a",
        "FEAT",
        "SITE HELP",
        "CKSM ADLER32 0 -1 a",
        "SIZE a",
        "LANG",
        "x",
        "",
    ];
    prop_oneof![8 => proptest::sample::select(lines).prop_map(str::to_owned), 1 => any::<String>()]
}

#[derive(Debug, Clone)]
enum Happening {
    Line(String),
    Secured(bool),
    End(usize, u8),
    Received(usize),
    Announce(usize),
    Progress(usize),
    Stray(u64),
    Expired(bool),
    Stopping,
    Left,
}

fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        20 => any_line().prop_map(Happening::Line),
        3 => any::<bool>().prop_map(Happening::Secured),
        10 => (0usize..4, any::<u8>()).prop_map(|(which, how)| Happening::End(which, how)),
        4 => (0usize..4).prop_map(Happening::Received),
        4 => (0usize..4).prop_map(Happening::Announce),
        2 => (0usize..4).prop_map(Happening::Progress),
        1 => (0u64..300).prop_map(Happening::Stray),
        1 => any::<bool>().prop_map(Happening::Expired),
        1 => Just(Happening::Stopping),
        1 => Just(Happening::Left),
    ]
}

proptest! {
    /// Whatever a client says and however work ends: no panic, every line is answered once (with one reply that is not
    /// preliminary) unless the session ends first, at most one transfer moves, and nothing runs before the login.
    #[test]
    fn anything_in_any_order_keeps_the_session_in_step(happenings in proptest::collection::vec(any_happening(), 0..120)) {
        let mut script = Script::new(Access::AnonymousOverTls);
        let (mut lines, mut answers, mut left) = (0usize, 0usize, false);
        for happening in happenings {
            let pick = |which: usize| script.running.get(which).map(|(ticket, _)| *ticket);
            let event = match happening {
                Happening::Line(line) => {
                    if !script.session.wants_line() {
                        continue;
                    }
                    lines += 1;
                    Event::Line(Command::parse(&line))
                }
                Happening::Secured(true) => Event::Secured { certificate: Shown::Trusted },
                Happening::Secured(false) => Event::Secured { certificate: Shown::Nothing },
                Happening::End(which, how) => {
                    if which >= script.running.len() {
                        continue;
                    }
                    let (ticket, work) = script.running.remove(which);
                    let outcome = match work {
                        Work::Login(_) if how % 4 == 0 => Outcome::LoginRefused(Reply::new(530, "")),
                        Work::Login(_) => logged_in("alice"),
                        Work::Listen { .. } if how % 4 > 0 => Outcome::Listening(Reply::new(227, "")),
                        Work::Retrieve(_) | Work::Store(_) | Work::List(_) => transferred(how % 2 == 0),
                        _ => replied(250),
                    };
                    Event::Done { ticket, outcome }
                }
                Happening::Received(which) => match pick(which) {
                    Some(ticket) => Event::Received { ticket },
                    None => continue,
                },
                Happening::Announce(which) => match pick(which) {
                    Some(ticket) => Event::Announce { ticket, reply: Reply::new(150, "") },
                    None => continue,
                },
                Happening::Progress(which) => match pick(which) {
                    Some(ticket) => Event::Progress { ticket, bytes: 1, markers: vec![Reply::new(112, "")] },
                    None => continue,
                },
                Happening::Stray(number) => Event::Done { ticket: Ticket(number + 1_000_000), outcome: replied(200) },
                Happening::Expired(login) => Event::Expired(if login { Limit::Login } else { Limit::Idle }),
                Happening::Stopping => Event::Stopping,
                Happening::Left => Event::Left,
            };
            let was_ready = script.session.account().is_some();
            let before = script.running.len();
            let codes = script.event(event);
            answers += codes.iter().filter(|code| **code >= 200).count();
            let logging_in = matches!(script.running.last(), Some((_, Work::Login(_))));
            prop_assert!(was_ready || script.running.len() == before || logging_in || script.session.account().is_some());
            let open = script.running.iter().filter(|(_, work)| matches!(work, Work::Login(_))).count();
            prop_assert!(open <= 1);
            left = script.others.contains(&Action::Close);
            // A closing session says one thing more, and drops what waits.
            prop_assert!(answers <= lines + usize::from(left));
        }
        if !left {
            while !script.running.is_empty() {
                let (_, work) = &script.running[0];
                let outcome = if matches!(work, Work::Login(_)) { logged_in("alice") } else { replied(250) };
                answers += script.done(outcome).iter().filter(|code| **code >= 200).count();
            }
            if !script.others.contains(&Action::Close) {
                prop_assert_eq!(answers, lines, "every line is answered once");
                prop_assert!(script.session.lane.is_empty());
            }
        }
    }
}
