//! Terraform's state locks, by the protocol of its HTTP backend: LOCK and UNLOCK of a path, with a lock info as the body.
//!
//! The lock of the path `/shop` is `terraform:shop`. Its owner is the ID of the lock info, and its note the lock info.

mod kept;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::body::Bytes;
use hyper::header::{ALLOW, AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::{HeaderMap, Request, StatusCode, Uri};
use palisade_client::by_owner::{ShownGrant, Take, Wanted};
use palisade_client::{Error, ErrorKind};
use serde_json::{Value, json};

use self::kept::{Kept, lease};
use crate::http::{self, Response, TEXT};
use crate::limits::{PATH_BYTES_MAX, TERRAFORM_COLLISION_TIME, TERRAFORM_LOCKS_MAX};
use crate::password::Password;
use crate::refused::Refused;
use crate::state::State;

/// The beginning of the names of all locks of Terraform.
const PREFIX: &str = "terraform:";

/// The content type of a lock info.
const JSON: &str = "application/json";

/// The configuration of Terraform's locks.
#[derive(Clone, Debug)]
pub struct Http {
    /// The address at which LOCK and UNLOCK are served.
    pub address: SocketAddr,
    /// The name and password that requests must have, as `name:password`; `None` if they need none.
    pub credentials: Option<Password>,
    /// The file with the locks that the next agent continues.
    pub locks: PathBuf,
}

/// The service for Terraform.
#[derive(Debug)]
pub struct Terraform {
    state: Arc<State>,
    credentials: Option<Password>,
    kept: Arc<Kept>,
    tell: fn(&str),
}

/// An error answer: the status, and a text for people.
type ErrorAnswer = (StatusCode, String);

impl Terraform {
    /// Creates the service, and continues the locks of the last agent.
    ///
    /// # Errors
    /// The file of locks cannot be read or written; the error is one line that says why.
    pub fn open(config: &Http, state: &Arc<State>, tell: fn(&str)) -> Result<Arc<Self>, String> {
        let kept = Kept::open(Arc::clone(state), tell, config.locks.clone())?;
        Ok(Arc::new(Self { state: Arc::clone(state), credentials: config.credentials.clone(), kept, tell }))
    }

    /// Returns whether the next agent with the same file continues this owner's lock.
    pub fn continues(&self, key: &[u8], owner: &[u8]) -> bool {
        self.kept.has(key, owner)
    }

    /// Answers a request.
    pub async fn answer(self: Arc<Self>, request: Request<Bytes>) -> Response {
        if let Some(status) = self.refused(request.headers()) {
            let mut response =
                respond((status, "a user and a password are needed: TF_HTTP_USERNAME, TF_HTTP_PASSWORD".to_owned()));
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic"));
            return response;
        }
        if self.state.is_ending() {
            return respond((StatusCode::SERVICE_UNAVAILABLE, "the agent is ending: ask again".to_owned()));
        }
        let key = match key(request.uri()) {
            Ok(key) => key,
            Err(wrong) => return respond(wrong),
        };
        match request.method().as_str() {
            "LOCK" | "PUT" => self.lock(&key, request.into_body()).await.unwrap_or_else(respond),
            "UNLOCK" | "DELETE" => {
                // The unlocking is completed even if the client disconnects.
                let unlocking = tokio::spawn(async move { self.unlock(&key, &request.into_body()).await });
                match unlocking.await {
                    Ok(Ok(())) => http::response(StatusCode::OK, TEXT, ""),
                    Ok(Err(wrong)) => respond(wrong),
                    Err(_) => respond((StatusCode::INTERNAL_SERVER_ERROR, "the agent failed".to_owned())),
                }
            }
            _ => {
                let text =
                    "LOCK and UNLOCK only, or PUT and DELETE: this is a lock, and `address` of a state is elsewhere";
                let mut response = respond((StatusCode::METHOD_NOT_ALLOWED, text.to_owned()));
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("LOCK, UNLOCK, PUT, DELETE"));
                response
            }
        }
    }

    /// Returns the status with which a request is refused that lacks the credentials, or has wrong ones. Terraform tells
    /// the two apart.
    fn refused(&self, headers: &HeaderMap) -> Option<StatusCode> {
        let credentials = self.credentials.as_ref()?;
        let Some(given) = headers.get(AUTHORIZATION) else { return Some(StatusCode::UNAUTHORIZED) };
        let encoded = given.as_bytes().strip_prefix(b"Basic ").unwrap_or_default();
        if BASE64_STANDARD.decode(encoded).is_ok_and(|given| credentials.is(&given)) {
            return None;
        }
        self.state.counts.wrong_passwords.up();
        Some(StatusCode::FORBIDDEN)
    }

    async fn lock(&self, key: &str, info: Bytes) -> Result<Response, ErrorAnswer> {
        let id = id_of(&info).ok_or_else(no_id)?;
        if !self.kept.has_room(key) {
            let text = format!("this agent keeps {TERRAFORM_LOCKS_MAX} locks for Terraform: unlock some");
            return Err((StatusCode::SERVICE_UNAVAILABLE, text));
        }
        let lease = lease(&self.state).await;
        for wait in [Duration::ZERO, TERRAFORM_COLLISION_TIME] {
            let take = Take {
                key: key.into(),
                owner: id.as_bytes().to_vec(),
                ttl: lease,
                wanted: Wanted::Exclusive,
                wait,
                // Terraform sends a request again whose answer it did not get.
                retry: true,
                note: info.to_vec(),
                keepalive: None,
            };
            if self.state.locks.take(take).await.map_err(failed)?.is_some() {
                // A client that disconnects cannot cancel this between grant and file, since nothing is awaited there.
                let Err(why) = self.kept.add(key, &id, lease) else {
                    return Ok(http::response(StatusCode::OK, TEXT, ""));
                };
                let _ = self.state.locks.release(key.as_bytes(), id.as_bytes(), Some(1), None).await;
                (self.tell)(&why);
                return Err((StatusCode::INTERNAL_SERVER_ERROR, format!("nothing is locked: {why}")));
            }
            if let Some(holder) = self.holder(key).await? {
                return Ok(http::response(StatusCode::LOCKED, JSON, info_of(&holder)));
            }
        }
        let info = json!({"ID": "", "Info": "other requests of this moment were in the way: try again"});
        Ok(http::response(StatusCode::LOCKED, JSON, info.to_string()))
    }

    async fn unlock(&self, key: &str, body: &[u8]) -> Result<(), ErrorAnswer> {
        if body.is_empty() {
            return self.force(key).await;
        }
        let id = id_of(body).ok_or_else(no_id)?;
        self.kept.remove(key, &id);
        match self.state.locks.release(key.as_bytes(), id.as_bytes(), Some(1), None).await.map_err(failed)? {
            Some(_) => Ok(()),
            None => {
                let text = format!(
                    "{id} does not hold {key}: it was lost or unlocked before, so other runs may have changed the state"
                );
                Err((StatusCode::CONFLICT, text))
            }
        }
    }

    /// Ends the lock without knowing its owner. `terraform force-unlock` asks for that: it sends no body, so no ID.
    async fn force(&self, key: &str) -> Result<(), ErrorAnswer> {
        let nobody = || (StatusCode::CONFLICT, format!("nobody holds {key}"));
        let holder = self.holder(key).await?.ok_or_else(nobody)?;
        let broken = self.state.locks.break_lock(key.as_bytes(), Some(holder.token)).await.map_err(failed)?;
        broken.ok_or_else(nobody)?;
        // This comes last: if the nodes refuse, the lock is still extended.
        self.kept.remove(key, &String::from_utf8_lossy(&holder.owner));
        let info = String::from_utf8_lossy(&info_of(&holder)).into_owned();
        (self.tell)(&format!("{key} is unlocked by force, which names no ID; its holder was {info}"));
        Ok(())
    }

    async fn holder(&self, key: &str) -> Result<Option<ShownGrant>, ErrorAnswer> {
        let shown = self.state.locks.info(key.as_bytes(), None).await.map_err(failed)?;
        Ok(shown.and_then(|shown| shown.grants.into_iter().next()))
    }
}

