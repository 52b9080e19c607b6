//! Transfers and their data connections.

use super::*;

#[test]
fn curl_may_say_type_behind_epsv() {
    let mut script = Script::ready();
    script.say("EPSV");
    assert_eq!(script.done(Outcome::Listening(Reply::extended_passive(4000))), [229]);
    assert_eq!(script.say("TYPE I"), [200]);
    script.say("SIZE 10m");
    assert_eq!(script.done(replied(213)), [213]);
    assert_eq!(script.say("REST 100"), [350]);
    assert_eq!(script.say("RETR 10m"), SILENT);
    assert_eq!(script.retrieve().wanted, Wanted::From(100));
    assert_eq!(script.retrieve().carriage.port.opener, Opener::Passive { striped: false, ipv6: false });
    let ticket = script.running[0].0;
    assert_eq!(script.event(Event::Announce { ticket, reply: Reply::new(150, "") }), [150]);
    assert_eq!(script.done(transferred(false)), [226]);
    assert_eq!(script.say("RETR 10m"), [425], "in stream mode every transfer has its own connection");
}

#[test]
fn a_delayed_address_is_told_when_the_file_is_known() {
    let mut script = Script::ready();
    assert_eq!(script.say("OPTS PASV AllowDelayed=1;"), [200]);
    for (verb, form) in [("PASV", AddressForm::Comma), ("EPSV", AddressForm::Extended)] {
        assert_eq!(script.say(verb), [200]);
        assert_eq!(script.say("STOR f"), SILENT);
        assert_eq!(script.store().carriage.announce, Some(form));
        assert!(matches!(script.store().carriage.port.opener, Opener::Delayed { ipv6: false, .. }));
        script.done(transferred(false));
    }
}

#[test]
fn the_addresses_of_all_stripes_are_told_when_the_file_is_known_if_the_client_says_it_reads_them() {
    let mut script = Script::ready();
    script.say("OPTS PASV AllowDelayed=1;");
    assert_eq!(script.say("OPTS SPAS AllowDelayed=1;"), [200]);
    assert_eq!(script.say("SPAS"), SILENT, "in stream mode there is one connection: the addresses come at once");
    script.done(Outcome::Listening(Reply::striped_passive(&["192.0.2.9:4000".parse().unwrap()], false)));
    script.say("MODE E");
    for (verb, extended) in [("SPAS", false), ("SPAS 2", true)] {
        assert_eq!(script.say(verb), [200]);
        script.say("RETR f");
        let carriage = &script.retrieve().carriage;
        assert_eq!(carriage.announce, Some(AddressForm::Striped { extended }));
        assert_eq!(carriage.port.opener, Opener::Delayed { striped: true, ipv6: false, renew: true });
        let ticket = script.running[0].0;
        let reply = Reply::delayed_striped_passive(&["192.0.2.9:4000".parse().unwrap()], extended);
        assert_eq!(script.event(Event::Announce { ticket, reply }), [129]);
        script.done(transferred(true));
    }
    script.say("OPTS SPAS AllowDelayed=0;");
    assert_eq!(script.say("SPAS"), SILENT);
}

#[test]
fn mode_e_keeps_its_connections_for_the_next_transfer() {
    let mut script = Script::ready();
    script.say("MODE E");
    script.say("OPTS RETR Parallelism=4,4,4;");
    assert_eq!(script.say("PORT 192,0,2,7,171,157"), [200]);
    script.say("RETR f1");
    let carriage = &script.retrieve().carriage;
    assert_eq!((carriage.port.mode, carriage.port.streams, carriage.reused), (TransferMode::Extended, 4, false));
    script.done(transferred(true));
    script.others.clear();
    script.say("RETR f2");
    assert!(script.retrieve().carriage.reused);
    script.done(transferred(false));
    assert_eq!(script.others, [Action::DropPort]);
    script.say("RETR f3");
    assert!(!script.retrieve().carriage.reused, "connects again to the remembered PORT");
    script.done(transferred(true));
    script.say("PBSZ 0");
    script.say("PROT P");
    script.say("RETR f4");
    assert!(!script.retrieve().carriage.reused, "other protection, other connections");
}

