//! Settings of a service within an account: logging, metrics and cross-origin rules.

use serde::{Deserialize, Serialize};

/// What Set Service Properties stores and Get Service Properties returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceProperties {
    /// Which requests are logged.
    pub logging: Logging,
    /// Metrics by the hour.
    pub hour_metrics: Metrics,
    /// Metrics by the minute.
    pub minute_metrics: Metrics,
    /// Cross-origin rules in order of evaluation.
    pub cors: Vec<CorsRule>,
}

/// Which requests are logged and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logging {
    /// Always `1.0` so far; echoed.
    pub version: String,
    /// Log reads.
    pub read: bool,
    /// Log writes.
    pub write: bool,
    /// Log deletes.
    pub delete: bool,
    /// How many days logs are kept; for ever if absent.
    pub retention_days: Option<u32>,
}

/// Whether metrics are kept, and which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// Always `1.0` so far; echoed.
    pub version: String,
    /// Kept at all.
    pub enabled: bool,
    /// Per operation too; present exactly when enabled.
    pub include_apis: Option<bool>,
    /// How many days metrics are kept; for ever if absent.
    pub retention_days: Option<u32>,
}

/// One cross-origin rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorsRule {
    /// Origins, `*`, or `http://*.example.org`.
    pub allowed_origins: Vec<String>,
    /// Verbs in upper case.
    pub allowed_methods: Vec<String>,
    /// Header names, `*`, or `prefix*`.
    pub allowed_headers: Vec<String>,
    /// Header names, `*`, or `prefix*`.
    pub exposed_headers: Vec<String>,
    /// How long a browser may remember the answer.
    pub max_age_seconds: u32,
}

/// A Set Service Properties request: what is absent keeps its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicePropertiesUpdate {
    /// New logging settings.
    pub logging: Option<Logging>,
    /// New metrics by the hour.
    pub hour_metrics: Option<Metrics>,
    /// New metrics by the minute.
    pub minute_metrics: Option<Metrics>,
    /// New rules; empty deletes all.
    pub cors: Option<Vec<CorsRule>>,
}

impl Default for ServiceProperties {
    /// What a new account of the original service answers.
    fn default() -> Self {
        let version = || "1.0".to_owned();
        Self {
            logging: Logging {
                version: version(),
                read: false,
                write: false,
                delete: false,
                retention_days: None,
            },
            hour_metrics: Metrics {
                version: version(),
                enabled: true,
                include_apis: Some(true),
                retention_days: Some(7),
            },
            minute_metrics: Metrics {
                version: version(),
                enabled: false,
                include_apis: None,
                retention_days: None,
            },
            cors: Vec::new(),
        }
    }
}

impl ServiceProperties {
    /// Takes over what the update names.
    pub fn apply(&mut self, update: ServicePropertiesUpdate) {
        let ServicePropertiesUpdate { logging, hour_metrics, minute_metrics, cors } = update;
        if let Some(logging) = logging {
            self.logging = logging;
        }
        if let Some(metrics) = hour_metrics {
            self.hour_metrics = metrics;
        }
        if let Some(metrics) = minute_metrics {
            self.minute_metrics = metrics;
        }
        if let Some(cors) = cors {
            self.cors = cors;
        }
    }
}
