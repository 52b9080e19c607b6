//! Many files at once: copies within a mover, and the receiving half of a copy between movers.

use wire::{
    checksum::Sums,
    id::FileId,
    mover::{FaultKind, FilePiece, Framing, Sink, Source},
};

use super::{
    kit::*,
    peers::{connect, send_block, send_end},
};

const SECOND: &str = "m1.d1";

async fn two_volumes(site: &Site) -> (Running, Gateway) {
    let mut config = site.config();
    config.volumes.push(site.volume(SECOND, None));
    let running = site.start(config).await;
    let gateway = site.gateway(&running, "gw1", 1).await;
    (running, gateway)
}

fn file_piece(offset: u64, data: &[u8], sums: Option<Sums>) -> FilePiece {
    FilePiece { range: range(offset, data.len() as u64), volume: label(SECOND), file: FileId(number()), sums }
}

#[tokio::test]
async fn files_are_copied_to_another_volume_and_a_bad_one_fails_alone() {
    let site = Site::new();
    let (_running, mut gateway) = two_volumes(&site).await;
    let datas: Vec<_> = [0, 1, 4096, 700_000].iter().map(|&length| pattern(length, length as u64 + 1)).collect();
    let (mut pieces, mut files, mut at) = (Vec::new(), Vec::new(), 0);
    for data in &datas {
        let file = gateway.put(data).await;
        pieces.push(piece(at, file, 0, data.len() as u64, Some(Sums::of(data))));
        files.push(file_piece(at, data, Some(Sums::of(data))));
        at += data.len() as u64;
    }
    // The last one is not what its sums say.
    let bad = gateway.put(&pattern(5000, 99)).await;
    pieces.push(piece(at, bad, 0, 5000, Some(Sums::of(b"other"))));
    files.push(file_piece(at, &pattern(5000, 99), None));
    let transfer = gateway.start(Source::Extents(pieces), Sink::Files(files.clone())).await;
    let outcome = gateway.end(transfer).await.unwrap();
    assert_eq!(outcome.failed.len(), 1, "{:?}", outcome.failed);
    assert_eq!((outcome.failed[0].offset_bytes, outcome.failed[0].fault.kind), (at, FaultKind::Corrupt));
    let durable = gateway.durable(transfer);
    assert_eq!(durable.len(), datas.len());
    for (file, data) in files.iter().zip(&datas) {
        let written = durable.iter().find(|written| written.range == file.range).unwrap();
        assert_eq!(written.sums, Sums::of(data));
        assert_eq!(content(&site.volume_folder(SECOND), file.file), *data);
    }
    assert!(find(&site.volume_folder(SECOND), files[4].file).is_none());
}

#[tokio::test]
async fn many_small_files_come_over_one_channel_in_any_order() {
    let site = Site::new();
    let (_running, mut gateway) = two_volumes(&site).await;
    let datas: Vec<_> = (0..300).map(|number| pattern(100 + number * 13, number as u64)).collect();
    let whole: Vec<u8> = datas.concat();
    let mut at = 0;
    let mut files: Vec<_> = datas
        .iter()
        .map(|data| {
            let file = file_piece(at, data, Some(Sums::of(data)));
            at += data.len() as u64;
            file
        })
        .collect();
    files[7].sums = Some(Sums::of(b"something else"));
    let (channel, address) = gateway.listen(Framing::ModeE).await;
    let source = from(channel, Some(range(0, whole.len() as u64)));
    let transfer = gateway.start(source, Sink::Files(files.clone())).await;
    let mut streams = [connect(address).await, connect(address).await];
    let mut blocks: Vec<_> = (0..whole.len()).step_by(10_007).collect();
    blocks.reverse();
    for (number, start) in blocks.into_iter().enumerate() {
        let end = (start + 10_007).min(whole.len());
        send_block(&mut streams[number % 2], start as u64, &whole[start..end]).await.unwrap();
    }
    send_end(&mut streams[0], Some(2)).await;
    send_end(&mut streams[1], None).await;
    let outcome = gateway.end(transfer).await.unwrap();
    assert_eq!(outcome.failed.iter().map(|piece| piece.offset_bytes).collect::<Vec<_>>(), [files[7].range.offset()]);
    assert_eq!(gateway.durable(transfer).len(), 299);
    for (file, data) in files.iter().zip(&datas).step_by(50) {
        assert_eq!(content(&site.volume_folder(SECOND), file.file), *data);
    }
}

#[tokio::test]
async fn a_cut_batch_keeps_what_is_whole_and_names_what_is_not() {
    let site = Site::new();
    let (_running, mut gateway) = two_volumes(&site).await;
    let data = pattern(3000, 1);
    let files: Vec<_> = (0..3).map(|number| file_piece(number * 1000, &data[..1000], None)).collect();
    let (channel, address) = gateway.listen(Framing::Stream).await;
    let transfer = gateway.start(from(channel, Some(range(0, 3000))), Sink::Files(files.clone())).await;
    let mut stream = connect(address).await;
    tokio::io::AsyncWriteExt::write_all(&mut stream, &data[..1500]).await.unwrap();
    drop(stream);
    let (failed, outcome) = match gateway.end(transfer).await {
        Ok(outcome) => (None, outcome),
        Err((fault, outcome)) => (Some(fault), outcome),
    };
    assert_eq!(outcome.failed.len(), 2, "{failed:?} {outcome:?}");
    assert_eq!(gateway.durable(transfer).len(), 1);
    let left: Vec<_> = gateway.files(SECOND).await.iter().map(|(file, ..)| *file).collect();
    assert_eq!(left, [files[0].file]);
}