#[test]
fn transfers_in_the_socket_move_one_after_the_other_and_commit_together() {
    let mut script = Script::ready();
    script.say("MODE E");
    script.say("OPTS PASV AllowDelayed=1;");
    script.say("PASV");
    for name in ["a", "b", "a"] {
        assert_eq!(script.say(&format!("STOR {name}")), SILENT);
    }
    assert_eq!(script.running.len(), 1, "one moves at a time");
    let first = script.running[0].0;
    assert_eq!(script.event(Event::Announce { ticket: first, reply: Reply::new(150, "") }), [150]);
    script.event(Event::Received { ticket: first });
    assert_eq!(script.running.len(), 2, "the second moves while the first commits");
    let second = script.running[1].0;
    assert!(script.store().carriage.reused);
    assert_eq!(script.event(Event::Announce { ticket: second, reply: Reply::new(125, "") }), SILENT);
    script.event(Event::Received { ticket: second });
    assert_eq!(script.running.len(), 2, "the third writes the same file as the first: its commit comes first");
    assert_eq!(script.event(Event::Done { ticket: second, outcome: transferred(true) }), SILENT);
    assert_eq!(script.event(Event::Done { ticket: first, outcome: transferred(true) }), [226, 125, 226]);
    assert_eq!(script.running.len(), 3);
}

#[test]
fn restart_points_go_with_the_next_transfer_only() {
    let mut script = Script::ready();
    let port = "PORT 192,0,2,7,8,0";
    script.say(port);
    script.say("REST 500");
    script.say("ALLO 900");
    script.say("SCKS ADLER32 0A0B0C0D");
    script.say("STOR up");
    let store = script.store();
    assert_eq!((&store.into, store.size_bytes), (&Destination::From(500), Some(900)));
    assert_eq!(store.expected_sum.as_ref().unwrap().1, "0a0b0c0d");
    script.done(transferred(false));
    script.say(port);
    script.say("STOR up");
    let store = script.store();
    assert_eq!((&store.into, store.size_bytes, &store.expected_sum), (&Destination::Whole, None, &None));
    script.done(transferred(false));
    for (line, code) in [("APPE up", 503), ("ERET P 0 5 up", 503), ("ESTO A 5 up", 503), ("STOU", 503)] {
        script.say(port);
        script.say("REST 5");
        assert_eq!(script.say(line), [code], "{line}");
    }
    script.say(port);
    script.say("REST 0-10,20-30");
    assert_eq!(script.say("RETR up"), [501], "ranges are MODE E's");
}

#[test]
fn only_the_clients_own_unprivileged_ports_are_connected_to() {
    let mut script = Script::ready();
    for (line, code) in [
        ("PORT 192,0,2,7,8,0", 200),
        ("EPRT |1|192.0.2.7|2048|", 200),
        ("SPOR 192,0,2,7,8,0 192,0,2,7,8,1", 200),
        ("PORT 192,0,2,8,8,0", 504),
        ("PORT 192,0,2,7,0,25", 504),
        ("PORT 0,0,0,0,8,0", 501),
        ("EPRT |1|127.0.0.1|2048|", 504),
        ("EPRT |2|::1|2048|", 504),
        ("EPRT |2|::ffff:192.0.2.7|2048|", 200),
        ("SPOR 192,0,2,7,8,0 10,0,0,1,8,1", 504),
    ] {
        assert_eq!(script.say(line), [code], "{line}");
    }
    script.session.rules.foreign_data_addresses = true;
    assert_eq!(script.say("PORT 192,0,2,8,8,0"), [200]);
    assert_eq!(script.say("PORT 192,0,2,8,0,25"), [504]);
    assert_eq!(script.say("EPSV ALL"), [200]);
    for line in ["PORT 192,0,2,7,8,0", "EPRT |1|192.0.2.7|2048|", "PASV", "SPAS", "SPOR 192,0,2,7,8,0"] {
        assert_eq!(script.say(line), [503], "{line}");
    }
}

