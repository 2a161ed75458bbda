//! Clients of stores: one for each bucket, container or server, made from the environment.
//!
//! May use: `objects::counting`.

use std::collections::HashMap;
use std::path::Path as FilePath;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, ObjectMeta, ObjectStore, ObjectStoreScheme, RetryConfig,
};
use tokio::runtime::Runtime;
use url::{Position, Url};

use super::StoreFault;
use super::counting::Counting;

/// How long nothing may come of an answer.
const SILENCE: Duration = Duration::from_secs(20);
/// How long an answer may take, from the request to its last byte: many share the network.
const ANSWER: Duration = Duration::from_secs(600);
const CONNECT: Duration = Duration::from_secs(5);
/// From the first request of a read to the last that is tried again.
const PATIENCE: Duration = Duration::from_secs(60);
const MOST_RETRIES: usize = 12;
/// Between two of them, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A bucket, container or server.
pub(super) struct Client {
    pub(super) store: Arc<dyn ObjectStore>,
    /// What was listed and looked up so far: opening an object then takes no request, and is of the same version.
    pub(super) known: Mutex<HashMap<Path, ObjectMeta>>,
    /// It lists nothing.
    pub(super) is_http: bool,
}

/// By where they are.
static CLIENTS: Mutex<Option<HashMap<String, Arc<Client>>>> = Mutex::new(None);

/// Forgets what is known of objects.
pub(super) fn look_again() {
    let clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    for client in clients.iter().flat_map(HashMap::values) {
        let known = client.known.lock();
        known.unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The thread that all requests of the process wait in.
pub(super) fn runtime() -> Result<&'static Runtime, StoreFault> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        // Several libraries of the process may have chosen one.
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder
            .worker_threads(1)
            .thread_name("object store")
            .enable_all();
        builder.build().map_err(|error| error.to_string())
    });
    runtime.as_ref().map_err(|error| StoreFault {
        what: format!("the thread that asks the store cannot be started: {error}"),
        remedy: "allow the process more threads",
    })
}

/// The client for `url`, and the path within its store.
pub(super) fn client(url: &FilePath) -> Result<(Arc<Client>, Path), StoreFault> {
    let text = url.to_str().unwrap_or_default();
    let parsed = Url::parse(text).map_err(|error| wrong(error.to_string()))?;
    if !parsed.username().is_empty() && !parsed.scheme().starts_with("ab")
        || parsed.password().is_some()
        || parsed.query().is_some()
    {
        return Err(StoreFault {
            what: "credentials do not belong in a URL, which reports and traces keep".to_owned(),
            remedy: "give them in the environment, as the store's own tools read them",
        });
    }
    let (scheme, path) =
        ObjectStoreScheme::parse(&parsed).map_err(|error| wrong(error.to_string()))?;
    let is_http = scheme == ObjectStoreScheme::Http;
    let mut place = parsed[..Position::BeforePath].to_owned();
    if !is_http && parsed.scheme() == "https" {
        // The bucket or container may be the first part of the path.
        place.extend(parsed.path_segments().and_then(|mut parts| parts.next()));
    }
    let clients = CLIENTS.lock();
    let mut clients = clients.unwrap_or_else(PoisonError::into_inner);
    let clients = clients.get_or_insert_default();
    if let Some(client) = clients.get(&place) {
        return Ok((client.clone(), path));
    }
    // Made within the runtime, since some clients start tasks.
    let _entered = runtime()?.enter();
    let store = open(&scheme, &parsed).map_err(|error| wrong(error.to_string()))?;
    let client = Arc::new(Client {
        store,
        known: Mutex::default(),
        is_http,
    });
    clients.insert(place, client.clone());
    Ok((client, path))
}

fn open(scheme: &ObjectStoreScheme, url: &Url) -> object_store::Result<Arc<dyn ObjectStore>> {
    // Of an endpoint in the environment the user says whether it is encrypted.
    let options = ClientOptions::new()
        .with_timeout(ANSWER)
        .with_connect_timeout(CONNECT)
        .with_read_timeout(SILENCE)
        .with_allow_http(true);
    let retry = RetryConfig {
        backoff: BackoffConfig {
            max_backoff: LONGEST_PAUSE,
            ..BackoffConfig::default()
        },
        max_retries: MOST_RETRIES,
        retry_timeout: PATIENCE,
    };
    Ok(match scheme {
        ObjectStoreScheme::AmazonS3 => Arc::new(
            AmazonS3Builder::from_env()
                .with_url(url.as_str())
                .with_client_options(options)
                .with_retry(retry)
                .with_http_connector(Counting)
                .build()?,
        ),
        ObjectStoreScheme::GoogleCloudStorage => Arc::new(
            GoogleCloudStorageBuilder::from_env()
                .with_url(url.as_str())
                .with_client_options(options)
                .with_retry(retry)
                .with_http_connector(Counting)
                .build()?,
        ),
        ObjectStoreScheme::MicrosoftAzure => Arc::new(
            MicrosoftAzureBuilder::from_env()
                .with_url(url.as_str())
                .with_client_options(options)
                .with_retry(retry)
                .with_http_connector(Counting)
                .build()?,
        ),
        _ => Arc::new(
            HttpBuilder::new()
                .with_url(&url[..Position::BeforePath])
                .with_client_options(options)
                .with_retry(retry)
                .with_http_connector(Counting)
                .build()?,
        ),
    })
}

fn wrong(what: String) -> StoreFault {
    StoreFault {
        what,
        remedy: "a URL is s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or https://HOST/FILE, and the \
                 account comes from the environment (AWS_..., GOOGLE_..., AZURE_...)",
    }
}
