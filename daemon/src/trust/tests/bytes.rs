//! Anything at all instead of certificates.

use super::*;
use crate::pki::subject_hash;

#[test]
fn a_chain_with_any_byte_changed_or_cut_off_is_never_that_user_and_never_panics() {
    let ca = TestCa::root("CA");
    let store = store_with(&ca.revocation_list(&[], 1), &[&ca]);
    let good = ProxySpec::default().signed_by(&ca.user("Alice"));
    assert!(verify(&store, &good).is_ok());
    for (index, certificate) in good.chain().iter().enumerate() {
        for position in 0..certificate.len() {
            for change in [0x01, 0x80] {
                let mut chain = good.chain().to_vec();
                let mut bytes = certificate.to_vec();
                bytes[position] ^= change;
                chain[index] = bytes.into();
                let verdict = store.verify(&chain, Purpose::Client, noon());
                assert!(verdict.is_err(), "certificate {index}, byte {position}: {verdict:?}");
            }
            let mut chain = good.chain().to_vec();
            chain[index] = certificate[..position].to_vec().into();
            assert!(store.verify(&chain, Purpose::Client, noon()).is_err());
        }
    }
}

#[test]
fn arbitrary_bytes_never_panic_a_parser() {
    let seed = crate::pki::random_u64();
    println!("seed {seed}");
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let ca = TestCa::root("CA");
    let store = store(&[&ca]);
    let good = ProxySpec::default().signed_by(&ca.user("Alice"));
    let list = rustls_pki_types::CertificateRevocationListDer::from(pem_body(&ca.revocation_list(&[&ca.der], 1)));
    let seeds: Vec<Vec<u8>> = good.chain().iter().map(|der| der.to_vec()).chain([list.to_vec(), vec![0; 40]]).collect();
    let algorithms = crate::tls::provider().signature_verification_algorithms;
    for _ in 0..10_000 {
        let mut bytes = seeds[next() as usize % seeds.len()].clone();
        for _ in 0..=next() % 6 {
            let at = next() as usize % bytes.len();
            match next() % 3 {
                0 => bytes[at] = next() as u8,
                1 => bytes.truncate(at + 1),
                _ => bytes.insert(at, next() as u8),
            }
        }
        let _ = crl::Crl::read(&bytes, &[0x30, 0], &algorithms);
        let _ = crl::Crl::issuer_of(&bytes);
        let _ = policy::SigningPolicy::parse(&String::from_utf8_lossy(&bytes));
        let _ = String::from_utf8_lossy(&bytes).parse::<Dn>();
        let der = CertificateDer::from(bytes);
        let _ = subject_hash(&der);
        let _ = TrustStore::from_pem(&der, TrustOptions::default());
        let _ = store.verify(&[good.chain()[0].clone(), der.clone()], Purpose::Either, noon());
        let _ = store.verify(&[der, good.chain()[1].clone()], Purpose::Either, noon());
    }
}

fn pem_body(text: &str) -> Vec<u8> {
    use rustls_pki_types::pem::PemObject as _;
    rustls_pki_types::CertificateRevocationListDer::from_pem_slice(text.as_bytes()).unwrap().to_vec()
}
