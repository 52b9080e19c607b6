//! Who is sent away, and with what.

use hyper::header::HeaderValue;
use wire::{
    extent::{ByteRange, Extent},
    id::{FileId, VolumeLabel},
};

use super::*;

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    fields
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value")))
        .collect()
}

fn door(clear: bool, tls: bool) -> HttpDoor {
    HttpDoor {
        clear: clear.then(|| "http://10.0.0.1:1".to_owned()),
        tls: tls.then(|| "https://10.0.0.1:2".to_owned()),
        key: GrantKey([3; 32]),
    }
}

fn place(movers: &[&str], door: Option<HttpDoor>) -> Place {
    let segment = |(number, mover): (usize, &&str)| {
        let range = ByteRange::new(number as u64 * 5, 5).expect("small");
        let place = wire::extent::Place::Disk { file: FileId(1), offset_bytes: 0 };
        let extent = Extent { volume: VolumeLabel::new("d0").expect("a label"), place, length_bytes: 5 };
        let mover = MoverId::new(*mover).expect("a name");
        (Segment { range, extent, adler32: 1, crc32c: 2 }, mover, door.clone())
    };
    let segments: Vec<_> = movers.iter().enumerate().map(segment).collect();
    Place { bitfile: BitfileId(9), size_bytes: segments.len() as u64 * 5, segments }
}

