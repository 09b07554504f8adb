//! The connection to a cluster: trust, token, errors, repeats.

use crate::fakes::{Fake, Memory, TOKEN, provision, quick};
use hypervisor::Hypervisor;
use hypervisor::proxmox::{Guard, Proxmox, Settings, Token, Trust, presented_fingerprint};

fn with_trust(fake: &Fake, trust: Trust) -> Proxmox {
    let settings = Settings { tls: trust, ..fake.settings() };
    Proxmox::new(settings, Guard::default(), Token::new(TOKEN, crate::fakes::SECRET).unwrap(), quick()).unwrap()
}

#[tokio::test]
async fn a_certificate_is_trusted_by_authority_or_fingerprint_and_never_without() {
    let Some(fake) = Fake::start() else { return };
    let by_authority = Trust { ca_file: Some(fake.certificate.clone()), fingerprint: None };
    assert!(with_trust(&fake, by_authority).inventory().await.unwrap().product.contains("9.0"));

    let credentials = fake.get("pve.credentials");
    let shown = presented_fingerprint(&fake.url).await.unwrap();
    assert_eq!(fake.get("pve.credentials"), credentials, "nothing secret is sent to look at a certificate");
    assert_eq!(shown.to_string().replace(':', "").to_lowercase(), fake.sha256);
    let pinned = Trust { ca_file: None, fingerprint: Some(shown) };
    assert!(with_trust(&fake, pinned).inventory().await.is_ok());

    let other: String = fake.sha256.chars().rev().collect();
    let wrong = Trust { ca_file: None, fingerprint: Some(other.parse().unwrap()) };
    let credentials = fake.get("pve.credentials");
    let error = with_trust(&fake, wrong).inventory().await.unwrap_err().to_string();
    assert!(error.contains(&shown.to_string()) && error.contains("is pinned"), "{error}");
    assert_eq!(fake.get("pve.credentials"), credentials, "the handshake fails before the token is sent");

    let error = with_trust(&fake, Trust::default()).inventory().await.unwrap_err().to_string();
    assert!(error.contains("certificate") && error.contains("tls.ca_file"), "{error}");
}

#[tokio::test]
async fn a_wrong_secret_is_said_to_be_that_and_is_not_shown() {
    let Some(fake) = Fake::start() else { return };
    let token = Token::new(TOKEN, "wrong-secret").unwrap();
    let provider = Proxmox::new(fake.settings(), Guard::default(), token, quick()).unwrap();
    let error = provider.inventory().await.unwrap_err();
    assert!(error.to_string().contains("authentication failure"), "{error}");
    assert!(error.to_string().contains("pveum user token list"), "{error}");
    assert!(!format!("{error:?} {error}").contains("wrong-secret"));
    assert_eq!(fake.requests("GET", "/version"), 1, "a refusal is not repeated");
}

#[tokio::test]
async fn reads_pass_through_what_passes_by_itself() {
    let Some(fake) = Fake::start() else { return };
    let provider = fake.provider();
    fake.run("pve.fail('GET', '/version', 503, 'busy', times=3)");
    assert!(provider.inventory().await.is_ok());
    fake.run("pve.fail('GET', '/version', 500, 'strange', times=2)");
    assert!(provider.inventory().await.is_ok());
    fake.run("pve.fail('GET', '/version', 502, '<html>bad gateway', html=True, times=1)");
    assert!(provider.inventory().await.is_ok());
}

#[tokio::test]
async fn what_does_not_pass_ends_within_the_bound_with_the_words_of_pve() {
    let Some(fake) = Fake::start() else { return };
    let provider = fake.provider();
    fake.run("pve.fail('GET', '/version', 500, 'something broke')");
    let error = provider.inventory().await.unwrap_err().to_string();
    assert!(error.contains("GET /version: PVE answers 500: something broke"), "{error}");
    assert_eq!(fake.requests("GET", "/version"), 3);

    fake.run("pve.failures = {}\npve.flaky_network(drop_rate=1.0)");
    let since = std::time::Instant::now();
    let error = provider.inventory().await.unwrap_err().to_string();
    assert!(error.contains("no answer"), "{error}");
    assert!(since.elapsed() < std::time::Duration::from_secs(8), "{:?}", since.elapsed());
}

#[tokio::test]
async fn a_flaky_network_is_read_through() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.flaky_network(drop_rate=0.3)");
    let inventory = fake.provider().inventory().await.unwrap();
    let hosts: Vec<&str> = inventory.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(hosts, ["pve1", "pve2"]);
    let ceph = inventory.storages.iter().find(|storage| storage.name == "ceph").unwrap();
    assert_eq!((ceph.kind.as_str(), ceph.shared, ceph.hosts.len()), ("rbd", true, 2));
    assert_eq!(inventory.networks[0].name, "vmbr0");
}

#[tokio::test]
async fn nobody_there_is_said_with_what_to_check() {
    let Some(fake) = Fake::start() else { return };
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = Settings { endpoint: format!("https://127.0.0.1:{free}"), ..fake.settings() };
    let token = Token::new(TOKEN, "x").unwrap();
    let error = Proxmox::new(settings, Guard::default(), token, quick()).unwrap().inventory().await.unwrap_err();
    assert!(error.to_string().contains("no connection") && error.to_string().contains("target.endpoint"), "{error}");
}

#[tokio::test]
async fn a_message_that_stands_in_the_status_line_only_is_shown() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.terse = True\npve.fail('GET', '/version', 500, 'told as PVE 8 does')");
    let error = fake.provider().inventory().await.unwrap_err().to_string();
    assert!(error.contains("PVE answers 500: told as PVE 8 does"), "{error}");
}

#[tokio::test]
async fn a_certificate_that_changes_in_mid_run_ends_it_without_the_token_and_nothing_is_lost() {
    let Some(fake) = Fake::start() else { return };
    let before = fake.inventory();
    let pinned = |sha256: &str| Trust { ca_file: None, fingerprint: Some(sha256.parse().unwrap()) };
    let provider = with_trust(&fake, pinned(&fake.sha256));
    let journal = Memory::default();
    let workers = provision(&provider, 1, 1, &journal).await.unwrap();
    let other = fake.get("pve.change_certificate()");
    let credentials = fake.get("pve.credentials");
    let errors = [
        provider.guard(&workers).await.unwrap_err().to_string(),
        provider.destroy(&journal.entries(), &journal).await.unwrap_err().to_string(),
    ];
    for error in errors {
        assert!(error.contains("is pinned") && error.contains("fingerprint"), "{error}");
    }
    assert_eq!(fake.get("pve.credentials"), credentials, "the token was not sent");
    assert_eq!(fake.get("len(pve.vms)"), 1);
    let again = with_trust(&fake, pinned(other.as_str().unwrap()));
    assert_eq!(again.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
}
