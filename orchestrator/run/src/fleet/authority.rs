//! The orchestrator's own certificate authority for its workers: made once, kept in a directory, and good for nothing else.

use std::{
    fmt, fs,
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    RootCertStore,
    client::verify_server_cert_signed_by_trust_anchor,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime, pem::PemObject},
    server::ParsedCertificate,
    sign::CertifiedKey,
};
use worker_protocol::Fingerprint;

/// The CA's certificate in its directory.
pub const CERTIFICATE_FILE: &str = "ca.pem";
/// The CA's private key in its directory.
pub const KEY_FILE: &str = "ca.key";
/// Names of the CA and of what it issues. A leaf names its issuer, so the CA's must stay what it is: one made earlier would not match.
const CA_NAME: &str = "Fourcorners CA for workers";
const LEAF_NAME: &str = "Fourcorners orchestrator";
/// Days that an issued certificate is good for. Workers ask for no date, but Safari refuses more than 825 days:
/// <https://support.apple.com/en-us/103769>.
const LEAF_DAYS: i64 = 397;
/// The largest file that is read, bytes; the CA's are below 1 KiB.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// Owner only.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIRECTORY: u32 = 0o700;

/// A CA that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file or directory cannot be read or written.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's own words.
        source: io::Error,
    },
    /// Others than the owner can get at the private key.
    #[error("{}: its mode is {mode:04o}, so others than its owner could take the workers' CA over; allowed is {allowed:04o}: chmod {allowed:o}", path.display())]
    TooOpen {
        /// The file or directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// What they should be.
        allowed: u32,
    },
    /// Only one of the two files is there.
    #[error("{}: it is missing, though {} is there; put it back, or move the other away to have a new CA made", missing.display(), present.display())]
    Half {
        /// The file that is there.
        present: PathBuf,
        /// The file that is not.
        missing: PathBuf,
    },
    /// A file does not hold what it should.
    #[error("{}: {problem}; put the right file back, or move both away to have a new CA made", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What was found.
        problem: String,
    },
    /// The cryptography failed.
    #[error("cannot issue a certificate: {0}")]
    Issue(String),
}

/// The workers' CA.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    fingerprint: Fingerprint,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

impl Authority {
    /// The CA kept in `directory` ([`CERTIFICATE_FILE`], [`KEY_FILE`]); made there where neither file exists.
    ///
    /// # Errors
    /// [`AuthorityError`] names the file that is unreadable, too open, damaged or missing beside the other.
    pub fn open(directory: &Path) -> Result<Self, AuthorityError> {
        let (certificate, key) = (directory.join(CERTIFICATE_FILE), directory.join(KEY_FILE));
        match (exists(&certificate)?, exists(&key)?) {
            (true, true) => {}
            (false, false) => make(directory)?,
            (true, false) => return Err(AuthorityError::Half { present: certificate, missing: key }),
            (false, true) => return Err(AuthorityError::Half { present: key, missing: certificate }),
        }
        check_closed(directory, PRIVATE_DIRECTORY)?;
        check_closed(&key, PRIVATE_FILE)?;
        Self::load(&certificate, &key)
    }

    fn load(certificate_path: &Path, key_path: &Path) -> Result<Self, AuthorityError> {
        let content = |path: &Path, problem: String| AuthorityError::Content { path: path.to_owned(), problem };
        let certificate = CertificateDer::from_pem_slice(read(certificate_path)?.as_bytes())
            .map_err(|error| content(certificate_path, format!("no certificate in PEM form: {error:?}")))?;
        let key = KeyPair::from_pem(&read(key_path)?)
            .map_err(|error| content(key_path, format!("no private key in PEM form: {error}")))?;
        let fingerprint = Fingerprint::of(&certificate);
        let authority = Self { issuer: Issuer::new(ca_parameters(), key), certificate, fingerprint };
        let probe = authority.issue(&["localhost".to_owned()])?;
        authority.verify(&probe).map_err(|error| {
            content(certificate_path, format!("what {} issues does not verify against it: {error}", key_path.display()))
        })?;
        Ok(authority)
    }

    /// SHA-256 over the CA's certificate: what workers pin.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// A certificate with a new key for the orchestrator under these addresses and names, with the CA's own behind it: a worker
    /// knows only the CA's fingerprint, so the CA must come along.
    ///
    /// # Errors
    /// [`AuthorityError::Issue`] for a name that no certificate can carry.
    pub(super) fn issue(&self, names: &[String]) -> Result<Arc<CertifiedKey>, AuthorityError> {
        let issue = |error: &dyn fmt::Display| AuthorityError::Issue(error.to_string());
        let mut parameters = CertificateParams::new(names).map_err(|error| issue(&error))?;
        parameters.distinguished_name = name(LEAF_NAME);
        parameters.is_ca = IsCa::ExplicitNoCa;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        parameters.use_authority_key_identifier_extension = true;
        let at = |days| day(days).map(|(year, month, day)| rcgen::date_time_ymd(year, month, day));
        (parameters.not_before, parameters.not_after) = (at(-1)?, at(LEAF_DAYS)?);
        let key = KeyPair::generate().map_err(|error| issue(&error))?;
        let leaf = parameters.signed_by(&key, &self.issuer).map_err(|error| issue(&error))?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signing = ring::sign::any_supported_type(&key).map_err(|error| issue(&error))?;
        Ok(Arc::new(CertifiedKey::new(vec![leaf.der().clone(), self.certificate.clone()], signing)))
    }