#[test]
fn clients_are_sent_away_by_their_name_unless_they_say_otherwise() {
    let of = |name: &str| wish(&headers(&[("user-agent", name)]), None);
    for follows in [
        "libdavix/0.8.4 libcurl/7.88",
        "gfal2-util/1.8 gfal2/2.21 neon/0.0.29",
        "rclone/v1.75.0",
        "aws-sdk-go/1.44.1 (go1.21; linux; amd64) S3Manager",
        "MinIO (Linux; x86_64) minio-py/7.2.0",
        "s3fs/1.90 (commit hash unknown; OpenSSL)",
    ] {
        assert_eq!(of(follows), Ok(()), "{follows}");
    }
    for stays in [
        "",
        "curl/8.5.0",
        "Boto3/1.43 md/Botocore#1.43",
        "aws-cli/2.9",
        "aws-sdk-go-v2/1.30",
        "aws-sdk-js/3",
        "ms3fs/1",
    ] {
        assert_eq!(of(stays), Err(Reason::Client), "{stays}");
    }
    let said = |of: &[(&'static str, &str)]| wish(&headers(of), None);
    assert_eq!(said(&[("user-agent", "curl/8"), ("x-penstock-direct", "ON")]), Ok(()));
    assert_eq!(said(&[("user-agent", "rclone/v1"), ("x-penstock-direct", "off")]), Err(Reason::Asked));
    assert_eq!(said(&[("user-agent", "rclone/v1"), ("origin", "https://x")]), Err(Reason::Client));
}

#[test]
fn what_was_said_of_a_key_goes_behind_a_clients_own_word_and_before_its_name() {
    let (curl, rclone) = (("user-agent", "curl/8"), ("user-agent", "rclone/v1"));
    let (on, off) = (("x-penstock-direct", "on"), ("x-penstock-direct", "off"));
    for (of, key, expected) in [
        (vec![curl], Some(true), Ok(())),
        (vec![curl], None, Err(Reason::Client)),
        (vec![rclone], Some(false), Err(Reason::Key)),
        (vec![rclone], None, Ok(())),
        (vec![curl, on], Some(false), Ok(())),
        (vec![rclone, off], Some(true), Err(Reason::Asked)),
        (vec![curl, ("x-penstock-direct", "perhaps")], Some(true), Ok(())),
        // No mover answers a browser's script.
        (vec![curl, ("origin", "https://x")], Some(true), Err(Reason::Client)),
    ] {
        assert_eq!(wish(&headers(&of), key), expected, "{of:?} {key:?}");
    }
}

#[test]
fn a_client_over_tls_is_not_sent_to_a_door_without() {
    let to = |door, secure| Route::to(place(&["m1"], door), secure, Timestamp(0)).map(|route| route.base);
    assert_eq!(to(Some(door(true, true)), true), Ok("https://10.0.0.1:2".to_owned()));
    assert_eq!(to(Some(door(true, true)), false), Ok("http://10.0.0.1:1".to_owned()));
    assert_eq!(to(Some(door(false, true)), false), Ok("https://10.0.0.1:2".to_owned()));
    assert_eq!(to(Some(door(true, false)), true), Err(Reason::NoDoor));
    assert_eq!(to(None, false), Err(Reason::NoDoor));
}

#[test]
fn what_one_mover_has_not_all_of_is_not_read_there() {
    let to = |movers: &[&str]| Route::to(place(movers, Some(door(true, true))), false, Timestamp(0)).map(|_| ());
    assert_eq!(to(&["m1", "m1"]), Ok(()));
    assert_eq!(to(&["m1", "m2"]), Err(Reason::Striped));
    assert_eq!(to(&[]), Err(Reason::Tape));
    assert_eq!(to(&["m1"; MAX_PIECES + 1]), Err(Reason::Long));
}

#[test]
fn the_grant_says_what_the_door_would_have_said() {
    let route = Route::to(place(&["m1", "m1"], Some(door(true, true))), false, Timestamp(5)).expect("one mover");
    let answer = headers(&[
        ("etag", "\"tag\""),
        ("last-modified", "Sun, 09 Sep 2001 01:46:40 GMT"),
        ("content-length", "3"),
        ("content-range", "bytes 0-2/10"),
        ("content-type", "text/plain"),
        ("x-amz-checksum-crc32", "AAAAAA=="),
        ("x-amz-meta-a", "b"),
    ]);
    let location = route.location("/b/a%20key", &answer).expect("short");
    let sealed = location.strip_prefix("http://10.0.0.1:1/b/a%20key?penstock-grant=").expect("the way there");
    let ticket = Ticket::decode(&daemon::grant::open(&[3; 32], sealed).expect("sealed"));
    let Some(Ticket::Read(grant)) = ticket else { panic!("a grant to read") };
    let mut said = grant.headers.clone();
    said.sort();
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(said, [field("content-type", "text/plain"), field("x-amz-meta-a", "b")]);
    assert_eq!(grant.whole_headers, [field("x-amz-checksum-crc32", "AAAAAA==")]);
    assert_eq!((grant.etag.as_str(), grant.modified_s, grant.size_bytes), ("\"tag\"", 1_000_000_000, 10));
    assert_eq!(grant.expires_us, 900_000_005);
    let mut long = answer.clone();
    long.insert("x-amz-meta-long", HeaderValue::from_str(&"a".repeat(4000)).expect("a value"));
    assert_eq!(route.location("/", &long), None);
}

#[test]
fn who_brings_a_body_is_sent_away_if_it_follows_with_it_and_waits() {
    let of = |name: &str, expect: &str| put_wish(&headers(&[("user-agent", name), ("expect", expect)]), None);
    for name in [
        "libdavix/0.8.4 libcurl/7.88.1",
        "gfal2-util/1.8.0 gfal2/2.21.2",
        "aws-sdk-go/1.44 (go1.19)",
        "aws-sdk-cpp/1.11.0 ua/2.1",
        "s3fs/1.90 (commit hash unknown; OpenSSL)",
        "rclone/v1.60.1-DEV",
        "rclone/",
        "rclone/v1.53",
    ] {
        assert_eq!(of(name, "100-Continue"), Ok(()), "{name}");
        assert_eq!(put_wish(&headers(&[("user-agent", name)]), None), Err(Reason::Hasty), "{name}");
    }
    for name in ["rclone/v1.75.0", "rclone/v2.0", "rclone/vX", "curl/7.88.1", "minio-py/7.2", "Boto3/1.43", ""] {
        assert_eq!(of(name, "100-continue"), Err(Reason::Client), "{name}");
    }
    let asked = |wish: &str| put_wish(&headers(&[("x-penstock-direct", wish), ("expect", "100-continue")]), None);
    assert_eq!((asked("on"), asked("off")), (Ok(()), Err(Reason::Asked)));
    let by_key = |key| put_wish(&headers(&[("expect", "100-continue")]), Some(key));
    assert_eq!((by_key(true), by_key(false)), (Ok(()), Err(Reason::Key)));
}