#[test]
fn abor_stops_what_moves_and_is_answered_behind_it() {
    let mut script = Script::ready();
    script.say("PORT 192,0,2,7,8,0");
    script.say("RETR a");
    script.say("NOOP");
    script.say("RETR b");
    let ticket = script.running[0].0;
    script.others.clear();
    assert_eq!(script.say("ABOR"), SILENT);
    assert_eq!(script.others, [Action::Cancel { ticket }]);
    let aborted = Outcome::Transferred { reply: Reply::new(426, ""), reusable: false };
    assert_eq!(script.done(aborted), [426, 200, 426, 226]);
    assert_eq!(script.say("ABOR"), [226], "nothing to stop is no error");
}

#[test]
fn stat_during_a_transfer_answers_at_once() {
    let mut script = Script::ready();
    script.say("PORT 192,0,2,7,8,0");
    script.say("STOR big");
    let ticket = script.running[0].0;
    script.event(Event::Progress { ticket, bytes: 4711, markers: Vec::new() });
    let actions = script.session.apply(Event::Line(Command::parse("STAT")));
    match &actions[..] {
        [Action::Send(reply)] => assert!(reply.code() == 211 && reply.text().contains("STOR /big: 4711 bytes")),
        other => panic!("{other:?}"),
    }
    assert_eq!(script.say("QUIT"), SILENT, "QUIT waits for the end");
    assert_eq!(script.done(transferred(false)), [226, 221]);
    assert_eq!(script.others.last(), Some(&Action::Close));
}

#[test]
fn a_client_that_leaves_takes_what_moves_with_it_but_not_what_commits() {
    let mut script = Script::ready();
    script.say("MODE E");
    script.say("PORT 192,0,2,7,8,0");
    script.say("STOR a");
    let first = script.running[0].0;
    script.event(Event::Received { ticket: first });
    script.say("STOR b");
    let second = script.running[1].0;
    script.others.clear();
    script.event(Event::Left);
    assert_eq!(script.others, [Action::Cancel { ticket: second }, Action::DropPort, Action::Close]);
}

#[test]
fn a_transaction_brings_its_mode_and_endpoint_along() {
    let mut script = Script::ready();
    assert_eq!(script.say("GET path=/a/b;mode=e;pasv;"), SILENT);
    let retrieve = script.retrieve();
    assert_eq!(retrieve.path.as_str(), "/a/b");
    assert_eq!(retrieve.carriage.announce, Some(AddressForm::Comma));
    assert_eq!(retrieve.carriage.port.mode, TransferMode::Extended);
    script.done(transferred(true));
    assert_eq!(script.say("PUT path=/c;port=10,0,0,1,8,0;"), [504]);
    assert_eq!(script.say("PUT path=/c;mode=b;"), [504]);
}

#[test]
fn where_data_must_be_private_clear_data_is_refused() {
    let mut script = Script::ready();
    script.session.rules.private_data_only = true;
    script.say("PORT 192,0,2,7,8,0");
    assert_eq!(script.say("RETR a"), [521]);
    script.say("PBSZ 0");
    assert_eq!(script.say("PROT C"), [534]);
    script.say("PROT P");
    assert_eq!(script.say("RETR a"), SILENT);
    assert!(script.retrieve().carriage.port.private);
}

#[test]
fn a_client_that_dies_does_not_make_half_an_upload_a_file() {
    for (announce, kept) in [(None, false), (Some("ALLO 900"), true), (Some("SCKS CRC32C 00000000"), true)] {
        let mut script = Script::ready();
        script.say("PORT 192,0,2,7,8,0");
        if let Some(line) = announce {
            script.say(line);
        }
        script.say("STOR a");
        let ticket = script.running[0].0;
        script.event(Event::Received { ticket });
        script.others.clear();
        script.event(Event::Left);
        // In stream mode its end looks like the end of the data.
        assert_eq!(script.others.contains(&Action::Cancel { ticket }), !kept, "{announce:?}");
    }
}
