use crate::valid_prefix;
use rowhouse_types::{EntityKey, TableName};
use rowhouse_wire::uri::{Query, Resource, decode, entity_path, parse_resource, table_path};

/// Paths and queries of tables: the path that the server writes for an entity names that entity.
pub fn path(data: &[u8]) {
    let text = valid_prefix(data);
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let _ = decode(path);
    if let Ok(query) = Query::parse(query) {
        for (name, value) in query.iter() {
            assert!(query.get(name).is_some() && 0 < query.count(name), "{name} {value}");
        }
    }
    match parse_resource(path) {
        Ok(Resource::Entity { table, partition, row })
            if table.parse::<TableName>().is_ok() && EntityKey::new(&partition, &row).is_ok() =>
        {
            let again = parse_resource(&format!("/{}", entity_path(&table, &partition, &row)));
            assert_eq!(again, Ok(Resource::Entity { table, partition, row }));
        }
        Ok(Resource::Table(name)) if name.parse::<TableName>().is_ok() => {
            let again = parse_resource(&format!("/{}", table_path(&name)));
            assert_eq!(again, Ok(Resource::Table(name)));
        }
        _ => {}
    }
}
