//! Users, sessions, links and tokens.

use jiff::{SignedDuration, Timestamp};
use store::{DataDir, IDLE_LIMIT, MAX_SESSIONS, MAX_TOKENS, NewToken, Role, SESSION_LIMIT, SecretHash, Store};

async fn new_store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&DataDir::new(dir.path())).await.unwrap();
    (dir, store)
}

fn hash(number: u8) -> SecretHash {
    [number; 32]
}

#[tokio::test]
async fn names_are_told_apart_without_their_case_and_the_last_administrator_stays() {
    let (_dir, store) = new_store().await;
    assert!(!store.has_admin().await.unwrap());
    let invited = store.add_user("invited", Role::Admin, None).await.unwrap();
    assert!(!store.has_admin().await.unwrap(), "one who cannot log in");
    let boss = store.add_user("Boss", Role::Admin, Some("hash")).await.unwrap();
    assert!(store.has_admin().await.unwrap());
    let taken = store.add_user("bOSS", Role::Viewer, None).await.unwrap_err().to_string();
    assert!(taken.contains("there is a user \"bOSS\" already"), "{taken}");
    for refused in [store.set_role(boss, Role::Viewer).await, store.remove_user(boss).await] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("Boss is the last administrator"), "{refused}");
    }
    assert_eq!(store.user_named("BOSS").await.unwrap().unwrap().role, Role::Admin);
    store.remove_user(invited).await.unwrap();
    let second = store.add_user("second", Role::Admin, Some("hash")).await.unwrap();
    store.set_role(boss, Role::Viewer).await.unwrap();
    assert!(store.remove_user(second).await.is_err());
    let names: Vec<String> = store.list_users().await.unwrap().into_iter().map(|user| user.name).collect();
    assert_eq!(names, ["Boss", "second"]);
    let gone = store.remove_user(invited).await.unwrap_err().to_string();
    assert!(gone.contains("there is no user"), "{gone}");
}

#[tokio::test]
async fn a_session_ends_unused_and_in_any_case() {
    let (_dir, store) = new_store().await;
    let user = store.add_user("viewer", Role::Viewer, Some("hash")).await.unwrap();
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let minute = SignedDuration::from_secs(60);
    let open = async |now| store.session(&hash(1), now).await.unwrap().is_some();
    store.open_session(&hash(1), Some(user), start).await.unwrap();
    assert!(open(start + IDLE_LIMIT - minute).await);
    assert!(open(start + IDLE_LIMIT + minute).await, "it was used");
    assert!(!open(start + IDLE_LIMIT + IDLE_LIMIT + 2 * minute).await, "it was not used for too long");

    store.open_session(&hash(2), Some(user), start).await.unwrap();
    let mut now = start;
    while now < start + SESSION_LIMIT - IDLE_LIMIT {
        now += IDLE_LIMIT / 2;
        assert!(store.session(&hash(2), now).await.unwrap().is_some(), "{now}");
    }
    assert!(store.session(&hash(2), start + SESSION_LIMIT - minute).await.unwrap().is_some());
    assert!(store.session(&hash(2), start + SESSION_LIMIT).await.unwrap().is_none(), "a session has an end");
    let last = store.user_named("viewer").await.unwrap().unwrap().last_login.unwrap();
    assert_eq!(last, start);
}

#[tokio::test]
async fn the_oldest_of_too_many_sessions_ends() {
    let (_dir, store) = new_store().await;
    let user = store.add_user("viewer", Role::Viewer, Some("hash")).await.unwrap();
    let start = Timestamp::now();
    store.open_session(&hash(200), None, start).await.unwrap();
    for number in 0..=u8::try_from(MAX_SESSIONS).unwrap() {
        let now = start + SignedDuration::from_secs(i64::from(number));
        store.open_session(&hash(number), Some(user), now).await.unwrap();
    }
    let now = start + SignedDuration::from_secs(100);
    assert!(store.session(&hash(0), now).await.unwrap().is_none());
    assert!(store.session(&hash(1), now).await.unwrap().is_some());
    let terminal = store.session(&hash(200), now).await.unwrap().unwrap();
    assert_eq!(terminal.user, None, "nobody's sessions are not a user's");
}

#[tokio::test]
async fn a_password_link_works_once_and_ends_sessions() {
    let (_dir, store) = new_store().await;
    let user = store.add_user("viewer", Role::Viewer, Some("old")).await.unwrap();
    let now = Timestamp::now();
    let later = now + SignedDuration::from_hours(1);
    store.open_session(&hash(1), Some(user), now).await.unwrap();
    store.add_password_link(user, &hash(10), later).await.unwrap();
    store.add_password_link(user, &hash(11), later).await.unwrap();
    assert!(store.password_link(&hash(10), now).await.unwrap().is_none(), "a newer one replaces it");
    assert!(store.password_link(&hash(11), later).await.unwrap().is_none(), "it has expired");
    assert!(store.use_password_link(&hash(11), "new", false, later).await.unwrap().is_none());
    assert_eq!(store.use_password_link(&hash(11), "new", false, now).await.unwrap().unwrap().id, user);
    assert!(store.use_password_link(&hash(11), "newer", false, now).await.unwrap().is_none(), "it was used");
    assert_eq!(store.user(user).await.unwrap().password_hash.as_deref(), Some("new"));
    assert!(store.session(&hash(1), now).await.unwrap().is_none());

    store.open_session(&hash(2), Some(user), now).await.unwrap();
    store.open_session(&hash(3), Some(user), now).await.unwrap();
    store.set_password(user, "newest", Some(&hash(2)), false).await.unwrap();
    assert!(store.session(&hash(2), now).await.unwrap().is_some(), "the one that changed it");
    assert!(store.session(&hash(3), now).await.unwrap().is_none());
}

#[tokio::test]
async fn a_token_ends_and_does_not_outlive_its_user() {
    let (_dir, store) = new_store().await;
    store.add_user("boss", Role::Admin, Some("hash")).await.unwrap();
    let id = store.add_user("helper", Role::Admin, Some("hash")).await.unwrap();
    let user = store.user(id).await.unwrap();
    let now = Timestamp::now();
    let expires = now + SignedDuration::from_hours(1);
    let add = async |number: u8, role| {
        let new = NewToken { user: &user, name: "script", role, hash: &hash(number), expires };
        store.add_token(&new).await
    };
    let token = add(1, Role::Admin).await.unwrap();
    add(2, Role::Viewer).await.unwrap();
    let role = async |number| store.token_bearer(&hash(number), now).await.unwrap().map(|bearer| bearer.role);
    assert_eq!((role(1).await, role(2).await, role(3).await), (Some(Role::Admin), Some(Role::Viewer), None));
    assert!(store.token_bearer(&hash(1), expires).await.unwrap().is_none());
    assert!(store.list_tokens(Some(id)).await.unwrap().iter().all(|token| token.last_used.is_some()));
    store.set_role(id, Role::Viewer).await.unwrap();
    assert_eq!(role(1).await, Some(Role::Viewer));
    store.revoke_token(token, None).await.unwrap();
    assert_eq!(role(1).await, None);
    assert!(store.revoke_token(token, None).await.is_err());
    for number in 10..u8::try_from(MAX_TOKENS).unwrap() + 9 {
        add(number, Role::Viewer).await.unwrap();
    }
    let many = add(99, Role::Viewer).await.unwrap_err().to_string();
    assert!(many.contains("50 API tokens, which is the most"), "{many}");
    store.remove_user(id).await.unwrap();
    assert_eq!(role(2).await, None);
    assert!(store.list_tokens(None).await.unwrap().is_empty());
}
