//! Commands as real clients send them (dialogues captured from globus-url-copy, gfal, ARC, curl, lftp), the code of
//! every kind of mistake, and round trips.

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;

use crate::checksum::Algorithm;

use super::*;

fn path(text: &str) -> FtpPath {
    FtpPath::new(text).unwrap()
}

fn parse(line: &str) -> Command {
    Command::parse(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[test]
fn every_line_seen_from_real_clients_is_read_and_written_back() {
    for line in [
        "AUTH TLS",
        "AUTH GSSAPI",
        "ADAT AAAA==",
        "USER :globus-mapping:",
        "PASS dummy",
        "SITE HELP",
        "FEAT",
        "SITE CLIENTINFO scheme=gsiftp;appname=\"gfal2-util\";appver=\"1.8.0 (gfal2 2.21.3)\";",
        "TYPE I",
        "MODE E",
        "OPTS RETR Parallelism=4,4,4;",
        "OPTS RETR StripeLayout=Blocked;BlockSize=65536;Parallelism=2,2,2;",
        "PBSZ 1048576",
        "PROT P",
        "PORT 127,0,0,1,171,157",
        "RETR /data/src/10m",
        "PASV",
        "SPAS",
        "SPAS 2",
        "SPOR 127,0,0,1,141,101 127,0,0,2,1,2",
        "SPOR |2|2001:db8::1|5282|",
        "ALLO 10485760",
        "STOR /data/dst/10m",
        "DCAU N",
        "DCAU A",
        "DCAU S /C=CH/CN=x y",
        "DCSC D",
        "OPTS PASV AllowDelayed=1;",
        "OPTS SPAS AllowDelayed=1;",
        "EPSV",
        "EPSV ALL",
        "EPSV 2",
        "EPRT |1|132.235.1.2|6275|",
        "ERET P 1000 5000000 /data/src/10m",
        "ESTO A 1000 /data/dst/10m",
        "REST 0-6198132736",
        "REST 0-29,32-89",
        "REST 5000000",
        "MLST /data/dst/d/",
        "MLSC /a",
        "MLSC",
        "MLSD",
        "MLSC /a b",
        "CKSM ADLER32 0 -1 /a b",
        "CKSM MD5 5 10 x",
        "SITE CHMOD 0600 /data/dst/y",
        "SITE UTIME 20261130124056 /a b",
        "MFMT 20261130124056 /a b",
        "SITE RETRBUFSIZE 1048576",
        "SITE STORBUFSIZE 1048576",
        "SITE SETNETSTACK udt,gsi",
        "SBUF 65536",
        "SITE USAGE TOKEN atlas /a",
        "SITE USAGE /a",
        "SITE SETCOS 3",
        "SITE STAGE /a b",
        "SITE STAGE 60 /a b",
        "SITE CHGRP users /x",
        "SITE SYMLINK /a /b",
        "SITE PARTIAL /a b",
        "SITE WAIT OFF",
        "OPTS UTF8 ON",
        "OPTS MLST Type;Size;Modify;Perm;UNIX.mode;UNIX.owner;UNIX.group;UNIX.uid;UNIX.gid;",
        "OPTS MLST",
        "LANG",
        "CWD /",
        "CDUP",
        "PWD",
        "NLST",
        "LIST /a b",
        "STAT //data/src",
        "SIZE a",
        "MDTM a",
        "RNFR /x",
        "RNTO /y",
        "DELE /x",
        "RMD /x",
        "MKD /x ",
        "QUIT",
        "NOOP",
        "SYST",
        "HELP",
        "HELP RETR",
        "ABOR",
        "REIN",
        "STOU",
        "APPE x",
        "TREV RESTART 5",
        "SCKS ADLER32 03e80001",
        "HASH x",
        "OPTS HASH SHA256",
        "CLNT lftp",
        "STRU F",
        "MODE S",
        "GET pasv;mode=e;path=/a b;",
        "PUT port=1,2,3,4,5,6;mode=s;path=/a;",
        "PROT S",
        "CCC",
        "ENC AAAA",
        "MIC AAAA",
        "CONF AAAA",
        "TYPE A",
        "TYPE L 36",
        "ACCT x",
        "SMNT x",
    ] {
        assert_eq!(parse(line).line(), line);
    }
}

#[test]
fn other_spellings_mean_the_same() {
    for (spelling, meaning) in [
        ("xmkd a", "MKD a"),
        ("XPWD", "PWD"),
        ("xcup", "CDUP"),
        ("XCWD a", "CWD a"),
        ("XRMD a", "RMD a"),
        ("TYPE L 8", "TYPE I"),
        ("type a n", "TYPE A"),
        ("LIST -la", "LIST"),
        ("LIST -a -l b", "LIST b"),
        ("auth tls-c", "AUTH TLS"),
        ("ALLO 5 R 100", "ALLO 5"),
        ("ALLO64 5", "ALLO 5"),
        ("PASV ", "PASV"),
        ("OPTS retr parallelism=4;", "OPTS RETR Parallelism=4,4,4;"),
        ("OPTS UTF-8", "OPTS UTF8 ON"),
        ("GET path=/a;mode=E;pasv;", "GET pasv;mode=e;path=/a;"),
        ("cksm adler32 0 -1 a", "CKSM ADLER32 0 -1 a"),
        ("site utime a b 20200101000000 20210101000000 20220101000000 UTC", "SITE UTIME 20210101000000 a b"),
        ("SITE CHGID 5 x", "SITE CHGRP 5 x"),
        ("SITE chmod 600 x", "SITE CHMOD 0600 x"),
    ] {
        assert_eq!(parse(spelling).line(), meaning, "{spelling}");
    }
}

#[test]
fn each_kind_of_mistake_has_its_own_code() {
    for (line, code) in [
        ("", 500),
        ("XYZZY", 500),
        (" NOOP", 500),
        ("SITE XYZZY a", 500),
        ("CWD a\0b", 500),
        ("CWD a\rDELE b", 500),
        ("RETR", 501),
        ("RETR ", 501),
        ("SITE", 501),
        ("OPTS", 501),
        ("PORT 1,2,3", 501),
        ("PORT 1,2,3,4,5,256", 501),
        ("EPRT |1|::1|5|", 501),
        ("EPSV x", 501),
        ("PASV x", 501),
        ("ALLO x", 501),
        ("ALLO -1", 501),
        ("ALLO 9223372036854775808", 501),
        ("REST 5-4", 501),
        ("REST", 501),
        ("PBSZ 4294967296", 501),
        ("MODE", 501),
        ("TYPE", 501),
        ("ERET P 5 x", 501),
        ("ERET P -1 5 x", 501),
        ("ESTO A x y", 501),
        ("CKSM MD5 0 -1", 501),
        ("CKSM MD5 0 -2 x", 501),
        ("SITE CHMOD 99 x", 501),
        ("SITE CHMOD 17777 x", 501),
        ("SITE CHMOD 600", 501),
        ("MFMT 2026 x", 501),
        ("GET mode=e;pasv;", 501),
        ("GET path=;", 501),
        ("SPOR", 501),
        ("SCKS MD5 12", 501),
        ("DCAU S", 501),
        ("OPTS RETR Parallelism=x;", 501),
        ("OPTS RETR Parallelism=1,2;", 501),
        ("AUTH", 501),
        ("MODE X", 504),
        ("TYPE Q", 504),
        ("TYPE A T", 504),
        ("STRU Z", 504),
        ("PROT Q", 504),
        ("DCAU X", 504),
        ("ERET Q 5 5 x", 504),
        ("ESTO Q 5 x", 504),
        ("CKSM TIGER 0 -1 x", 504),
        ("OPTS FOO x", 504),
        ("SPAS 3", 504),
        ("OPTS RETR Parallelism=0;", 504),
        ("OPTS RETR Parallelism=4,4,99999;", 504),
        ("OPTS RETR Foo=1;", 504),
        ("OPTS RETR StripeLayout=Zigzag;", 504),
        ("OPTS RETR BlockSize=0;", 504),
        ("GET path=a;color=red;", 504),
        ("EPRT |3|x|5|", 522),
        ("EPSV 3", 522),
    ] {
        let error = Command::parse(line).expect_err(line);
        assert_eq!(error.code(), code, "{line}: {error}");
        assert_eq!(error.reply().code(), code);
    }
    let long = format!("CWD {}", "a".repeat(MAX_PATH_BYTES + 1));
    assert_eq!(Command::parse(&long).unwrap_err().code(), 501);
    assert_eq!(Command::parse(&"x".repeat(MAX_TOKEN_LINE_BYTES + 1)).unwrap_err().code(), 500);
}

#[test]
fn an_error_never_repeats_more_than_a_few_characters_of_the_peer() {
    let error = Command::parse(&format!("TYPE {}", "x".repeat(4000))).unwrap_err();
    assert!(error.to_string().len() < 200);
}

#[test]
fn secrets_stay_out_of_debug_output() {
    for line in ["PASS hunter2", "ADAT hunter2", "ENC hunter2", "DCSC P hunter2", "ACCT hunter2"] {
        assert!(!format!("{:?}", parse(line)).contains("hunter2"), "{line}");
    }
}

#[test]
fn a_path_with_a_semicolon_needs_another_command_than_get() {
    assert!(Transaction::passive(path("/a;b"), TransferMode::Stream).is_err());
    let stage = Command::Site(SiteCommand::Stage { wait_seconds: None, path: path("5 x") });
    assert_eq!(stage.line(), "SITE STAGE 0 5 x");
}

fn any_path() -> impl Strategy<Value = FtpPath> {
    "[^\r\n\0]{1,40}".prop_map(|text| FtpPath::new(text).unwrap())
}

fn any_address() -> impl Strategy<Value = SocketAddr> {
    any::<(IpAddr, u16)>().prop_map(SocketAddr::from)
}

fn any_command() -> impl Strategy<Value = Command> {
    let sum = || prop::sample::select(Algorithm::ALL.to_vec());
    let offset = || 0..=i64::MAX as u64;
    prop_oneof![
        any_path().prop_map(Command::Retr),
        any_path().prop_map(Command::Cwd),
        any_path().prop_map(Command::Mkd),
        proptest::option::of(any_path()).prop_map(Command::Mlsd),
        any::<std::net::SocketAddrV4>().prop_map(Command::Port),
        any_address().prop_map(Command::Eprt),
        prop::collection::vec(any_address(), 1..20).prop_map(Command::Spor),
        any::<u32>().prop_map(Command::Pbsz),
        offset().prop_map(|offset| Command::Rest(RestartPoint::Offset(offset))),
        (offset(), offset(), any_path()).prop_map(|(offset_bytes, length_bytes, path)| {
            Command::Eret(Part { offset_bytes, length_bytes, path })
        }),
        (offset(), any_path()).prop_map(|(offset_bytes, path)| Command::Esto { offset_bytes, path }),
        (sum(), offset(), proptest::option::of(offset()), any_path()).prop_map(
            |(algorithm, offset_bytes, length_bytes, path)| Command::Cksm {
                algorithm,
                offset_bytes,
                length_bytes,
                path
            }
        ),
        (0u32..0o10000, any_path()).prop_map(|(mode, path)| Command::Site(SiteCommand::Chmod { mode, path })),
        (proptest::option::of(offset()), "/[^\r\n\0]{1,40}").prop_map(|(wait_seconds, text)| {
            Command::Site(SiteCommand::Stage { wait_seconds, path: FtpPath::new(text).unwrap() })
        }),
        (0i64..4_000_000_000, any_path())
            .prop_map(|(seconds, path)| Command::Mfmt { time: FtpTime::from_seconds(seconds), path }),
    ]
}

proptest! {
    #[test]
    fn a_command_survives_the_round_trip(command in any_command()) {
        prop_assert_eq!(Command::parse(&command.line()).unwrap(), command);
    }

    #[test]
    fn any_text_is_a_command_or_an_error(line: String) {
        let _ = Command::parse(&line);
    }

    #[test]
    fn any_arguments_are_read_or_refused_and_what_is_read_is_written_back(
        verb in prop::sample::select(vec![
            "USER", "CWD", "PORT", "EPRT", "SPOR", "TYPE", "MODE", "REST", "ERET", "ESTO", "GET", "PUT", "MFMT", "CKSM",
            "SCKS", "OPTS RETR", "OPTS PASV", "OPTS MLST", "SITE UTIME", "SITE STAGE", "SITE USAGE", "SITE CHMOD", "DCAU",
            "DCSC", "ALLO", "TREV", "EPSV",
        ]),
        arguments in "[ -~é]{0,30}",
    ) {
        if let Ok(command) = Command::parse(&format!("{verb} {arguments}")) {
            let line = command.line();
            prop_assert_eq!(Command::parse(&line).map(|again| again.line()), Ok(line));
        }
    }
}
