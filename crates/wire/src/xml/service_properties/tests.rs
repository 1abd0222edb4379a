use super::*;
use proptest::prelude::*;

const RETENTION: &str = "<RetentionPolicy><Enabled>true</Enabled><Days>5</Days></RetentionPolicy>";
const RULE: &str = "<CorsRule><AllowedMethods>GET,PUT</AllowedMethods><AllowedOrigins>http://a.example</AllowedOrigins><AllowedHeaders>x-ms-meta-xyz,x-ms-meta-data*</AllowedHeaders><ExposedHeaders /><MaxAgeInSeconds>500</MaxAgeInSeconds></CorsRule>";

fn read(body: &[u8]) -> Result<ServicePropertiesUpdate, XmlError> {
    super::read(body, Service::Table)
}

fn wrapped(inner: &str) -> String {
    format!("{DECLARATION}<StorageServiceProperties>{inner}</StorageServiceProperties>")
}

fn cors(rules: &str) -> String {
    wrapped(&format!("<Cors>{rules}</Cors>"))
}

#[test]
fn a_whole_document_comes_back_as_it_was() {
    let metrics = format!(
        "<Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs>{RETENTION}"
    );
    let document = wrapped(&format!(
        "<Logging><Version>1.0</Version><Read>true</Read><Write>true</Write><Delete>true</Delete>{RETENTION}</Logging><HourMetrics>{metrics}</HourMetrics><MinuteMetrics>{metrics}</MinuteMetrics><Cors>{RULE}</Cors>"
    ));
    let mut properties = ServiceProperties::default();
    properties.apply(read(document.as_bytes()).unwrap());
    assert_eq!(write(&properties), document);
}

#[test]
fn defaults_are_those_of_a_new_account() {
    assert_eq!(
        write(&ServiceProperties::default()),
        wrapped(
            "<Logging><Version>1.0</Version><Read>false</Read><Write>false</Write><Delete>false</Delete><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></Logging><HourMetrics><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs><RetentionPolicy><Enabled>true</Enabled><Days>7</Days></RetentionPolicy></HourMetrics><MinuteMetrics><Version>1.0</Version><Enabled>false</Enabled><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></MinuteMetrics><Cors />"
        )
    );
}

#[test]
fn parts_in_any_order() {
    let update = read(wrapped("<Cors/>").as_bytes()).unwrap();
    assert_eq!(update, ServicePropertiesUpdate { cors: Some(Vec::new()), ..Default::default() });
    assert_eq!(read(wrapped("").as_bytes()), Ok(ServicePropertiesUpdate::default()));
    let disabled = "<HourMetrics><RetentionPolicy><Days>3</Days><Enabled>false</Enabled></RetentionPolicy><IncludeAPIs>true</IncludeAPIs><Enabled>false</Enabled><Version>1.0</Version></HourMetrics>";
    let metrics = read(wrapped(disabled).as_bytes()).unwrap().hour_metrics.unwrap();
    assert_eq!((metrics.include_apis, metrics.retention_days), (None, None));
}

#[test]
fn queues_pass_over_what_nobody_knows() {
    let body = wrapped(&format!("<New><Cors/></New><Metrics/><Cors><New/>{RULE}</Cors>"));
    let update = super::read(body.as_bytes(), Service::Queue).unwrap();
    assert_eq!(update.cors.map(|rules| rules.len()), Some(1));
    assert_eq!(read(body.as_bytes()), Err(XmlError::UnsupportedNode));
    let misplaced = super::read(wrapped("<CorsRule/>").as_bytes(), Service::Queue);
    assert_eq!(misplaced, Err(XmlError::UnsupportedNode));
}

#[test]
fn what_is_refused() {
    use XmlError::{MissingNode, NodeValue, Syntax, UnsupportedNode};
    let metrics = |inner: &str| wrapped(&format!("<MinuteMetrics>{inner}</MinuteMetrics>"));
    let days = |days: &str| {
        metrics(&format!(
            "<Version>1.0</Version><Enabled>false</Enabled><RetentionPolicy><Enabled>true</Enabled>{days}</RetentionPolicy>"
        ))
    };
    let cases = [
        (String::new(), Syntax),
        ("<Other/>".into(), Syntax),
        (wrapped("<Other/>"), UnsupportedNode),
        (wrapped("<Metrics/>"), UnsupportedNode),
        (wrapped("<Cors/><Cors/>"), Syntax),
        (wrapped("<Logging/>"), MissingNode),
        (metrics("<Version>1.0</Version><Enabled>false</Enabled>"), MissingNode),
        (
            metrics(&format!("<Version>1.0</Version><Enabled>true</Enabled>{RETENTION}")),
            MissingNode,
        ),
        (metrics(&format!("<Version>x</Version><Enabled>false</Enabled>{RETENTION}")), NodeValue),
        (metrics(&format!("<Version>1.0</Version><Enabled>yes</Enabled>{RETENTION}")), NodeValue),
        (days(""), MissingNode),
        (days("<Days>x</Days>"), NodeValue),
        (days("<Days>0</Days>"), Syntax),
        (days("<Days>366</Days>"), Syntax),
        (cors("<CorsRule/>"), MissingNode),
        (cors("<Other/>"), UnsupportedNode),
        (cors(&RULE.replace("500", "-1")), NodeValue),
        (cors(&RULE.replace("GET,PUT", "")), NodeValue),
        (cors(&RULE.replace("GET,PUT", "GET,CONNECT")), NodeValue),
        (cors(&RULE.replace("http://a.example", "")), NodeValue),
        (cors(&RULE.repeat(6)), Syntax),
    ];
    for (document, error) in cases {
        assert_eq!(read(document.as_bytes()), Err(error), "{document}");
    }
    assert!(read(days("<Days>365</Days>").as_bytes()).is_ok());
}

#[test]
fn limits_of_rules_on_both_sides() {
    // What the rule holds beside the list under test.
    const REST: usize = "GET,PUThttp://a.examplex-ms-meta-xyz,x-ms-meta-data*500".len();
    let document = |list: &str| {
        let element = format!("<ExposedHeaders>{list}</ExposedHeaders>");
        cors(&RULE.replace("<ExposedHeaders />", &element))
    };
    let literals = |count: usize| vec!["h"; count].join(",");
    let prefixes = |count: usize| vec!["h*"; count].join(",");
    let bytes = |count: usize| vec!["h".repeat(200); 20].join(",")[..count - REST].to_owned();
    let cases = [
        (literals(64), true),
        (literals(65), false),
        (prefixes(2), true),
        (prefixes(3), false),
        ("*".to_owned(), true),
        ("h".repeat(256), true),
        ("é".repeat(257), false),
        (bytes(2048), true),
        (bytes(2049), false),
    ];
    for (list, fits) in cases {
        let result = read(document(&list).as_bytes());
        assert_eq!(result.err(), (!fits).then_some(XmlError::Syntax), "{list}");
    }
    assert!(read(cors(&RULE.repeat(5)).as_bytes()).is_ok());
}

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = read(&bytes);
    }

    #[test]
    fn any_elements_are_answered(inner in "(</?(Logging|Cors|CorsRule|Version|Enabled|Days)/?>|1){0,8}") {
        let _ = read(wrapped(&inner).as_bytes());
    }
}