    /// What a worker will check: that the leaf is issued by the certificate whose fingerprint it is given.
    fn verify(&self, leaf: &CertifiedKey) -> Result<(), rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let leaf = ParsedCertificate::try_from(leaf.end_entity_cert()?)?;
        let algorithms = ring::default_provider().signature_verification_algorithms;
        verify_server_cert_signed_by_trust_anchor(&leaf, &roots, &[], UnixTime::now(), algorithms.all)
    }
}

fn name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn ca_parameters() -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = name(CA_NAME);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    parameters
}

/// Year, month and day of the date that is so many days from now, UTC.
fn day(from_now: i64) -> Result<(i32, u8, u8), AuthorityError> {
    let today = jiff::tz::TimeZone::UTC.to_datetime(jiff::Timestamp::now()).date();
    let date = today.checked_add(jiff::Span::new().days(from_now));
    let date = date.map_err(|error| AuthorityError::Issue(error.to_string()))?;
    Ok((i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs()))
}

/// Makes both files in a directory beside `directory`, which then takes its place: there is never one without the other.
fn make(directory: &Path) -> Result<(), AuthorityError> {
    let issue = |error: rcgen::Error| AuthorityError::Issue(error.to_string());
    let key = KeyPair::generate().map_err(issue)?;
    let certificate = ca_parameters().self_signed(&key).map_err(issue)?;
    let mut temporary = directory.as_os_str().to_owned();
    temporary.push(format!(".new-{}", uuid::Uuid::new_v4().simple()));
    let temporary = PathBuf::from(temporary);
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent).map_err(failed("create the directory", parent))?;
    }
    let mut builder = fs::DirBuilder::new();
    builder.mode(PRIVATE_DIRECTORY).create(&temporary).map_err(failed("create the directory", &temporary))?;
    let made = write(&temporary.join(KEY_FILE), &key.serialize_pem())
        .and_then(|()| write(&temporary.join(CERTIFICATE_FILE), &certificate.pem()))
        .and_then(|()| fs::rename(&temporary, directory).map_err(failed("put the new CA there", directory)));
    if made.is_err() {
        // The error that comes first is the one to tell.
        let _ = fs::remove_dir_all(&temporary);
    }
    made
}

fn write(path: &Path, text: &str) -> Result<(), AuthorityError> {
    let written =
        fs::OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(path).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
    written.map_err(failed("write it", path))
}

fn read(path: &Path) -> Result<String, AuthorityError> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text));
    read.map_err(failed("read it", path))?;
    Ok(text)
}

fn exists(path: &Path) -> Result<bool, AuthorityError> {
    path.try_exists().map_err(failed("look for it", path))
}

/// An error where group or others have any permission on `path`.
fn check_closed(path: &Path, allowed: u32) -> Result<(), AuthorityError> {
    let mode = fs::metadata(path).map_err(failed("examine it", path))?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(AuthorityError::TooOpen { path: path.to_owned(), mode, allowed });
    }
    Ok(())
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AuthorityError {
    let path = path.to_owned();
    move |source| AuthorityError::Io { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        _parent: tempfile::TempDir,
        directory: PathBuf,
    }

    fn place() -> Place {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("data/tls");
        Place { _parent: parent, directory }
    }

    fn refused(place: &Place) -> String {
        Authority::open(&place.directory).unwrap_err().to_string()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn it_is_made_once_and_for_its_owner_alone() {
        let place = place();
        let first = Authority::open(&place.directory).unwrap().fingerprint();
        assert_eq!(mode(&place.directory), 0o700);
        assert_eq!(
            (mode(&place.directory.join(KEY_FILE)), mode(&place.directory.join(CERTIFICATE_FILE))),
            (0o600, 0o600)
        );
        assert_eq!(fs::read_dir(place.directory.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        assert_eq!(Authority::open(&place.directory).unwrap().fingerprint(), first, "kept");
        fs::remove_dir_all(&place.directory).unwrap();
        assert_ne!(Authority::open(&place.directory).unwrap().fingerprint(), first, "another one");
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_by_name() {
        let place = place();
        Authority::open(&place.directory).unwrap();
        let key = place.directory.join(KEY_FILE);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        let error = refused(&place);
        assert!(error.contains("ca.key: its mode is 0640") && error.contains("chmod 600"), "{error}");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&place.directory, fs::Permissions::from_mode(0o777)).unwrap();
        let error = refused(&place);
        assert!(error.contains("tls: its mode is 0777") && error.contains("chmod 700"), "{error}");
    }

    #[test]
    fn damaged_missing_and_foreign_files_are_refused_by_name() {
        let place = place();
        Authority::open(&place.directory).unwrap();
        let (certificate, key) = (place.directory.join(CERTIFICATE_FILE), place.directory.join(KEY_FILE));
        let (good_certificate, good_key) = (fs::read(&certificate).unwrap(), fs::read(&key).unwrap());

        fs::write(&key, "no key").unwrap();
        assert!(refused(&place).contains("ca.key: no private key"), "{}", refused(&place));
        fs::write(&key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
        assert!(refused(&place).contains("does not verify against it"), "{}", refused(&place));
        fs::write(&key, &good_key).unwrap();
        fs::write(&certificate, &good_certificate[..100]).unwrap();
        assert!(refused(&place).contains("ca.pem: no certificate"), "{}", refused(&place));
        fs::remove_file(&certificate).unwrap();
        assert!(refused(&place).contains("ca.pem: it is missing"), "{}", refused(&place));
        fs::write(&certificate, &good_certificate).unwrap();
        fs::remove_file(&key).unwrap();
        assert!(refused(&place).contains("ca.key: it is missing"), "{}", refused(&place));
        fs::create_dir(&key).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(refused(&place).contains("ca.key: cannot read it"), "{}", refused(&place));
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Authority::open(&file.join("tls")).unwrap_err().to_string();
        assert!(error.contains("file/tls"), "{error}");
    }
}