/// Returns the key of the lock that an address names.
fn key(uri: &Uri) -> Result<String, ErrorAnswer> {
    let path = uri.path().trim_start_matches('/');
    if path.is_empty() {
        return Err((StatusCode::BAD_REQUEST, "the path names the lock, such as /shop".to_owned()));
    }
    if uri.query().is_some() {
        return Err((StatusCode::BAD_REQUEST, "the path names the lock, so leave out what follows the ?".to_owned()));
    }
    if path.len() > PATH_BYTES_MAX {
        return Err((StatusCode::URI_TOO_LONG, format!("a path has up to {PATH_BYTES_MAX} bytes")));
    }
    Ok(format!("{PREFIX}{path}"))
}

/// Returns the ID of a lock info; `None` if it is none.
fn id_of(info: &[u8]) -> Option<String> {
    let info: Value = serde_json::from_slice(info).ok()?;
    info.get("ID")?.as_str().filter(|id| !id.is_empty()).map(str::to_owned)
}

/// Returns the lock info of a holder. A holder other than Terraform is shown with its owner as ID and its note as Info.
fn info_of(holder: &ShownGrant) -> Vec<u8> {
    if id_of(&holder.note).is_some() {
        return holder.note.clone();
    }
    let text = String::from_utf8_lossy;
    json!({"ID": text(&holder.owner), "Info": text(&holder.note)}).to_string().into()
}

fn no_id() -> ErrorAnswer {
    let text =
        "the body is no lock info, as Terraform sends it: JSON with an ID, such as {\"ID\": \"…\", \"Who\": \"…\"}";
    (StatusCode::BAD_REQUEST, text.to_owned())
}

/// Returns the error answer for a failure of the nodes.
fn failed(error: Error) -> ErrorAnswer {
    let status = match error.kind() {
        ErrorKind::BadArgument => StatusCode::BAD_REQUEST,
        ErrorKind::Owned => StatusCode::CONFLICT,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Refused::from(error).to_string())
}

fn respond((status, text): ErrorAnswer) -> Response {
    http::response(status, TEXT, text + "\n")
}
