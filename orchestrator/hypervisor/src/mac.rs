//! MAC addresses of worker VMs.

use sha2::{Digest, Sha256};

/// Address of a worker's network card: locally administered, and 40 bits of its UUID's digest, so that two of a place do not meet.
pub(crate) fn of(uuid: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(uuid.to_lowercase().as_bytes()).into();
    let tail = digest[..5].iter().map(|byte| format!(":{byte:02X}")).collect::<String>();
    format!("02{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_the_uuid_counts_and_its_case_does_not() {
        let uuid = "6a1c0000-0000-4000-8000-0000000000a1";
        assert_eq!(of(uuid), of(&uuid.to_uppercase()));
        assert_eq!(of(uuid), "02:78:9B:DD:75:D7");
        assert_ne!(of(uuid), of("6a1d0000-0000-4000-8000-0000000000a1"), "alike in the last bytes");
    }
}
