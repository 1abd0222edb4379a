use rowhouse_types::{Service, ServiceProperties};
use rowhouse_wire::xml::{acl, service_properties};

/// XML bodies, access policies and service properties: they survive being written and read again.
pub fn xml(data: &[u8]) {
    for service in [Service::Table, Service::Queue] {
        if let Ok(policies) = acl::read(data, service) {
            let again = acl::read(acl::write(&policies).as_bytes(), service);
            assert_eq!(again.as_deref(), Ok(&policies[..]));
        }
        if let Ok(update) = service_properties::read(data, service) {
            let mut properties = ServiceProperties::default();
            properties.apply(update);
            let text = service_properties::write(&properties);
            let mut again = ServiceProperties::default();
            let read = service_properties::read(text.as_bytes(), service);
            again.apply(read.expect("what we write we can read"));
            assert_eq!(again, properties);
        }
    }
}
